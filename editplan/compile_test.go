package editplan_test

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/aspengine/asp/editplan"
	"github.com/aspengine/asp/internal/canon"
	"github.com/aspengine/asp/internal/need"
	"github.com/aspengine/asp/internal/refusal"
	"github.com/aspengine/asp/snapshot"
)

// good is a bundle with one operation of every kind.
func good() string {
	d := func(s string) string { return digest(s).Blob() }
	touched := `{"path":"m","kind":"modify","precondition":{"expectedDigest":"` + d("m") + `"}},` +
		`{"path":"w","kind":"modify","precondition":{"expectedDigest":"` + d("w") + `"}},` +
		`{"path":"c","kind":"create","precondition":{"expectedAbsence":true}},` +
		`{"path":"x","kind":"delete","precondition":{"expectedDigest":"` + d("x") + `"}},` +
		`{"path":"r","kind":"move","to":"s","precondition":{"expectedDigest":"` + d("r") + `"}}`
	changes := `{"path":"m","kind":"modify","precondition":{"expectedDigest":"` + d("m") + `"},"edits":[{"range":{"start":{"line":0,"char":0},"end":{"line":0,"char":1}},"rangeBasis":"` + d("m") + `","coordinateSystem":"utf16","newText":"M"}]},` +
		`{"path":"w","kind":"modify","precondition":{"expectedDigest":"` + d("w") + `"},"after":"` + d("W") + `"},` +
		`{"path":"c","kind":"create","precondition":{"expectedAbsence":true},"after":"` + d("\xff") + `","annotations":[{"message":"mode 100755","data":{"mode":"100755"}}]},` +
		`{"path":"x","kind":"delete","precondition":{"expectedDigest":"` + d("x") + `"}},` +
		`{"path":"r","kind":"move","to":"s","precondition":{"expectedDigest":"` + d("r") + `"}}`
	base := `{"rev":"tree:1","stampedAt":"2026-01-02T03:04:05Z"}`
	return `{"proposal":{"proposalId":"p1","provider":{"id":"me","version":"1","capabilityFamily":"edit","capabilityVersion":"edit/1.0","configDigest":"c"},` +
		`"status":"complete","baseline":` + base + `,"validAsOf":{"baseline":` + base + `,"blobs":["` + d("m") + `"]},"touchedResources":[` + touched + `],` +
		`"workspaceEdit":{"baseline":` + base + `,"documentChanges":[` + changes + `]}},` +
		`"blobs":[{"encoding":"utf-8","bytes":"W"},{"encoding":"base64","bytes":"` + base64.StdEncoding.EncodeToString([]byte("\xff")) + `"}]}`
}

func compileText(t testing.TB, in string, l editplan.Limits, look editplan.Lookup) (*editplan.Plan, refusal.List) {
	t.Helper()
	f, refused := editplan.Decode([]byte(in), l)
	if len(refused) > 0 {
		return nil, refused
	}
	p, refused, err := editplan.Compile(f, l, look)
	if err != nil {
		t.Fatal(err)
	}
	if (p == nil) != (len(refused) > 0) {
		t.Fatalf("plan %v with refusals %v", p, refused)
	}
	return p, refused
}

func TestCompile(t *testing.T) {
	p, refused := compileText(t, good(), editplan.Limits{}, nil)
	if len(refused) > 0 {
		t.Fatal(refused)
	}
	want := []editplan.Op{
		{Index: 0, Kind: editplan.Modify, Path: at("m"), Expected: digest("m"), Edits: edits{ed(0, 0, 0, 1, "M")}},
		{Index: 1, Kind: editplan.Modify, Path: at("w"), Expected: digest("w"), After: digest("W"), HasAfter: true},
		{Index: 2, Kind: editplan.Create, Path: at("c"), After: digest("\xff"), HasAfter: true, Mode: editplan.ModeExec},
		{Index: 3, Kind: editplan.Delete, Path: at("x"), Expected: digest("x")},
		{Index: 4, Kind: editplan.Rename, Path: at("r"), To: at("s"), Expected: digest("r")},
	}
	if diff := cmp.Diff(want, p.Ops, cmp.Comparer(func(a, b snapshot.Path) bool { return a == b })); diff != "" {
		t.Error(diff)
	}
	if p.ID != "p1" || p.Provider != "me" || p.Baseline.Rev != "tree:1" || p.StampedAt != "2026-01-02T03:04:05Z" || len(p.ValidAsOf) != 1 || string(p.Blobs[digest("\xff")]) != "\xff" {
		t.Errorf("plan %+v", p)
	}
	if snapshot.DigestOf(p.Canonical) != p.Digest {
		t.Error("digest is not that of the canonical form")
	}
	// A bare plan, its content looked up.
	f, _ := editplan.Decode([]byte(good()), editplan.Limits{})
	q, refused := compileText(t, string(f.Proposal.Bytes()), editplan.Limits{}, func(d snapshot.Digest) ([]byte, bool, error) {
		for _, b := range f.Blobs {
			if b.Digest == d {
				return b.Bytes, true, nil
			}
		}
		return nil, false, nil
	})
	if len(refused) > 0 || q.Digest != p.Digest {
		t.Errorf("bare plan: %v", refused)
	}
}

// TestCompileRefuses changes one thing at a time in a good bundle.
func TestCompileRefuses(t *testing.T) {
	d := func(s string) string { return digest(s).Blob() }
	for _, c := range []struct{ old, new, want string }{ // "op code path"
		{`"baseline":{"rev":"tree:1"`, `"baseline":{"rev":"tree:2"`, "-1 bad-message |-1 stale-valid-as-of "}, // the plan's own
		{`"validAsOf":{"baseline":{"rev":"tree:1",`, `"validAsOf":{"baseline":{"rev":"tree:1","dirty":"",`, "-1 stale-valid-as-of "},
		{`"validAsOf":{"baseline":{"rev":"tree:1","stampedAt":"2026-01-02T03:04:05Z"}`, `"validAsOf":{"baseline":{"rev":"tree:1"}`, "-1 stale-valid-as-of "},
		{`"workspaceEdit":{"baseline":{"rev":"tree:1"`, `"workspaceEdit":{"baseline":{"rev":"tree:2"`, "-1 bad-message "},
		{`"blobs":["` + d("m") + `"]`, `"blobs":["blob:sha256:aa"]`, "-1 stale-valid-as-of "},
		{`"status":"complete"`, `"status":"incomplete","incomplete":{"reason":"partial-coverage","detail":"x"}`, "-1 unsupported-operation "},
		{`"touchedResources":[{"path":"m"`, `"touchedResources":[{"path":"mm"`, "0 bad-message m|-1 bad-message mm"},
		{`"path":"c","kind":"create","precondition":{"expectedAbsence":true},"after"`, `"path":"cc","kind":"create","precondition":{"expectedAbsence":true},"after"`, "2 bad-message cc|-1 bad-message c"},
		{`"after":"` + d("W") + `"`, `"after":"` + d("V") + `"`, "1 missing-blob w"},
		{`"after":"` + d("W") + `"`, `"after":"blob:sha256:aa"`, "1 missing-blob w"},
		{`"after":"` + d("W") + `"`, `"after":"blob:md5:` + strings.Repeat("a", 32) + `"`, "1 missing-blob w"},
		{`"bytes":"W"`, `"bytes":"w"`, "1 missing-blob w"},
		{`"rangeBasis":"` + d("m"), `"rangeBasis":"` + d("old"), "0 stale-basis m"},
		{`"newText":"M"}`, `"newText":"M"},{"range":{"start":{"line":1,"char":0},"end":{"line":1,"char":0}},"rangeBasis":"` + d("q") + `","coordinateSystem":"utf16","newText":""}`, "0 bad-message m"},
		{`"coordinateSystem":"utf16",`, ``, "0 bad-message m"},
		{`"message":"mode 100755","data":{"mode":"100755"}`, `"message":"mode 120000","data":{"mode":"120000"}`, "2 unsupported-operation c"},
		{`"data":{"mode":"100755"}}`, `"data":{"mode":"100755"}},{"message":"mode 100644","data":{"mode":"100644"}}`, "2 bad-message c"},
		{`"data":{"mode":"100755"}`, `"data":{"x":[{"receipt":{}}],"scripts":1}`, "2 host-field c|2 command-like c"},
		{`"status":"complete",`, `"status":"complete","decision":"allow",`, "-1 host-field "},
		{`"status":"complete",`, `"status":"complete","command":"rm",`, "-1 command-like "},
		{`"status":"complete",`, `"status":"complete","more":1,`, "-1 bad-message "},
		{`"encoding":"base64","bytes":"/w=="`, `"encoding":"base64","bytes":"/w"`, "-1 bad-message "},
		{`"encoding":"base64"`, `"encoding":"hex"`, "-1 bad-message "},
		{`"proposalId":"p1",`, `"proposalId":"p1","ProposalID":"p1",`, "-1 bad-message "},
		{`"bytes":"W"}`, `"bytes":"W","id":"x"}`, "-1 bad-message "},
	} {
		in := good()
		at := strings.Index(in, c.old)
		if at < 0 {
			t.Fatalf("%q is not in the bundle", c.old)
		}
		_, refused := compileText(t, in[:at]+c.new+in[at+len(c.old):], editplan.Limits{}, nil)
		var got []string
		for _, r := range refused {
			got = append(got, fmt.Sprintf("%d %s %s", r.Op, r.Code, r.Path))
		}
		want := strings.Split(c.want, "|")
		if !cmp.Equal(got, want) {
			t.Errorf("with %s\n got %q\nwant %q\n%v", c.new, got, want, refused)
		}
	}
}

// TestCompilePaths holds PA-01 and PA-04 as far as spelling goes, at either end
// of a rename, and that all are named at once.
func TestCompilePaths(t *testing.T) {
	for _, c := range []struct {
		code  refusal.Code
		paths []string
	}{
		{refusal.PathInvalid, []string{"../repo-private/secret.txt", "a/../../repo-private/secret.txt", "/etc/passwd", "", ".", "..", "a\x00b", "a//b", "a/", "./a", "a/./b",
			strings.Repeat("n", 256), strings.Repeat("d/", 2048) + "x"}},
		{refusal.PathProtected, []string{".git/hooks/post-commit", ".GIT/config", ".Git", "sub/.git/config", ".git /config", ".git./config", "git~1/config", "GIT~1/x",
			".git::$INDEX_ALLOCATION/config", ".g\u200Cit/config", ".gi\uFEFFt/x", ".git", "a/.GiT", ".git. . ", ".git:x", `a\.git\config`, `.git\x`, "Git~2", "\u202e.git",
			".asp/tx/journal", ".ASP/TX", ".asp./tx /x", `.asp\tx\j`, ".asp-exchange-1/x", "x/.Asp-TX-9"}},
		{"", []string{".gitignore", ".GITIGNORE", ".github/w.yml", "docs/.gitkeep", "git/x", "a.git/x", ".gitattributes", ".gitmodules", "git~", "git~x", "~git", ".asp/asp.json",
			".asp", ".asp/txt", "sub/.asp/tx", ".asp-x", "é", "a b", "..a", "a..", " .git", ".git2", "-", `a\b`, "CON"}},
	} {
		var ops drafts
		for i, p := range c.paths {
			ops = append(ops, create(p, "x"), remove(p, "x"), rename(fmt.Sprintf("free%d", i), p, "x"), rename(p, fmt.Sprintf("new%d", i), "x"))
		}
		f := build(t, ops...)
		f.Proposal = withEmptyTo(f.Proposal)
		_, refused, err := editplan.Compile(f, editplan.Limits{}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if c.code == "" {
			if len(refused) > 0 {
				t.Errorf("refused: %q", refused)
			}
			continue
		}
		if len(refused) != len(ops) {
			t.Errorf("%d refusals for %d operations", len(refused), len(ops))
		}
		for i, r := range refused {
			if r.Op != i || r.Code != c.code || len(r.String()) > 1000 {
				t.Errorf("operation %d on %q: %d %s", i, c.paths[i/4], r.Op, r)
			}
		}
	}
}

// withEmptyTo gives every rename that has none an empty destination; the
// builder leaves that out.
func withEmptyTo(v canon.Value) canon.Value {
	var members []canon.Member
	kind, _ := v.Get("kind")
	for k, m := range v.Members() {
		members = append(members, canon.Member{Key: k, Value: withEmptyTo(m)})
	}
	if _, ok := v.Get("to"); !ok && kind.Str() == "rename" {
		members = append(members, canon.Member{Key: "to", Value: canon.StringOf("")})
	}
	switch v.Kind() {
	case canon.Object:
		return canon.ObjectOf(members...)
	case canon.Array:
		var items []canon.Value
		for _, e := range v.Elements() {
			items = append(items, withEmptyTo(e))
		}
		return canon.ArrayOf(items...)
	}
	return v
}

// TestModeAnnotation holds that a mode is asked for by message and data
// together, and by nothing that merely speaks of one.
func TestModeAnnotation(t *testing.T) {
	const asked = `{"message":"mode 100755","data":{"mode":"100755"}}`
	for annotation, want := range map[string]editplan.ModeChange{
		asked: editplan.ModeExec,
		`{"message":"mode 100644","data":{"mode":"100644"}}`:                editplan.ModePlain,
		`{"message":"mode 100755"}`:                                         editplan.ModeKeep,
		`{"message":"mode 100644","data":{"mode":"100755"}}`:                editplan.ModeKeep,
		`{"message":"made executable","data":{"mode":"100755"}}`:            editplan.ModeKeep,
		`{"message":"mode 100755","data":{"mode":100755}}`:                  editplan.ModeKeep,
		`{"message":"fast mode","data":{"mode":"fast"}}`:                    editplan.ModeKeep,
		asked + `,` + asked:                                                 editplan.ModeExec,
		`{"message":"x","data":{"mode":"y"}},` + asked + `,{"message":"z"}`: editplan.ModeExec,
	} {
		p, refused := compileText(t, strings.Replace(good(), asked, annotation, 1), editplan.Limits{}, nil)
		if len(refused) > 0 || p.Ops[2].Mode != want {
			t.Errorf("%s: %v, want %v", annotation, refused, want)
		}
	}
	_, refused, err := editplan.Compile(build(t, mode(remove("a", "A"), editplan.ModeExec)), editplan.Limits{}, nil)
	if err != nil || len(refused) != 1 || refused[0].Code != refusal.BadMessage {
		t.Errorf("mode of a deleted file: %v %v", refused, err)
	}
}

func TestProtectedNameListsAllThatHFSIgnores(t *testing.T) {
	ignored := 0
	for r := rune(1); r < 0x10000; r++ {
		if r >= 0xD800 && r < 0xE000 || r == '/' || r == '\\' {
			continue
		}
		if editplan.ProtectedName(".g" + string(r) + "it") {
			ignored++
		}
	}
	if ignored != 16 {
		t.Errorf("%d code points are ignored, want 16", ignored)
	}
}

// TestDiagnose holds that a fault of shape does not hide the faults that only
// the workspace shows, and that refused paths are not looked at.
func TestDiagnose(t *testing.T) {
	d := disk{"a": "A", "b": "B", ".git/config": "c"}
	f := build(t, modify(".git/config", "wrong", "x"), modify("a", "stale", "y"), rename("b", "../b", "B"), remove("b", "B"), create("a", "new"), remove("gone", "x"), edit("b/c", "", ed(0, 0, 0, 0, "")))
	refused, err := editplan.Diagnose(f, editplan.Limits{}, nil, guarded{d})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"0 path-protected .git/config", "1 stale-basis a", "2 path-invalid ../b", "3 path-invalid b", "4 stale-basis a", "5 missing gone", "6 path-invalid b/c"}
	var got []string
	for _, r := range refused {
		got = append(got, fmt.Sprintf("%d %s %s", r.Op, r.Code, r.Path))
	}
	if !cmp.Equal(got, want) {
		t.Errorf("got %q\nwant %q\n%v", got, want, refused)
	}
	if refused, err := editplan.Diagnose(build(t, modify("a", "A", "y")), editplan.Limits{}, nil, d); err != nil || len(refused) > 0 {
		t.Errorf("a good plan: %v %v", refused, err)
	}
}

// guarded fails when a protected path is looked at.
type guarded struct{ disk }

func (g guarded) State(p snapshot.Path) (editplan.State, error) {
	if _, bad := editplan.ProtectedPath(p); bad {
		return editplan.State{}, errDisk
	}
	return g.disk.State(p)
}

func TestCompileRenameOntoItself(t *testing.T) {
	_, refused, err := editplan.Compile(build(t, rename("a", "a", "x"), rename("a", "a/b", "x")), editplan.Limits{}, nil)
	if err != nil || len(refused) != 2 || refused[0].Code != refusal.Exists || refused[1].Code != refusal.PathInvalid {
		t.Errorf("%v %v", refused, err)
	}
}

func TestCompileLimits(t *testing.T) {
	ops := drafts{create("a", "12345"), create("b", "67890"), edit("m", "m", ed(0, 0, 0, 0, "x"), ed(0, 0, 0, 0, "y"))}
	f := build(t, ops...)
	data, err := f.Encode()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		l    editplan.Limits
		want string // part of the detail, which names the limit; "" for acceptance
	}{
		{editplan.Limits{Bytes: len(data), Ops: 3, EditsPerFile: 2, Edits: 2, BlobBytes: 10}, ""},
		{editplan.Limits{Bytes: len(data) - 1}, fmt.Sprint(len(data) - 1)}, {editplan.Limits{Ops: 2}, "limit of 2"},
		{editplan.Limits{EditsPerFile: 1}, "limit of 1"}, {editplan.Limits{Edits: 1}, "limit of 1"}, {editplan.Limits{BlobBytes: 9}, "more than 9 bytes"},
		{editplan.Limits{Depth: 3}, "deeper than 3"}, {editplan.Limits{Values: 20}, "more than 20 values"},
	} {
		_, refused := compileText(t, string(data), c.l, nil)
		if c.want == "" && len(refused) > 0 || c.want != "" && (len(refused) == 0 || refused[0].Code != refusal.BadMessage || !strings.Contains(refused[0].Detail, c.want)) {
			t.Errorf("%+v: %v, want %q", c.l, refused, c.want)
		}
	}
	_, refused, err := editplan.Compile(f, editplan.Limits{BlobBytes: 9}, nil)
	if err != nil || len(refused) != 1 || refused[0].Op != 1 {
		t.Errorf("content limit without a bundle: %v %v", refused, err)
	}
}

func TestLookup(t *testing.T) {
	f := build(t, create("a", "content"))
	f.Blobs = nil
	broken := errors.New("broken")
	if _, _, err := editplan.Compile(f, editplan.Limits{}, func(snapshot.Digest) ([]byte, bool, error) { return nil, false, broken }); !errors.Is(err, broken) {
		t.Errorf("error %v", err)
	}
	_, refused, err := editplan.Compile(f, editplan.Limits{}, func(snapshot.Digest) ([]byte, bool, error) { return []byte("other"), true, nil })
	if err != nil || len(refused) != 1 || refused[0].Code != refusal.MissingBlob {
		t.Errorf("wrong content: %v %v", refused, err)
	}
	// A blob under a name that is not its own counts as missing.
	f.Blobs = []editplan.Blob{{Digest: digest("content"), Bytes: []byte("other")}}
	if _, refused, _ = editplan.Compile(f, editplan.Limits{}, nil); len(refused) != 1 || refused[0].Code != refusal.MissingBlob {
		t.Errorf("misnamed blob: %v", refused)
	}
}

// TestLargeContent is RP-02 at this level: sizes around 64 KiB, 1 MiB and 8 MiB.
func TestLargeContent(t *testing.T) {
	for _, n := range []int{65535, 65536, 65537, 1 << 20, 8 << 20} {
		content := bytes.Repeat([]byte("é\n"), n/3+1)[:n]
		data, err := build(t, create("big", string(content))).Encode()
		if err != nil {
			t.Fatal(err)
		}
		p, refused := compileText(t, string(data), editplan.Limits{}, nil)
		if len(refused) > 0 || !bytes.Equal(p.Blobs[snapshot.DigestOf(content)], content) {
			t.Errorf("%d bytes: %v", n, refused)
		}
	}
}

func TestNewPlanIsDeterministic(t *testing.T) {
	a, b := build(t, create("a", "1"), remove("b", "2")), build(t, create("a", "1"), remove("b", "2"))
	if !canon.Equal(a.Proposal, b.Proposal) {
		t.Error("two plans of the same drafts differ")
	}
	id := func(f editplan.File) string { v, _ := f.Proposal.Get("proposalId"); return v.Str() }
	if c := build(t, create("a", "2"), remove("b", "2")); id(c) == id(a) || !strings.HasPrefix(id(a), "import:") {
		t.Errorf("ids %s and %s", id(a), id(c))
	}
	other, err := editplan.NewPlan(editplan.Source{Baseline: snapshot.Baseline{Rev: "tree:sha256:00", Dirty: "sha256:11"}, Provider: editplan.Provider{ID: "test", Version: "1"}}, drafts{create("a", "1"), remove("b", "2")})
	if err != nil || id(other) == id(a) {
		t.Errorf("another baseline gives the same id (%v)", err)
	}
}

// TestNewPlanStatesFreshnessOfTheWorkspaceOnly holds that digests which only an
// earlier operation makes are not claimed to be current.
func TestNewPlanStatesFreshnessOfTheWorkspaceOnly(t *testing.T) {
	p := compile(t, modify("a", "A", "x"), modify("a", "x", "y"), rename("b", "c", "B"), remove("c", "B"), create("n", "1"), remove("n", "1"), create("n", "1"))
	if want := []snapshot.Digest{digest("A"), digest("B")}; !cmp.Equal(p.ValidAsOf, want) {
		t.Errorf("validAsOf %v, want %v", p.ValidAsOf, want)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(good()))
	f.Add([]byte(`{"proposal":{},"blobs":[]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		need.Bounded(t, len(data), func() {
			file, refused := editplan.Decode(data, editplan.Limits{Bytes: 1 << 20})
			if len(refused) > 0 {
				return
			}
			p, refused, err := editplan.Compile(file, editplan.Limits{}, nil)
			if err != nil || (p == nil) != (len(refused) > 0) {
				t.Fatalf("plan %v refused %v error %v", p, refused, err)
			}
			for _, r := range refused {
				if len(r.Detail) > 2000 {
					t.Fatalf("detail of %d bytes", len(r.Detail))
				}
			}
			if p == nil {
				return
			}
			again, err := canon.Parse(p.Canonical, canon.Limits{})
			if err != nil || !bytes.Equal(again.Bytes(), p.Canonical) {
				t.Fatalf("canonical form is no fixed point: %v", err)
			}
			if _, _, err := editplan.Resolve(p, disk{"m": "m", "w": "w", "x": "x", "r": "r"}); err != nil {
				t.Fatal(err)
			}
		})
	})
}

// FuzzParsePath compares the path parser with the standard library's view, and
// holds that no spelling of .git gets past ProtectedPath.
func FuzzParsePath(f *testing.F) {
	for _, s := range []string{"a/b", "../x", "a/./b", ".git/x", "a\x00", "/", "", ".GIT ./x", "é"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		p, err := snapshot.ParsePath(s)
		if err != nil {
			if len(err.Error()) > 1000 {
				t.Fatalf("error of %d bytes", len(err.Error()))
			}
			return
		}
		if p.String() != s || path.Clean(s) != s || !filepath.IsLocal(s) || s == "." {
			t.Fatalf("%q is accepted", s)
		}
		for c := range strings.SplitSeq(s, "/") {
			if _, bad := editplan.ProtectedPath(p); strings.EqualFold(c, ".git") && !bad {
				t.Fatalf("%q is not protected", s)
			}
		}
	})
}
