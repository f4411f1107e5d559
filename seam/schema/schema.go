// Package schema describes the messages of both seams, the files that cross
// them, and the two files that people write, as JSON Schemas (draft 2020-12). They
// are made from the types of seam/wire, and of files.go, when they are asked for: members, required ones, word lists and field rules by
// reflection, and from a table here what those types check beyond that.
//
// A schema is for people and for other tools. Nothing in this program validates
// with one: seam/wire decodes, and refuses more than a schema can say (an integer
// written 1.0, doubled keys, keys in another case, host-owned members anywhere
// inside).
package schema

import (
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/aspengine/asp/internal/canon"
	"github.com/aspengine/asp/seam/wire"
)

// idPrefix makes an identifier that names no place.
const idPrefix = "urn:asp:schema:"

// message is one named schema.
type message struct {
	name, title string
	typ         reflect.Type
}

// Names lists the schemas, sorted.
func Names() []string {
	var out []string
	for _, m := range messages() {
		out = append(out, m.name)
	}
	slices.Sort(out)
	return out
}

// Title says in one line what the schema of that name is of.
func Title(name string) string {
	for _, m := range messages() {
		if m.name == name {
			return m.title
		}
	}
	return ""
}

// Of returns a schema, complete in itself; false for an unknown name.
func Of(name string) (canon.Value, bool) {
	for _, m := range messages() {
		if m.name == name {
			return build(m), true
		}
	}
	return canon.Value{}, false
}

func build(m message) canon.Value {
	g := &generator{defs: map[string]canon.Value{}, rules: rules()}
	maps.Copy(g.rules, fileRules())
	root := []canon.Member{
		{Key: "$schema", Value: canon.StringOf("https://json-schema.org/draft/2020-12/schema")},
		{Key: "$id", Value: canon.StringOf(idPrefix + m.name)},
		{Key: "title", Value: canon.StringOf(m.title)},
	}
	if m.typ == nil {
		root = append(root, canon.Member{Key: "allOf", Value: canon.ArrayOf(parse(envelope))})
	} else {
		root = append(root, canon.Member{Key: "allOf", Value: canon.ArrayOf(g.of(m.typ, ""))})
	}
	if len(g.defs) > 0 {
		var defs []canon.Member
		for _, k := range sortedKeys(g.defs) {
			defs = append(defs, canon.Member{Key: k, Value: g.defs[k]})
		}
		root = append(root, canon.Member{Key: "$defs", Value: canon.ObjectOf(defs...)})
	}
	return canon.ObjectOf(root...)
}

// generator collects the definitions of one schema.
type generator struct {
	defs  map[string]canon.Value
	rules map[string]rule
}

func object(kv ...any) canon.Value {
	var m []canon.Member
	for i := 0; i < len(kv); i += 2 {
		m = append(m, canon.Member{Key: kv[i].(string), Value: valueOf(kv[i+1])})
	}
	return canon.ObjectOf(m...)
}

func valueOf(x any) canon.Value {
	switch x := x.(type) {
	case canon.Value:
		return x
	case string:
		return canon.StringOf(x)
	case bool:
		return canon.BoolOf(x)
	case int:
		return canon.IntOf(int64(x))
	case []string:
		items := make([]canon.Value, len(x))
		for i, s := range x {
			items[i] = canon.StringOf(s)
		}
		return canon.ArrayOf(items...)
	}
	return canon.NullOf()
}

// of is the schema of a type under the rule of the field that holds it, in the
// words of wire.Decode.
func (g *generator) of(t reflect.Type, rule string) canon.Value {
	switch {
	case t == reflect.TypeFor[canon.Value]():
		return anything(rule)
	case t == reflect.TypeFor[wire.BlobRef]():
		return object("type", "string", "pattern", "^blob:[a-z0-9]+:[0-9a-f]+$")
	}
	switch t.Kind() {
	case reflect.Pointer:
		if rule == "nullable" {
			return object("anyOf", canon.ArrayOf(g.of(t.Elem(), ""), object("type", "null")))
		}
		return g.of(t.Elem(), rule)
	case reflect.Struct:
		return g.structOf(t, rule == "open")
	case reflect.Slice:
		return g.listOf(t, rule)
	case reflect.Map:
		return object("type", "object", "additionalProperties", g.of(t.Elem(), rule))
	case reflect.String:
		return text(t, rule)
	case reflect.Bool:
		if rule == "true" {
			return object("const", true)
		}
		return object("type", "boolean")
	case reflect.Float64:
		if rule == "unit" {
			return object("type", "number", "minimum", 0, "maximum", 1)
		}
		return object("type", "number")
	}
	switch rule {
	case "min0":
		return object("type", "integer", "minimum", 0)
	case "min1":
		return object("type", "integer", "minimum", 1)
	}
	return object("type", "integer")
}

func anything(rule string) canon.Value {
	paths := object("type", "array", "items", object("type", "string"))
	words := object("enum", []string{wire.ScopeChangeset, wire.ScopeWorkspace})
	switch rule {
	case "object":
		return object("type", "object")
	case "scope":
		one := object("type", "array", "minItems", 1, "items", object("type", "string"))
		return object("anyOf", canon.ArrayOf(words, object("type", "object", "required", []string{"paths"},
			"additionalProperties", false, "properties", object("paths", one))))
	case "anyscope":
		return object("anyOf", canon.ArrayOf(words, object("type", "object", "required", []string{"paths"}, "properties", object("paths", paths))))
	}
	return object()
}

func text(t reflect.Type, rule string) canon.Value {
	if words := wire.Words(t); words != nil {
		return object("enum", words)
	}
	if words, ok := strings.CutPrefix(rule, "in="); ok {
		return object("enum", strings.Split(words, "|"))
	}
	switch rule {
	case "nonempty":
		return object("type", "string", "minLength", 1)
	case "time":
		return object("type", "string", "format", "date-time")
	}
	return object("type", "string")
}

func (g *generator) listOf(t reflect.Type, rule string) canon.Value {
	out := object("type", "array")
	for {
		word, rest, _ := strings.Cut(rule, ",")
		switch word {
		case "unique":
			out = out.With("uniqueItems", canon.BoolOf(true))
		case "some":
			out = out.With("minItems", canon.IntOf(1))
		default:
			return out.With("items", g.of(t.Elem(), rule))
		}
		rule = rest
	}
}

// structOf defines a type, closed or open, and refers to it.
func (g *generator) structOf(t reflect.Type, open bool) canon.Value {
	name := t.Name()
	if open {
		name += "Open"
	}
	ref := object("$ref", "#/$defs/"+name)
	if _, done := g.defs[name]; done {
		return ref
	}
	g.defs[name] = canon.NullOf() // a type that holds itself refers to it
	required := []string{}
	var properties []canon.Member
	for i := range t.NumField() {
		f := t.Field(i)
		key, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if options == "" {
			required = append(required, key)
		}
		properties = append(properties, canon.Member{Key: key, Value: g.of(f.Type, f.Tag.Get("wire"))})
	}
	def := object("type", "object", "required", required, "properties", canon.ObjectOf(properties...))
	if !open {
		def = def.With("additionalProperties", canon.BoolOf(false))
	}
	if r, ok := g.rules[t.Name()]; ok {
		def = def.With("allOf", parse(r.json))
		for _, t := range r.uses {
			g.structOf(t, false)
		}
	}
	g.defs[name] = def
	return ref
}

// parse reads a constant of this package.
func parse(s string) canon.Value {
	v, err := canon.Parse([]byte(s), canon.Limits{})
	if err != nil {
		return canon.BoolOf(false) // matches nothing; a test sees to it that there is none
	}
	return v
}

func sortedKeys(m map[string]canon.Value) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
