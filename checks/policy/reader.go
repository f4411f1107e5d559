package policy

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/aspengine/asp/internal/canon"
	"github.com/aspengine/asp/seam/wire"
)

// Error lists what is wrong with a file of the configuration.
type Error struct {
	File     string
	Problems []string // "$.path: what is wrong; what is allowed", bounded
}

const maxProblems = 20

func (e *Error) Error() string {
	s := fmt.Sprintf("%.200s: %s", e.File, e.Problems[0])
	if n := len(e.Problems) - 1; n > 0 {
		s += fmt.Sprintf(" (and %d more)", n)
	}
	return s
}

// reader walks a parsed file and collects what is wrong. After a problem it
// returns zero values and goes on, so that one look shows all.
type reader struct {
	problems []string
}

func parseFile(file string, b []byte, read func(r *reader, v canon.Value)) error {
	v, err := canon.Parse(b, canon.Limits{Bytes: MaxFile})
	if err != nil {
		return &Error{file, []string{err.Error()}}
	}
	r := &reader{}
	read(r, v)
	if len(r.problems) > 0 {
		return &Error{file, r.problems}
	}
	return nil
}

func (r *reader) fail(path, format string, a ...any) {
	if len(r.problems) < maxProblems {
		r.problems = append(r.problems, fmt.Sprintf("%.300s: %s", path, fmt.Sprintf(format, a...)))
	}
}

func (r *reader) kind(v canon.Value, path string, k canon.Kind) bool {
	if v.Kind() != k {
		r.fail(path, "%s, must be %s", v.Kind(), k)
		return false
	}
	return true
}

// object demands an object with these members and no others; a name that
// starts with ! is required.
func (r *reader) object(v canon.Value, path string, names ...string) bool {
	if !r.kind(v, path, canon.Object) {
		return false
	}
	var allowed []string
	for _, n := range names {
		n, required := strings.CutPrefix(n, "!")
		allowed = append(allowed, n)
		if _, ok := v.Get(n); required && !ok {
			r.fail(path, "member %s is missing", n)
		}
	}
	for k := range v.Members() {
		if !slices.Contains(allowed, k) {
			r.fail(path+canon.KeyStep(k), "unknown member; allowed: %s", strings.Join(allowed, ", "))
		}
	}
	return true
}

// each calls f for every member of an object whose keys are free.
func (r *reader) each(v canon.Value, path string, f func(key string, m canon.Value, path string)) {
	if !r.kind(v, path, canon.Object) {
		return
	}
	for k, m := range v.Members() {
		f(k, m, path+canon.KeyStep(k))
	}
}

// member calls f when the member is there.
func member(v canon.Value, path, key string, f func(m canon.Value, path string)) {
	if m, ok := v.Get(key); ok {
		f(m, path+canon.KeyStep(key))
	}
}

func (r *reader) text(v canon.Value, path string) string {
	if !r.kind(v, path, canon.String) {
		return ""
	}
	return v.Str()
}

func (r *reader) nonempty(v canon.Value, path string) string {
	s := r.text(v, path)
	if v.Kind() == canon.String && s == "" {
		r.fail(path, "empty, must not be")
	}
	return s
}

func (r *reader) truth(v canon.Value, path string) bool {
	return r.kind(v, path, canon.Bool) && v.Truth()
}

func (r *reader) integer(v canon.Value, path string, least int64) int64 {
	n, ok := v.Int()
	if !ok {
		r.fail(path, "must be an integer")
		return 0
	}
	if n < least || n > maxInteger {
		r.fail(path, "%d, must be between %d and %d", n, least, int64(maxInteger))
		return 0
	}
	return n
}

// maxInteger keeps sums and durations of configured numbers far from overflow.
const maxInteger = 1 << 50

func (r *reader) millis(v canon.Value, path string) time.Duration {
	n := r.integer(v, path, 1)
	if n > int64(100*24*time.Hour/time.Millisecond) {
		r.fail(path, "%d, must be under 100 days", n)
		return 0
	}
	return time.Duration(n) * time.Millisecond
}

// word demands one of the words.
func word[T ~string](r *reader, v canon.Value, path string, words ...T) T {
	s := T(r.text(v, path))
	if v.Kind() == canon.String && !slices.Contains(words, s) {
		r.fail(path, "%.60q; allowed: %s", string(s), join(words))
	}
	return s
}

func join[T ~string](words []T) string {
	var s []string
	for _, w := range words {
		s = append(s, string(w))
	}
	return strings.Join(s, ", ")
}

// list reads an array; least is its least length, unique forbids repetition.
func list[T comparable](r *reader, v canon.Value, path string, least int, unique bool, f func(v canon.Value, path string) T) []T {
	if !r.kind(v, path, canon.Array) {
		return nil
	}
	if v.Len() < least {
		r.fail(path, "%d elements, must have at least %d", v.Len(), least)
	}
	out := []T{}
	for i, e := range v.Elements() {
		p := path + canon.IndexStep(i)
		t := f(e, p)
		if unique && slices.Contains(out, t) {
			r.fail(p, "listed twice")
		}
		out = append(out, t)
	}
	return out
}

var (
	callSites = []wire.CallSite{wire.Interactive, wire.Gate, wire.Sweep}
	families  = []wire.Family{wire.Inspect, wire.Check, wire.Edit}
	modes     = []wire.Mode{wire.Advisory, wire.Gated, wire.MediatedWrite, wire.Isolated}
)

// commandName takes the prefix off the id of a command check.
func commandName(id string) (string, bool) { return strings.CutPrefix(id, CommandPrefix) }
