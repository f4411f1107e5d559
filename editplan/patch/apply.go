package patch

import (
	"bytes"
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
)

// Options choose how hunks may be placed. The zero value is the strict one: all
// context must match, byte for byte; the lines may have moved.
type Options struct {
	// Fuzz is how many context lines at each end of a hunk may be left out of
	// the comparison. With it, a hunk without context at an end may also
	// match elsewhere than at that end of the file. Every use is reported.
	Fuzz int
	// ZeroContext says that the patch was made without context, so that a hunk
	// without any stands for the lines that it states and not for a whole
	// file. It is found out without this option wherever a hunk of the file
	// can mean nothing else, and then holds for hunks that remove lines, which
	// must be there. One that only inserts has nothing to compare: without this
	// option it is taken at the end of the file alone.
	ZeroContext bool
	// Limits bound the result of a binary change.
	Limits Limits
}

// HunkReport says where a hunk went.
type HunkReport struct {
	Hunk   int // from 1
	Line   int // of the patch
	At     int // line of the file, as earlier hunks left it, where the lines that were compared begin, from 1
	Offset int // lines that it is away from where it said
	Fuzz   int // context lines left out at an end
	// A hunk claims to begin the file by its line number, and to end it by having no
	// context behind its changes. These tell of claims that were given up and are
	// untrue of the place.
	NotFirst, NotLast bool
}

// HunkFailure says why a hunk has no place. Binary changes have one of number 0.
type HunkFailure struct {
	Hunk   int // from 1
	Line   int // of the patch
	At     int // line of the file where it was tried first, from 1; 0 if none
	Want   string
	Got    string // both cut, without newline; the first difference at At
	Reason string // one sentence
	// Unfit: the patch itself lacks what it takes or contradicts itself, so that it
	// fits no state of the file.
	Unfit bool
}

// Outcome is what Apply found. New is nil if there are failures.
type Outcome struct {
	New      []byte
	Reports  []HunkReport // of all hunks that have a place, in order
	Failures []HunkFailure
}

// maxWork bounds the search for the places of the hunks of one file: places
// looked at, and every 64 bytes compared. Only input made for it gets there.
const maxWork = 20_000_000

// Apply makes the new content of a file from the old. It tries every hunk even
// after one failed, so that all failures are listed. It does not look at names
// or modes. A hunk never overlaps what an earlier one of the same patch wrote.
func Apply(fp *FilePatch, old []byte, o Options) Outcome {
	if fp.Binary != nil {
		return applyBinary(fp, old, o.Limits.withDefaults().Result)
	}
	if len(fp.Hunks) == 0 {
		if fp.Kind == Delete && len(old) > 0 {
			return Outcome{Failures: []HunkFailure{{Line: fp.Line, Reason: "the patch removes an empty file, and the file is not empty"}}}
		}
		return Outcome{New: old}
	}
	im := newImage(old, maxWork)
	zero := o.ZeroContext || statesLines(fp)
	var out Outcome
	var scratch []byte
	drift := 0 // by which hunks that failed would have moved the later ones
	for i := range fp.Hunks {
		h := &fp.Hunks[i]
		c := split(h, scratch)
		scratch = c.pre.b
		exact := zero && h.bare()
		blind := exact && !o.ZeroContext && h.OldLines == 0 && nominal(h)-drift < im.lines()
		var rep HunkReport
		ok := false
		if !blind {
			rep, ok = im.find(h, c, -drift, exact, o.Fuzz)
		}
		if !ok {
			f := im.explain(h, c, -drift)
			if blind {
				f = HunkFailure{Line: h.Line, At: max(nominal(h)-drift, 0) + 1, Reason: "an insertion without context has no line to compare, and only --unidiff-zero trusts its line number"}
			}
			f.Hunk = i + 1
			out.Failures = append(out.Failures, f)
			drift += h.NewLines - h.OldLines
			continue
		}
		rep.Hunk, rep.Line = i+1, h.Line
		out.Reports = append(out.Reports, rep)
	}
	if len(out.Failures) > 0 {
		return out
	}
	out.New = im.bytes()
	if fp.Kind == Delete && len(out.New) > 0 {
		return Outcome{Reports: out.Reports, Failures: []HunkFailure{{
			Line: fp.Line, At: 1, Got: clip(im.old(0)), Reason: "the patch removes the file, and the file has more lines than the patch",
		}}}
	}
	return out
}

// statesLines tells whether the patch cannot have been made with context: a
// hunk without any that is not at the beginning.
func statesLines(fp *FilePatch) bool {
	for i := range fp.Hunks {
		if h := &fp.Hunks[i]; h.bare() && (h.OldStart > 1 || h.OldStart == 1 && h.OldLines == 0) {
			return true
		}
	}
	return false
}

// text is some lines as one piece. Only the last may lack its LF in a patch
// that makes sense; one that does not matches nothing, since the count of lines
// and the bytes cannot both be those of a file.
type text struct {
	b []byte
	n int // lines
}

func (t *text) add(line []byte) {
	t.b = append(t.b, line...)
	t.n++
}

// cutFirst and cutLast take a line off.
func (t *text) cutFirst() {
	if i := bytes.IndexByte(t.b, '\n'); i >= 0 {
		t.b, t.n = t.b[i+1:], t.n-1
	}
}

func (t *text) cutLast() {
	i := bytes.LastIndexByte(bytes.TrimSuffix(t.b, []byte{'\n'}), '\n')
	t.b, t.n = t.b[:i+1], t.n-1
}

// content is a hunk taken apart. It holds lines as whole pieces and not one by
// one: a patch of many short lines would cost many times its size.
type content struct{ pre, post text }

// split reads the lines of a hunk. Body was checked by Parse; a body that was
// not is read as far as it makes sense. scratch is used for what comes before.
func split(h *Hunk, scratch []byte) content {
	c := content{pre: text{b: slices.Grow(scratch[:0], len(h.Body))}, post: text{b: make([]byte, 0, len(h.Body))}}
	for b := h.Body; len(b) > 0; {
		n := bytes.IndexByte(b, '\n') + 1
		if n == 0 {
			n = len(b)
		}
		line := b[:n]
		b = b[n:]
		body := line[1:]
		if line[0] == '\n' {
			body = line
		}
		if len(b) > 0 && b[0] == '\\' {
			body = bytes.TrimSuffix(body, []byte{'\n'})
		}
		switch line[0] {
		case ' ', '\n':
			if line[0] == '\n' && len(body) == 0 {
				continue
			}
			c.pre.add(body)
			c.post.add(body)
		case '-':
			c.pre.add(body)
		case '+':
			c.post.add(body)
		}
	}
	return c
}

// nominal is the index of the line where the hunk says it is, in a file to
// which the earlier hunks have been applied.
func nominal(h *Hunk) int { return max(h.NewStart-1, 0) }

// find places a hunk into the image. shift is added to where the hunk says it
// is. exact allows that place only.
func (im *image) find(h *Hunk, c content, shift int, exact bool, fuzz int) (HunkReport, bool) {
	at := nominal(h) + shift
	if exact {
		if h.NewLines == 0 {
			at = h.NewStart + shift // the range names the line before
		}
		if at < 0 || !im.matches(c.pre, at) {
			return HunkReport{}, false
		}
		im.place(at, c.pre.n, c.post)
		return HunkReport{At: at + 1}, true
	}
	// Context is missing at an end of a hunk only at that end of the file.
	first, last := h.OldStart <= 1, h.Trailing == 0
	begin, end := first, last
	lead, trail := h.Leading, h.Trailing
	rep := HunkReport{}
	keepLead, keepTrail := max(lead-fuzz, 0), max(trail-fuzz, 0)
	for {
		if p, ok := im.search(c.pre, at, begin, end); ok {
			rep.At, rep.Offset = p+1, p-at
			rep.NotFirst, rep.NotLast = first && p != h.Leading-lead, last && p+c.pre.n != im.lines()
			im.place(p, c.pre.n, c.post)
			return rep, true
		}
		switch {
		case fuzz <= 0 || lead <= keepLead && trail <= keepTrail && !begin && !end:
			return rep, false
		case begin || end:
			begin, end = false, false
			continue
		}
		// Both ends lose a line when they are equal, else the longer one.
		front := lead > keepLead && (lead >= trail || trail == keepTrail)
		if front {
			c.pre.cutFirst()
			c.post.cutFirst()
			lead--
			at++
		}
		if trail > keepTrail && (trail > lead || !front) {
			c.pre.cutLast()
			c.post.cutLast()
			trail--
		}
		rep.Fuzz = max(h.Leading-lead, h.Trailing-trail)
	}
}

// search looks for pre at the line at, then ever further away, first after it.
func (im *image) search(pre text, at int, begin, end bool) (int, bool) {
	n := im.lines()
	try := func(p int) bool {
		return (!begin || p == 0) && (!end || p+pre.n == n) && im.matches(pre, p)
	}
	switch {
	case begin:
		return 0, try(0)
	case end:
		p := n - pre.n
		return p, p >= 0 && try(p)
	}
	at = min(max(at, 0), n)
	for d := 0; d <= n && (d == 0 || im.budget > 0); d++ {
		if p := at + d; p <= n && try(p) {
			return p, true
		}
		if p := at - d; d > 0 && p >= 0 && try(p) {
			return p, true
		}
	}
	return 0, false
}

// holds tells whether the lines of b stand at line at.
func (im *image) holds(at int, b []byte) bool {
	for ; len(b) > 0; at++ {
		k := bytes.IndexByte(b, '\n') + 1
		if k == 0 {
			k = len(b)
		}
		if got, ok := im.line(at); !ok || !bytes.Equal(got, b[:k]) {
			return false
		}
		b = b[k:]
	}
	return true
}

// explain finds the first line that differs at the place where the hunk says
// it is.
func (im *image) explain(h *Hunk, c content, shift int) HunkFailure {
	at := min(max(nominal(h)+shift, 0), im.lines())
	if h.OldStart <= 1 {
		at = 0
	}
	f := HunkFailure{Line: h.Line, At: at + 1, Reason: "the lines of the hunk are not in the file"}
	if c.post.n > 0 && im.holds(at, c.post.b) {
		f.Reason = reasonApplied
		return f
	}
	if im.budget <= 0 {
		f.Reason = "the search for the lines of the hunk was given up"
	}
	rest := c.pre.b
	for i := range c.pre.n {
		k := bytes.IndexByte(rest, '\n') + 1
		if k == 0 {
			k = len(rest)
		}
		want := rest[:k]
		rest = rest[k:]
		got, ok := im.line(at + i)
		if ok && bytes.Equal(got, want) {
			continue
		}
		f.At, f.Want = at+i+1, clip(want)
		switch {
		case !ok:
			f.Reason = "the file ends before the hunk does"
		case strings.TrimSuffix(string(got), "\n") == strings.TrimSuffix(string(want), "\n"):
			f.Reason = "the lines differ in the newline at the end of the file"
		}
		f.Got = clip(got)
		return f
	}
	if im.budget <= 0 {
		return f
	}
	f.Reason = "the lines of the hunk are where it says, but an earlier hunk wrote them or the file has lines beyond them"
	return f
}

// clip bounds a line of foreign text.
func clip(b []byte) string {
	b = bytes.TrimSuffix(b, []byte{'\n'})
	if len(b) > 200 {
		b = b[:200]
	}
	return string(b)
}

// nullID is the object id that stands for no file.
var nullID = strings.Repeat("0", sha1Hex)

// BlobID is the name that git gives to content.
func BlobID(content []byte) string {
	h := sha1.New()
	fmt.Fprintf(h, "blob %d\x00", len(content))
	h.Write(content)
	return hex.EncodeToString(h.Sum(nil))
}

// reasonApplied is a hunk whose lines are there as it would leave them.
const reasonApplied = "it seems to be applied already"

// applyBinary takes a change only with full object ids, and checks both.
func applyBinary(fp *FilePatch, old []byte, limit int64) Outcome {
	fail := func(format string, a ...any) Outcome {
		return Outcome{Failures: []HunkFailure{{Line: fp.Line, Reason: fmt.Sprintf(format, a...)}}}
	}
	unfit := func(format string, a ...any) Outcome {
		o := fail(format, a...)
		o.Failures[0].Unfit = true
		return o
	}
	if fp.Binary.Method == NoData && fp.NewID != nullID {
		return unfit("the patch was made without --binary and does not hold the data of this binary change; `git diff --binary` writes it")
	}
	if !isFullID(fp.OldID) || !isFullID(fp.NewID) {
		return unfit("a binary change needs an index line with full object ids, as `git diff --binary` writes it")
	}
	if fp.Old != "" {
		if id := BlobID(old); id != fp.OldID {
			return fail("the patch is for content %s, the file is %s", fp.OldID, id)
		}
	} else if len(old) > 0 {
		return fail("the patch is for an empty file")
	}
	if fp.NewID == nullID {
		return Outcome{New: []byte{}}
	}
	out, err := fp.Binary.apply(old, limit)
	if err != nil {
		return unfit("%v", err)
	}
	if id := BlobID(out); id != fp.NewID {
		return unfit("the patch makes content %s and promises %s", id, fp.NewID)
	}
	if fp.Kind == Delete && len(out) > 0 {
		return unfit("the patch removes the file and leaves content")
	}
	return Outcome{New: out, Reports: []HunkReport{}}
}

func isFullID(s string) bool {
	if len(s) != sha1Hex {
		return false
	}
	for i := range len(s) {
		if c := s[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}
