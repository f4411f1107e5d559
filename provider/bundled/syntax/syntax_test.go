package syntax_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/aspengine/asp/provider/bundled/syntax"
	"github.com/aspengine/asp/provider/providertest"
	"github.com/aspengine/asp/seam/wire"
)

func TestLanguages(t *testing.T) {
	h := providertest.Open(t, syntax.New("1"), map[string]string{"keep": "x"})
	for _, c := range []struct{ path, content, want string }{
		{"a.go", "package a\n\nfunc f() {}\n", ""},
		{"a.go", "package a\n\nfunc f( {}\n", "syntax/go 2:8"},
		{"a.go", "", "syntax/go 0:0"},
		{"a.json", `{"a":1,"A":2}`, ""},
		{"a.json", "\xef\xbb\xbf{}", ""},
		{"a.json", `{"a":1,}`, "syntax/json 0:7"},
		{"a.json", `{"a":1,"a":2}`, "syntax/json-interop 0:7"},
		{"a.json", `"\ud800"`, "syntax/json-interop 0:1"},
		{"a.json", "// no\n{}", "syntax/json 0:0"},
		{"a.json", "{\"\xff\":1}", "syntax/json 0:2"},
		{"tsconfig.json", "// yes\n{\"a\": [1, /* b */ 2,],}\n", ""},
		{"tsconfig.json", "{\"a\": \"//\", /* open }", "syntax/json 0:12"},
		{".vscode/settings.json", "", ""},
		{"a.yaml", "a: 1\nb:\n  - x\n---\nc: !Ref d\n", ""},
		{"a.yaml", "a: 1\n b: 2\n", "syntax/yaml 1:1"},
		{"a.yml", "a: 1\nb: 2\na: 3\n", "syntax/yaml 2:0"},
		{"a.yml", "a: &x {b: 1}\nc:\n  <<: *x\n  <<: *x\n", ""},
		{"chart/templates/a.yaml", "a: {{ .Values.x }}\n{{- if }}\n", ""},
		{"a.toml", "a = 1\n[b]\nc = \"d\"\n", ""},
		{"a.toml", "a = 1\na = 2\n", "syntax/toml 1:0"},
		{"a.toml", "a = \n", "syntax/toml 0:4"},
		{"a.xml", `<?xml version="1.0"?><!DOCTYPE a [<!ENTITY x "y">]><a b="1">&x;&amp;</a>`, ""},
		{"a.xml", "<a>\n<b></a>\n", "syntax/xml 1:6"},
		{"a.xml", "<a/><b/>", "syntax/xml 0:4"},
		{"a.xml", `<a b="1" b="2"/>`, "syntax/xml 0:0"},
		{"a.svg", "<a>&nope;</a>", "syntax/xml 0:8"},
		{"a.xml", "<?xml version=\"1.0\" encoding=\"ISO-8859-1\"?><a>\xe4</a>", ""},
		{"a.xml", "text", "syntax/xml 0:0"},
		{"a.md", "---\ntitle: x\n---\n# a\n", ""},
		{"a.md", "---\ntitle: [x\n---\n# a\n", "syntax/front-matter"},
		{"a.md", "---\nJust a ruler, [really\n---\n", ""},
		{"a.md", "+++\na = \n+++\n", "syntax/front-matter 1:4"},
		{"a.md", "# a\n\n---\n", ""},
		{"a.txt", "<<<<<<< HEAD\na\n=======\nb\n>>>>>>> topic\n", "syntax/conflict-marker 0:0"},
		{"a.go", "package a\n<<<<<<< HEAD\nvar a\n=======\nvar b\n>>>>>>> topic\n", "syntax/conflict-marker 1:0"},
		{"a.txt", "a\n=======\nheading\n>>>>>>> quoted\n", ""},
		{"a.txt", "<<<<<<< HEAD\na\n=======\n", "syntax/conflict-marker 0:0"},
		{"a.txt", "<<<<<<< HEAD\nno divider\n", ""},
		{"a.rs", "<<<<<<< HEAD\x00\n=======\n>>>>>>> a\n", ""},
		{"a.json", strings.Repeat("[", 900) + strings.Repeat("]", 900), ""},
	} {
		t.Run(fmt.Sprintf("%s %.20q", c.path, c.content), func(t *testing.T) {
			if c.content == "" {
				c.content = " "
				if c.path == "a.go" {
					c.want = "syntax/go"
				}
			}
			a := h.Check(h.Changeset(map[string]string{c.path: c.content}), wire.CompareAll, "changeset", "")
			got := ""
			if len(a.Diagnostics) > 0 {
				d := a.Diagnostics[0]
				got = fmt.Sprintf("%s %d:%d", d.Code, d.Location.Range.Start.Line, d.Location.Range.Start.Char)
			}
			if a.Status != wire.StatusComplete || (c.want == "") != (got == "") || !strings.HasPrefix(got, c.want) {
				t.Errorf("%s got %q, want %q: %+v", a.Status, got, c.want, a.Diagnostics)
			}
		})
	}
}

// What is broken already stays out of the way, wherever it moves.
func TestIntroducedSurvivesMoves(t *testing.T) {
	broken := "package a\n\nfunc f( {\n"
	h := providertest.Open(t, syntax.New("1"), map[string]string{"a.go": broken, "b.yaml": "a: [\n"})
	for name, c := range map[string]struct {
		after map[string]string
		found int
	}{
		"lines before it":     {map[string]string{"a.go": "package a\n\n// a\n// b\n\nfunc f( {\n"}, 0},
		"another file":        {map[string]string{"a.go": "", "sub/c.go": broken}, 0},
		"renamed":             {map[string]string{"sub/c.go": "from:a.go"}, 0},
		"another fault":       {map[string]string{"a.go": "package a\n\nfunc g( {\n"}, 1},
		"one more":            {map[string]string{"d.go": broken}, 1},
		"to another language": {map[string]string{"c.txt": "from:a.go"}, 0},
		"into a language":     {map[string]string{"c.json": "from:b.yaml"}, 1},
	} {
		a := h.Check(h.Changeset(c.after), wire.CompareIntroduced, "changeset", "")
		if (len(a.Diagnostics) > 0) != (c.found > 0) {
			t.Errorf("%s: %+v", name, a.Diagnostics)
		}
	}
	a := h.Check(h.Changeset(map[string]string{"a.go": "package a\n"}), wire.CompareResolved, "changeset", "")
	if len(a.Diagnostics) == 0 {
		t.Error("nothing was resolved")
	}
}

func TestBoundsAndSettings(t *testing.T) {
	h := providertest.Open(t, syntax.New("1"), map[string]string{})
	big := h.Changeset(map[string]string{"a.json": "[" + strings.Repeat(" ", 200) + "]", "b.json": "{"})
	a := h.Check(big, wire.CompareAll, "changeset", `{"maxFileBytes":100}`)
	if a.Status != wire.StatusIncomplete || len(a.Diagnostics) != 1 || len(a.Coverage.Degraded) != 1 {
		t.Errorf("%s %+v %+v", a.Status, a.Diagnostics, a.Coverage.Degraded)
	}
	a = h.Check(big, wire.CompareAll, "changeset", `{"exclude":["b.*"]}`)
	if a.Status != wire.StatusComplete || len(a.Diagnostics) != 0 {
		t.Errorf("%s %+v", a.Status, a.Diagnostics)
	}
	for _, s := range []string{`{"maxFileBytes":0}`, `{"maxFileBytes":99999999}`, `{"other":1}`, `{"exclude":"a"}`} {
		_, e := h.Call(wire.MethodEvaluate, h.EvaluateParams(big, wire.CompareAll, "changeset", s))
		if e == nil || e.Data.FailClass != wire.FailInput {
			t.Errorf("%s: %v", s, e)
		}
	}
	deep := h.Changeset(map[string]string{"a.json": strings.Repeat("[", 1<<18), "b.toml": "a = " + strings.Repeat("[", 1<<18),
		"c.yaml": strings.Repeat("[", 1<<14), "d.xml": strings.Repeat("<a>", 1<<14), "e.go": "package a\nvar a = " + strings.Repeat("(", 1<<18)})
	if a = h.Check(deep, wire.CompareAll, "changeset", ""); len(a.Diagnostics) < 4 {
		t.Errorf("%+v", a.Diagnostics)
	}
}

// FuzzAnalyse: whatever a file holds, the answer is one that a host accepts, and
// the file is the same as itself.
func FuzzAnalyse(f *testing.F) {
	names := []string{"a.go", "a.json", "tsconfig.json", "a.yaml", "a.toml", "a.xml", "a.md", "a.txt"}
	f.Add(uint8(0), []byte("package a\nfunc f( {"))
	f.Add(uint8(2), []byte("{\"a\":1,/**/}//"))
	f.Add(uint8(3), []byte("a: &a [*a]\n? {}\n--- |\n"))
	f.Add(uint8(4), []byte("a.b = {c=[1,]}\n[[d]]"))
	f.Add(uint8(5), []byte("<?xml version=\"1.0\" encoding=\"latin\"?><a b='&lt;'><![CDATA[]]></a>"))
	f.Add(uint8(6), []byte("---\na: b\n---\n"))
	f.Add(uint8(7), []byte("<<<<<<< a\n=======\n>>>>>>> b\r\n"))
	h := providertest.Open(f, syntax.New("1"), map[string]string{})
	f.Fuzz(func(t *testing.T, which uint8, content []byte) {
		if len(content) == 0 {
			return
		}
		h.T = t
		name := names[int(which)%len(names)]
		cs := h.Changeset(map[string]string{name: string(content)})
		all := h.Check(cs, wire.CompareAll, "changeset", "")
		if len(all.Coverage.Degraded) > 0 {
			t.Fatalf("%+v", all.Coverage.Degraded)
		}
		h.Files = map[string]string{"old-" + name: string(content)}
		moved := h.Check(h.Changeset(map[string]string{"old-" + name: "", name: string(content)}), wire.CompareIntroduced, "changeset", "")
		if len(moved.Diagnostics) > 0 && name != "tsconfig.json" {
			t.Fatalf("a move introduces %+v", moved.Diagnostics)
		}
	})
}
