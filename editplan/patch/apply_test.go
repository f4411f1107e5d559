package patch_test

import (
	"fmt"
	"math/rand"
	"strings"
	"testing"

	"github.com/aspengine/asp/editplan/patch"
)

func parseOne(t testing.TB, p string) *patch.FilePatch {
	t.Helper()
	files, err := patch.Parse([]byte(p), patch.ParseOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if len(files) != 1 {
		t.Fatalf("%d files", len(files))
	}
	return &files[0]
}

const head = "--- a/f\n+++ b/f\n"

func TestApplyReports(t *testing.T) {
	ten := numbered(1, 10)
	for _, c := range []struct {
		name, hunks, old string
		o                patch.Options
		want             string // reports and failures
	}{
		{"in place", "@@ -2,3 +2,3 @@\n line 2\n-line 3\n+x\n line 4\n", ten, patch.Options{}, "hunk 1 at 2"},
		{"moved down", "@@ -2,3 +2,3 @@\n line 2\n-line 3\n+x\n line 4\n", "new\n" + ten, patch.Options{}, "hunk 1 at 3 offset 1"},
		{"moved up", "@@ -5,3 +5,3 @@\n line 2\n-line 3\n+x\n line 4\n", ten, patch.Options{}, "hunk 1 at 2 offset -3"},
		{"the nearer of two", "@@ -4,3 +4,3 @@\n a\n-b\n+x\n c\n", "a\nb\nc\n\n\n\n\na\nb\nc\n\n", patch.Options{}, "hunk 1 at 1 offset -3"},
		{"context differs", "@@ -2,3 +2,3 @@\n line X\n-line 3\n+x\n line 4\n", ten, patch.Options{}, "FAIL hunk 1 at 2"},
		{"context differs, with fuzz", "@@ -2,3 +2,3 @@\n line X\n-line 3\n+x\n line 4\n", ten, patch.Options{Fuzz: 1}, "hunk 1 at 3 fuzz 1"},
		{"missing context at the end, with fuzz", "@@ -2,2 +2,2 @@\n line 2\n-line 3\n+x\n", ten, patch.Options{Fuzz: 1}, "hunk 1 at 2 not last"},
		{"claims the beginning and is there, with fuzz", "@@ -1,6 +1,6 @@\n line 1\n line 2\n-line 3\n+x\n line X\n line 5\n line 6\n", ten, patch.Options{Fuzz: 3}, "hunk 1 at 3 fuzz 3"},
		{"claims the beginning and is there, with its first line left out", "@@ -1,5 +1,5 @@\n line X\n line 2\n-line 3\n+x\n line 4\n line 5\n", ten, patch.Options{Fuzz: 2}, "hunk 1 at 2 fuzz 1"},
		{"claims the beginning and is elsewhere", "@@ -1,3 +1,3 @@\n-line 3\n+x\n line 4\n line 5\n", ten, patch.Options{Fuzz: 1}, "hunk 1 at 3 offset 2 not first"},
		{"claims both ends and has neither", "@@ -1,2 +1,2 @@\n line 2\n-line 3\n+x\n", ten, patch.Options{Fuzz: 1}, "hunk 1 at 2 offset 1 not first not last"},
		{"claims both ends and has the last", "@@ -1,2 +1,2 @@\n line 9\n-line 10\n+x\n", ten, patch.Options{Fuzz: 1}, "hunk 1 at 9 offset 8 not first"},
		{"missing context at the end", "@@ -2,2 +2,2 @@\n line 2\n-line 3\n+x\n", ten, patch.Options{}, "FAIL hunk 1 at 2"},
		{"too little fuzz", "@@ -2,5 +2,5 @@\n line X\n line Y\n-line 4\n+x\n line 5\n line 6\n", ten, patch.Options{Fuzz: 1}, "FAIL hunk 1 at 2"},
		{"removed lines are never fuzzy", "@@ -2,3 +2,3 @@\n line 2\n-line X\n+x\n line 4\n", ten, patch.Options{Fuzz: 9}, "FAIL hunk 1 at 3"},
		{"no context, says where", "@@ -3 +3 @@\n-line 3\n+x\n", ten, patch.Options{}, "hunk 1 at 3"},
		{"no context, never elsewhere", "@@ -4 +4 @@\n-line 3\n+x\n", ten, patch.Options{}, "FAIL hunk 1 at 4"},
		{"no context, insertion", "@@ -3,0 +4 @@\n+x\n", ten, patch.Options{ZeroContext: true}, "hunk 1 at 4"},
		{"no context, insertion, not said", "@@ -3,0 +4 @@\n+x\n", ten, patch.Options{}, "FAIL hunk 1 at 4"},
		{"no context, insertion, not said, with fuzz", "@@ -3,0 +4 @@\n+x\n", ten, patch.Options{Fuzz: 3}, "FAIL hunk 1 at 4"},
		{"no context, insertion beside a replacement, not said", "@@ -2 +2 @@\n-line 2\n+y\n@@ -3,0 +4 @@\n+x\n", ten, patch.Options{}, "hunk 1 at 2; FAIL hunk 2 at 4"},
		{"no context, insertion at the end", "@@ -10,0 +11 @@\n+x\n", ten, patch.Options{}, "hunk 1 at 11"},
		{"no context, insertion behind the end", "@@ -11,0 +12 @@\n+x\n", ten, patch.Options{}, "FAIL hunk 1 at 11"},
		{"no context, removal", "@@ -3 +2,0 @@\n-line 3\n", ten, patch.Options{}, "hunk 1 at 3"},
		{"no context at the start stands for the file", "@@ -1 +1 @@\n-line 1\n+x\n", ten, patch.Options{}, "FAIL hunk 1 at 1"},
		{"unless it is said", "@@ -1 +1 @@\n-line 1\n+x\n", ten, patch.Options{ZeroContext: true}, "hunk 1 at 1"},
		{"or another hunk says it", "@@ -1 +1 @@\n-line 1\n+x\n@@ -3 +3 @@\n-line 3\n+y\n", ten, patch.Options{}, "hunk 1 at 1; hunk 2 at 3"},
		{"all failures, with what comes after them in place", "@@ -1,3 +1,4 @@\n line 1\n line X\n+new\n line 3\n@@ -5,3 +6,3 @@\n line 5\n-line 6\n+x\n line 7\n@@ -8,3 +9,3 @@\n line 8\n-line Y\n+x\n line 10\n", ten, patch.Options{},
			"hunk 2 at 5; FAIL hunk 1 at 2; FAIL hunk 3 at 9"},
		{"the file ends", "@@ -9,3 +9,3 @@\n line 9\n-line 10\n+x\n line 11\n", ten, patch.Options{}, "FAIL hunk 1 at 11"},
	} {
		got := patch.Apply(parseOne(t, head+c.hunks), []byte(c.old), c.o)
		var s []string
		for _, r := range got.Reports {
			one := fmt.Sprintf("hunk %d at %d", r.Hunk, r.At)
			if r.Offset != 0 && r.Fuzz == 0 {
				one += fmt.Sprintf(" offset %d", r.Offset)
			}
			if r.Fuzz != 0 {
				one += fmt.Sprintf(" fuzz %d", r.Fuzz)
			}
			if r.NotFirst {
				one += " not first"
			}
			if r.NotLast {
				one += " not last"
			}
			s = append(s, one)
		}
		for _, f := range got.Failures {
			s = append(s, fmt.Sprintf("FAIL hunk %d at %d", f.Hunk, f.At))
		}
		if strings.Join(s, "; ") != c.want {
			t.Errorf("%s: got %s, want %s (%+v)", c.name, strings.Join(s, "; "), c.want, got.Failures)
		}
		if (got.New == nil) != (len(got.Failures) > 0) {
			t.Errorf("%s: new %q beside failures %v", c.name, got.New, got.Failures)
		}
	}
}

// TestApplyZeroContextAgainstGit: hunks without context mean what they mean to
// git apply --unidiff-zero, as long as the lines are where the patch says.
func TestApplyZeroContextAgainstGit(t *testing.T) {
	r := rand.New(rand.NewSource(5))
	pairs := make([][2]world, trialCount(60))
	for i := range pairs {
		old := strings.Join(lines(r, 1+r.Intn(20), lineStock), "")
		pairs[i] = [2]world{{"f": {old, plain}}, {"f": {mutate(r, old), plain}}}
	}
	var trials []*trial
	for i, d := range gitDiffs(t, pairs, []string{"-U0"}) {
		if d != "" {
			tr := &trial{name: fmt.Sprintf("trial %d", i), world: pairs[i][0], patch: d, args: []string{"--unidiff-zero"}}
			tr.o.Apply.ZeroContext = true
			trials = append(trials, tr)
		}
	}
	askGit(t, trials)
	for _, tr := range trials {
		tr.compare(t)
	}
}

// TestApplyFuzzAgainstGit: N lines of fuzz on hunks with three lines of context
// are git's -C(3-N).
func TestApplyFuzzAgainstGit(t *testing.T) {
	r := rand.New(rand.NewSource(6))
	pairs := make([][2]world, trialCount(80))
	for i := range pairs {
		l := strings.SplitAfter(numbered(1, 24), "\n")
		at := 8 + r.Intn(8)
		l[at] = "changed\n"
		pairs[i] = [2]world{{"f": {numbered(1, 24), plain}}, {"f": {strings.Join(l, ""), plain}}}
	}
	var trials []*trial
	for i, d := range gitDiffs(t, pairs, []string{"-U3"}) {
		fuzz := i % 4
		w := world{"f": {mutate(r, numbered(1, 24)), plain}}
		tr := &trial{name: fmt.Sprintf("trial %d fuzz %d", i, fuzz), world: w, patch: d, args: []string{fmt.Sprintf("-C%d", 3-fuzz)}}
		tr.o.Apply.Fuzz = fuzz
		trials = append(trials, tr)
	}
	askGit(t, trials)
	fuzzy := 0
	for _, tr := range trials {
		tr.compare(t)
		if _, im := tr.ours(t); tr.ok {
			for _, r := range im.Reports {
				if r.Fuzz > 0 {
					fuzzy++
				}
			}
		}
	}
	if fuzzy == 0 {
		t.Error("no trial needed fuzz")
	}
}

func TestApplyBinary(t *testing.T) {
	old, new := []byte("old\x00content that stays\x00"), []byte("new\x00content that stays\x00")
	p := string(patch.Render([]patch.Change{{Kind: patch.Modify, Old: "f", Before: old, After: new}}, patch.RenderOptions{}))
	// git's delta of the same change: copy all but the first three bytes.
	delta := []byte{byte(len(old)), byte(len(new)), 3, 'n', 'e', 'w', 0x80 | 1 | 16, 3, byte(len(old) - 3)}
	for _, c := range []struct {
		name  string
		old   []byte
		patch string
		want  string
	}{
		{"literal", old, p, ""},
		{"delta", old, patch.BinaryPatch(old, new, "delta", delta), ""},
		{"other content", []byte("x"), p, "the patch is for content"},
		{"short ids", old, strings.Replace(p, patch.BlobID(old), patch.BlobID(old)[:8], 1), "full object ids"},
		{"wrong result", old, strings.Replace(p, patch.BlobID(new), patch.BlobID(old), 1), "promises"},
		{"delta for another size", old, patch.BinaryPatch(old, new, "delta", append([]byte{3}, delta[1:]...)), "another size"},
		{"delta copies beyond the end", old, patch.BinaryPatch(old, new, "delta", []byte{byte(len(old)), byte(len(new)), 0x91, 4, byte(len(old))}), "delta is damaged"},
		{"delta makes too much", old, patch.BinaryPatch(old, new, "delta", append(delta[:len(delta):len(delta)], 1, 'x')), "delta is damaged"},
		{"delta makes too little", old, patch.BinaryPatch(old, new, "delta", delta[:6]), "delta is damaged"},
		{"delta with a reserved opcode", old, patch.BinaryPatch(old, new, "delta", []byte{byte(len(old)), byte(len(new)), 0}), "delta is damaged"},
		{"delta cut", old, patch.BinaryPatch(old, new, "delta", delta[:5]), "delta is damaged"},
		{"delta of a huge size", old, patch.BinaryPatch(old, new, "delta", []byte{byte(len(old)), 0xff, 0xff, 0xff, 0xff, 0x7f}), "over the size limit"},
		{"delta with an endless size", old, patch.BinaryPatch(old, new, "delta", []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}), "delta is damaged"},
	} {
		got := patch.Apply(parseOne(t, c.patch), c.old, patch.Options{})
		if c.want == "" {
			if string(got.New) != string(new) || len(got.Failures) > 0 {
				t.Errorf("%s: %q %v", c.name, got.New, got.Failures)
			}
			continue
		}
		if len(got.Failures) != 1 || !strings.Contains(got.Failures[0].Reason, c.want) || got.New != nil {
			t.Errorf("%s: %q %v, want %s", c.name, got.New, got.Failures, c.want)
		}
	}
}

// TestParseInflateBounds: sizes are checked against the data, and the sum of
// all against the limit, without keeping what is inflated.
func TestParseInflateBounds(t *testing.T) {
	zeros := make([]byte, 1<<20)
	bomb := string(patch.Render([]patch.Change{{Kind: patch.Create, New: "f", After: zeros}}, patch.RenderOptions{}))
	for _, c := range []struct {
		name, patch string
		l           patch.Limits
		want        string
	}{
		{"fits", bomb, patch.Limits{}, ""},
		{"one is too big", bomb, patch.Limits{Result: 1<<20 - 1}, "over the limit"},
		{"two are too big", bomb + bomb, patch.Limits{Inflated: 3 << 19}, "in all"},
		{"says less than there is", strings.Replace(bomb, "literal 1048576", "literal 1000", 1), patch.Limits{}, "stated size"},
		{"says more than there is", strings.Replace(bomb, "literal 1048576", "literal 1048577", 1), patch.Limits{}, "stated size"},
	} {
		_, err := patch.Parse([]byte(c.patch), patch.ParseOptions{Limits: c.l})
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %s", c.name, err, c.want)
		}
	}
}

// TestApplySearchIsBounded: a file and a patch made so that the search for
// every hunk would compare billions of lines.
func TestApplySearchIsBounded(t *testing.T) {
	old := []byte(strings.Repeat("a\n", 100_000))
	var p strings.Builder
	p.WriteString(head)
	for i := range 50 {
		fmt.Fprintf(&p, "@@ -%d,20002 +%d,20001 @@\n", 5+i, 5+i)
		p.WriteString(" a\n" + strings.Repeat("-a\n", 1) + strings.Repeat(" a\n", 19_999) + " b\n")
	}
	got := patch.Apply(parseOne(t, p.String()), old, patch.Options{})
	if len(got.Failures) != 50 || !strings.Contains(got.Failures[49].Reason, "given up") || got.Failures[49].Want != "b" {
		t.Errorf("%d failures, last %+v", len(got.Failures), got.Failures[len(got.Failures)-1])
	}
}

// TestApplyBinaryCRLF: a binary patch that went through a mail program.
func TestApplyBinaryCRLF(t *testing.T) {
	old, new := []byte("a\x00"), []byte("b\x00")
	p := string(patch.Render([]patch.Change{{Kind: patch.Modify, Old: "f", Before: old, After: new}}, patch.RenderOptions{}))
	got := patch.Apply(parseOne(t, strings.ReplaceAll(p, "\n", "\r\n")), old, patch.Options{})
	if string(got.New) != string(new) {
		t.Errorf("got %q %v", got.New, got.Failures)
	}
}
