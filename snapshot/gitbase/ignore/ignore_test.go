package ignore

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
)

// verdicts gives one letter for every path: i(gnored), n(one), + (included).
func verdicts(o Options, files map[string]string, paths ...string) string {
	var b strings.Builder
	o.Root = []byte(files[""])
	for _, p := range paths {
		d := New(o)
		parts := strings.Split(strings.TrimSuffix(p, "/"), "/")
		dir := ""
		for _, n := range parts[:len(parts)-1] {
			dir = join(dir, n)
			d = d.Enter(n, []byte(files[dir]))
		}
		b.WriteByte("ni+"[d.Match(parts[len(parts)-1], strings.HasSuffix(p, "/"))])
	}
	return b.String()
}

// The rules one by one; each row was seen in git, too (see the oracle tests).
func TestRules(t *testing.T) {
	for _, c := range []struct{ rules, paths, want string }{
		{"a", "a b x/a a/x", "inii"},
		{"/a", "a x/a", "in"},
		{"x/a", "x/a a y/x/a", "inn"},
		{"a/", "a a/ a/x x/a/", "niii"},
		{"a/\n!a/x", "a/x", "i"}, // a file below an ignored directory stays ignored
		{"a/*\n!a/x", "a/x a/y", "+i"},
		{"*.o\n!k.o", "a.o k.o d/k.o", "i++"},
		{"!k.o\n*.o", "k.o", "i"},
		{"*", "a d/ d/a", "iii"},
		{"**/a", "a x/a x/y/a", "iii"},
		{"a/**", "a a/ a/x a/x/y", "nnii"},
		{"a/**/b", "a/b a/x/b a/x/y/b b", "iiin"},
		{"a**/b", "a/b ax/y/b", "ii"}, // what follows the literal "a" is matched as a pattern of its own
		{"a**/b", "ab a/b axb", "iin"},
		{"a**//", "a/ ab/ a/b/", "ini"},
		{"a*b", "ab axb ax/b", "iin"},
		{"a?", "a ab abc", "nin"},
		{"[a-c]x", "ax dx", "in"},
		{"\\#a\n\\!b", "#a !b", "ii"},
		{"#a", "#a a", "nn"},
		{"a\r\nb\r", "a b", "ii"},
		{"a\r\r", "a", "n"},
		{"\xef\xbb\xbfa\n\xef\xbb\xbfb", "a b \xef\xbb\xbfb", "ini"},
		{"a\t", "a a\t", "ni"},
		{"a\\", "a a\\", "nn"},
		{"a\x00b", "a ab", "in"},
		{"/\n!\n//\n\r\n \n**//", "a a/ a/b", "nnn"},
		{"/*\n!/keep/", "x keep/ keep/x x/y", "i+ni"},
	} {
		if got := verdicts(Options{}, map[string]string{"": c.rules}, strings.Split(c.paths, " ")...); got != c.want {
			t.Errorf("%q, paths %q: %s, want %s", c.rules, c.paths, got, c.want)
		}
	}
	if got := verdicts(Options{}, map[string]string{"": "a \nb\\ \nc\\  "}, "a", "a ", "b ", "b", "c ", "c"); got != "inin"+"in" {
		t.Errorf("trailing spaces: %s", got)
	}
}

func TestPrecedence(t *testing.T) {
	files := map[string]string{"": "!b\nc", "d": "!c\nd", "d/d": "!a"}
	o := Options{Global: []byte("a\nb\nc\nd"), Info: []byte("!a\n!d\nb")}
	if got, want := verdicts(o, files, "a", "b", "c", "d", "d/c", "d/d", "d/d/a"), "++i++i"+"i"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	o.IgnoreCase = true
	if got, want := verdicts(o, nil, "A", "D", "B", "E"), "++in"; got != want {
		t.Errorf("without case %s, want %s", got, want)
	}
}

// Long lists are looked up by the last byte; the answers are those of the same
// rules one list each, weakest first.
func TestLongListsAreSearchedRight(t *testing.T) {
	rnd := rand.New(rand.NewPCG(7, 8))
	for range 300 {
		var lines []string
		for range few + 1 + rnd.IntN(30) {
			lines = append(lines, randomPattern(rnd.IntN))
		}
		for _, fold := range []bool{false, true} {
			whole := New(Options{Root: []byte(strings.Join(lines, "\n")), IgnoreCase: fold})
			for _, n := range names {
				want := None
				for _, l := range lines {
					if l == bom || strings.HasPrefix(l, bom) {
						l = "\n" + l // only the first line has a mark to skip
					}
					if v := New(Options{Root: []byte(l), IgnoreCase: fold}).Match(n, true); v != None {
						want = v
					}
				}
				if strings.HasPrefix(lines[0], bom) {
					continue
				}
				if got := whole.Match(n, true); got != want {
					t.Fatalf("%q in %q, fold %v: %v, want %v", n, lines, fold, got, want)
				}
			}
		}
	}
}

// Rules of an ignored directory are not read, and the reason stays the one
// that ignored it.
func TestIgnoredDirectoryEndsTheRules(t *testing.T) {
	d := New(Options{Root: []byte("\nout/\n")}).Enter("out", []byte("!*"))
	if !d.Ignored() || d.Match("a", false) != Ignored || !d.Enter("x", []byte("!*")).Ignored() {
		t.Error("something below an ignored directory is not ignored")
	}
	want := Rule{Source: FromDirectory, Line: 2, Pattern: "out/"}
	if r, ok := d.Enter("x", nil).Explain("a", false); !ok || r != want {
		t.Errorf("explained by %+v, want %+v", r, want)
	}
}

// Walkers share nodes; run with the race detector.
func TestSharedByWalkers(t *testing.T) {
	root := New(Options{Root: []byte("*.o\n/d1/*.x\nd2/y\n!keep.o")})
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			for i := range 200 {
				d := root.Enter(fmt.Sprintf("d%d", (i+w)%4), []byte("z*\n"))
				if d.Match("a.o", false) != Ignored || d.Match("keep.o", false) != Included || d.Match("z1", true) != Ignored {
					t.Error("another verdict in a shared walk")
				}
			}
		})
	}
	wg.Wait()
}

func FuzzRules(f *testing.F) {
	f.Add([]byte("*.o\n!/a/**/b/\n[[:alpha:]-z]\\ "), "a/b/c", true)
	f.Fuzz(func(t *testing.T, b []byte, path string, fold bool) {
		d := New(Options{Root: b, Info: b, Global: b, IgnoreCase: fold})
		for _, n := range strings.Split(path, "/") {
			v := d.Match(n, true)
			if r, ok := d.Explain(n, true); ok != (v != None) || ok && r.Negated != (v == Included) {
				t.Fatalf("Match says %v, Explain %+v %v", v, r, ok)
			}
			if d = d.Enter(n, b); d.Ignored() != (v == Ignored) {
				t.Fatalf("%q: verdict %v, entered as ignored: %v", n, v, d.Ignored())
			}
		}
	})
}

var typical = strings.Fields(`node_modules/ dist/ build/ target/ .DS_Store *.log *.tmp *.swp *.swo *~ *.o *.a *.so *.exe *.dll *.class *.jar *.pyc
 __pycache__/ .venv/ venv/ .env .env.* !.env.example .idea/ .vscode/* !.vscode/settings.json coverage/ .nyc_output *.cover /vendor/ /bin/ /out/ docs/_build/
 npm-debug.log* yarn-error.log* .cache/ tmp/ *.sqlite3 *.bak Thumbs.db .tox/ .coverage .mypy_cache/ *.egg-info/ .terraform/ *.tfstate /cmd/asp/asp **/testdata/tmp/*.out`)

// One name against fifty patterns, without and with a match.
func BenchmarkMatch(b *testing.B) {
	d := New(Options{Root: []byte(strings.Join(typical, "\n"))}).Enter("internal", nil).Enter("server", nil)
	for b.Loop() {
		d.Match("handler_test.go", false)
		d.Match("handler.log", false)
	}
}

func BenchmarkEnter(b *testing.B) {
	d := New(Options{Root: []byte(strings.Join(typical, "\n"))}).Enter("internal", nil)
	for b.Loop() {
		d.Enter("server", nil)
	}
}
