package vfs

import (
	"runtime"
	"strings"
	"syscall"
)

// MaxTarget is how many bytes of a link's target are read at most; no kernel
// takes a longer one.
const MaxTarget = 4096

// MayFold: the usual file systems here find a name by another spelling of it, in
// upper or lower case or in another Unicode form.
const MayFold = runtime.GOOS == "windows" || runtime.GOOS == "darwin"

// CheckName tells whether name is one path component that a method may be
// given: not empty, not "." or "..", without a slash and without NUL, and on
// Windows none that means something else there (reservedName). The
// error is syscall.EINVAL, on every form alike, so that a caller's mistake
// never reaches the kernel.
func CheckName(name string) error {
	if name == "" || name == "." || name == ".." || strings.ContainsAny(name, "/\x00") || unusable(name) {
		return syscall.EINVAL
	}
	return nil
}

// CheckPath tells whether path is a relative slash-separated path of good
// names, or "." alone. The error is syscall.EINVAL.
func CheckPath(path string) error {
	if path == "." {
		return nil
	}
	for {
		name, rest, more := strings.Cut(path, "/")
		if err := CheckName(name); err != nil {
			return err
		}
		if !more {
			return nil
		}
		path = rest
	}
}

// splitPath cuts a checked path before its last component; dir is "" when
// there is only one.
func splitPath(path string) (dir, name string) {
	if i := strings.LastIndexByte(path, '/'); i >= 0 {
		return path[:i], path[i+1:]
	}
	return "", path
}
