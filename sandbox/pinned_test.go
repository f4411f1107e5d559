//go:build linux

package sandbox_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/aspengine/asp/sandbox"
)

// The program that runs is the open file: whatever was put at its name since
// does not, in namespaces and without, for binaries and for scripts.
func TestPinnedProgram(t *testing.T) {
	w := newWorld(t)
	self, err := os.ReadFile("/bin/echo")
	must(t, err)
	for _, plain := range []bool{false, true} {
		for _, script := range []bool{false, true} {
			for _, swapped := range []bool{false, true} {
				dir := t.TempDir()
				prog := filepath.Join(dir, "prog")
				content := self
				if script {
					content = []byte("#!/bin/sh\necho \"$@\"\n")
				}
				must(t, os.WriteFile(prog, content, 0o755))
				link := filepath.Join(dir, "link")
				must(t, os.Symlink("prog", link))
				f, err := os.Open(prog)
				must(t, err)
				if swapped {
					must(t, os.WriteFile(prog+"2", []byte("#!/bin/sh\necho swapped\n"), 0o755))
					must(t, os.Rename(prog+"2", prog))
				}
				s := sandbox.Spec{Argv: []string{link, "good"}, Dir: "/", Require: sandbox.Advisory, MergeOutput: true, Hide: []string{dir}}
				caps := w.caps
				if plain {
					caps = sandbox.Caps{}
				} else {
					s.Protect = []sandbox.Protect{{Path: w.live}}
				}
				out := ""
				p, err := sandbox.Start(context.Background(), caps, s, sandbox.Stdio{Exec: f})
				if err == nil {
					var res sandbox.Result
					res, err = p.Wait()
					must(t, err)
					out = string(res.Stdout) + res.StartError
				} else {
					out = err.Error()
				}
				f.Close()
				if want := map[bool]string{false: "good\n", true: "not the file that was verified"}[swapped]; !strings.HasSuffix(out, want) || strings.Contains(out, "swapped") {
					t.Errorf("plain %v, script %v, swapped %v: %q", plain, script, swapped, out)
				}
			}
		}
	}
}
