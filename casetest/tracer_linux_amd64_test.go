package casetest

import "syscall"

// refuse makes the call before which a thread is stopped end with the error,
// without being made.
func refuse(pid int, errno syscall.Errno) error {
	var regs syscall.PtraceRegs
	if err := syscall.PtraceGetRegs(pid, &regs); err != nil {
		return err
	}
	regs.Orig_rax = ^uint64(0)
	regs.Rax = uint64(-int64(errno))
	return syscall.PtraceSetRegs(pid, &regs)
}
