// Package vfs is the narrow file-system layer that every write to a workspace,
// a journal or the trusted state goes through. It has three forms: the real
// one (OS), a memory model in which only synced data survives a crash
// (internal/vfs/memfs), and a wrapper that makes the n-th operation fail or the
// process die (internal/vfs/faultfs).
//
// The layer works on directory handles. A name is one path component, or, for
// the methods that say so, a relative slash-separated path. No method follows
// a symbolic link, in the last component or before it, and none leaves the
// tree below its handle: a path checked twice is two paths, a descriptor is
// one.
//
// Errors are those of the operating system, wrapped in *fs.PathError or
// *os.LinkError, so that errors.Is with fs.ErrNotExist, fs.ErrExist and
// unix.EXDEV, unix.ELOOP, unix.ENOSPC … works on every form. EINTR is retried
// inside the layer, on syncs too; no other failed sync is ever retried by
// anybody.
package vfs

import (
	"io"
)

// Kind says what a name refers to.
type Kind uint8

// The kinds. Other covers FIFOs, sockets and devices; such names are never
// opened by any method.
const (
	KindInvalid Kind = iota
	KindFile
	KindDir
	KindSymlink
	KindOther
)

// Stat is what the file system says of one name, without following links.
type Stat struct {
	Kind  Kind
	Perm  uint32 // permission bits with setuid, setgid and sticky: 0o7777
	Size  int64
	Ino   uint64
	Dev   uint64
	MntID uint64 // mount the name was found on; 0 where the kernel does not say
	Nlink uint64
	UID   uint32
	GID   uint32
	Mtime int64 // nanoseconds since the epoch
	Ctime int64 // nanoseconds since the epoch
	// Immutable tells that the immutable or append-only flag is set, where the
	// kernel says so.
	Immutable bool
}

// SameFile tells whether a and b are the same inode.
func (s Stat) SameFile(o Stat) bool { return s.Dev == o.Dev && s.Ino == o.Ino }

// RenameMode selects what a rename does when the destination exists.
type RenameMode uint8

// The rename modes. There is no mode that overwrites: nothing in this module
// replaces a user's file by a plain rename, because the bytes it displaces
// could not be looked at afterwards.
const (
	RenameInvalid RenameMode = iota
	NoReplace                // fails with fs.ErrExist when the destination exists
	Exchange                 // swaps the two names atomically; both must exist
	Replace                  // replaces our own files only (state under ASP_HOME, index.lock over index)
)

// DirEntry is one name in a directory. Kind may be KindInvalid where the file
// system does not tell; then Lstat does.
type DirEntry struct {
	Name string
	Kind Kind
	Ino  uint64
}

// FS opens the roots that everything else is reached from.
type FS interface {
	// OpenRoot opens the directory at an absolute path. The path is trusted:
	// links in it are followed. The caller closes the handle.
	OpenRoot(path string) (Dir, error)
}

// DirStater is an FS that describes the directory at an absolute path as OpenRoot and
// Stat would, links followed, by one call and without the right to read it.
type DirStater interface {
	StatDir(path string) (Stat, error)
}

// Dir is an open directory. Its methods may be called concurrently. The
// handle stays on the same directory when that is renamed.
type Dir interface {
	// Lstat describes path (several components allowed) without following links.
	Lstat(path string) (Stat, error)
	// Stat describes the directory itself.
	Stat() (Stat, error)
	// OpenDir opens the directory at path (several components allowed; "."
	// gives a second handle on the same directory). A link anywhere in path
	// fails with unix.ELOOP (or ENOTDIR for the last component). Mounts may
	// be crossed; Stat().MntID tells.
	OpenDir(path string) (Dir, error)
	// Open opens the regular file name for reading. A link, FIFO, socket or
	// device is refused without being opened for I/O (unix.ELOOP for links,
	// unix.EINVAL otherwise).
	Open(name string) (File, error)
	// Create makes name, which must not exist, and opens it for writing and
	// reading. The umask applies to perm.
	Create(name string, perm uint32) (File, error)
	// Mkdir makes the directory name; the umask applies to perm.
	Mkdir(name string, perm uint32) error
	// Symlink makes name a link with the given target.
	Symlink(target, name string) error
	// Readlink returns the target of the link name.
	Readlink(name string) (string, error)
	// Link gives the file name of this directory a second name in another.
	Link(name string, to Dir, toName string) error
	// Unlink removes the name of a non-directory.
	Unlink(name string) error
	// Rmdir removes the empty directory name.
	Rmdir(name string) error
	// Rename moves name to toName in the directory to, which must come from
	// the same FS. Atomic for every observer. Not durable before both
	// directories are synced.
	Rename(name string, to Dir, toName string, mode RenameMode) error
	// List returns the names in the directory, without "." and "..", unsorted.
	List() ([]DirEntry, error)
	// Chmod, Chown set the permission bits and ids of the directory itself.
	Chmod(perm uint32) error
	Chown(uid, gid uint32) error
	// Sync makes the names in this directory durable.
	Sync() error
	// SyncFS makes everything on the directory's file system durable: one
	// barrier however many files were written.
	SyncFS() error
	// Close releases the handle.
	Close() error
}

// File is an open regular file.
type File interface {
	io.Reader
	io.ReaderAt
	io.Writer
	// Stat describes the open file, whatever its name is now. The first call
	// after Open may give what Open saw.
	Stat() (Stat, error)
	// WriteAt writes at off, over what is there and beyond the end, and leaves the
	// place of Read and Write alone.
	io.WriterAt
	// Truncate cuts or extends the file.
	Truncate(size int64) error
	// Chmod, Chown set exact bits and ids (the umask does not apply).
	Chmod(perm uint32) error
	Chown(uid, gid uint32) error
	// SetMtime sets the modification time, nanoseconds since the epoch.
	SetMtime(ns int64) error
	// Xattrs returns all extended attributes that the caller may read, ACLs
	// (system.posix_acl_*) included; nil on file systems without them.
	Xattrs() (map[string][]byte, error)
	// SetXattr sets one extended attribute.
	SetXattr(name string, value []byte) error
	// Sync makes data and size durable (fdatasync). Not the name.
	Sync() error
	// StartWriteback asks the kernel to begin writing dirty data; a hint
	// without any promise.
	StartWriteback() error
	Close() error
}

// Descriptor is implemented by the handles of the real form. It is how the few
// callers that need a system call outside this layer (locks, statfs, mounts)
// get at the descriptor, which stays owned by the handle.
type Descriptor interface {
	Fd() uintptr
}
