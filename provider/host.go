package provider

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"slices"
	"sync"
	"unicode/utf8"

	"github.com/aspengine/asp/internal/canon"
	"github.com/aspengine/asp/seam/wire"
)

// Host is the host as the function of one request sees it. Its methods are
// callbacks: each waits for the host's answer, one at a time; from several
// goroutines of one function they are refused while one is open. After the
// request has ended they give its cause. What a callback returns was held to its
// shape, and content to its name.
type Host struct {
	s        *session
	ctx      context.Context
	family   wire.Family
	baseline Baseline
	grant    Grant
	request  canon.Value

	mu   sync.Mutex
	read map[BlobRef]bool // the loop reads it when a function outlives its request
}

// Baseline is the state of the workspace that this request is about.
func (h *Host) Baseline() Baseline { return h.baseline }

// Grant is what the host lets this provider read.
func (h *Host) Grant() Grant { return h.grant }

// Limit is the number of bytes that one message may have, either way.
func (h *Host) Limit() int { return h.s.p.limit() }

// call sends one callback and waits.
func (h *Host) call(ctx context.Context, method string, params, into any) error {
	p, err := canon.From(params)
	if err != nil {
		return err
	}
	v, err := h.exchange(ctx, &ask{method: method, params: p, answer: make(chan answer, 1)})
	if err != nil {
		return err
	}
	if err := wire.Decode(v, into); err != nil {
		return contractError(wire.CodeInvalidRequest, "the host's answer to %s is malformed: %v", method, err)
	}
	return nil
}

func (h *Host) exchange(ctx context.Context, a *ask) (canon.Value, error) {
	select {
	case h.s.asks <- a:
	case <-h.ctx.Done():
		return canon.Value{}, context.Cause(h.ctx)
	case <-ctx.Done():
		return canon.Value{}, context.Cause(ctx)
	}
	select {
	case r := <-a.answer:
		return r.value, r.err
	case <-h.ctx.Done():
		return canon.Value{}, context.Cause(h.ctx)
	}
	// ctx is not waited for here: the host's answer would come all the same, with
	// nobody there to take it. It ends with the request.
}

// notify sends advice. That it did not arrive is no reason to fail.
func (h *Host) notify(method string, params any) {
	p, err := canon.From(params)
	if err != nil {
		return
	}
	a := &ask{method: method, params: p, notify: true, answer: make(chan answer, 1)}
	select {
	case h.s.asks <- a:
		<-a.answer
	case <-h.ctx.Done():
	}
}

// Tree is a part of the baseline tree, in the order that the host gave.
type Tree struct {
	Entries   []TreeEntry
	Truncated bool // the host left entries out
}

// ListTree lists the baseline: all that is granted without a filter, what matches
// one of the globs, or the paths that are there of those named; with both, what
// passes both. A path without an entry is absent or not granted, which looks the
// same.
func (h *Host) ListTree(ctx context.Context, globs, paths []string) (Tree, error) {
	var r wire.ListTreeResult
	err := h.call(ctx, wire.MethodListTree, wire.ListTreeParams{Globs: globs, Paths: paths, Baseline: &h.baseline}, &r)
	if err != nil {
		return Tree{}, err
	}
	asked, seen := map[string]bool{}, make(map[string]bool, len(r.Entries))
	for _, p := range paths {
		asked[p] = true
	}
	for _, e := range r.Entries {
		if !ValidPath(e.Path) || seen[e.Path] || paths != nil && !asked[e.Path] {
			return Tree{}, contractError(wire.CodeInvalidRequest, "the host listed %.200q, which was not asked, is there twice or is no path", e.Path)
		}
		seen[e.Path] = true
	}
	return Tree{r.Entries, r.Truncated != nil && *r.Truncated}, nil
}

// ReadBlob returns content of the baseline or the changeset. What is returned
// hashes to id. The blob is counted among those that the answer rests on.
func (h *Host) ReadBlob(ctx context.Context, id BlobRef) ([]byte, error) {
	var r wire.ReadBlobResult
	if err := h.call(ctx, wire.MethodReadBlob, wire.ReadBlobParams{Blobs: []BlobRef{id}}, &r); err != nil {
		return nil, err
	}
	if len(r.Blobs) != 1 || r.Blobs[0].ID != id {
		return nil, contractError(wire.CodeInvalidRequest, "the host answered with other blobs than were asked")
	}
	b, err := wire.Blob{Encoding: r.Blobs[0].Encoding, Bytes: r.Blobs[0].Bytes}.Decode()
	if err != nil {
		return nil, contractError(wire.CodeInvalidRequest, "the host's blob cannot be decoded: %v", err)
	}
	h.mu.Lock()
	h.read[id] = true
	h.mu.Unlock()
	if got := Ref(b); got != id {
		return nil, contractError(wire.CodeBlobUnavailable, "the host sent %s for %s", got, id)
	}
	return b, nil
}

// PutBlob gives the host content that a plan names, and returns its name. For
// functions of the edit family only.
func (h *Host) PutBlob(ctx context.Context, content []byte) (BlobRef, error) {
	if h.family != wire.Edit {
		return "", fmt.Errorf("workspace/putBlob is for edits")
	}
	b := wire.Blob{Encoding: wire.UTF8, Bytes: string(content)}
	if !utf8.Valid(content) {
		b = wire.Blob{Encoding: wire.Base64, Bytes: base64.StdEncoding.EncodeToString(content)}
	}
	var r wire.PutBlobResult
	if err := h.call(ctx, wire.MethodPutBlob, wire.PutBlobParams{Blobs: []wire.Blob{b}}, &r); err != nil {
		return "", err
	}
	if want := Ref(content); len(r.IDs) != 1 || r.IDs[0] != want {
		return "", contractError(wire.CodeInvalidRequest, "the host names %s otherwise", want)
	}
	return r.IDs[0], nil
}

// File is a file of the baseline with its content.
type File struct {
	Path    string
	ID      BlobRef
	Content []byte
}

// Text finds positions in the content.
func (f *File) Text() *Text { return NewText(f.Content) }

// ReadFile reads one file of the baseline by its path. ok is false, without an
// error, where there is none: absent, no regular file, or not granted.
func (h *Host) ReadFile(ctx context.Context, path string) (f *File, ok bool, err error) {
	t, err := h.ListTree(ctx, nil, []string{path})
	if err != nil {
		return nil, false, err
	}
	if len(t.Entries) == 0 || t.Entries[0].Kind != "file" {
		return nil, false, nil
	}
	b, err := h.ReadBlob(ctx, t.Entries[0].BlobID)
	if err != nil {
		return nil, false, err
	}
	return &File{path, t.Entries[0].BlobID, b}, true, nil
}

// Log sends a line for people: level is error, warn, info or debug. It waits until
// the line is written, and is dropped once the request has ended.
func (h *Host) Log(level, format string, a ...any) {
	h.notify(wire.MethodLogMessage, wire.LogMessageParams{Level: level, Message: cut(fmt.Sprintf(format, a...), 2000)})
}

// Progress says how far the request is, 0 to 100. It is advice.
func (h *Host) Progress(percent int, message string) {
	percent = min(max(percent, 0), 100)
	h.notify(wire.MethodProgress, wire.ProgressParams{Token: h.request,
		Value: wire.ProgressValue{Kind: "report", Percentage: &percent, Message: cut(message, 500)}})
}

// served lists the blobs that the host gave for this request, sorted.
func (h *Host) served() []BlobRef {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := make([]BlobRef, 0, len(h.read))
	for id := range h.read {
		out = append(out, id)
	}
	slices.Sort(out)
	return out
}

// Ref names content.
func Ref(content []byte) BlobRef {
	sum := sha256.Sum256(content)
	return BlobRef("blob:sha256:" + hex.EncodeToString(sum[:]))
}
