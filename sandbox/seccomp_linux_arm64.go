package sandbox

import "golang.org/x/sys/unix"

const auditArch = unix.AUDIT_ARCH_AARCH64

// archDenials are the rows that only this architecture has.
func archDenials() []denial { return deny(unix.EPERM, unix.SYS_KEXEC_FILE_LOAD) }

const compatArch = unix.AUDIT_ARCH_ARM

// compatDenials are socketDenials in the numbers of 32 bits.
func compatDenials() []denial {
	return append(deny(unix.ENOSYS, 425 /* io_uring_setup */), families(281))
}
