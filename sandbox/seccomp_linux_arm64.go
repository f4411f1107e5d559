package sandbox

import "golang.org/x/sys/unix"

const auditArch = unix.AUDIT_ARCH_AARCH64

// archDenials are the rows that only this architecture has.
func archDenials() []denial { return deny(unix.EPERM, unix.SYS_KEXEC_FILE_LOAD) }

const compatArch = unix.AUDIT_ARCH_ARM

// compatDenials are socketDenials in the numbers of 32 bits.
func compatDenials() []denial {
	d := append(deny(unix.ENOSYS, 425 /* io_uring_setup */), families(281))
	return append(d, deny(unix.EPERM, 309 /* add_key */, 310 /* request_key */, 311 /* keyctl */)...)
}

// archConfined are the rows of confinedDenials that not every architecture has, or not by
// this name.
func archConfined() []denial { return sharedByKey() }
