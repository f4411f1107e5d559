package wire

import (
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/aspengine/asp/internal/canon"
)

// Problem is one thing wrong with a message.
type Problem struct {
	Path   string // JSON path, "$" for the message itself
	Reason string // bounded, whatever the message holds
}

func (p Problem) String() string { return p.Reason + " (" + p.Path + ")" }

// maxProblems bounds what a hopeless message can make us say.
const maxProblems = 100

// DecodeError lists what is wrong with a message, in its order, at most
// a hundred entries.
type DecodeError struct{ Problems []Problem }

func (e *DecodeError) Error() string {
	s := "decode message: " + e.Problems[0].String()
	if n := len(e.Problems) - 1; n > 0 {
		s += fmt.Sprintf(" and %d more", n)
	}
	return s
}

// Decode fills into, a pointer to a message type of this package, from v. The
// error is a *DecodeError with every problem found; into is then undefined.
//
// Field tags beside json: wire:"nonempty" and wire:"time" for strings, "min0" and
// "min1" for integers, "unit" for numbers from 0 to 1, "unique" for arrays,
// "object" for free data, "true" for booleans that are never false, "nullable" for pointers that take null, "in=a|b" for words.
func Decode(v canon.Value, into any) error {
	d := decoder{}
	d.value(v, reflect.ValueOf(into).Elem(), "$", "")
	if len(d.problems) > 0 {
		return &DecodeError{d.problems}
	}
	return nil
}

type decoder struct{ problems []Problem }

func (d *decoder) add(path, reason string, a ...any) {
	if len(d.problems) < maxProblems {
		d.problems = append(d.problems, Problem{path, fmt.Sprintf(reason, a...)})
	}
}

var (
	valueType = reflect.TypeFor[canon.Value]()
	checkType = reflect.TypeFor[checker]()

	valueCheckType = reflect.TypeFor[valueChecker]()
)

func (d *decoder) value(v canon.Value, into reflect.Value, path, rule string) {
	before := len(d.problems)
	switch t := into.Type(); {
	case t == valueType:
		if rule == "object" && v.Kind() != canon.Object {
			d.add(path, "object expected, not %s", v.Kind())
			return
		}
		into.Set(reflect.ValueOf(v))
		return
	case t.Kind() == reflect.Pointer:
		if v.Kind() == canon.Null && rule == "nullable" {
			return
		}
		into.Set(reflect.New(t.Elem()))
		d.value(v, into.Elem(), path, rule)
		return
	case t.Kind() == reflect.Struct:
		d.object(v, into, path)
	case t.Kind() == reflect.Slice:
		d.array(v, into, path, rule)
	case t.Kind() == reflect.String:
		d.text(v, into, path, rule)
	case t.Kind() == reflect.Bool:
		if v.Kind() != canon.Bool {
			d.add(path, "boolean expected, not %s", v.Kind())
			return
		}
		if rule == "true" && !v.Truth() {
			d.add(path, "true expected")
		}
		into.SetBool(v.Truth())
	case t.Kind() == reflect.Int || t.Kind() == reflect.Int64:
		d.integer(v, into, path, rule)
	case t.Kind() == reflect.Float64:
		f, ok := v.Float()
		if !ok {
			d.add(path, "number expected, not %s", v.Kind())
		} else if rule == "unit" && !(f >= 0 && f <= 1) {
			d.add(path, "number outside 0 to 1")
		}
		into.SetFloat(f)
	default:
		d.add(path, "cannot decode into %s", t)
	}
	if len(d.problems) == before && into.Type().Implements(checkType) {
		if err := into.Interface().(checker).Check(); err != nil {
			d.add(path, "%s", err)
		}
	}
	if len(d.problems) == before && into.Type().Implements(valueCheckType) {
		if err := into.Interface().(valueChecker).CheckValue(v); err != nil {
			d.add(path, "%s", err)
		}
	}
}

func (d *decoder) integer(v canon.Value, into reflect.Value, path, rule string) {
	n, ok := v.Int()
	switch {
	case v.Kind() != canon.Number:
		d.add(path, "integer expected, not %s", v.Kind())
	case !ok:
		d.add(path, "%.40q is no plain integer in range", v.Str())
	case rule == "min0" && n < 0, rule == "min1" && n < 1:
		d.add(path, "integer %d is too small", n)
	case into.OverflowInt(n):
		d.add(path, "integer %d is too large", n)
	default:
		into.SetInt(n)
	}
}

func (d *decoder) text(v canon.Value, into reflect.Value, path, rule string) {
	if v.Kind() != canon.String {
		d.add(path, "string expected, not %s", v.Kind())
		return
	}
	s := v.Str()
	into.SetString(s)
	words, isEnum := strings.CutPrefix(rule, "in=")
	switch {
	case rule == "nonempty" && s == "":
		d.add(path, "empty string")
	case rule == "time":
		if _, err := time.Parse(time.RFC3339Nano, s); err != nil {
			d.add(path, "%.60q is no RFC 3339 time", s)
		}
	case isEnum:
		if err := oneOf(s, strings.Split(words, "|")...); err != nil {
			d.add(path, "%s", err)
		}
	}
}

func (d *decoder) array(v canon.Value, into reflect.Value, path, rule string) {
	if v.Kind() != canon.Array {
		d.add(path, "array expected, not %s", v.Kind())
		return
	}
	out := reflect.MakeSlice(into.Type(), v.Len(), v.Len())
	var seen map[string]int
	if rule == "unique" {
		seen = make(map[string]int, v.Len())
	}
	for i, e := range v.Elements() {
		if len(d.problems) >= maxProblems {
			return
		}
		at := path + canon.IndexStep(i)
		if seen != nil {
			k := string(e.Bytes())
			if j, dup := seen[k]; dup {
				d.add(at, "same as element %d", j)
			}
			seen[k] = i
		}
		d.value(e, out.Index(i), at, "")
	}
	into.Set(out)
}

func (d *decoder) object(v canon.Value, into reflect.Value, path string) {
	if v.Kind() != canon.Object {
		d.add(path, "object expected, not %s", v.Kind())
		return
	}
	t := into.Type()
	known := 0
	for i := range t.NumField() {
		f := t.Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		m, ok := v.Get(name)
		if !ok {
			if options == "" {
				d.add(path, "member %s is missing", name)
			}
			continue
		}
		known++
		d.value(m, into.Field(i), path+canon.KeyStep(name), f.Tag.Get("wire"))
	}
	if known == v.Len() {
		return
	}
	for k := range v.Members() {
		if !hasField(t, k) {
			d.add(path+canon.KeyStep(k), "unknown member")
		}
	}
}

func hasField(t reflect.Type, key string) bool {
	for i := range t.NumField() {
		if name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ","); name == key {
			return true
		}
	}
	return false
}
