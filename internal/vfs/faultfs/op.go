package faultfs

import "fmt"

// Op is a kind of operation.
type Op uint8

// The kinds of operation. Their names in a trace are in the comments.
const (
	OpInvalid Op = iota
	OpenRoot     // openroot
	Lstat        // lstat
	Stat         // stat, of an open directory or file
	OpenDir      // opendir
	Open         // open
	Create       // create
	Mkdir        // mkdir
	Symlink      // symlink PATH TARGET
	Readlink     // readlink
	Link         // link OLD NEW
	Unlink       // unlink
	Rmdir        // rmdir
	NoReplace    // noreplace OLD NEW
	Exchange     // exchange A B
	Replace      // replace OLD NEW
	List         // list
	ChmodDir     // chmoddir
	SyncDir      // syncdir
	SyncFS       // syncfs
	CloseDir     // closedir
	Read         // read
	Write        // write
	Truncate     // truncate
	Chmod        // chmod
	Chown        // chown
	SetMtime     // setmtime
	Xattrs       // xattrs
	SetXattr     // setxattr
	Sync         // sync
	Writeback    // writeback
	Close        // close
	opEnd
)

// String returns the name in a trace.
func (o Op) String() string {
	names := [...]string{
		OpenRoot: "openroot", Lstat: "lstat", Stat: "stat", OpenDir: "opendir", Open: "open", Create: "create",
		Mkdir: "mkdir", Symlink: "symlink", Readlink: "readlink", Link: "link", Unlink: "unlink", Rmdir: "rmdir",
		NoReplace: "noreplace", Exchange: "exchange", Replace: "replace", List: "list", ChmodDir: "chmoddir",
		SyncDir: "syncdir", SyncFS: "syncfs", CloseDir: "closedir", Read: "read", Write: "write", Truncate: "truncate",
		Chmod: "chmod", Chown: "chown", SetMtime: "setmtime", Xattrs: "xattrs", SetXattr: "setxattr", Sync: "sync",
		Writeback: "writeback", Close: "close",
	}
	if o > OpInvalid && o < opEnd {
		return names[o]
	}
	return fmt.Sprintf("op %d", uint8(o))
}

// Mutating tells whether the operation changes what is there, or what of it is
// durable: a death before a sync and one after it are two different deaths.
func (o Op) Mutating() bool {
	switch o {
	case Create, Mkdir, Symlink, Link, Unlink, Rmdir, NoReplace, Exchange, Replace, ChmodDir, SyncDir, SyncFS,
		Write, Truncate, Chmod, Chown, SetMtime, SetXattr, Sync:
		return true
	}
	return false
}

// IsSync tells whether the operation makes something durable.
func (o Op) IsSync() bool { return o == SyncDir || o == SyncFS || o == Sync }
