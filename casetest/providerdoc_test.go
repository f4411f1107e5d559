package casetest

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/aspengine/asp/internal/need"
)

// fenced are the blocks of a document between three backquotes.
func fenced(doc string) []string {
	var out []string
	for i, part := range strings.Split("\n"+doc, "\n```") {
		if i%2 == 1 {
			_, body, _ := strings.Cut(part, "\n")
			out = append(out, body)
		}
	}
	return out
}

// TestProviderDoc goes the way of docs/provider.md from a module of one's own to a
// change that is applied, in a shell, and holds every transcript in it.
func TestProviderDoc(t *testing.T) {
	b, err := os.ReadFile("../docs/provider.md")
	must(t, err)
	_, doc, _ := strings.Cut(string(b), "## Enrol it")
	w := newWorld(t, map[string]string{"a.go": "package a\n"})
	bin, module := filepath.Join(w.base, "bin"), filepath.Join(w.ws, "header")
	for _, d := range []string{bin, module} {
		must(t, os.Mkdir(d, 0o755))
		w.own(d)
	}
	must(t, os.Symlink(binary, filepath.Join(bin, "asp")))
	code, err := os.ReadFile("../provider/example/main.go")
	must(t, err)
	must(t, os.WriteFile(filepath.Join(module, "main.go"), code, 0o644))
	checkout, err := filepath.Abs("..")
	must(t, err)

	const build = "go build -mod=mod -o header .\n"
	integrity, dir, applied := "", module, false
	for _, block := range fenced(doc) {
		switch {
		case strings.HasPrefix(block, "module "):
			must(t, os.WriteFile(filepath.Join(module, "go.mod"), []byte(strings.Replace(block, "/home/me/asp", strconv.Quote(checkout), 1)), 0o644))
			continue
		case strings.HasPrefix(block, "{"):
			w.write(".asp/asp.json", regexp.MustCompile(`sha256:[0-9a-f]{64}`).ReplaceAllString(block, integrity), 0o644)
			continue
		}
		if rest, ok := strings.CutPrefix(block, "$ "+build); ok {
			c := exec.CommandContext(t.Context(), need.Tool(t, "go"), strings.Fields(build)[1:]...)
			c.Dir, c.Env = module, append(os.Environ(), "GOFLAGS=", "GOPROXY=off", "GOWORK=off", "CGO_ENABLED=0")
			if out, err := c.CombinedOutput(); err != nil {
				t.Fatalf("%s%v\n%s", build, err, out)
			}
			block = rest
		}
		var all []transcript
		script := ""
		for line := range strings.Lines(block) {
			line = strings.TrimSuffix(line, "\n")
			if command, ok := strings.CutPrefix(line, "$ "); ok {
				all = append(all, transcript{command: command})
				script += "printf '\\036'\n" + strings.Replace(command, "../app", w.root, 1) + "\n"
			} else if len(all) > 0 {
				all[len(all)-1].says = append(all[len(all)-1].says, line)
			}
		}
		if len(all) == 0 {
			t.Fatalf("a block without a command:\n%s", block)
		}
		sh := w.command(dir, need.Tool(t, "sh"), "-ec", script+"printf '\\036'; pwd")
		sh.Env = append(sh.Env, "PATH="+bin+":"+os.Getenv("PATH"))
		var out bytes.Buffer
		sh.Stdout, sh.Stderr = &out, &out
		if err := sh.Run(); err != nil {
			t.Fatalf("%v\n%s\n%s", err, block, out.Bytes())
		}
		parts := strings.Split(out.String(), "\x1e")[1:]
		for i, x := range all {
			got := strings.Split(strings.TrimSuffix(w.steady(parts[i]), "\n"), "\n")
			if says := strings.Split(w.steady(strings.Join(x.says, "\n")), "\n"); !printed(says, got) {
				t.Errorf("docs/provider.md says that %q prints\n%s\nand it prints\n%s", x.command, strings.Join(says, "\n"), parts[i])
			}
			if x.command == "asp server status header" {
				integrity = regexp.MustCompile(`sha256:[0-9a-f]{64}`).FindString(parts[i])
			}
			applied = applied || x.command == "asp apply p1"
		}
		dir = strings.TrimSpace(parts[len(all)])
	}
	if !applied {
		t.Error("the way does not end in a change that is applied")
	}
}
