package apply

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"unicode/utf8"

	"github.com/aspengine/asp/internal/vfs"
	"github.com/aspengine/asp/seam/wire"
	"github.com/aspengine/asp/snapshot"
)

// maxBlob bounds one blob that is read into memory for a provider. A line of the
// seam holds less.
const maxBlob = 64 << 20

// content is what the providers of one request may ask for: the baseline's tree
// as it is on disk, and what the changeset puts. It lives for one request and
// implements provider.Content. Safe for concurrent use.
type content struct {
	ws    snapshot.Workspace
	live  *snapshot.Live
	state vfs.Dir
	packs *snapshot.Store
	blobs Blobs
	stamp *snapshot.Stamp
	base  []BaseEntry // over the live tree, where the baseline is not the live one
	after map[snapshot.Digest]snapshot.Effect
	puts  map[wire.BlobRef][]string // paths of the after-state, by what the changeset puts
	takes map[wire.BlobRef][]string // paths of the baseline, by what it takes away, as was held against the disk

	mu     sync.Mutex
	tree   []wire.TreeEntry
	files  map[snapshot.Digest][]string
	listed []snapshot.File
	strays bool                                                          // the listing may be of another state than the stamp's
	stored map[snapshot.Digest]func(ctx context.Context) ([]byte, error) // by base, or in memory
}

// contentOf gives what s and the changes on it hold. effects bring the bytes of
// what the changes put.
func (e *Engine) contentOf(s *snapshot.Stamp, base []BaseEntry, changes []wire.Change, effects []snapshot.Effect, blobs Blobs) *content {
	c := &content{
		ws: e.ws, live: snapshot.NewLive(e.root), state: e.state.Dir(), packs: e.packs, blobs: blobs, stamp: s, base: base,
		after: map[snapshot.Digest]snapshot.Effect{}, puts: map[wire.BlobRef][]string{}, takes: map[wire.BlobRef][]string{}, stored: map[snapshot.Digest]func(context.Context) ([]byte, error){},
	}
	for _, x := range effects {
		if !x.Gone && x.Open != nil {
			c.after[x.Digest] = x
		}
	}
	for _, x := range changes {
		if b := afterOf(x); b != "" {
			c.puts[b] = append(c.puts[b], x.Path)
		}
		if from := x.Path; x.Before != "" {
			if x.From != "" {
				from = x.From
			}
			c.takes[x.Before] = append(c.takes[x.Before], from)
		}
	}
	for _, b := range base {
		if !b.Gone {
			c.stored[b.Digest] = b.Open
		}
	}
	return c
}

// afterOf is what a change leaves at its path; "" for a deletion.
func afterOf(c wire.Change) wire.BlobRef {
	if c.Kind == wire.KindRename && c.After == "" {
		return c.Before
	}
	return c.After
}

// Tree is the baseline's tree. It is made at the first call; a context that ends
// spoils no later one.
func (c *content) Tree(ctx context.Context) ([]wire.TreeEntry, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.load(ctx)
}

// list is the baseline's tree as the disk has it. faithful tells whether that is by
// content the tree of the stamp.
func (c *content) list(ctx context.Context) (_ []snapshot.File, faithful bool, err error) {
	state, err := c.ws.Files(ctx, c.stamp)
	if err != nil {
		return nil, false, fmt.Errorf("list the baseline: %w", err)
	}
	state = rebased(state, c.base)
	all, err := snapshot.HashFiles(ctx, c.ws.Root(), state, c.state)
	if err != nil {
		return nil, false, fmt.Errorf("list the baseline: %w", err)
	}
	return all, snapshot.Faithful(state, all), nil
}

func (c *content) load(ctx context.Context) ([]wire.TreeEntry, error) {
	if c.files != nil {
		return c.tree, nil
	}
	all, faithful, err := c.list(ctx)
	if err != nil {
		return nil, err
	}
	c.listed, c.strays = all, !faithful
	tree := make([]wire.TreeEntry, 0, len(all))
	files := make(map[snapshot.Digest][]string, len(all))
	for _, f := range all {
		if !utf8.ValidString(f.Path) {
			continue // no message can name it
		}
		kind := "file"
		if f.Mode == snapshot.ModeSymlink {
			kind = "symlink"
		}
		tree = append(tree, wire.TreeEntry{Path: f.Path, BlobID: wire.BlobRef(f.Digest.Blob()), Kind: kind})
		files[f.Digest] = append(files[f.Digest], f.Path)
	}
	c.tree, c.files = tree, files
	return tree, nil
}

// faithful tells whether everything that was listed so far is of the stamp's state by
// content, whatever is on disk. What was read is: it hashes to what it was asked by.
func (c *content) faithful() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.strays
}

// stood tells, after a walk that found the stamp's state, whether what was listed is of
// that: where conversions lie between disk and state, or files moved, a second listing has
// to be the same. What moved there and back in between is not in both.
func (c *content) stood(ctx context.Context) (bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.strays {
		return true, nil
	}
	now, _, err := c.list(ctx)
	return slices.Equal(c.listed, now), err
}

// rebased puts the entries of another revision over the files of the live tree.
func rebased(all []snapshot.File, base []BaseEntry) []snapshot.File {
	if len(base) == 0 {
		return all
	}
	by := make(map[string]bool, len(base))
	for _, b := range base {
		by[b.Path.String()] = true
	}
	out := slices.DeleteFunc(slices.Clone(all), func(f snapshot.File) bool { return by[f.Path] })
	for _, b := range base {
		if !b.Gone {
			out = append(out, snapshot.File{Path: b.Path.String(), Mode: b.Mode, Digest: b.Digest})
		}
	}
	slices.SortFunc(out, func(a, b snapshot.File) int {
		switch {
		case a.Path < b.Path:
			return -1
		case a.Path > b.Path:
			return 1
		}
		return 0
	})
	return out
}

// Near are those paths that hold b of which the changeset tells. Looking at them first
// saves most requests the look at every file of the tree that Where takes.
func (c *content) Near(b wire.BlobRef) []string { return slices.Concat(c.puts[b], c.takes[b]) }

// Where are the paths of baseline and after-state that hold b.
func (c *content) Where(ctx context.Context, b wire.BlobRef) ([]string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, err := c.load(ctx); err != nil {
		return nil, err
	}
	out := slices.Clone(c.puts[b])
	if d, err := snapshot.ParseBlob(string(b)); err == nil {
		for _, p := range c.files[d] {
			if !slices.Contains(out, p) {
				out = append(out, p)
			}
		}
	}
	return out, nil
}

// errGone says that content is named and nobody has it any more.
var errGone = errors.New("its content is not there any more")

// Bytes is the content of b, whoever has it: what the changeset puts, the disk,
// the blob store, the session. What does not hash to its name is not it: a file
// that moved is not served as its old self.
func (c *content) Bytes(ctx context.Context, b wire.BlobRef) ([]byte, error) {
	d, err := snapshot.ParseBlob(string(b))
	if err != nil {
		return nil, err
	}
	if open := c.stored[d]; open != nil {
		if out, err := open(ctx); err == nil && snapshot.DigestOf(out) == d {
			return out, nil
		}
	}
	if x, ok := c.after[d]; ok {
		if out, ok := readBlob(x.Open, x.Size, d); ok {
			return out, nil
		}
	}
	for _, p := range c.Near(b) {
		if out, ok := onDisk(c.live, p, d); ok {
			return out, nil
		}
	}
	c.mu.Lock()
	_, err = c.load(ctx)
	paths := c.files[d]
	c.mu.Unlock()
	if err != nil {
		return nil, err
	}
	for _, p := range paths {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if out, ok := onDisk(c.live, p, d); ok {
			return out, nil
		}
	}
	if c.blobs != nil {
		if out, ok := c.blobs(d); ok && snapshot.DigestOf(out) == d {
			return out, nil
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if out, err := c.packs.Bytes(d); err == nil {
		return out, nil
	}
	return nil, fmt.Errorf("read %.90q: %w", string(b), errGone)
}

// onDisk is what path holds, if it is what d names.
func onDisk(live *snapshot.Live, path string, d snapshot.Digest) ([]byte, bool) {
	p, err := snapshot.ParsePath(path)
	if err != nil {
		return nil, false
	}
	x, f, err := live.Look(p)
	switch {
	case err != nil:
		return nil, false
	case x.Stat.Kind == vfs.KindSymlink:
		out := []byte(x.Target)
		return out, snapshot.DigestOf(out) == d
	case f == nil:
		return nil, false
	}
	return readBlob(func() (snapshot.ReadCloser, error) { return f, nil }, x.Stat.Size, d)
}

// readBlob reads what open gives, probably so many bytes, if it is what d names.
func readBlob(open func() (snapshot.ReadCloser, error), size int64, d snapshot.Digest) ([]byte, bool) {
	f, err := open()
	if err != nil {
		return nil, false
	}
	defer f.Close()
	var b bytes.Buffer
	b.Grow(int(min(max(size, 0), maxBlob)) + bytes.MinRead) // else one call for every doubling
	_, err = b.ReadFrom(io.LimitReader(f, maxBlob+1))
	return b.Bytes(), err == nil && b.Len() <= maxBlob && snapshot.DigestOf(b.Bytes()) == d
}
