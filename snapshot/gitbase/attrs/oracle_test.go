package attrs

import (
	"fmt"
	"math/rand/v2"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"github.com/aspengine/asp/snapshot/gitbase/internal/gitoracle"
)

func (a Attr) show() string {
	return [...]string{"unspecified", "set", "unset", a.Text}[a.State]
}

func (a Attrs) show() string {
	return fmt.Sprintf("text=%s crlf=%s eol=%s filter=%s ident=%s enc=%s",
		a.Text.show(), a.CRLF.show(), a.EOL.show(), a.Filter.show(), a.Ident.show(), a.Encoding.show())
}

// world is a set of files that say something of attributes.
type world struct {
	o     Options
	files map[string]string // nested and top .gitattributes by path
}

func (w world) lookup(paths []string) []string {
	w.o.Root = []byte(w.files[".gitattributes"])
	dirs := map[string]*Dir{"": New(w.o)}
	var enter func(dir string) *Dir
	enter = func(dir string) *Dir {
		if d := dirs[dir]; d != nil {
			return d
		}
		up, name := path.Split(dir)
		d := enter(strings.TrimSuffix(up, "/")).Enter(name, []byte(w.files[dir+"/.gitattributes"]))
		dirs[dir] = d
		return d
	}
	var out []string
	for _, p := range paths {
		up, name := path.Split(p)
		out = append(out, enter(strings.TrimSuffix(up, "/")).Lookup(name).show())
	}
	return out
}

func (w world) git(t testing.TB, r *gitoracle.Repo, paths []string) []string {
	t.Helper()
	for p, c := range w.files {
		r.Write(t, p, c)
	}
	r.Write(t, ".git/info/attributes", string(w.o.Info))
	global := filepath.Join(r.Home, "attributes")
	r.Write(t, global, string(w.o.Global))
	names := []string{"text", "crlf", "eol", "filter", "ident", "working-tree-encoding"}
	args := append([]string{"-c", "core.attributesFile=" + global, "-c", fmt.Sprintf("core.ignorecase=%v", w.o.IgnoreCase), "check-attr", "--stdin", "-z"}, names...)
	f := gitoracle.Fields(r.Git(t, strings.Join(paths, "\x00")+"\x00", args...))
	if len(f) != len(paths)*3*len(names) {
		t.Fatalf("check-attr answered %d fields for %d paths", len(f), len(paths))
	}
	var out []string
	for i := 0; i < len(f); i += 3 * len(names) {
		out = append(out, fmt.Sprintf("text=%s crlf=%s eol=%s filter=%s ident=%s enc=%s", f[i+2], f[i+5], f[i+8], f[i+11], f[i+14], f[i+17]))
	}
	return out
}

func (w world) compare(t testing.TB, paths []string) (said int) {
	t.Helper()
	got, want := w.lookup(paths), w.git(t, gitoracle.New(t), paths)
	bad := 0
	for i := range paths {
		if want[i] != (Attrs{}).show() {
			said++
		}
		if got[i] != want[i] {
			if bad++; bad < 6 {
				dir, _, _ := strings.Cut(paths[i], "/")
				t.Errorf("%q:\n got %s\ngit  %s\nfiles %.300q %.300q info %q global %q", paths[i], got[i], want[i],
					w.files[".gitattributes"], w.files[dir+"/.gitattributes"], w.o.Info, w.o.Global)
			}
		}
	}
	return said
}

// One case per rule of the grammar.
func TestLookupLikeGit(t *testing.T) {
	long := strings.Repeat("x", maxLine-len("f text="))
	for _, c := range []string{
		"f text", "f -text", "f !text", "f text=auto eol=lf", "f\ttext\r", "  f text", "#f text", "f text\nf !text", "f text\nf -text ident",
		"f binary", "f -binary", "f !binary", "f binary=x", "f binary text", "f text binary", "[attr]m text=auto eol=crlf\nf m", "f m\n[attr]m text",
		"[attr]m n\n[attr]n ident\nf m", "[attr]m m text\nf m", "[attr]m n\n[attr]n m eol=lf\nf m", "[attr]m text\n[attr]m ident\nf m", "[attr]binary ident\nf binary",
		"[attr]text ident\nf text", "[attr] m text\nf m", "[attr]\nf text", "[attr]-m text\nf text", "f [attr]m text", "!f text", `\!f text`, `"f" text`, `"f"text`, `"\146" text`,
		`"f text`, `"\q" text`, `"f" `, "\"f\\000g\" text", "f text --ident", "f text -", "f text !", "f text =x", "f text=", "f -text=auto", "f text=a=b", "f te/xt", "f te/xt ident", "f/ text", "/f text", "d/f text",
		"d text", "d/ text", "d/** text", "d/* text", "**/f text", "**/d/f text", "* text=auto\n*.c -text", "f filter=lfs diff=lfs merge=lfs -text", "f crlf=input", "f -crlf", "f working-tree-encoding=UTF-16", "F text",
		"\xef\xbb\xbff text", "f text\x00 ident", "f " + "text=" + long, "f text=" + long + "x", " f text=" + long, "f text\n" + strings.Repeat("x", 3000) + " ident", "*f text\nf ident", "f eol=lf\nf eol", "[a-f] text", "f\\ text", "[attr]m -text\nf !m\nf m", "f m\n[attr]m !text\n* text",
	} {
		for _, fold := range []bool{false, true} {
			w := world{files: map[string]string{".gitattributes": c + "\n"}, o: Options{IgnoreCase: fold}}
			w.compare(t, []string{"f", "d/f", "d/d/f", "a.c", "!f"})
		}
	}
}

// Order of the files, and macros allowed at the top only.
func TestPrecedenceLikeGit(t *testing.T) {
	for _, w := range []world{
		{Options{Global: []byte("f text\n"), Info: []byte("f eol=lf\n")}, map[string]string{".gitattributes": "f -text\n", "d/.gitattributes": "f text=auto eol=crlf\n"}},
		{Options{Info: []byte("d/f !text\n")}, map[string]string{"d/.gitattributes": "f text ident\n"}},
		{Options{}, map[string]string{"d/.gitattributes": "[attr]m text\nf m\n"}},
		{Options{Global: []byte("[attr]m text\n")}, map[string]string{".gitattributes": "[attr]m ident\n", "d/.gitattributes": "f m\n"}},
		{Options{Info: []byte("[attr]m text\n")}, map[string]string{".gitattributes": "[attr]m ident\nf m\n"}},
		{Options{}, map[string]string{".gitattributes": "[attr]m text\n", "d/.gitattributes": "/f m\n/d/f -m\nd text=auto\n"}},
		{Options{}, map[string]string{".gitattributes": "f text\n", "d/.gitattributes": "f !text\n", "d/d/.gitattributes": "f ident\n"}},
	} {
		w.compare(t, []string{"f", "d/f", "d/d/f", "e/f"})
	}
}

// Random files in many directories of one repository, one process of git.
func TestRandomLikeGit(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	pick := func(s ...string) string { return s[rnd.IntN(len(s))] }
	lines := func(macros bool) string {
		var b strings.Builder
		for range 1 + rnd.IntN(5) {
			if macros && rnd.IntN(4) == 0 {
				b.WriteString("[attr]" + pick("m", "n", "binary", "text"))
			} else {
				b.WriteString(pick("*", "a", "b", "*.c", "/a", "a/b", "a/*", "**/b", "a/**", "[ab]", "?", `"a b"`, "A", "a/", "!a", `a\b`, "*/a", "/a/**/b"))
			}
			for range rnd.IntN(5) {
				b.WriteString(pick(" ", "\t", "  ") + pick("", "", "", "-", "!") + pick("text", "text=auto", "eol=lf", "eol=crlf", "crlf", "m", "n", "binary", "ident", "filter=x", "filter", "crlf=input", "working-tree-encoding=x", "other", "bad/name"))
			}
			b.WriteString(pick("\n", "\n", "\n", "\r\n", " \n"))
		}
		return b.String()
	}
	for round := range 6 {
		w := world{o: Options{Global: []byte(lines(true)), Info: []byte(lines(true)), IgnoreCase: round%2 == 1}, files: map[string]string{".gitattributes": lines(true)}}
		if round < 2 {
			w.o.Info = nil
		}
		var paths []string
		for i := range 250 {
			dir := fmt.Sprintf("c%d", i)
			w.files[dir+"/.gitattributes"] = lines(false)
			w.files[dir+"/a/.gitattributes"] = lines(false)
			for range 10 {
				p := dir
				for range rnd.IntN(3) {
					p += "/" + pick("a", "b", "A")
				}
				paths = append(paths, p+"/"+pick("a", "b", "x.c", "a b", "!a", "ab"))
			}
		}
		if said := w.compare(t, paths); said < len(paths)/10 {
			t.Errorf("only %d of %d paths have attributes: the test says little", said, len(paths))
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte("[attr]m n\n[attr]n m text\n* m -text=x !eol\n\"\\303\\244\" ident\n\x00"), "a")
	f.Fuzz(func(t *testing.T, b []byte, name string) {
		d := New(Options{Root: b, Info: b, Global: b})
		d.Lookup(name)
		d.Enter("d", b).Lookup(name)
	})
}
