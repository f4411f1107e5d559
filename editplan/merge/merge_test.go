package merge_test

import (
	"fmt"
	"math/rand"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/aspengine/asp/editplan/merge"
	"github.com/aspengine/asp/internal/need"
	"pgregory.net/rapid"
)

func TestThree(t *testing.T) {
	const base = "a\nb\nc\nd\ne\nf\n"
	for _, c := range []struct {
		name, mine, theirs, want string
		conflicts                []merge.Conflict
	}{
		{"far apart", "A\nb\nc\nd\ne\nf\n", "a\nb\nc\nd\ne\nF\n", "A\nb\nc\nd\ne\nF\n", nil},
		{"one line between", "a\nB\nc\nd\ne\nf\n", "a\nb\nc\nD\ne\nf\n", "a\nB\nc\nD\ne\nf\n", nil},
		{"adjacent lines", "a\nB\nc\nd\ne\nf\n", "a\nb\nC\nd\ne\nf\n", "",
			[]merge.Conflict{{merge.Range{1, 3}, merge.Range{1, 3}, merge.Range{1, 3}}}},
		{"same line", "a\nB\nc\nd\ne\nf\n", "a\nX\nc\nd\ne\nf\n", "",
			[]merge.Conflict{{merge.Range{1, 2}, merge.Range{1, 2}, merge.Range{1, 2}}}},
		{"same change", "a\nB\nc\nd\ne\nf\n", "a\nB\nc\nd\ne\nF\n", "a\nB\nc\nd\ne\nF\n", nil},
		{"delete against edit", "a\nc\nd\ne\nf\n", "a\nB\nc\nd\ne\nf\n", "",
			[]merge.Conflict{{merge.Range{1, 2}, merge.Range{1, 1}, merge.Range{1, 2}}}},
		{"both append", base + "x\n", base + "y\n", "",
			[]merge.Conflict{{merge.Range{6, 6}, merge.Range{6, 7}, merge.Range{6, 7}}}},
		{"last newline gone", "A\nb\nc\nd\ne\nf\n", "a\nb\nc\nd\ne\nf", "A\nb\nc\nd\ne\nf", nil},
	} {
		got := merge.Three([]byte(base), []byte(c.mine), []byte(c.theirs))
		if string(got.Bytes) != c.want || fmt.Sprint(got.Conflicts) != fmt.Sprint(c.conflicts) {
			t.Errorf("%s: got %q %v, want %q %v", c.name, got.Bytes, got.Conflicts, c.want, c.conflicts)
		}
		if got.Clean() != (c.conflicts == nil) {
			t.Errorf("%s: clean %v", c.name, got.Clean())
		}
	}
}

func TestThreeNotText(t *testing.T) {
	for _, bad := range []string{"a\xe9\n", "a\x00\n"} {
		for i := range 3 {
			in := [][]byte{[]byte("a\n"), []byte("a\nb\n"), []byte("c\na\n")}
			in[i] = []byte(bad)
			got := merge.Three(in[0], in[1], in[2])
			if got.Clean() || !got.NotText || got.Bytes != nil {
				t.Errorf("%q as input %d: %+v", bad, i, got)
			}
		}
	}
}

// edit makes a few random changes by lines, from a small alphabet so that
// repeated lines make the alignment ambiguous.
func edit(r *rand.Rand, lines []string, alphabet int) []string {
	out := append([]string(nil), lines...)
	for range 1 + r.Intn(4) {
		i, word := r.Intn(len(out)+1), fmt.Sprintf("w%d\n", r.Intn(alphabet))
		switch k := r.Intn(3); {
		case k == 0 || i == len(out):
			out = append(out[:i], append([]string{word}, out[i:]...)...)
		case k == 1:
			out = append(out[:i], out[i+1:]...)
		default:
			out[i] = word
		}
	}
	return out
}

func cutNewline(r *rand.Rand, s string) string {
	if r.Intn(6) == 0 {
		return strings.TrimSuffix(s, "\n")
	}
	return s
}

// gitMerges asks git merge-file for base, mine and theirs of each trial: the
// outcome, and whether it was clean.
func gitMerges(t *testing.T, trials [][3]string) (outs []string, clean []bool) {
	t.Helper()
	git, err := exec.LookPath("git")
	if err != nil {
		need.Missing(t, "there is no git to compare with")
	}
	dir := t.TempDir()
	var script strings.Builder
	for i, in := range trials {
		for k := range in {
			name := filepath.Join(dir, fmt.Sprintf("%d.%d", i, k))
			if err := os.WriteFile(name, []byte(in[k]), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		fmt.Fprintf(&script, "%s merge-file -p -q %d.1 %d.0 %d.2 >%d.out; echo $? >%d.rc\n", git, i, i, i, i, i)
	}
	cmd := exec.Command("sh", "-s")
	cmd.Dir, cmd.Stdin = dir, strings.NewReader(script.String())
	cmd.Env = append(os.Environ(), "GIT_CONFIG_NOSYSTEM=1", "HOME="+dir, "GIT_DIR="+filepath.Join(dir, "none"))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("run git merge-file: %v: %s", err, out)
	}
	for i := range trials {
		rc, err := os.ReadFile(filepath.Join(dir, fmt.Sprintf("%d.rc", i)))
		if err != nil {
			t.Fatal(err)
		}
		out, err := os.ReadFile(filepath.Join(dir, fmt.Sprintf("%d.out", i)))
		if err != nil {
			t.Fatal(err)
		}
		outs, clean = append(outs, string(out)), append(clean, string(rc) == "0\n")
	}
	return outs, clean
}

func randomLines(r *rand.Rand, alphabet int) []string {
	out := make([]string, r.Intn(25))
	for j := range out {
		out[j] = fmt.Sprintf("w%d\n", r.Intn(alphabet))
	}
	return out
}

func trials() int {
	if testing.Short() {
		return 100
	}
	return 400
}

// TestThreeAgainstGit holds the answer against git merge-file: clean exactly
// when git is, with the same bytes.
func TestThreeAgainstGit(t *testing.T) {
	r := rand.New(rand.NewSource(7))
	in := make([][3]string, trials())
	for i := range in {
		alphabet := []int{2, 3, 6, 40}[i%4]
		base := randomLines(r, alphabet)
		for k, l := range [][]string{base, edit(r, base, alphabet), edit(r, base, alphabet)} {
			in[i][k] = cutNewline(r, strings.Join(l, ""))
		}
	}
	want, gitClean := gitMerges(t, in)
	clean := 0
	for i, x := range in {
		if gitClean[i] {
			clean++
		}
		got := merge.Three([]byte(x[0]), []byte(x[1]), []byte(x[2]))
		if got.Clean() != gitClean[i] || gitClean[i] && want[i] != string(got.Bytes) {
			t.Errorf("trial %d: base %q mine %q theirs %q\n git (clean %v): %q\nours (%v): %q",
				i, x[0], x[1], x[2], gitClean[i], want[i], got.Conflicts, got.Bytes)
		}
	}
	if n := len(in); clean < n/20 || clean > n*19/20 {
		t.Errorf("%d of %d trials clean: the generator does not test both answers", clean, n)
	}
}

// TestEditsAgainstGit holds that edits merge to what git makes of the texts, or are
// a conflict: always where git has one, and where git sees none only because it looks
// at texts and not at what was edited.
func TestEditsAgainstGit(t *testing.T) {
	r := rand.New(rand.NewSource(11))
	in, edits := make([][3]string, trials()/2), make([][]merge.Edit, trials()/2)
	for i := range in {
		alphabet := []int{2, 3, 6, 40}[i%4]
		base := randomLines(r, alphabet)
		b := cutNewline(r, strings.Join(base, ""))
		edits[i] = merge.RandomEdits(r, b, []string{"w0\n", "w1\n", "w2", "new\n"})
		in[i] = [3]string{b, cutNewline(r, strings.Join(edit(r, base, alphabet), "")), string(merge.Splice([]byte(b), edits[i]))}
	}
	want, gitClean := gitMerges(t, in)
	var clean, stricter, conflicts int
	for i, x := range in {
		got := merge.Edits([]byte(x[0]), []byte(x[1]), edits[i])
		switch {
		case got.Clean() && (!gitClean[i] || want[i] != string(got.Bytes)):
			t.Errorf("trial %d: base %q mine %q edits %+v\n git (clean %v): %q\nours: %q", i, x[0], x[1], edits[i], gitClean[i], want[i], got.Bytes)
		case got.Clean():
			clean++
		case gitClean[i]:
			stricter++
		default:
			conflicts++
		}
	}
	if n := len(in); min(clean, stricter, conflicts) < n/20 {
		t.Errorf("of %d trials %d are clean, %d clean for git alone, %d for nobody: the generator does not test all answers", n, clean, stricter, conflicts)
	}
}

func TestEdits(t *testing.T) {
	const base = "a\nb\nc\nd\ne\nf\n"
	for _, c := range []struct {
		name, mine string
		edits      []merge.Edit
		want       string // "" is a conflict
	}{
		{"inside a line, far from the move", "A\nb\nc\nd\ne\nf\n", []merge.Edit{{8, 9, "E"}}, "A\nb\nc\nd\nE\nf\n"},
		{"pushed down by the move", "0\n0\na\nb\nc\nd\ne\nf\n", []merge.Edit{{4, 5, "C"}, {8, 9, ""}}, "0\n0\na\nb\nC\nd\n\nf\n"},
		{"one line between", "a\nB\nc\nd\ne\nf\n", []merge.Edit{{6, 7, "D"}}, "a\nB\nc\nD\ne\nf\n"},
		{"next to the move", "a\nB\nc\nd\ne\nf\n", []merge.Edit{{4, 5, "C"}}, ""},
		{"insert next to the move", "a\nB\nc\nd\ne\nf\n", []merge.Edit{{4, 4, "new\n"}}, ""},
		{"in the line that moved", "a\nbB\nc\nd\ne\nf\n", []merge.Edit{{2, 2, "x"}}, ""},
		{"the same change", "a\nB\nc\nd\ne\nf\n", []merge.Edit{{2, 3, "B"}, {10, 11, "F"}}, "a\nB\nc\nd\ne\nF\n"},
		// A comparison of the texts sees one changed line, and would merge.
		{"spans the line that moved", "a\nb\nc\nD\ne\nf\n", []merge.Edit{{2, 12, "B\nc\nd\ne\nf\n"}}, ""},
		{"writes the line anew as it was", "a\nB\nc\nd\ne\nf\n", []merge.Edit{{2, 3, "b"}}, ""},
		{"of the whole text", "a\nb\nc\nD\ne\nf\n", []merge.Edit{{0, 12, "A\nb\nc\nd\ne\nf\n"}}, "A\nb\nc\nD\ne\nf\n"},
		{"a move to what the edits make", "a\nB\nc\nd\ne\nf\n", []merge.Edit{{2, 4, "B\n"}}, "a\nB\nc\nd\ne\nf\n"},
		{"not text", "a\xff\nb\nc\nd\ne\nf\n", []merge.Edit{{8, 9, "E"}}, ""},
	} {
		got := merge.Edits([]byte(base), []byte(c.mine), c.edits)
		if string(got.Bytes) != c.want || got.Clean() != (c.want != "") {
			t.Errorf("%s: %q, %v", c.name, got.Bytes, got.Conflicts)
		}
	}
}

// A comparison of the texts finds that both added the same line at the end; the edit
// was made at the beginning. Nobody can tell whether one line is meant or two.
func TestEditsAmbiguous(t *testing.T) {
	base, mine, edits := []byte("x\n"), []byte("x\nx\n"), []merge.Edit{{0, 0, "x\n"}}
	if got := merge.Three(base, mine, merge.Splice(base, edits)); string(got.Bytes) != "x\nx\n" {
		t.Fatalf("the case is none: %+v", got)
	}
	if got := merge.Edits(base, mine, edits); got.Clean() || got.NotText {
		t.Errorf("%q", got.Bytes)
	}
}

// TestThreeLaws are what holds without an oracle.
func TestThreeLaws(t *testing.T) {
	text := rapid.Custom(func(t *rapid.T) []byte {
		return []byte(strings.Join(rapid.SliceOfN(rapid.SampledFrom([]string{"a\n", "b\n", "c\n", "}\n", "\n", "x"}), 0, 12).Draw(t, "lines"), ""))
	})
	rapid.Check(t, func(t *rapid.T) {
		base, a, b := text.Draw(t, "base"), text.Draw(t, "a"), text.Draw(t, "b")
		if got := merge.Three(base, a, base); string(got.Bytes) != string(a) || !got.Clean() {
			t.Fatalf("unchanged theirs: %+v", got)
		}
		if got := merge.Three(base, a, a); string(got.Bytes) != string(a) || !got.Clean() {
			t.Fatalf("same change: %+v", got)
		}
		x, y := merge.Three(base, a, b), merge.Three(base, b, a)
		if x.Clean() != y.Clean() || string(x.Bytes) != string(y.Bytes) {
			t.Fatalf("not symmetric: %+v, %+v", x, y)
		}
	})
}
