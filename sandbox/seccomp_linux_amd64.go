package sandbox

import "golang.org/x/sys/unix"

const auditArch = unix.AUDIT_ARCH_X86_64

// archDenials are the rows that only this architecture has.
func archDenials() []denial {
	return deny(unix.EPERM, unix.SYS_KEXEC_FILE_LOAD, unix.SYS_CREATE_MODULE, unix.SYS_GET_KERNEL_SYMS, unix.SYS_QUERY_MODULE,
		unix.SYS_USELIB, unix.SYS_USTAT, unix.SYS_SYSFS, unix.SYS__SYSCTL, unix.SYS_IOPL, unix.SYS_IOPERM, unix.SYS_MODIFY_LDT)
}

const compatArch = unix.AUDIT_ARCH_I386

// compatDenials are socketDenials in the numbers of 32 bits. The old call for everything
// with sockets has its arguments in memory, where a filter cannot look.
func compatDenials() []denial {
	d := append(deny(unix.ENOSYS, 102 /* socketcall */, 425 /* io_uring_setup */), families(359))
	return append(d, deny(unix.EPERM, 286 /* add_key */, 287 /* request_key */, 288 /* keyctl */)...)
}

// archConfined are the rows of confinedDenials that not every architecture has, or not by
// this name: attributes by a path, and what the host's processes share by a key.
func archConfined() []denial {
	return append(sharedByKey(), deny(unix.EPERM, unix.SYS_CHMOD, unix.SYS_CHOWN, unix.SYS_LCHOWN, unix.SYS_UTIME, unix.SYS_UTIMES, unix.SYS_FUTIMESAT)...)
}
