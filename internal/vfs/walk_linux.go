//go:build !portablefs

package vfs

import "golang.org/x/sys/unix"

// resolve keeps a walk below its start and off every link, magic ones of /proc
// included. Mounts may be crossed.
const resolve = unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS

// openBeneath opens the directory at the checked path below fd, in one system
// call where the kernel has openat2. A link anywhere gives ELOOP.
func (s *shared) openBeneath(fd int, path string) (int, error) {
	if s.componentWalk.Load() {
		return walk(fd, path)
	}
	how := unix.OpenHow{Flags: dirFlags, Resolve: resolve}
	var out int
	var err error
	// EAGAIN means that a rename or mount elsewhere made the kernel unsure; the
	// bound keeps a busy neighbour from holding us here for ever.
	for range 32 {
		err = retry(func() (err error) { out, err = unix.Openat2(fd, path, &how); return })
		if err != unix.EAGAIN {
			break
		}
	}
	switch err {
	case nil:
		return out, nil
	case unix.ENOSYS:
		s.componentWalk.Store(true)
		return walk(fd, path)
	case unix.EPERM, unix.EAGAIN:
		// EPERM may be a system call filter or the answer; the walk tells.
		return walk(fd, path)
	}
	return -1, err
}
