//go:build unix

package vfs

import "golang.org/x/sys/unix"

// MayKeep is how many handles one user of this layer may keep open at a time: a
// share of what the process may, as others run in it too, and no more than most.
// It is most where the limit cannot be asked.
func MayKeep(most, share int) int {
	var r unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &r) != nil {
		return most
	}
	return int(min(uint64(r.Cur)/uint64(share), uint64(most)))
}
