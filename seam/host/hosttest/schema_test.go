package hosttest

import (
	"bytes"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/aspengine/asp/internal/canon"
	"github.com/aspengine/asp/seam/wire"
)

const schemaBase = "https://covibes.dev/asp/schemas/"

// schemaDir finds the public schemas: ASP_SCHEMA_DIR, or asp/schemas in a directory
// named shared beside one of our parents; "" where they are not.
func schemaDir() string {
	if d := os.Getenv("ASP_SCHEMA_DIR"); d != "" {
		return d
	}
	wd, err := os.Getwd()
	if err != nil {
		return ""
	}
	for d := wd; d != filepath.Dir(d); d = filepath.Dir(d) {
		s := filepath.Join(d, "shared", "asp", "schemas")
		if _, err := os.Stat(s); err == nil {
			return s
		}
	}
	return ""
}

// compiler reads the public schemas once.
var compiler = sync.OnceValues(func() (*jsonschema.Compiler, error) {
	c := jsonschema.NewCompiler()
	c.AssertFormat()
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

// valid holds one member of a message ("result", "error", "params") against our
// strict decoder and, where it is here, the public schema.
func valid(t testing.TB, raw []byte, member, schema string, into any) {
	t.Helper()
	m, err := canon.Parse(bytes.TrimSpace(raw), canon.Limits{})
	must(t, err)
	v, ok := m.Get(member)
	if !ok {
		t.Errorf("no %s in %.500s", member, raw)
		return
	}
	if err := wire.Decode(v, into); err != nil {
		t.Errorf("%s: %v\n%.2000s", schema, err, raw)
	}
	if schemaDir() == "" {
		return
	}
	c, err := compiler()
	must(t, err)
	s, err := c.Compile(schemaBase + schema)
	must(t, err)
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(v.Bytes()))
	must(t, err)
	if err := s.Validate(doc); err != nil {
		t.Errorf("not valid by %s: %v\n%.2000s", schema, err, raw)
	}
}
