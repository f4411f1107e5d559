package provider_test

import (
	"bytes"
	"context"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/aspengine/asp/provider"
	"github.com/aspengine/asp/seam/wire"
)

// reachable lists the types that an author meets through exported fields, methods
// and their parameters.
func reachable(seen map[reflect.Type]bool, t reflect.Type) {
	if seen[t] {
		return
	}
	seen[t] = true
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Array, reflect.Map, reflect.Chan:
		reachable(seen, t.Elem())
		if t.Kind() == reflect.Map {
			reachable(seen, t.Key())
		}
	case reflect.Func:
		for i := range t.NumIn() {
			reachable(seen, t.In(i))
		}
		for i := range t.NumOut() {
			reachable(seen, t.Out(i))
		}
	case reflect.Struct:
		for i := range t.NumField() {
			if f := t.Field(i); f.IsExported() {
				reachable(seen, f.Type)
			}
		}
	}
	if !strings.Contains(t.PkgPath(), "/asp/") {
		return
	}
	for _, m := range []reflect.Type{t, reflect.PointerTo(t)} {
		for i := range m.NumMethod() {
			reachable(seen, m.Method(i).Type)
		}
	}
}

// TestAuthorsMeetPublicTypesOnly: nobody outside the module can name a type of an
// internal package, so none may stand where an author would have to.
func TestAuthorsMeetPublicTypesOnly(t *testing.T) {
	seen := map[reflect.Type]bool{}
	for _, x := range []any{provider.Provider{}, provider.Host{}, provider.Plan{}, provider.Text{}, provider.PerFile{}, provider.File{}, provider.Answer{},
		provider.Unsupported{}, provider.Grant{}, provider.Main, provider.InputError, provider.HealthError, provider.Denied, provider.FromJSON, provider.NewText,
		provider.Ref, provider.MatchGlob, provider.ValidPath} {
		reachable(seen, reflect.TypeOf(x))
	}
	for _, must := range []reflect.Type{reflect.TypeFor[provider.CheckRequest](), reflect.TypeFor[provider.Diagnostic](), reflect.TypeFor[wire.Error](), reflect.TypeFor[context.Context]()} {
		if !seen[must] {
			t.Errorf("%s was not reached: the walk is broken", must)
		}
	}
	for x := range seen {
		if strings.Contains(x.PkgPath(), "/internal/") && strings.Contains(x.PkgPath(), "/asp/") {
			t.Errorf("%s is met by authors", x)
		}
	}

	// And no exported declaration is left out of the list above: what it mentions
	// by name is no internal package.
	fset := token.NewFileSet()
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(fset, name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || !fn.Name.IsExported() || fn.Recv != nil && !exportedReceiver(fn) {
				continue
			}
			ast.Inspect(fn.Type, func(n ast.Node) bool {
				if s, ok := n.(*ast.SelectorExpr); ok {
					if x, ok := s.X.(*ast.Ident); ok && x.Name == "canon" {
						t.Errorf("%s: %s mentions canon.%s", fset.Position(n.Pos()), fn.Name.Name, s.Sel.Name)
					}
				}
				return true
			})
		}
	}
}

func exportedReceiver(fn *ast.FuncDecl) bool {
	x := fn.Recv.List[0].Type
	if p, ok := x.(*ast.StarExpr); ok {
		x = p.X
	}
	id, ok := x.(*ast.Ident)
	return ok && id.IsExported()
}

// TestAnotherModule builds the example as an author would who has a module of his
// own.
func TestAnotherModule(t *testing.T) {
	if testing.Short() {
		t.Skip("builds a program")
	}
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	copyFile := func(from, to string) {
		b, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, to), b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	copyFile("example/main.go", "main.go")
	copyFile(filepath.Join(root, "go.sum"), "go.sum")
	mod := "module example.org/header\n\ngo 1.26\n\nrequire github.com/aspengine/asp v0.0.0\n\nreplace github.com/aspengine/asp => " + strconv.Quote(root) + "\n"
	if err := os.WriteFile(filepath.Join(dir, "go.mod"), []byte(mod), 0o644); err != nil {
		t.Fatal(err)
	}
	bin := filepath.Join(dir, "header")
	c := exec.CommandContext(t.Context(), "go", "build", "-mod=mod", "-o", bin, ".")
	c.Dir = dir
	c.Env = append(os.Environ(), "GOFLAGS=", "GOPROXY=off", "GOWORK=off", "CGO_ENABLED=0")
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	out, err := exec.CommandContext(t.Context(), bin, "--print-manifest").Output()
	if err != nil || !bytes.Contains(out, []byte(`"asp-server/1.0"`)) {
		t.Fatalf("%v\n%s", err, out)
	}
	c = exec.CommandContext(t.Context(), bin)
	c.Stdin = strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"shutdown"}` + "\n" + `{"jsonrpc":"2.0","method":"exit"}` + "\n")
	if out, err := c.Output(); err != nil || string(out) != `{"id":1,"jsonrpc":"2.0","result":null}`+"\n" {
		t.Fatalf("%v\n%s", err, out)
	}
}
