package gitbase_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/aspengine/asp/snapshot/gitbase"
)

// TestIndexVersionsAgree: versions 2, 3 and 4 of one index hold the same paths,
// those that git lists, and the directory table finds each.
func TestIndexVersionsAgree(t *testing.T) {
	sealed(t)
	rapid.Check(t, func(t *rapid.T) {
		dir, err := os.MkdirTemp("", "index")
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(dir)
		r := tree{dir}
		r.git(t, "init", "-q")
		part := rapid.StringMatching(`[a-c.0-]{1,3}`).Filter(func(s string) bool { return strings.Trim(s, ".") != "" })
		for range rapid.IntRange(0, 12).Draw(t, "files") {
			p := strings.Join(rapid.SliceOfN(part, 1, 4).Draw(t, "path"), "/")
			if rapid.IntRange(0, 9).Draw(t, "long") == 0 {
				p = strings.Repeat(p+"/"+strings.Repeat("x", 200)+"/", 10) + "f"
			}
			os.MkdirAll(r.path(p)[:strings.LastIndexByte(r.path(p), '/')], 0o755)
			os.WriteFile(r.path(p), []byte("1"), 0o644)
		}
		r.git(t, "add", "-A")
		want := strings.Split(r.git(t, "ls-files", "-z"), "\x00")
		want = want[:len(want)-1]
		for _, v := range []string{"2", "4"} {
			r.git(t, "update-index", "--index-version", v)
			b, err := os.ReadFile(r.path(".git/index"))
			if err != nil && len(want) > 0 {
				t.Fatal(err)
			}
			if err != nil {
				continue
			}
			n, got, err := gitbase.DecodeIndex(b)
			if err != nil {
				t.Fatal(err)
			}
			if d := gocmp.Diff(want, slices.Clip(append([]string{}, got...))); d != "" || n != len(got) {
				t.Fatalf("version %s: %d in the table; paths (-git +ours):\n%s", v, n, d)
			}
		}
	})
}

// FuzzIndex: no bytes make the decoder panic, and what it accepts can be found
// again in its table.
func FuzzIndex(f *testing.F) {
	f.Add([]byte("DIRC\x00\x00\x00\x02\x00\x00\x00\x00" + strings.Repeat("\x00", 20)))
	entry := strings.Repeat("\x00", 60) + "\x00\x03a/b" + strings.Repeat("\x00", 7)
	for _, v := range []string{"\x02", "\x03", "\x04"} {
		f.Add([]byte("DIRC\x00\x00\x00" + v + "\x00\x00\x00\x01" + entry + "TREE\x00\x00\x00\x05\x00-1 0" + strings.Repeat("\x00", 20)))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		n, paths, err := gitbase.DecodeIndex(raw)
		if err == nil && n != len(paths) {
			t.Errorf("%d paths, %d in the table", len(paths), n)
		}
	})
}
