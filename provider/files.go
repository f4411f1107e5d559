package provider

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime/debug"
	"slices"

	"github.com/aspengine/asp/seam/wire"
)

// PerFile makes a check of a function that looks at one file at a time: it finds
// out which files are meant, reads them by callbacks, and compares the findings
// of the two states. Findings are compared by their fingerprints as multisets over
// all files of the scope, so a file that moves takes its findings along, and the
// second of two equal findings is a new one.
//
// introduced and resolved look at changed files only, because what both states
// share cancels out; all looks at the changed files, the named paths, or the
// whole granted tree. Links and directories are not looked at. A file that is
// denied, missing, too large or on which Analyse panics is a gap of the report,
// and the assessment then incomplete.
type PerFile struct {
	// Wants says which files are looked at; nil: all. Others are never read.
	Wants func(path string, r *CheckRequest) bool
	// Analyse returns the findings in one file. Path of each is filled in.
	Analyse func(ctx context.Context, f *File, r *CheckRequest) ([]Diagnostic, error)
	// Bounds: bytes of one file, files and bytes of a request. Where 0: 4 MiB,
	// 10,000 and 256 MiB. FileBytes may come from the settings by FileLimit.
	FileBytes  int
	Files      int
	TotalBytes int64
	// FileLimit, where not nil, gives FileBytes for a request.
	FileLimit func(r *CheckRequest) int
}

// keepBytes is how much content a request keeps for a second look at it.
const keepBytes = 32 << 20

// scan is one run of a PerFile.
type scan struct {
	f     PerFile
	h     *Host
	r     *CheckRequest
	out   *Report
	limit int
	files int
	bytes int64
	kept  map[BlobRef][]byte
	keep  int
}

// Check is a CheckFunc.
func (f PerFile) Check(ctx context.Context, h *Host, r *CheckRequest) (*Report, error) {
	s := &scan{f: f, h: h, r: r, out: &Report{}, limit: f.FileBytes, kept: map[BlobRef][]byte{}}
	if f.FileLimit != nil {
		s.limit = f.FileLimit(r)
	}
	s.limit = either(s.limit, 4<<20)
	s.f.Files = either(f.Files, 10_000)
	s.f.TotalBytes = either(f.TotalBytes, 256<<20)
	before, after, err := s.views(ctx)
	if err != nil {
		return nil, err
	}
	switch r.Comparison {
	case All:
		s.out.Diagnostics, err = s.analyse(ctx, after)
	case Resolved:
		s.out.Diagnostics, err = s.missing(ctx, before, after)
	default:
		s.out.Diagnostics, err = s.missing(ctx, after, before)
	}
	if err == nil && len(s.out.Gaps) == 0 {
		s.out.Notes = append(s.out.Notes, fmt.Sprintf("%d files looked at", s.files))
	}
	return s.out, err
}

func either[T int | int64](n, otherwise T) T {
	if n > 0 {
		return n
	}
	return otherwise
}

// missing gives the findings of one state that the other does not have. The other
// is not read where there are none.
func (s *scan) missing(ctx context.Context, in, from map[string]BlobRef) ([]Diagnostic, error) {
	found, err := s.analyse(ctx, in)
	if err != nil || len(found) == 0 {
		return nil, err
	}
	others, err := s.analyse(ctx, from)
	if err != nil {
		return nil, err
	}
	count := map[string]int{}
	for _, d := range others {
		count[d.Fingerprint()]++
	}
	var out []Diagnostic
	for _, d := range found {
		if fp := d.Fingerprint(); count[fp] > 0 {
			count[fp]--
		} else {
			out = append(out, d)
		}
	}
	return out, nil
}

// views lists the files of both states that this check looks at.
func (s *scan) views(ctx context.Context) (before, after map[string]BlobRef, err error) {
	r := s.r
	before, after = map[string]BlobRef{}, map[string]BlobRef{}
	whole := r.Comparison == All && r.Scope.Word != wire.ScopeChangeset
	var names []string // nil: the whole tree
	if !whole || r.Scope.Word == "" {
		names = s.named(whole)
		if len(names) == 0 {
			return before, after, nil
		}
	}
	tree, err := s.h.ListTree(ctx, nil, names)
	if err != nil {
		return nil, nil, err
	}
	if tree.Truncated {
		s.out.Truncated = true
		s.gap(wire.DegradeIncomplete, "the host left entries out of the tree")
	}
	skip := map[string]bool{} // links and directories
	for _, e := range tree.Entries {
		switch {
		case e.Kind != "file":
			skip[e.Path] = true
		case whole && s.wants(e.Path):
			after[e.Path] = e.BlobID
		}
	}
	for _, c := range r.Changes {
		old := c.Path
		if c.Kind == Rename {
			old = c.From
		}
		if whole {
			delete(after, old)
		}
		if !r.Scope.Holds(c.Path) && !r.Scope.Holds(old) {
			continue
		}
		if c.Before != "" && s.wants(old) && !skip[old] {
			before[old] = c.Before
		}
		blob := c.After
		if c.Kind == Rename && blob == "" {
			blob = c.Before
		}
		if blob != "" && s.wants(c.Path) && r.Scope.Holds(c.Path) && !skip[old] {
			after[c.Path] = blob
		}
	}
	return before, after, nil
}

func (s *scan) wants(p string) bool { return s.f.Wants == nil || s.f.Wants(p, s.r) }

// named lists the paths to ask the tree about: those that the changes name, for
// links among them, and the scope's where all its files are looked at.
func (s *scan) named(whole bool) []string {
	set := map[string]bool{}
	for _, c := range s.r.Changes {
		for _, p := range []string{c.Path, c.From} {
			if p != "" && s.wants(p) && s.r.Scope.Holds(p) {
				set[p] = true
			}
		}
	}
	if whole {
		for _, p := range s.r.Scope.Paths {
			if s.wants(p) {
				set[p] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(set))
}

// analyse looks at files in the order of their names.
func (s *scan) analyse(ctx context.Context, files map[string]BlobRef) ([]Diagnostic, error) {
	var out []Diagnostic
	for _, p := range slices.Sorted(maps.Keys(files)) {
		if err := context.Cause(ctx); err != nil {
			return nil, err
		}
		if len(out) > maxDiagnostics {
			s.out.Truncated = true
			return out, nil
		}
		b, ok, err := s.content(ctx, p, files[p])
		if err != nil {
			return nil, err
		}
		if !ok {
			continue
		}
		found, err := s.one(ctx, &File{p, files[p], b})
		if err != nil {
			return nil, err
		}
		for _, d := range found {
			d.Path = p
			out = append(out, d)
		}
	}
	return out, nil
}

// content reads a file within the bounds.
func (s *scan) content(ctx context.Context, p string, id BlobRef) ([]byte, bool, error) {
	if b, ok := s.kept[id]; ok {
		return b, true, nil
	}
	if s.files >= s.f.Files || s.bytes >= s.f.TotalBytes {
		if !s.out.Truncated {
			s.gap(wire.DegradeIncomplete, fmt.Sprintf("stopped after %d files and %d bytes", s.files, s.bytes))
		}
		s.out.Truncated = true
		return nil, false, nil
	}
	if !s.h.grant.Allows(p) {
		s.gap(wire.DegradeIncomplete, fmt.Sprintf("%.300q is not granted", p))
		return nil, false, nil
	}
	b, err := s.h.ReadBlob(ctx, id)
	switch {
	case err == nil:
	case Denied(err):
		s.gap(wire.DegradeIncomplete, fmt.Sprintf("%.300q was denied", p))
		return nil, false, nil
	case unavailable(err):
		s.gap(wire.DegradeUnavailable, fmt.Sprintf("%.300q: %.300s", p, err))
		return nil, false, nil
	default:
		return nil, false, err
	}
	s.files++
	s.bytes += int64(len(b))
	if len(b) > s.limit {
		s.gap(wire.DegradeIncomplete, fmt.Sprintf("%.300q has %d bytes, more than the %d that are looked at", p, len(b), s.limit))
		return nil, false, nil
	}
	if s.keep += len(b); s.keep <= keepBytes {
		s.kept[id] = b
	}
	return b, true, nil
}

// one contains what goes wrong in a single file.
func (s *scan) one(ctx context.Context, f *File) (found []Diagnostic, err error) {
	defer func() {
		if r := recover(); r != nil {
			s.h.s.p.logf("panic on %.300q: %v\n%s", f.Path, r, debug.Stack())
			s.gap(wire.DegradeError, fmt.Sprintf("%.300q could not be looked at: the analyser failed", f.Path))
			found, err = nil, nil
		}
	}()
	found, err = s.f.Analyse(ctx, f, s.r)
	var u *Unsupported
	if errors.As(err, &u) {
		s.gap(wire.DegradeUnsupported, fmt.Sprintf("%.300q: %s", f.Path, u.Detail))
		return nil, nil
	}
	return found, err
}

func (s *scan) gap(reason wire.DegradeReason, detail string) {
	if len(s.out.Gaps) <= maxGaps {
		s.out.Gaps = append(s.out.Gaps, Degradation{Reason: reason, Capability: wire.Check, Detail: detail})
	}
}
