//go:build unix

package commit

import "golang.org/x/sys/unix"

// spareFiles is how many files a transaction may keep open: a small part of what
// the process may, as others run in it too.
func spareFiles() int {
	const share = 16
	var r unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &r) != nil {
		return 0
	}
	return int(min(uint64(r.Cur)/share, maxKept))
}
