// Package archtest holds the rules of the house as tests over the source: who
// imports whom and why, who may write to the file system, and what every file
// and every exported name must have.
package archtest

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/aspengine/asp/"

// file is one parsed source file.
type file struct {
	name  string // slash path in the module
	room  string
	test  bool
	lines int
	text  []byte
	ast   *ast.File
}

// source parses every Go file of the module, whatever its build constraints.
func source(t *testing.T) (*token.FileSet, []*file) {
	t.Helper()
	root := filepath.Join("..", "..")
	fset := token.NewFileSet()
	var out []*file
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if n := d.Name(); p != root && (strings.HasPrefix(n, ".") || n == "testdata" || n == "bin") {
				return fs.SkipDir
			}
			return nil
		}
		if filepath.Ext(p) != ".go" {
			return nil
		}
		b, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		f, err := parser.ParseFile(fset, p, b, parser.ParseComments)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, p)
		name := filepath.ToSlash(rel)
		out = append(out, &file{name: name, room: path.Dir(name), test: strings.HasSuffix(name, "_test.go"), lines: bytes.Count(b, []byte("\n")), text: b, ast: f})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return fset, out
}

func TestHouse(t *testing.T) {
	fset, files := source(t)
	for _, c := range []struct {
		name string
		test func(*testing.T, *token.FileSet, []*file)
	}{
		{"rooms", testRooms},
		{"outside modules", testOutside},
		{"writers", testWriters},
		{"package comments", testPackageComments},
		{"files", testFiles},
		{"exported names", testExportedNamesAreDocumented},
		{"variables", testVariables},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(t, fset, files) })
	}
}

// imports are the paths that a file imports; those of the module without prefix.
func (f *file) imports() (inside, outside []string) {
	for _, s := range f.ast.Imports {
		p, _ := strconv.Unquote(s.Path.Value)
		if in, ok := strings.CutPrefix(p, module); ok {
			inside = append(inside, in)
		} else {
			outside = append(outside, p)
		}
	}
	return inside, outside
}

func testRooms(t *testing.T, _ *token.FileSet, files []*file) {
	allowed, used := map[string][]string{}, map[string]bool{}
	for _, r := range rooms {
		if _, twice := allowed[r.name]; twice || r.why == "" {
			t.Errorf("row %s is there twice or gives no reason", r.name)
		}
		allowed[r.name] = r.imports
	}
	for _, f := range files {
		may, known := allowed[f.room]
		if !known {
			t.Errorf("%s: room %s is not in the table", f.name, f.room)
		}
		used[f.room] = true
		inside, _ := f.imports()
		for _, p := range inside {
			used[f.room+" "+p] = used[f.room+" "+p] || !f.test
			switch {
			case f.test:
			case slices.Contains(testOnly, p) && !slices.Contains(testOnly, f.room):
				t.Errorf("%s imports %s, which only tests may", f.name, p)
			case !slices.Contains(may, p):
				t.Errorf("%s: %s may not import %s", f.name, f.room, p)
			}
		}
	}
	for _, r := range rooms {
		if !used[r.name] {
			t.Errorf("room %s has vanished; remove its row", r.name)
		}
		for _, p := range r.imports {
			if !used[r.name+" "+p] {
				t.Errorf("%s does not import %s any more; remove it from the table", r.name, p)
			}
		}
	}
}

func testOutside(t *testing.T, _ *token.FileSet, files []*file) {
	used := map[string]bool{}
	for _, f := range files {
		_, paths := f.imports()
		for _, p := range paths {
			if !strings.Contains(strings.Split(p, "/")[0], ".") {
				continue // standard library
			}
			row := slices.IndexFunc(outside, func(r struct {
				prefix string
				rooms  []string
				tests  bool
				why    string
			}) bool {
				return p == r.prefix || strings.HasPrefix(p, r.prefix+"/")
			})
			if row < 0 {
				t.Errorf("%s imports %s, which is not in the table", f.name, p)
				continue
			}
			r := outside[row]
			used[r.prefix+" "+f.room] = used[r.prefix+" "+f.room] || !f.test || r.tests
			if (!f.test || r.tests) && !slices.Contains(r.rooms, f.room) {
				t.Errorf("%s may not import %s: %s", f.name, p, r.why)
			}
		}
	}
	for _, r := range outside {
		for _, room := range r.rooms {
			if !used[r.prefix+" "+room] {
				t.Errorf("%s does not import %s any more; remove it from the table", room, r.prefix)
			}
		}
	}
}

// changing are the functions of package os that change the file system.
var changing = []string{"Chmod", "Chown", "Chtimes", "CopyFS", "Create", "CreateTemp", "Lchown", "Link", "Mkdir", "MkdirAll", "MkdirTemp", "Remove", "RemoveAll",
	"Rename", "Symlink", "Truncate", "WriteFile"}

func testWriters(t *testing.T, _ *token.FileSet, files []*file) {
	used := map[string]bool{}
	for _, f := range files {
		if f.test {
			continue
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			s, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			if x, ok := s.X.(*ast.Ident); ok && x.Name == "os" && slices.Contains(changing, s.Sel.Name) {
				used[f.room] = true
				if writers[f.room] == "" {
					t.Errorf("%s calls os.%s; write through internal/vfs, or give a reason in the table", f.name, s.Sel.Name)
				}
			}
			return true
		})
	}
	for room := range writers {
		if !used[room] {
			t.Errorf("%s does not write by path any more; remove it from the table", room)
		}
	}
}
