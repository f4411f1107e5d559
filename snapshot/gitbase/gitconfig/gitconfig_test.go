package gitconfig

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/aspengine/asp/snapshot/gitbase/internal/gitoracle"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"
)

// listing is our form of "git config --list -z": one string per assignment.
func listing(all []Entry) []string {
	var out []string
	for _, e := range all {
		s := e.Key
		if e.HasValue {
			s += "\n" + e.Value
		}
		out = append(out, s)
	}
	return out
}

// sameAsGit compares Parse with git on one file.
func sameAsGit(t testing.TB, r *gitoracle.Repo, content string) {
	t.Helper()
	file := filepath.Join(r.Home, "f")
	r.Write(t, file, content)
	out, ok := r.Run(t, "", "config", "--list", "-z", "-f", file)
	all, err := Parse([]byte(content))
	if ok != (err == nil) {
		t.Errorf("Parse(%q): %v, git accepts: %v", content, err, ok)
		return
	}
	if err != nil {
		return
	}
	if d := cmp.Diff(gitoracle.Fields(out), listing(all)); d != "" && len(all)+len(out) > 0 {
		t.Errorf("Parse(%q) (-git +ours):\n%s", content, d)
	}
}

var corpus = []string{
	"", "\n", "[a]\nb=c", "[a]b=c", "[a] b = c ; x\n", "[a]\nb\n", "[a]\nb=\n", "[a]b ;x\n", "[a]b #x\n", "[A \"Sub Dir\"]\nKey = V\n",
	"[a \"q\\\"\\\\x\"]\nb=1", "[a.B]\nc=1", "[a.b.c]\nd=1", "[a \"\"]\nb=1", "[a\"b\"]\nc=1", "[a \"b\" ]\nc=1", "[ a]\nb=1", "[a ]\nb=1",
	"[a]\nb = \"x y\" z\n", "[a]\nb=\"x\n", "[a]\nb=x\\\n  y\n", "[a]\nb=x \\\n\n", "[a]\nb=x\\", "[a]\nb=\\t\\b\\n\\\\\\\"", "[a]\nb=\\x",
	"[a]\nb=\"a;b#c\" ; d", "[a]\nb=a;b", "[a]\nb=x\t\ty", "[a]\nb=  x  ", "[a]\nb=\" x \"", "[a]\nb=x\r\n", "[a]\nb=x\ry\n", "[a]\r\nb\r\n",
	"\xef\xbb\xbf[a]\nb=c", "\xef\xbb[a]\nb=c", "b=c\n", "[a]\n1b=c", "[a]\nb_c=1", "[a]\nb-c=1", "[-]\nb=1", "[]\nb=1", "[a", "[a]\nb c", "[a \"b\n\"]\nc=1",
	"[a]\nb=x#\\\ny=1\n", "; c\\\n[a]\nb=1", "[a]\nb=\v", "[a]\nb=1\n[a]\nb=2\n", "[a]\nb=\"\"", "[a]\nb=\"\"x", "[a]\nb=\"x\\\ny\"", "\t[a]\n\tb=1", "[a][b]c=1", "=\n",
	"[a \"\\\n\"]\nb=1", "[a]\nb= \\\n c", "[a]\nb\\\n=c", "[a]\nb==c", "[\xc3\xa4]\nb=1", "[a]\nb=\xc3\xa4\xff", "[a \"\xff\"]\nb=\xc3", "[a.]\nb=1", "[.]\nb=1", "[a]\nb;", "[a]\nb\v=1",
}

func TestParseLikeGit(t *testing.T) {
	r := gitoracle.New(t)
	for _, c := range corpus {
		sameAsGit(t, r, c)
	}
	parts := []string{"[a]", "[B \"", "\"]", "[", "]", "\n", "\n", "\r\n", "\r", "k", "Key-1", "=", " = ", " ", "\t", "\"", "\\", "\\n", "\\\"", "\\\n", ";", "#", "x", "ä", "\v", ".", "\xef\xbb\xbf"}
	rapid.Check(t, func(rt *rapid.T) {
		start := rapid.SampledFrom([]string{"[s]\n", "[s \"x\"]k=", "[s]\nkey = ", ""}).Draw(rt, "start")
		content := start + strings.Join(rapid.SliceOfN(rapid.SampledFrom(parts), 0, 14).Draw(rt, "parts"), "")
		sameAsGit(rt2t{t, rt}, r, content)
	})
}

// rt2t reports through rapid but lets helpers that want a testing.TB work.
type rt2t struct {
	*testing.T
	rt *rapid.T
}

func (r rt2t) Errorf(f string, a ...any) { r.rt.Errorf(f, a...) }
func (r rt2t) Helper()                   {}

func TestBoolLikeGit(t *testing.T) {
	r := gitoracle.New(t)
	for _, v := range []string{
		"true", "True", "YES", "on", "false", "No", "OFF", "", "0", "1", "-1", "2", "00", "010", "08", "0x10", "0x", "1k", "0k", "k", "1K", "1m", "1g", "2g", "3g", "1kk",
		"+1", " 1", "- 1", "1_0", "0b1", "0o7", "t", "y", "2147483647", "2147483648", "-2147483647", "-2147483648", "99999999999999999999", "true ", "tru", "--1", "1 ",
	} {
		file := filepath.Join(r.Home, "f")
		r.Write(t, file, fmt.Sprintf("[a]\nb=%q\n", v))
		out, ok := r.Run(t, "", "config", "-f", file, "--type=bool", "a.b")
		got, gotOK := ParseBool(v)
		if gotOK != ok || ok && fmt.Sprintln(got) != string(out) {
			t.Errorf("ParseBool(%q) = %v %v, git says %q %v", v, got, gotOK, out, ok)
		}
	}
}

// Every file, every include and its condition, in git's order.
func TestLoadLikeGit(t *testing.T) {
	r := gitoracle.New(t)
	home := func(p, c string) { r.Write(t, filepath.Join(r.Home, p), c) }
	real, err := filepath.EvalSymlinks(r.Root)
	if err != nil {
		t.Fatal(err)
	}
	r.Write(t, r.System(), "[l]\nv=system\n")
	home(".config/git/config", "[l]\nv=xdg\n[include]\npath=more\n")
	home(".config/git/more", "[l]\nv=more\n")
	home(".gitconfig", "[l]\nv=home\n[include]\npath=~/rel/a\npath=missing\npath=~/.git-none\n[l]\nv=after\n")
	home("rel/a", "[l]\nv=a\n[include]\npath=b\n")
	home("rel/b", "[l]\nv=b\n")
	var b strings.Builder
	b.WriteString("[core]\nrepositoryformatversion=0\n[extensions]\nworktreeConfig=true\n")
	for i, cond := range []string{
		"gitdir:" + real + "/.git", "gitdir:" + real + "/", "gitdir:" + real, "gitdir:w/", "gitdir:w/.git", "gitdir:W/", "gitdir/i:W/", "gitdir:./", "gitdir:./../", "gitdir:./x", "gitdir:" + filepath.Dir(real) + "/*/.git",
		"gitdir:~/", "gitdir:~/../w/", "gitdir:**", "gitdir:", "gitdir:/", "onbranch:main", "onbranch:m*", "onbranch:ma/", "onbranch:Main", "onbranch:**", "onbranch:", "bogus:x", "gitdir/i:./", "gitdir:*/.git", "gitdir:~nobody-here/",
		"hasconfig:remote.*.url:https://example.org/**", "hasconfig:remote.*.url:https://example.org/", "hasconfig:remote.*.url:https://example.org/*", "hasconfig:remote.*.url:*", "hasconfig:remote.x.url:**", "hasconfig:remote.*.url:https://later/*",
	} {
		fmt.Fprintf(&b, "[includeIf %q]\npath=inc%d\n", cond, i)
		r.Write(t, fmt.Sprintf(".git/inc%d", i), fmt.Sprintf("[l]\nv=%q\n", cond))
	}
	b.WriteString("[l]\nv=repo\n[remote \"x\"]\nurl=https://example.org/a/b\n")
	r.Write(t, ".git/config", b.String())
	r.Write(t, ".git/config.worktree", "[l]\nv=worktree\n[remote \"y\"]\nurl=https://later/y\n")
	for _, branch := range []string{"main", "ma/in", ""} {
		head := "ref: refs/heads/" + branch + "\n"
		if branch == "" {
			head = strings.Repeat("1", 40) + "\n"
		}
		r.Write(t, ".git/HEAD", head)
		c, err := Load(context.Background(), Options{System: r.System(), Home: r.Home, GitDir: filepath.Join(r.Root, ".git"), Branch: branch})
		if err != nil {
			t.Fatal(err)
		}
		want := gitoracle.Fields(r.Git(t, "", "config", "--list", "-z"))
		if d := cmp.Diff(want, listing(c.Entries())); d != "" {
			t.Errorf("branch %q (-git +ours):\n%s", branch, d)
		}
		if v, ok := c.String("L.V"); v != "worktree" || !ok {
			t.Errorf("String = %q %v", v, ok)
		}
	}
}

// The extension counts only in the repository's own file.
func TestWorktreeConfigNeedsTheExtension(t *testing.T) {
	r := gitoracle.New(t)
	ext := "[extensions]\nworktreeConfig=true\n"
	r.Write(t, filepath.Join(r.Home, ".gitconfig"), ext)
	r.Write(t, ".git/more", ext)
	r.Write(t, ".git/config", "[core]\nrepositoryformatversion=0\n[include]\npath=more\n")
	r.Write(t, ".git/config.worktree", "[l]\nv=worktree\n")
	c, err := Load(context.Background(), Options{Home: r.Home, GitDir: filepath.Join(r.Root, ".git")})
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(gitoracle.Fields(r.Git(t, "", "config", "--list", "-z")), listing(c.Entries())); d != "" {
		t.Errorf("(-git +ours):\n%s", d)
	}
}

func load(t *testing.T, content string) (*Config, error) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "config"), []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return Load(context.Background(), Options{GitDir: dir, Home: "/home/u"})
}

func TestGetters(t *testing.T) {
	c, err := load(t, "[core]\nexcludesFile=~/x\nbare\nautocrlf=maybe\nempty=\nprefix=%(prefix)/x\n[filter \"A.b\"]\nclean=x\n[filter \"c\"]\nclean=y\n[filter \"A.b\"]\nclean=z\n")
	if err != nil {
		t.Fatal(err)
	}
	if p, err := c.ExcludesFile(); p != "/home/u/x" || err != nil {
		t.Errorf("ExcludesFile = %q, %v", p, err)
	}
	if p, err := c.AttributesFile(); p != "/home/u/.config/git/attributes" || err != nil {
		t.Errorf("AttributesFile = %q, %v", p, err)
	}
	if b, err := c.Bool("Core.Bare", false); !b || err != nil {
		t.Errorf("valueless key is %v, %v", b, err)
	}
	if b, err := c.Bool("core.empty", true); b || err != nil {
		t.Errorf("empty value is %v, %v", b, err)
	}
	if b, err := c.Bool("core.none", true); !b || err != nil {
		t.Errorf("missing key is %v, %v", b, err)
	}
	if _, err := c.Bool("core.autocrlf", false); !errors.Is(err, ErrValue) {
		t.Errorf("bad spelling: %v", err)
	}
	if _, _, err := c.Path("core.prefix"); !errors.Is(err, ErrValue) {
		t.Errorf("%%(prefix): %v", err)
	}
	if _, _, err := c.Path("core.bare"); !errors.Is(err, ErrValue) {
		t.Errorf("valueless path: %v", err)
	}
	if d := cmp.Diff([]string{"A.b", "c"}, c.Subsections("Filter")); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff([]string{"x", "z"}, c.All("FILTER.A.b.CLEAN")); d != "" {
		t.Error(d)
	}
	if _, ok := c.String("filter.a.b.clean"); ok {
		t.Error("a subsection matched in another case")
	}
}

func TestLoadRefuses(t *testing.T) {
	if _, err := load(t, "[include]\npath=config\n"); !errors.Is(err, ErrLimit) {
		t.Errorf("include of itself: %v", err)
	}
	wide := strings.Repeat("path=config\n", 3)
	if _, err := load(t, "[include]\n"+wide); !errors.Is(err, ErrLimit) {
		t.Errorf("branching include: %v", err)
	}
	if _, err := load(t, "[a]\nb=\""); !errors.Is(err, ErrSyntax) || !strings.Contains(err.Error(), "line 2") {
		t.Errorf("open quote: %v", err)
	}
	if _, err := load(t, "[include]\npath\n"); !errors.Is(err, ErrValue) {
		t.Errorf("include without a path: %v", err)
	}
	if _, err := load(t, strings.Repeat("#", MaxFileSize+1)); !errors.Is(err, ErrLimit) {
		t.Errorf("large file: %v", err)
	}
	for _, p := range []string{"/dev/zero", t.TempDir()} {
		if _, err := load(t, "[include]\npath="+p+"\n"); err == nil {
			t.Errorf("include of %s was read", p)
		}
	}
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := load(t, "[include]\npath="+fifo+"\n"); err == nil {
		t.Error("include of a FIFO was read")
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := Load(ctx, Options{Home: "/nowhere"}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

func TestLoadOfManyFilesStops(t *testing.T) {
	if _, err := load(t, "[include]\n"+strings.Repeat("path=/dev/null/none\n", MaxFiles)); !errors.Is(err, ErrLimit) {
		t.Errorf("many includes: %v", err)
	}
}

func FuzzParse(f *testing.F) {
	for _, c := range corpus {
		f.Add([]byte(c))
	}
	f.Add([]byte("[a \"\x00\"]\nb=\x00c"))
	f.Fuzz(func(t *testing.T, b []byte) {
		all, err := Parse(b)
		if err != nil && (all != nil || !errors.Is(err, ErrSyntax)) {
			t.Errorf("error %v with %d entries", err, len(all))
		}
		for _, e := range all {
			if strings.ContainsRune(e.Key+e.Value, 0) || e.Key == "" {
				t.Errorf("entry %q = %q", e.Key, e.Value)
			}
			ParseBool(e.Value)
		}
	})
}

// The git directory matches by its real name and by the one it was reached by;
// what "./" stands for is compared as it is, wildcards included.
func TestGitDirByLinkAndLiterally(t *testing.T) {
	top, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	real, link := filepath.Join(top, "r[e]al"), filepath.Join(top, "link")
	if err := os.Mkdir(real, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(real, link); err != nil {
		t.Fatal(err)
	}
	for cond, want := range map[string]bool{"./": false, "./**": false, "./../*": false, "link": true, "r\\\\[e]al": true, "other": false} {
		c, err := os.Create(filepath.Join(real, "config"))
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(c, "[includeIf \"gitdir:%s\"]\npath=more\n", cond) //nolint:errcheck // Load would miss it
		c.Close()                                                      //nolint:errcheck // as above
		if err := os.WriteFile(filepath.Join(real, "more"), []byte("[a]\nb=1\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		conf, err := Load(context.Background(), Options{GitDir: link})
		if err != nil {
			t.Fatal(err)
		}
		if _, ok := conf.String("a.b"); ok != want {
			t.Errorf("gitdir:%s holds: %v", cond, ok)
		}
	}
	// A file inside r[e]al says "./": everything below its directory.
	sub := filepath.Join(real, "sub")
	l := &loader{o: Options{GitDir: sub}}
	if err := os.Mkdir(sub, 0o700); err != nil {
		t.Fatal(err)
	}
	if ok, err := l.gitDirMatches("./", filepath.Join(real, "config"), false); !ok || err != nil {
		t.Errorf("./ with wildcards in the directory: %v, %v", ok, err)
	}
}
