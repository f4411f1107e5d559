//go:build linux

package sandbox_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/aspengine/asp/sandbox"
	"github.com/aspengine/asp/sandbox/sandboxtest"
)

// What is left when everybody is dead is not waited for by who wants the answer, but by Ends, and
// then nothing is left. Without Ends nothing is left with the answer.
func TestEnds(t *testing.T) {
	for _, beside := range []bool{true, false} {
		for _, end := range []string{"exit", "killed"} {
			t.Run(fmt.Sprintf("beside=%v/%s", beside, end), func(t *testing.T) {
				w := newWorld(t)
				script := "echo changed > f; readlink /proc/self/ns/mnt"
				if end == "killed" {
					script += "; sleep " + sleeper(t)
				}
				s := w.spec(script)
				var ends sandbox.Ends
				if beside {
					s.Ends = &ends
				}
				r, out, err := os.Pipe()
				must(t, err)
				defer r.Close()
				p, err := sandbox.Start(t.Context(), w.caps, s, sandbox.Stdio{Out: out})
				out.Close()
				must(t, err)
				line := make([]byte, 100)
				n, err := r.Read(line)
				must(t, err)
				mounts, _ := sandboxtest.Held(t)
				if want := strings.TrimSpace(string(line[:n])); beside != (len(mounts) == 1 && mounts[0] == want) {
					t.Errorf("while it runs in %s we hold %q", want, mounts)
				}
				if end == "killed" {
					p.Kill()
				}
				res, err := p.Wait()
				must(t, err)
				if res.Cancelled != (end == "killed") || res.Boundary.Level != sandbox.MediatedWrite {
					t.Errorf("result %+v", res)
				}
				if n := children(t); n != 0 {
					t.Errorf("%d processes are left with the answer", n)
				}
				if beside {
					ends.Wait()
				}
				if mounts, groups := sandboxtest.Held(t); len(mounts)+len(groups) != 0 {
					t.Errorf("left: %q, %q", mounts, groups)
				}
			})
		}
	}
}

// A launch that fails leaves nothing either.
func TestEndsOfNoLaunch(t *testing.T) {
	w := newWorld(t)
	s := w.spec("true")
	s.Mounts[0].Upper = filepath.Join(w.upper, "absent")
	s.Ends = &sandbox.Ends{}
	if res, err := sandbox.Run(t.Context(), w.caps, s); err == nil {
		t.Fatalf("it ran: %+v", res)
	}
	s.Ends.Wait()
	if n := children(t); n != 0 {
		t.Errorf("%d processes are left", n)
	}
	if mounts, groups := sandboxtest.Held(t); len(mounts)+len(groups) != 0 {
		t.Errorf("left: %q, %q", mounts, groups)
	}
}
