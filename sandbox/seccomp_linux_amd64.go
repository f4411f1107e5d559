package sandbox

import "golang.org/x/sys/unix"

const auditArch = unix.AUDIT_ARCH_X86_64

// archEverywhere are the rows that only this architecture has: older forms of calls that all
// have, mostly.
func archEverywhere() table {
	return table{
		allow(unix.SYS_OPEN, unix.SYS_CREAT, unix.SYS_MKDIR, unix.SYS_MKNOD, unix.SYS_LINK, unix.SYS_SYMLINK, unix.SYS_UNLINK, unix.SYS_RMDIR, unix.SYS_RENAME,
			unix.SYS_STAT, unix.SYS_LSTAT, unix.SYS_ACCESS, unix.SYS_READLINK, unix.SYS_GETDENTS, unix.SYS_INOTIFY_INIT, unix.SYS_DUP2, unix.SYS_PIPE),
		allow(unix.SYS_FORK, unix.SYS_VFORK, unix.SYS_GETPGRP, unix.SYS_PAUSE, unix.SYS_SIGNALFD, unix.SYS_ARCH_PRCTL),
		allow(unix.SYS_TIME, unix.SYS_ALARM, unix.SYS_SELECT, unix.SYS_POLL, unix.SYS_EVENTFD, unix.SYS_EPOLL_CREATE, unix.SYS_EPOLL_WAIT),
		// Made by what the kernel puts into a process when the host's root looks at a program; by whom else, it is an error.
		allow(unix.SYS_URETPROBE, unix.SYS_UPROBE),
		refuse(unix.EPERM, unix.SYS_CREATE_MODULE, unix.SYS_GET_KERNEL_SYMS, unix.SYS_QUERY_MODULE,
			unix.SYS_USELIB, unix.SYS_USTAT, unix.SYS_SYSFS, unix.SYS__SYSCTL, unix.SYS_IOPL, unix.SYS_IOPERM, unix.SYS_MODIFY_LDT),
		// Numbers behind which no kernel has anything.
		refuse(unix.ENOSYS, unix.SYS_GETPMSG, unix.SYS_PUTPMSG, unix.SYS_AFS_SYSCALL, unix.SYS_TUXCALL, unix.SYS_SECURITY, unix.SYS_VSERVER,
			unix.SYS_EPOLL_CTL_OLD, unix.SYS_EPOLL_WAIT_OLD, unix.SYS_SET_THREAD_AREA, unix.SYS_GET_THREAD_AREA),
	}
}

func archAttributes() []uintptr {
	return []uintptr{unix.SYS_CHMOD, unix.SYS_CHOWN, unix.SYS_LCHOWN, unix.SYS_UTIME, unix.SYS_UTIMES, unix.SYS_FUTIMESAT}
}

const compatArch = unix.AUDIT_ARCH_I386

// compatCalls are smallCalls in the numbers of 32 bits. The old call for everything
// with sockets has its arguments in memory, where a filter cannot look.
func compatCalls() table {
	return append(small(359, 425 /* io_uring_setup */, 286 /* add_key */, 287 /* request_key */, 288 /* keyctl */), refuse(unix.ENOSYS, 102 /* socketcall */))
}
