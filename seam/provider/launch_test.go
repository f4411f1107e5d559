package provider

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/aspengine/asp/sandbox"
	"github.com/aspengine/asp/seam/manifest"
)

// TestExposed: of hidden directories a provider sees what it is made of, and
// never the workspace, the state or the rest of the home around them.
func TestExposed(t *testing.T) {
	top, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range []string{"home/tool", "home/.local/bin/x", "home/.local/state/asp/config.json", "home/go/bin/server", "home/go/lib/l", "home/prov/main.py", "home/prov/lib.py",
		"home/.ssh/key", "ws/tools/check", "ws/secret", "opt/bin/y"} {
		p := filepath.Join(top, f)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, nil, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("../go/bin/server", filepath.Join(top, "home/prov/link")); err != nil {
		t.Fatal(err)
	}
	in := func(list string) (out []string) {
		for _, f := range strings.Fields(list) {
			out = append(out, filepath.Join(top, f))
		}
		return out
	}
	p := New(Options{Sandbox: Launch{Hide: in("home ws home/.local/state/asp"), Protect: in("ws home/.local/state/asp"), Read: in("home/.ssh ws/nothing opt")}})
	for _, c := range []struct{ bin, args, want string }{
		{"home/tool", "", "home/tool"},
		{"home/.local/bin/x", "", "home/.local/bin"},
		{"home/go/bin/server", "", "home/go"},
		{"home/prov/link", "", "home/prov home/go"},
		{"opt/bin/y", "home/prov/main.py", "opt home/prov"},
		{"ws/tools/check", "", "ws/tools/check"},
		{"opt/bin/y", "ws/secret ws home", "opt"},
	} {
		m := manifest.Manifest{Bin: in(c.bin)[0], Args: append(in(c.args), "--flag", "ws/secret")}
		var got []string
		for _, m := range p.exposed(m, demand{}) {
			if m.Kind != sandbox.MountBindRO || m.Source != m.Target {
				t.Errorf("%+v", m)
			}
			got = append(got, m.Target)
		}
		// What tests use lies in the private /tmp or /dev/shm, so everything has to be shown.
		want := append(in(c.want), in("home/.ssh opt")...)
		slices.Sort(want)
		slices.Sort(got)
		if got, want = slices.Compact(got), slices.Compact(want); !slices.Equal(got, want) {
			t.Errorf("%s %s: shown %q, want %q", c.bin, c.args, got, want)
		}
	}
}

// What is configured bounds a provider as it does a check.
func TestLaunchIsLimited(t *testing.T) {
	p := New(Options{Sandbox: Launch{Limits: Limits{Files: 70, CPUPct: 50, MemoryMb: 80, FileMb: 3, Processes: 9}}})
	s, scratch, err := p.spec(manifest.Manifest{Bin: "/bin/true"}, sandbox.Expected(), demand{}, nil)
	if err != nil || scratch != "" {
		t.Fatalf("%q, %v", scratch, err)
	}
	l := s.Limits
	if l.Files != 70 || l.CPUPct != 50 || l.Memory != 80<<20 || l.FileSize != 3<<20 || l.Processes != 9 {
		t.Errorf("%+v", l)
	}
}
