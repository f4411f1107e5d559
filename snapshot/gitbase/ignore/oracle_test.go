package ignore

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/aspengine/asp/snapshot/gitbase/internal/gitoracle"
	"pgregory.net/rapid"
)

// explainAll asks for every path the way a walk would: a Dir per directory,
// with the .gitignore that files holds for it. Directories end in a slash.
func explainAll(o Options, files map[string]string, paths []string) []string {
	o.Root = []byte(files[".gitignore"])
	dirs := map[string]*Dir{"": New(o)}
	var enter func(dir string) *Dir
	enter = func(dir string) *Dir {
		if d := dirs[dir]; d != nil {
			return d
		}
		up, name := path.Split(dir)
		d := enter(strings.TrimSuffix(up, "/")).Enter(name, []byte(files[dir+"/.gitignore"]))
		dirs[dir] = d
		return d
	}
	var out []string
	for _, p := range paths {
		clean, isDir := strings.CutSuffix(p, "/")
		up, name := path.Split(clean)
		d := enter(strings.TrimSuffix(up, "/"))
		r, ok := d.Explain(name, isDir)
		v := d.Match(name, isDir)
		switch {
		case ok != (v != None) || ok && r.Negated != (v == Included):
			out = append(out, fmt.Sprintf("Match %v but Explain %+v %v", v, r, ok))
		case !ok:
			out = append(out, "none")
		default:
			src := map[Source]string{FromDirectory: path.Join(r.Dir, ".gitignore"), FromInfo: ".git/info/exclude", FromGlobal: "global"}[r.Source]
			out = append(out, fmt.Sprintf("%s:%d:%s", src, r.Line, r.Pattern))
		}
	}
	return out
}

// gitExplain asks git check-ignore the same.
func gitExplain(t testing.TB, r *gitoracle.Repo, paths []string, fold bool) []string {
	t.Helper()
	var in strings.Builder
	for _, p := range paths { // with a slash at the end git would take the name for empty
		in.WriteString(strings.TrimSuffix(p, "/") + "\x00")
	}
	out, _ := r.Run(t, in.String(), "-c", "core.excludesFile="+filepath.Join(r.Home, "global"), "-c", "core.ignorecase="+strconv.FormatBool(fold),
		"check-ignore", "-v", "-n", "--no-index", "--stdin", "-z")
	f := gitoracle.Fields(out)
	if len(f) != 4*len(paths) {
		t.Fatalf("check-ignore answered %d fields for %d paths", len(f), len(paths))
	}
	var all []string
	for i := 0; i < len(f); i += 4 {
		switch src := f[i]; {
		case src == "":
			all = append(all, "none")
		case strings.HasSuffix(src, "/global"):
			all = append(all, fmt.Sprintf("global:%s:%s", f[i+1], f[i+2]))
		default:
			all = append(all, fmt.Sprintf("%s:%s:%s", src, f[i+1], f[i+2]))
		}
	}
	return all
}

var pieces = []string{
	"a", "b", "ab", "A", "x", ".c", "*", "*", "**", "/", "/", "/**/", "**/", "?", "[ab]", "[!a]", "[^b]", "[a-c]", "[A-C]",
	"[[:alpha:]]", "[[:upper:]]", "[[:punct:]x]", "[]a]", "[b-]", `\a`, `\`, `\*`, "!", "#", " ", `\ `, "[", "]", "\t", "\r", "ä", `[\]]`, "[[:x:]]", "-",
}

func randomPattern(pick func(n int) int) string {
	var b strings.Builder
	switch pick(10) {
	case 0:
		b.WriteString("!")
	case 1:
		b.WriteString("/")
	case 2:
		b.WriteString([]string{`\!`, `\#`, "#", " ", "\r", "\xef\xbb\xbf"}[pick(6)])
	}
	for range 1 + pick(5) {
		b.WriteString(pieces[pick(len(pieces))])
	}
	b.WriteString([]string{"", "", "", "", "/", "/", " ", "  ", `\ `, "\r", "/**", "*", " \r", "\x00b"}[pick(14)])
	return b.String()
}

var names = []string{"a", "b", "ab", "A", "aB", "x", "a.c", "b.c", ".c", "!a", "#a", "a ", `a\`, "[", "]", "-", "ä", "*", "xab", "a\tb"}

// One pattern each in thousands of files, one process of git.
func TestPatternsLikeGit(t *testing.T) {
	r := gitoracle.New(t)
	r.Write(t, filepath.Join(r.Home, "global"), "")
	rnd := rand.New(rand.NewPCG(1, 2))
	for _, fold := range []bool{false, true} {
		files := map[string]string{}
		var paths []string
		for i := range 2500 {
			dir := fmt.Sprintf("c%v%d", fold, i)
			files[dir+"/.gitignore"] = randomPattern(rnd.IntN) + "\n"
			r.Write(t, dir+"/.gitignore", files[dir+"/.gitignore"])
			for range 12 {
				p := dir
				for range 1 + rnd.IntN(4) {
					p += "/" + names[rnd.IntN(len(names))]
				}
				paths = append(paths, p)
			}
		}
		got, want := explainAll(Options{IgnoreCase: fold}, files, paths), gitExplain(t, r, paths, fold)
		matched, bad := 0, 0
		for i := range paths {
			if want[i] != "none" {
				matched++
			}
			if got[i] != want[i] {
				if bad++; bad < 15 {
					dir, _, _ := strings.Cut(paths[i], "/")
					t.Errorf("fold %v, %q in %q: %q, git says %q", fold, files[dir+"/.gitignore"], paths[i], got[i], want[i])
				}
			}
		}
		if matched < len(paths)/20 {
			t.Errorf("only %d of %d paths matched: the test says little", matched, len(paths))
		}
	}
}

// tree draws directories and files; directories end in a slash.
func tree(t *rapid.T) []string {
	var all []string
	var fill func(dir string, depth int)
	fill = func(dir string, depth int) {
		some := rapid.SliceOfNDistinct(rapid.SampledFrom(names), 1, 4, rapid.ID).Draw(t, "names in "+dir)
		for _, n := range some {
			if depth < 3 && rapid.Bool().Draw(t, "isDir "+dir+n) {
				all = append(all, dir+n+"/")
				fill(dir+n+"/", depth+1)
			} else {
				all = append(all, dir+n)
			}
		}
	}
	fill("", 0)
	return all
}

// Whole trees with nested files, info/exclude and the global file: the rule
// that decides, and what status lists.
func TestTreesLikeGit(t *testing.T) {
	gitoracle.New(t) // skips where git is missing
	rapid.Check(t, func(rt *rapid.T) {
		r := gitoracle.New(t)
		defer os.RemoveAll(filepath.Dir(r.Root)) //nolint:errcheck // the test's own clean-up comes later
		fold := rapid.Bool().Draw(rt, "fold")
		all := tree(rt)
		pick := func(n int) int { return rapid.IntRange(0, n-1).Draw(rt, "pick") }
		list := func(label string) string {
			var b strings.Builder
			if rapid.IntRange(0, 9).Draw(rt, label+" bom") == 0 {
				b.WriteString(bom)
			}
			for range rapid.IntRange(0, 5).Draw(rt, label) {
				if rapid.Bool().Draw(rt, "simple") {
					b.WriteString(rapid.SampledFrom([]string{"", "!", "/", "!/"}).Draw(rt, "mark"))
					b.WriteString(strings.TrimSuffix(rapid.SampledFrom(all).Draw(rt, "path"), "/"))
				} else {
					b.WriteString(randomPattern(pick))
				}
				b.WriteString("\n")
			}
			return b.String()
		}
		files := map[string]string{".gitignore": list("root")}
		for _, p := range all {
			if d, ok := strings.CutSuffix(p, "/"); ok {
				r.Mkdir(t, d)
				if rapid.IntRange(0, 2).Draw(rt, "nested") == 0 {
					files[p+".gitignore"] = list(p)
				}
			} else {
				r.Write(t, p, "")
			}
		}
		o := Options{Info: []byte(list("info")), Global: []byte(list("global")), IgnoreCase: fold}
		for p, b := range files {
			r.Write(t, p, b)
			all = append(all, p)
		}
		r.Write(t, ".git/info/exclude", string(o.Info))
		r.Write(t, filepath.Join(r.Home, "global"), string(o.Global))
		got, want := explainAll(o, files, all), gitExplain(t, r, all, fold)
		for i := range all {
			if got[i] != want[i] {
				rt.Errorf("%q: %q, git says %q; files %q info %q global %q", all[i], got[i], want[i], files, o.Info, o.Global)
			}
		}
		compareStatus(t, rt, r, o, files, all, got)
	})
}

// compareStatus holds a walk with Match against what git status lists.
func compareStatus(t *testing.T, rt *rapid.T, r *gitoracle.Repo, o Options, files map[string]string, all, explained []string) {
	out := r.Git(t, "", "-c", "core.excludesFile="+filepath.Join(r.Home, "global"), "-c", "core.ignorecase="+strconv.FormatBool(o.IgnoreCase),
		"status", "--porcelain=v2", "-z", "-uall", "--ignored=matching")
	want := gitoracle.Fields(out)
	var got []string
	ignoredDirs := map[string]bool{}
	sorted := slices.Sorted(slices.Values(all))
	verdict := map[string]string{}
	for i, p := range all {
		verdict[p] = explained[i]
	}
	for _, p := range sorted {
		up, _ := path.Split(strings.TrimSuffix(p, "/"))
		v := verdict[p]
		ignored := v != "none" && !strings.HasPrefix(strings.SplitN(v, ":", 3)[2], "!")
		switch {
		case ignoredDirs[up]:
			ignoredDirs[p] = true
		case ignored:
			ignoredDirs[p] = true
			got = append(got, "! "+p)
		case !strings.HasSuffix(p, "/"):
			got = append(got, "? "+p)
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		rt.Errorf("walk lists %q, git status %q; files %q", got, want, files)
	}
}
