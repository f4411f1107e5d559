package commit

import (
	"errors"
	"fmt"
	"strings"
	"unsafe"

	"golang.org/x/sys/windows"

	"github.com/aspengine/asp/internal/vfs"
)

// ProbeMount names no file system: nothing of what one keeps over a power cut was ever
// tried on this system, so that no guarantee rests on one. Two names cannot be exchanged.
func ProbeMount(vfs.Dir) (MountFacts, error) {
	return MountFacts{Type: "unknown", Aside: true, Why: "no sync of a directory is promised on Windows, and no file system of it was ever tried over a power cut by the makers of this program"}, nil
}

// hasDefaultACL is false: every directory here passes on a list, and whether the new
// file's is the old one's is what keepFlags looks at.
func hasDefaultACL(vfs.Dir) bool { return false }

func inodeFlags(vfs.Dir) int { return 0 }

// keepFlags refuses a file that has more than a new one gets: named streams, extended
// attributes, other access rights or attributes. Nothing of that is copied.
func keepFlags(f, old vfs.File, _ int) (why string, err error) {
	to, ok := f.(vfs.Descriptor)
	from, ok2 := old.(vfs.Descriptor)
	if !ok || !ok2 {
		return "", nil
	}
	was, is := windows.Handle(from.Fd()), windows.Handle(to.Fd())
	if streams, err := streamsOf(was); err != nil || streams > 1 {
		return "its named streams cannot be kept", wrap("look for streams", err)
	}
	if n, err := attributeBytes(was); err != nil || n > 0 {
		return "its extended attributes cannot be kept", wrap("look for extended attributes", err)
	}
	a, err := rights(was)
	if err != nil {
		return "", wrap("read access rights", err)
	}
	b, err := rights(is)
	if err != nil {
		return "", wrap("read access rights", err)
	}
	if a != b {
		return "its owner or access rights are not those that a new file gets here, and cannot be kept", nil
	}
	var x, y windows.ByHandleFileInformation
	if err := errors.Join(windows.GetFileInformationByHandle(was, &x), windows.GetFileInformationByHandle(is, &y)); err != nil {
		return "", wrap("read attributes", err)
	}
	// Archive and normal say nothing, and the mode has read-only.
	const meant = ^uint32(windows.FILE_ATTRIBUTE_ARCHIVE | windows.FILE_ATTRIBUTE_NORMAL | windows.FILE_ATTRIBUTE_READONLY)
	if x.FileAttributes&meant != y.FileAttributes&meant {
		return fmt.Sprintf("its attributes %#x cannot be kept", x.FileAttributes), nil
	}
	return "", nil
}

// rights are owner, group and access list in words, without what says only that
// entries come from a directory above.
func rights(h windows.Handle) (string, error) {
	sd, err := windows.GetSecurityInfo(h, windows.SE_FILE_OBJECT,
		windows.OWNER_SECURITY_INFORMATION|windows.GROUP_SECURITY_INFORMATION|windows.DACL_SECURITY_INFORMATION)
	if err != nil {
		return "", err
	}
	s := sd.String()
	// Entries are (type;flags;rights;…); ID is the flag of one that is inherited. The
	// letters before the first are of the list.
	s = strings.ReplaceAll(s, ";ID;", ";;")
	if owner, list, ok := strings.Cut(s, "D:"); ok {
		if i := strings.IndexByte(list, '('); i >= 0 {
			list = list[i:]
		}
		s = owner + "D:" + list
	}
	return s, nil
}

// streamsOf counts the streams of a file, its content included.
func streamsOf(h windows.Handle) (int, error) {
	const fileStreamInfo = 7
	buf := make([]uint64, 8<<10)
	b := unsafe.Slice((*byte)(unsafe.Pointer(&buf[0])), 8*len(buf))
	err := windows.GetFileInformationByHandleEx(h, fileStreamInfo, &b[0], uint32(len(b)))
	switch {
	case errors.Is(err, windows.ERROR_HANDLE_EOF), errors.Is(err, windows.ERROR_INVALID_PARAMETER), errors.Is(err, windows.ERROR_NOT_SUPPORTED), errors.Is(err, windows.ERROR_CALL_NOT_IMPLEMENTED), errors.Is(err, windows.ERROR_INVALID_FUNCTION):
		return 1, nil // a file system without
	case errors.Is(err, windows.ERROR_MORE_DATA):
		return 2, nil
	case err != nil:
		return 0, err
	}
	n := 1
	for at := uint32(0); ; n++ {
		next := *(*uint32)(unsafe.Pointer(&b[at]))
		if next == 0 || at+next >= uint32(len(b)) {
			return n, nil
		}
		at += next
	}
}

// attributeBytes is how long the extended attributes of a file are.
func attributeBytes(h windows.Handle) (uint32, error) {
	const fileEaInformation = 7
	var n uint32
	var iosb windows.IO_STATUS_BLOCK
	p := windows.NewLazySystemDLL("ntdll.dll").NewProc("NtQueryInformationFile")
	r, _, _ := p.Call(uintptr(h), uintptr(unsafe.Pointer(&iosb)), uintptr(unsafe.Pointer(&n)), 4, fileEaInformation)
	switch s := windows.NTStatus(r); s {
	case windows.STATUS_SUCCESS:
		return n, nil
	case windows.STATUS_NOT_IMPLEMENTED, windows.STATUS_NOT_SUPPORTED, windows.STATUS_INVALID_PARAMETER, windows.STATUS_INVALID_INFO_CLASS:
		return 0, nil
	default:
		return 0, s.Errno()
	}
}
