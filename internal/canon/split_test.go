package canon_test

import (
	"strings"
	"testing"

	"github.com/aspengine/asp/internal/canon"
)

func TestSplitRefuses(t *testing.T) {
	for _, s := range []string{
		``, `{`, `[]`, `{}x`, `{"a":1`, `{"a":}`, `{"a"}`, `{"a":1,}`, `{"a":1}}`, `{"a":{}`, `{"a":[}`, `{"a" :1}`, `{a:1}`,
		`{"\u0061":1}`, `{"a":"}`, `{"a":1}{"b":2}`, `{"a":"\"}`,
	} {
		if m, ok := canon.Split([]byte(s)); ok {
			// Brackets are counted, not matched; the digest guards the rest.
			t.Errorf("%s: cut into %q", s, m)
		}
	}
}

// FuzzSplit: whatever Parse reads as an object and writes again is cut into
// the same members.
func FuzzSplit(f *testing.F) {
	for _, s := range []string{`{}`, `{"a":{"b":[1,"}\\\"",{}]},"c":"x,y","d":null}`, `{"k":[[],[{}]]}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		canon.Split(in) // any bytes: no panic
		v, err := canon.Parse(in, canon.Limits{})
		if err != nil || v.Kind() != canon.Object {
			return
		}
		text := v.Bytes()
		got, ok := canon.Split(text)
		if !ok {
			for k := range v.Members() {
				if strings.ContainsFunc(k, func(r rune) bool { return r < 0x20 || r > 0x7e || r == '"' || r == '\\' }) {
					return
				}
			}
			t.Fatalf("%q is not cut", text)
		}
		if len(got) != v.Len() {
			t.Fatalf("%d members of %q", len(got), text)
		}
		for _, m := range got {
			if want, ok := v.Get(m.Key); !ok || string(want.Bytes()) != string(m.Text) {
				t.Errorf("%q: %q is %q", text, m.Key, m.Text)
			}
		}
	})
}
