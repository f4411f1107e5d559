package gitbase

import (
	"bytes"
	"crypto/sha1"
	"errors"
	"fmt"
	"io"

	"github.com/aspengine/asp/snapshot"
	"github.com/aspengine/asp/snapshot/gitbase/convert"
	"github.com/aspengine/asp/snapshot/scan"
)

// effectSame tells whether the after-bytes of v are, directly or converted, the
// blob that HEAD holds.
func (w *walk) effectSame(v *snapshot.Effect, e *entry, te treeEntry, rl *rules) (bool, error) {
	var rule convert.Rule
	if te.mode != 0o120000 {
		rule = w.e.conv.Decide(rl.attrs().Lookup(v.Path.Base()))
	}
	if rule.Filtered {
		return false, nil
	}
	if v.Open == nil {
		return false, fmt.Errorf("effect on %.200q has no bytes", v.Path.String())
	}
	r, err := v.Open()
	if err != nil {
		return false, fmt.Errorf("read after-bytes of %.200q: %w", v.Path.String(), err)
	}
	defer r.Close()
	h := sha1.New()
	h.Write(scan.AppendBlobHeader(nil, v.Size))
	var n int64
	if m, ok := r.(io.WriterTo); ok { // bytes in memory
		n, err = m.WriteTo(h)
	} else {
		n, err = io.CopyBuffer(struct{ io.Writer }{h}, struct{ io.Reader }{r}, make([]byte, min(max(v.Size, 512), 256<<10)))
	}
	if err == nil && n != v.Size {
		err = fmt.Errorf("%d bytes, not %d", n, v.Size)
	}
	if err != nil {
		return false, fmt.Errorf("read after-bytes of %.200q: %w", v.Path.String(), err)
	}
	if bytes.Equal(h.Sum(nil), te.id[:]) {
		return true, nil
	}
	if rule.Raw() {
		return false, nil
	}
	s := &seekable{open: v.Open}
	id, err := convert.NewHasher().Blob(w.ctx, s, v.Size, rule, w.indexCRLF(e))
	err = errors.Join(err, s.close())
	return oid(id) == te.id, err
}

// seekable reads at offsets from something that can only be opened again. It is
// read forward, from the start, a few times: anything else would be slow.
type seekable struct {
	open func() (snapshot.ReadCloser, error)
	r    snapshot.ReadCloser
	off  int64
}

func (s *seekable) ReadAt(p []byte, off int64) (int, error) {
	if s.r == nil || off < s.off {
		if err := s.close(); err != nil {
			return 0, err
		}
		r, err := s.open()
		if err != nil {
			return 0, err
		}
		s.r, s.off = r, 0
	}
	if off > s.off {
		n, err := io.CopyN(io.Discard, s.r, off-s.off)
		s.off += n
		if err != nil {
			return 0, err
		}
	}
	n, err := io.ReadFull(s.r, p)
	s.off += int64(n)
	if err == io.ErrUnexpectedEOF {
		err = io.EOF
	}
	return n, err
}

func (s *seekable) close() error {
	if s.r == nil {
		return nil
	}
	err := s.r.Close()
	s.r = nil
	return err
}
