package sandbox

import (
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// denial is one row of the system call table: a call that is answered with an error
// instead of being made. With Arg >= 0 only the low 32 bits of that argument decide:
// Any denies when a bit is set, Values when it is one of them, Unless when it is none
// of them. A call that may be made by one row is still judged by those that follow.
type denial struct {
	nr     uintptr
	errno  unix.Errno
	arg    int
	any    uint32
	values []uint32
	unless []uint32
}

func deny(errno unix.Errno, nrs ...uintptr) []denial {
	var out []denial
	for _, n := range nrs {
		out = append(out, denial{nr: n, errno: errno, arg: -1})
	}
	return out
}

// newNamespaces are the flags by which clone makes namespaces.
const newNamespaces = unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC |
	unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNET

const (
	perLinux32  = 0x8
	uname26     = 0x20000
	noRandomize = 0x40000

	tiocsti   = 0x5412
	tioclinux = 0x541c
	tiocsetd  = 0x5423
)

// newest is the highest number that was looked at when the table was last revised. What
// came later is answered as by a kernel without it, on every architecture: they share
// their numbers from 424 on.
const newest = 471 // rseq_slice_yield

// denials is the table: what a build, a test or a provider has no use for, and what
// exploits and escapes begin with. Up to newest every call was looked at, so that the
// table is as closed as a list of what is allowed, which was rejected: every libc and
// run-time system may begin to use any of the harmless rest, and the programs
// of a check are whatever the user has. A list would break them one by one for nothing.
// ENOSYS is for calls that programs try first and do without.
func denials() []denial {
	d := deny(unix.EPERM,
		unix.SYS_PTRACE, unix.SYS_PROCESS_VM_READV, unix.SYS_PROCESS_VM_WRITEV, unix.SYS_PIDFD_GETFD, unix.SYS_KCMP, unix.SYS_PROCESS_MADVISE,
		unix.SYS_KEXEC_LOAD, unix.SYS_INIT_MODULE, unix.SYS_FINIT_MODULE, unix.SYS_DELETE_MODULE,
		unix.SYS_BPF, unix.SYS_PERF_EVENT_OPEN, unix.SYS_USERFAULTFD, unix.SYS_LOOKUP_DCOOKIE, unix.SYS_FANOTIFY_INIT, unix.SYS_FANOTIFY_MARK,
		unix.SYS_KEYCTL, unix.SYS_ADD_KEY, unix.SYS_REQUEST_KEY,
		unix.SYS_MOUNT, unix.SYS_UMOUNT2, unix.SYS_PIVOT_ROOT, unix.SYS_CHROOT, unix.SYS_OPEN_TREE, unix.SYS_MOVE_MOUNT,
		unix.SYS_FSOPEN, unix.SYS_FSCONFIG, unix.SYS_FSMOUNT, unix.SYS_FSPICK, unix.SYS_MOUNT_SETATTR,
		unix.SYS_OPEN_TREE_ATTR,
		unix.SYS_UNSHARE, unix.SYS_SETNS,
		unix.SYS_QUOTACTL, unix.SYS_QUOTACTL_FD, unix.SYS_SWAPON, unix.SYS_SWAPOFF, unix.SYS_REBOOT, unix.SYS_ACCT, unix.SYS_SYSLOG, unix.SYS_VHANGUP,
		unix.SYS_SETTIMEOFDAY, unix.SYS_CLOCK_SETTIME, unix.SYS_CLOCK_ADJTIME, unix.SYS_ADJTIMEX,
		unix.SYS_SETHOSTNAME, unix.SYS_SETDOMAINNAME, unix.SYS_NFSSERVCTL,
		unix.SYS_OPEN_BY_HANDLE_AT, unix.SYS_NAME_TO_HANDLE_AT,
		unix.SYS_MOVE_PAGES, unix.SYS_MIGRATE_PAGES, unix.SYS_LSM_SET_SELF_ATTR,
	)
	d = append(d, deny(unix.ENOSYS, unix.SYS_IO_URING_SETUP, unix.SYS_IO_URING_ENTER, unix.SYS_IO_URING_REGISTER,
		unix.SYS_IO_SETUP, unix.SYS_IO_DESTROY, unix.SYS_IO_SUBMIT, unix.SYS_IO_CANCEL, unix.SYS_IO_GETEVENTS, unix.SYS_IO_PGETEVENTS,
		unix.SYS_STATMOUNT, unix.SYS_LISTMOUNT, unix.SYS_LISTNS,
		unix.SYS_CLONE3, // its flags lie in memory, where a filter cannot look; everybody falls back to clone
	)...)
	d = append(d, archDenials()...)
	return append(d,
		denial{nr: unix.SYS_CLONE, errno: unix.EPERM, arg: 0, any: newNamespaces},
		denial{nr: unix.SYS_IOCTL, errno: unix.EPERM, arg: 1, values: []uint32{tiocsti, tioclinux, tiocsetd}},
		// A lease on a file that it may only read would hold up who writes it.
		denial{nr: unix.SYS_FCNTL, errno: unix.EPERM, arg: 1, values: []uint32{unix.F_SETLEASE}},
		families(unix.SYS_SOCKET),
		denial{nr: unix.SYS_SOCKETPAIR, errno: unix.EAFNOSUPPORT, arg: 0, unless: []uint32{unix.AF_UNIX}},
		// Of the old personalities those that change what a mapping at address zero or a
		// read mapping means are exploits' tools; compilers and sanitizers use these.
		denial{nr: unix.SYS_PERSONALITY, errno: unix.EPERM, arg: 0, unless: []uint32{0, perLinux32, uname26, uname26 | perLinux32, noRandomize, 0xffffffff}},
	)
}

// families is the row of socket, by its number. Not every family is cut off by a network
// namespace.
func families(nr uintptr) denial {
	return denial{nr: nr, errno: unix.EAFNOSUPPORT, arg: 0, unless: []uint32{unix.AF_UNIX, unix.AF_INET, unix.AF_INET6, unix.AF_NETLINK}}
}

// socketDenials are the rows of a launch that is not isolated: the families as above,
// io_uring, which opens sockets without asking, and keys.
func socketDenials() []denial {
	d := append(deny(unix.ENOSYS, unix.SYS_IO_URING_SETUP), families(unix.SYS_SOCKET))
	return append(d, deny(unix.EPERM, unix.SYS_ADD_KEY, unix.SYS_REQUEST_KEY, unix.SYS_KEYCTL)...)
}

// Offsets in struct seccomp_data; the low half of an argument comes first on the
// little-endian machines that there are tables for.
const (
	offNr   = 0
	offArch = 4
	offArg0 = 16
)

func load(off uint32) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: off}
}

func jump(op uint16, k uint32, jt, jf uint8) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_JMP | op | unix.BPF_K, Jt: jt, Jf: jf, K: k}
}

func ret(k uint32) unix.SockFilter { return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: k} }

func errno(e unix.Errno) unix.SockFilter { return ret(unix.SECCOMP_RET_ERRNO | uint32(e)) }

// assemble turns the table into a filter program.
func assemble(arch uint32, x32 bool, table []denial) []unix.SockFilter {
	p := []unix.SockFilter{
		load(offArch), jump(unix.BPF_JEQ, arch, 1, 0), errno(unix.ENOSYS), // another architecture has other numbers
		load(offNr),
	}
	if x32 {
		p = append(p, jump(unix.BPF_JSET, 0x40000000, 0, 1), errno(unix.ENOSYS))
	}
	p = append(p, jump(unix.BPF_JGT, newest, 0, 1), errno(unix.ENOSYS))
	return append(p, rows(table)...)
}

// assembleSockets is the filter of a launch that is not isolated. Programs of 32 bits go on
// running: compat is their architecture and compatTable its rows.
func assembleSockets(arch uint32, x32 bool, table []denial, compat uint32, compatTable []denial) []unix.SockFilter {
	native := []unix.SockFilter{load(offNr)}
	if x32 {
		native = append(native, jump(unix.BPF_JSET, 0x40000000, 0, 1), errno(unix.ENOSYS))
	}
	native = append(native, rows(table)...)
	p := []unix.SockFilter{load(offArch), jump(unix.BPF_JEQ, arch, 0, uint8(len(native)))}
	p = append(p, native...)
	p = append(p, jump(unix.BPF_JEQ, compat, 1, 0), errno(unix.ENOSYS), load(offNr))
	return append(p, rows(compatTable)...)
}

// rows are the instructions for a table, with the number of the call in the accumulator.
func rows(table []denial) []unix.SockFilter {
	var p []unix.SockFilter
	for _, d := range table {
		if d.arg < 0 {
			p = append(p, jump(unix.BPF_JEQ, uint32(d.nr), 0, 1), errno(d.errno))
			continue
		}
		body := []unix.SockFilter{load(offArg0 + 8*uint32(d.arg))}
		switch {
		case d.any != 0:
			body = append(body, jump(unix.BPF_JSET, d.any, 0, 1), errno(d.errno))
		case d.values != nil:
			for _, v := range d.values {
				body = append(body, jump(unix.BPF_JEQ, v, 0, 1), errno(d.errno))
			}
		default:
			for i, v := range d.unless {
				body = append(body, jump(unix.BPF_JEQ, v, uint8(len(d.unless)-i), 0))
			}
			body = append(body, errno(d.errno))
		}
		body = append(body, load(offNr))
		p = append(p, jump(unix.BPF_JEQ, uint32(d.nr), 0, uint8(len(body))))
		p = append(p, body...)
	}
	return append(p, ret(unix.SECCOMP_RET_ALLOW))
}

// seccomp puts the filter of an isolated launch on the calling thread, which has
// no_new_privs set.
func seccomp() error {
	if auditArch == 0 {
		return fail(unix.ENOSYS, "filter system calls of %s", runtime.GOARCH)
	}
	return putFilter(assemble(auditArch, runtime.GOARCH == "amd64", denials()))
}

// filterSockets does so for one that is not isolated.
func filterSockets() error {
	if auditArch == 0 {
		return fail(unix.ENOSYS, "filter system calls of %s", runtime.GOARCH)
	}
	return putFilter(assembleSockets(auditArch, runtime.GOARCH == "amd64", socketDenials(), compatArch, compatDenials()))
}

func putFilter(p []unix.SockFilter) error {
	prog := unix.SockFprog{Len: uint16(len(p)), Filter: &p[0]}
	_, _, e := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, uintptr(unsafe.Pointer(&prog)))
	runtime.KeepAlive(p)
	if e != 0 {
		return fail(e, "filter system calls")
	}
	return nil
}

// seccompAnswer asks without changing anything.
func seccompAnswer() Cap {
	if auditArch == 0 {
		return Cap{Answer: No, Detail: "no system call table for " + runtime.GOARCH}
	}
	action := uint32(unix.SECCOMP_RET_ERRNO)
	_, _, e := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_GET_ACTION_AVAIL, 0, uintptr(unsafe.Pointer(&action)))
	if e != 0 {
		return answer(e)
	}
	return Cap{Answer: Yes}
}
