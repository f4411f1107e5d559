// Package commit is the only room that writes to a live workspace. It takes
// (path, before, after) triples and makes all of them true or none, by a
// write-ahead journal (apply/journal): stage on the same file system, one
// barrier for data and journal, swap each path by an atomic rename that cannot
// overwrite (exchange, no-replace), look at the displaced bytes, one barrier
// for the names, commit record, clean-up. Recover finishes or undoes what a
// crash left.
package commit

import (
	"io"

	"github.com/aspengine/asp/internal/vfs"
	"github.com/aspengine/asp/snapshot"
)

// Image is what is, or shall be, at a path.
type Image struct {
	Kind   vfs.Kind // KindFile or KindSymlink
	Digest snapshot.Digest
	Size   int64
	// Perm holds the exact permission bits. For a new file of a plan it is
	// 0666 or 0777 and UmaskApplies is set.
	Perm         uint32
	UmaskApplies bool
	// Stat is what admission saw at a before-image (identity, owner, times).
	Stat vfs.Stat
	// Open gives the bytes of an after-image (the target text of a symlink); may
	// be called more than once, from several goroutines. nil for before-images,
	// pure moves and changes of the mode alone, whose bytes are those on disk.
	Open func() (io.ReadCloser, error)
}

// Change is one path's way from before to after. Before nil: the path must be
// absent. After nil: the path will be absent. Both set: the content, the mode
// or both change; owner, ACL and extended attributes stay those of the file.
// From set (with Before nil and After set): the inode at From is moved here
// unchanged, and From itself has a Change whose After is nil and MovedTo is
// set. From with After.Open or another After.Perm: a new file here that takes
// owner, ACL and extended attributes from the one at From, which is deleted.
type Change struct {
	Path    snapshot.Path
	Before  *Image
	After   *Image
	From    snapshot.Path
	MovedTo snapshot.Path
}
