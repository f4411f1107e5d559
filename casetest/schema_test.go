package casetest

import (
	"bytes"
	"os"
	"path/filepath"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// schemaDir is where the public schemas are, "" if they are not here.
func schemaDir() string { return os.Getenv("ASP_SCHEMA_DIR") }

const schemaBase = "https://covibes.dev/asp/schemas/"

// compiler reads the public schemas once.
var compiler = sync.OnceValues(func() (*jsonschema.Compiler, error) {
	c := jsonschema.NewCompiler()
	files, err := filepath.Glob(filepath.Join(schemaDir(), "*.schema.json"))
	if err != nil {
		return nil, err
	}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			return nil, err
		}
		doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(b))
		if err != nil {
			return nil, err
		}
		if err := c.AddResource(schemaBase+filepath.Base(f), doc); err != nil {
			return nil, err
		}
	}
	return c, nil
})

// valid checks stdout against a public schema, where ASP_SCHEMA_DIR names them.
func (r *result) valid(ref string) {
	r.t.Helper()
	if schemaDir() == "" {
		return
	}
	c, err := compiler()
	must(r.t, err)
	s, err := c.Compile(schemaBase + ref)
	must(r.t, err)
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(r.out))
	if err != nil {
		r.t.Errorf("stdout is no JSON: %v: %s", err, r)
		return
	}
	if err := s.Validate(doc); err != nil {
		r.t.Errorf("not valid by %s: %v\n%s", ref, err, r.out)
	}
}
