//go:build linux && (amd64 || arm64)

package sandbox

import (
	"slices"

	"golang.org/x/sys/unix"
)

// These are the tables. A call that golang.org/x/sys comes to know has to be put into one of the
// groups, or a test fails: to allow it is a decision, and to refuse it as well.

// everywhere are the rows of every launch under a filter of what is allowed.
func everywhere() table {
	return slices.Concat(table{
		// Files by descriptor, by name, and what is found out about them. Where they may lie
		// is decided by mounts and by Landlock.
		allow(unix.SYS_READ, unix.SYS_WRITE, unix.SYS_READV, unix.SYS_WRITEV, unix.SYS_PREAD64, unix.SYS_PWRITE64, unix.SYS_PREADV, unix.SYS_PWRITEV, unix.SYS_PREADV2, unix.SYS_PWRITEV2,
			unix.SYS_LSEEK, unix.SYS_FTRUNCATE, unix.SYS_FALLOCATE, unix.SYS_FADVISE64, unix.SYS_READAHEAD, unix.SYS_FLOCK,
			unix.SYS_SENDFILE, unix.SYS_COPY_FILE_RANGE, unix.SYS_SPLICE, unix.SYS_TEE, unix.SYS_VMSPLICE,
			unix.SYS_FSYNC, unix.SYS_FDATASYNC, unix.SYS_SYNC, unix.SYS_SYNCFS, unix.SYS_SYNC_FILE_RANGE,
			unix.SYS_CLOSE, unix.SYS_CLOSE_RANGE, unix.SYS_DUP, unix.SYS_DUP3, unix.SYS_PIPE2),
		allow(unix.SYS_OPENAT, unix.SYS_OPENAT2, unix.SYS_MKDIRAT, unix.SYS_MKNODAT, unix.SYS_LINKAT, unix.SYS_SYMLINKAT, unix.SYS_UNLINKAT, unix.SYS_RENAMEAT, unix.SYS_RENAMEAT2,
			unix.SYS_GETCWD, unix.SYS_CHDIR, unix.SYS_FCHDIR, unix.SYS_UMASK),
		allow(unix.SYS_FSTAT, unix.SYS_NEWFSTATAT, unix.SYS_STATX, unix.SYS_STATFS, unix.SYS_FSTATFS, unix.SYS_READLINKAT, unix.SYS_FACCESSAT, unix.SYS_FACCESSAT2, unix.SYS_GETDENTS64,
			unix.SYS_GETXATTR, unix.SYS_LGETXATTR, unix.SYS_FGETXATTR, unix.SYS_GETXATTRAT, unix.SYS_LISTXATTR, unix.SYS_LLISTXATTR, unix.SYS_FLISTXATTR, unix.SYS_LISTXATTRAT, unix.SYS_FILE_GETATTR,
			unix.SYS_INOTIFY_INIT1, unix.SYS_INOTIFY_ADD_WATCH, unix.SYS_INOTIFY_RM_WATCH),
		// A lease on a file that it may only read would hold up who writes it.
		allowWhen(unix.SYS_FCNTL, condition{arg: 1, errno: unix.EPERM, not: []uint32{unix.F_SETLEASE, unix.F_SETDELEG}}),

		// Its own memory.
		allow(unix.SYS_BRK, unix.SYS_MMAP, unix.SYS_MUNMAP, unix.SYS_MREMAP, unix.SYS_MPROTECT, unix.SYS_MADVISE, unix.SYS_MSYNC, unix.SYS_MINCORE, unix.SYS_CACHESTAT, unix.SYS_REMAP_FILE_PAGES,
			unix.SYS_MLOCK, unix.SYS_MLOCK2, unix.SYS_MUNLOCK, unix.SYS_MLOCKALL, unix.SYS_MUNLOCKALL, unix.SYS_MSEAL, unix.SYS_MEMFD_CREATE, unix.SYS_MEMFD_SECRET,
			unix.SYS_PKEY_MPROTECT, unix.SYS_PKEY_ALLOC, unix.SYS_PKEY_FREE, unix.SYS_MAP_SHADOW_STACK,
			unix.SYS_MBIND, unix.SYS_SET_MEMPOLICY, unix.SYS_GET_MEMPOLICY, unix.SYS_SET_MEMPOLICY_HOME_NODE, unix.SYS_MEMBARRIER),

		// Processes and threads: to start, to end, to wait for, to signal. Whom they can reach is
		// decided by the pid namespace, or by Landlock. New namespaces are refused: they are where
		// most ways out of a sandbox begin.
		allowWhen(unix.SYS_CLONE, condition{arg: 0, errno: unix.EPERM, noBits: newNamespaces}),
		allow(unix.SYS_EXECVE, unix.SYS_EXECVEAT, unix.SYS_EXIT, unix.SYS_EXIT_GROUP, unix.SYS_WAIT4, unix.SYS_WAITID,
			unix.SYS_SET_TID_ADDRESS, unix.SYS_SET_ROBUST_LIST, unix.SYS_GET_ROBUST_LIST, unix.SYS_RSEQ, unix.SYS_RSEQ_SLICE_YIELD, unix.SYS_RESTART_SYSCALL,
			unix.SYS_FUTEX, unix.SYS_FUTEX_WAITV, unix.SYS_FUTEX_WAKE, unix.SYS_FUTEX_WAIT, unix.SYS_FUTEX_REQUEUE,
			unix.SYS_GETPID, unix.SYS_GETTID, unix.SYS_GETPPID, unix.SYS_GETPGID, unix.SYS_SETPGID, unix.SYS_GETSID, unix.SYS_SETSID,
			unix.SYS_PIDFD_OPEN, unix.SYS_PIDFD_SEND_SIGNAL, unix.SYS_PROCESS_MRELEASE,
			unix.SYS_KILL, unix.SYS_TKILL, unix.SYS_TGKILL, unix.SYS_RT_SIGQUEUEINFO, unix.SYS_RT_TGSIGQUEUEINFO,
			unix.SYS_RT_SIGACTION, unix.SYS_RT_SIGPROCMASK, unix.SYS_RT_SIGRETURN, unix.SYS_RT_SIGPENDING, unix.SYS_RT_SIGTIMEDWAIT, unix.SYS_RT_SIGSUSPEND, unix.SYS_SIGALTSTACK, unix.SYS_SIGNALFD4),
		// Who it is, which it can only lessen: no_new_privs is set.
		allow(unix.SYS_GETUID, unix.SYS_GETEUID, unix.SYS_GETGID, unix.SYS_GETEGID, unix.SYS_GETRESUID, unix.SYS_GETRESGID, unix.SYS_GETGROUPS,
			unix.SYS_SETUID, unix.SYS_SETGID, unix.SYS_SETREUID, unix.SYS_SETREGID, unix.SYS_SETRESUID, unix.SYS_SETRESGID, unix.SYS_SETFSUID, unix.SYS_SETFSGID, unix.SYS_SETGROUPS,
			unix.SYS_CAPGET, unix.SYS_CAPSET, unix.SYS_PRCTL, unix.SYS_LSM_GET_SELF_ATTR, unix.SYS_LSM_LIST_MODULES),
		// Of the old personalities those that change what a mapping at address zero or a
		// read mapping means are exploits' tools; compilers and sanitizers use these.
		allowWhen(unix.SYS_PERSONALITY, condition{arg: 0, errno: unix.EPERM, only: []uint32{0, perLinux32, uname26, uname26 | perLinux32, noRandomize, 0xffffffff}}),
		// To confine itself further.
		allow(unix.SYS_SECCOMP, unix.SYS_LANDLOCK_CREATE_RULESET, unix.SYS_LANDLOCK_ADD_RULE, unix.SYS_LANDLOCK_RESTRICT_SELF),
		// Limits and scheduling: to look at, and to set its own.
		allow(unix.SYS_GETRLIMIT, unix.SYS_SETRLIMIT, unix.SYS_GETRUSAGE, unix.SYS_TIMES, unix.SYS_GETPRIORITY, unix.SYS_IOPRIO_GET,
			unix.SYS_SCHED_YIELD, unix.SYS_SCHED_GETPARAM, unix.SYS_SCHED_GETSCHEDULER, unix.SYS_SCHED_GETATTR, unix.SYS_SCHED_GETAFFINITY,
			unix.SYS_SCHED_GET_PRIORITY_MAX, unix.SYS_SCHED_GET_PRIORITY_MIN, unix.SYS_SCHED_RR_GET_INTERVAL, unix.SYS_GETCPU),

		// To wait for time and for descriptors.
		allow(unix.SYS_GETTIMEOFDAY, unix.SYS_CLOCK_GETTIME, unix.SYS_CLOCK_GETRES, unix.SYS_NANOSLEEP, unix.SYS_CLOCK_NANOSLEEP, unix.SYS_GETITIMER, unix.SYS_SETITIMER,
			unix.SYS_TIMER_CREATE, unix.SYS_TIMER_SETTIME, unix.SYS_TIMER_GETTIME, unix.SYS_TIMER_GETOVERRUN, unix.SYS_TIMER_DELETE,
			unix.SYS_TIMERFD_CREATE, unix.SYS_TIMERFD_SETTIME, unix.SYS_TIMERFD_GETTIME, unix.SYS_EVENTFD2,
			unix.SYS_PSELECT6, unix.SYS_PPOLL, unix.SYS_EPOLL_CREATE1, unix.SYS_EPOLL_CTL, unix.SYS_EPOLL_PWAIT, unix.SYS_EPOLL_PWAIT2),

		// Sockets that it has: which ones it can have is said below.
		allow(unix.SYS_CONNECT, unix.SYS_BIND, unix.SYS_LISTEN, unix.SYS_ACCEPT, unix.SYS_ACCEPT4, unix.SYS_SHUTDOWN, unix.SYS_GETSOCKNAME, unix.SYS_GETPEERNAME,
			unix.SYS_SETSOCKOPT, unix.SYS_GETSOCKOPT, unix.SYS_SENDTO, unix.SYS_RECVFROM, unix.SYS_SENDMSG, unix.SYS_RECVMSG, unix.SYS_SENDMMSG, unix.SYS_RECVMMSG),
		// What is shared by a key and was got hold of before.
		allow(unix.SYS_SHMDT, unix.SYS_MQ_TIMEDSEND, unix.SYS_MQ_TIMEDRECEIVE, unix.SYS_MQ_NOTIFY, unix.SYS_MQ_GETSETATTR),

		// Facts about the machine.
		allow(unix.SYS_UNAME, unix.SYS_SYSINFO, unix.SYS_GETRANDOM),

		// Refused: other processes' insides.
		refuse(unix.EPERM, unix.SYS_PTRACE, unix.SYS_PROCESS_VM_READV, unix.SYS_PROCESS_VM_WRITEV, unix.SYS_PIDFD_GETFD, unix.SYS_KCMP, unix.SYS_PROCESS_MADVISE,
			unix.SYS_MOVE_PAGES, unix.SYS_MIGRATE_PAGES),
		// The kernel itself, and what looks into it.
		refuse(unix.EPERM, unix.SYS_KEXEC_LOAD, unix.SYS_KEXEC_FILE_LOAD, unix.SYS_INIT_MODULE, unix.SYS_FINIT_MODULE, unix.SYS_DELETE_MODULE, unix.SYS_BPF, unix.SYS_PERF_EVENT_OPEN, unix.SYS_USERFAULTFD,
			unix.SYS_LOOKUP_DCOOKIE, unix.SYS_SYSLOG, unix.SYS_REBOOT, unix.SYS_NFSSERVCTL, unix.SYS_LSM_SET_SELF_ATTR),
		// Keys, which outlive the command.
		refuse(unix.EPERM, unix.SYS_KEYCTL, unix.SYS_ADD_KEY, unix.SYS_REQUEST_KEY),
		// Mounts, roots, namespaces, and files without a name.
		refuse(unix.EPERM, unix.SYS_MOUNT, unix.SYS_UMOUNT2, unix.SYS_PIVOT_ROOT, unix.SYS_CHROOT, unix.SYS_OPEN_TREE, unix.SYS_OPEN_TREE_ATTR, unix.SYS_MOVE_MOUNT,
			unix.SYS_FSOPEN, unix.SYS_FSCONFIG, unix.SYS_FSMOUNT, unix.SYS_FSPICK, unix.SYS_MOUNT_SETATTR, unix.SYS_UNSHARE, unix.SYS_SETNS,
			unix.SYS_OPEN_BY_HANDLE_AT, unix.SYS_NAME_TO_HANDLE_AT, unix.SYS_FANOTIFY_INIT, unix.SYS_FANOTIFY_MARK),
		// What is the machine's.
		refuse(unix.EPERM, unix.SYS_QUOTACTL, unix.SYS_QUOTACTL_FD, unix.SYS_SWAPON, unix.SYS_SWAPOFF, unix.SYS_ACCT, unix.SYS_VHANGUP,
			unix.SYS_SETTIMEOFDAY, unix.SYS_CLOCK_SETTIME, unix.SYS_CLOCK_ADJTIME, unix.SYS_ADJTIMEX, unix.SYS_SETHOSTNAME, unix.SYS_SETDOMAINNAME),
		// What programs try first and do without. The flags of clone3 lie in memory, where a
		// filter cannot look; everybody falls back to clone.
		refuse(unix.ENOSYS, unix.SYS_CLONE3, unix.SYS_IO_URING_SETUP, unix.SYS_IO_URING_ENTER, unix.SYS_IO_URING_REGISTER,
			unix.SYS_IO_SETUP, unix.SYS_IO_DESTROY, unix.SYS_IO_SUBMIT, unix.SYS_IO_CANCEL, unix.SYS_IO_GETEVENTS, unix.SYS_IO_PGETEVENTS,
			unix.SYS_STATMOUNT, unix.SYS_LISTMOUNT, unix.SYS_LISTNS),
	}, archEverywhere())
}

// isolatedCalls is the table of an isolated launch. Whose files, processes and sockets these
// calls can reach is the namespaces' affair.
func isolatedCalls() table {
	return append(everywhere(),
		allow(attributeCalls()...),
		allow(unix.SYS_TRUNCATE),
		allow(sharedByKey...),
		allow(ofAProcess...),
		allow(unix.SYS_SETPRIORITY, unix.SYS_IOPRIO_SET),
		allowWhen(unix.SYS_IOCTL, terminals),
		allowWhen(unix.SYS_SOCKET, families),
		allowWhen(unix.SYS_SOCKETPAIR, unixPairs),
	)
}

// confinedCalls is the table of a launch by rules alone. abi is Landlock's: before the third it
// has no right for cutting a file off by its name.
func confinedCalls(abi int, network bool) table {
	own := func(arg int, n uint32) condition {
		return condition{arg: arg, errno: unix.EPERM, only: []uint32{n}}
	}
	t := append(everywhere(),
		refuse(unix.EPERM, attributeCalls()...),
		refuse(unix.EPERM, sharedByKey...),
		allowWhen(unix.SYS_SETPRIORITY, own(0, unix.PRIO_PROCESS), own(1, 0)),
		allowWhen(unix.SYS_IOPRIO_SET, own(0, ioprioWhoProcess), own(1, 0)),
		allowWhen(unix.SYS_IOCTL, condition{arg: 1, errno: unix.EPERM, not: ownersIoctls}, terminals),
		allowWhen(unix.SYS_SOCKETPAIR, condition{arg: 1, errno: unix.ESOCKTNOSUPPORT, only: connectedPairs}, unixPairs),
	)
	for _, nr := range ofAProcess {
		t = append(t, allowWhen(nr, own(0, 0)))
	}
	if abi < 3 {
		t = append(t, refuse(unix.EPERM, unix.SYS_TRUNCATE))
	} else {
		t = append(t, allow(unix.SYS_TRUNCATE))
	}
	if network {
		return append(t, allowWhen(unix.SYS_SOCKET, condition{arg: 0, errno: unix.EAFNOSUPPORT, only: []uint32{unix.AF_INET, unix.AF_INET6}}))
	}
	return append(t, refuse(unix.EAFNOSUPPORT, unix.SYS_SOCKET))
}

// smallCalls is the table of a launch with namespaces that is not isolated, in which what is not
// named may be done: io_uring, which opens sockets without asking, keys, and the families of
// sockets that no namespace cuts off.
func smallCalls() table {
	return small(unix.SYS_SOCKET, unix.SYS_IO_URING_SETUP, unix.SYS_ADD_KEY, unix.SYS_REQUEST_KEY, unix.SYS_KEYCTL)
}

func small(socket, ioUring uintptr, keys ...uintptr) table {
	return table{allowWhen(socket, families), refuse(unix.ENOSYS, ioUring), refuse(unix.EPERM, keys...)}
}

// newNamespaces are the flags by which clone makes namespaces.
const newNamespaces = unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC |
	unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNET

const (
	perLinux32  = 0x8
	uname26     = 0x20000
	noRandomize = 0x40000
)

// families are those of sockets. Not every other is cut off by a network namespace.
var families = condition{arg: 0, errno: unix.EAFNOSUPPORT, only: []uint32{unix.AF_UNIX, unix.AF_INET, unix.AF_INET6, unix.AF_NETLINK}}

var unixPairs = condition{arg: 0, errno: unix.EAFNOSUPPORT, only: []uint32{unix.AF_UNIX}}

// connectedPairs are the types of a pair of sockets that stay with each other. A raw pair
// is one of datagrams.
var connectedPairs = []uint32{
	unix.SOCK_STREAM, unix.SOCK_STREAM | unix.SOCK_CLOEXEC, unix.SOCK_STREAM | unix.SOCK_NONBLOCK, unix.SOCK_STREAM | unix.SOCK_CLOEXEC | unix.SOCK_NONBLOCK,
	unix.SOCK_SEQPACKET, unix.SOCK_SEQPACKET | unix.SOCK_CLOEXEC, unix.SOCK_SEQPACKET | unix.SOCK_NONBLOCK, unix.SOCK_SEQPACKET | unix.SOCK_CLOEXEC | unix.SOCK_NONBLOCK,
}

// terminals: to put input into one, to change the console, and to change what a line is.
var terminals = condition{arg: 1, errno: unix.EPERM, not: []uint32{unix.TIOCSTI, unix.TIOCLINUX, unix.TIOCSETD}}

// ownersIoctls change a file, or make and remove in a directory, that is open for reading
// alone: the owner may. Landlock's right for ioctl is about devices.
var ownersIoctls = []uint32{
	unix.FS_IOC_SETFLAGS, 0x401c5820 /* FS_IOC_FSSETXATTR */, unix.FS_IOC_ENABLE_VERITY, unix.FS_IOC_SET_ENCRYPTION_POLICY, unix.FS_IOC_REMOVE_ENCRYPTION_KEY,
	0x40086604 /* EXT4_IOC_SETVERSION */, 0x40087602, /* FS_IOC_SETVERSION */
	0x50009401, 0x5000940e, 0x5000940f, 0x50009417, 0x50009418, 0x5000943f, /* subvolumes of btrfs: made, copied, removed */
	0x4008941a, 0xc0c89425, /* their flags, their origin */
}

// attributeCalls change mode, owner, times, flags and attributes of a file, and make and remove
// queues that have an owner and a mode.
func attributeCalls() []uintptr {
	return append([]uintptr{
		unix.SYS_FCHMODAT, unix.SYS_FCHMODAT2, unix.SYS_FCHOWNAT, unix.SYS_UTIMENSAT,
		unix.SYS_SETXATTR, unix.SYS_LSETXATTR, unix.SYS_SETXATTRAT, unix.SYS_REMOVEXATTR, unix.SYS_LREMOVEXATTR, unix.SYS_REMOVEXATTRAT,
		unix.SYS_FCHMOD, unix.SYS_FCHOWN, unix.SYS_FSETXATTR, unix.SYS_FREMOVEXATTR, unix.SYS_FILE_SETATTR,
		unix.SYS_MQ_OPEN, unix.SYS_MQ_UNLINK,
	}, archAttributes()...)
}

// sharedByKey are the calls by which processes share something that has a key and no path.
var sharedByKey = []uintptr{
	unix.SYS_SHMGET, unix.SYS_SHMAT, unix.SYS_SHMCTL, unix.SYS_SEMGET, unix.SYS_SEMOP, unix.SYS_SEMTIMEDOP, unix.SYS_SEMCTL,
	unix.SYS_MSGGET, unix.SYS_MSGSND, unix.SYS_MSGRCV, unix.SYS_MSGCTL,
}

// sharedMemory is the call that attaches memory by its number.
const sharedMemory = unix.SYS_SHMAT

// ofAProcess are the calls that set limits and scheduling of the process named first, 0
// being the caller.
var ofAProcess = []uintptr{unix.SYS_PRLIMIT64, unix.SYS_SCHED_SETSCHEDULER, unix.SYS_SCHED_SETPARAM, unix.SYS_SCHED_SETATTR, unix.SYS_SCHED_SETAFFINITY}
