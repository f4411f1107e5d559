package replace_test

import (
	"bytes"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"unicode/utf16"

	"github.com/aspengine/asp/internal/canon"
	"github.com/aspengine/asp/provider/bundled/replace"
	"github.com/aspengine/asp/provider/providertest"
	"github.com/aspengine/asp/seam/wire"
	"pgregory.net/rapid"
)

// after carries a plan out over the baseline, by a second reading of what
// positions mean: lines are split by hand and units are UTF-16 arrays.
func after(t testing.TB, h *providertest.Host, p wire.EditPlan) map[string]string {
	t.Helper()
	out := map[string]string{}
	for k, v := range h.Files {
		out[k] = v
	}
	if p.WorkspaceEdit == nil {
		return out
	}
	for _, c := range p.WorkspaceEdit.DocumentChanges {
		switch {
		case c.Kind == wire.KindMove:
			out[c.To] = out[c.Path]
			delete(out, c.Path)
		case c.After != "":
			out[c.Path] = string(h.Put[c.After])
		default:
			out[c.Path] = edited(t, out[c.Path], c.Edits)
		}
	}
	return out
}

func edited(t testing.TB, content string, edits []wire.TextEdit) string {
	t.Helper()
	lines := regexp.MustCompile(`\r\n|\r|\n`).FindAllStringIndex(content, -1)
	offset := func(p wire.Position) int {
		start := 0
		if p.Line > 0 {
			start = lines[p.Line-1][1]
		}
		end := len(content)
		if p.Line < len(lines) {
			end = lines[p.Line][0]
		}
		units := utf16.Encode([]rune(content[start:end]))
		if p.Char > len(units) {
			t.Fatalf("position %v is past its line", p)
		}
		return start + len(string(utf16.Decode(units[:p.Char])))
	}
	var out strings.Builder
	at := 0
	for _, e := range edits {
		s, x := offset(e.Range.Start), offset(e.Range.End)
		if s < at || x < s {
			t.Fatalf("edits out of order: %v", edits)
		}
		out.WriteString(content[at:s] + e.NewText)
		at = x
	}
	return out.String() + content[at:]
}

func TestOperations(t *testing.T) {
	files := map[string]string{
		"src/a.ts": "let foo = 1; // 😀 foo\r\nfoo()\r", "src/b.ts": "food\n", "src/[id].ts": "foo\n", "lib/c.ts": "foo", "lib/raw": "foo\xff",
	}
	h := providertest.Open(t, replace.New("1"), files)
	for _, c := range []struct {
		name, operation string
		scope           []string
		args            string
		want            string // paths that change, and how
	}{
		{"literal", "text-edit", []string{"src/a.ts"}, `{"literal":"foo","replacement":"ü😀"}`, `src/a.ts="let ü😀 = 1; // 😀 ü😀\r\nü😀()\r"`},
		{"pattern", "text-edit", []string{"src"}, `{"pattern":"\\bfoo\\b","replacement":"<$0>"}`, `src/[id].ts="<foo>\n" src/a.ts="let <foo> = 1; // 😀 <foo>\r\n<foo>()\r"`},
		{"a name like a glob", "text-edit", []string{"src/[id].ts"}, `{"literal":"foo","replacement":""}`, `src/[id].ts="\n"`},
		{"glob", "text-edit", []string{"**/*.ts"}, `{"literal":"foo","replacement":"x","include":["lib/**"]}`, `lib/c.ts="x"`},
		{"no UTF-8", "text-edit", []string{"lib"}, `{"literal":"foo","replacement":"bar","exclude":["**/*.ts"]}`, `lib/raw="bar\xff"`},
		{"several rules", "multi-edit", []string{"src/a.ts"}, `{"rules":[{"literal":"let","replacement":"const"},{"pattern":"(foo)\\(\\)","replacement":"${1}(2)"}]}`, `src/a.ts="const foo = 1; // 😀 foo\r\nfoo(2)\r"`},
		{"whole content", "replace-resource", []string{"src/b.ts"}, `{"literal":"foo","replacement":"bar"}`, `src/b.ts="bard\n"`},
		{"one content", "replace-resource", []string{"src"}, `{"path":"src/b.ts","content":"new"}`, `src/b.ts="new"`},
		{"new file", "replace-resource", []string{"src"}, `{"path":"src/new","content":"AP8=","encoding":"base64"}`, `src/new="\x00\xff"`},
		{"inside CRLF", "text-edit", []string{"src/a.ts"}, `{"literal":"\n","replacement":"\r"}`, `src/a.ts="let foo = 1; // 😀 foo\r\rfoo()\r"`},
		{"move", "move", []string{"."}, `{"pattern":"^src/(.*)\\.ts$","replacement":"app/$1.mts"}`, `app/[id].mts="foo\n" app/a.mts="let foo = 1; // 😀 foo\r\nfoo()\r" app/b.mts="food\n" -src/[id].ts -src/a.ts -src/b.ts`},
		{"expected", "text-edit", []string{"."}, `{"literal":"food","replacement":"meal","expect":1}`, `src/b.ts="meal\n"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := h.Propose(c.operation, c.scope, c.args)
			if p.Status != wire.StatusComplete {
				t.Fatalf("%s %+v %+v", p.Status, p.Incomplete, p.Refusal)
			}
			if got := diff(files, after(t, h, p)); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

func diff(before, after map[string]string) string {
	var out []string
	for p, c := range after {
		if b, ok := before[p]; !ok || b != c {
			out = append(out, fmt.Sprintf("%s=%q", p, c))
		}
	}
	for p := range before {
		if _, ok := after[p]; !ok {
			out = append(out, "-"+p)
		}
	}
	sorted(out)
	return strings.Join(out, " ")
}

func sorted(s []string) {
	for i := range s {
		for j := i; j > 0 && strings.TrimPrefix(s[j], "-") < strings.TrimPrefix(s[j-1], "-"); j-- {
			s[j], s[j-1] = s[j-1], s[j]
		}
	}
}

func TestRefusals(t *testing.T) {
	h := providertest.Open(t, replace.New("1"), map[string]string{"a": "foo foo", "b": "x", "c/d": "y"})
	for _, c := range []struct{ operation, args string }{
		{"text-edit", `{}`}, {"text-edit", `{"literal":"a","pattern":"a"}`}, {"text-edit", `{"pattern":"("}`}, {"text-edit", `{"pattern":"x*"}`},
		{"text-edit", `{"replacement":"x"}`}, {"text-edit", `{"literal":"foo","more":1}`}, {"text-edit", `{"literal":"foo","replacement":"x","expect":3}`},
		{"text-edit", `{"rules":[{"literal":"a","replacement":""},{"literal":"b","replacement":""}]}`},
		{"multi-edit", `{"rules":[{"literal":"foo","replacement":"x"},{"literal":"oo","replacement":"y"}]}`},
		{"replace-resource", `{"path":"../x","content":""}`}, {"replace-resource", `{"path":"a","content":"!","encoding":"base64"}`},
		{"move", `{"pattern":"^a$","replacement":"../a"}`},
		{"text-edit", `{"literal":"foo","script":"rm"}`},
	} {
		_, e := h.Call(wire.MethodPropose, wire.ProposeParams{Operation: c.operation, Baseline: h.Baseline, ProposalID: "proposal:1",
			Scope: wire.EditScope{Paths: []string{"a", "b"}}, Args: value(t, c.args)})
		if e == nil || e.Data.FailClass != wire.FailInput {
			t.Errorf("%s %s: %v", c.operation, c.args, e)
		}
	}
	if p := h.Propose("rename", []string{"a"}, ""); p.Status != wire.StatusUnsupported || p.Unsupported.Operation != "rename" {
		t.Errorf("%+v", p)
	}
	for _, c := range []struct{ operation, args, reason string }{
		{"text-edit", `{"literal":"bar","replacement":"x"}`, "unresolved-reference"},
		{"move", `{"pattern":"^a$","replacement":"b"}`, "ambiguous-target"},
		{"move", `{"pattern":"^[ab]$","replacement":"e"}`, "ambiguous-target"},
	} {
		if p := h.Propose(c.operation, []string{"a", "b", "e"}, c.args); p.Status != wire.StatusIncomplete || p.Incomplete.Reason != c.reason {
			t.Errorf("%s %s: %+v", c.operation, c.args, p.Incomplete)
		}
	}
	h.Intercept = func(method string, _ canon.Value) (canon.Value, *wire.Error, bool) {
		return canon.Value{}, wire.NewError(wire.CodeScopeDenied, wire.FailPolicy, "no", ""), method == wire.MethodListTree
	}
	if p := h.Propose("text-edit", []string{"a"}, `{"literal":"foo","replacement":"x"}`); p.Status != wire.StatusError || p.Refusal.Reason != "scope-denied" {
		t.Errorf("%+v", p)
	}
}

func value(t testing.TB, s string) canon.Value {
	t.Helper()
	v, err := canon.Parse([]byte(s), canon.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// The plan carried out is what replacing the bytes gives.
func TestEditsAreReplacements(t *testing.T) {
	alphabet := []string{"a", "b", "ü", "😀", "\r", "\n", "\r\n", "\u2028", "\ufeff", "\xff"}
	h := providertest.Open(t, replace.New("1"), map[string]string{})
	rapid.Check(t, func(rt *rapid.T) {
		draw := func(name string, lo, hi int) string {
			return strings.Join(rapid.SliceOfN(rapid.SampledFrom(alphabet), lo, hi).Draw(rt, name), "")
		}
		content, literal, with := draw("content", 0, 30), draw("literal", 1, 3), draw("with", 0, 3)
		if strings.Contains(literal+with, "\xff") {
			literal, with = strings.ReplaceAll(literal, "\xff", "a"), strings.ReplaceAll(with, "\xff", "a")
		}
		h.Files = map[string]string{"f": content}
		p := h.Propose("text-edit", []string{"f"}, string(canon.ObjectOf(canon.Member{Key: "literal", Value: canon.StringOf(literal)},
			canon.Member{Key: "replacement", Value: canon.StringOf(with)}).Bytes()))
		want := bytes.ReplaceAll([]byte(content), []byte(literal), []byte(with))
		if got := after(t, h, p)["f"]; got != string(want) {
			rt.Fatalf("got %q, want %q", got, want)
		}
	})
}

func FuzzPropose(f *testing.F) {
	f.Add(`{"literal":"a","replacement":"b"}`, "a\r\nb")
	f.Add(`{"pattern":"(?m)^(.)","replacement":"$1$1"}`, "x\ny")
	f.Add(`{"path":"f","content":"x"}`, "")
	h := providertest.Open(f, replace.New("1"), map[string]string{})
	f.Fuzz(func(t *testing.T, args, content string) {
		h.T = t
		v, err := canon.Parse([]byte(args), canon.Limits{})
		if err != nil || v.Kind() != canon.Object {
			return
		}
		h.Files = map[string]string{"f": content, "g": "a"}
		for _, op := range []string{"text-edit", "multi-edit", "replace-resource", "move"} {
			r, e := h.Call(wire.MethodPropose, wire.ProposeParams{Operation: op, Baseline: h.Baseline, ProposalID: "proposal:1", Scope: wire.EditScope{Paths: []string{"."}}, Args: v})
			if e != nil {
				if e.Data.FailClass != wire.FailInput {
					t.Fatalf("%s: %v", op, e)
				}
				continue
			}
			if p := h.Plan(r); p.Status == wire.StatusComplete {
				after(t, h, p)
			}
		}
	})
}
