package patch

import (
	"bytes"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/aspengine/asp/editplan/patch/linediff"
	"github.com/aspengine/asp/snapshot"
)

// Change is one file before and after, to be shown. Old and Before mean nothing
// on a Create, New and After nothing on a Delete. A mode of 0 is that of an
// ordinary file.
type Change struct {
	Kind             Kind
	Old, New         string
	OldMode, NewMode snapshot.FileMode
	Before, After    []byte
}

// NoContext asks for hunks without context.
const NoContext = -1

// RenderOptions choose the form. The zero value is a patch for programs: every
// byte as it is, taken by git apply and by Parse (with NoContext: under
// --unidiff-zero and ZeroContext).
type RenderOptions struct {
	Context int // lines around a change; 0 means 3
	// Terminal makes the form for people: control characters and whatever else
	// could deceive a terminal or its reader are spelled out, in content and in
	// names, and binary and very large content is only mentioned. It is no
	// patch any more.
	Terminal bool
	// UTF8 makes a patch that is valid UTF-8, for carriers that can hold nothing
	// else (JSON): content that is not goes in as a binary patch, byte for byte.
	UTF8 bool
	// Color implies Terminal.
	Color bool
	// Width bounds the lines of Stat, in characters; 0 means 80.
	Width int
}

// Render writes the changes as one git diff.
func Render(changes []Change, o RenderOptions) []byte {
	switch {
	case o.Context == 0:
		o.Context = 3
	case o.Context < 0:
		o.Context = 0
	}
	r := &renderer{o: o, terminal: o.Terminal || o.Color}
	for _, c := range changes {
		r.change(c)
	}
	return r.out
}

type renderer struct {
	o        RenderOptions
	terminal bool
	out      []byte
}

// sides fills in what the zero values of a change mean.
func (c Change) sides() Change {
	if c.OldMode == 0 {
		c.OldMode = snapshot.ModeRegular
	}
	if c.NewMode == 0 {
		c.NewMode = snapshot.ModeRegular
	}
	switch c.Kind {
	case Create:
		c.Old, c.Before, c.OldMode = c.New, nil, c.NewMode
	case Delete:
		c.New, c.After, c.NewMode = c.Old, nil, c.OldMode
	case Modify:
		if c.Old == "" {
			c.Old = c.New
		}
		c.New = c.Old
	}
	return c
}

// maxShown is how much content is compared to be looked at. A patch for
// programs has no such limit.
const maxShown = 16 << 20

func (c Change) large() bool { return len(c.Before)+len(c.After) > maxShown }

// binary tells whether a change takes the form of a binary patch.
func (r *renderer) binary(c Change) bool {
	if r.o.UTF8 && !(utf8.Valid(c.Before) && utf8.Valid(c.After)) {
		return true
	}
	return c.binary()
}

func (c Change) binary() bool {
	return bytes.IndexByte(c.Before, 0) >= 0 || bytes.IndexByte(c.After, 0) >= 0
}

func (r *renderer) change(c Change) {
	c = c.sides()
	same := bytes.Equal(c.Before, c.After)
	if c.Kind == Modify && same && c.OldMode == c.NewMode {
		return
	}
	var a, b [][]byte
	var diff []linediff.Change
	if !same && !r.binary(c) && !(r.terminal && c.large()) {
		a, b = linediff.Lines(c.Before), linediff.Lines(c.After)
		diff = linediff.Diff(a, b)
	}
	r.head("diff --git %s %s", quote("a/"+c.Old), quote("b/"+c.New))
	switch {
	case c.Kind == Create:
		r.head("new file mode %o", c.NewMode)
	case c.Kind == Delete:
		r.head("deleted file mode %o", c.OldMode)
	case c.OldMode != c.NewMode:
		r.head("old mode %o", c.OldMode)
		r.head("new mode %o", c.NewMode)
	}
	if c.Kind == Rename || c.Kind == Copy {
		r.head("similarity index %d%%", similarity(c, len(a) == 0, a, diff))
		r.head("%s from %s", c.Kind, quote(c.Old))
		r.head("%s to %s", c.Kind, quote(c.New))
	}
	if !same || c.Kind == Create || c.Kind == Delete {
		r.index(c)
	}
	switch {
	case same:
	case r.binary(c) && r.terminal:
		r.head("binary content of %d bytes, was %d", len(c.After), len(c.Before))
	case r.terminal && c.large():
		r.head("content of %d bytes, was %d: too much to show", len(c.After), len(c.Before))
	case r.binary(c):
		r.out = append(r.out, "GIT binary patch\n"...)
		r.out = appendLiteral(r.out, c.After)
		r.out = appendLiteral(r.out, c.Before)
	default:
		r.head("--- %s", fileName(c.Kind == Create, "a/"+c.Old))
		r.head("+++ %s", fileName(c.Kind == Delete, "b/"+c.New))
		r.hunks(a, b, diff)
	}
}

// fileName is the name on a --- or +++ line. The tab tells programs where a
// name with spaces ends.
func fileName(none bool, name string) string {
	if none {
		return "/dev/null"
	}
	if q := quote(name); q != name || !strings.Contains(name, " ") {
		return q
	}
	return name + "\t"
}

const shortID = 7

func (r *renderer) index(c Change) {
	old, new := nullID, nullID
	if c.Kind != Create {
		old = BlobID(c.Before)
	}
	if c.Kind != Delete {
		new = BlobID(c.After)
	}
	if !r.binary(c) {
		old, new = old[:shortID], new[:shortID]
	}
	if c.OldMode == c.NewMode && c.Kind != Create && c.Kind != Delete {
		r.head("index %s..%s %o", old, new, c.OldMode)
	} else {
		r.head("index %s..%s", old, new)
	}
}

// similarity is how much of a file a rename or copy keeps, in percent; 100 only
// if all.
func similarity(c Change, unknown bool, a [][]byte, diff []linediff.Change) int {
	if bytes.Equal(c.Before, c.After) {
		return 100
	}
	if unknown {
		return 0
	}
	kept := len(c.Before)
	for _, d := range diff {
		kept -= size(a[d.A0:d.A1])
	}
	return min(kept*100/max(len(c.Before), len(c.After)), 99)
}

// hunks groups the changes that are near to each other.
func (r *renderer) hunks(a, b [][]byte, diff []linediff.Change) {
	ctx := r.o.Context
	title := titles{lines: a}
	for len(diff) > 0 {
		n := 1
		for n < len(diff) && diff[n].A0-diff[n-1].A1 <= 2*ctx {
			n++
		}
		first, last := diff[0], diff[n-1]
		lead, trail := min(ctx, first.A0), min(ctx, len(a)-last.A1)
		r.hunkHead(first.A0-lead, last.A1+trail, first.B0-lead, last.B1+trail, title.before(first.A0-lead))
		at := first.A0 - lead
		for _, d := range diff[:n] {
			r.lines(' ', a[at:d.A0])
			r.changed(a[d.A0:d.A1], b[d.B0:d.B1])
			at = d.A1
		}
		r.lines(' ', a[at:last.A1+trail])
		diff = diff[n:]
	}
}

func (r *renderer) hunkHead(a0, a1, b0, b1 int, title []byte) {
	head := fmt.Sprintf("@@ -%s +%s @@", spell(a0, a1), spell(b0, b1))
	if len(title) > 0 {
		title = append([]byte{' '}, title...)
	}
	r.styled(styleHunk, head)
	r.text(title)
	r.out = append(r.out, '\n')
}

// spell writes a range as hunk headers do: from 1, naming the line before if
// there are none, the count only if it is not 1.
func spell(lo, hi int) string {
	switch hi - lo {
	case 0:
		return fmt.Sprintf("%d,0", lo)
	case 1:
		return fmt.Sprint(lo + 1)
	default:
		return fmt.Sprintf("%d,%d", lo+1, hi-lo)
	}
}

// titles finds the line that says where in a file a hunk is: the last one above
// it that begins with a letter, as for functions in most languages.
type titles struct {
	lines [][]byte
	at    int
	last  []byte
}

const titleBytes = 80

func (t *titles) before(n int) []byte {
	for ; t.at < n; t.at++ {
		if l := t.lines[t.at]; l[0] == '_' || l[0] == '$' || 'a' <= l[0]|0x20 && l[0]|0x20 <= 'z' {
			t.last = l
		}
	}
	n = min(len(t.last), titleBytes)
	for n > 0 && n < len(t.last) && !utf8.RuneStart(t.last[n]) {
		n-- // no half characters
	}
	return bytes.TrimRight(t.last[:n], " \t\r\n\v\f")
}

func (r *renderer) head(format string, a ...any) {
	r.styled(styleHead, fmt.Sprintf(format, a...))
	r.out = append(r.out, '\n')
}

// lines writes lines of one kind.
func (r *renderer) lines(mark byte, lines [][]byte) {
	for _, l := range lines {
		r.line(mark, l, nil)
	}
}

const noNewlineText = `\ No newline at end of file`

// line writes one line. strong are the ranges that deserve emphasis.
func (r *renderer) line(mark byte, l []byte, strong []span) {
	text := bytes.TrimSuffix(l, []byte{'\n'})
	if !r.o.Color {
		r.out = append(r.out, mark)
		r.text(text)
	} else {
		r.colored(mark, text, strong)
	}
	r.out = append(r.out, '\n')
	if len(text) == len(l) {
		r.out = append(append(r.out, noNewlineText...), '\n')
	}
}

// changed writes what was replaced by what.
func (r *renderer) changed(del, add [][]byte) {
	if !r.o.Color || len(del) != len(add) {
		r.lines('-', del)
		r.lines('+', add)
		return
	}
	strong := make([][]span, len(add))
	for i, l := range del {
		var gone []span
		gone, strong[i] = emphasis(l, add[i])
		r.line('-', l, gone)
	}
	for i, l := range add {
		r.line('+', l, strong[i])
	}
}

// text writes foreign text in the form that was asked for.
func (r *renderer) text(b []byte) {
	if r.terminal {
		r.out = appendSafe(r.out, b)
	} else {
		r.out = append(r.out, b...)
	}
}
