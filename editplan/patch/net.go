package patch

import (
	"bytes"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/aspengine/asp/editplan"
	"github.com/aspengine/asp/editplan/patch/linediff"
	"github.com/aspengine/asp/snapshot"
)

// drafts turns the difference between was and now of all nodes into operations.
// Only the difference counts: a file that was changed twice is one operation,
// one that was taken away and made again is modified and never absent.
//
//  1. deletions, so that names become free
//  2. renames, each once its destination is free
//  3. modifications and creations
//
// A rename that can never have its turn, since files trade places or a file
// becomes the directory it moves to, is told as content instead.
func (im *importer) drafts() []editplan.Draft {
	t := &teller{is: map[*node]Entry{}, under: map[string]int{}, im: im}
	for _, n := range im.order {
		if n.was.Exists && !n.was.Dir {
			t.set(n, n.was)
		}
	}
	renames := t.renames()
	source := map[*node]bool{}
	for _, n := range renames {
		source[n.from] = true
	}
	for _, n := range im.order {
		if t.is[n].Exists && !n.now.Exists && !source[n] {
			t.delete(n)
		}
	}
	for len(renames) > 0 {
		var waiting []*node
		for _, n := range renames {
			if !t.rename(n) {
				waiting = append(waiting, n)
			}
		}
		if len(waiting) == len(renames) {
			break
		}
		renames = waiting
	}
	for _, n := range im.order {
		if t.is[n].Exists && !n.now.Exists {
			t.delete(n)
		}
	}
	for _, n := range im.order {
		if n.now.Exists && !n.now.Dir {
			t.write(n)
		}
	}
	return t.out
}

func (e Entry) digest() snapshot.Digest {
	if e.Digest.IsZero() {
		return snapshot.DigestOf(e.Bytes)
	}
	return e.Digest
}

// teller keeps the state that the operations so far lead to.
type teller struct {
	im    *importer
	is    map[*node]Entry
	under map[string]int // how many existing nodes lie below a directory
	out   []editplan.Draft
}

func (t *teller) set(n *node, e Entry) {
	step := 0
	if e.Exists {
		step++
	}
	if t.is[n].Exists {
		step--
	}
	t.is[n] = e
	for p := n.path; step != 0; {
		i := strings.LastIndexByte(p, '/')
		if i < 0 {
			return
		}
		p = p[:i]
		t.under[p] += step
	}
}

// renames picks the destinations of renames that may be told as such: each
// source once, and only if what stood at the destination moves on as well.
func (t *teller) renames() []*node {
	var out []*node
	used, moves := map[*node]bool{}, map[*node]bool{}
	for _, n := range t.im.order {
		if n.now.Exists {
			moves[n.from] = true
		}
	}
	for _, n := range t.im.order {
		if n.from == nil || !n.now.Exists || used[n.from] {
			continue
		}
		if n.was.Exists && !moves[n] {
			continue
		}
		used[n.from] = true
		out = append(out, n)
	}
	return out
}

func (t *teller) delete(n *node) {
	t.out = append(t.out, editplan.Draft{Kind: editplan.Delete, Path: n.path, Expected: t.is[n].digest()})
	t.set(n, Entry{})
}

// rename tells the rename that leads to n, if its destination is free now.
func (t *teller) rename(n *node) bool {
	src := n.from
	if t.is[n].Exists || t.under[n.path] > 0 || !t.is[src].Exists {
		return false
	}
	for i := range len(n.path) {
		if n.path[i] != '/' {
			continue
		}
		if above := t.im.nodes[n.path[:i]]; above != nil && t.is[above].Exists {
			return false
		}
	}
	e := t.is[src]
	t.out = append(t.out, editplan.Draft{Kind: editplan.Rename, Path: src.path, To: n.path, Expected: e.digest()})
	t.set(src, Entry{})
	t.set(n, e)
	return true
}

// write brings n to its last state from whatever it is in.
func (t *teller) write(n *node) {
	is, now := t.is[n], n.now
	d := editplan.Draft{Path: n.path}
	if is.Mode&0o111 != now.Mode&0o111 {
		d.Mode = editplan.ModePlain
		if now.Mode&0o111 != 0 {
			d.Mode = editplan.ModeExec
		}
	}
	switch {
	case !is.Exists:
		d.Kind, d.Content, d.HasContent = editplan.Create, now.Bytes, true
		if now.Mode != snapshot.ModeExecutable {
			d.Mode = editplan.ModeKeep
		}
	case bytes.Equal(is.Bytes, now.Bytes) && d.Mode == editplan.ModeKeep:
		return
	default:
		d.Kind, d.Expected = editplan.Modify, is.digest()
		if bytes.Equal(is.Bytes, now.Bytes) {
			break
		}
		if d.Edits = TextEdits(is.Bytes, now.Bytes); d.Edits == nil {
			d.Content, d.HasContent = now.Bytes, true
		}
	}
	t.out = append(t.out, d)
	t.set(n, now)
}

// maxDiffed is how much text TextEdits compares by lines; more, and what lies
// between the common beginning and end is replaced as one.
const maxDiffed = 16 << 20

// TextEdits tells the difference between two texts as edits of whole lines, in
// order and apart from each other. nil if there is no difference, if there was
// nothing before, or if one of the two is not valid UTF-8 and edits have no
// meaning.
func TextEdits(old, new []byte) []editplan.TextEdit {
	if len(old) == 0 || bytes.Equal(old, new) || !utf8.Valid(old) || !utf8.Valid(new) {
		return nil
	}
	lo, oldHi, newHi := middle(old, new)
	pos := newWalker(old)
	if oldHi+newHi-2*lo > maxDiffed {
		start := pos.to(lo)
		return []editplan.TextEdit{{Start: start, End: pos.to(oldHi), NewText: string(new[lo:newHi])}}
	}
	a, b := linediff.Lines(old[lo:oldHi]), linediff.Lines(new[lo:newHi])
	var out []editplan.TextEdit
	oldOff, newOff, i, j := lo, lo, 0, 0
	for _, c := range linediff.Diff(a, b) {
		oldOff, newOff = oldOff+size(a[i:c.A0]), newOff+size(b[j:c.B0])
		oldEnd, newEnd := oldOff+size(a[c.A0:c.A1]), newOff+size(b[c.B0:c.B1])
		start := pos.to(oldOff)
		out = append(out, editplan.TextEdit{Start: start, End: pos.to(oldEnd), NewText: string(new[newOff:newEnd])})
		oldOff, newOff, i, j = oldEnd, newEnd, c.A1, c.B1
	}
	return out
}

// middle is what lies between the lines that two different texts have in common
// at the beginning and at the end.
func middle(a, b []byte) (lo, aHi, bHi int) {
	n, _ := linediff.Common(a, b)
	lo = bytes.LastIndexByte(a[:n], '\n') + 1
	_, tail := linediff.Common(a[lo:], b[lo:])
	aHi, bHi = len(a)-tail, len(b)-tail
	// Forward again to the end of a line in both.
	for aHi < len(a) && (aHi > lo && a[aHi-1] != '\n' || bHi > lo && b[bHi-1] != '\n') {
		aHi++
		bHi++
	}
	return lo, aHi, bHi
}

func size(lines [][]byte) int {
	n := 0
	for _, l := range lines {
		n += len(l)
	}
	return n
}

// walker turns rising byte offsets into positions in one pass. A line of a
// position ends at LF, CRLF or a lone CR, so it is not a line of the diff.
type walker struct {
	text      []byte
	lone      bool // there are CRs, which may end lines of their own
	off, line int
	start     int // of the line, in bytes
}

func newWalker(text []byte) walker {
	return walker{text: text, lone: bytes.IndexByte(text, '\r') >= 0}
}

func (w *walker) to(off int) editplan.Pos {
	if !w.lone && off > w.off {
		passed := w.text[w.off:off]
		if n := bytes.Count(passed, []byte{'\n'}); n > 0 {
			w.line += n
			w.start = w.off + bytes.LastIndexByte(passed, '\n') + 1
		}
		w.off = off
	}
	for ; w.off < off; w.off++ {
		c := w.text[w.off]
		if c == '\n' || c == '\r' && (w.off+1 == len(w.text) || w.text[w.off+1] != '\n') {
			w.line++
			w.start = w.off + 1
		}
	}
	char := 0
	for _, r := range string(w.text[w.start:off]) {
		char += utf16.RuneLen(r)
	}
	return editplan.Pos{Line: w.line, Char: char}
}
