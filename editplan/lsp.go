package editplan

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/aspengine/asp/internal/canon"
	"github.com/aspengine/asp/internal/refusal"
	"github.com/aspengine/asp/seam/wire"
	"github.com/aspengine/asp/snapshot"
)

// View is the workspace that a foreign edit is bound to.
type View struct {
	// Roots are the absolute paths by which the workspace is known; file URIs
	// are taken relative to the first one that they lie in.
	Roots    []string
	Baseline snapshot.Baseline
	Reader   Reader
	// Info, if set, tells what the repository says of paths, in their order. It is
	// asked for what goes with a directory.
	Info func([]snapshot.Path) ([]snapshot.PathInfo, error)
}

// Import is a foreign edit as a plan file.
type Import struct {
	File     File
	Warnings []string // also in the plan
	// Refused says why there is no plan. Op counts the elements of
	// documentChanges in the input, or the files of changes in the order of their
	// URIs.
	Refused refusal.List
}

// ImportWorkspaceEdit turns an LSP WorkspaceEdit (or the parameters of
// workspace/applyEdit, which hold one) into a plan whose preconditions are the
// present digests. Positions count UTF-16 units, the encoding that LSP has
// unless client and server agree on another.
//
// documentChanges win over changes, as LSP says. Their elements mean what their
// order says; several edits of one file follow each other. The options of file
// operations are decided here, against the state that the earlier operations
// leave, so that the plan holds plain operations only: overwrite becomes a
// modify or a delete, what is to be ignored disappears, a directory becomes its
// files. Something in a directory that no plan may take along (another repository,
// a submodule, a protected directory, a file that a sparse checkout leaves out) refuses its move or removal; ignored files
// that go with it, and empty directories that stay, are warned of. A character past the end of its line means the end, as LSP says; that
// too is settled here, with a warning, and never in a plan. Snippets, other
// schemes and hosts, and files outside of the workspace are refused.
func ImportWorkspaceEdit(data []byte, v View, l Limits) (Import, error) {
	l = l.filled()
	doc, err := canon.Parse(data, canon.Limits{Bytes: l.Bytes, Depth: l.Depth, Values: l.Values, AllowCaseTwins: true})
	if err != nil {
		return Import{Refused: refusal.List{refusal.New(refusal.BadMessage, "", -1, "%s", err)}}, nil
	}
	m := &lspImporter{view: v, blobs: map[snapshot.Digest][]byte{}, annotations: map[string]lspAnnotation{}, warned: map[string]bool{}}
	m.walk = newWalk(m.blobs, v.Reader)
	if err := m.document(doc); err != nil {
		return Import{}, fmt.Errorf("import workspace edit: %w", err)
	}
	if refused := append(m.refused, m.walk.out...); len(refused) > 0 {
		slices.SortStableFunc(refused, func(a, b refusal.Item) int { return a.Op - b.Op })
		return Import{Warnings: m.warnings, Refused: refused}, nil
	}
	f, err := NewPlan(Source{Baseline: v.Baseline, Provider: Provider{ID: "asp-import", Version: "lsp"}, Warnings: m.warnings}, m.drafts)
	if err != nil {
		return Import{}, fmt.Errorf("import workspace edit: %w", err)
	}
	return Import{File: f, Warnings: m.warnings}, nil
}

type lspImporter struct {
	view        View
	walk        *walk
	blobs       map[snapshot.Digest][]byte
	drafts      []Draft
	annotations map[string]lspAnnotation
	warnings    []string
	warned      map[string]bool
	refused     refusal.List
	at          int // element of the input
}

func (m *lspImporter) refuse(c refusal.Code, path, format string, a ...any) {
	m.refused = append(m.refused, refusal.New(c, path, m.at, format, a...))
}

func (m *lspImporter) warn(format string, a ...any) {
	w := fmt.Sprintf(format, a...)
	if !m.warned[w] {
		m.warned[w] = true
		m.warnings = append(m.warnings, w)
	}
}

// decode reads one part of the document; false means refused.
func (m *lspImporter) decode(v canon.Value, into any) bool {
	err := wire.Decode(v, into)
	if err != nil {
		for _, r := range malformed(err, nil) {
			r.Op = m.at
			m.refused = append(m.refused, r)
		}
	}
	return err == nil
}

func (m *lspImporter) document(doc canon.Value) error {
	m.at = -1
	if inner, ok := doc.Get("edit"); ok {
		var params struct {
			Label string      `json:"label,omitempty"`
			Edit  canon.Value `json:"edit" wire:"object"`
		}
		if !m.decode(doc, &params) {
			return nil
		}
		doc = inner
	}
	var e lspWorkspaceEdit
	if !m.decode(doc, &e) {
		return nil
	}
	for id, a := range e.ChangeAnnotations.Members() {
		var note lspAnnotation
		if !m.decode(a, &note) {
			return nil
		}
		m.annotations[id] = note
	}
	switch {
	case e.DocumentChanges.Kind() == canon.Array:
		if e.Changes.Len() > 0 {
			m.warn("changes is ignored, because documentChanges is there")
		}
		for i, c := range e.DocumentChanges.Elements() {
			m.at = i
			if err := m.change(c); err != nil {
				return err
			}
		}
	case e.DocumentChanges.Kind() > canon.Null:
		m.refuse(refusal.BadMessage, "", "documentChanges: array expected, not %s", e.DocumentChanges.Kind())
	case e.Changes.Kind() == canon.Object:
		return m.changes(e.Changes)
	case e.Changes.Kind() > canon.Null:
		m.refuse(refusal.BadMessage, "", "changes: object expected, not %s", e.Changes.Kind())
	}
	return nil
}

// changes takes the older form: a list of edits for each URI, without order
// among the files.
func (m *lspImporter) changes(v canon.Value) error {
	var uris []string
	for uri := range v.Members() {
		uris = append(uris, uri)
	}
	slices.Sort(uris)
	seen := map[snapshot.Path]string{}
	for i, uri := range uris {
		m.at = i
		list, _ := v.Get(uri)
		var w struct {
			Edits []lspTextEdit `json:"edits"`
		}
		if !m.decode(canon.ObjectOf(canon.Member{Key: "edits", Value: list}), &w) {
			continue
		}
		p, ok := m.path(uri)
		if !ok {
			continue
		}
		if prior, twice := seen[p]; twice {
			m.refuse(refusal.BadMessage, p.String(), "%.200q and %.200q name the same file, without an order between them", prior, uri)
			continue
		}
		seen[p] = uri
		if err := m.text(p, w.Edits); err != nil {
			return err
		}
	}
	return nil
}

func (m *lspImporter) path(uri string) (snapshot.Path, bool) {
	rest, why := uriPath(uri, m.view.Roots)
	if why != "" {
		m.refuse(refusal.PathInvalid, "", "URI %.200q %s", uri, why)
		return snapshot.Path{}, false
	}
	p, err := snapshot.ParsePath(rest)
	if err != nil {
		m.refuse(refusal.PathInvalid, rest, "%s", err)
		return snapshot.Path{}, false
	}
	if name, bad := ProtectedPath(p); bad {
		m.refuse(refusal.PathProtected, rest, "%.200q is a protected name", name)
		return snapshot.Path{}, false
	}
	return p, true
}

// note gives the label of an annotation; ok is false when there is none of
// that name.
func (m *lspImporter) note(id string) (label string, ok bool) {
	if id == "" {
		return "", true
	}
	a, ok := m.annotations[id]
	if !ok {
		m.refuse(refusal.BadMessage, "", "annotation %.100q is not in changeAnnotations", id)
		return "", false
	}
	if a.NeedsConfirmation {
		m.warn("%.200q asks for confirmation", a.Label)
	}
	return a.Label, true
}

// do performs a draft on the walk, whose state the following changes see.
func (m *lspImporter) do(d Draft) error {
	op := Op{Index: m.at, Kind: d.Kind, Expected: d.Expected, Edits: d.Edits, Mode: d.Mode}
	var err error
	if op.Path, err = snapshot.ParsePath(d.Path); err != nil {
		m.refuse(refusal.PathInvalid, d.Path, "%s", err)
		return nil
	}
	if d.Kind == Rename {
		if op.To, err = snapshot.ParsePath(d.To); err != nil {
			m.refuse(refusal.PathInvalid, d.To, "%s", err)
			return nil
		}
	}
	if d.HasContent {
		op.After, op.HasAfter = snapshot.DigestOf(d.Content), true
		m.blobs[op.After] = d.Content
	}
	m.drafts = append(m.drafts, d)
	return m.walk.op(&op)
}

func (m *lspImporter) change(c canon.Value) error {
	if _, isFile := c.Get("kind"); isFile {
		var op lspFileOperation
		if !m.decode(c, &op) {
			return nil
		}
		label, ok := m.note(op.AnnotationID)
		if !ok {
			return nil
		}
		switch op.Kind {
		case "create":
			return m.create(op, label)
		case "rename":
			return m.rename(op, label)
		}
		return m.delete(op, label)
	}
	var e lspDocumentEdit
	if !m.decode(c, &e) {
		return nil
	}
	p, ok := m.path(e.TextDocument.URI)
	if !ok {
		return nil
	}
	if k := e.TextDocument.Version.Kind(); k > canon.Null {
		if n, ok := e.TextDocument.Version.Int(); ok {
			m.warn("version %d of %.200q cannot be compared with a file; its present content is taken", n, p)
		} else {
			m.refuse(refusal.BadMessage, p.String(), "version is neither an integer nor null")
		}
	}
	return m.text(p, e.Edits)
}

// text makes one modify of the edits of one file.
func (m *lspImporter) text(p snapshot.Path, list []lspTextEdit) error {
	d := Draft{Kind: Modify, Path: p.String(), Edits: []TextEdit{}}
	for i, e := range list {
		label, ok := m.note(e.AnnotationID)
		switch {
		case !ok:
			return nil
		case e.Snippet.Kind() != canon.Invalid || e.InsertTextFormat > 1:
			m.refuse(refusal.UnsupportedOperation, p.String(), "edit %d is a snippet; only plain text can be applied", i)
			return nil
		case e.NewText == nil:
			m.refuse(refusal.BadMessage, p.String(), "edit %d has no newText", i)
			return nil
		}
		if label != "" && !strings.Contains(d.Message, label) {
			d.Message = strings.TrimPrefix(d.Message+"; "+label, "; ")
		}
		d.Edits = append(d.Edits, TextEdit{Pos{e.Range.Start.Line, e.Range.Start.Character}, Pos{e.Range.End.Line, e.Range.End.Character}, *e.NewText})
	}
	if len(d.Edits) == 0 {
		return nil
	}
	st, err := m.walk.now(p)
	if err != nil {
		return err
	}
	d.Expected = st.Digest
	if st.Kind == IsFile && st.Size <= MaxTextFile {
		basis, err := m.basis(p, st)
		if err != nil {
			return err
		}
		if n := clampToLines(basis, d.Edits); n > 0 {
			m.warn("%.200q: %d positions past the end of their line are taken as the end", p, n)
		}
	}
	return m.do(d)
}

// basis reads what edits of p refer to. A refusal is left to the walk, which
// reads it again.
func (m *lspImporter) basis(p snapshot.Path, st State) ([]byte, error) {
	s := m.walk.slots[p]
	if s == nil {
		return m.view.Reader.Bytes(p)
	}
	switch s.content {
	case ContentBlob:
		return m.blobs[st.Digest], nil
	case ContentEdits:
		return s.bytes, nil
	}
	return m.view.Reader.Bytes(s.origin)
}

// clampToLines moves positions past the end of their line to the end, and
// counts them. Everything else that is wrong with a range stays as it is.
func clampToLines(basis []byte, edits []TextEdit) (clamped int) {
	if !utf8.Valid(basis) {
		return 0
	}
	var points []*Pos
	for i := range edits {
		if e := &edits[i]; e.Start.Compare(e.End) <= 0 && e.Start.Line >= 0 && e.Start.Char >= 0 && e.End.Char >= 0 {
			points = append(points, &e.Start, &e.End)
		}
	}
	slices.SortFunc(points, func(a, b *Pos) int { return a.Compare(*b) })
	s := newSweep(basis)
	for _, p := range points {
		if s.seek(*p) && s.char < p.Char {
			p.Char = s.char
			clamped++
		}
	}
	return clamped
}
