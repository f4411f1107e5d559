package wire

import (
	"fmt"
	"reflect"
	"slices"
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
// "min1" for integers, "unit" for numbers from 0 to 1, "object" for free data,
// "scope" and "anyscope" for the scope of a check and of a query, "true" for
// booleans that are never false, "nullable" for pointers that take null, "in=a|b"
// for words, "open" for objects that may say more. Arrays take "unique", "some"
// for at least one element and, after these, the rule of their elements.
func Decode(v canon.Value, into any) error {
	d := decoder{shapes: map[reflect.Type][]field{}}
	d.value(v, reflect.ValueOf(into).Elem(), "")
	if len(d.problems) > 0 {
		return &DecodeError{d.problems}
	}
	return nil
}

// DecodeOpen is Decode for a message whose outermost object may say more.
func DecodeOpen(v canon.Value, into any) error {
	d := decoder{shapes: map[reflect.Type][]field{}}
	d.value(v, reflect.ValueOf(into).Elem(), "open")
	if len(d.problems) > 0 {
		return &DecodeError{d.problems}
	}
	return nil
}

type decoder struct {
	problems []Problem
	at       trail
	shapes   map[reflect.Type][]field
}

// trail is the way to the value in hand. It is spelled only for a problem.
type trail []step

// step goes to a member, or to an element where index is not -1.
type step struct {
	key   string
	index int
}

func (t *trail) key(k string) { *t = append(*t, step{k, -1}) }
func (t *trail) index(i int)  { *t = append(*t, step{"", i}) }
func (t *trail) back()        { *t = (*t)[:len(*t)-1] }

func (t trail) String() string {
	p := "$"
	for _, s := range t {
		if s.index >= 0 {
			p += canon.IndexStep(s.index)
		} else {
			p += canon.KeyStep(s.key)
		}
	}
	return p
}

// field is one member of a message type.
type field struct {
	name     string
	optional bool
	rule     string
}

func (d *decoder) shape(t reflect.Type) []field {
	fields, ok := d.shapes[t]
	if !ok {
		for i := range t.NumField() {
			f := t.Field(i)
			name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
			fields = append(fields, field{name, options != "", f.Tag.Get("wire")})
		}
		d.shapes[t] = fields
	}
	return fields
}

func (d *decoder) add(reason string, a ...any) {
	if len(d.problems) < maxProblems {
		d.problems = append(d.problems, Problem{d.at.String(), fmt.Sprintf(reason, a...)})
	}
}

var (
	valueType = reflect.TypeFor[canon.Value]()
	checkType = reflect.TypeFor[checker]()

	valueCheckType = reflect.TypeFor[valueChecker]()
)

func (d *decoder) value(v canon.Value, into reflect.Value, rule string) {
	before := len(d.problems)
	switch t := into.Type(); {
	case t == valueType:
		if rule == "object" && v.Kind() != canon.Object {
			d.add("object expected, not %s", v.Kind())
			return
		}
		if rule == "scope" || rule == "anyscope" {
			if err := checkScope(v, rule == "anyscope"); err != nil {
				d.add("%s", err)
				return
			}
		}
		*into.Addr().Interface().(*canon.Value) = v
		return
	case t.Kind() == reflect.Pointer:
		if v.Kind() == canon.Null && rule == "nullable" {
			return
		}
		into.Set(reflect.New(t.Elem()))
		d.value(v, into.Elem(), rule)
		return
	case t.Kind() == reflect.Struct:
		d.object(v, into, rule == "open")
	case t.Kind() == reflect.Slice:
		d.array(v, into, rule)
	case t.Kind() == reflect.String:
		d.text(v, into, rule)
	case t.Kind() == reflect.Bool:
		if v.Kind() != canon.Bool {
			d.add("boolean expected, not %s", v.Kind())
			return
		}
		if rule == "true" && !v.Truth() {
			d.add("true expected")
		}
		into.SetBool(v.Truth())
	case t.Kind() == reflect.Int || t.Kind() == reflect.Int64:
		d.integer(v, into, rule)
	case t.Kind() == reflect.Float64:
		f, ok := v.Float()
		if !ok {
			d.add("number expected, not %s", v.Kind())
		} else if rule == "unit" && !(f >= 0 && f <= 1) {
			d.add("number outside 0 to 1")
		}
		into.SetFloat(f)
	default:
		d.add("cannot decode into %s", t)
	}
	if len(d.problems) > before {
		return
	}
	if into.Type().Implements(checkType) {
		if err := into.Addr().Interface().(checker).Check(); err != nil {
			d.add("%s", err)
		}
	}
	if len(d.problems) == before && into.Type().Implements(valueCheckType) {
		if err := into.Addr().Interface().(valueChecker).CheckValue(v); err != nil {
			d.add("%s", err)
		}
	}
}

func (d *decoder) integer(v canon.Value, into reflect.Value, rule string) {
	n, ok := v.Int()
	switch {
	case v.Kind() != canon.Number:
		d.add("integer expected, not %s", v.Kind())
	case !ok:
		d.add("%.40q is no plain integer in range", v.Str())
	case rule == "min0" && n < 0, rule == "min1" && n < 1:
		d.add("integer %d is too small", n)
	case into.OverflowInt(n):
		d.add("integer %d is too large", n)
	default:
		into.SetInt(n)
	}
}

func (d *decoder) text(v canon.Value, into reflect.Value, rule string) {
	if v.Kind() != canon.String {
		d.add("string expected, not %s", v.Kind())
		return
	}
	s := v.Str()
	into.SetString(s)
	words, isEnum := strings.CutPrefix(rule, "in=")
	switch {
	case rule == "nonempty" && s == "":
		d.add("empty string")
	case rule == "time":
		if _, err := time.Parse(time.RFC3339Nano, s); err != nil {
			d.add("%.60q is no RFC 3339 time", s)
		}
	case isEnum:
		if err := oneOf(s, strings.Split(words, "|")...); err != nil {
			d.add("%s", err)
		}
	}
}

func (d *decoder) array(v canon.Value, into reflect.Value, rule string) {
	if v.Kind() != canon.Array {
		d.add("array expected, not %s", v.Kind())
		return
	}
	out := reflect.MakeSlice(into.Type(), v.Len(), v.Len())
	var seen map[string]int
	var text []byte // of the element in hand
	for more := true; more; {
		var word string
		switch word, _, _ = strings.Cut(rule, ","); word {
		case "unique":
			seen = make(map[string]int, v.Len())
		case "some":
			if v.Len() == 0 {
				d.add("at least one element expected")
				return
			}
		default:
			more = false
			continue
		}
		rule = strings.TrimPrefix(rule[len(word):], ",")
	}
	for i, e := range v.Elements() {
		if len(d.problems) >= maxProblems {
			return
		}
		d.at.index(i)
		if seen != nil {
			text = e.Append(text[:0])
			if j, dup := seen[string(text)]; dup {
				d.add("same as element %d", j)
			}
			seen[string(text)] = i
		}
		d.value(e, out.Index(i), rule)
		d.at.back()
	}
	into.Set(out)
}

func (d *decoder) object(v canon.Value, into reflect.Value, open bool) {
	if v.Kind() != canon.Object {
		d.add("object expected, not %s", v.Kind())
		return
	}
	fields := d.shape(into.Type())
	known := 0
	for i, f := range fields {
		m, ok := v.Get(f.name)
		if !ok {
			if !f.optional {
				d.add("member %s is missing", f.name)
			}
			continue
		}
		known++
		d.at.key(f.name)
		d.value(m, into.Field(i), f.rule)
		d.at.back()
	}
	if open || known == v.Len() {
		return
	}
	for k := range v.Members() {
		if !slices.ContainsFunc(fields, func(f field) bool { return f.name == k }) {
			d.at.key(k)
			d.add("unknown member")
			d.at.back()
		}
	}
}
