package vfs

import (
	"strings"
	"syscall"

	"golang.org/x/sys/windows"
)

// unusable names mean something else on this system.
func unusable(name string) bool { return reservedName(name) }

// checkFound is CheckName for what is there already: a name of the short form passes,
// and find sees to it that what it leads to is called so.
func checkFound(name string) error {
	if shortName(name) && !specialName(name) {
		return nil
	}
	return CheckName(name)
}

// checkFoundPath is CheckPath for what is there already.
func checkFoundPath(path string) error {
	if path == "." {
		return nil
	}
	for name := range strings.SplitSeq(path, "/") {
		if err := checkFound(name); err != nil {
			return err
		}
	}
	return nil
}

// find opens what is at name below dir, off every link. What is called otherwise, and
// only found by its short form, is refused as such a name is.
func find(dir windows.Handle, name string, access, options uint32) (windows.Handle, error) {
	if err := checkFound(name); err != nil {
		return 0, err
	}
	h, err := ntOpen(dir, name, access, windows.FILE_OPEN, options)
	if err != nil || !shortName(name) {
		return h, err
	}
	own, err := lastName(h)
	if err == nil && !strings.EqualFold(own, name) {
		err = syscall.EINVAL
	}
	if err != nil {
		_ = windows.CloseHandle(h)
		return 0, err
	}
	return h, nil
}

// lastName is how what h has open is called in its directory.
func lastName(h windows.Handle) (string, error) {
	buf := make([]uint16, 512)
	for {
		n, err := windows.GetFinalPathNameByHandle(h, &buf[0], uint32(len(buf)), 0)
		if err != nil {
			return "", err
		}
		if int(n) < len(buf) {
			path := windows.UTF16ToString(buf[:n])
			return path[strings.LastIndexByte(path, '\\')+1:], nil
		}
		buf = make([]uint16, n+1)
	}
}
