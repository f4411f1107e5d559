// Package elsewhere holds that everything compiles on systems that no test runs on.
package elsewhere

import (
	"os"
	"testing"

	"golang.org/x/tools/go/packages"
)

// TestElsewhere checks the types of everything on two systems where the engine only
// says that it cannot work: on the one with the tests, on the other, which has no
// users and modes for them to set, without. Checking from source costs a tenth of
// building the standard library twice, and finds the same mistakes.
func TestElsewhere(t *testing.T) {
	for _, c := range []struct {
		system string
		tests  bool
	}{{"darwin", true}, {"windows", false}} {
		t.Run(c.system, func(t *testing.T) {
			t.Parallel()
			pkgs, err := packages.Load(&packages.Config{
				Mode: packages.NeedName | packages.NeedFiles | packages.NeedCompiledGoFiles | packages.NeedImports | packages.NeedDeps |
					packages.NeedTypes | packages.NeedSyntax | packages.NeedTypesSizes,
				Env:   append(os.Environ(), "GOOS="+c.system, "CGO_ENABLED=0"),
				Tests: c.tests,
			}, "github.com/aspengine/asp/...")
			if err != nil {
				t.Fatal(err)
			}
			// A system that is left out by constraints has no errors either.
			command := false
			for _, p := range pkgs {
				command = command || p.PkgPath == "github.com/aspengine/asp/cmd/asp" && len(p.CompiledGoFiles) > 0
				for _, e := range p.Errors {
					t.Error(e)
				}
			}
			if !command {
				t.Errorf("the command is not among the %d packages", len(pkgs))
			}
		})
	}
}
