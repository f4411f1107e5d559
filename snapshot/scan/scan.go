// Package scan reads directory trees fast and without following anything: raw
// directory listings, one stat per name relative to an open directory, and
// whole-file hashing by a few workers that share nothing but a stack of
// directories. It is the engine below the stamps of package snapshot (plain
// directories) and package gitbase (git work trees).
//
// It opens regular files and directories only. Symbolic links are read, never
// followed; FIFOs, sockets and devices are stat-ed, never opened. It writes
// nothing.
package scan

import (
	"crypto/sha1"
	"crypto/sha256"
	"errors"
)

// Kind is the type of a name.
type Kind uint8

// The kinds of names.
const (
	Unknown Kind = iota
	File
	Dir
	Symlink
	FIFO
	Socket
	Device
)

// Note is the word by which an overlay names something that is never opened,
// and empty for files, directories and links.
func (k Kind) Note() string {
	switch k {
	case FIFO:
		return "fifo"
	case Socket:
		return "socket"
	case Device, Unknown:
		return "device"
	}
	return ""
}

// Stat is what lstat says, cut down to what a stamp compares.
type Stat struct {
	Kind  Kind
	Exec  bool // owner's execute bit
	Perm  uint32
	Size  int64
	Dev   uint64
	Ino   uint64
	Nlink uint64
	Mtime int64 // nanoseconds since the epoch
	Ctime int64
}

// Trace is a number of this state of a file. Two that differ in what a write, a
// replacement or other attributes leave behind (size, time stamps, mode) have different
// ones, but for chance. Sums of them tell whether any of many files differs. Inode numbers
// have no part in it: file systems in user space may give new ones to files that rest.
func (s *Stat) Trace() uint64 {
	h := uint64(s.Size)
	for _, x := range [...]uint64{uint64(s.Mtime), uint64(s.Ctime), uint64(s.Perm) | uint64(s.Kind)<<32} {
		h = (h ^ x) * 0x9e3779b97f4a7c15
		h ^= h >> 29
	}
	h *= 0xbf58476d1ce4e5b9
	return h ^ h>>32
}

// Digests of one file's bytes. Git is the id of the blob that git would store
// for exactly these bytes (no conversion).
type Digests struct {
	SHA256 [sha256.Size]byte
	Git    [sha1.Size]byte
}

// Want selects digests.
type Want uint8

// What to compute.
const (
	WantSHA256 Want = 1 << iota
	WantGit
)

var (
	// ErrUnreadable says that a file exists and may not be opened for reading.
	ErrUnreadable = errors.New("not readable")
	// ErrChanging says that a file did not hold still for three reads.
	ErrChanging = errors.New("changes while it is read")
	// ErrNotRegular says that a name is no regular file any more.
	ErrNotRegular = errors.New("not a regular file")
)
