package policy_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/aspengine/asp/checks/policy"
	"github.com/aspengine/asp/seam/schema"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"pgregory.net/rapid"
)

// fullPolicy and fullConfig hold every member that there is.
const fullPolicy = `{"$schema":"x","aspVersion":"asp/1.0","requirements":[
 {"id":"a","capabilities":["check","edit"],"assurance":["gated","isolated"],"authority":{"providers":[
  {"id":"p","version":"1","package":"k","identity":"i","integrity":"sha256:0","conformance":"c"}]}},
 {"id":"b","capabilities":["inspect"],"assurance":["advisory"],"authority":{"providers":[{"id":"q","version":"1","identity":"i","integrity":"s","conformance":"c"}]}}],
 "gates":{"interactive":{"requiredRequirements":["a"],"optionalRequirements":[]},"gate":{"requiredRequirements":["a","b"],"optionalRequirements":["c"]},
  "sweep":{"requiredRequirements":[],"optionalRequirements":[]}},
 "policy":{"authorityModel":"explicit-pinned-provider","policyChangeActivation":"base-policy-two-phase","candidatePolicyAuthority":"trusted-base-or-organization-floor",
  "missingHost":{"interactive":"warn-open","gate":"fail-closed","sweep":"warn-open"}},
 "budgets":{"interactiveMs":1,"gateMs":2,"sweepMs":3},"adapters":{"mcp":{"enabled":true,"mode":"full-outer-seam"},"acp":{"enabled":false}}}`

const fullConfig = `{"$schema":"x","floor":` + fullPolicy + `,
 "checks":{"vet.1_x-y":{"argv":["go","vet"],"env":{"GOCACHE":"/c"},"timeoutMs":5,"callSites":["gate","sweep"],"required":true}},
 "sandbox":{"require":"isolated","read":["/usr","/x"],"env":["LANG","_A1"],"network":["example.org:443","tcp://example.org:22"],"limits":{"cpuPct":1,"memoryMb":1,"wallclockMs":1,"fd":1,"processes":1,"fileMb":1}},
 "limits":{"messageBytes":8388608,"planBytes":1,"blobBytes":1,"operations":1,"callbacks":1,"outputBytes":1,"checksAtOnce":1},
 "providers":{"p":{"checks":["c"],"rules":["r"],"diagnosticSources":["d"],"configuration":{"any":[1,null]},"configDigest":"none","comparison":"all","scope":"impact","network":["example.org:443","http://example.org:80"]}},
 "publish":"exchange","merge":true,"guaranteeCeiling":"none","budgets":{"interactiveMs":1,"gateMs":2,"sweepMs":3},
 "retention":{"receipts":1,"receiptBytes":1,"blobBytes":1,"judgedBytes":1,"stagedDays":1}}`

type fileOf struct {
	name, full string
	read       func([]byte) error
	schema     *jsonschema.Schema
}

func schemaFiles(t *testing.T) []fileOf {
	t.Helper()
	files := []fileOf{
		{"policy", fullPolicy, func(b []byte) error { _, err := policy.ParseRepository("f", b); return err }, nil},
		{"config", fullConfig, func(b []byte) error { _, err := policy.ParseConfig("f", b); return err }, nil},
	}
	for i := range files {
		v, ok := schema.Of(files[i].name)
		if !ok {
			t.Fatalf("no schema %s", files[i].name)
		}
		doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(v.Bytes()))
		if err != nil {
			t.Fatal(err)
		}
		c := jsonschema.NewCompiler()
		if err := c.AddResource("mem:x", doc); err != nil {
			t.Fatal(err)
		}
		if files[i].schema, err = c.Compile("mem:x"); err != nil {
			t.Fatal(err)
		}
	}
	return files
}

// agree holds that schema and reader say the same of a document.
func (f fileOf) agree(doc any) error {
	b, err := json.Marshal(doc)
	if err != nil {
		return err
	}
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(b))
	if err != nil {
		return err
	}
	read, valid := f.read(b), f.schema.Validate(v)
	if read != nil && valid == nil && (strings.Contains(read.Error(), "is defined twice") || strings.Contains(read.Error(), ".network[")) {
		return nil // a schema cannot see that, or knows less of it
	}
	if (read == nil) != (valid == nil) {
		return fmt.Errorf("%s: the reader says %v, the schema %v:\n%s", f.name, read, valid, b)
	}
	return nil
}

// a place is one value inside a document, and how another one is put there.
type place struct {
	path  string
	value any
	put   func(any)
	drop  func() // nil where there is nothing to take away
	more  func() // into an object: a member that there is not
	twice func() // in a list: once more
}

// places lists all values of a document, the document itself as well.
func places(doc *any) []place {
	var out []place
	var walk func(path string, v any, p place)
	walk = func(path string, v any, p place) {
		p.path, p.value = path, v
		switch v := v.(type) {
		case map[string]any:
			p.more = func() { v["zz"] = "x" }
			out = append(out, p)
			for _, k := range slices.Sorted(maps.Keys(v)) {
				walk(path+"."+k, v[k], place{put: func(x any) { v[k] = x }, drop: func() { delete(v, k) }})
			}
		case []any:
			out = append(out, p)
			for i := range v {
				put := p.put
				walk(fmt.Sprintf("%s[%d]", path, i), v[i], place{put: func(x any) { v[i] = x }, drop: func() { put(slices.Delete(slices.Clone(v), i, i+1)) },
					twice: func() { put(append(slices.Clone(v), v[i])) }})
			}
		default:
			out = append(out, p)
		}
	}
	walk("$", *doc, place{put: func(x any) { *doc = x }})
	return out
}

func parsed(t interface{ Fatal(...any) }, s string) any {
	var doc any
	if err := json.Unmarshal([]byte(s), &doc); err != nil {
		t.Fatal(err)
	}
	return doc
}

// strange are values that some places take and most do not.
var strange = []any{nil, true, "", "x", "check", "gate", "gated", "isolated", "/x", "a\x00b", "/a\x00", "1X", "none", "asp/2.7x", "asp/1", "h.example:443", "127.0.0.1:1", "http://h.example:80", "ftp://h.example:80", -1, 0, 1, 8388607, 8388608, 1 << 50, 1<<50 + 1,
	8640000000, 8640000001, []any{}, []any{"x"}, []any{"x", "x"}, []any{""}, map[string]any{}, map[string]any{"x": "y"}, map[string]any{"-": map[string]any{"argv": []any{"x"}}}, map[string]any{"": map[string]any{}}}

// TestFileSchemas: the published schemas of asp.json and config.json take what their
// readers take, for every single change of documents that hold every member, and
// for two changes at once.
func TestFileSchemas(t *testing.T) {
	for _, f := range schemaFiles(t) {
		t.Run(f.name, func(t *testing.T) {
			doc := parsed(t, f.full)
			if err := f.read([]byte(f.full)); err != nil {
				t.Fatal(err)
			}
			n := len(places(&doc))
			tried := 0
			for i := range n {
				for k := -3; k < len(strange); k++ {
					doc := parsed(t, f.full)
					if changed(places(&doc)[i], k) {
						tried++
						if err := f.agree(doc); err != nil {
							t.Error(err)
						}
					}
				}
			}
			if tried < 1000 {
				t.Errorf("%d documents were tried", tried)
			}
			rapid.Check(t, func(t *rapid.T) {
				doc := parsed(t, f.full)
				for range 2 {
					all := places(&doc)
					changed(all[rapid.IntRange(0, len(all)-1).Draw(t, "place")], rapid.IntRange(-3, len(strange)-1).Draw(t, "change"))
				}
				if err := f.agree(doc); err != nil {
					t.Fatal(err)
				}
			})
		})
	}
}

// changed makes one change, false where there is no such one.
func changed(p place, k int) bool {
	do := p.drop
	switch {
	case k >= 0:
		do = func() { p.put(strange[k]) }
	case k == -2:
		do = p.more
	case k == -3:
		do = p.twice
	}
	if do != nil {
		do()
	}
	return do != nil
}

// TestFileSchemasNameEveryMember: what a reader lists as allowed in an object is what
// the full document holds there, so that a member that a reader learns is missing
// here, and from the schema, no longer than until this runs.
func TestFileSchemasNameEveryMember(t *testing.T) {
	allowed := regexp.MustCompile(`allowed: ([A-Za-z$, ]+)`)
	for _, f := range schemaFiles(t) {
		named := map[string]bool{} // the lists of members of the readers
		doc := parsed(t, f.full)
		held := map[string][]string{}
		for i, p := range places(&doc) {
			o, ok := p.value.(map[string]any)
			if !ok {
				continue
			}
			other := parsed(t, f.full)
			places(&other)[i].more()
			b, err := json.Marshal(other)
			if err != nil {
				t.Fatal(err)
			}
			err = f.read(b)
			if err == nil {
				continue // its keys are free
			}
			m := allowed.FindStringSubmatch(err.Error())
			if m == nil || !strings.Contains(err.Error(), "zz") {
				continue // a value of free keys
			}
			named[m[1]] = true
			held[m[1]] = append(held[m[1]], slices.Collect(maps.Keys(o))...)
		}
		if len(named) < 5 {
			t.Errorf("%s: %d objects", f.name, len(named))
		}
		for list := range named {
			for _, k := range strings.Split(list, ", ") {
				if !slices.Contains(held[list], k) {
					t.Errorf("%s: %q, of %s, is not in the full document", f.name, k, list)
				}
			}
		}
	}
}
