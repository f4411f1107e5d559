package patch_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/aspengine/asp/editplan"
	"github.com/aspengine/asp/editplan/patch"
	"github.com/aspengine/asp/internal/refusal"
	"github.com/aspengine/asp/snapshot"
)

const (
	plain = snapshot.ModeRegular
	exec1 = snapshot.ModeExecutable
	link  = snapshot.ModeSymlink
)

func numbered(lo, hi int) string {
	var b strings.Builder
	for i := lo; i <= hi; i++ {
		fmt.Fprintf(&b, "line %d\n", i)
	}
	return b.String()
}

// scenarios are patches by hand, each with what the drafts must look like ("" =
// refused). Those with git set are also held against git apply.
var scenarios = []struct {
	name   string
	world  world
	patch  string
	git    bool
	drafts string
	codes  string
}{
	{name: "modify", git: true, world: world{"f": {"a\nb\n", plain}},
		patch: "--- a/f\n+++ b/f\n@@ -1,2 +1,2 @@\n-a\n+A\n b\n", drafts: "modify f edits=1"},
	{name: "modify what is not UTF-8", git: true, world: world{"f": {"a\xe9\nb\n", plain}},
		patch: "--- a/f\n+++ b/f\n@@ -1,2 +1,2 @@\n a\xe9\n-b\n+B\n", drafts: "modify f whole"},
	{name: "the same file twice", git: true, world: world{"f": {"a\n", plain}},
		patch: "--- a/f\n+++ b/f\n@@ -1 +1 @@\n-a\n+b\n--- a/f\n+++ b/f\n@@ -1 +1 @@\n-b\n+c\n", drafts: "modify f edits=1"},
	{name: "there and back", git: true, world: world{"f": {"a\n", plain}},
		patch: "--- a/f\n+++ b/f\n@@ -1 +1 @@\n-a\n+b\n--- a/f\n+++ b/f\n@@ -1 +1 @@\n-b\n+a\n", drafts: "nothing"},
	{name: "create", git: true, world: world{},
		patch: "diff --git a/d/f b/d/f\nnew file mode 100755\n--- /dev/null\n+++ b/d/f\n@@ -0,0 +1 @@\n+a\n", drafts: "create d/f whole exec"},
	{name: "create over a file", git: true, world: world{"f": {"a\n", plain}},
		patch: "diff --git a/f b/f\nnew file mode 100644\n--- /dev/null\n+++ b/f\n@@ -0,0 +1 @@\n+a\n", codes: "exists f"},
	{name: "create by a plain diff with two names", git: true, world: world{},
		patch: "--- a/f\n+++ b/f\n@@ -0,0 +1 @@\n+a\n", drafts: "create f whole"},
	{name: "delete", git: true, world: world{"f": {"a\n", plain}},
		patch: "--- a/f\n+++ /dev/null\n@@ -1 +0,0 @@\n-a\n", drafts: "delete f"},
	{name: "delete with lines left", git: true, world: world{"f": {"a\nb\n", plain}},
		patch: "--- a/f\n+++ /dev/null\n@@ -1 +0,0 @@\n-a\n", codes: "stale-basis f"},
	{name: "delete a file that was thought empty", git: true, world: world{"f": {"a\n", plain}},
		patch: "diff --git a/f b/f\ndeleted file mode 100644\nindex e69de29..0000000\n", codes: "stale-basis f"},
	{name: "missing", git: true, world: world{},
		patch: "--- a/f\n+++ b/f\n@@ -1 +1 @@\n-a\n+b\n", codes: "missing f"},
	{name: "mode", git: true, world: world{"f": {"a\n", plain}},
		patch: "diff --git a/f b/f\nold mode 100644\nnew mode 100755\n", drafts: "modify f exec"},
	{name: "mode that is there already", git: true, world: world{"f": {"a\n", exec1}},
		patch: "diff --git a/f b/f\nold mode 100644\nnew mode 100755\n", drafts: "nothing"},
	{name: "rename with edit and mode", git: true, world: world{"f": {"a\nb\nc\n", plain}},
		patch:  "diff --git a/f b/g\nold mode 100644\nnew mode 100755\nsimilarity index 70%\nrename from f\nrename to g\n--- a/f\n+++ b/g\n@@ -1,3 +1,3 @@\n a\n-b\n+B\n c\n",
		drafts: "rename f g; modify g edits=1 exec"},
	{name: "rename onto a file", git: true, world: world{"f": {"a\n", plain}, "g": {"b\n", plain}},
		patch: "diff --git a/f b/g\nsimilarity index 100%\nrename from f\nrename to g\n", codes: "exists g"},
	{name: "copy", git: true, world: world{"f": {"a\n", exec1}},
		patch: "diff --git a/f b/g\nsimilarity index 100%\ncopy from f\ncopy to g\n", drafts: "create g whole exec"},
	{name: "copy of a file that the patch changes first", git: true, world: world{"f": {"a\n", plain}},
		patch:  "diff --git a/f b/f\n--- a/f\n+++ b/f\n@@ -1 +1 @@\n-a\n+b\ndiff --git a/f b/g\nsimilarity index 100%\ncopy from f\ncopy to g\n",
		drafts: "modify f edits=1; create g whole"},
	{name: "trading places", git: true, world: world{"f": {"a\n", exec1}, "g": {"b\n", plain}},
		patch:  "diff --git a/f b/g\nsimilarity index 100%\nrename from f\nrename to g\ndiff --git a/g b/f\nsimilarity index 100%\nrename from g\nrename to f\n",
		drafts: "modify f edits=1 plain; modify g edits=1 exec"},
	{name: "a chain of renames", git: true, world: world{"f": {"a\n", plain}, "g": {"b\n", plain}},
		patch:  "diff --git a/f b/g\nsimilarity index 100%\nrename from f\nrename to g\ndiff --git a/g b/h\nsimilarity index 100%\nrename from g\nrename to h\n",
		drafts: "rename g h; rename f g"},
	{name: "rename and make anew", git: true, world: world{"f": {"a\n", plain}},
		patch:  "diff --git a/f b/g\nsimilarity index 100%\nrename from f\nrename to g\ndiff --git a/f b/f\nnew file mode 100644\n--- /dev/null\n+++ b/f\n@@ -0,0 +1 @@\n+new\n",
		drafts: "rename f g; create f whole"},
	{name: "rename, then change the old name", git: true, world: world{"f": {"a\n", plain}},
		patch: "diff --git a/f b/g\nsimilarity index 100%\nrename from f\nrename to g\ndiff --git a/f b/f\n--- a/f\n+++ b/f\n@@ -1 +1 @@\n-a\n+b\n", codes: "missing f"},
	{name: "change, then rename", world: world{"f": {"a\n", plain}},
		patch: "--- a/f\n+++ b/f\n@@ -1 +1 @@\n-a\n+b\ndiff --git a/f b/g\nsimilarity index 100%\nrename from f\nrename to g\n", codes: "unsupported-operation f"},
	{name: "delete and make anew", git: true, world: world{"f": {"a\n", plain}},
		patch:  "--- a/f\n+++ /dev/null\n@@ -1 +0,0 @@\n-a\n--- /dev/null\n+++ b/f\n@@ -0,0 +1 @@\n+b\n",
		drafts: "modify f edits=1"},
	{name: "change, then delete", world: world{"f": {"a\n", plain}},
		patch: "--- a/f\n+++ b/f\n@@ -1 +1 @@\n-a\n+b\n--- a/f\n+++ /dev/null\n@@ -1 +0,0 @@\n-b\n", drafts: "delete f"},
	{name: "file becomes directory", git: true, world: world{"f": {"a\n", plain}},
		patch:  "diff --git a/f b/f\ndeleted file mode 100644\n--- a/f\n+++ /dev/null\n@@ -1 +0,0 @@\n-a\ndiff --git a/f/x b/f/x\nnew file mode 100644\n--- /dev/null\n+++ b/f/x\n@@ -0,0 +1 @@\n+b\n",
		drafts: "delete f; create f/x whole"},
	{name: "file moves into a directory of its name", world: world{"f": {"a\n", plain}},
		patch: "diff --git a/f b/f/x\nsimilarity index 100%\nrename from f\nrename to f/x\n", drafts: "delete f; create f/x whole"},
	{name: "directory becomes file", git: true, world: world{"f/x": {"a\n", plain}},
		patch:  "diff --git a/f b/f\nnew file mode 100644\n--- /dev/null\n+++ b/f\n@@ -0,0 +1 @@\n+b\ndiff --git a/f/x b/f/x\ndeleted file mode 100644\n--- a/f/x\n+++ /dev/null\n@@ -1 +0,0 @@\n-a\n",
		drafts: "delete f/x; create f whole"},
	{name: "modify a directory", world: world{"f/x": {"a\n", plain}},
		patch: "--- a/f\n+++ b/f\n@@ -1 +1 @@\n-a\n+b\n", codes: "not-regular f"},
	{name: "delete a link", git: true, world: world{"l": {"target", link}},
		patch: "diff --git a/l b/l\ndeleted file mode 120000\n--- a/l\n+++ /dev/null\n@@ -1 +0,0 @@\n-target\n\\ No newline at end of file\n", drafts: "delete l"},
	{name: "delete a link that points elsewhere", git: true, world: world{"l": {"other", link}},
		patch: "diff --git a/l b/l\ndeleted file mode 120000\n--- a/l\n+++ /dev/null\n@@ -1 +0,0 @@\n-target\n\\ No newline at end of file\n", codes: "stale-basis l"},
	{name: "rename a link", git: true, world: world{"l": {"target", link}},
		patch: "diff --git a/l b/k\nsimilarity index 100%\nrename from l\nrename to k\n", drafts: "rename l k"},
	{name: "edit a link", world: world{"l": {"target", link}},
		patch: "diff --git a/l b/l\nindex 1..2 120000\n--- a/l\n+++ b/l\n@@ -1 +1 @@\n-target\n\\ No newline at end of file\n+x\n\\ No newline at end of file\n", codes: "unsupported-operation l"},
	{name: "make a link", world: world{},
		patch: "diff --git a/l b/l\nnew file mode 120000\n--- /dev/null\n+++ b/l\n@@ -0,0 +1 @@\n+x\n\\ No newline at end of file\n", codes: "unsupported-operation l"},
	{name: "copy a link", world: world{"l": {"target", link}},
		patch: "diff --git a/l b/k\nsimilarity index 100%\ncopy from l\ncopy to k\n", codes: "unsupported-operation l"},
	{name: "patch for a file on a link", git: true, world: world{"l": {"target", link}},
		patch: "diff --git a/l b/l\nindex 1..2 100644\n--- a/l\n+++ b/l\n@@ -1 +1 @@\n-target\n\\ No newline at end of file\n+x\n", codes: "stale-basis l"},
	{name: "submodule", world: world{},
		patch: "diff --git a/s b/s\nnew file mode 160000\nindex 0000000..1234567\n--- /dev/null\n+++ b/s\n@@ -0,0 +1 @@\n+Subproject commit 1\n", codes: "unsupported-operation s"},
	{name: "path", git: true, world: world{"f": {"a\n", plain}},
		patch: "--- a/../f\n+++ b/../f\n@@ -1 +1 @@\n-a\n+b\n", codes: "path-invalid ../f"},
	{name: "every failure is listed", git: true, world: world{"f": {numbered(1, 40), plain}, "g": {"a\n", plain}},
		patch: "--- a/f\n+++ b/f\n@@ -1,3 +1,3 @@\n line 1\n-line X\n+line two\n line 3\n@@ -10,3 +10,3 @@\n line 10\n-line 11\n+line eleven\n line 12\n@@ -20,3 +20,3 @@\n line 20\n-line Y\n+line z\n line 22\n" +
			"--- a/g\n+++ b/g\n@@ -1 +1 @@\n-b\n+c\n--- a/h\n+++ b/h\n@@ -1 +1 @@\n-b\n+c\n",
		codes: "stale-basis f; stale-basis f; stale-basis g; missing h"},
	{name: "moved lines", git: true, world: world{"f": {"new\nnew\n" + numbered(1, 9), plain}},
		patch: "--- a/f\n+++ b/f\n@@ -2,3 +2,3 @@\n line 2\n-line 3\n+line three\n line 4\n", drafts: "modify f edits=1"},
	{name: "one hunk needs what another wrote", git: true, world: world{"f": {numbered(1, 9), plain}},
		patch: "--- a/f\n+++ b/f\n@@ -2,3 +2,3 @@\n line 2\n-line 3\n+line three\n line 4\n@@ -4,3 +4,3 @@\n line 4\n-line 5\n+line five\n line 6\n", codes: "stale-basis f"},
	{name: "hunks out of order", git: true, world: world{"f": {numbered(1, 20), plain}},
		patch:  "--- a/f\n+++ b/f\n@@ -12,3 +12,4 @@\n line 12\n+new\n line 13\n line 14\n@@ -2,3 +2,4 @@\n line 2\n+new\n line 3\n line 4\n",
		drafts: "modify f edits=2"},
	{name: "empty context lines without their space", git: true, world: world{"f": {"a\n\nb\n", plain}},
		patch: "--- a/f\n+++ b/f\n@@ -1,3 +1,3 @@\n a\n\n-b\n+B\n", drafts: "modify f edits=1"},
	{name: "CRLF content", git: true, world: world{"f": {"a\r\nb\r\n", plain}},
		patch: "--- a/f\n+++ b/f\n@@ -1,2 +1,2 @@\n a\r\n-b\r\n+B\r\n", drafts: "modify f edits=1"},
	{name: "LF patch on CRLF content", git: true, world: world{"f": {"a\r\nb\r\n", plain}},
		patch: "--- a/f\n+++ b/f\n@@ -1,2 +1,2 @@\n a\n-b\n+B\n", codes: "stale-basis f"},
	{name: "newline at the end comes", git: true, world: world{"f": {"a\nb", plain}},
		patch: "--- a/f\n+++ b/f\n@@ -1,2 +1,2 @@\n a\n-b\n\\ No newline at end of file\n+b\n", drafts: "modify f edits=1"},
	{name: "newline at the end is not there", git: true, world: world{"f": {"a\nb", plain}},
		patch: "--- a/f\n+++ b/f\n@@ -1,2 +1,2 @@\n a\n-b\n+c\n", codes: "stale-basis f"},
	{name: "whole file and more lines came", git: true, world: world{"f": {"a\nb\n", plain}},
		patch: "--- a/f\n+++ b/f\n@@ -1 +1 @@\n-a\n+b\n", codes: "stale-basis f"},
	{name: "binary that is only mentioned", git: true, world: world{"f": {"a\x00", plain}},
		patch: "diff --git a/f b/f\nindex 6b5fb1c..7ac2cd1 100644\nBinary files a/f and b/f differ\n", codes: "bad-message f"},
	{name: "not a patch", git: true, world: world{"f": {"a\n", plain}}, patch: "hello\n", codes: "bad-message "},
}

func describe(drafts []editplan.Draft) string {
	if len(drafts) == 0 {
		return "nothing"
	}
	var out []string
	for _, d := range drafts {
		s := d.Kind.String() + " " + d.Path
		if d.To != "" {
			s += " " + d.To
		}
		if d.HasContent {
			s += " whole"
		}
		if len(d.Edits) > 0 {
			s += fmt.Sprintf(" edits=%d", len(d.Edits))
		}
		s += []string{"", " plain", " exec"}[d.Mode]
		out = append(out, s)
	}
	return strings.Join(out, "; ")
}

func codes(l refusal.List) string {
	var out []string
	for _, it := range l {
		out = append(out, string(it.Code)+" "+it.Path)
	}
	return strings.Join(out, "; ")
}

func TestImport(t *testing.T) {
	for _, c := range scenarios {
		tr := &trial{name: c.name, world: c.world, patch: c.patch}
		_, im := tr.ours(t)
		if got := codes(im.Refused); got != c.codes {
			t.Errorf("%s: refused %v, want %s", c.name, im.Refused, c.codes)
			continue
		}
		if got := describe(im.Drafts); c.codes == "" && got != c.drafts {
			t.Errorf("%s: drafts %s, want %s", c.name, got, c.drafts)
		}
		if c.codes != "" && im.Drafts != nil {
			t.Errorf("%s: drafts beside a refusal", c.name)
		}
	}
}

func TestImportByHandAgainstGitApply(t *testing.T) {
	var trials []*trial
	for _, c := range scenarios {
		if c.git {
			trials = append(trials, &trial{name: c.name, world: c.world, patch: c.patch})
		}
	}
	askGit(t, trials)
	for _, tr := range trials {
		tr.compare(t)
	}
}

// TestImportPlan: the drafts make a plan that reads back.
func TestImportPlan(t *testing.T) {
	w := world{"f": {"a\nkäse\n", plain}, "g": {"x\n", plain}}
	p := "--- a/f\n+++ b/f\n@@ -1,2 +1,2 @@\n a\n-käse\n+brot\ndiff --git a/g b/h\nold mode 100644\nnew mode 100755\nsimilarity index 100%\nrename from g\nrename to h\n"
	im, err := patch.Import(w, []byte(p), patch.ImportOptions{})
	if err != nil || len(im.Refused) > 0 {
		t.Fatal(err, im.Refused)
	}
	f, err := im.Plan(editplan.Source{Baseline: snapshot.Baseline{Rev: "git:tree:1"}, Provider: editplan.Provider{ID: "patch", Version: "1"}})
	if err != nil {
		t.Fatal(err)
	}
	b, err := f.Encode()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"kind":"rename"`, `"newText":"brot\n"`, `"mode":"100755"`, snapshot.DigestOf([]byte("a\nkäse\n")).Blob()} {
		if !strings.Contains(string(b), want) {
			t.Errorf("plan lacks %s: %s", want, b)
		}
	}
	if back, refused := editplan.Decode(b, editplan.Limits{}); len(refused) > 0 {
		t.Errorf("plan does not read back: %v %v", refused, back)
	}
}

// TestImportNames: the refusal of a hunk names the place and what is there.
func TestImportNames(t *testing.T) {
	w := world{"f": {numbered(1, 9), plain}}
	p := "--- a/f\n+++ b/f\n@@ -4,3 +4,3 @@\n line 4\n-line V\n+line v\n line 6\n"
	im, err := patch.Import(w, []byte(p), patch.ImportOptions{})
	if err != nil || len(im.Refused) != 1 {
		t.Fatal(err, im.Refused)
	}
	for _, want := range []string{"hunk 1", "patch line 3", "line 5", `"line V"`, `"line 5"`} {
		if !strings.Contains(im.Refused[0].Detail, want) {
			t.Errorf("%s is not in %s", want, im.Refused[0].Detail)
		}
	}
}

// TestReportSays: each part of a report is in its sentence, and no other.
func TestReportSays(t *testing.T) {
	parts := []string{"3 lines from where it says", "2 lines of context left out", "the beginning of the file", "the end of the file"}
	for i, r := range []patch.HunkReport{{Offset: 3}, {Fuzz: 2}, {NotFirst: true}, {NotLast: true}} {
		s := patch.Report{Path: "f", HunkReport: r}.String()
		for k, part := range parts {
			if strings.Contains(s, part) != (i == k) {
				t.Errorf("%+v: %s", r, s)
			}
		}
	}
}

// TestImportInsertionWithoutContext: its refusal says what would take it.
func TestImportInsertionWithoutContext(t *testing.T) {
	w := world{"f": {numbered(1, 9), plain}}
	p := []byte("--- a/f\n+++ b/f\n@@ -4,0 +5 @@\n+x\n")
	im, err := patch.Import(w, p, patch.ImportOptions{})
	if err != nil || codes(im.Refused) != "stale-basis f" || !strings.Contains(im.Refused[0].Detail, "--unidiff-zero") {
		t.Errorf("%v %v", err, im.Refused)
	}
	if im, err = patch.Import(w, p, patch.ImportOptions{Apply: patch.Options{ZeroContext: true}}); err != nil || len(im.Refused) > 0 || len(im.Drafts) != 1 {
		t.Errorf("told so: %v %+v", err, im)
	}
}

type blockedView struct{}

func (blockedView) Look(p snapshot.Path) (patch.Entry, error) {
	it := refusal.New(refusal.PathProtected, p.String(), -1, "leave it alone")
	return patch.Entry{Blocked: &it}, nil
}

// TestImportBlocked: what may not be looked at is refused for that reason, once.
func TestImportBlocked(t *testing.T) {
	one := "--- a/.git/config\n+++ b/.git/config\n" + hunk
	im, err := patch.Import(blockedView{}, []byte(one+one+"--- a/g\n+++ b/g\n"+hunk), patch.ImportOptions{})
	if err != nil || codes(im.Refused) != "path-protected .git/config; path-protected g" {
		t.Errorf("got %v %v", err, im.Refused)
	}
}

type brokenView struct{}

func (brokenView) Look(snapshot.Path) (patch.Entry, error) {
	return patch.Entry{}, errors.New("disk on fire")
}

func TestImportViewFails(t *testing.T) {
	_, err := patch.Import(brokenView{}, []byte("--- a/f\n+++ b/f\n"+hunk), patch.ImportOptions{})
	if err == nil || !strings.Contains(err.Error(), "disk on fire") {
		t.Errorf("got %v", err)
	}
}
