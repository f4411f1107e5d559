package patch

import (
	"errors"
	"fmt"

	"github.com/aspengine/asp/editplan"
	"github.com/aspengine/asp/internal/refusal"
	"github.com/aspengine/asp/snapshot"
)

// Entry is what a View knows of one name. For a symbolic link Bytes is the
// target. Mode is 0 for what is neither file nor link, a directory included.
type Entry struct {
	Exists bool
	Dir    bool
	Mode   snapshot.FileMode
	Bytes  []byte
	// Digest is that of Bytes where the view knows it; zero: not known.
	Digest snapshot.Digest
	// Blocked says why the name may not be looked at; then it alone counts, and
	// it is part of the refusal of the patch.
	Blocked *refusal.Item
}

// View is the workspace as it is now. It is asked once for every name. The
// bytes must not change afterwards. An error means that it could not tell, and
// ends the import.
type View interface {
	Look(p snapshot.Path) (Entry, error)
}

// Ahead is a View that likes to know early which names it will be asked for, in
// about this order.
type Ahead interface {
	Ahead(paths []snapshot.Path)
}

// ImportOptions choose how a patch is read and placed.
type ImportOptions struct {
	Parse ParseOptions
	Apply Options
}

// Report is a hunk that did not land where it said, or not as it said.
type Report struct {
	Path string
	HunkReport
}

// String is one sentence for people.
func (r Report) String() string {
	s := fmt.Sprintf("%.200q: hunk %d (patch line %d) was placed at line %d", r.Path, r.Hunk, r.Line, r.At)
	if r.Offset != 0 {
		s += fmt.Sprintf(", %d lines from where it says", r.Offset)
	}
	if r.Fuzz > 0 {
		s += fmt.Sprintf(", with up to %d lines of context left out", r.Fuzz)
	}
	if r.NotFirst {
		s += ", not at the beginning of the file, which it claims"
	}
	if r.NotLast {
		s += ", not at the end of the file, which it claims"
	}
	return s
}

// Imported is a patch as operations on the present state, or the reasons why
// it is none.
type Imported struct {
	// Drafts are in the order of their meaning, with digests taken from the
	// view; empty if the patch changes nothing or is refused.
	Drafts  []editplan.Draft
	Reports []Report
	// Refused lists every failing file and hunk. Items have no operation.
	Refused refusal.List
}

// Plan builds the plan file. Hunks that moved are named in its warnings.
func (im Imported) Plan(s editplan.Source) (editplan.File, error) {
	for _, r := range im.Reports {
		s.Warnings = append(s.Warnings, r.String())
	}
	return editplan.NewPlan(s, im.Drafts)
}

// Import reads a patch and turns it into operations that make the same of the
// files that view shows. What the file patches do is worked out on all of them
// together, as git does: renames and copies start from the present state
// wherever they stand, other patches from what the earlier ones left. The
// operations then lead to that result in an order in which each finds what it
// needs.
//
// A patch that is no patch is refused as bad-message, with the line.
func Import(view View, data []byte, o ImportOptions) (Imported, error) {
	files, err := Parse(data, o.Parse)
	if err != nil {
		var pe *ParseError
		if !errors.As(err, &pe) {
			return Imported{}, err
		}
		return Imported{Refused: refusal.List{refusal.New(refusal.BadMessage, "", -1, "patch line %d: %s", pe.Line, pe.Reason)}}, nil
	}
	im := &importer{view: view, o: o, nodes: map[string]*node{}, leaving: map[string]bool{}}
	var paths []snapshot.Path
	for i := range files {
		if k := files[i].Kind; k == Delete || k == Rename {
			im.leaving[files[i].Old] = true
		}
		for _, name := range []string{files[i].Old, files[i].New} {
			if p, err := snapshot.ParsePath(name); err == nil && (len(paths) == 0 || paths[len(paths)-1] != p) {
				paths = append(paths, p)
			}
		}
	}
	if a, ok := view.(Ahead); ok {
		a.Ahead(paths)
	}
	for i := range files {
		if err := im.file(&files[i]); err != nil {
			return Imported{}, err
		}
	}
	if len(im.refused) > 0 {
		return Imported{Refused: im.refused, Reports: im.reports}, nil
	}
	return Imported{Drafts: im.drafts(), Reports: im.reports}, nil
}

// node is a name that the patch speaks of.
type node struct {
	path    string
	was     Entry
	now     Entry
	changed bool  // a patch wrote now
	fresh   bool  // and not from what was here: by a creation, rename or copy
	gone    bool  // a patch took the name away
	from    *node // now came by a rename of this
}

type importer struct {
	view    View
	o       ImportOptions
	nodes   map[string]*node
	order   []*node
	leaving map[string]bool // names that some patch, maybe a later one, takes away
	refused refusal.List
	reports []Report
}

func (im *importer) refuse(c refusal.Code, path, format string, a ...any) {
	im.refused = append(im.refused, refusal.New(c, path, -1, format, a...))
}

// node looks a name up. nil after a refusal, which is noted once for a name.
func (im *importer) node(name string) (*node, error) {
	if n, seen := im.nodes[name]; seen {
		return n, nil
	}
	im.nodes[name] = nil
	p, err := snapshot.ParsePath(name)
	if err != nil {
		im.refuse(refusal.PathInvalid, name, "%v", err)
		return nil, nil
	}
	e, err := im.view.Look(p)
	if err != nil {
		return nil, fmt.Errorf("look at %.200q: %w", name, err)
	}
	if e.Blocked != nil {
		im.refused = append(im.refused, *e.Blocked)
		return nil, nil
	}
	n := &node{path: name, was: e, now: e}
	im.nodes[name] = n
	im.order = append(im.order, n)
	return n, nil
}

const typeMask, typeRegular = 0o170000, 0o100000

// regular brings a mode of a patch to one of the two that count. Modes of other
// types stay.
func regular(m snapshot.FileMode) snapshot.FileMode {
	switch {
	case m&typeMask != typeRegular:
		return m
	case m&0o100 != 0:
		return snapshot.ModeExecutable
	default:
		return snapshot.ModeRegular
	}
}

// file works one file patch into the nodes.
func (im *importer) file(fp *FilePatch) error {
	oldMode, newMode := regular(fp.OldMode), regular(fp.NewMode)
	for _, m := range []snapshot.FileMode{oldMode, newMode} {
		if m != 0 && m&typeMask != typeRegular && m != snapshot.ModeSymlink {
			im.refuse(refusal.UnsupportedOperation, fp.Name(), "patch line %d is about an object of mode %o; only files, and deleting or renaming links, are supported", fp.Line, m)
			return nil
		}
	}
	var src, dst *node
	var err error
	if fp.Old != "" {
		if src, err = im.node(fp.Old); err != nil || src == nil {
			return err
		}
	}
	if fp.New != "" {
		if dst, err = im.node(fp.New); err != nil || dst == nil {
			return err
		}
	}
	kind := fp.Kind
	if fp.Guess && !src.now.Exists && !src.gone {
		kind, src = Create, nil
	}
	if kind == Rename && src == dst {
		im.refuse(refusal.UnsupportedOperation, src.path, "patch line %d renames the file to its own name", fp.Line)
		return nil
	}
	var before Entry
	if src != nil {
		var ok bool
		if before, ok = im.source(fp, src, kind, oldMode); !ok {
			return nil
		}
	}
	if kind == Create || kind == Rename || kind == Copy {
		if dst.now.Exists && !dst.now.Dir && (dst.changed || !im.leaving[dst.path]) {
			if dst.changed {
				im.refuse(refusal.Exists, dst.path, "patch line %d makes this file, and the patch makes or changes it before", fp.Line)
			} else {
				im.refuse(refusal.Exists, dst.path, "patch line %d makes this file, and it exists", fp.Line)
			}
			return nil
		}
	}
	out := Apply(fp, before.Bytes, im.o.Apply)
	name := fp.Name()
	for _, f := range out.Failures {
		code := refusal.StaleBasis
		if f.Unfit {
			code = refusal.BadMessage
		}
		im.refuse(code, name, "%s", f.sentence())
	}
	for _, r := range out.Reports {
		if r.Offset != 0 || r.Fuzz != 0 || r.NotFirst || r.NotLast {
			im.reports = append(im.reports, Report{name, r})
		}
	}
	if len(out.Failures) > 0 {
		return nil
	}
	after := Entry{Exists: true, Mode: newMode, Bytes: out.New}
	if newMode == 0 {
		after.Mode = before.Mode
		if kind == Create {
			after.Mode = snapshot.ModeRegular
		}
	}
	if !im.linkOK(fp, kind, before, after) {
		return nil
	}
	im.record(kind, src, dst, after)
	return nil
}

// record notes what a patch leaves at its names.
func (im *importer) record(kind Kind, src, dst *node, after Entry) {
	// A name that was written while it waited to be taken away, as when two
	// files trade places, keeps what was written.
	if kind == Delete || kind == Rename && !src.fresh {
		*src = node{path: src.path, was: src.was, gone: true}
	}
	if kind == Delete {
		return
	}
	from, fresh := dst.from, dst.fresh
	if kind != Modify {
		from, fresh = nil, true
	}
	if kind == Rename {
		from = src
	}
	*dst = node{path: dst.path, was: dst.was, now: after, changed: true, fresh: fresh, from: from}
}

// source is the content that a patch starts from.
func (im *importer) source(fp *FilePatch, src *node, kind Kind, oldMode snapshot.FileMode) (Entry, bool) {
	e := src.now
	if kind == Rename || kind == Copy {
		if kind == Rename && (src.gone || src.changed && !src.fresh) {
			im.refuse(refusal.UnsupportedOperation, src.path, "patch line %d renames a file that the patch changes or takes away before", fp.Line)
			return e, false
		}
		e = src.was
	}
	switch {
	case !e.Exists && src.gone:
		im.refuse(refusal.Missing, src.path, "patch line %d needs this file, and the patch took it away before", fp.Line)
	case !e.Exists:
		im.refuse(refusal.Missing, src.path, "patch line %d needs this file, and it does not exist", fp.Line)
	case e.Mode == 0:
		im.refuse(refusal.NotRegular, src.path, "patch line %d needs a file, and this is none", fp.Line)
	case oldMode != 0 && oldMode&typeMask != e.Mode&typeMask:
		im.refuse(refusal.StaleBasis, src.path, "patch line %d is for mode %o, the file has %o", fp.Line, oldMode, e.Mode)
	default:
		return e, true
	}
	return e, false
}

// linkOK refuses what would make or edit a symbolic link.
func (im *importer) linkOK(fp *FilePatch, kind Kind, before, after Entry) bool {
	link := before.Mode == snapshot.ModeSymlink
	switch {
	case kind == Delete:
		return true
	case !link && after.Mode != snapshot.ModeSymlink:
		return true
	case link && kind == Rename && after.Mode == before.Mode && string(after.Bytes) == string(before.Bytes):
		return true
	}
	what := "makes a symbolic link"
	switch {
	case link && after.Mode == snapshot.ModeSymlink && kind != Copy:
		what = "changes what a symbolic link names"
	case link && kind != Copy:
		what = "makes a file of a symbolic link in one step"
	}
	im.refuse(refusal.UnsupportedOperation, fp.Name(), "patch line %d %s, and a plan can only delete or rename one; leave it out of the patch (git diff -- . ':!PATH') and do it with ln -s", fp.Line, what)
	return false
}

// sentence is what a refusal says of a failed hunk.
func (f HunkFailure) sentence() string {
	if f.Unfit {
		return fmt.Sprintf("patch line %d: %s", f.Line, f.Reason)
	}
	if f.Hunk == 0 {
		return fmt.Sprintf("patch line %d: %s; make the patch anew from the present file", f.Line, f.Reason)
	}
	if f.Reason == reasonApplied {
		return fmt.Sprintf("hunk %d (patch line %d): %s at line %d; then nothing needs to be done for it", f.Hunk, f.Line, f.Reason, f.At)
	}
	s := fmt.Sprintf("hunk %d (patch line %d) does not match: line %d", f.Hunk, f.Line, f.At)
	switch {
	case f.Want != "" || f.Got != "":
		s += fmt.Sprintf(" should be %q and is %q", f.Want, f.Got)
	default:
		s += " is where it was tried first"
	}
	return s + "; " + f.Reason + "; make the patch anew from the present file"
}
