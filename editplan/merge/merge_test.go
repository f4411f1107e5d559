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

// TestThreeAgainstGit holds the answer against git merge-file: clean exactly
// when git is, with the same bytes.
func TestThreeAgainstGit(t *testing.T) {
	git, err := exec.LookPath("git")
	if err != nil {
		need.Missing(t, "there is no git to compare with")
	}
	dir := t.TempDir()
	n := 400
	if testing.Short() {
		n = 100
	}
	type trial struct {
		in  [3]string
		got merge.Result
	}
	r := rand.New(rand.NewSource(7))
	trials := make([]trial, n)
	var script strings.Builder
	for i := range trials {
		alphabet := []int{2, 3, 6, 40}[i%4]
		base := make([]string, r.Intn(25))
		for j := range base {
			base[j] = fmt.Sprintf("w%d\n", r.Intn(alphabet))
		}
		in := [3]string{strings.Join(base, ""), strings.Join(edit(r, base, alphabet), ""), strings.Join(edit(r, base, alphabet), "")}
		for k := range in {
			in[k] = cutNewline(r, in[k])
			name := filepath.Join(dir, fmt.Sprintf("%d.%d", i, k))
			if err := os.WriteFile(name, []byte(in[k]), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		trials[i] = trial{in, merge.Three([]byte(in[0]), []byte(in[1]), []byte(in[2]))}
		fmt.Fprintf(&script, "%s merge-file -p -q %d.1 %d.0 %d.2 >%d.out; echo $? >%d.rc\n", git, i, i, i, i, i)
	}
	cmd := exec.Command("sh", "-s")
	cmd.Dir, cmd.Stdin = dir, strings.NewReader(script.String())
	cmd.Env = append(os.Environ(), "GIT_CONFIG_NOSYSTEM=1", "HOME="+dir, "GIT_DIR="+filepath.Join(dir, "none"))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("run git merge-file: %v: %s", err, out)
	}
	clean := 0
	for i, tr := range trials {
		rc, err := os.ReadFile(filepath.Join(dir, fmt.Sprintf("%d.rc", i)))
		if err != nil {
			t.Fatal(err)
		}
		want, err := os.ReadFile(filepath.Join(dir, fmt.Sprintf("%d.out", i)))
		if err != nil {
			t.Fatal(err)
		}
		gitClean := string(rc) == "0\n"
		if gitClean {
			clean++
		}
		if tr.got.Clean() != gitClean || gitClean && string(want) != string(tr.got.Bytes) {
			t.Errorf("trial %d: base %q mine %q theirs %q\n git (%q): %q\nours (%v): %q",
				i, tr.in[0], tr.in[1], tr.in[2], rc, want, tr.got.Conflicts, tr.got.Bytes)
		}
	}
	if clean < n/20 || clean > n*19/20 {
		t.Errorf("%d of %d trials clean: the generator does not test both answers", clean, n)
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
