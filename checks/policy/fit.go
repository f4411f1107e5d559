package policy

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/aspengine/asp/internal/canon"
	"github.com/aspengine/asp/seam/wire"
)

// defaultMessageBytes is the limit on a line where config.json has none.
const defaultMessageBytes = 16 << 20

// Findings is how many bytes the findings of one answer may take: half of a
// message, so that the rest of a verdict, which is bounded by itself, has its place.
func (l Limits) Findings() int64 {
	if l.MessageBytes > 0 {
		return l.MessageBytes / 2
	}
	return defaultMessageBytes / 2
}

// maxShort bounds what names a finding, and is of no use when it is cut.
const maxShort = 400

// Fit shortens the findings to at most n bytes of their canonical form. First go
// the fixes, the largest first; then findings that only inform, the least severe and
// last ones first; then what is said at length. Each is told of in a severityNote.
// A finding that blocks always stays. The decision itself rests on none of this, so
// a replay of it needs no Fit.
func (d *Decision) Fit(n int64) {
	f := fitting{d: d, sizes: make([]int64, len(d.Findings))}
	for i := range d.Findings {
		f.measure(i)
	}
	if f.total <= n {
		return
	}
	d.Findings = slices.Clone(d.Findings)
	f.fixes(n)
	f.advisory(n)
	for _, each := range []int{400, 100, 40} { // the first that makes all fit
		if f.total <= n {
			return
		}
		for i := range d.Findings {
			f.shorten(i, each)
		}
	}
}

type fitting struct {
	d     *Decision
	sizes []int64
	total int64
}

func size(v any) int64 {
	b, err := canon.Marshal(v)
	if err != nil {
		return 0 // what has no canonical form fails when the answer is made
	}
	return int64(len(b)) + 1 // the comma
}

func (f *fitting) measure(i int) {
	f.total -= f.sizes[i]
	f.sizes[i] = size(f.d.Findings[i])
	f.total += f.sizes[i]
}

func addNote(w *wire.Finding, format string, a ...any) {
	w.SeverityNote = strings.TrimPrefix(w.SeverityNote+"; "+fmt.Sprintf(format, a...), "; ")
}

// fixes leaves out the largest fixes.
func (f *fitting) fixes(n int64) {
	type fix struct {
		at   int
		size int64
	}
	var all []fix
	for i, w := range f.d.Findings {
		if w.Diagnostic.Fix != nil {
			all = append(all, fix{i, size(w.Diagnostic.Fix)})
		}
	}
	slices.SortStableFunc(all, func(a, b fix) int { return cmp.Compare(b.size, a.size) })
	for _, x := range all {
		if f.total <= n {
			return
		}
		w := &f.d.Findings[x.at]
		w.Diagnostic.Fix = nil
		addNote(w, "truncated: its fix of %d bytes is not shown, it does not fit into a message", x.size)
		if w.NextStepOrigin == wire.StepSynthesized {
			w.NextStep = nextStep(w.Diagnostic)
		}
		f.measure(x.at)
	}
}

// advisory leaves out findings that only inform.
func (f *fitting) advisory(n int64) {
	gone := map[int]bool{}
	left := map[string]int{} // how many, by source
	for _, sev := range []wire.Severity{wire.SeverityInfo, wire.SeverityWarning, wire.SeverityError} {
		for i := len(f.d.Findings) - 1; i >= 0 && f.total > n; i-- {
			if w := f.d.Findings[i]; w.Disposition != wire.Gating && w.Diagnostic.Severity == sev {
				gone[i] = true
				left[w.Diagnostic.Source]++
				f.total -= f.sizes[i]
			}
		}
	}
	if len(gone) == 0 {
		return
	}
	var kept []wire.Finding
	var sizes []int64
	for i, w := range f.d.Findings {
		if !gone[i] {
			kept, sizes = append(kept, w), append(sizes, f.sizes[i])
		}
	}
	f.d.Findings, f.sizes = kept, sizes
	for i := len(kept) - 1; i >= 0; i-- {
		if s := kept[i].Diagnostic.Source; left[s] > 0 {
			addNote(&kept[i], "truncated: %d further findings of this source do not fit into a message", left[s])
			delete(left, s)
			f.measure(i)
		}
	}
	if more := 0; len(left) > 0 && len(kept) > 0 {
		for _, k := range left {
			more += k
		}
		addNote(&kept[len(kept)-1], "truncated: %d findings of other sources do not fit into a message", more)
		f.measure(len(kept) - 1)
	}
}

// shorten cuts the texts of a finding to that many bytes each.
func (f *fitting) shorten(i, each int) {
	w := &f.d.Findings[i]
	g := &w.Diagnostic
	g.Message, g.Help, w.NextStep = clip(g.Message, each), clip(g.Help, each), clip(w.NextStep, each)
	g.Fingerprint = clip(g.Fingerprint, maxShort)
	if c := g.CodeDescription; c != nil && len(c.Href) > maxShort {
		g.CodeDescription = nil // half of an address leads nowhere
	}
	if said := "truncated: its texts are cut"; !strings.Contains(w.SeverityNote, said) {
		addNote(w, "%s, they do not fit into a message", said)
	}
	f.measure(i)
}

// maxRecorded bounds the fixes in a record, in bytes.
const maxRecorded = 8 << 20

// boundFixes leaves out the largest fixes of a record.
func (r *record) boundFixes() {
	type fix struct {
		of   *wire.Diagnostic
		size int64
	}
	var all []fix
	total := int64(0)
	for _, x := range r.Results {
		for i := range x.Diagnostics {
			if g := &x.Diagnostics[i]; g.Fix != nil {
				all = append(all, fix{g, size(g.Fix)})
				total += all[len(all)-1].size
			}
		}
	}
	slices.SortStableFunc(all, func(a, b fix) int { return cmp.Compare(b.size, a.size) })
	for _, x := range all {
		if total <= maxRecorded {
			return
		}
		x.of.Fix = nil
		total -= x.size
	}
}
