package host

import (
	"fmt"
	"sync"

	"github.com/aspengine/asp/seam/wire"
	"github.com/aspengine/asp/snapshot"
)

// budget is room that sessions share, in bytes.
type budget struct {
	mu   sync.Mutex
	left int64
}

// take takes n bytes, all or none.
func (b *budget) take(n int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if n > b.left {
		return false
	}
	b.left -= n
	return true
}

func (b *budget) give(n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.left += n
}

// overhead is what an entry of a set costs beside its bytes, so that a million
// empty blobs are no way round the limit.
const overhead = 128

// blobSet is the content that one session put: for proposals and changesets of
// this session, found by digest, gone with the session.
type blobSet struct {
	limit  int64
	shared *budget

	mu    sync.Mutex
	m     map[snapshot.Digest][]byte
	bytes int64
	gone  bool
}

func newBlobSet(limit int64, shared *budget) *blobSet {
	return &blobSet{limit: limit, shared: shared, m: map[snapshot.Digest][]byte{}}
}

// put adds the content of a message, all of it or nothing, and names it in the
// same order. Content that is there already costs nothing.
func (s *blobSet) put(blobs []wire.Blob) ([]wire.BlobRef, *wire.Error) {
	ids := make([]wire.BlobRef, len(blobs))
	fresh := map[snapshot.Digest][]byte{}
	for i, b := range blobs {
		data, err := b.Decode()
		if err != nil {
			return nil, wire.NewError(wire.CodeInvalidParams, wire.FailInput, fmt.Sprintf("blob %d is no %s: %.100s", i, b.Encoding, err), "")
		}
		d := snapshot.DigestOf(data)
		ids[i], fresh[d] = wire.BlobRef(d.Blob()), data
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var n int64
	for d, data := range fresh {
		if _, ok := s.m[d]; ok {
			delete(fresh, d)
			continue
		}
		n += int64(len(data)) + overhead
	}
	if s.gone {
		return nil, wire.NewError(wire.CodeInvalidRequest, wire.FailInput, "the session has ended", "")
	}
	if s.bytes+n > s.limit {
		return nil, full("this session", s.limit)
	}
	if !s.shared.take(n) {
		return nil, full("all sessions together", 2*s.limit)
	}
	for d, data := range fresh {
		s.m[d] = data
	}
	s.bytes += n
	return ids, nil
}

func full(who string, limit int64) *wire.Error {
	e := wire.NewError(wire.CodeScopeDenied, wire.FailPolicy, fmt.Sprintf("%s may put %d bytes of content, and this would be more; apply what is there in a session of its own, or send the content inside a plan bundle with `asp apply --plan`", who, limit), "")
	return e
}

// get implements apply.Blobs.
func (s *blobSet) get(d snapshot.Digest) ([]byte, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b, ok := s.m[d]
	return b, ok
}

// drop gives the room back.
func (s *blobSet) drop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.shared.give(s.bytes)
	s.m, s.bytes, s.gone = nil, 0, true
}
