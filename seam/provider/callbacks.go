package provider

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/aspengine/asp/internal/canon"
	"github.com/aspengine/asp/seam/rpc"
	"github.com/aspengine/asp/seam/wire"
)

const (
	defaultCallbacks = 100_000
	maxServedBytes   = 512 << 20 // given out in one request
	maxPutBytes      = 256 << 20 // taken in one request
	maxPutBlobs      = 100_000
)

// request is the one that a session has in flight: what its callbacks may see, and the record
// of what they saw.
type request struct {
	content  Content
	baseline wire.Baseline
	grant    grant
	edit     bool  // putBlob is open
	limit    int64 // callbacks
	line     int64 // bytes of a message

	mu          sync.Mutex
	callbacks   int64
	served      map[wire.BlobRef]bool
	servedBytes int64
	put         map[wire.BlobRef][]byte
	putBytes    int64
	over        string // which bound was broken
	around      string // a host method that was tried
	tree        []wire.TreeEntry
	treeErr     error
	treeOnce    sync.Once
}

func newRequest(content Content, baseline wire.Baseline, g grant, edit bool, limit, line int64) *request {
	return &request{content: content, baseline: baseline, grant: g, edit: edit, limit: limit, line: line,
		served: map[wire.BlobRef]bool{}, put: map[wire.BlobRef][]byte{}}
}

// blobs is what was served, sorted.
func (q *request) blobs() []wire.BlobRef {
	q.mu.Lock()
	defer q.mu.Unlock()
	out := make([]wire.BlobRef, 0, len(q.served))
	for b := range q.served {
		out = append(out, b)
	}
	slices.Sort(out)
	return out
}

// broken is what went wrong behind the answer, if anything.
func (q *request) broken() *fault {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.over != "" {
		return faultOf(wire.DegradeError, wire.Active, wire.FailPolicy, "it asked for more than a request may: %s", q.over)
	}
	return nil
}

// untouched tells that no callback was made.
func (q *request) untouched() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.callbacks == 0
}

func (q *request) triedHostMethod() string {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.around
}

// denied is the one refusal: the same whether or not the thing exists.
func denied() *wire.Error {
	return wire.NewError(wire.CodeScopeDenied, wire.FailPolicy, "not in the granted scope", "")
}

func (q *request) overLimit(what string) *wire.Error {
	q.mu.Lock()
	q.over = what
	q.mu.Unlock()
	return wire.NewError(wire.CodeScopeDenied, wire.FailPolicy, "over the limit of a request: "+what, "")
}

// serve answers one callback.
func (q *request) serve(ctx context.Context, r rpc.Request) (canon.Value, *wire.Error) {
	q.mu.Lock()
	q.callbacks++
	over := q.callbacks > q.limit
	q.mu.Unlock()
	if over {
		return canon.Value{}, q.overLimit(fmt.Sprintf("%d callbacks", q.limit))
	}
	params := r.Params
	if params.Kind() == canon.Invalid {
		params = canon.ObjectOf()
	}
	var result any
	var e *wire.Error
	switch r.Method {
	case wire.MethodListTree:
		result, e = q.listTree(ctx, params)
	case wire.MethodReadBlob:
		result, e = q.readBlob(ctx, params)
	case wire.MethodPutBlob:
		result, e = q.putBlob(params)
	default:
		return canon.Value{}, q.unknown(r.Method)
	}
	if e != nil {
		return canon.Value{}, e
	}
	v, err := canon.From(result)
	if err != nil {
		return canon.Value{}, wire.NewError(wire.CodeInternal, wire.FailHealth, "the answer cannot be written", "")
	}
	return v, nil
}

// unknown answers a method that is none. A provider that asks for what the host
// alone decides is remembered for it.
func (q *request) unknown(method string) *wire.Error {
	if strings.HasPrefix(method, "host/") || method == "workspace/applyEdit" {
		q.mu.Lock()
		q.around = cut(method, 100)
		q.mu.Unlock()
	}
	return wire.NewError(wire.CodeMethodNotFound, wire.FailContract, "no such callback", "")
}

func badParams(err error) *wire.Error {
	return wire.NewError(wire.CodeInvalidParams, wire.FailContract, cut(err.Error(), 500), "")
}

func (q *request) listTree(ctx context.Context, params canon.Value) (any, *wire.Error) {
	var p wire.ListTreeParams
	if err := wire.Decode(params, &p); err != nil {
		return nil, badParams(err)
	}
	if p.Baseline != nil && !sameState(*p.Baseline, q.baseline) {
		return nil, wire.NewError(wire.CodeStaleBaseline, wire.FailHealth, "the tree is listed at the baseline of the request alone", "")
	}
	var filter globs
	if p.Globs != nil {
		var err error
		if filter, err = parseGlobs(p.Globs); err != nil {
			return nil, badParams(err)
		}
	}
	named := map[string]bool{}
	for _, n := range p.Paths {
		named[n] = true
	}
	tree, err := q.baselineTree(ctx)
	if err != nil {
		return nil, wire.NewError(wire.CodeBlobUnavailable, wire.FailHealth, "the tree cannot be listed now", "")
	}
	out := wire.ListTreeResult{Entries: []wire.TreeEntry{}}
	size, room := int64(0), q.line/2
	for _, e := range tree {
		if p.Paths != nil && !named[e.Path] || p.Globs != nil && !filter.match(e.Path) || !q.grant.allows(e.Path) {
			continue
		}
		if size += int64(6*len(e.Path)) + 160; size > room {
			yes := true
			out.Truncated = &yes
			break
		}
		out.Entries = append(out.Entries, e)
	}
	return out, nil
}

func (q *request) baselineTree(ctx context.Context) ([]wire.TreeEntry, error) {
	q.treeOnce.Do(func() {
		if q.content == nil {
			return
		}
		tree, err := q.content.Tree(ctx)
		q.tree, q.treeErr = slices.Clone(tree), err
		slices.SortFunc(q.tree, func(a, b wire.TreeEntry) int { return strings.Compare(a.Path, b.Path) })
	})
	return q.tree, q.treeErr
}

// sameState compares two baselines; a stamp that is left out is not compared.
func sameState(a, b wire.Baseline) bool {
	return a.Rev == b.Rev && a.Dirty == b.Dirty && (a.StampedAt == "" || a.StampedAt == b.StampedAt)
}

// visible tells whether b is content of the request inside the grant.
func (q *request) visible(ctx context.Context, b wire.BlobRef) (bool, error) {
	if q.content == nil {
		return false, nil
	}
	if n, ok := q.content.(Near); ok && slices.ContainsFunc(n.Near(b), q.grant.allows) {
		return true, nil
	}
	paths, err := q.content.Where(ctx, b)
	return slices.ContainsFunc(paths, q.grant.allows), err
}

func (q *request) readBlob(ctx context.Context, params canon.Value) (any, *wire.Error) {
	var p wire.ReadBlobParams
	if err := wire.Decode(params, &p); err != nil {
		return nil, badParams(err)
	}
	unavailable := wire.NewError(wire.CodeBlobUnavailable, wire.FailHealth, "the content cannot be read now", "")
	for _, b := range p.Blobs {
		ok, err := q.visible(ctx, b)
		if err != nil {
			return nil, unavailable
		}
		if !ok {
			return nil, denied()
		}
	}
	out := wire.ReadBlobResult{Blobs: make([]wire.NamedBlob, 0, len(p.Blobs))}
	size := int64(0)
	for _, b := range p.Blobs {
		content, err := q.content.Bytes(ctx, b)
		if err != nil {
			return nil, unavailable
		}
		n, cost := encode(b, content)
		if size += cost + 150; size > q.line-q.line/8 {
			return nil, wire.NewError(wire.CodeScopeDenied, wire.FailPolicy, "more than fits a message; ask for fewer blobs at once", "")
		}
		out.Blobs = append(out.Blobs, n)
		if !q.record(b, len(content)) {
			return nil, q.overLimit(fmt.Sprintf("%d MiB of content", maxServedBytes>>20))
		}
	}
	return out, nil
}

func (q *request) record(b wire.BlobRef, n int) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.servedBytes += int64(n)
	if q.servedBytes > maxServedBytes {
		return false
	}
	q.served[b] = true
	return true
}

// encode takes text as text, unless escaping would make twice as much of it. cost
// is what it takes in a message.
func encode(id wire.BlobRef, content []byte) (n wire.NamedBlob, cost int64) {
	escaped := 0
	for _, c := range content {
		switch {
		case c == '"' || c == '\\' || c == '\n' || c == '\t' || c == '\r':
			escaped++
		case c < 0x20:
			escaped += 5
		}
	}
	if escaped <= len(content) && utf8.Valid(content) {
		return wire.NamedBlob{ID: id, Encoding: wire.UTF8, Bytes: string(content)}, int64(len(content) + escaped)
	}
	text := base64.StdEncoding.EncodeToString(content)
	return wire.NamedBlob{ID: id, Encoding: wire.Base64, Bytes: text}, int64(len(text))
}

func (q *request) putBlob(params canon.Value) (any, *wire.Error) {
	if !q.edit {
		return nil, denied()
	}
	var p wire.PutBlobParams
	if err := wire.Decode(params, &p); err != nil {
		return nil, badParams(err)
	}
	out := wire.PutBlobResult{IDs: make([]wire.BlobRef, 0, len(p.Blobs))}
	for i, b := range p.Blobs {
		content, err := b.Decode()
		if err != nil {
			return nil, badParams(fmt.Errorf("blob %d is not %s", i, b.Encoding))
		}
		sum := sha256.Sum256(content)
		id := wire.BlobRef("blob:sha256:" + hex.EncodeToString(sum[:]))
		q.mu.Lock()
		if _, there := q.put[id]; !there {
			q.put[id], q.putBytes = content, q.putBytes+int64(len(content))
		}
		over := q.putBytes > maxPutBytes || len(q.put) > maxPutBlobs
		q.mu.Unlock()
		if over {
			return nil, q.overLimit(fmt.Sprintf("%d MiB or %d blobs of new content", maxPutBytes>>20, maxPutBlobs))
		}
		out.IDs = append(out.IDs, id)
	}
	return out, nil
}
