//go:build !portablefs

package vfs

import (
	"encoding/binary"
	"io"
	"io/fs"
	"sync"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"
)

// What the real form of this build can do beyond the rest. A file system can lack
// the exchange all the same, and then says so.
const (
	CanExchange = true // Rename with Exchange
	CanSyncFS   = true // Dir.SyncFS; errors.ErrUnsupported without
)

// shared is what all handles below one root have in common.
type shared struct {
	componentWalk atomic.Bool // openat2 is not to be had
	dirents       sync.Pool   // *[]byte for getdents
}

func newShared(o OS) *shared {
	sh := &shared{dirents: sync.Pool{New: func() any { b := make([]byte, 32<<10); return &b }}}
	sh.componentWalk.Store(o.componentWalk)
	return sh
}

func renameAt(from int, name string, to int, toName string, mode RenameMode) error {
	var flags uint
	switch mode {
	case NoReplace:
		flags = unix.RENAME_NOREPLACE
	case Exchange:
		flags = unix.RENAME_EXCHANGE
	}
	return unix.Renameat2(from, name, to, toName, flags)
}

func syncDir(fd int) error { return unix.Fsync(fd) }

func syncFS(fd int) error { return unix.Syncfs(fd) }

func syncFile(fd int) error { return unix.Fdatasync(fd) }

// noXattr is the answer for an attribute that a file has not.
const noXattr = unix.ENODATA

func (d *osDir) List() ([]DirEntry, error) {
	d.list.Lock()
	defer d.list.Unlock()
	var out []DirEntry
	err := d.self("list", "", func(fd int) error {
		out = nil
		if d.listed {
			if _, err := unix.Seek(fd, 0, unix.SEEK_SET); err != nil {
				return err
			}
		}
		d.listed = true
		p := d.sh.dirents.Get().(*[]byte)
		defer d.sh.dirents.Put(p)
		for {
			n, err := unix.Getdents(fd, *p)
			if err != nil {
				return err
			}
			if n == 0 {
				return nil
			}
			out = appendDirents(out, (*p)[:n])
		}
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// appendDirents reads records of struct linux_dirent64: inode, offset, record
// length, type, name ended by NUL.
func appendDirents(out []DirEntry, b []byte) []DirEntry {
	const header = 19
	for len(b) >= header {
		n := int(binary.NativeEndian.Uint16(b[16:]))
		if n < header || n > len(b) {
			return out
		}
		name := b[header:n]
		for i, c := range name {
			if c == 0 {
				name = name[:i]
				break
			}
		}
		if s := string(name); s != "." && s != ".." {
			out = append(out, DirEntry{Name: s, Kind: kindOfDirent(b[18]), Ino: binary.NativeEndian.Uint64(b)})
		}
		b = b[n:]
	}
	return out
}

// copyRange moves up to limit bytes (all if negative) with copy_file_range from
// the read position of src. It stops without an error where the kernel cannot
// do it; both positions then stand behind what was copied.
func (f *osFile) copyRange(src io.Reader, limit int64) (int64, error) {
	with := sourceFd(src)
	if with == nil {
		return 0, nil
	}
	var done int64
	for limit < 0 || done < limit {
		chunk := int64(1 << 30)
		if limit >= 0 {
			chunk = min(chunk, limit-done)
		}
		var n int
		err := f.do("copy", func(fd int) (err error) {
			werr := with(func(from int) { n, err = unix.CopyFileRange(from, nil, fd, nil, int(chunk), 0) })
			if werr != nil {
				return werr
			}
			return err
		})
		if err != nil {
			switch errno, _ := err.(*fs.PathError).Err.(unix.Errno); errno {
			case unix.ENOSPC, unix.EDQUOT, unix.EFBIG:
				return done, err
			}
			// Cannot, or a real error that the plain copy will meet and report.
			return done, nil
		}
		if n == 0 {
			return done, nil
		}
		done += int64(n)
	}
	return done, nil
}

// sourceFd returns a way to run a call with the descriptor of r, nil if it has none.
func sourceFd(r io.Reader) func(func(fd int)) error {
	switch s := r.(type) {
	case *osFile:
		return func(call func(fd int)) error {
			fd, err := s.use()
			if err != nil {
				return err
			}
			call(fd)
			return s.release()
		}
	case syscall.Conn: // *os.File, also in the wrapping that its WriteTo puts around it
		raw, err := s.SyscallConn()
		if err != nil {
			return nil
		}
		return func(call func(fd int)) error {
			return raw.Control(func(fd uintptr) { call(int(fd)) })
		}
	}
	return nil
}

func (f *osFile) StartWriteback() error {
	err := f.do("start writeback of", func(fd int) error {
		err := unix.SyncFileRange(fd, 0, 0, unix.SYNC_FILE_RANGE_WRITE)
		if err == unix.ENOSYS {
			return nil // a hint
		}
		return err
	})
	return err
}
