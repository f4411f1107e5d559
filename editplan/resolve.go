package editplan

import (
	"fmt"
	"slices"
	"strings"

	"github.com/aspengine/asp/internal/refusal"
	"github.com/aspengine/asp/snapshot"
)

// MaxTextFile is the largest file that takes text edits, in bytes: they need the
// file in memory, whole-blob replacements do not.
const MaxTextFile = 256 << 20

// Resolve walks the operations of a plan in their order over the live state,
// each seeing what the earlier ones left, and returns what they amount to, in
// the order of paths. If any operation cannot be done there is no result but a
// refusal for every one of them; those that fail only because an earlier one
// did say so, under the same code.
//
// It looks at names, kinds, digests and text. Whether a name may be written
// at all (links on the way, hard links, attributes, mounts) is not its
// business.
func Resolve(p *Plan, r Reader) ([]Net, refusal.List, error) {
	w := newWalk(p.Blobs, r)
	for i := range p.Ops {
		if err := w.op(&p.Ops[i]); err != nil {
			return nil, nil, fmt.Errorf("resolve operation %d on %.200q: %w", i, p.Ops[i].Path, err)
		}
	}
	if len(w.out) > 0 {
		return nil, w.out, nil
	}
	nets, err := w.nets()
	if err != nil {
		return nil, nil, fmt.Errorf("resolve plan: %w", err)
	}
	return nets, nil, nil
}

// slot is what the plan made of one path so far.
type slot struct {
	state   State
	content Content
	bytes   []byte        // ContentEdits
	origin  snapshot.Path // live path of the file that is here; zero for a new one
	mode    ModeChange
	ops     []int
	failed  int          // 1 + the first refused operation that this path hangs on; 0 for none
	cause   refusal.Code // of that operation
}

type walk struct {
	blobs map[snapshot.Digest][]byte
	r     Reader
	live  map[snapshot.Path]State
	slots map[snapshot.Path]*slot // paths that an operation touched
	below map[snapshot.Path]int   // directories: files in them that the plan put there
	freed map[snapshot.Path]bool  // directories: a live file in them went away
	doubt map[snapshot.Path]*slot // directories: the first refused path in them
	out   refusal.List
}

func newWalk(blobs map[snapshot.Digest][]byte, r Reader) *walk {
	return &walk{blobs: blobs, r: r, live: map[snapshot.Path]State{}, slots: map[snapshot.Path]*slot{}, below: map[snapshot.Path]int{},
		freed: map[snapshot.Path]bool{}, doubt: map[snapshot.Path]*slot{}}
}

// liveState asks the reader once, parents first.
func (w *walk) liveState(p snapshot.Path) (State, error) {
	if s, ok := w.live[p]; ok {
		return s, nil
	}
	var s State
	if up, ok := parent(p); ok {
		d, err := w.liveState(up)
		if err != nil {
			return State{}, err
		}
		if d.Kind != IsDir {
			w.live[p] = s
			return s, nil
		}
	}
	s, err := w.r.State(p)
	if err != nil {
		return State{}, err
	}
	w.live[p] = s
	return s, nil
}

func parent(p snapshot.Path) (snapshot.Path, bool) {
	d := p.Dir()
	if d == "." {
		return snapshot.Path{}, false
	}
	up, err := snapshot.ParsePath(d)
	return up, err == nil
}

// now is the state of p after the operations so far. Directories are what their
// files make them: one that the plan put a file into exists, one that it
// emptied is gone if nothing else is in it.
func (w *walk) now(p snapshot.Path) (State, error) {
	s, err := w.roughly(p)
	if err != nil || s.Kind != IsDir || w.below[p] > 0 || !w.freed[p] {
		return s, err
	}
	left, err := w.leftIn(p)
	if err != nil || left != "" {
		return s, err
	}
	return State{}, nil
}

// roughly is now, except that a directory which the plan emptied may still
// count as one. That is enough for parents, and saves listing them.
func (w *walk) roughly(p snapshot.Path) (State, error) {
	s := w.slots[p]
	switch {
	case s != nil && s.state.Kind != Absent:
		return s.state, nil
	case w.below[p] > 0:
		return State{Kind: IsDir}, nil
	case s != nil:
		return State{}, nil
	}
	return w.liveState(p)
}

// leftIn names something that stays in a live directory of which the plan took
// a file, "" if nothing does.
func (w *walk) leftIn(dir snapshot.Path) (string, error) {
	names, barred, err := w.r.Names(dir)
	if err != nil {
		return "", err
	}
	if barred != nil {
		return dir.String(), nil // whatever is in it
	}
	slices.Sort(names)
	for _, n := range names {
		child, err := snapshot.ParsePath(dir.String() + "/" + n)
		if err != nil {
			return dir.String() + "/" + n, nil // a name that no plan can have taken away
		}
		s := w.slots[child]
		switch {
		case w.below[child] > 0 || s != nil && s.state.Kind != Absent:
			return child.String(), nil
		case s != nil:
			continue
		case !w.freed[child]:
			return child.String(), nil
		}
		if left, err := w.leftIn(child); err != nil || left != "" {
			return left, err
		}
	}
	return "", nil
}

// madeIn names a file that the plan itself put into a directory, "" if none.
func (w *walk) madeIn(dir snapshot.Path) string {
	if w.below[dir] == 0 {
		return ""
	}
	first := ""
	for p, s := range w.slots {
		if name := p.String(); s.state.Kind != Absent && p.Within(dir) && (first == "" || name < first) {
			first = name
		}
	}
	return first
}

func (w *walk) refuse(op *Op, p snapshot.Path, c refusal.Code, format string, a ...any) {
	w.out = append(w.out, refusal.New(c, p.String(), op.Index, format, a...))
}

// blocked refuses op if p hangs on a refused operation, which explains
// whatever would be found there.
func (w *walk) blocked(op *Op, p snapshot.Path) bool {
	for q, ok := p, true; ok; q, ok = parent(q) {
		if s := w.slots[q]; s != nil && s.failed > 0 {
			w.follows(op, p, s)
			return true
		}
	}
	return false
}

func (w *walk) follows(op *Op, p snapshot.Path, s *slot) {
	w.refuse(op, p, s.cause, "follows operation %d, which is refused; not looked at", s.failed-1)
}

func (w *walk) op(op *Op) error {
	before := len(w.out)
	err := w.perform(op)
	if err == nil && len(w.out) > before {
		w.mark(op, w.out[len(w.out)-1].Code)
	}
	return err
}

func (w *walk) perform(op *Op) error {
	blocked := w.blocked(op, op.Path)
	if op.Kind == Rename && !blocked {
		blocked = w.blocked(op, op.To)
	}
	if blocked {
		return nil
	}
	if op.Kind == Create {
		ok, err := w.free(op, op.Path)
		if err != nil || !ok {
			return err
		}
		s := &slot{content: ContentBlob, state: State{Kind: IsFile, Digest: op.After, Size: int64(len(w.blobs[op.After]))}}
		w.put(op, op.Path, s)
		return nil
	}
	s, err := w.existing(op)
	if err != nil {
		return err
	}
	to := true
	if op.Kind == Rename {
		// Looked at even if the source is no good: every fault is listed.
		if to, err = w.free(op, op.To); err != nil {
			return err
		}
	}
	if s == nil || !to {
		return nil
	}
	switch op.Kind {
	case Delete:
		w.take(op, op.Path)
	case Rename:
		moved := *s
		w.take(op, op.Path)
		moved.ops = nil
		w.put(op, op.To, &moved)
	case Modify:
		return w.modify(op, s)
	}
	return nil
}

// existing finds the file that op works on, and holds that it is the expected
// one. nil means refused.
func (w *walk) existing(op *Op) (*slot, error) {
	p := op.Path
	st, err := w.now(p)
	if err != nil {
		return nil, err
	}
	switch st.Kind {
	case IsFile:
	case Absent:
		f, kind, err := w.fileAbove(p)
		switch {
		case err != nil:
			return nil, err
		case kind == IsSymlink:
			w.refuseLink(op, p, f)
		case kind != Absent:
			w.refuse(op, p, refusal.Missing, "nothing is there: %.200q is no directory%s", f, w.after(f))
		default:
			w.refuse(op, p, refusal.Missing, "nothing is there%s", w.after(p))
		}
		return nil, nil
	case IsDir:
		if op.Kind == Delete {
			left, err := w.madeIn(p), error(nil)
			if left == "" {
				left, err = w.leftIn(p)
			}
			if err != nil {
				return nil, err
			}
			if left != "" {
				w.refuse(op, p, refusal.NotEmpty, "is a directory that still holds %.200q; delete the files that are meant to go, and it goes with the last one", left)
				return nil, nil
			}
		}
		w.refuse(op, p, refusal.NotRegular, "a directory is there; plans name files (a directory is moved or removed file by file)")
		return nil, nil
	case IsSymlink:
		// A link goes or gets another name as what it is; nothing is done to what
		// it names, and its bytes are its target.
		if op.Kind == Modify {
			w.refuse(op, p, refusal.NotRegular, "a symbolic link is there; change the file that it names, or delete the link and create a file")
			return nil, nil
		}
	default:
		w.refuse(op, p, refusal.NotRegular, "%s is there; plans change regular files only", st.Kind)
		return nil, nil
	}
	if st.Digest != op.Expected {
		w.refuse(op, p, refusal.StaleBasis, "expected %s, found %s%s; make the plan again from the present content", op.Expected.Blob(), st.Digest.Blob(), w.after(p))
		return nil, nil
	}
	if s := w.slots[p]; s != nil {
		return s, nil
	}
	return &slot{state: st, content: ContentSame, origin: p}, nil
}

// after tells a person which operation made the state that does not fit.
func (w *walk) after(p snapshot.Path) string {
	if s := w.slots[p]; s != nil && len(s.ops) > 0 {
		return fmt.Sprintf(" after operation %d", s.ops[len(s.ops)-1])
	}
	return ""
}

// free holds that a new file can be at p.
func (w *walk) free(op *Op, p snapshot.Path) (bool, error) {
	f, kind, err := w.fileAbove(p)
	switch {
	case err != nil:
		return false, err
	case kind == IsSymlink:
		w.refuseLink(op, p, f)
		return false, nil
	case kind != Absent:
		w.refuse(op, p, refusal.PathInvalid, "%.200q is no directory%s, so nothing can be below it", f, w.after(f))
		return false, nil
	}
	st, err := w.now(p)
	if err != nil || st.Kind == Absent {
		return err == nil, err
	}
	if st.Kind == IsDir && w.doubt[p] != nil {
		w.follows(op, p, w.doubt[p])
		return false, nil
	}
	if st.Kind == IsDir && w.freed[p] && w.below[p] == 0 {
		left, err := w.leftIn(p)
		if err == nil {
			w.refuse(op, p, refusal.NotEmpty, "the directory still holds %.200q", left)
		}
		return false, err
	}
	w.refuse(op, p, refusal.Exists, "%s is there%s", st.Kind, w.after(p))
	return false, nil
}

func (w *walk) refuseLink(op *Op, p, link snapshot.Path) {
	w.refuse(op, p, refusal.PathEscape, "%.200q is a symbolic link; plans do not go through links", link)
}

// fileAbove finds a parent of p that is no directory now; its kind is Absent
// when there is none.
func (w *walk) fileAbove(p snapshot.Path) (snapshot.Path, StateKind, error) {
	for _, d := range p.Parents() {
		st, err := w.roughly(d)
		if err != nil {
			return snapshot.Path{}, Absent, err
		}
		switch st.Kind {
		case IsDir:
		case Absent:
			return snapshot.Path{}, Absent, nil
		default:
			return d, st.Kind, nil
		}
	}
	return snapshot.Path{}, Absent, nil
}

// put leaves s at p.
func (w *walk) put(op *Op, p snapshot.Path, s *slot) {
	if old := w.slots[p]; old != nil {
		s.ops = old.ops
	}
	s.ops = append(s.ops, op.Index)
	s.failed = 0
	w.slots[p] = s
	w.applyMode(op, s)
	for _, d := range p.Parents() {
		w.below[d]++
	}
}

// take leaves nothing at p.
func (w *walk) take(op *Op, p snapshot.Path) {
	old := w.slots[p]
	gone := &slot{}
	if old != nil {
		gone.ops = old.ops
	}
	gone.ops = append(gone.ops, op.Index)
	w.slots[p] = gone
	for _, d := range p.Parents() {
		if old != nil {
			w.below[d]--
		}
		w.freed[d] = true
	}
}

func (w *walk) applyMode(op *Op, s *slot) {
	if op.Mode != ModeKeep && s.state.Kind == IsFile {
		s.mode = op.Mode
		s.state.Exec = op.Mode == ModeExec
	}
}

func (w *walk) modify(op *Op, s *slot) error {
	next := *s
	switch {
	case op.HasAfter && op.After != s.state.Digest:
		next.content, next.bytes = ContentBlob, nil
		next.state.Digest, next.state.Size = op.After, int64(len(w.blobs[op.After]))
	case len(op.Edits) > 0:
		basis, err := w.text(op, s)
		if err != nil || basis == nil {
			return err
		}
		result, bad := Apply(basis, op.Edits)
		if bad != nil {
			where := ""
			if bad.Edit >= 0 {
				where = fmt.Sprintf("edit %d: ", bad.Edit)
			}
			w.refuse(op, op.Path, bad.Code, "%s%s", where, bad.Detail)
			return nil
		}
		if d := snapshot.DigestOf(result); d != s.state.Digest {
			next.content, next.bytes = ContentEdits, result
			next.state.Digest, next.state.Size = d, int64(len(result))
		}
	}
	w.applyMode(op, &next)
	if w.slots[op.Path] == nil {
		for _, d := range op.Path.Parents() {
			w.below[d]++
		}
	}
	next.ops = append(slices.Clip(next.ops), op.Index)
	w.slots[op.Path] = &next
	return nil
}

// text gives the bytes that edits refer to; nil means refused.
func (w *walk) text(op *Op, s *slot) ([]byte, error) {
	if s.state.Size > MaxTextFile {
		w.refuse(op, op.Path, refusal.UnsupportedOperation, "a file of %d bytes takes no text edits (limit %d); send its whole content instead", s.state.Size, MaxTextFile)
		return nil, nil
	}
	switch s.content {
	case ContentBlob:
		return orEmpty(w.blobs[s.state.Digest]), nil
	case ContentEdits:
		return orEmpty(s.bytes), nil
	}
	if h, ok := w.r.(Hashed); ok {
		if b, d, ok := h.Hashed(s.origin); ok && d == s.state.Digest {
			return orEmpty(b), nil
		}
	}
	b, err := w.r.Bytes(s.origin)
	if err != nil {
		return nil, err
	}
	if d := snapshot.DigestOf(b); d != s.state.Digest {
		w.refuse(op, op.Path, refusal.ChangedUnderneath, "the file changed while it was read: %s, then %s", s.state.Digest.Blob(), d.Blob())
		return nil, nil
	}
	return orEmpty(b), nil
}

func orEmpty(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}

// nets compares what is now with what was.
func (w *walk) nets() ([]Net, error) {
	var out []Net
	for p, s := range w.slots {
		n, err := w.net(p, s)
		if err != nil {
			return nil, err
		}
		if n.Before != n.After || !n.From.IsZero() {
			out = append(out, n)
		}
	}
	slices.SortFunc(out, func(a, b Net) int { return strings.Compare(a.Path.String(), b.Path.String()) })
	moves(out)
	return out, nil
}

func (w *walk) net(p snapshot.Path, s *slot) (Net, error) {
	before, err := w.liveState(p)
	if err != nil {
		return Net{}, err
	}
	n := Net{Path: p, Before: before, After: s.state, Mode: s.mode, Ops: s.ops}
	if s.state.Kind == Absent {
		if before.Kind == IsDir {
			n.Before = State{} // a file came and went where a directory was emptied
		}
		return n, nil
	}
	n.Content, n.Bytes = s.content, s.bytes
	n.Made = s.origin.IsZero()
	if !n.Made && s.origin != p {
		n.From = s.origin
	}
	if before.Kind == IsFile && before.Digest == n.After.Digest {
		n.Content, n.Bytes, n.After.Size = ContentSame, nil, before.Size
		return n, nil
	}
	if from, ok := w.live[n.From]; ok && from.Digest == n.After.Digest {
		n.Content, n.Bytes = ContentLive, nil
	}
	return n, nil
}

// moves recognises the files that only change their name.
func moves(nets []Net) {
	at := make(map[snapshot.Path]int, len(nets))
	for i, n := range nets {
		at[n.Path] = i
	}
	for i := range nets {
		n := &nets[i]
		from, ok := at[n.From]
		if !ok || n.Content != ContentLive || n.Before.Kind != Absent || nets[from].After.Kind != Absent {
			continue
		}
		if n.After.Exec == nets[from].Before.Exec {
			n.Moved, nets[from].MovedTo = true, n.Path
		}
	}
}
