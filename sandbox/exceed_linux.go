package sandbox

import (
	"os"
	"slices"
	"syscall"
	"time"
	"unsafe"

	"github.com/aspengine/asp/sandbox/cgroup"
	"golang.org/x/sys/unix"
)

// What bounds the run as a whole is tried by a process that is all that the command will be: it has its credentials
// and its filter, and enters the control groups by the same descriptors. For that moment the
// groups have limits that are cheap to exceed (cgroup.Group.Lower); the parent then
// sets those of the launch and reads them back. That a limit holds is thereby tried, and of which value it is,
// read. To fill the real ones was rejected: some hundred processes and a gigabyte are more than the launch.
//
// It is a copy of this process, because memory is charged to the group of whose it is, and
// does what it does after a fork: system calls, and stores into memory that was there before.

// trier is what that process needs, made before, and what it found.
type trier struct {
	groups []int
	rlimit *unix.Rlimit // on processes, nil for none to be tried; its maximum is the one in force
	memory []byte       // to be touched, nil for none
	burn   int64        // processor time to be used, in nanoseconds
	found  *found
	low    unix.Rlimit
	used   unix.Timespec
	zero   [1]byte
}

// found lies in memory that both share. What was not come to is notTried.
type found struct {
	user, group syscall.Errno // why there was no process more; 0 where there was
	entered     syscall.Errno
	lost        uintptr // 1 where the kernel took a page back
}

const notTried = syscall.Errno(1 << 16)

// chunk is how much of the memory may be needed at once, in pages.
const chunk = 32

// exceed tries what bounds the whole run, and the user's number of processes.
func (p *prober) exceed(add func(string, bool, string), is func(string, error, ...unix.Errno)) {
	t := trier{groups: p.groups, zero: [1]byte{'0'}}
	pids, memory := slices.Contains(p.bounded, cgroup.Pids), slices.Contains(p.bounded, cgroup.Memory)
	// The kernel exempts the real root from a limit of its user.
	if p.spec.Limits.Processes > 0 && os.Geteuid() != 0 {
		t.rlimit = new(unix.Rlimit)
		if err := unix.Getrlimit(unix.RLIMIT_NPROC, t.rlimit); err != nil {
			is("ask for the limit of processes", err)
			return
		}
		t.low = unix.Rlimit{Cur: 1, Max: t.rlimit.Max}
		if p.noLimits {
			t.low = *t.rlimit
		}
	}
	if p.thorough && slices.Contains(p.bounded, cgroup.CPU) {
		// Five times what there may be at once. That it was held up the parent hears of the kernel: from in here
		// it looks like a busy machine.
		t.burn = int64(5 * time.Millisecond)
	}
	if t.rlimit == nil && !pids && !memory && t.burn == 0 {
		return
	}
	if memory {
		b, err := unix.Mmap(-1, 0, int(cgroup.LowMemory()*3/2), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
		if err != nil {
			is("get memory to touch", err)
			return
		}
		defer unix.Munmap(b)
		_ = unix.Madvise(b, unix.MADV_NOHUGEPAGE) // EINVAL where there are none
		t.memory = b
	}
	f, err := t.run()
	if err != nil {
		is("try the limits of the run", err)
		return
	}
	answer := func(name string, e syscall.Errno) {
		switch e {
		case notTried:
			add(name, false, "not tried")
		case 0:
			add(name, false, "done")
		default:
			is(name, e, unix.EAGAIN)
		}
	}
	if t.rlimit != nil {
		answer("start a process too many of a user", f.user)
	}
	if f.entered != 0 {
		add("enter the control groups", false, f.entered.Error())
		return
	}
	if pids {
		answer("start a process too many of the run", f.group)
	}
	if memory {
		say := "kept"
		if f.lost > 0 {
			say = "taken back"
		}
		add("keep more memory than the run may have", f.lost > 0, say)
	}
}

// run forks, waits, and returns what was found.
func (t *trier) run() (found, error) {
	page, err := unix.Mmap(-1, 0, int(unsafe.Sizeof(found{})), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_ANONYMOUS)
	if err != nil {
		return found{}, os.NewSyscallError("mmap", err)
	}
	defer unix.Munmap(page)
	t.found = (*found)(unsafe.Pointer(&page[0]))
	*t.found = found{user: notTried, group: notTried, entered: notTried}
	syscall.ForkLock.Lock()
	pid, e := t.fork(uintptr(os.Getpagesize()))
	afterFork()
	syscall.ForkLock.Unlock()
	if e != 0 {
		return found{}, os.NewSyscallError("clone", e)
	}
	for {
		if _, err := syscall.Wait4(int(pid), nil, 0, nil); err != syscall.EINTR {
			return *t.found, err
		}
	}
}

// fork returns in the parent alone.
//
//go:noinline
//go:norace
//go:nocheckptr
func (t *trier) fork(page uintptr) (pid uintptr, errno syscall.Errno) {
	var (
		e     syscall.Errno
		n     uintptr
		more  uintptr
		flags = uintptr(unix.SIGCHLD) | unix.CLONE_VFORK | sharesMemory
		i     int
		at    uintptr
		end   = uintptr(len(t.memory))
		base  = unsafe.Pointer(unsafe.SliceData(t.memory))
		found = t.found
	)
	beforeFork()
	pid, n = rawFork(unix.SYS_CLONE, uintptr(unix.SIGCHLD), 0, 0)
	if n != 0 || pid != 0 {
		return pid, syscall.Errno(n)
	}
	afterForkInChild()
	if t.rlimit != nil {
		if _, _, e = syscall.RawSyscall6(unix.SYS_PRLIMIT64, 0, unix.RLIMIT_NPROC, uintptr(unsafe.Pointer(&t.low)), 0, 0, 0); e != 0 {
			goto done
		}
		if more, n = rawFork(unix.SYS_CLONE, flags, 0, 0); n == 0 && more == 0 {
			goto done // one process too many: it goes
		}
		found.user = syscall.Errno(n)
		_, _, _ = syscall.RawSyscall6(unix.SYS_PRLIMIT64, 0, unix.RLIMIT_NPROC, uintptr(unsafe.Pointer(t.rlimit)), 0, 0, 0)
	}
	for i = range t.groups {
		if _, _, e = syscall.RawSyscall(unix.SYS_WRITE, uintptr(t.groups[i]), uintptr(unsafe.Pointer(&t.zero[0])), 1); e != 0 {
			found.entered = e
			goto done
		}
	}
	found.entered = 0
	if more, n = rawFork(unix.SYS_CLONE, flags, 0, 0); n == 0 && more == 0 {
		goto done
	}
	found.group = syscall.Errno(n)
	// Half as much again as there may be, given up again as it goes on but not taken away: at the
	// limit the kernel takes it back, and where there is none it stays. To touch it until the kernel kills was
	// rejected: that is written into the machine's log, and counted for every group above, at which a
	// service manager may end what asp itself runs in.
	for at = 0; at < end; at += page {
		*(*byte)(unsafe.Add(base, at)) = 1
		if (at/page)%chunk == chunk-1 {
			_, _, _ = syscall.RawSyscall(unix.SYS_MADVISE, uintptr(unsafe.Add(base, at-(chunk-1)*page)), chunk*page, unix.MADV_FREE)
		}
	}
	for at = 0; at < end && found.lost == 0; at += page {
		if *(*byte)(unsafe.Add(base, at)) == 0 {
			found.lost = 1
		}
	}
	for t.burn > 0 && t.used.Sec*1e9+t.used.Nsec < t.burn {
		if _, _, e = syscall.RawSyscall(unix.SYS_CLOCK_GETTIME, unix.CLOCK_THREAD_CPUTIME_ID, uintptr(unsafe.Pointer(&t.used)), 0); e != 0 {
			goto done
		}
	}
done:
	for {
		_, _, _ = syscall.RawSyscall(unix.SYS_EXIT_GROUP, 0, 0, 0)
	}
}
