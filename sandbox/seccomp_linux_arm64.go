package sandbox

import "golang.org/x/sys/unix"

const auditArch = unix.AUDIT_ARCH_AARCH64

// archEverywhere are the rows that only this architecture has: none.
func archEverywhere() table { return nil }

func archAttributes() []uintptr { return nil }

const compatArch = unix.AUDIT_ARCH_ARM

// compatCalls are smallCalls in the numbers of 32 bits, which has some calls of its own far
// above all others: for caches, and for the pointer of a thread's own memory.
func compatCalls() table {
	return append(small(281, 425 /* io_uring_setup */, 309 /* add_key */, 310 /* request_key */, 311 /* keyctl */), allow(0xf0001, 0xf0002, 0xf0003, 0xf0004, 0xf0005, 0xf0006))
}
