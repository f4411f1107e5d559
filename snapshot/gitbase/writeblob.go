package gitbase

import (
	"bytes"
	"context"
	"crypto/sha1"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"

	"github.com/aspengine/asp/snapshot"
	"github.com/aspengine/asp/snapshot/gitbase/convert"
)

// maxConverted bounds the files whose line ends are converted in memory.
const maxConverted = 1 << 30

// blobOf returns the id of the blob that git would store for the effect's bytes
// under the rule, and stores it. The bytes are compared with the
// effect's digest; errMoved if they are others.
func (w *ObjectWriter) blobOf(ctx context.Context, v *snapshot.Effect, rule convert.Rule, idx convert.IndexHasCRLF) (oid, error) {
	if v.Mode == snapshot.ModeSymlink {
		rule = convert.Rule{}
	}
	if rule.Filtered {
		return oid{}, convert.ErrFiltered
	}
	if v.Open == nil {
		return oid{}, fmt.Errorf("%.200q has no bytes", v.Path.String())
	}
	id, err := w.blob(ctx, v, rule, idx)
	if err != nil {
		return id, fmt.Errorf("blob of %.200q: %w", v.Path.String(), err)
	}
	return id, nil
}

func (w *ObjectWriter) blob(ctx context.Context, v *snapshot.Effect, rule convert.Rule, idx convert.IndexHasCRLF) (id oid, err error) {
	if rule.Raw() {
		r, err := v.Open()
		if err != nil {
			return id, err
		}
		git, raw := sha1.New(), sha256.New()
		git.Write(objectHeader("blob", v.Size))
		n, err := io.CopyBuffer(io.MultiWriter(git, raw), &interruptible{ctx, r}, make([]byte, min(max(v.Size+1, 512), 128<<10)))
		if err = errors.Join(err, r.Close()); err != nil {
			return id, err
		}
		if n != v.Size || snapshot.Digest(raw.Sum(nil)) != v.Digest {
			return id, errMoved
		}
		id = oid(git.Sum(nil))
		return id, w.put(ctx, id, "blob", v.Size, func() (io.ReadCloser, error) { return v.Open() })
	}
	b, err := wholeEffect(ctx, v)
	if err != nil {
		return id, err
	}
	if b, err = convert.Clean(b, rule, idx); err != nil {
		return id, err
	}
	return w.bytes(ctx, "blob", b)
}

func wholeEffect(ctx context.Context, v *snapshot.Effect) ([]byte, error) {
	if v.Size > maxConverted {
		return nil, fmt.Errorf("%d bytes are too many to convert line ends", v.Size)
	}
	r, err := v.Open()
	if err != nil {
		return nil, err
	}
	b := bytes.NewBuffer(make([]byte, 0, v.Size+1))
	_, err = io.Copy(b, io.LimitReader(&interruptible{ctx, r}, v.Size+1))
	if err = errors.Join(err, r.Close()); err != nil {
		return nil, err
	}
	if sha256.Sum256(b.Bytes()) != v.Digest {
		return nil, errMoved
	}
	return b.Bytes(), nil
}
