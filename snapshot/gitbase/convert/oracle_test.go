package convert

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"

	"github.com/aspengine/asp/snapshot/gitbase/attrs"
	"github.com/aspengine/asp/snapshot/gitbase/gitconfig"
	"github.com/aspengine/asp/snapshot/gitbase/internal/gitoracle"
)

// content draws a small file of the kinds that git tells apart.
func content(rnd *rand.Rand) string {
	var b strings.Builder
	parts := []string{"text", "text", "\n", "\n", "\r\n", "\r\n", "\r\n", " ", "$Id$", "$Id: x$", "$Id:", "$", "é"}
	switch rnd.IntN(6) {
	case 0:
		parts = append(parts, "\r", "\r\r\n")
	case 1:
		parts = append(parts, "\x00", "\x01", "\x7f")
	case 2:
		b.WriteString(strings.Repeat("p", 120+rnd.IntN(20)) + "\x01")
	}
	for range rnd.IntN(12) {
		b.WriteString(parts[rnd.IntN(len(parts))])
	}
	if rnd.IntN(8) == 0 {
		b.WriteString("\x1a")
	}
	return b.String()
}

var attributeLines = []string{
	"", "text", "-text", "text=auto", "text=input", "text=odd", "eol=lf", "eol=crlf", "text=auto eol=crlf", "text=auto eol=lf", "-text eol=lf", "crlf", "-crlf", "crlf=input", "crlf=auto", "text=odd crlf",
	"ident", "text ident", "text=auto ident", "-ident", "ident=x", "binary", "!text eol=lf", "working-tree-encoding=UTF-8", "working-tree-encoding=utf8 text", "working-tree-encoding=", "filter=none text", "filter=gone text", "filter", "-filter text", "filter=empty text",
}

// Every attribute line with every configuration, over many contents, first as
// new files, then over an index whose blobs have or lack CRLF.
func TestBlobLikeGit(t *testing.T) {
	rnd := rand.New(rand.NewPCG(5, 6))
	for _, auto := range []string{"", "autocrlf=true", "autocrlf=input", "autocrlf=false", "autocrlf", "eol=crlf", "eol=lf\nautocrlf=Input"} {
		r := gitoracle.New(t)
		conf := "[core]\nrepositoryformatversion=0\nsafecrlf=false\n" + auto + "\n[filter \"none\"]\nsmudge=false\n[filter \"empty\"]\nclean=false\nprocess=\n"
		r.Write(t, ".git/config", conf)
		c, err := gitconfig.Load(context.Background(), gitconfig.Options{Home: r.Home, GitDir: filepath.Join(r.Root, ".git")})
		if err != nil {
			t.Fatal(err)
		}
		config, err := FromConfig(c)
		if err != nil {
			t.Fatal(err)
		}
		// What the index holds first is stored raw: no attributes, no autocrlf.
		first, second := map[string]string{}, map[string]string{}
		var list strings.Builder
		for i := range attributeLines {
			for k := range 24 {
				p := fmt.Sprintf("d%d/f%d", i, k)
				second[p] = content(rnd)
				if k%2 == 0 {
					first[p] = content(rnd)
					r.Write(t, p, first[p])
					list.WriteString(p + "\x00")
				}
			}
		}
		r.Git(t, list.String(), "-c", "core.autocrlf=false", "update-index", "--add", "-z", "--stdin")
		var a strings.Builder
		for i, l := range attributeLines {
			fmt.Fprintf(&a, "/d%d/* %s\n", i, l)
		}
		r.Write(t, ".gitattributes", a.String())
		for p, b := range second {
			r.Write(t, p, b)
		}
		r.Git(t, "", "add", ".")
		root := attrs.New(attrs.Options{Root: []byte(a.String())})
		compared := 0
		for _, f := range gitoracle.Fields(r.Git(t, "", "ls-files", "-s", "-z")) {
			info, p, _ := strings.Cut(f, "\t")
			if p == ".gitattributes" {
				continue
			}
			want := strings.Fields(info)[1]
			dir, name, _ := strings.Cut(p, "/")
			rule := config.Decide(root.Enter(dir, nil).Lookup(name))
			idx := func() (bool, error) {
				old, ok := first[p]
				if !ok {
					return false, nil
				}
				return HasCRLF(strings.NewReader(old))
			}
			got, err := NewHasher().Blob(context.Background(), strings.NewReader(second[p]), int64(len(second[p])), rule, idx)
			if err != nil || got.String() != want {
				t.Errorf("%q, config %q, index %q, attributes %q: %v %v, git says %s", second[p], auto, first[p], attributeLines[atoi(dir[1:])], got, err, want)
			}
			cleaned, err := Clean([]byte(second[p]), rule, idx)
			if err != nil || BlobOf(cleaned).String() != want {
				t.Errorf("%q: Clean differs from git (%v)", second[p], err)
			}
			compared++
		}
		if compared != len(second) {
			t.Errorf("compared %d of %d files", compared, len(second))
		}
	}
}

func atoi(s string) (n int) {
	fmt.Sscan(s, &n) //nolint:errcheck // our own digits
	return n
}

// A filter is reported exactly where git would run one. The filter here counts
// its runs by what it stores; nothing of ours ever runs it.
func TestFilterLikeGit(t *testing.T) {
	for _, c := range []struct{ conf, attr string }{
		{"clean=echo clean", "filter=x"}, {"clean=", "filter=x"}, {"smudge=cat", "filter=x"}, {"clean=echo clean\nprocess=", "filter=x"}, {"required=false", "filter=x"},
		{"clean=echo clean", "filter=y"}, {"clean=echo clean", "filter"}, {"clean=echo clean", "-filter"}, {"clean=echo clean", "filter=X"}, {"clean=echo clean", "filter=x text"},
	} {
		r := gitoracle.New(t)
		r.Write(t, ".git/config", "[filter \"x\"]\n"+c.conf+"\n")
		r.Write(t, ".gitattributes", "f "+c.attr+"\n")
		r.Write(t, "f", "content\n")
		cfg, err := gitconfig.Load(context.Background(), gitconfig.Options{GitDir: filepath.Join(r.Root, ".git")})
		if err != nil {
			t.Fatal(err)
		}
		config, err := FromConfig(cfg)
		if err != nil {
			t.Fatal(err)
		}
		rule := config.Decide(attrs.New(attrs.Options{Root: []byte("f " + c.attr)}).Lookup("f"))
		ran := strings.TrimSpace(string(r.Git(t, "", "hash-object", "--path=f", "f"))) != BlobOf([]byte("content\n")).String()
		if rule.Filtered != ran {
			t.Errorf("%+v: Filtered %v, git ran it: %v", c, rule.Filtered, ran)
		}
	}
	// With required and nothing to run git refuses to store the file at all.
	r := gitoracle.New(t)
	r.Write(t, ".git/config", "[filter \"x\"]\nrequired\n")
	r.Write(t, ".gitattributes", "f filter=x\n")
	r.Write(t, "f", "content\n")
	if _, ok := r.Run(t, "", "hash-object", "--path=f", "f"); ok {
		t.Error("git stores a file whose required filter is missing")
	}
	cfg, err := gitconfig.Load(context.Background(), gitconfig.Options{GitDir: filepath.Join(r.Root, ".git")})
	if err != nil {
		t.Fatal(err)
	}
	config, err := FromConfig(cfg)
	if err != nil || !config.Decide(attrs.Attrs{Filter: attrs.Attr{State: attrs.Value, Text: "x"}}).Filtered {
		t.Errorf("a required filter without a command is not reported (%v)", err)
	}
}
