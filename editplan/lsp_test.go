package editplan_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/aspengine/asp/editplan"
	"github.com/aspengine/asp/internal/canon"
	"github.com/aspengine/asp/internal/need"
	"github.com/aspengine/asp/snapshot"
)

// view calls files whose names end in .ign ignored, and what is named sub a
// submodule.
func view(d disk) editplan.View {
	info := func(paths []snapshot.Path) ([]snapshot.PathInfo, error) {
		out := make([]snapshot.PathInfo, len(paths))
		for i, p := range paths {
			out[i] = snapshot.PathInfo{Ignored: strings.HasSuffix(p.String(), ".ign"), InSubmodule: p.Base() == "sub"}
		}
		return out, nil
	}
	return editplan.View{Roots: []string{"/work/my repo", "/w"}, Baseline: snapshot.Baseline{Rev: "tree:x"}, Reader: d, Info: info}
}

// importLSP gives the net changes of a workspace edit, or its refusals.
func importLSP(t testing.TB, d disk, in string) (nets, warnings, refused []string) {
	t.Helper()
	got, err := editplan.ImportWorkspaceEdit([]byte(in), view(d), editplan.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range got.Refused {
		refused = append(refused, fmt.Sprintf("%d %s %s: %s", r.Op, r.Code, r.Path, r.Detail))
	}
	if len(got.Refused) > 0 {
		return nil, got.Warnings, refused
	}
	p, r, err := editplan.Compile(got.File, editplan.Limits{}, nil)
	if err != nil || len(r) > 0 {
		t.Fatalf("the imported plan is refused: %v %v", r, err)
	}
	n, r, err := editplan.Resolve(p, d)
	if err != nil || len(r) > 0 {
		t.Fatalf("the imported plan does not resolve: %v %v", r, err)
	}
	return show(n, d, p), got.Warnings, nil
}

// te is a text edit, tde a TextDocumentEdit with such edits.
func te(l, c, l2, c2 int, text string) string {
	return fmt.Sprintf(`{"range":{"start":{"line":%d,"character":%d},"end":{"line":%d,"character":%d}},"newText":%s}`, l, c, l2, c2, canon.StringOf(text).Bytes())
}

func tde(uri string, list ...string) string {
	return `{"textDocument":{"uri":"file:///w/` + uri + `","version":null},"edits":[` + strings.Join(list, ",") + `]}`
}

func dc(changes ...string) string {
	return `{"documentChanges":[` + strings.Join(changes, ",") + `]}`
}

func fileOp(kind, uri, options string) string {
	return `{"kind":"` + kind + `","uri":"file:///w/` + uri + `","options":{` + options + `}}`
}

func move(from, to, options string) string {
	return `{"kind":"rename","oldUri":"file:///w/` + from + `","newUri":"file:///w/` + to + `","options":{` + options + `}}`
}

const (
	overwrite = `"overwrite":true`
	ignore    = `"ignoreIfExists":true`
)

func TestImportWorkspaceEdit(t *testing.T) {
	d := disk{"a.txt": "one\ntwo\r\n🟢x\n", "b.txt": "B\n", "d/x": "X", "d/s/y.sh": "Y", "d/e/": "", "sp ace/é#.txt": "s\n", "bad": "\xff", "A.txt": "A\n",
		"i/x": "", "i/1.ign": "1", "i/2.ign": "2", "i/3.ign": "3", "i/4.ign": "4"}
	for _, c := range []struct {
		name, in       string
		want, warnings []string
	}{
		{"documentChanges", dc(tde("a.txt", te(0, 0, 0, 3, "1"), te(2, 2, 2, 3, "y"))), []string{`a.txt: edits "1\ntwo\r\n🟢y\n" [0]`}, nil},
		{"changes", `{"changes":{"file:///w/b.txt":[` + te(0, 0, 0, 1, "C") + `],"file:///w/a.txt":[` + te(0, 0, 0, 0, ">") + `]}}`,
			[]string{`a.txt: edits ">one\ntwo\r\n🟢x\n" [0]`, `b.txt: edits "C\n" [1]`}, nil},
		{"changes with names that differ in case", `{"changes":{"file:///w/A.txt":[` + te(0, 0, 0, 1, "C") + `],"file:///w/a.txt":[` + te(0, 0, 0, 3, "") + `]}}`,
			[]string{`A.txt: edits "C\n" [0]`, `a.txt: edits "\ntwo\r\n🟢x\n" [1]`}, nil},
		{"both", `{"changes":{"file:///w/b.txt":[` + te(0, 0, 0, 1, "C") + `]},"documentChanges":[` + tde("b.txt", te(0, 0, 0, 1, "D")) + `]}`,
			[]string{`b.txt: edits "D\n" [0]`}, []string{"changes is ignored"}},
		{"neither", `{}`, nil, nil}, {"null", `{"changes":null,"documentChanges":null}`, nil, nil},
		{"parameters of applyEdit", `{"label":"rename","edit":` + dc(tde("b.txt", te(0, 0, 0, 1, "D"))) + `}`, []string{`b.txt: edits "D\n" [0]`}, nil},
		{"past the end of a line", dc(tde("a.txt", te(0, 99, 0, 2147483647, "!"), te(1, 3, 1, 4, "?"))), []string{`a.txt: edits "one!\ntwo?\r\n🟢x\n" [0]`}, []string{"3 positions past"}},
		{"two edits of one file follow each other", dc(tde("b.txt", te(0, 0, 0, 1, "CD")), tde("b.txt", te(0, 1, 0, 2, "E"))), []string{`b.txt: edits "CE\n" [0 1]`}, nil},
		{"version", `{"documentChanges":[{"textDocument":{"uri":"file:///w/b.txt","version":7},"edits":[` + te(0, 0, 0, 1, "C") + `]}]}`,
			[]string{`b.txt: edits "C\n" [0]`}, []string{"version 7"}},
		{"no version", `{"documentChanges":[{"textDocument":{"uri":"file:///w/b.txt"},"edits":[` + te(0, 0, 0, 1, "C") + `]}]}`, []string{`b.txt: edits "C\n" [0]`}, nil},
		{"escapes, other root, localhost", `{"documentChanges":[{"textDocument":{"uri":"FILE://localhost/work/my%20repo/sp%20ace/%C3%A9%23.txt"},"edits":[` + te(0, 0, 0, 1, "S") + `]}]}`,
			[]string{`sp ace/é#.txt: edits "S\n" [0]`}, nil},
		{"annotations", `{"changeAnnotations":{"1":{"label":"Rename","needsConfirmation":true},"2":{"label":"Quiet","description":"d"}},"documentChanges":[` +
			tde("b.txt", strings.Replace(te(0, 0, 0, 1, "C"), `{"range"`, `{"annotationId":"1","range"`, 1)) + `,{"kind":"create","uri":"file:///w/n","annotationId":"2"}]}`,
			[]string{`b.txt: edits "C\n" [0]`, `n: blob "" new [1]`}, []string{`"Rename" asks for confirmation`}},
		{"no edits", dc(tde("missing")), nil, nil},

		{"create", dc(fileOp("create", "n/m", ""), tde("n/m", te(0, 0, 0, 0, "new\n"))), []string{`n/m: edits "new\n" new [0 1]`}, nil},
		{"create over, overwrite", dc(fileOp("create", "b.txt", overwrite), tde("b.txt", te(0, 0, 0, 0, "new\n"))), []string{`b.txt: edits "new\n" [0 1]`}, nil},
		{"create over, ignore", dc(fileOp("create", "b.txt", ignore), tde("b.txt", te(0, 0, 0, 0, "+"))), []string{`b.txt: edits "+B\n" [0]`}, nil},
		{"create over, both: overwrite wins", dc(fileOp("create", "b.txt", overwrite+","+ignore)), []string{`b.txt: blob "" [0]`}, nil},
		{"rename", dc(move("b.txt", "c.txt", ""), tde("c.txt", te(0, 0, 0, 1, "C"))), []string{"b.txt: gone [0]", `c.txt: edits "C\n" new from b.txt [0 1]`}, nil},
		{"rename over, overwrite", dc(move("b.txt", "a.txt", overwrite)), []string{"a.txt: live from b.txt [0 1]", "b.txt: gone [1]"}, nil},
		{"rename over, both: overwrite wins", dc(move("b.txt", "a.txt", overwrite+","+ignore)), []string{"a.txt: live from b.txt [0 1]", "b.txt: gone [1]"}, nil},
		{"rename over, ignore", dc(move("b.txt", "a.txt", ignore)), nil, nil},
		{"rename to itself", dc(move("b.txt", "b.txt", "")), nil, []string{"to itself"}},
		{"rename a directory", dc(move("d", "f", "")), []string{"d/s/y.sh: gone to f/s/y.sh [0]", "d/x: gone to f/x [1]", "f/s/y.sh: live new from d/s/y.sh moved exec=true [0]", "f/x: live new from d/x moved [1]"},
			[]string{`the empty directory "d/e" stays`}},
		{"rename a directory with our own files", dc(fileOp("create", "d/n", ""), fileOp("delete", "d/x", ""), move("d/s", "d/t", ""), move("d", "f", "")),
			[]string{"d/s/y.sh: gone to f/t/y.sh [2]", "d/x: gone [1]", `f/n: blob "" new [3]`, "f/t/y.sh: live new from d/s/y.sh moved exec=true [4]"}, []string{`"d/e" stays`}},
		{"delete", dc(fileOp("delete", "b.txt", "")), []string{"b.txt: gone [0]"}, nil},
		{"delete nothing", dc(fileOp("delete", "nothing", `"ignoreIfNotExists":true`)), nil, nil},
		{"delete a directory", dc(fileOp("delete", "d", `"recursive":true`)), []string{"d/s/y.sh: gone [0]", "d/x: gone [1]"}, []string{`"d/e" stays`}},
		{"delete a directory with ignored files", dc(fileOp("delete", "i", `"recursive":true`)), []string{"i/1.ign: gone [0]", "i/2.ign: gone [1]", "i/3.ign: gone [2]", "i/4.ign: gone [3]", "i/x: gone [4]"},
			[]string{`"i": 4 ("i/1.ign", "i/2.ign", "i/3.ign", …)`}},
		{"delete a file that is not text", dc(fileOp("delete", "bad", "")), []string{"bad: gone [0]"}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			nets, warnings, refused := importLSP(t, d, c.in)
			if len(refused) > 0 {
				t.Fatalf("refused: %q", refused)
			}
			if !slices.Equal(nets, c.want) {
				t.Errorf("got\n %s\nwant\n %s", strings.Join(nets, "\n "), strings.Join(c.want, "\n "))
			}
			if len(warnings) != len(c.warnings) {
				t.Fatalf("warnings %q, want %q", warnings, c.warnings)
			}
			for i, w := range c.warnings {
				if !strings.Contains(warnings[i], w) {
					t.Errorf("warning %q, want %q", warnings[i], w)
				}
			}
		})
	}
}

func TestImportWorkspaceEditRefuses(t *testing.T) {
	d := disk{"a.txt": "one\ntwo\n", "b.txt": "B\n", "d/x": "X", "empty/": "", "link": "->b.txt", "bad": "\xff", "l/k": "->x", "🟢.txt": "🟢\n",
		"o/x": "X", "o/in/r/.git": "gitdir: h", "o/in/r/y": "Y", "s/x": "X", "s/sub/": ""}
	uri := func(u string) string {
		return `{"documentChanges":[{"textDocument":{"uri":"` + u + `"},"edits":[` + te(0, 0, 0, 0, "x") + `]}]}`
	}
	for _, c := range []struct {
		name, in string
		want     []string // "op code path: part of the detail"
	}{
		{"not JSON", `{`, []string{"-1 bad-message : key expected"}},
		{"not an object", `[]`, []string{"-1 bad-message : object expected"}},
		{"unknown member", `{"change":{}}`, []string{"-1 bad-message : unknown member"}},
		{"documentChanges of another kind", `{"documentChanges":{}}`, []string{"-1 bad-message : array expected"}},
		{"other scheme", uri("untitled:a.txt"), []string{"0 path-invalid : no file://"}},
		{"http", uri("http://x/w/a.txt"), []string{"0 path-invalid : no file://"}},
		{"one slash", uri("file:/w/a.txt"), []string{"0 path-invalid : no file://"}},
		{"other host", uri("file://server/w/a.txt"), []string{"0 path-invalid : another host"}},
		{"no path", uri("file://w"), []string{"0 path-invalid : no path"}},
		{"outside", uri("file:///etc/passwd"), []string{"0 path-invalid : outside"}},
		{"PA-01 sibling", uri("file:///w-private/secret.txt"), []string{"0 path-invalid : outside"}},
		{"PA-01 dots", uri("file:///w/../w-private/secret.txt"), []string{"0 path-invalid ../w-private/secret.txt: component"}},
		{"PA-01 escaped dots", uri("file:///w/%2E%2E/x"), []string{"0 path-invalid ../x: component"}},
		{"the root itself", uri("file:///w/"), []string{"0 path-invalid : empty"}},
		{"NUL", uri("file:///w/a%00b"), []string{"0 path-invalid a\x00b: NUL"}},
		{"not UTF-8", uri("file:///w/a%ff"), []string{"0 path-invalid a\xff: UTF-8"}},
		{"escaped slash", uri("file:///w/d%2Fx"), []string{"0 path-invalid : escaped slash"}},
		{"broken escape", uri("file:///w/d%2"), []string{"0 path-invalid : broken escape"}},
		{"query", uri("file:///w/a.txt?x"), []string{"0 path-invalid : query"}},
		{"protected", uri("file:///w/.git/config"), []string{"0 path-protected .git/config"}},
		{"protected end of a rename", dc(move("a.txt", ".GIT/x", "")), []string{"0 path-protected .GIT/x"}},
		{"same file twice", `{"changes":{"file:///w/a.txt":[` + te(0, 0, 0, 0, "x") + `],"file:///w/%61.txt":[` + te(0, 0, 0, 0, "y") + `]}}`, []string{"1 bad-message a.txt: same file"}},
		{"missing file", uri("file:///w/gone"), []string{"0 missing gone"}},
		{"line past the end", dc(tde("a.txt", te(3, 0, 3, 0, "x"))), []string{"0 bad-range a.txt: past the end of the file"}},
		{"reversed, not clamped away", dc(tde("a.txt", te(0, 99, 0, 50, "x"))), []string{"0 bad-range a.txt: reversed"}},
		{"overlap", dc(tde("a.txt", te(0, 0, 0, 2, "x"), te(0, 1, 0, 3, "y"))), []string{"0 overlap a.txt"}},
		{"inside a pair", dc(tde("%F0%9F%9F%A2.txt", te(0, 1, 0, 1, "x"))), []string{"0 bad-range 🟢.txt: surrogate"}},
		{"not text", dc(tde("bad", te(0, 0, 0, 0, "x"))), []string{"0 not-text bad"}},
		{"snippet", dc(`{"textDocument":{"uri":"file:///w/a.txt","version":null},"edits":[{"range":{"start":{"line":0,"character":0},"end":{"line":0,"character":0}},"snippet":{"kind":"snippet","value":"$0"}}]}`),
			[]string{"0 unsupported-operation a.txt: snippet"}},
		{"snippet format", dc(tde("a.txt", strings.Replace(te(0, 0, 0, 0, "$0"), `{"range"`, `{"insertTextFormat":2,"range"`, 1))), []string{"0 unsupported-operation a.txt: snippet"}},
		{"no text", dc(tde("a.txt", `{"range":{"start":{"line":0,"character":0},"end":{"line":0,"character":0}}}`)), []string{"0 bad-message a.txt: no newText"}},
		{"char", dc(tde("a.txt", `{"range":{"start":{"line":0,"char":0},"end":{"line":0,"char":0}},"newText":""}`)), []string{"0 bad-message : character is missing", "0 bad-message : unknown member", "0 bad-message", "0 bad-message"}},
		{"unknown annotation", dc(`{"kind":"create","uri":"file:///w/n","annotationId":"7"}`), []string{"0 bad-message : not in changeAnnotations"}},
		{"unknown kind", dc(`{"kind":"chmod","uri":"file:///w/n"}`), []string{"0 bad-message : none of"}},
		{"create with the members of a rename", dc(`{"kind":"create","oldUri":"file:///w/n","newUri":"file:///w/m"}`), []string{"0 bad-message : create takes uri"}},
		{"create over", dc(fileOp("create", "a.txt", "")), []string{"0 exists a.txt: a file"}},
		{"create over a directory", dc(fileOp("create", "d", overwrite)), []string{"0 exists d: a directory"}},
		{"create over a link", dc(fileOp("create", "link", overwrite)), []string{"0 exists link: a symbolic link"}},
		{"rename over", dc(move("a.txt", "b.txt", "")), []string{"0 exists b.txt: a file"}},
		{"rename over a directory", dc(move("a.txt", "d", overwrite)), []string{"0 exists d: a directory"}},
		{"rename nothing", dc(move("gone", "n", overwrite)), []string{"0 missing gone"}},
		{"rename a directory into itself", dc(move("d", "d/e", "")), []string{"0 path-invalid d/e: inside"}},
		{"rename a file into itself", dc(move("a.txt", "a.txt/b", "")), []string{"0 path-invalid a.txt/b: inside"}},
		{"rename an empty directory", dc(move("empty", "n", "")), []string{"0 unsupported-operation empty"}},
		{"delete nothing", dc(fileOp("delete", "gone", "")), []string{"0 missing gone"}},
		{"delete a directory", dc(fileOp("delete", "d", "")), []string{"0 not-empty d: recursive is not set"}},
		{"delete an empty directory", dc(fileOp("delete", "empty", `"recursive":true`)), []string{"0 unsupported-operation empty"}},
		{"rename a directory with a repository in it", dc(move("o", "n", "")), []string{"0 other-repository o/in/r: another repository"}},
		{"delete a directory with a repository in it", dc(fileOp("delete", "o", `"recursive":true`)), []string{"0 other-repository o/in/r: another repository"}},
		{"delete a repository", dc(fileOp("delete", "o/in/r", `"recursive":true`)), []string{"0 other-repository o/in/r: another repository"}},
		{"rename a repository", dc(move("o/in/r", "n", "")), []string{"0 other-repository o/in/r: another repository"}},
		{"rename a directory with a submodule that was not fetched", dc(move("s", "n", "")), []string{"0 other-repository s/sub: submodule"}},
		{"delete a directory with a submodule that was not fetched", dc(fileOp("delete", "s", `"recursive":true`)), []string{"0 other-repository s/sub: submodule"}},
		{"every one", dc(fileOp("delete", "gone", ""), fileOp("create", "a.txt", ""), fileOp("delete", "b.txt", ""), tde("b.txt", te(0, 0, 0, 0, "x"))),
			[]string{"0 missing gone", "1 exists a.txt", "3 missing b.txt: after operation 2"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			nets, _, refused := importLSP(t, d, c.in)
			if len(refused) != len(c.want) {
				t.Fatalf("nets %q refused %q, want %q", nets, refused, c.want)
			}
			for i, w := range c.want {
				head, detail, _ := strings.Cut(w, ": ")
				if !strings.HasPrefix(refused[i], head) || !strings.Contains(refused[i], detail) {
					t.Errorf("got %q, want %q", refused[i], w)
				}
			}
		})
	}
}

func TestImportIsDeterministic(t *testing.T) {
	in := []byte(`{"changes":{"file:///w/b":[` + te(0, 0, 0, 1, "C") + `],"file:///w/a":[` + te(0, 0, 0, 9, "D") + `]}}`)
	var first canon.Value
	for range 20 {
		got, err := editplan.ImportWorkspaceEdit(in, view(disk{"a": "A", "b": "B"}), editplan.Limits{})
		if err != nil || len(got.Refused) > 0 {
			t.Fatal(err, got.Refused)
		}
		if first.Kind() == canon.Invalid {
			first = got.File.Proposal
		}
		if !canon.Equal(first, got.File.Proposal) {
			t.Fatal("two imports differ")
		}
	}
}

func FuzzLSP(f *testing.F) {
	f.Add([]byte(dc(tde("a.txt", te(0, 0, 0, 3, "1")), move("d", "f", overwrite), fileOp("create", "a.txt", ignore), fileOp("delete", "d", `"recursive":true`))))
	f.Add([]byte(`{"changes":{"file:///w/%61.txt":[` + te(0, 99, 0, 100, "x") + `]},"changeAnnotations":{"a":{"label":"l"}}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		need.Bounded(t, len(data), func() {
			d := disk{"a.txt": "one\n🟢\r\n", "d/x": "X", "d/s/y": "Y", "link": "->x"}
			got, err := editplan.ImportWorkspaceEdit(data, view(d), editplan.Limits{Bytes: 1 << 20})
			if err != nil {
				t.Fatal(err)
			}
			if len(got.Refused) > 0 {
				return
			}
			// What the importer accepts is a good plan over the same workspace.
			p, refused, err := editplan.Compile(got.File, editplan.Limits{}, nil)
			if err != nil || len(refused) > 0 {
				t.Fatalf("refused %v, %v", refused, err)
			}
			if _, refused, err = editplan.Resolve(p, d); err != nil || len(refused) > 0 {
				t.Fatalf("refused %v, %v", refused, err)
			}
		})
	})
}
