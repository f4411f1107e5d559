package sandbox

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A process is started here by system calls of our own where package syscall has no way, or a slow
// one, to do it: with rights that it keeps and maps of its own (forkInto), and under limits
// that its parent must not be under (forkUnder). What is to be done between the fork and the
// execution is data, made before: the child is in the parent's memory and on its stack until it
// executes, as after vfork, and makes system calls and nothing else.

// forkInto starts this executable anew in the namespaces of flags (a user namespace is among them)
// and in the control group that is open as group, -1 for none, with nothing but files for
// descriptors. The identity in there is the caller's own, with setupCaps; the process is killed
// when the calling thread ends.
//
// syscall.StartProcess does the same in another way. There the parent writes what the user
// namespace maps, so the child cannot borrow the parent's memory: it gets a copy of all page tables, and
// whoever of the two writes to a page meanwhile a copy of that. In a
// small process this was three milliseconds of a launch, and it grows with the process. Here
// the child writes its own maps, as a process may that maps nothing but itself.
//
// In either way the child executes, and has nothing of the host's memory afterwards. To go on
// without that, as a fork could, was rejected: the first process of a sandbox would hold
// everything that the host ever read.
func forkInto(argv, env []string, files []*os.File, flags uintptr, group int) (*os.Process, error) {
	f, err := newForked("/proc/self/exe", argv, env)
	if err != nil {
		return nil, err
	}
	f.root = &[]byte("/\x00")[0]
	for _, m := range [...][2]string{
		{"/proc/self/setgroups\x00", "deny"}, // first, or who is not privileged outside may not map a group
		{"/proc/self/gid_map\x00", fmt.Sprintf("%d %[1]d 1\n", os.Getegid())},
		{"/proc/self/uid_map\x00", fmt.Sprintf("%d %[1]d 1\n", os.Geteuid())},
	} {
		f.maps = append(f.maps, written{[]byte(m[0]), []byte(m[1])})
	}
	for _, n := range setupCaps {
		f.keep[n/32] |= 1 << (n % 32)
	}
	var fds []int
	for _, x := range files {
		fds = append(fds, int(x.Fd()))
	}
	f.dup = arrange(fds)
	pid, err := f.fork(flags, group)
	runtime.KeepAlive(files)
	if err != nil {
		return nil, err
	}
	return os.FindProcess(pid)
}

// under is what a command takes upon itself right before it is executed, in this order.
type under struct {
	groups []int    // descriptors by which it enters control groups
	apart  int      // a Landlock domain from which no signal leaves, -1 for none
	limits []rlimit // each taken as far as the one in force allows
}

// rlimit is a limit of one process.
type rlimit struct {
	What     string
	Resource int
	N        uint64
}

// forkUnder executes exe in a session of its own, under what the child half must not be under: a
// limit on processes counts the child half's own threads, and its run-time system dies when it
// cannot have another, or no more memory; a group's memory limit would take the process that reports.
// To set limits from outside once the command runs was rejected, as the command could be
// faster; so was another process of this executable in between, which had a run-time system as well and
// was a quarter of a launch.
func forkUnder(exe string, argv, env []string, u under) (pid int, err error) {
	f, err := newForked(exe, argv, env)
	if err != nil {
		return 0, err
	}
	f.under = u
	f.rlimits = make([]unix.Rlimit, len(u.limits))
	for i, l := range u.limits {
		if err := unix.Getrlimit(l.Resource, &f.rlimits[i]); err != nil {
			return 0, fmt.Errorf("limit %s: %w", l.What, err)
		}
		n := min(l.N, f.rlimits[i].Max)
		f.rlimits[i] = unix.Rlimit{Cur: n, Max: n}
	}
	if pid, err = f.fork(0, -1); err != nil {
		return 0, err
	}
	if err := f.became(); err != nil {
		if ws := waitFor(pid); ws.Signaled() {
			err = fmt.Errorf("%w: %s", err, unix.SignalName(ws.Signal()))
		}
		return 0, err
	}
	return pid, nil
}

// forked is everything that the child needs, made before, and what it says.
type forked struct {
	clone     cloneArgs
	exe       *byte
	argv, env []*byte
	maps      []written
	header    unix.CapUserHeader
	caps      [2]unix.CapUserData
	keep      [2]uint32 // capabilities to execute with, as bits; with any it also dies with the parent's thread
	root      *byte     // working directory, nil for that of the parent
	dup       [][3]uintptr
	under     under
	zero      [1]byte
	rlimits   []unix.Rlimit
	said      *said
}

// written is a file and what is written to it. The name ends with a NUL.
type written struct{ file, text []byte }

// said lies in memory that parent and child share whatever else they share.
type said struct {
	at    int           // the step that the child is at; a number, because to set a pointer is more than a store
	errno syscall.Errno // why it could not go on
}

// The steps of the child.
const (
	stepFork = iota
	stepMap
	stepSession
	stepCaps
	stepRoot
	stepDeath
	stepInherit
	stepGroup
	stepApart
	stepReachesWatcher
	stepLimit // from here on the kernel may kill it for a limit, and this is the command's end
	stepExec
)

var stepNames = [...]string{
	stepFork: "clone", stepMap: "map the user", stepSession: "start a session", stepCaps: "keep capabilities", stepRoot: "enter the root",
	stepDeath: "be killed with the parent", stepInherit: "inherit", stepGroup: "enter control group", stepApart: "enter Landlock domain",
	stepReachesWatcher: "the process that watches could be signalled", stepLimit: "limit", stepExec: "exec",
}

// cloneArgs is the kernel's struct clone_args, of the first version that knows control groups.
type cloneArgs struct {
	flags, pidFD, childTID, parentTID, exitSignal, stack, stackSize, tls, setTID, setTIDSize, cgroup uint64
}

func newForked(exe string, argv, env []string) (*forked, error) {
	f := &forked{header: unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, under: under{apart: -1}, zero: [1]byte{'0'}}
	var err error
	if f.exe, err = syscall.BytePtrFromString(exe); err != nil {
		return nil, err
	}
	if f.argv, err = syscall.SlicePtrFromStrings(argv); err != nil {
		return nil, err
	}
	f.env, err = syscall.SlicePtrFromStrings(env)
	return f, err
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

// fork starts the child and returns when it has executed, or is dead. Where it said why it
// could not, that is the error, and it is waited for.
func (f *forked) fork(flags uintptr, group int) (pid int, err error) {
	page, err := unix.Mmap(-1, 0, int(unsafe.Sizeof(said{})), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_ANONYMOUS)
	if err != nil {
		return 0, os.NewSyscallError("mmap", err)
	}
	f.said = (*said)(unsafe.Pointer(&page[0]))
	defer func() {
		copied := *f.said // for who asks later
		f.said = &copied
		_ = unix.Munmap(page)
	}()
	flags |= unix.CLONE_VFORK | sharesMemory
	trap, a1, a2 := uintptr(unix.SYS_CLONE), flags|uintptr(unix.SIGCHLD), uintptr(0)
	if group >= 0 {
		f.clone = cloneArgs{flags: uint64(flags) | unix.CLONE_INTO_CGROUP, exitSignal: uint64(unix.SIGCHLD), cgroup: uint64(group)}
		trap, a1, a2 = unix.SYS_CLONE3, uintptr(unsafe.Pointer(&f.clone)), unsafe.Sizeof(f.clone)
	}
	// So that nothing is inherited that another thread is about to mark as not to be.
	syscall.ForkLock.Lock()
	n, e := f.become(trap, a1, a2)
	afterFork()
	syscall.ForkLock.Unlock()
	if e != 0 {
		return 0, os.NewSyscallError("clone", e)
	}
	if f.said.errno == 0 {
		return int(n), nil
	}
	for {
		if _, err := syscall.Wait4(int(n), nil, 0, nil); err != syscall.EINTR {
			break
		}
	}
	what := stepNames[f.said.at]
	if f.said.at == stepExec {
		return 0, &os.PathError{Op: what, Path: unix.BytePtrToString(f.exe), Err: f.said.errno}
	}
	return 0, fmt.Errorf("%s: %w", what, f.said.errno)
}

var errNotReady = errors.New("the process that was to become the command died before")

// became judges a child that said no error: it is the command, or was, unless it died before anything of
// the command's could have been the reason. Then it is our failure.
func (f *forked) became() error {
	if f.said.at < stepLimit {
		return fmt.Errorf("%w (%s)", errNotReady, stepNames[f.said.at])
	}
	return nil
}

//go:linkname beforeFork syscall.runtime_BeforeFork
func beforeFork()

//go:linkname afterFork syscall.runtime_AfterFork
func afterFork()

//go:linkname afterForkInChild syscall.runtime_AfterForkInChild
func afterForkInChild()

// become returns in the parent alone, and there only when the child has executed or is dead; the
// caller then calls afterFork. The child makes system calls and nothing else: it neither
// allocates nor calls what could grow the stack, and leaves nothing changed behind but what it
// said and its own capabilities in f. All of its variables are there before.
//
//go:noinline
//go:norace
//go:nocheckptr
func (f *forked) become(trap, a1, a2 uintptr) (pid uintptr, errno syscall.Errno) {
	var (
		e    syscall.Errno
		fd   uintptr
		n    uintptr
		i    int
		said = f.said
	)
	beforeFork()
	pid, n = rawFork(trap, a1, a2, 0)
	if n != 0 || pid != 0 {
		return pid, syscall.Errno(n)
	}
	said.at = stepMap
	for i = range f.maps {
		fd, _, e = syscall.RawSyscall6(unix.SYS_OPENAT, atCwd, uintptr(unsafe.Pointer(&f.maps[i].file[0])), unix.O_WRONLY|unix.O_CLOEXEC, 0, 0, 0)
		if e != 0 {
			goto failed
		}
		n, _, e = syscall.RawSyscall(unix.SYS_WRITE, fd, uintptr(unsafe.Pointer(&f.maps[i].text[0])), uintptr(len(f.maps[i].text)))
		if e == 0 && n != uintptr(len(f.maps[i].text)) {
			e = syscall.EIO
		}
		if e != 0 {
			goto failed
		}
		if _, _, e = syscall.RawSyscall(unix.SYS_CLOSE, fd, 0, 0); e != 0 {
			goto failed
		}
	}
	said.at = stepSession
	if _, _, e = syscall.RawSyscall(unix.SYS_SETSID, 0, 0, 0); e != 0 {
		goto failed
	}
	afterForkInChild() // no signal is handled from here on, nor held up
	if f.keep[0]|f.keep[1] != 0 {
		said.at = stepCaps
		if _, _, e = syscall.RawSyscall(unix.SYS_CAPGET, uintptr(unsafe.Pointer(&f.header)), uintptr(unsafe.Pointer(&f.caps[0])), 0); e != 0 {
			goto failed
		}
		for i = range f.caps {
			f.caps[i].Permitted |= f.keep[i]
			f.caps[i].Inheritable |= f.keep[i]
		}
		if _, _, e = syscall.RawSyscall(unix.SYS_CAPSET, uintptr(unsafe.Pointer(&f.header)), uintptr(unsafe.Pointer(&f.caps[0])), 0); e != 0 {
			goto failed
		}
		for n = 0; n < 64; n++ {
			if f.keep[n/32]&(1<<(n%32)) == 0 {
				continue
			}
			if _, _, e = syscall.RawSyscall6(unix.SYS_PRCTL, unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_RAISE, n, 0, 0, 0); e != 0 {
				goto failed
			}
		}
		// A parent that died before this is noticed by the end of its socket.
		said.at = stepDeath
		if _, _, e = syscall.RawSyscall6(unix.SYS_PRCTL, unix.PR_SET_PDEATHSIG, uintptr(syscall.SIGKILL), 0, 0, 0, 0); e != 0 {
			goto failed
		}
	}
	if f.root != nil {
		said.at = stepRoot
		if _, _, e = syscall.RawSyscall(unix.SYS_CHDIR, uintptr(unsafe.Pointer(f.root)), 0, 0); e != 0 {
			goto failed
		}
	}
	said.at = stepInherit
	for i = range f.dup {
		if _, _, e = syscall.RawSyscall(unix.SYS_DUP3, f.dup[i][0], f.dup[i][1], f.dup[i][2]); e != 0 {
			goto failed
		}
	}
	said.at = stepGroup
	for i = range f.under.groups {
		if _, _, e = syscall.RawSyscall(unix.SYS_WRITE, uintptr(f.under.groups[i]), uintptr(unsafe.Pointer(&f.zero[0])), 1); e != 0 {
			goto failed
		}
	}
	if f.under.apart >= 0 {
		said.at = stepApart
		if _, _, e = syscall.RawSyscall(unix.SYS_LANDLOCK_RESTRICT_SELF, uintptr(f.under.apart), 0, 0); e != 0 {
			goto failed
		}
		said.at = stepReachesWatcher
		n, _, _ = syscall.RawSyscall(unix.SYS_GETPPID, 0, 0, 0)
		if _, _, e = syscall.RawSyscall(unix.SYS_KILL, n, 0, 0); e != syscall.EPERM {
			if e == 0 {
				e = syscall.ENOTRECOVERABLE
			}
			goto failed
		}
	}
	said.at = stepLimit
	for i = range f.rlimits {
		if _, _, e = syscall.RawSyscall6(unix.SYS_PRLIMIT64, 0, uintptr(f.under.limits[i].Resource), uintptr(unsafe.Pointer(&f.rlimits[i])), 0, 0, 0); e != 0 {
			goto failed
		}
	}
	said.at = stepExec
	_, _, e = syscall.RawSyscall(unix.SYS_EXECVE, uintptr(unsafe.Pointer(f.exe)), uintptr(unsafe.Pointer(&f.argv[0])), uintptr(unsafe.Pointer(&f.env[0])))
failed:
	said.errno = e
	for {
		_, _, _ = syscall.RawSyscall(unix.SYS_EXIT_GROUP, childBroken, 0, 0)
	}
}

const atCwd = ^uintptr(99) // AT_FDCWD, -100
