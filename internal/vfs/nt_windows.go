package vfs

import (
	"errors"
	"syscall"
	"unsafe"

	"golang.org/x/sys/windows"
)

// What is here goes to the kernel's own calls, because those take a name relative to
// an open directory and open a link as what it is; the usual ones take paths.

const (
	shareAll = windows.FILE_SHARE_READ | windows.FILE_SHARE_WRITE | windows.FILE_SHARE_DELETE

	look     = windows.FILE_READ_ATTRIBUTES | windows.SYNCHRONIZE
	listing  = windows.FILE_LIST_DIRECTORY | windows.FILE_TRAVERSE | windows.FILE_READ_ATTRIBUTES | windows.READ_CONTROL | windows.SYNCHRONIZE
	reading  = windows.FILE_GENERIC_READ
	writing  = windows.FILE_GENERIC_READ | windows.FILE_GENERIC_WRITE
	removing = windows.DELETE | look

	plain = windows.FILE_OPEN_REPARSE_POINT | windows.FILE_SYNCHRONOUS_IO_NONALERT | windows.FILE_OPEN_FOR_BACKUP_INTENT
)

// ntOpen opens a name below dir without following a link in it; an empty name opens
// what dir is, anew.
func ntOpen(dir windows.Handle, name string, access, disposition, options uint32) (windows.Handle, error) {
	n, err := windows.NewNTUnicodeString(name)
	if err != nil {
		return 0, syscall.EINVAL
	}
	oa := &windows.OBJECT_ATTRIBUTES{RootDirectory: dir, ObjectName: n, Attributes: windows.OBJ_CASE_INSENSITIVE}
	oa.Length = uint32(unsafe.Sizeof(*oa))
	var h windows.Handle
	var iosb windows.IO_STATUS_BLOCK
	err = windows.NtCreateFile(&h, access, oa, &iosb, nil, windows.FILE_ATTRIBUTE_NORMAL, shareAll, disposition, options|plain, 0, 0)
	if err != nil {
		return 0, errno(err)
	}
	return h, nil
}

// errno gives the errors of the kernel the names that callers of every form know.
func errno(err error) error {
	var s windows.NTStatus
	if !errors.As(err, &s) {
		return err
	}
	switch s {
	case windows.STATUS_NOT_A_DIRECTORY:
		return syscall.ENOTDIR
	case windows.STATUS_FILE_IS_A_DIRECTORY:
		return syscall.EISDIR
	case windows.STATUS_DIRECTORY_NOT_EMPTY:
		return syscall.ENOTEMPTY
	case windows.STATUS_OBJECT_NAME_COLLISION:
		return syscall.EEXIST
	case windows.STATUS_OBJECT_NAME_NOT_FOUND, windows.STATUS_OBJECT_PATH_NOT_FOUND, windows.STATUS_NO_SUCH_FILE, windows.STATUS_DELETE_PENDING:
		return syscall.ENOENT
	case windows.STATUS_OBJECT_NAME_INVALID:
		return syscall.EINVAL
	case windows.STATUS_NAME_TOO_LONG:
		return syscall.ENAMETOOLONG
	case windows.STATUS_NOT_SAME_DEVICE:
		return syscall.EXDEV
	case windows.STATUS_REPARSE_POINT_ENCOUNTERED, windows.STATUS_STOPPED_ON_SYMLINK:
		return syscall.ELOOP
	case windows.STATUS_ACCESS_DENIED, windows.STATUS_CANNOT_DELETE:
		return syscall.EACCES
	case windows.STATUS_DISK_FULL:
		return syscall.ENOSPC
	case windows.STATUS_SHARING_VIOLATION:
		return syscall.EBUSY
	}
	return s.Errno()
}

// old tells that a class of information is unknown to an older system or a file
// system that is not ntfs.
func old(err error) bool {
	return errors.Is(err, windows.STATUS_INVALID_INFO_CLASS) || errors.Is(err, windows.STATUS_INVALID_PARAMETER) ||
		errors.Is(err, windows.STATUS_NOT_IMPLEMENTED) || errors.Is(err, windows.STATUS_NOT_SUPPORTED)
}

func ntSet(h windows.Handle, class uint32, b []byte) error {
	var iosb windows.IO_STATUS_BLOCK
	return windows.NtSetInformationFile(h, &iosb, &b[0], uint32(len(b)), class)
}

// ntRemove takes the name away that h was opened by. It goes at once where the
// system can, else when the last handle on the file is closed.
func ntRemove(h windows.Handle) error {
	flags := uint32(windows.FILE_DISPOSITION_DELETE | windows.FILE_DISPOSITION_POSIX_SEMANTICS | windows.FILE_DISPOSITION_IGNORE_READONLY_ATTRIBUTE)
	err := ntSet(h, windows.FileDispositionInformationEx, unsafe.Slice((*byte)(unsafe.Pointer(&flags)), 4))
	if old(err) {
		err = ntSet(h, windows.FileDispositionInformation, []byte{1})
	}
	return errno(err)
}

// ntRename gives what h was opened by another name.
func ntRename(h, to windows.Handle, name string, replace bool) error {
	flags := uint32(windows.FILE_RENAME_POSIX_SEMANTICS | windows.FILE_RENAME_IGNORE_READONLY_ATTRIBUTE)
	if replace {
		flags |= windows.FILE_RENAME_REPLACE_IF_EXISTS
	}
	err := ntName(h, to, name, fileRenameInformationEx, flags)
	if old(err) {
		err = ntName(h, to, name, windows.FileRenameInformation, flags&windows.FILE_RENAME_REPLACE_IF_EXISTS)
	}
	return errno(err)
}

// ntLink gives what h has open a second name; no file is replaced.
func ntLink(h, to windows.Handle, name string) error {
	err := ntName(h, to, name, fileLinkInformation, 0)
	if old(err) || errors.Is(err, windows.STATUS_INVALID_DEVICE_REQUEST) {
		return syscall.EOPNOTSUPP
	}
	return errno(err)
}

// ntName makes the calls that take a name in a directory; they have one form.
func ntName(h, to windows.Handle, name string, class, flags uint32) error {
	n16, err := windows.UTF16FromString(name)
	if err != nil {
		return windows.STATUS_OBJECT_NAME_INVALID
	}
	n16 = n16[:len(n16)-1]
	type info struct {
		flags  uint32
		root   windows.Handle
		length uint32
		first  uint16
	}
	const start = unsafe.Offsetof(info{}.first)
	// Aligned as info is, and never shorter: that is refused.
	buf := make([]uint64, max((start+uintptr(2*len(n16))+7)/8, unsafe.Sizeof(info{})/8))
	b := unsafe.Slice((*byte)(unsafe.Pointer(&buf[0])), 8*len(buf))
	i := (*info)(unsafe.Pointer(&buf[0]))
	i.flags, i.root, i.length = flags, to, uint32(2*len(n16))
	copy(unsafe.Slice(&i.first, len(n16)), n16)
	return ntSet(h, class, b)
}

// Classes of information that x/sys does not name, or not so.
const (
	fileLinkInformation     = 11
	fileRenameInformationEx = 65
)

// HandleStat describes an open file or directory.
func HandleStat(h windows.Handle) (Stat, error) {
	var i windows.ByHandleFileInformation
	if err := windows.GetFileInformationByHandle(h, &i); err != nil {
		return Stat{}, err
	}
	var basic struct {
		created, accessed, written, changed int64
		attributes, _                       uint32
	}
	if err := windows.GetFileInformationByHandleEx(h, windows.FileBasicInfo, (*byte)(unsafe.Pointer(&basic)), uint32(unsafe.Sizeof(basic))); err != nil {
		return Stat{}, err
	}
	s := Stat{
		Kind: KindFile, Perm: 0o644,
		Size:  int64(i.FileSizeHigh)<<32 | int64(i.FileSizeLow),
		Ino:   uint64(i.FileIndexHigh)<<32 | uint64(i.FileIndexLow),
		Dev:   uint64(i.VolumeSerialNumber),
		Nlink: uint64(i.NumberOfLinks),
		Mtime: since1970(basic.written), Ctime: since1970(basic.changed),
	}
	switch {
	case i.FileAttributes&windows.FILE_ATTRIBUTE_REPARSE_POINT != 0:
		// Only a symbolic link is one; a junction, a file in a cloud and the like are
		// nothing that is ever opened here.
		s.Kind = KindOther
		if _, err := readlink(h); err == nil {
			s.Kind, s.Perm, s.Nlink = KindSymlink, 0o777, max(s.Nlink, 1)
		}
	case i.FileAttributes&windows.FILE_ATTRIBUTE_DIRECTORY != 0:
		s.Kind, s.Perm, s.Size = KindDir, 0o755, 0
	case i.FileAttributes&windows.FILE_ATTRIBUTE_READONLY != 0:
		s.Perm = 0o444
	}
	return s, nil
}

// since1970 turns the clock of this system, 100 nanoseconds since 1601.
func since1970(t int64) int64 { return (t - 116444736000000000) * 100 }

func from1970(ns int64) windows.Filetime {
	t := uint64(ns/100 + 116444736000000000)
	return windows.Filetime{LowDateTime: uint32(t), HighDateTime: uint32(t >> 32)}
}

// readlink returns the target of an open symbolic link, with slashes.
func readlink(h windows.Handle) (string, error) {
	buf := make([]byte, windows.MAXIMUM_REPARSE_DATA_BUFFER_SIZE)
	var n uint32
	if err := windows.DeviceIoControl(h, windows.FSCTL_GET_REPARSE_POINT, nil, 0, &buf[0], uint32(len(buf)), &n, nil); err != nil {
		return "", err
	}
	// Tag, length, reserved; then where the two names are, flags, and the names.
	word := func(at int) int { return int(*(*uint16)(unsafe.Pointer(&buf[at]))) }
	if n < 20 || *(*uint32)(unsafe.Pointer(&buf[0])) != windows.IO_REPARSE_TAG_SYMLINK {
		return "", syscall.EINVAL
	}
	at, length := 20+word(12), word(14) // the name for people
	if length == 0 {
		at, length = 20+word(8), word(10)
	}
	if at+length > int(n) || at%2 != 0 {
		return "", syscall.EINVAL
	}
	return windows.UTF16ToString(unsafe.Slice((*uint16)(unsafe.Pointer(&buf[at])), length/2)), nil
}
