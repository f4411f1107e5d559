package archtest

import (
	"bytes"
	"go/ast"
	"go/token"
	"strings"
	"testing"
)

func testPackageComments(t *testing.T, _ *token.FileSet, files []*file) {
	// A room of tests alone has its comment in a test file.
	code, comments := map[string]bool{}, map[string][]string{}
	for _, f := range files {
		code[f.room] = code[f.room] || !f.test
	}
	for _, f := range files {
		if f.ast.Doc != nil && f.test != code[f.room] {
			comments[f.room] = append(comments[f.room], f.name)
		}
	}
	for room := range code {
		if n := len(comments[room]); n != 1 {
			t.Errorf("%s has %d package comments, want one: %q", room, n, comments[room])
		}
	}
}

func testFiles(t *testing.T, _ *token.FileSet, files []*file) {
	seen := map[string]bool{}
	for _, f := range files {
		if f.lines > 600 && !f.test {
			seen[f.name] = true
			if long[f.name] == "" {
				t.Errorf("%s has %d lines; more than 600 need a reason in the table", f.name, f.lines)
			}
		}
		for _, word := range []string{"TO" + "DO", "FIX" + "ME"} {
			if bytes.Contains(f.text, []byte(word)) {
				t.Errorf("%s holds %s: do it, or say what is the case", f.name, word)
			}
		}
		for _, d := range f.ast.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil && fn.Name.Name == "init" && f.name != childHalf {
				t.Errorf("%s has an init function: nothing happens by being imported", f.name)
			}
			if !f.test && compiles(d) {
				t.Errorf("%s compiles a regular expression at every start of the program; put it into sync.OnceValue", f.name)
			}
		}
	}
	for name := range long {
		if !seen[name] {
			t.Errorf("%s is not long any more; remove it from the table", name)
		}
	}
}

// childHalf has the one init function: the process that it is for does nothing else, and has no time for what
// main would have to wait for.
const childHalf = "sandbox/child_linux.go"

// compiles tells whether a declaration of variables calls regexp.MustCompile.
func compiles(d ast.Decl) bool {
	g, ok := d.(*ast.GenDecl)
	if !ok || g.Tok != token.VAR {
		return false
	}
	found := false
	ast.Inspect(g, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncLit:
			return false // later
		case *ast.SelectorExpr:
			x, ok := n.X.(*ast.Ident)
			found = found || ok && x.Name == "regexp" && n.Sel.Name == "MustCompile"
		}
		return true
	})
	return found
}

func testExportedNamesAreDocumented(t *testing.T, fset *token.FileSet, files []*file) {
	for _, f := range files {
		if f.test {
			continue
		}
		need := func(name *ast.Ident, docs ...*ast.CommentGroup) {
			switch {
			case !name.IsExported():
				return
			case name.Name == "String", name.Name == "Error", name.Name == "Unwrap", name.Name == "Is":
				return // what these promise is well known
			}
			for _, d := range docs {
				if d != nil {
					return
				}
			}
			t.Errorf("%s: %s has no comment", fset.Position(name.Pos()), name.Name)
		}
		for _, d := range f.ast.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if d.Recv == nil || ast.IsExported(receiver(d)) {
					need(d.Name, d.Doc)
				}
			case *ast.GenDecl:
				for _, s := range d.Specs {
					switch s := s.(type) {
					case *ast.TypeSpec:
						need(s.Name, d.Doc, s.Doc)
					case *ast.ValueSpec: // one comment may lead a group
						for _, n := range s.Names {
							need(n, d.Doc, s.Doc, s.Comment)
						}
					}
				}
			}
		}
	}
}

// receiver is the name of a method's type.
func receiver(d *ast.FuncDecl) string {
	x := d.Recv.List[0].Type
	for {
		switch y := x.(type) {
		case *ast.StarExpr:
			x = y.X
		case *ast.IndexExpr:
			x = y.X
		case *ast.Ident:
			return y.Name
		default:
			return ""
		}
	}
}

// testVariables wants that what is declared at package level is set once, at
// its declaration: assigned, incremented or taken the address of nowhere.
func testVariables(t *testing.T, fset *token.FileSet, files []*file) {
	vars, seen := map[string]bool{}, map[string]bool{}
	each := func(f *file, do func(*ast.ValueSpec)) {
		for _, d := range f.ast.Decls {
			if g, ok := d.(*ast.GenDecl); ok && g.Tok == token.VAR && !f.test {
				for _, s := range g.Specs {
					do(s.(*ast.ValueSpec))
				}
			}
		}
	}
	for _, f := range files {
		each(f, func(s *ast.ValueSpec) {
			for _, n := range s.Names {
				if n.Name == "_" {
					continue
				}
				key := f.room + "." + n.Name
				vars[key] = true
				if len(s.Values) == 0 || pool(s) {
					seen[key] = true
					if variables[key] == "" {
						t.Errorf("%s: %s is made to change; give it to who needs it, or a reason in the table", fset.Position(n.Pos()), n.Name)
					}
				}
			}
		})
	}
	for _, f := range files {
		if f.test {
			continue
		}
		changed := func(x ast.Expr) {
			id := root(x) // what the parser resolves to another scope is no variable of the package
			if id == nil || id.Obj != nil && f.ast.Scope.Lookup(id.Name) != id.Obj || !vars[f.room+"."+id.Name] {
				return
			}
			t.Errorf("%s: %s of package level is changed", fset.Position(id.Pos()), id.Name)
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.AssignStmt:
				if n.Tok != token.DEFINE {
					for _, x := range n.Lhs {
						changed(x)
					}
				}
			case *ast.IncDecStmt:
				changed(n.X)
			}
			return true
		})
	}
	for key := range variables {
		if !seen[key] {
			t.Errorf("%s is gone; remove it from the table", key)
		}
	}
}

// pool tells whether a variable is declared with a type of package sync.
func pool(s *ast.ValueSpec) bool {
	for _, v := range s.Values {
		c, ok := v.(*ast.CompositeLit)
		if !ok {
			continue
		}
		if sel, ok := c.Type.(*ast.SelectorExpr); ok {
			if x, ok := sel.X.(*ast.Ident); ok && strings.HasPrefix(x.Name, "sync") {
				return true
			}
		}
	}
	return false
}

// root is the variable that an assignment to x changes.
func root(x ast.Expr) *ast.Ident {
	for {
		switch y := x.(type) {
		case *ast.Ident:
			return y
		case *ast.IndexExpr:
			x = y.X
		case *ast.SelectorExpr:
			x = y.X
		case *ast.ParenExpr:
			x = y.X
		default:
			return nil
		}
	}
}
