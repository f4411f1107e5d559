package gitbase

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/aspengine/asp/snapshot"
)

// ErrNotInHead says that HEAD's tree has no file at a path.
var ErrNotInHead = errors.New("no such file in HEAD's tree")

// HeadFile returns the blob that HEAD's tree has at p: what git stored, which
// is not the working bytes where line ends or filters differ. At most limit
// bytes; ErrNotInHead without a file there.
func (r *Repo) HeadFile(ctx context.Context, p snapshot.Path, limit int64) ([]byte, error) {
	h, err := r.Head()
	if err != nil {
		return nil, err
	}
	if h.Commit == "" {
		return nil, ErrNotInHead
	}
	r.mu.Lock()
	last := r.headFile
	r.mu.Unlock()
	if last.commit == h.Commit && last.path == p && int64(len(last.bytes)) <= limit {
		return slices.Clone(last.bytes), last.err
	}
	out, err := r.fileAt(ctx, h.Commit, p, limit)
	if err == nil || errors.Is(err, ErrNotInHead) {
		r.mu.Lock()
		r.headFile = headFile{h.Commit, p, slices.Clone(out), err}
		r.mu.Unlock()
	}
	return out, err
}

// headFile is the last answer of HeadFile. A commit names its files by digests: it
// never has others.
type headFile struct {
	commit string
	path   snapshot.Path
	bytes  []byte
	err    error // nil or ErrNotInHead
}

func (r *Repo) fileAt(ctx context.Context, commit string, p snapshot.Path, limit int64) ([]byte, error) {
	id, err := r.objs.treeOf(commit)
	if err != nil {
		return nil, err
	}
	parts := strings.Split(p.String(), "/")
	for i, name := range parts {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		var at treeEntry
		found := false
		err := r.objs.tree(id, func(n string, te treeEntry) error {
			if n == name {
				at, found = te, true
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
		last := i == len(parts)-1
		if !found || !last && at.mode != modeTree || last && at.mode&0o170000 != 0o100000 {
			return nil, ErrNotInHead
		}
		id = at.id
	}
	var out []byte
	err = r.objs.blob(id, func(size int64, rd io.Reader) error {
		if size > limit {
			return fmt.Errorf("read %.200q at HEAD: %d bytes are more than %d", p, size, limit)
		}
		var err error
		out, err = io.ReadAll(io.LimitReader(rd, limit+1))
		return err
	})
	return out, err
}
