package conformance

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"github.com/aspengine/asp/internal/canon"
)

// member names one value of an object; v is a string, a whole number, a truth,
// a list of strings, a value or a list of values. Anything else becomes null,
// which no reader of ours takes for an answer.
func member(key string, v any) canon.Member { return canon.Member{Key: key, Value: valueOf(v)} }

// object makes an object; see member for what a value may be.
func object(members ...canon.Member) canon.Value { return canon.ObjectOf(members...) }

func valueOf(v any) canon.Value {
	switch v := v.(type) {
	case canon.Value:
		return v
	case string:
		return canon.StringOf(v)
	case bool:
		return canon.BoolOf(v)
	case int:
		return canon.IntOf(int64(v))
	case int64:
		return canon.IntOf(v)
	case []string:
		items := make([]canon.Value, len(v))
		for i, s := range v {
			items[i] = canon.StringOf(s)
		}
		return canon.ArrayOf(items...)
	case []canon.Value:
		return canon.ArrayOf(v...)
	}
	return canon.NullOf()
}

// at follows member names from v; the invalid value where one is missing.
func at(v canon.Value, keys ...string) canon.Value {
	for _, k := range keys {
		v, _ = v.Get(k)
	}
	return v
}

// text is the string at the end of keys, "" where there is none.
func text(v canon.Value, keys ...string) string {
	if v = at(v, keys...); v.Kind() != canon.String {
		return ""
	}
	return v.Str()
}

// put returns v with the member at the end of keys set; objects on the way are
// made where they are missing.
func put(v canon.Value, to any, keys ...string) canon.Value {
	if len(keys) == 1 {
		return v.With(keys[0], valueOf(to))
	}
	inner := at(v, keys[0])
	if inner.Kind() != canon.Object {
		inner = object()
	}
	return v.With(keys[0], put(inner, to, keys[1:]...))
}

// drop returns v without the member at the end of keys.
func drop(v canon.Value, keys ...string) canon.Value {
	if len(keys) == 1 {
		return v.Without(keys[0])
	}
	return v.With(keys[0], drop(at(v, keys[0]), keys[1:]...))
}

// each lists the elements of an array.
func each(v canon.Value) []canon.Value {
	if v.Kind() != canon.Array {
		return nil
	}
	out := make([]canon.Value, v.Len())
	for i := range out {
		out[i] = v.At(i)
	}
	return out
}

// stringsOf lists the strings of an array.
func stringsOf(v canon.Value) []string {
	var out []string
	for _, e := range each(v) {
		if e.Kind() == canon.String {
			out = append(out, e.Str())
		}
	}
	return out
}

// blobID names content by the rule of the contract, section 5.
func blobID(content string) string {
	sum := sha256.Sum256([]byte(content))
	return "blob:sha256:" + hex.EncodeToString(sum[:])
}

// requestDigest is the digest of a request by the contract, section 5.
func requestDigest(method string, params canon.Value) string {
	return canon.DigestText(object(member("method", method), member("params", params)))
}

// clip shortens foreign text for a message.
func clip(s string, n int) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n], "") + "…"
}
