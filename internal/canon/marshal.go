package canon

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"unicode/utf8"
)

// Marshal returns the canonical form of a Go value; see From.
func Marshal(v any) ([]byte, error) {
	t, err := From(v)
	if err != nil {
		return nil, err
	}
	return t.Bytes(), nil
}

// From builds the Value of a Go value made of structs, slices, maps with string
// keys, pointers, strings, booleans, integers, floats and Values. Struct
// fields need a json tag ("-" leaves one out, omitempty leaves out the empty
// value, omitzero the zero one); a field without a tag is an error, so that
// nothing reaches the wire by accident. Unlike in encoding/json a nil slice is
// [] and a nil map is {}: required arrays stay arrays. A nil pointer and an
// invalid Value are null. Strings that are not valid UTF-8, and floats that are
// not finite, are errors.
func From(v any) (Value, error) {
	m := marshaler{fields: map[reflect.Type]fields{}}
	return m.from(reflect.ValueOf(v))
}

// marshaler remembers what the tags of a type say for the length of one call:
// a list of a thousand records reads them once.
type marshaler struct {
	fields map[reflect.Type]fields
}

// fields are those of one struct type, and their names alone: a value that
// leaves none out shares them, as children are never written to.
type fields struct {
	all   []field
	names []string
}

// field is one field of a struct that goes onto the wire.
type field struct {
	index               int
	name                string
	omitEmpty, omitZero bool
}

func (m *marshaler) from(r reflect.Value) (Value, error) {
	if !r.IsValid() {
		return NullOf(), nil
	}
	if r.Type() == reflect.TypeFor[Value]() {
		t := r.Interface().(Value)
		if t.kind == Invalid {
			return NullOf(), nil
		}
		return t, nil
	}
	switch r.Kind() {
	case reflect.Pointer, reflect.Interface:
		if r.IsNil() {
			return NullOf(), nil
		}
		return m.from(r.Elem())
	case reflect.Bool:
		return BoolOf(r.Bool()), nil
	case reflect.String:
		if !utf8.ValidString(r.String()) {
			return Value{}, fmt.Errorf("write JSON: string %.200q is not valid UTF-8", r.String())
		}
		return StringOf(r.String()), nil
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return IntOf(r.Int()), nil
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return Value{kind: Number, s: fmt.Sprint(r.Uint())}, nil
	case reflect.Float32, reflect.Float64:
		f := r.Float()
		if math.IsNaN(f) || math.IsInf(f, 0) {
			return Value{}, fmt.Errorf("write JSON: number %v has no JSON form", f)
		}
		return Value{kind: Number, s: string(appendFloat(nil, f))}, nil
	case reflect.Slice, reflect.Array:
		c := &children{items: make([]Value, r.Len())}
		for i := range c.items {
			e, err := m.from(r.Index(i))
			if err != nil {
				return Value{}, err
			}
			c.items[i] = e
		}
		return Value{kind: Array, sub: c}, nil
	case reflect.Map:
		return m.fromMap(r)
	case reflect.Struct:
		return m.fromStruct(r)
	}
	return Value{}, fmt.Errorf("write JSON: type %s has no JSON form", r.Type())
}

func (m *marshaler) fromMap(r reflect.Value) (Value, error) {
	if r.Type().Key().Kind() != reflect.String {
		return Value{}, fmt.Errorf("write JSON: type %s has no JSON form", r.Type())
	}
	c := &children{}
	for it := r.MapRange(); it.Next(); {
		e, err := m.from(it.Value())
		if err != nil {
			return Value{}, err
		}
		if !utf8.ValidString(it.Key().String()) {
			return Value{}, fmt.Errorf("write JSON: key %.200q is not valid UTF-8", it.Key().String())
		}
		c.keys, c.items = append(c.keys, it.Key().String()), append(c.items, e)
	}
	// Sorted here, because the order of a map must not show anywhere.
	sorted := &children{}
	for _, i := range sortedKeys(c.keys) {
		sorted.keys, sorted.items = append(sorted.keys, c.keys[i]), append(sorted.items, c.items[i])
	}
	return Value{kind: Object, sub: sorted}, nil
}

func (m *marshaler) fromStruct(r reflect.Value) (Value, error) {
	fields, err := m.fieldsOf(r.Type())
	if err != nil {
		return Value{}, err
	}
	c := &children{keys: fields.names, items: make([]Value, 0, len(fields.all))}
	for i, f := range fields.all {
		v := r.Field(f.index)
		if f.omitEmpty && empty(v) || f.omitZero && v.IsZero() {
			if len(c.items) == i {
				c.keys = slices.Clone(fields.names[:i])
			}
			continue
		}
		e, err := m.from(v)
		if err != nil {
			return Value{}, err
		}
		if len(c.items) < i {
			c.keys = append(c.keys, f.name)
		}
		c.items = append(c.items, e)
	}
	return Value{kind: Object, sub: c}, nil
}

func (m *marshaler) fieldsOf(t reflect.Type) (fields, error) {
	if fs, ok := m.fields[t]; ok {
		return fs, nil
	}
	var fs fields
	for i := range t.NumField() {
		f := t.Field(i)
		if !f.IsExported() {
			continue
		}
		tag, ok := f.Tag.Lookup("json")
		if !ok {
			return fields{}, fmt.Errorf("write JSON: field %s of %s has no json tag", f.Name, t)
		}
		name, options, _ := strings.Cut(tag, ",")
		if name == "-" {
			continue
		}
		fs.all = append(fs.all, field{i, name, strings.Contains(options, "omitempty"), strings.Contains(options, "omitzero")})
		fs.names = append(fs.names, name)
	}
	m.fields[t] = fs
	return fs, nil
}

func empty(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.Slice, reflect.Map, reflect.String:
		return v.Len() == 0
	case reflect.Struct:
		t, ok := v.Interface().(Value)
		return ok && t.kind == Invalid
	}
	return v.IsZero()
}
