package conformance

import (
	"errors"
	"fmt"
	"os/exec"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Deny runs argv in place of this process, in a kernel that seems to have none of
// what a sandbox is made of: namespaces, Landlock and mounts are answered like
// system calls that do not exist. It returns only on failure.
//
// The suite needs a host that cannot isolate, to see what it claims then; to ask
// the host nicely would test its honesty by its honesty.
func Deny(argv, env []string) error {
	if len(argv) == 0 {
		return errors.New("deny: no command")
	}
	path, err := exec.LookPath(argv[0])
	if err != nil {
		return fmt.Errorf("deny: %w", err)
	}
	filter := denial()
	prog := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	runtime.LockOSThread() // the filter belongs to a thread, and exec keeps that of the calling one
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("deny: no new privileges: %w", err)
	}
	if err := unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&prog)), 0, 0); err != nil {
		return fmt.Errorf("deny: install filter: %w", err)
	}
	return fmt.Errorf("deny: %w", syscall.Exec(path, argv, env))
}

// denial answers ENOSYS to what makes sandboxes, and allows everything else. It
// is no protection: it looks at the number of the call alone, in the native table.
func denial() []unix.SockFilter {
	const (
		number   = 0  // offset of seccomp_data.nr
		firstArg = 16 // of the low half of its first argument, little endian
		newSpace = unix.CLONE_NEWNS | unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS | unix.CLONE_NEWCGROUP
		refuse   = unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)
	)
	load := func(at uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: at}
	}
	ret := func(k uint32) unix.SockFilter { return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: k} }
	f := []unix.SockFilter{load(number)}
	for _, nr := range []uint32{unix.SYS_UNSHARE, unix.SYS_SETNS, unix.SYS_MOUNT, unix.SYS_PIVOT_ROOT, unix.SYS_CHROOT, unix.SYS_LANDLOCK_CREATE_RULESET,
		unix.SYS_OPEN_TREE, unix.SYS_FSOPEN, unix.SYS_MOVE_MOUNT, unix.SYS_CLONE3} {
		f = append(f, unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: nr, Jt: 0, Jf: 1}, ret(refuse))
	}
	return append(f,
		unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.SYS_CLONE, Jt: 0, Jf: 3},
		load(firstArg),
		unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K, K: newSpace, Jt: 0, Jf: 1},
		ret(refuse),
		ret(unix.SECCOMP_RET_ALLOW))
}
