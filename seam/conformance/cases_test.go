package conformance

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/aspengine/asp/internal/canon"
	"github.com/aspengine/asp/seam/wire"
)

// These are faults that people met, by their ids, as plans of a provider that
// reach the workspace through host/requestEditPlan and host/applyProposal.

// editsOf is a modify by text edits.
func editsOf(path, old string, edits ...canon.Value) canon.Value {
	for i := range edits {
		edits[i] = edits[i].With("rangeBasis", canon.StringOf(blobID(old)))
	}
	return object(member("path", path), member("kind", "modify"), member("precondition", expected(blobID(old))), member("edits", edits))
}

// edit replaces [line,char]-[line,char].
func edit(l1, c1, l2, c2 int, text string) canon.Value {
	pos := func(l, c int) canon.Value { return object(member("line", l), member("char", c)) }
	return object(member("range", object(member("start", pos(l1, c1)), member("end", pos(l2, c2)))), member("coordinateSystem", "utf16"), member("newText", text))
}

func creation(path, content string) canon.Value {
	return object(member("path", path), member("kind", "create"), member("precondition", absent()), member("after", blobID(content)))
}

func replacement(path, old, content string) canon.Value {
	return object(member("path", path), member("kind", "modify"), member("precondition", expected(blobID(old))), member("after", blobID(content)))
}

func deletion(path, old string) canon.Value {
	return object(member("path", path), member("kind", "delete"), member("precondition", expected(blobID(old))))
}

func renaming(from, to, old string) canon.Value {
	return object(member("path", from), member("kind", "rename"), member("to", to), member("precondition", expected(blobID(old))))
}

// caseOf is one plan on one state, and what has to come of it.
type caseOf struct {
	name    string
	files   map[string]string
	changes []canon.Value
	uploads []string
	want    map[string]string // content afterwards; "-" for a file that is gone; nil: refused
	codes   []string          // of the refusal, where it comes from the apply
}

// run has one provider make the plans of all cases in turn, each in a
// repository of its own.
func runCases(t *testing.T, cases []caseOf) {
	t.Helper()
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			ctx := t.Context()
			tr := newTrial(t, "case")
			ed := editor("ed")
			s, err := tr.open(ctx, setup{providers: []enrolled{ed}, files: c.files, policy: &policy{needs: []demand{tr.editNeed("edits", tr.pinOf(ed))}}})
			ok(t, err)
			_, err = s.baseline(ctx)
			ok(t, err)
			before, err := s.w.mark()
			ok(t, err)
			params := s.planParams("case", "changes", "", "").Without("scope")
			params = put(put(params, c.changes, "args", "changes"), c.uploads, "args", "uploads")
			refused, said := tr.proposeAndApply(t, s, params)
			if c.want == nil {
				if !refused {
					t.Fatalf("applied")
				}
				if code, _, _ := strings.Cut(said, ":"); said != "" && len(c.codes) > 0 && !slices.Contains(c.codes, code) {
					t.Errorf("refused with %q, want one of %q", said, c.codes)
				}
				tr.untouched(s.w, before, "after a refusal")
				return
			}
			if refused {
				t.Fatalf("refused: %s", said)
			}
			for name, content := range c.want {
				if content == "-" {
					if _, err := os.Lstat(s.w.path(name)); !os.IsNotExist(err) {
						t.Errorf("%s is still there", name)
					}
				} else if got := s.w.read(name); got != content {
					t.Errorf("%s: %q, want %q", name, got, content)
				}
			}
		})
	}
}

// proposeAndApply asks for the plan and applies it. It tells whether it was
// refused on the way, and what the refusal of the apply says.
func (tr *trial) proposeAndApply(t *testing.T, s *session, params canon.Value) (refused bool, said string) {
	t.Helper()
	ctx := t.Context()
	a, err := s.do(ctx, "host/requestEditPlan", params)
	ok(t, err)
	if a.err != nil {
		tr.show("ask for a plan", request(a), errorValue(a.err))
		tr.judge(failClass(a.err) == wire.FailContract, "failClass %q of a plan that is none", failClass(a.err))
		return true, ""
	}
	r, err := s.apply(ctx, wire.Interactive, text(params, "proposalId"))
	ok(t, err)
	if r.Applied {
		return false, ""
	}
	return true, r.Refusal.Detail
}

func TestTE01(t *testing.T) {
	files := map[string]string{"s.md": "🟢🔺 é ⏫ ALPHA omega\n"}
	runCases(t, []caseOf{
		{name: "units", files: files, changes: []canon.Value{editsOf("s.md", files["s.md"], edit(0, 9, 0, 14, "BETA"))}, want: map[string]string{"s.md": "🟢🔺 é ⏫ BETA omega\n"}},
		{name: "code points are not corrected", files: files, changes: []canon.Value{editsOf("s.md", files["s.md"], edit(0, 7, 0, 12, "BETA"))}, want: map[string]string{"s.md": "🟢🔺 é BETAHA omega\n"}},
	})
}

func TestTE03(t *testing.T) {
	a, b := "alpha beta gamma\n", "abcdef\n"
	files := map[string]string{"a.txt": a, "b.txt": b}
	var cases []caseOf
	for i, order := range [][]int{{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}} {
		es := []canon.Value{edit(0, 11, 0, 16, "G"), edit(0, 0, 0, 5, "longer-alpha"), edit(0, 6, 0, 10, "")}
		cases = append(cases, caseOf{name: fmt.Sprintf("order %d", i), files: files, want: map[string]string{"a.txt": "longer-alpha  G\n"},
			changes: []canon.Value{editsOf("a.txt", a, es[order[0]], es[order[1]], es[order[2]])}})
	}
	cases = append(cases,
		caseOf{name: "inserts before a replacement", files: files, want: map[string]string{"b.txt": "abc<2><1>Yf\n"},
			changes: []canon.Value{editsOf("b.txt", b, edit(0, 3, 0, 3, "<2>"), edit(0, 3, 0, 3, "<1>"), edit(0, 3, 0, 5, "Y"))}},
		caseOf{name: "an insert after the replacement that starts there", files: files,
			changes: []canon.Value{editsOf("b.txt", b, edit(0, 3, 0, 5, "Y"), edit(0, 3, 0, 3, "<1>"))}, codes: []string{"overlap"}})
	runCases(t, cases)
}

func TestTE04(t *testing.T) {
	d := "0123456789\n"
	files := map[string]string{"d.txt": d, "e.txt": "keep\n"}
	innocent := func() canon.Value { return editsOf("e.txt", "keep\n", edit(0, 0, 0, 4, "KEEP")) }
	var cases []caseOf
	for _, c := range []struct {
		name  string
		edits []canon.Value
		want  string
		code  string
	}{
		{"overlap", []canon.Value{edit(0, 0, 0, 6, "A"), edit(0, 5, 0, 8, "B")}, "", "overlap"},
		{"doubled", []canon.Value{edit(0, 0, 0, 6, "A"), edit(0, 0, 0, 6, "A")}, "", "overlap"},
		{"insert inside", []canon.Value{edit(0, 2, 0, 6, "Z"), edit(0, 4, 0, 4, "x")}, "", "overlap"},
		{"reversed", []canon.Value{edit(0, 6, 0, 2, "Z")}, "", "bad-range"},
		{"past the line", []canon.Value{edit(0, 0, 0, 99, "Z")}, "", "bad-range"},
		{"past the file", []canon.Value{edit(9, 0, 9, 1, "Z")}, "", "bad-range"},
		{"touching", []canon.Value{edit(0, 0, 0, 5, "A"), edit(0, 5, 0, 8, "B")}, "AB89\n", ""},
		{"insert at the end", []canon.Value{edit(0, 2, 0, 6, "Z"), edit(0, 6, 0, 6, "in")}, "01Zin6789\n", ""},
	} {
		k := caseOf{name: c.name, files: files, changes: []canon.Value{innocent(), editsOf("d.txt", d, c.edits...)}, codes: []string{c.code}}
		if c.want != "" {
			k.want = map[string]string{"d.txt": c.want, "e.txt": "KEEP\n"}
		}
		cases = append(cases, k)
	}
	runCases(t, cases)
}

func TestTE05(t *testing.T) {
	m := "\xEF\xBB\xBFone\r\ntwo\r\nthree\nfour\r\n"
	files := map[string]string{"m.txt": m}
	runCases(t, []caseOf{
		{name: "new text is literal", files: files, changes: []canon.Value{editsOf("m.txt", m, edit(1, 0, 1, 3, "TWO\nplus"))}, want: map[string]string{"m.txt": "\xEF\xBB\xBFone\r\nTWO\nplus\r\nthree\nfour\r\n"}},
		{name: "line ends stay", files: files, changes: []canon.Value{editsOf("m.txt", m, edit(3, 4, 3, 4, "!"))}, want: map[string]string{"m.txt": "\xEF\xBB\xBFone\r\ntwo\r\nthree\nfour!\r\n"}},
		{name: "whole content", files: files, uploads: []string{"one\n"}, changes: []canon.Value{replacement("m.txt", m, "one\n")}, want: map[string]string{"m.txt": "one\n"}},
	})
}

func TestTE08(t *testing.T) {
	l := "const x = 1;\n// caf\xE9 note\n"
	runCases(t, []caseOf{{name: "positions are not defined", files: map[string]string{"l1.js": l},
		changes: []canon.Value{editsOf("l1.js", l, edit(0, 10, 0, 11, "2"))}, codes: []string{"not-text"}}})
}

func TestPA01(t *testing.T) {
	var cases []caseOf
	for _, p := range []string{"../repo-private/secret.txt", "a/../../repo-private/secret.txt", "/repo-private/secret.txt", "", ".", "..", "a\x00b"} {
		cases = append(cases,
			caseOf{name: fmt.Sprintf("create %q", p), uploads: []string{"x\n"}, changes: []canon.Value{creation(p, "x\n")}, codes: []string{"path-invalid"}},
			caseOf{name: fmt.Sprintf("rename to %q", p), changes: []canon.Value{renaming("src/a.txt", p, baseFiles["src/a.txt"])}, codes: []string{"path-invalid"}})
	}
	runCases(t, cases)
}

func TestPA04(t *testing.T) {
	var cases []caseOf
	for _, p := range []string{".git/hooks/post-commit", ".GIT/config", ".Git", "sub/.git/config", ".git /config", ".git./config", "git~1/config", "GIT~1/x",
		".git::$INDEX_ALLOCATION/config", ".g\u200Cit/config", ".gi\uFEFFt/x"} {
		cases = append(cases, caseOf{name: fmt.Sprintf("%+q", p), uploads: []string{"x\n"}, changes: []canon.Value{creation(p, "x\n")}, codes: []string{"path-protected", "path-invalid"}})
	}
	control := caseOf{name: "controls", uploads: []string{"x\n"}, want: map[string]string{}}
	for _, p := range []string{".gitignore", ".github/w.yml", "docs/.gitkeep", "git/x", "a.git/x"} {
		control.changes = append(control.changes, creation(p, "x\n"))
		control.want[p] = "x\n"
	}
	runCases(t, append(cases, control))
}

func TestPV01(t *testing.T) {
	files := map[string]string{".gitignore": ".env\n", ".env": "K=1\n", "t.txt": "t\n", "d/x": "x\n"}
	var cases []caseOf
	for _, p := range []string{".env", "t.txt", "d", "t.txt/x"} {
		cases = append(cases, caseOf{name: strings.ReplaceAll(p, "/", " "), files: files, uploads: []string{"new\n"}, changes: []canon.Value{creation(p, "new\n")},
			codes: []string{"exists", "path-invalid", "not-regular"}})
	}
	runCases(t, cases)
}

func TestPV03(t *testing.T) {
	files := map[string]string{"foo.rs": "mod a;\n", "p": "plain\n", "dir/x": "x\n"}
	change := func(path string) canon.Value { return editsOf(path, "mod a;\n", edit(0, 4, 0, 5, "b")) }
	runCases(t, []caseOf{
		{name: "edit, then rename", files: files, changes: []canon.Value{change("foo.rs"), renaming("foo.rs", "foo2.rs", "mod b;\n")}, want: map[string]string{"foo.rs": "-", "foo2.rs": "mod b;\n"}},
		{name: "rename, then edit", files: files, changes: []canon.Value{renaming("foo.rs", "foo2.rs", "mod a;\n"), change("foo2.rs")}, want: map[string]string{"foo.rs": "-", "foo2.rs": "mod b;\n"}},
		{name: "rename, then edit of the old name", files: files, changes: []canon.Value{renaming("foo.rs", "foo2.rs", "mod a;\n"), change("foo.rs")}, codes: []string{"missing"}},
		{name: "a file becomes a directory", files: files, uploads: []string{"c\n"}, changes: []canon.Value{deletion("p", "plain\n"), creation("p/c.txt", "c\n")}, want: map[string]string{"p/c.txt": "c\n"}},
		{name: "too early", files: files, uploads: []string{"c\n"}, changes: []canon.Value{creation("p/c.txt", "c\n"), deletion("p", "plain\n")}},
	})
}

func TestPV04(t *testing.T) {
	files := map[string]string{"a.txt": "a\n", "b.txt": "b\n", "c.txt": "c\n"}
	runCases(t, []caseOf{
		{name: "the last cannot be done", files: files, uploads: []string{"A\n"}, codes: []string{"stale-basis", "exists", "missing"},
			changes: []canon.Value{replacement("a.txt", "a\n", "A\n"), creation("new/x.txt", "A\n"), deletion("c.txt", "not c\n")}},
		{name: "the last is not there", files: files, uploads: []string{"A\n"}, codes: []string{"missing"},
			changes: []canon.Value{replacement("a.txt", "a\n", "A\n"), deletion("none.txt", "c\n")}},
	})
}

// TestRP01 has a provider break the stream in every way, with a plan in hand.
func TestRP01(t *testing.T) {
	ctx := t.Context()
	tr := newTrial(t, "RP-01")
	ed := editor("ed")
	s, err := tr.open(ctx, setup{providers: []enrolled{ed}, policy: &policy{needs: []demand{tr.editNeed("edits", tr.pinOf(ed))}}})
	ok(t, err)
	before, err := s.w.mark()
	ok(t, err)
	for i, how := range []string{"noise", "half-and-exit", "no-newline", "exit-at-once", "null-line", "array-line", "object-line", "unknown-id", "length-framed"} {
		if i%2 == 0 {
			_, err := s.plan(ctx, "good-"+how, "insert", "", "")
			ok(t, err)
		}
		e, err := s.fails(ctx, how, "host/requestEditPlan", s.planParams("bad-"+how, how, "", ""), wire.FailContract, wire.FailHealth)
		ok(t, err)
		if e == nil {
			t.Errorf("%s: a plan was taken", how)
			continue
		}
		if said := e.Message + text(errorValue(e), "error", "data", "detail"); len(said) > 8<<10 {
			t.Errorf("%s: the excerpt is not bounded: %d bytes", how, len(said))
		}
		if how == "half-and-exit" && !strings.Contains(e.Message+text(errorValue(e), "error", "data", "detail"), "3") {
			t.Errorf("%s: the exit status is not named: %s", how, e.Message)
		}
	}
	_, err = s.plan(ctx, "between", "insert", "", "")
	ok(t, err)
	// Two answers to one question: the first holds, or neither.
	a, err := s.do(ctx, "host/requestEditPlan", s.planParams("two", "twice", "", ""))
	ok(t, err)
	if a.err == nil && text(a.result, "proposal", "proposalId") != "two" {
		t.Errorf("the second answer replaced the first: %s", clip(string(a.result.Bytes()), 300))
	}
	tr.untouched(s.w, before, "after broken streams")
}

// TestRP02 has plans of all sizes around what readers of lines trip over, and
// messages over the limit.
func TestRP02(t *testing.T) {
	ctx := t.Context()
	tr := newTrial(t, "RP-02")
	ed := editor("ed")
	s, err := tr.open(ctx, setup{providers: []enrolled{ed}, policy: &policy{needs: []demand{tr.editNeed("edits", tr.pinOf(ed))}}})
	ok(t, err)
	for _, n := range []int{65535, 65536, 65537, 1 << 20, 8 << 20} {
		_, err := s.baseline(ctx)
		ok(t, err)
		id, path := fmt.Sprintf("size-%d", n), fmt.Sprintf("size/%d.txt", n)
		a, err := s.do(ctx, "host/requestEditPlan", put(s.planParams(id, "create", path, ""), n, "args", "size"))
		ok(t, err)
		if a.err != nil {
			t.Fatalf("%d bytes: %v", n, a.err)
		}
		r, err := s.apply(ctx, wire.Interactive, id)
		ok(t, err)
		if got := s.w.read(path); !r.Applied || len(got) != n || !strings.HasPrefix(got, "é\né\n") {
			t.Errorf("%d bytes: applied %v, and %d bytes are there", n, r.Applied, len(got))
		}
	}
	before, err := s.w.mark()
	ok(t, err)
	for _, how := range []string{"over-limit", "endless"} {
		_, err := s.baseline(ctx)
		ok(t, err)
		e, err := s.fails(ctx, how, "host/requestEditPlan", s.planParams(how, how, "", ""), wire.FailContract)
		ok(t, err)
		if e != nil {
			said := string(errorValue(e).Bytes())
			if !strings.Contains(said, "16777216") && !strings.Contains(said, "16 MiB") {
				t.Errorf("%s: the limit is not named: %s", how, said)
			}
		}
		_, err = s.plan(ctx, "good-"+how, "insert", "", "")
		ok(t, err)
	}
	if hwm := memory(t, s.cmd.Process.Pid); hwm > 200<<10 {
		t.Errorf("the host took %d MiB, want at most 200", hwm>>10)
	}
	tr.untouched(s.w, before, "after messages over the limit")
}

// TestSB04 has a provider look for the secrets of its host.
func TestSB04(t *testing.T) {
	ctx := t.Context()
	tr := newTrial(t, "SB-04")
	s, err := tr.open(ctx, tr.oneCheck(checker("one")))
	ok(t, err)
	// A descriptor that the host inherits without having asked for it is tried in
	// the tests of the sandbox; here the host's own ones are looked for.
	e, err := s.evaluate(ctx, wire.Gate, "one=leaks")
	ok(t, err)
	if len(e.Findings) != 1 {
		t.Fatalf("no report: %s", causes(e.Verdict))
	}
	m := e.Findings[0].Diagnostic.Message
	if strings.Contains(m, "environment") || strings.Contains(m, "descriptor") {
		t.Errorf("a provider sees of its host: %s", m)
	}
	// Another user's environment is the kernel's to keep; the same user's is the
	// sandbox's, where there is one.
	if e.Assurance.Mode == wire.Isolated && strings.Contains(m, "/proc") {
		t.Errorf("claims isolated, and: %s", m)
	}
	ok(t, filepath.WalkDir(s.w.state, func(path string, d os.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		b, err := os.ReadFile(path)
		if strings.Contains(string(b), canary) {
			t.Errorf("%s holds the secret", path)
		}
		return err
	}))
}
