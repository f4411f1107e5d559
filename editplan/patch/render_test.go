package patch_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/aspengine/asp/editplan"
	"github.com/aspengine/asp/editplan/patch"
	"pgregory.net/rapid"
)

func TestRender(t *testing.T) {
	for _, c := range []struct {
		name string
		c    patch.Change
		want string
	}{
		{"create empty", patch.Change{Kind: patch.Create, New: "f"}, "diff --git a/f b/f\nnew file mode 100644\nindex 0000000..e69de29\n"},
		{"delete", patch.Change{Kind: patch.Delete, Old: "a b", OldMode: exec1, Before: []byte("x")},
			"diff --git a/a b b/a b\ndeleted file mode 100755\nindex c1b0730..0000000\n--- a/a b\t\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n\\ No newline at end of file\n"},
		{"mode", patch.Change{Kind: patch.Modify, Old: "f", NewMode: exec1, Before: []byte("x"), After: []byte("x")}, "diff --git a/f b/f\nold mode 100644\nnew mode 100755\n"},
		{"nothing", patch.Change{Kind: patch.Modify, Old: "f", Before: []byte("x"), After: []byte("x")}, ""},
		{"rename", patch.Change{Kind: patch.Rename, Old: "f", New: "\xff", Before: []byte("x"), After: []byte("x")},
			"diff --git a/f \"b/\\377\"\nsimilarity index 100%\nrename from f\nrename to \"\\377\"\n"},
		{"title", patch.Change{Kind: patch.Modify, Old: "f", Before: []byte("func f() {\n" + numbered(1, 9)), After: []byte("func f() {\n" + numbered(1, 8))},
			"diff --git a/f b/f\nindex 78de59a..1fef1ee 100644\n--- a/f\n+++ b/f\n@@ -7,4 +7,3 @@ line 5\n line 6\n line 7\n line 8\n-line 9\n"},
	} {
		got := string(patch.Render([]patch.Change{c.c}, patch.RenderOptions{}))
		if c.name == "title" { // ids are checked by git in another test
			got = got[strings.Index(got, "---"):]
			c.want = c.want[strings.Index(c.want, "---"):]
		}
		if got != c.want {
			t.Errorf("%s: got\n%s\nwant\n%s", c.name, got, c.want)
		}
	}
}

// TestRenderTerminal: nothing of the content or the names reaches the terminal
// as anything but visible text.
func TestRenderTerminal(t *testing.T) {
	evil := "\x1b]0;pwned\a \x1b[2J \u202egnp.exe \u009b31m \xe9 \r\x08 nbsp\u00a0 zero\u200bwidth \ufeff käse 🟢\tok\n"
	c := []patch.Change{
		{Kind: patch.Modify, Old: "na\x1b[31mme", Before: []byte("x\n" + evil), After: []byte(evil + "y\n")},
		{Kind: patch.Rename, Old: "\u202eold", New: "new\n\x1b", Before: []byte(evil), After: []byte(evil + evil)},
		{Kind: patch.Create, New: "bin", After: []byte("\x00\x1b[2J")},
	}
	for _, o := range []patch.RenderOptions{{Terminal: true}, {Color: true}} {
		out := string(patch.Render(c, o)) + string(patch.Stat(c, o))
		for _, own := range []string{"\x1b[1m", "\x1b[36m", "\x1b[31m", "\x1b[32m", "\x1b[7m", "\x1b[27m", "\x1b[0m"} {
			if o.Color {
				out = strings.ReplaceAll(out, own, "")
			}
		}
		for i, r := range out {
			if r < ' ' && r != '\n' && r != '\t' || r >= 0x7f && r < 0xa0 || strings.ContainsRune("\u202e\u00a0\u200b\ufeff\ufffd", r) {
				t.Fatalf("%+v: %q at byte %d of %q", o, r, i, out)
			}
		}
		for _, want := range []string{"^[]0;pwned^G", "<U+202E>gnp.exe", "<U+009B>31m", "<E9>", "^M^H", "käse 🟢\tok", "binary content of 5 bytes"} {
			if !strings.Contains(out, want) {
				t.Errorf("%+v: no %s in %q", o, want, out)
			}
		}
	}
	// The form for programs keeps every byte.
	if out := string(patch.Render(c[:1], patch.RenderOptions{})); !strings.Contains(out, evil) {
		t.Errorf("plain form lost bytes: %q", out)
	}
}

// TestRenderUTF8: the form for JSON is UTF-8 whatever the content, and leads to
// the same bytes.
func TestRenderUTF8(t *testing.T) {
	wide := strings.Repeat("käse", 30) + "\n" // a title cut at a fixed byte would break
	for _, c := range []patch.Change{
		{Kind: patch.Modify, Old: "f", Before: []byte("caf\xe9\n"), After: []byte("caf\xe9s\n")},
		{Kind: patch.Create, New: "\xff", After: []byte("caf\xe9\n")},
		{Kind: patch.Rename, Old: "f", New: "g", Before: []byte("caf\xe9\n"), After: []byte("cafe\n")},
		{Kind: patch.Modify, Old: "f", Before: []byte(wide + numbered(1, 9)), After: []byte(wide + numbered(1, 8))},
	} {
		out := patch.Render([]patch.Change{c}, patch.RenderOptions{UTF8: true})
		if !utf8.Valid(out) {
			t.Errorf("not UTF-8: %q", out)
		}
		if got := patch.Apply(parseOne(t, string(out)), c.Before, patch.Options{}); string(got.New) != string(c.After) {
			t.Errorf("got %q %v, want %q by %q", got.New, got.Failures, c.After, out)
		}
	}
}

func TestRenderEmphasis(t *testing.T) {
	c := []patch.Change{{Kind: patch.Modify, Old: "f", Before: []byte("return oldName(x)\n"), After: []byte("return newName(x)\n")}}
	got := string(patch.Render(c, patch.RenderOptions{Color: true}))
	for _, want := range []string{"\x1b[31m-return \x1b[7moldName\x1b[27m(x)\x1b[0m\n", "\x1b[32m+return \x1b[7mnewName\x1b[27m(x)\x1b[0m\n", "\x1b[1m--- a/f\x1b[0m\n", "\x1b[36m@@ -1 +1 @@\x1b[0m\n"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in %q", want, got)
		}
	}
}

func TestStat(t *testing.T) {
	c := []patch.Change{
		{Kind: patch.Modify, Old: "src/a.go", Before: []byte("a\nb\n"), After: []byte("a\nc\nd\n")},
		{Kind: patch.Create, New: "n", After: []byte("a\n")},
		{Kind: patch.Delete, Old: "d", Before: []byte("a\n")},
		{Kind: patch.Rename, Old: "r", New: "s", NewMode: exec1, Before: []byte("a\n"), After: []byte("a\n")},
		{Kind: patch.Modify, Old: "m", OldMode: exec1, Before: []byte("a\n"), After: []byte("a\n")},
		{Kind: patch.Modify, Old: "b", Before: []byte("a\x00"), After: []byte("")},
		{Kind: patch.Modify, Old: "long/" + strings.Repeat("x", 100), Before: []byte("a\n"), After: []byte("")},
	}
	const want = `modify src/a.go              | +2 -1
create n                     | +1 -0
delete d                     | +0 -1
mode   100644 => 100755 s
rename r => s                | +0 -0
mode   100755 => 100644 m
modify b                     | binary, 2 => 0 bytes
modify long/xxxxx…xxxxxxxxxx | +0 -1
7 files changed, +3 -3
`
	if got := string(patch.Stat(c, patch.RenderOptions{Width: 50})); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func genText(t *rapid.T, label string) []byte {
	l := rapid.SliceOfN(rapid.SampledFrom([]string{"a\n", "b\n", "}\n", "\n", "ü🟢\n", "x\r\n", "\r", "z", "\xe9\n"}), 0, 15).Draw(t, label)
	return []byte(strings.Join(l, ""))
}

// TestRenderApplies: every rendered change, read back and applied, is the
// change.
func TestRenderApplies(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		old, new := genText(t, "old"), genText(t, "new")
		if rapid.IntRange(0, 5).Draw(t, "binary") == 0 {
			new = append(new, 0)
		}
		ctx := rapid.SampledFrom([]int{0, 1, 2, patch.NoContext}).Draw(t, "context")
		out := patch.Render([]patch.Change{{Kind: patch.Modify, Old: "f", Before: old, After: new}}, patch.RenderOptions{Context: ctx})
		if string(old) == string(new) {
			if len(out) > 0 {
				t.Fatalf("something for nothing: %q", out)
			}
			return
		}
		files, err := patch.Parse(out, patch.ParseOptions{})
		if err != nil || len(files) != 1 {
			t.Fatalf("%v: %d files from %q", err, len(files), out)
		}
		got := patch.Apply(&files[0], old, patch.Options{ZeroContext: ctx == patch.NoContext})
		if string(got.New) != string(new) || len(got.Failures) > 0 {
			t.Fatalf("got %q %v, want %q by %q", got.New, got.Failures, new, out)
		}
		for _, r := range got.Reports {
			if r.Offset != 0 || r.Fuzz != 0 {
				t.Fatalf("hunk moved: %+v by %q", r, out)
			}
		}
	})
}

// TestLarge: what is too large to be compared by lines is still right, and is
// not shown.
func TestLarge(t *testing.T) {
	filler := strings.Repeat("a line of some length, again and again\n", 1<<18)
	old := "same\n" + filler + "same\n"
	new := "same\n" + strings.ToUpper(filler) + "same\n"
	edits := patch.TextEdits([]byte(old), []byte(new))
	if len(edits) != 1 {
		t.Fatalf("%d edits", len(edits))
	}
	if got, err := editplan.Apply([]byte(old), edits); err != nil || string(got) != new {
		t.Errorf("edits make something else: %v", err)
	}
	c := []patch.Change{{Kind: patch.Modify, Old: "f", Before: []byte(old), After: []byte(new)}}
	if got := patch.Render(c, patch.RenderOptions{Terminal: true}); !strings.Contains(string(got), "too much to show") || len(got) > 200 {
		t.Errorf("shown: %d bytes", len(got))
	}
	if got := patch.Stat(c, patch.RenderOptions{}); !strings.Contains(string(got), "large, ") {
		t.Errorf("counted: %s", got)
	}
}

// TestTextEdits: the edits of a difference make the difference.
func TestTextEdits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		old, new := genText(t, "old"), genText(t, "new")
		edits := patch.TextEdits(old, new)
		if edits == nil {
			if len(old) > 0 && string(old) != string(new) && !strings.Contains(string(old)+string(new), "\xe9") {
				t.Fatalf("no edits from %q to %q", old, new)
			}
			return
		}
		got, err := editplan.Apply(old, edits)
		if err != nil || string(got) != string(new) {
			t.Fatalf("got %q %v, want %q by %+v", got, err, new, edits)
		}
	})
}
