// Package canon reads JSON strictly into a tree of values and writes such
// trees in one canonical form, so that a digest of a message means the message
// and nothing else.
//
// Reading refuses everything on which two readers could disagree: duplicate
// keys, keys that differ only in case, lone surrogates, invalid UTF-8, trailing
// data, numbers outside the grammar or the range of a double, and input over
// the limits. encoding/json is too kind on most of these, and its encoder
// escapes what RFC 8785 leaves alone, so it is used for neither direction.
//
// Canonical form: no white space, keys sorted by UTF-16 code units, strings
// escaped only where JSON demands it, integers as their plain literals (of any
// size, never rounded to a double; -0 is 0), other numbers as ECMAScript writes
// them. Reading a canonical form and writing it again gives the same bytes.
package canon

import (
	"crypto/sha256"
	"encoding/hex"
	"iter"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
)

// Kind says what a Value is.
type Kind uint8

// The kinds of JSON. The zero Value is Invalid: no JSON value at all.
const (
	Invalid Kind = iota
	Null
	Bool
	Number
	String
	Array
	Object
)

// String names the kind the way messages do.
func (k Kind) String() string {
	switch k {
	case Null:
		return "null"
	case Bool:
		return "boolean"
	case Number:
		return "number"
	case String:
		return "string"
	case Array:
		return "array"
	case Object:
		return "object"
	}
	return "nothing"
}

// Value is one JSON value. It is immutable and may be shared between
// goroutines. Values from Parse share memory with one copy of the input.
type Value struct {
	kind Kind
	s    string // string content, number literal, "true" or "false"
	sub  *children
}

type children struct {
	keys  []string // of an object, as they came; nil for arrays
	items []Value
	// text is the canonical form once it was written, of long arrays only: the
	// same plan is digested alone, under another name and inside a request, and
	// nearly all of it is one array.
	text atomic.Pointer[[]byte]
}

// long is the number of elements from which an array keeps its canonical form.
const long = 32

// Kind returns what v is.
func (v Value) Kind() Kind { return v.kind }

// Str returns the content of a string, the literal of a number as it was
// written, and "" for everything else.
func (v Value) Str() string {
	if v.kind == String || v.kind == Number {
		return v.s
	}
	return ""
}

// Truth tells whether v is true.
func (v Value) Truth() bool { return v.kind == Bool && v.s == "true" }

// Len is the number of elements of an array or members of an object.
func (v Value) Len() int {
	if v.sub == nil {
		return 0
	}
	return len(v.sub.items)
}

// At returns element i of an array, or the value of member i of an object in
// the order of the input.
func (v Value) At(i int) Value { return v.sub.items[i] }

// Key returns the key of member i of an object.
func (v Value) Key(i int) string { return v.sub.keys[i] }

// Get returns the member of an object. On anything else, and where there is no
// such member, the result is the invalid Value and false.
func (v Value) Get(key string) (Value, bool) {
	if v.kind != Object || v.sub == nil {
		return Value{}, false
	}
	for i, k := range v.sub.keys {
		if k == key {
			return v.sub.items[i], true
		}
	}
	return Value{}, false
}

// Members ranges over the members of an object in the order of the input.
func (v Value) Members() iter.Seq2[string, Value] {
	return func(yield func(string, Value) bool) {
		if v.kind != Object || v.sub == nil {
			return
		}
		for i, k := range v.sub.keys {
			if !yield(k, v.sub.items[i]) {
				return
			}
		}
	}
}

// Elements ranges over the elements of an array.
func (v Value) Elements() iter.Seq2[int, Value] {
	return func(yield func(int, Value) bool) {
		if v.kind != Array || v.sub == nil {
			return
		}
		for i, e := range v.sub.items {
			if !yield(i, e) {
				return
			}
		}
	}
}

// Int returns the number as an int64. ok is false when v is no number, is not
// written as a plain integer literal (1e3 and 1.0 are not, nor is -0), or does
// not fit.
func (v Value) Int() (n int64, ok bool) {
	if v.kind != Number || !plainInteger(v.s) || v.s == "-0" {
		return 0, false
	}
	n, err := strconv.ParseInt(v.s, 10, 64)
	return n, err == nil
}

// Float returns the number as a double, rounded to nearest.
func (v Value) Float() (f float64, ok bool) {
	if v.kind != Number {
		return 0, false
	}
	f, err := strconv.ParseFloat(v.s, 64)
	return f, err == nil
}

func plainInteger(lit string) bool {
	for i := range len(lit) {
		if c := lit[i]; c == '.' || c == 'e' || c == 'E' {
			return false
		}
	}
	return true
}

// Member is one key and value of an object to be built.
type Member struct {
	Key   string
	Value Value
}

// NullOf, BoolOf, StringOf, IntOf, ArrayOf and ObjectOf build values. Strings must
// be valid UTF-8; writing a tree with an invalid one writes U+FFFD in its place,
// so foreign bytes go through Parse or From, which refuse them.
func NullOf() Value { return Value{kind: Null, s: "null"} }

// BoolOf makes a boolean.
func BoolOf(b bool) Value { return Value{kind: Bool, s: strconv.FormatBool(b)} }

// StringOf makes a string.
func StringOf(s string) Value { return Value{kind: String, s: s} }

// IntOf makes an integer.
func IntOf(n int64) Value { return Value{kind: Number, s: strconv.FormatInt(n, 10)} }

// ArrayOf makes an array that keeps the slice.
func ArrayOf(items ...Value) Value { return Value{kind: Array, sub: &children{items: items}} }

// ObjectOf makes an object; of members with the same key the last one counts.
func ObjectOf(members ...Member) Value {
	c := &children{keys: make([]string, 0, len(members)), items: make([]Value, 0, len(members))}
	at := make(map[string]int, len(members))
	for _, m := range members {
		if i, ok := at[m.Key]; ok {
			c.items[i] = m.Value
			continue
		}
		at[m.Key] = len(c.keys)
		c.keys, c.items = append(c.keys, m.Key), append(c.items, m.Value)
	}
	return Value{kind: Object, sub: c}
}

// Without returns the object v less one member; v itself where it has none.
func (v Value) Without(key string) Value {
	if _, ok := v.Get(key); !ok {
		return v
	}
	c := &children{}
	for k, m := range v.Members() {
		if k != key {
			c.keys, c.items = append(c.keys, k), append(c.items, m)
		}
	}
	return Value{kind: Object, sub: c}
}

// With returns the object v with one member set: in its place where v has it,
// at the end otherwise. Both share the other members.
func (v Value) With(key string, m Value) Value {
	c := &children{}
	found := false
	for k, old := range v.Members() {
		if k == key {
			old, found = m, true
		}
		c.keys, c.items = append(c.keys, k), append(c.items, old)
	}
	if !found {
		c.keys, c.items = append(c.keys, key), append(c.items, m)
	}
	return Value{kind: Object, sub: c}
}

// Equal tells whether a and b have the same canonical form. The order of keys
// and the spelling of escapes and fractions do not matter; the presence of a
// member does.
func Equal(a, b Value) bool {
	if a.kind != b.kind || a.Len() != b.Len() {
		return false
	}
	switch a.kind {
	case Number:
		return a.s == b.s || string(appendNumber(nil, a.s)) == string(appendNumber(nil, b.s))
	case Array:
		for i := range a.Len() {
			if !Equal(a.At(i), b.At(i)) {
				return false
			}
		}
		return true
	case Object:
		ia, ib := sortedKeys(a.sub.keys), sortedKeys(b.sub.keys)
		for i := range ia {
			x, y := ia[i], ib[i]
			if a.sub.keys[x] != b.sub.keys[y] || !Equal(a.sub.items[x], b.sub.items[y]) {
				return false
			}
		}
		return true
	}
	return a.s == b.s
}

// Digest is the SHA-256 of the canonical form of v.
func Digest(v Value) [sha256.Size]byte {
	b := forDigests.Get().(*[]byte)
	defer forDigests.Put(b)
	*b = v.Append(slices.Grow((*b)[:0], v.room()))
	return sha256.Sum256(*b)
}

// forDigests is room for forms of which only the digest is wanted: a plan and its
// changeset have some each, and memory that nobody touched yet costs more than writing it.
var forDigests = sync.Pool{New: func() any { return new([]byte) }}

// DigestText is Digest in the form that digests take in text: sha256:<hex>.
func DigestText(v Value) string {
	d := Digest(v)
	return "sha256:" + hex.EncodeToString(d[:])
}
