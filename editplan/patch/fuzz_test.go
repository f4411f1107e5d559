package patch_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/aspengine/asp/editplan/patch"
	"github.com/aspengine/asp/internal/need"
)

// FuzzParse: no input makes it panic or take much; what is taken can be applied
// to anything without a panic; what is rendered of a result reads back.
func FuzzParse(f *testing.F) {
	for _, c := range scenarios {
		f.Add([]byte(c.patch), []byte("a\nb\n"))
	}
	f.Add(patch.Render([]patch.Change{{Kind: patch.Modify, Old: "f", Before: []byte("a\x00"), After: []byte("b\x00")}}, patch.RenderOptions{}), []byte("a\x00"))
	f.Add([]byte(patch.BinaryPatch([]byte("a\x00"), []byte("b\x00"), "delta", []byte{2, 2, 1, 'b', 0x91, 1, 1})), []byte("a\x00"))
	f.Fuzz(func(t *testing.T, data, old []byte) {
		need.Bounded(t, len(data)+len(old), func() {
			limits := patch.Limits{Result: 1 << 20, Inflated: 1 << 22}
			files, err := patch.Parse(data, patch.ParseOptions{Limits: limits})
			if err != nil {
				return
			}
			for i := range files {
				fp := &files[i]
				for _, o := range []patch.Options{{Limits: limits}, {Limits: limits, Fuzz: 2}, {Limits: limits, ZeroContext: true}} {
					out := patch.Apply(fp, old, o)
					if out.New != nil && len(out.Failures) > 0 {
						t.Fatalf("result beside failures: %+v", out)
					}
					if len(out.Failures) > 0 || string(out.New) == string(old) {
						continue
					}
					r := patch.Render([]patch.Change{{Kind: patch.Modify, Old: "f", Before: old, After: out.New}}, patch.RenderOptions{})
					back, err := patch.Parse(r, patch.ParseOptions{})
					if err != nil || len(back) != 1 {
						t.Fatalf("rendered form does not read back: %v\n%s", err, r)
					}
					if again := patch.Apply(&back[0], old, patch.Options{}); string(again.New) != string(out.New) {
						t.Fatalf("rendered form makes %q, want %q", again.New, out.New)
					}
				}
			}
		})
	})
}

// FuzzApplyAgainstGit: one hunk text on one file, held against git apply.
func FuzzApplyAgainstGit(f *testing.F) {
	git, err := exec.LookPath("git")
	if err != nil {
		need.Missing(f, "there is no git to compare with")
	}
	for _, c := range scenarios {
		if w, ok := c.world["f"]; ok && c.git && len(c.world) == 1 && strings.HasPrefix(c.patch, head) && !strings.Contains(c.patch[len(head):], head) {
			f.Add([]byte(strings.TrimPrefix(c.patch, head)), []byte(w.content))
		}
	}
	f.Fuzz(func(t *testing.T, hunks, old []byte) {
		// One file and nothing but hunks: headers have tests of their own.
		if strings.Contains(string(hunks), "diff --git ") || strings.Contains(string(hunks), "--- ") || len(hunks) > 4096 || len(old) > 4096 {
			return
		}
		w := world{"f": {string(old), plain}}
		tr := &trial{name: "fuzz", world: w, patch: head + string(hunks)}
		dir := t.TempDir()
		w.write(t, dir)
		if err := os.WriteFile(filepath.Join(dir, "p"), []byte(tr.patch), 0o600); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(git, "apply", "--whitespace=nowarn", "p")
		cmd.Dir = dir
		cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "GIT_CONFIG_NOSYSTEM=1", "LC_ALL=C", "GIT_CEILING_DIRECTORIES=" + filepath.Dir(dir)}
		msg, err := cmd.CombinedOutput()
		if err := os.Remove(filepath.Join(dir, "p")); err != nil {
			t.Fatal(err)
		}
		tr.ok, tr.msg, tr.after = err == nil, string(msg), read(t, dir)
		if _, im := tr.ours(t); statesLines(tr.patch) || tr.ok && strictSide(im) != "" {
			return
		}
		tr.compare(t)
	})
}

// statesLines: hunks without context are where we differ on purpose.
func statesLines(p string) bool {
	files, err := patch.Parse([]byte(p), patch.ParseOptions{})
	if err != nil {
		return false
	}
	for _, f := range files {
		for _, h := range f.Hunks {
			if h.Leading == 0 && h.Trailing == 0 && (h.OldStart > 1 || h.OldStart == 1 && h.OldLines == 0) {
				return true
			}
		}
	}
	return false
}
