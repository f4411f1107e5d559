package linediff_test

import (
	"bytes"
	"fmt"
	"math/rand"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/aspengine/asp/editplan/patch/linediff"
	"github.com/aspengine/asp/internal/need"
	"pgregory.net/rapid"
)

func TestLines(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{"", ""}, {"a", `"a"`}, {"a\n", `"a\n"`}, {"a\r\nb", `"a\r\n" "b"`}, {"\n\n", `"\n" "\n"`}, {"a\rb\n", `"a\rb\n"`},
	} {
		var got []string
		for _, l := range linediff.Lines([]byte(c.in)) {
			got = append(got, fmt.Sprintf("%q", l))
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%q: %s", c.in, got)
		}
	}
}

// check holds a script to what Diff promises.
func check(a, b [][]byte, script []linediff.Change) error {
	i, j := 0, 0
	for n, c := range script {
		if c.A0 < i || c.A1 < c.A0 || c.B1 < c.B0 || c.A1 == c.A0 && c.B1 == c.B0 || n > 0 && c.A0 == i {
			return fmt.Errorf("change %d out of order: %+v", n, c)
		}
		if c.A0-i != c.B0-j {
			return fmt.Errorf("change %d: %d common lines here, %d there", n, c.A0-i, c.B0-j)
		}
		for ; i < c.A0; i, j = i+1, j+1 {
			if !bytes.Equal(a[i], b[j]) {
				return fmt.Errorf("lines %d and %d are no common line", i, j)
			}
		}
		i, j = c.A1, c.B1
	}
	if len(a)-i != len(b)-j {
		return fmt.Errorf("tails differ: %d, %d", len(a)-i, len(b)-j)
	}
	for ; i < len(a); i, j = i+1, j+1 {
		if !bytes.Equal(a[i], b[j]) {
			return fmt.Errorf("lines %d and %d are no common line", i, j)
		}
	}
	return nil
}

func TestDiff(t *testing.T) {
	text := rapid.SliceOfN(rapid.SampledFrom([]string{"a\n", "b\n", "c\n", "d\n", "}\n", "\n"}), 0, 40)
	rapid.Check(t, func(t *rapid.T) {
		a := linediff.Lines([]byte(strings.Join(text.Draw(t, "a"), "")))
		b := linediff.Lines([]byte(strings.Join(text.Draw(t, "b"), "")))
		if err := check(a, b, linediff.Diff(a, b)); err != nil {
			t.Fatal(err)
		}
	})
}

// TestDiffBeyondTheCap: texts so different that the search is cut short still
// give a right script.
func TestDiffBeyondTheCap(t *testing.T) {
	r := rand.New(rand.NewSource(1))
	for range 5 {
		var a, b [][]byte
		for range 4000 {
			a = append(a, fmt.Appendf(nil, "%d\n", r.Intn(2000)))
			b = append(b, fmt.Appendf(nil, "%d\n", r.Intn(2000)))
		}
		if err := check(a, b, linediff.Diff(a, b)); err != nil {
			t.Fatal(err)
		}
	}
}

// TestDiffAgainstGit: the changes are those that git diff shows.
func TestDiffAgainstGit(t *testing.T) {
	git, err := exec.LookPath("git")
	if err != nil {
		need.Missing(t, "there is no git to compare with")
	}
	r := rand.New(rand.NewSource(3))
	dir := t.TempDir()
	var script strings.Builder
	var want []string
	for i := range 150 {
		var side [2][]byte
		alphabet := []int{2, 4, 12, 60}[i%4]
		size := []int{5, 30, 200, 1500}[i/4%4]
		for range r.Intn(size) {
			l := fmt.Appendf(nil, "w%d\n", r.Intn(alphabet))
			side[0] = append(side[0], l...)
			switch r.Intn(6) {
			case 0:
			case 1:
				side[1] = append(append(side[1], l...), fmt.Sprintf("w%d\n", r.Intn(alphabet))...)
			default:
				side[1] = append(side[1], l...)
			}
		}
		for k, name := range []string{"a", "b"} {
			if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%d%s", i, name)), side[k], 0o600); err != nil {
				t.Fatal(err)
			}
		}
		var heads []string
		// One line of context: without any, git trims the common end first and
		// so may choose another of several shortest scripts.
		for _, c := range linediff.Diff(linediff.Lines(side[0]), linediff.Lines(side[1])) {
			heads = append(heads, fmt.Sprintf("-%d +%d", c.A1-c.A0, c.B1-c.B0), fmt.Sprintf("at %d %d", c.A0, c.B0))
		}
		want = append(want, strings.Join(heads, "; "))
		fmt.Fprintf(&script, "%s diff --no-index --no-indent-heuristic -U1 %da %db >%d.diff\n", git, i, i, i)
	}
	script.WriteString("true\n")
	cmd := exec.Command("sh", "-s")
	cmd.Dir, cmd.Stdin = dir, strings.NewReader(script.String())
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "GIT_CONFIG_NOSYSTEM=1"}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("run git diff: %v: %s", err, out)
	}
	for i, w := range want {
		out, err := os.ReadFile(filepath.Join(dir, fmt.Sprintf("%d.diff", i)))
		if err != nil {
			t.Fatal(err)
		}
		if got := changesOf(string(out)); got != w {
			t.Errorf("pair %d: git\n%s\nours\n%s", i, got, w)
		}
	}
}

// changesOf reads the changes out of a unified diff.
func changesOf(diff string) string {
	var heads []string
	a, b, del, add := 0, 0, 0, 0
	flush := func() {
		if del+add > 0 {
			heads = append(heads, fmt.Sprintf("-%d +%d", del, add), fmt.Sprintf("at %d %d", a-del, b-add))
		}
		del, add = 0, 0
	}
	in := false
	for l := range strings.Lines(diff) {
		switch {
		case strings.HasPrefix(l, "@@ "):
			flush()
			in = true
			var old, new string
			fmt.Sscanf(l, "@@ -%s +%s @@", &old, &new)
			a, b = start(old), start(new)
		case !in:
		case l[0] == ' ':
			flush()
			a, b = a+1, b+1
		case l[0] == '-':
			a, del = a+1, del+1
		case l[0] == '+':
			b, add = b+1, add+1
		}
	}
	flush()
	return strings.Join(heads, "; ")
}

func start(s string) int {
	n, count := 0, 1
	if at, c, ok := strings.Cut(s, ","); ok {
		fmt.Sscan(at, &n)
		fmt.Sscan(c, &count)
	} else {
		fmt.Sscan(s, &n)
	}
	if count == 0 {
		return n
	}
	return n - 1
}
