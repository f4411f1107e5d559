package editplan_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/aspengine/asp/editplan"
	"github.com/aspengine/asp/internal/refusal"
	"github.com/aspengine/asp/snapshot"
)

// disk is a workspace in memory. Keys ending in a slash are empty directories,
// contents starting with "->" links.
type disk map[string]string

var errDisk = errors.New("asked for something that the contract of Reader rules out")

func (d disk) exec(p string) bool { return strings.HasSuffix(p, ".sh") }

func (d disk) State(p snapshot.Path) (editplan.State, error) {
	for _, up := range p.Parents() {
		if s, _ := d.State(up); s.Kind != editplan.IsDir {
			return editplan.State{}, fmt.Errorf("%w: %s below %s", errDisk, p, up)
		}
	}
	name := p.String()
	if c, ok := d[name]; ok {
		if strings.HasPrefix(c, "->") {
			return editplan.State{Kind: editplan.IsSymlink}, nil
		}
		return editplan.State{Kind: editplan.IsFile, Digest: digest(c), Size: int64(len(c)), Exec: d.exec(name)}, nil
	}
	for k := range d {
		if strings.HasPrefix(k, name+"/") {
			return editplan.State{Kind: editplan.IsDir}, nil
		}
	}
	return editplan.State{}, nil
}

func (d disk) Bytes(p snapshot.Path) ([]byte, error) {
	c, ok := d[p.String()]
	if !ok || strings.HasPrefix(c, "->") {
		return nil, fmt.Errorf("%w: bytes of %s", errDisk, p)
	}
	return []byte(c), nil
}

func (d disk) Names(p snapshot.Path) ([]string, *refusal.Item, error) {
	if _, other := d[p.String()+"/.git"]; other {
		it := refusal.New(refusal.OtherRepository, p.String(), -1, "is another repository")
		return nil, &it, nil
	}
	set := map[string]bool{}
	for k := range d {
		if rest, ok := strings.CutPrefix(k, p.String()+"/"); ok && rest != "" {
			name, _, _ := strings.Cut(rest, "/")
			set[name] = true
		}
	}
	var out []string
	for n := range set {
		out = append(out, n)
	}
	return out, nil, nil
}

func digest(c string) snapshot.Digest { return snapshot.DigestOf([]byte(c)) }

func at(s string) snapshot.Path {
	p, err := snapshot.ParsePath(s)
	if err != nil {
		panic(err)
	}
	return p
}

// The operations in short.
func create(p, content string) editplan.Draft {
	return editplan.Draft{Kind: editplan.Create, Path: p, Content: []byte(content), HasContent: true}
}

func modify(p, basis, content string) editplan.Draft {
	return editplan.Draft{Kind: editplan.Modify, Path: p, Expected: digest(basis), Content: []byte(content), HasContent: true}
}

func edit(p, basis string, e ...editplan.TextEdit) editplan.Draft {
	return editplan.Draft{Kind: editplan.Modify, Path: p, Expected: digest(basis), Edits: e}
}

func remove(p, basis string) editplan.Draft {
	return editplan.Draft{Kind: editplan.Delete, Path: p, Expected: digest(basis)}
}

func rename(p, to, basis string) editplan.Draft {
	return editplan.Draft{Kind: editplan.Rename, Path: p, To: to, Expected: digest(basis)}
}

func mode(d editplan.Draft, m editplan.ModeChange) editplan.Draft { d.Mode = m; return d }

func build(t testing.TB, drafts ...editplan.Draft) editplan.File {
	t.Helper()
	f, err := editplan.NewPlan(editplan.Source{Baseline: snapshot.Baseline{Rev: "tree:sha256:00"}, Provider: editplan.Provider{ID: "test", Version: "1"}}, drafts)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func compile(t testing.TB, drafts ...editplan.Draft) *editplan.Plan {
	t.Helper()
	p, refused, err := editplan.Compile(build(t, drafts...), editplan.Limits{}, nil)
	if err != nil || len(refused) > 0 {
		t.Fatalf("compile: %v %v", refused, err)
	}
	return p
}

// show writes net changes in short: path, what happens, operations.
func show(nets []editplan.Net, d disk, p *editplan.Plan) []string {
	var out []string
	for _, n := range nets {
		var s string
		switch n.Content {
		case editplan.ContentNone:
			s = "gone"
		case editplan.ContentSame:
			s = "same"
		case editplan.ContentBlob:
			s = fmt.Sprintf("blob %q", p.Blobs[n.After.Digest])
		case editplan.ContentEdits:
			s = fmt.Sprintf("edits %q", n.Bytes)
		case editplan.ContentLive:
			s = "live"
		}
		if n.Before.Kind == editplan.Absent {
			s += " new"
		}
		if !n.From.IsZero() {
			s += " from " + n.From.String()
		}
		if n.Moved {
			s += " moved"
		}
		if !n.MovedTo.IsZero() {
			s += " to " + n.MovedTo.String()
		}
		if n.After.Kind == editplan.IsFile && n.After.Exec != n.Before.Exec {
			s += fmt.Sprintf(" exec=%v", n.After.Exec)
		}
		out = append(out, fmt.Sprintf("%s: %s %v", n.Path, s, n.Ops))
	}
	return out
}

type drafts = []editplan.Draft

// TestResolve holds PV-03 and the combinations that belong to it.
func TestResolve(t *testing.T) {
	d := disk{"foo.rs": "mod a;\n", "p": "plain\n", "dir/x": "x\n", "two/a": "A", "two/b": "B", "two/sub/c": "C", "empty/": "", "run.sh": "#!\n", "a": "A", "b": "B", "e/sub/": "", "e/f": "F"}
	toB := ed(0, 4, 0, 5, "b")
	for _, c := range []struct {
		name string
		ops  drafts
		want []string
	}{
		{"PV-03.1 edit then rename", drafts{edit("foo.rs", "mod a;\n", toB), rename("foo.rs", "foo2.rs", "mod b;\n")},
			[]string{"foo.rs: gone [0 1]", `foo2.rs: edits "mod b;\n" new from foo.rs [1]`}},
		{"PV-03.2 rename then edit", drafts{rename("foo.rs", "foo2.rs", "mod a;\n"), edit("foo2.rs", "mod a;\n", toB)},
			[]string{"foo.rs: gone [0]", `foo2.rs: edits "mod b;\n" new from foo.rs [0 1]`}},
		{"PV-03.4 file into directory", drafts{remove("p", "plain\n"), create("p/c.txt", "c\n")},
			[]string{"p: gone [0]", `p/c.txt: blob "c\n" new [1]`}},
		{"a file moves into a directory of its own name", drafts{rename("p", "t", "plain\n"), rename("t", "p/q", "plain\n")},
			[]string{"p: gone to p/q [0]", "p/q: live new from p moved [1]"}},
		{"directory into file", drafts{remove("dir/x", "x\n"), create("dir", "d")},
			[]string{`dir: blob "d" [1]`, "dir/x: gone [0]"}},
		{"nested directory into file", drafts{remove("two/a", "A"), remove("two/sub/c", "C"), rename("two/b", "t", "B"), rename("t", "two", "B")},
			[]string{"two: live from two/b [3]", "two/a: gone [0]", "two/b: gone [2]", "two/sub/c: gone [1]"}},
		{"pure rename", drafts{rename("foo.rs", "x/y.rs", "mod a;\n")},
			[]string{"foo.rs: gone to x/y.rs [0]", "x/y.rs: live new from foo.rs moved [0]"}},
		{"rename of an executable", drafts{rename("run.sh", "go.sh", "#!\n")},
			[]string{"go.sh: live new from run.sh moved exec=true [0]", "run.sh: gone to go.sh [0]"}},
		{"rename and mode", drafts{mode(rename("run.sh", "go.sh", "#!\n"), editplan.ModePlain)},
			[]string{"go.sh: live new from run.sh [0]", "run.sh: gone [0]"}},
		{"chain", drafts{rename("a", "t", "A"), rename("t", "u", "A"), rename("u", "v", "A")},
			[]string{"a: gone to v [0]", "v: live new from a moved [2]"}},
		{"there and back", drafts{rename("a", "t", "A"), rename("t", "a", "A")}, nil},
		{"swap", drafts{rename("a", "t", "A"), rename("b", "a", "B"), rename("t", "b", "A")},
			[]string{"a: live from b [0 1]", "b: live from a [1 2]"}},
		{"rename over a deleted file", drafts{remove("b", "B"), rename("a", "b", "A")},
			[]string{"a: gone [1]", "b: live from a [0 1]"}},
		{"delete and create", drafts{remove("a", "A"), create("a", "new")}, []string{`a: blob "new" [0 1]`}},
		{"delete and create the same", drafts{remove("a", "A"), create("a", "A")}, nil},
		{"delete and create is not executable", drafts{remove("run.sh", "#!\n"), create("run.sh", "new")}, []string{`run.sh: blob "new" exec=false [0 1]`}},
		{"create and delete", drafts{create("n/m", "new"), remove("n/m", "new")}, nil},
		{"create, delete, create a file where a directory was meant", drafts{create("n/m", "1"), remove("n/m", "1"), create("n", "2")},
			[]string{`n: blob "2" new [2]`}},
		{"create and edit", drafts{create("n", "one\n"), edit("n", "one\n", ed(0, 0, 0, 3, "two"))}, []string{`n: edits "two\n" new [0 1]`}},
		{"edit twice", drafts{edit("a", "A", ed(0, 0, 0, 1, "x")), edit("a", "x", ed(0, 1, 0, 1, "y"))}, []string{`a: edits "xy" [0 1]`}},
		{"edit and undo", drafts{edit("a", "A", ed(0, 0, 0, 1, "x")), edit("a", "x", ed(0, 0, 0, 1, "A"))}, nil},
		{"edit of nothing", drafts{edit("a", "A", ed(0, 0, 0, 0, ""))}, nil},
		{"whole blob", drafts{modify("a", "A", "\xff")}, []string{`a: blob "\xff" [0]`}},
		{"whole blob of the same bytes", drafts{modify("a", "A", "A")}, nil},
		{"mode only", drafts{mode(editplan.Draft{Kind: editplan.Modify, Path: "a", Expected: digest("A")}, editplan.ModeExec)}, []string{"a: same exec=true [0]"}},
		{"mode that it has", drafts{mode(editplan.Draft{Kind: editplan.Modify, Path: "run.sh", Expected: digest("#!\n")}, editplan.ModeExec)}, nil},
		{"mode and content", drafts{mode(modify("a", "A", "x"), editplan.ModeExec)}, []string{`a: blob "x" exec=true [0]`}},
		{"create executable", drafts{mode(create("n.sh", "#!\n"), editplan.ModeExec)}, []string{`n.sh: blob "#!\n" new exec=true [0]`}},
		{"copy of moved bytes", drafts{rename("a", "c", "A"), create("a", "A")}, []string{"c: live new from a [0]"}},
		{"file deleted and another moved in and edited", drafts{remove("b", "B"), rename("a", "b", "A"), edit("b", "A", ed(0, 0, 0, 1, "z"))},
			[]string{"a: gone [1]", `b: edits "z" from a [0 1 2]`}},
		{"a file comes and goes where a directory was", drafts{remove("dir/x", "x\n"), create("dir", "d"), remove("dir", "d")}, []string{"dir/x: gone [0]"}},
		{"new directory beside an empty one", drafts{create("empty/n", "1")}, []string{`empty/n: blob "1" new [0]`}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := compile(t, c.ops...)
			nets, refused, err := editplan.Resolve(p, d)
			if err != nil || len(refused) > 0 {
				t.Fatalf("refused %v, %v", refused, err)
			}
			if got := show(nets, d, p); !slices.Equal(got, c.want) {
				t.Errorf("got\n %s\nwant\n %s", strings.Join(got, "\n "), strings.Join(c.want, "\n "))
			}
		})
	}
}

// TestResolveRefuses holds PV-01, PV-03 and PV-04: every failing operation, by
// its own cause.
func TestResolveRefuses(t *testing.T) {
	d := disk{"foo.rs": "mod a;\n", "p": "plain\n", "dir/x": "x\n", ".env": "K=1\n", "t.txt": "t", "d/x": "x", "keep.txt": "precious\n", "a.txt": "1\n", "link": "->p", "ld": "->dir", "two/a": "A", "two/b": "B", "e/f": "F", "e/sub/": "", "bad": "\xff"}
	for _, c := range []struct {
		name string
		ops  drafts
		want []string // "op code path: part of the detail"
	}{
		{"PV-01", drafts{create(".env", "x"), create("t.txt", "x"), create("d", "x"), create("t.txt2", "x"), create("p/x", "x")},
			[]string{"0 exists .env: a file", "1 exists t.txt: a file", "2 exists d: a directory", "4 path-invalid p/x: no directory"}},
		{"PV-03.3", drafts{rename("foo.rs", "foo2.rs", "mod a;\n"), edit("foo.rs", "mod a;\n", ed(0, 0, 0, 0, "x"))},
			[]string{"1 missing foo.rs: after operation 0"}},
		{"PV-03.5", drafts{create("p/c.txt", "c"), remove("p", "plain\n")}, []string{"0 path-invalid p/c.txt: no directory"}},
		{"PV-03.6", drafts{rename("dir", "dir2", "x\n")}, []string{"0 not-regular dir: directory"}},
		{"PV-04 missing", drafts{remove("keep.txt", "precious\n"), modify("a.txt", "1\n", "2\n"), modify("gone.txt", "?", "!")},
			[]string{"2 missing gone.txt: nothing is there"}},
		{"PV-04 stale", drafts{remove("keep.txt", "precious\n"), modify("a.txt", "1\n", "2\n"), modify("t.txt", "old", "!")},
			[]string{"2 stale-basis t.txt: expected " + digest("old").Blob() + ", found " + digest("t").Blob()}},
		{"every one", drafts{modify("t.txt", "old", "!"), remove("gone", "x"), create("p", "x"), edit("a.txt", "1\n", ed(0, 5, 0, 5, "")), edit("bad", "\xff", ed(0, 0, 0, 0, ""))},
			[]string{"0 stale-basis t.txt", "1 missing gone", "2 exists p", "3 bad-range a.txt: edit 0: position [0,5]", "4 not-text bad"}},
		{"what follows a failure says so", drafts{rename("t.txt", "u.txt", "old"), edit("u.txt", "t", ed(0, 0, 0, 0, "")), create("t.txt/x", ""), remove("a.txt", "1\n")},
			[]string{"0 stale-basis t.txt", "1 stale-basis u.txt: follows operation 0", "2 stale-basis t.txt/x: follows operation 0"}},
		{"a directory that a failed delete should have emptied", drafts{remove("d/x", "old"), create("d", "f")},
			[]string{"0 stale-basis d/x", "1 stale-basis d: follows operation 0"}},
		{"both ends of a rename", drafts{rename("gone", "p", "x")}, []string{"0 missing gone", "0 exists p"}},
		{"doubled destination", drafts{create("n", "1"), create("n", "1"), rename("t.txt", "n", "t")},
			[]string{"1 exists n: after operation 0", "2 exists n: follows operation 1"}},
		{"not empty", drafts{remove("two/a", "A"), create("two", "f")}, []string{`1 not-empty two: "two/b"`}},
		{"not empty by an empty directory", drafts{remove("e/f", "F"), create("e", "f")}, []string{`1 not-empty e: "e/sub"`}},
		{"not empty by our own file", drafts{remove("d/x", "x"), create("d/y", "y"), create("d", "f")}, []string{"2 exists d: a directory"}},
		{"link", drafts{modify("link", "plain\n", "x"), remove("link", "plain\n"), create("link", "")}, []string{"0 not-regular link: symbolic link", "1 not-regular link: follows", "2 not-regular link: follows"}},
		{"create over a link", drafts{create("link", "")}, []string{"0 exists link: a symbolic link"}},
		{"through a link", drafts{modify("ld/x", "x\n", "y"), create("ld/new", "")}, []string{`0 path-escape ld/x: "ld" is a symbolic link`, "1 path-escape ld/new"}},
		{"below a file", drafts{modify("p/q", "x", "y"), remove("p/q/r", "x")}, []string{"0 missing p/q", "1 missing p/q/r"}},
		{"edit on the wrong intermediate state", drafts{edit("a.txt", "1\n", ed(0, 0, 0, 1, "2")), edit("a.txt", "1\n", ed(0, 0, 0, 1, "3"))},
			[]string{"1 stale-basis a.txt: after operation 0"}},
		{"deleted twice", drafts{remove("a.txt", "1\n"), remove("a.txt", "1\n")}, []string{"1 missing a.txt: after operation 0"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := compile(t, c.ops...)
			nets, refused, err := editplan.Resolve(p, d)
			if err != nil || nets != nil {
				t.Fatalf("nets %v, %v", nets, err)
			}
			if len(refused) != len(c.want) {
				t.Fatalf("got %q, want %q", refused, c.want)
			}
			for i, r := range refused {
				head, detail, _ := strings.Cut(c.want[i], ": ")
				if got := fmt.Sprintf("%d %s %s", r.Op, r.Code, r.Path); got != head || !strings.Contains(r.Detail, detail) {
					t.Errorf("got %s: %s\nwant %s", got, r.Detail, c.want[i])
				}
			}
		})
	}
}

// strict fails on any look at content.
type strict struct{ disk }

func (s strict) Bytes(p snapshot.Path) ([]byte, error) { return nil, errDisk }
func (s strict) Names(p snapshot.Path) ([]string, *refusal.Item, error) {
	return nil, nil, errDisk
}

// TestResolveIsLazy holds that whole-blob operations neither load old content
// nor list directories.
func TestResolveIsLazy(t *testing.T) {
	d := strict{disk{"a": "A", "d/x": "x", "d/y": "y"}}
	p := compile(t, modify("a", "A", "B"), remove("d/x", "x"), create("d/z", ""), rename("d/y", "d/w", "y"))
	if _, refused, err := editplan.Resolve(p, d); err != nil || len(refused) > 0 {
		t.Errorf("%v %v", refused, err)
	}
	p = compile(t, edit("a", "A", ed(0, 0, 0, 0, "x")))
	if _, _, err := editplan.Resolve(p, d); !errors.Is(err, errDisk) {
		t.Errorf("an error of the reader became %v", err)
	}
}

// vast calls every file too large for text.
type vast struct{ strict }

func (v vast) State(p snapshot.Path) (editplan.State, error) {
	s, err := v.strict.State(p)
	s.Size = editplan.MaxTextFile + 1
	return s, err
}

func TestResolveLargeFiles(t *testing.T) {
	d := vast{strict{disk{"a": "A"}}}
	_, refused, err := editplan.Resolve(compile(t, edit("a", "A", ed(0, 0, 0, 0, "x"))), d)
	if err != nil || len(refused) != 1 || refused[0].Code != refusal.UnsupportedOperation {
		t.Errorf("text edit: %v %v", refused, err)
	}
	if _, refused, err = editplan.Resolve(compile(t, modify("a", "A", "x")), d); err != nil || len(refused) > 0 {
		t.Errorf("whole blob: %v %v", refused, err)
	}
}

// racing gives other bytes than it described.
type racing struct{ disk }

func (r racing) Bytes(p snapshot.Path) ([]byte, error) { return []byte("other"), nil }

func TestResolveNoticesChangingContent(t *testing.T) {
	p := compile(t, edit("a", "A", ed(0, 0, 0, 0, "x")))
	_, refused, err := editplan.Resolve(p, racing{disk{"a": "A"}})
	if err != nil || len(refused) != 1 || refused[0].Code != refusal.ChangedUnderneath {
		t.Errorf("%v %v", refused, err)
	}
}
