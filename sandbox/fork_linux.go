//go:build amd64 || arm64

package sandbox

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// forksFast says that forkInto can be called.
const forksFast = true

// forkInto starts this executable anew in the namespaces of flags (a user namespace is among them)
// and in the control group that is open as group, -1 for none, with nothing but files for
// descriptors. The identity in there is the caller's own, with setupCaps; the process is killed
// when the calling thread ends.
//
// syscall.StartProcess does the same in another way. There the parent writes what the user
// namespace maps, so the child cannot borrow the parent's memory until it executes something: it
// gets a copy of all page tables, and whoever of the two writes to a page meanwhile a copy of that. In a
// small process this was three milliseconds of a launch, and it grows with the process. Here
// the child writes its own maps, as a process may that maps nothing but itself.
//
// In either way the child executes, and has nothing of the host's memory afterwards. To go on
// without that, as a fork could, was rejected: the first process of a sandbox would hold
// everything that the host ever read.
func forkInto(argv, env []string, files []*os.File, flags uintptr, group int) (*os.Process, error) {
	c, err := newForked(argv, env, files)
	if err != nil {
		return nil, err
	}
	trap, a1, a2, a3 := uintptr(unix.SYS_CLONE), flags|unix.CLONE_VM|unix.CLONE_VFORK|uintptr(unix.SIGCHLD), uintptr(0), uintptr(0)
	if group >= 0 {
		c.clone = cloneArgs{flags: uint64(flags | unix.CLONE_VM | unix.CLONE_VFORK | unix.CLONE_INTO_CGROUP), exitSignal: uint64(unix.SIGCHLD), cgroup: uint64(group)}
		trap, a1, a2 = unix.SYS_CLONE3, uintptr(unsafe.Pointer(&c.clone)), unsafe.Sizeof(c.clone)
	}
	// So that nothing is inherited that another thread is about to mark as not to be.
	syscall.ForkLock.Lock()
	pid, e := forkAndBecome(c, trap, a1, a2, a3)
	afterFork()
	syscall.ForkLock.Unlock()
	runtime.KeepAlive(files)
	if e != 0 {
		return nil, os.NewSyscallError("clone", e)
	}
	if c.errno != 0 {
		var ws syscall.WaitStatus
		for {
			if _, err := syscall.Wait4(int(pid), &ws, 0, nil); err != syscall.EINTR {
				break
			}
		}
		return nil, fmt.Errorf("%s: %w", stepNames[c.at], c.errno)
	}
	return os.FindProcess(int(pid))
}

// forked is everything that the child needs, made before: it cannot allocate.
type forked struct {
	clone     cloneArgs
	exe, root *byte
	argv, env []*byte
	maps      [3]struct{ file, text []byte }
	header    unix.CapUserHeader
	caps      [2]unix.CapUserData
	keep      [2]uint32 // setupCaps as bits
	dup       [][3]uintptr
	errno     syscall.Errno // why it could not go on
	at        int           // and where; a number, because to set a pointer is more than a store
}

// The steps of the child.
const (
	stepMap = iota
	stepSession
	stepCaps
	stepRoot
	stepDeath
	stepInherit
	stepExec
)

var stepNames = [...]string{
	stepMap: "map the user", stepSession: "start a session", stepCaps: "keep capabilities", stepRoot: "enter the root",
	stepDeath: "be killed with the parent", stepInherit: "inherit", stepExec: "execute",
}

// cloneArgs is the kernel's struct clone_args, of the first version that knows control groups.
type cloneArgs struct {
	flags, pidFD, childTID, parentTID, exitSignal, stack, stackSize, tls, setTID, setTIDSize, cgroup uint64
}

func newForked(argv, env []string, files []*os.File) (*forked, error) {
	c := &forked{header: unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}}
	var err error
	if c.argv, err = syscall.SlicePtrFromStrings(argv); err != nil {
		return nil, err
	}
	if c.env, err = syscall.SlicePtrFromStrings(env); err != nil {
		return nil, err
	}
	c.exe, c.root = &[]byte("/proc/self/exe\x00")[0], &[]byte("/\x00")[0]
	for i, m := range [...][2]string{
		{"/proc/self/setgroups\x00", "deny"}, // before the other, or the kernel takes no map from who is not privileged outside
		{"/proc/self/gid_map\x00", fmt.Sprintf("%d %[1]d 1\n", os.Getegid())},
		{"/proc/self/uid_map\x00", fmt.Sprintf("%d %[1]d 1\n", os.Geteuid())},
	} {
		c.maps[i].file, c.maps[i].text = []byte(m[0]), []byte(m[1])
	}
	for _, n := range setupCaps {
		c.keep[n/32] |= 1 << (n % 32)
	}
	var fds []int
	for _, f := range files {
		fds = append(fds, int(f.Fd()))
	}
	c.dup = arrange(fds)
	return c, nil
}

// arrange lists the arguments of dup3 by which a process has fds at 0, 1 and so on, each open
// when it executes something. What lies where another goes is put out of the way first.
func arrange(fds []int) [][3]uintptr {
	var list [][3]uintptr
	fds = slices.Clone(fds)
	far := max(len(fds), slices.Max(fds)+1)
	for i, fd := range fds {
		if fd < len(fds) {
			list = append(list, [3]uintptr{uintptr(fd), uintptr(far), unix.O_CLOEXEC})
			fds[i], far = far, far+1
		}
	}
	for i, fd := range fds {
		list = append(list, [3]uintptr{uintptr(fd), uintptr(i), 0})
	}
	return list
}

//go:linkname beforeFork syscall.runtime_BeforeFork
func beforeFork()

//go:linkname afterFork syscall.runtime_AfterFork
func afterFork()

//go:linkname afterForkInChild syscall.runtime_AfterForkInChild
func afterForkInChild()

func rawFork(trap, a1, a2, a3 uintptr) (pid, errno uintptr)

// forkAndBecome returns in the parent alone, and there only when the child has become another
// program or is dead; the caller then calls afterFork. The child is in the parent's memory and on its stack: it makes
// system calls and nothing else, neither allocates nor calls what could grow the stack,
// and leaves nothing changed behind but c. All of its variables are there before.
//
//go:noinline
//go:norace
//go:nocheckptr
func forkAndBecome(c *forked, trap, a1, a2, a3 uintptr) (pid uintptr, errno syscall.Errno) {
	var (
		e  syscall.Errno
		fd uintptr
		n  uintptr
		i  int
	)
	beforeFork()
	pid, n = rawFork(trap, a1, a2, a3)
	if n != 0 || pid != 0 {
		return pid, syscall.Errno(n)
	}
	for i = range c.maps {
		c.at = stepMap
		fd, _, e = syscall.RawSyscall6(unix.SYS_OPENAT, atCwd, uintptr(unsafe.Pointer(&c.maps[i].file[0])), unix.O_WRONLY|unix.O_CLOEXEC, 0, 0, 0)
		if e != 0 {
			goto failed
		}
		n, _, e = syscall.RawSyscall(unix.SYS_WRITE, fd, uintptr(unsafe.Pointer(&c.maps[i].text[0])), uintptr(len(c.maps[i].text)))
		if e == 0 && n != uintptr(len(c.maps[i].text)) {
			e = syscall.EIO
		}
		if e != 0 {
			goto failed
		}
		if _, _, e = syscall.RawSyscall(unix.SYS_CLOSE, fd, 0, 0); e != 0 {
			goto failed
		}
	}
	c.at = stepSession
	if _, _, e = syscall.RawSyscall(unix.SYS_SETSID, 0, 0, 0); e != 0 {
		goto failed
	}
	afterForkInChild() // no signal is handled from here on, nor held up
	c.at = stepCaps
	if _, _, e = syscall.RawSyscall(unix.SYS_CAPGET, uintptr(unsafe.Pointer(&c.header)), uintptr(unsafe.Pointer(&c.caps[0])), 0); e != 0 {
		goto failed
	}
	for i = range c.caps {
		c.caps[i].Permitted |= c.keep[i]
		c.caps[i].Inheritable |= c.keep[i]
	}
	if _, _, e = syscall.RawSyscall(unix.SYS_CAPSET, uintptr(unsafe.Pointer(&c.header)), uintptr(unsafe.Pointer(&c.caps[0])), 0); e != 0 {
		goto failed
	}
	for n = 0; n < 64; n++ {
		if c.keep[n/32]&(1<<(n%32)) == 0 {
			continue
		}
		if _, _, e = syscall.RawSyscall6(unix.SYS_PRCTL, unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_RAISE, n, 0, 0, 0); e != 0 {
			goto failed
		}
	}
	c.at = stepRoot
	if _, _, e = syscall.RawSyscall(unix.SYS_CHDIR, uintptr(unsafe.Pointer(c.root)), 0, 0); e != 0 {
		goto failed
	}
	// A parent that died before this is noticed by the end of its socket.
	c.at = stepDeath
	if _, _, e = syscall.RawSyscall6(unix.SYS_PRCTL, unix.PR_SET_PDEATHSIG, uintptr(syscall.SIGKILL), 0, 0, 0, 0); e != 0 {
		goto failed
	}
	c.at = stepInherit
	for i = range c.dup {
		if _, _, e = syscall.RawSyscall(unix.SYS_DUP3, c.dup[i][0], c.dup[i][1], c.dup[i][2]); e != 0 {
			goto failed
		}
	}
	c.at = stepExec
	_, _, e = syscall.RawSyscall(unix.SYS_EXECVE, uintptr(unsafe.Pointer(c.exe)), uintptr(unsafe.Pointer(&c.argv[0])), uintptr(unsafe.Pointer(&c.env[0])))
failed:
	c.errno = e
	for {
		_, _, _ = syscall.RawSyscall(unix.SYS_EXIT_GROUP, childBroken, 0, 0)
	}
}

const atCwd = ^uintptr(99) // AT_FDCWD, -100
