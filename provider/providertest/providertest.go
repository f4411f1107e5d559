// Package providertest is a strict little host for the tests of a provider: it
// serves a tree and a changeset from memory over pipes, applies the grant, counts
// what it served, and holds every answer to what a host of the protocol accepts.
// It shares no code with package provider but the messages.
package providertest

import (
	"bufio"
	"context"
	"encoding/base64"
	"io"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/aspengine/asp/internal/canon"
	"github.com/aspengine/asp/provider"
	"github.com/aspengine/asp/seam/wire"
)

// Host is one session with a provider. Its members may be changed between
// requests.
type Host struct {
	T        testing.TB
	Files    map[string]string // the baseline tree
	Links    map[string]string // symbolic links of it
	Blobs    map[wire.BlobRef][]byte
	Grant    provider.Grant
	Baseline wire.Baseline
	Asked    []string // methods of callbacks of the last request
	Served   map[wire.BlobRef]bool
	Put      map[wire.BlobRef][]byte
	Logs     []canon.Value // notifications of the last request
	// Intercept, where not nil and answering true, answers a callback instead.
	Intercept func(method string, params canon.Value) (canon.Value, *wire.Error, bool)

	in    io.WriteCloser
	out   *bufio.Reader
	id    int64
	ended chan error
}

// Start begins a session and closes it with the test. Nothing is sent yet.
func Start(t testing.TB, p *provider.Provider, files map[string]string) *Host {
	t.Helper()
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	h := &Host{T: t, Files: files, Grant: provider.Grant{Read: []string{"**/*"}}, Baseline: wire.Baseline{Rev: "tree:sha256:00", StampedAt: "2026-06-16T10:00:00Z"},
		Blobs: map[wire.BlobRef][]byte{}, in: inW, out: bufio.NewReaderSize(outR, 1<<20), ended: make(chan error, 1)}
	go func() {
		err := p.Serve(context.Background(), inR, outW)
		outW.CloseWithError(io.EOF)
		h.ended <- err
	}()
	t.Cleanup(func() {
		inW.Close()
		go io.Copy(io.Discard, outR)
		if h.ended != nil {
			<-h.ended
		}
	})
	return h
}

// Open is Start with the handshake done.
func Open(t testing.TB, p *provider.Provider, files map[string]string) *Host {
	t.Helper()
	h := Start(t, p, files)
	h.Handshake()
	return h
}

// Handshake initializes and grants.
func (h *Host) Handshake() wire.InitializeResult {
	h.T.Helper()
	v, e := h.Call(wire.MethodInitialize, h.InitializeParams())
	if e != nil {
		h.T.Fatalf("initialize: %v", e)
	}
	var r wire.InitializeResult
	if err := wire.Decode(v, &r); err != nil {
		h.T.Fatalf("initialize: %v", err)
	}
	h.GrantAccess()
	return r
}

// InitializeParams is what initialize is called with.
func (h *Host) InitializeParams() wire.InitializeParams {
	return wire.InitializeParams{ProtocolVersion: wire.ProtocolV1, Host: wire.HostName{Name: "providertest", Version: "1"},
		Workspace: wire.Workspace{Root: "/candidate", Baseline: h.Baseline}}
}

// GrantAccess sends initialized.
func (h *Host) GrantAccess() {
	no, network, ms := false, len(h.Grant.Network) > 0, int64(60_000)
	var list []wire.NetworkAccess
	for _, s := range h.Grant.Network { // each as PROTO://HOST:PORT
		proto, at, _ := strings.Cut(s, "://")
		host, port, _ := net.SplitHostPort(at)
		n, err := strconv.Atoi(port)
		if err != nil {
			h.T.Fatalf("grant %q: %v", s, err)
		}
		list = append(list, wire.NetworkAccess{Host: host, Port: &n, Proto: proto})
	}
	h.Notify(wire.MethodInitialized, wire.InitializedParams{Baseline: h.Baseline, GrantedPermissions: wire.Permissions{Read: h.Grant.Read,
		Write: &no, Network: &network, NetworkAllowlist: list, ResourceLimits: &wire.ResourceLimits{WallclockMs: &ms}}})
}

// Value makes a message of a Go value.
func (h *Host) Value(v any) canon.Value {
	h.T.Helper()
	c, err := canon.From(v)
	if err != nil {
		h.T.Fatal(err)
	}
	return c
}

// Line sends a line as it is.
func (h *Host) Line(s string) {
	h.T.Helper()
	if _, err := io.WriteString(h.in, s+"\n"); err != nil {
		h.T.Fatalf("write %.80q: %v", s, err)
	}
}

// Notify sends a notification.
func (h *Host) Notify(method string, params any) {
	h.T.Helper()
	h.Line(string(canon.ObjectOf(canon.Member{Key: "jsonrpc", Value: canon.StringOf("2.0")},
		canon.Member{Key: "method", Value: canon.StringOf(method)}, canon.Member{Key: "params", Value: h.Value(params)}).Bytes()))
}

// Send sends a request and returns its id.
func (h *Host) Send(method string, params any) canon.Value {
	h.T.Helper()
	h.id++
	id := canon.IntOf(h.id)
	h.Line(string(canon.ObjectOf(canon.Member{Key: "jsonrpc", Value: canon.StringOf("2.0")}, canon.Member{Key: "id", Value: id},
		canon.Member{Key: "method", Value: canon.StringOf(method)}, canon.Member{Key: "params", Value: h.Value(params)}).Bytes()))
	return id
}

// Read returns the next line of the provider; no value at the end.
func (h *Host) Read() canon.Value {
	h.T.Helper()
	line, err := h.out.ReadBytes('\n')
	if err != nil {
		return canon.Value{}
	}
	v, err := canon.Parse(line, canon.Limits{Bytes: 32 << 20})
	if err != nil {
		h.T.Fatalf("the provider's line is not strict JSON: %v", err)
	}
	return v
}

// Call sends a request and serves callbacks until it is answered.
func (h *Host) Call(method string, params any) (canon.Value, *wire.Error) {
	h.T.Helper()
	return h.Await(h.Send(method, params))
}

// Await serves callbacks until a request is answered.
func (h *Host) Await(id canon.Value) (canon.Value, *wire.Error) {
	h.T.Helper()
	h.Asked, h.Logs, h.Served, h.Put = nil, nil, map[wire.BlobRef]bool{}, map[wire.BlobRef][]byte{}
	for {
		v := h.Read()
		if v.Kind() == canon.Invalid {
			h.T.Fatalf("the provider ended before it answered: %v", <-h.ended)
		}
		m, _ := v.Get("method")
		if m.Kind() == canon.Invalid {
			return h.answer(v, id)
		}
		p, _ := v.Get("params")
		from, ok := v.Get("id")
		if !ok {
			h.Logs = append(h.Logs, v)
			continue
		}
		h.Asked = append(h.Asked, m.Str())
		r, e := h.callback(m.Str(), p)
		h.Answer(from, r, e)
	}
}

func (h *Host) answer(v, id canon.Value) (canon.Value, *wire.Error) {
	h.T.Helper()
	if got, _ := v.Get("id"); !canon.Equal(got, id) {
		h.T.Fatalf("answer to %s, want %s: %.300s", got.Bytes(), id.Bytes(), v.Bytes())
	}
	if f, ok := v.Get("error"); ok {
		var e wire.Error
		if err := wire.Decode(f, &e); err != nil {
			h.T.Fatalf("the provider's error: %v", err)
		}
		if e.Data == nil {
			h.T.Fatalf("error without a class: %s", f.Bytes())
		}
		return canon.Value{}, &e
	}
	r, _ := v.Get("result")
	return r, nil
}

// Answer sends the answer to a callback.
func (h *Host) Answer(id, result canon.Value, e *wire.Error) {
	h.T.Helper()
	last := canon.Member{Key: "result", Value: result}
	if e != nil {
		last = canon.Member{Key: "error", Value: h.Value(e)}
	}
	h.Line(string(canon.ObjectOf(canon.Member{Key: "jsonrpc", Value: canon.StringOf("2.0")}, canon.Member{Key: "id", Value: id}, last).Bytes()))
}

func denied() *wire.Error {
	return wire.NewError(wire.CodeScopeDenied, wire.FailPolicy, "out of the granted scope", "")
}

func (h *Host) callback(method string, params canon.Value) (canon.Value, *wire.Error) {
	h.T.Helper()
	if h.Intercept != nil {
		if r, e, ok := h.Intercept(method, params); ok {
			return r, e
		}
	}
	decode := func(into any) {
		if err := wire.Decode(params, into); err != nil {
			h.T.Fatalf("%s: %v", method, err)
		}
	}
	switch method {
	case wire.MethodListTree:
		var p wire.ListTreeParams
		decode(&p)
		return h.Value(h.tree(p)), nil
	case wire.MethodReadBlob:
		var p wire.ReadBlobParams
		decode(&p)
		r := wire.ReadBlobResult{}
		for _, id := range p.Blobs {
			b, ok := h.content(id)
			if !ok {
				return canon.Value{}, denied()
			}
			h.Served[id] = true
			r.Blobs = append(r.Blobs, wire.NamedBlob{ID: id, Encoding: wire.Base64, Bytes: base64.StdEncoding.EncodeToString(b)})
			if utf8.Valid(b) {
				r.Blobs[len(r.Blobs)-1] = wire.NamedBlob{ID: id, Encoding: wire.UTF8, Bytes: string(b)}
			}
		}
		return h.Value(r), nil
	case wire.MethodPutBlob:
		var p wire.PutBlobParams
		decode(&p)
		r := wire.PutBlobResult{}
		for _, b := range p.Blobs {
			content, err := b.Decode()
			if err != nil {
				h.T.Fatalf("putBlob: %v", err)
			}
			id := provider.Ref(content)
			h.Put[id] = content
			r.IDs = append(r.IDs, id)
		}
		return h.Value(r), nil
	}
	h.T.Fatalf("callback %q", method)
	return canon.Value{}, nil
}

func (h *Host) tree(p wire.ListTreeParams) wire.ListTreeResult {
	r := wire.ListTreeResult{Entries: []wire.TreeEntry{}}
	add := func(name, content, kind string) {
		if !h.Grant.Allows(name) || p.Paths != nil && !slices.Contains(p.Paths, name) ||
			p.Globs != nil && !slices.ContainsFunc(p.Globs, func(g string) bool { return provider.MatchGlob(g, name) }) {
			return
		}
		r.Entries = append(r.Entries, wire.TreeEntry{Path: name, BlobID: provider.Ref([]byte(content)), Kind: kind})
	}
	for _, name := range slices.Sorted(maps.Keys(h.Files)) {
		add(name, h.Files[name], "file")
	}
	for _, name := range slices.Sorted(maps.Keys(h.Links)) {
		add(name, h.Links[name], "symlink")
	}
	return r
}

// content finds what a name stands for, if the grant covers a path of it. Content
// of a changeset is granted as a whole here.
func (h *Host) content(id wire.BlobRef) ([]byte, bool) {
	for name, c := range h.Files {
		if provider.Ref([]byte(c)) == id && h.Grant.Allows(name) {
			return []byte(c), true
		}
	}
	b, ok := h.Blobs[id]
	return b, ok
}

// Changeset makes one: for each path the content after, "" for a delete, and
// "from:" with a path for a pure rename.
func (h *Host) Changeset(after map[string]string) wire.ChangeSet {
	cs := wire.ChangeSet{Baseline: h.Baseline, Changes: []wire.Change{}}
	for _, p := range slices.Sorted(maps.Keys(after)) {
		content := after[p]
		old, had := h.Files[p]
		c := wire.Change{Path: p, Kind: wire.KindCreate}
		if from, ok := strings.CutPrefix(content, "from:"); ok {
			c.Kind, c.From = wire.KindRename, from
			c.Before = provider.Ref([]byte(h.Files[from]))
			c.After = c.Before
			cs.Changes = append(cs.Changes, c)
			continue
		}
		if had {
			c.Kind, c.Before = wire.KindModify, provider.Ref([]byte(old))
		}
		if content == "" {
			c.Kind = wire.KindDelete
		} else {
			c.After = provider.Ref([]byte(content))
			h.Blobs[c.After] = []byte(content)
		}
		cs.Changes = append(cs.Changes, c)
	}
	return cs
}

// Check evaluates a changeset and holds the assessment to the rules. scope is a
// word or paths.
func (h *Host) Check(cs wire.ChangeSet, comparison wire.Comparison, scope any, settings string) wire.Assessment {
	h.T.Helper()
	v, e := h.Call(wire.MethodEvaluate, h.EvaluateParams(cs, comparison, scope, settings))
	if e != nil {
		h.T.Fatalf("check/evaluate: %v (%v)", e, e.Data)
	}
	return h.Assessment(v, cs)
}

// EvaluateParams makes the parameters of check/evaluate.
func (h *Host) EvaluateParams(cs wire.ChangeSet, comparison wire.Comparison, scope any, settings string) canon.Value {
	h.T.Helper()
	m := []canon.Member{{Key: "changeset", Value: h.Value(cs)}, {Key: "comparison", Value: canon.StringOf(string(comparison))}}
	if paths, ok := scope.([]string); ok {
		m = append(m, canon.Member{Key: "scope", Value: wire.PathScope(paths)})
	} else {
		m = append(m, canon.Member{Key: "scope", Value: canon.StringOf(scope.(string))})
	}
	if settings != "" {
		s, err := canon.Parse([]byte(settings), canon.Limits{})
		if err != nil {
			h.T.Fatal(err)
		}
		m = append(m, canon.Member{Key: "configuration", Value: s})
	}
	return canon.ObjectOf(m...)
}

// Assessment decodes one and holds it to the rules.
func (h *Host) Assessment(v canon.Value, cs wire.ChangeSet) wire.Assessment {
	h.T.Helper()
	var a wire.Assessment
	if err := wire.Decode(v, &a); err != nil {
		h.T.Fatalf("assessment: %v", err)
	}
	if bad := wire.ScanHostOwned(v); len(bad) > 0 {
		h.T.Fatalf("assessment holds %v", bad)
	}
	h.fresh(a.ValidAsOf.Baseline, a.ValidAsOf.Blobs)
	if want := canon.DigestText(h.Value(cs)); a.ValidAsOf.ChangesetDigest != want {
		h.T.Fatalf("changesetDigest %s, want %s", a.ValidAsOf.ChangesetDigest, want)
	}
	c := a.Coverage
	same := canon.Equal(h.Value(c.Requested), h.Value(c.Covered))
	if a.Status == wire.StatusComplete && !(same && c.Exhaustive && !c.Truncated && len(c.Degraded)+len(c.Unsupported) == 0) || a.Status != wire.StatusComplete && c.Exhaustive {
		h.T.Fatalf("status %s with coverage %+v", a.Status, c)
	}
	if a.Status != wire.StatusComplete && len(c.Degraded) == 0 {
		h.T.Fatalf("status %s and nothing degraded", a.Status)
	}
	for _, d := range a.Diagnostics {
		if !slices.ContainsFunc(c.Requested.DiagnosticSources, func(s string) bool { return strings.HasPrefix(d.Code, s+"/") }) {
			h.T.Fatalf("code %q under no source of %q", d.Code, c.Requested.DiagnosticSources)
		}
		if introduced := d.Introduced != nil && *d.Introduced; introduced != (c.Requested.Comparison == wire.CompareIntroduced) {
			h.T.Fatalf("introduced is %v for %s", introduced, c.Requested.Comparison)
		}
	}
	return a
}

func (h *Host) fresh(b wire.Baseline, blobs []wire.BlobRef) {
	h.T.Helper()
	if b != h.Baseline {
		h.T.Fatalf("validAsOf.baseline %v, want %v", b, h.Baseline)
	}
	got := map[wire.BlobRef]bool{}
	for _, id := range blobs {
		got[id] = true
	}
	if !maps.Equal(got, h.Served) {
		h.T.Fatalf("validAsOf.blobs %v, served %v", blobs, slices.Sorted(maps.Keys(h.Served)))
	}
}

// Propose asks for a plan and holds it to the rules.
func (h *Host) Propose(operation string, scope []string, args string) wire.EditPlan {
	h.T.Helper()
	a := canon.ObjectOf()
	if args != "" {
		var err error
		if a, err = canon.Parse([]byte(args), canon.Limits{}); err != nil {
			h.T.Fatal(err)
		}
	}
	v, e := h.Call(wire.MethodPropose, wire.ProposeParams{Operation: operation, Baseline: h.Baseline, ProposalID: "proposal:1",
		Scope: wire.EditScope{Paths: scope}, Args: a})
	if e != nil {
		h.T.Fatalf("edit/propose: %v (%v)", e, e.Data)
	}
	return h.Plan(v)
}

// Plan decodes the result of edit/propose and holds it to the rules.
func (h *Host) Plan(v canon.Value) wire.EditPlan {
	h.T.Helper()
	var r wire.ProposeResult
	if err := wire.Decode(v, &r); err != nil {
		h.T.Fatalf("edit/propose: %v", err)
	}
	var p wire.EditPlan
	if err := wire.Decode(r.Proposal, &p); err != nil {
		h.T.Fatalf("plan: %v", err)
	}
	if bad := wire.ScanForbidden(r.Proposal); len(bad) > 0 {
		h.T.Fatalf("plan holds %v", bad)
	}
	h.fresh(p.ValidAsOf.Baseline, p.ValidAsOf.Blobs)
	if p.ProposalID != "proposal:1" || p.Baseline != h.Baseline {
		h.T.Fatalf("plan %q on %v", p.ProposalID, p.Baseline)
	}
	if p.WorkspaceEdit == nil {
		if len(p.TouchedResources) > 0 {
			h.T.Fatalf("touchedResources %v without an edit", p.TouchedResources)
		}
		return p
	}
	changes := p.WorkspaceEdit.DocumentChanges
	if len(changes) != len(p.TouchedResources) || p.WorkspaceEdit.Baseline != h.Baseline {
		h.T.Fatalf("touchedResources %v do not mirror %v", p.TouchedResources, changes)
	}
	for i, c := range changes {
		if t := p.TouchedResources[i]; t.Path != c.Path || t.Kind != c.Kind || t.To != c.To || t.Precondition != c.Precondition {
			h.T.Fatalf("touchedResources[%d] %v does not mirror %v", i, t, c)
		}
		if c.After != "" && c.Kind != wire.KindRename && c.Kind != wire.KindMove && h.Put[c.After] == nil {
			h.T.Fatalf("%s names %s, which was not put", c.Path, c.After)
		}
		for _, e := range c.Edits {
			if e.RangeBasis != c.Precondition.ExpectedDigest {
				h.T.Fatalf("%s: basis %s", c.Path, e.RangeBasis)
			}
		}
	}
	return p
}

// End closes the provider's input and returns what Serve returned.
func (h *Host) End() error {
	h.in.Close()
	go io.Copy(io.Discard, h.out)
	err := <-h.ended
	h.ended = nil
	return err
}

// Wait returns what Serve returned, after it ended by itself.
func (h *Host) Wait() error {
	err := <-h.ended
	h.ended = nil
	return err
}

// CheckUnverified evaluates a changeset where the host itself does not play by
// the rules, so that freshness cannot be held against it. An error of the request
// gives an assessment with status error.
func (h *Host) CheckUnverified(cs wire.ChangeSet) wire.Assessment {
	h.T.Helper()
	v, e := h.Call(wire.MethodEvaluate, h.EvaluateParams(cs, wire.CompareAll, "changeset", ""))
	if e != nil {
		return wire.Assessment{Status: wire.StatusError}
	}
	var a wire.Assessment
	if err := wire.Decode(v, &a); err != nil {
		h.T.Fatalf("assessment: %v", err)
	}
	return a
}
