//go:build linux && (amd64 || arm64)

package sandbox

import (
	"encoding/binary"
	"fmt"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// filter runs a program as the kernel would, over the instructions that assemble uses.
func filter(t *testing.T, p []unix.SockFilter, arch uint32, nr uintptr, args ...uint64) uint32 {
	t.Helper()
	var data [64]byte
	binary.LittleEndian.PutUint32(data[0:], uint32(nr))
	binary.LittleEndian.PutUint32(data[4:], arch)
	for i, a := range args {
		binary.LittleEndian.PutUint64(data[16+8*i:], a)
	}
	var acc uint32
	for pc := 0; pc < len(p); pc++ {
		in := p[pc]
		jump := func(yes bool) {
			if yes {
				pc += int(in.Jt)
			} else {
				pc += int(in.Jf)
			}
		}
		switch in.Code {
		case unix.BPF_LD | unix.BPF_W | unix.BPF_ABS:
			acc = binary.LittleEndian.Uint32(data[in.K:])
		case unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K:
			jump(acc == in.K)
		case unix.BPF_JMP | unix.BPF_JGT | unix.BPF_K:
			jump(acc > in.K)
		case unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K:
			jump(acc&in.K != 0)
		case unix.BPF_RET | unix.BPF_K:
			return in.K
		default:
			t.Fatalf("instruction %d: code %#x", pc, in.Code)
		}
	}
	t.Fatal("ran off the end")
	return 0
}

// TestSystemCallTable asks the program about every row and about what lies beside it.
func TestSystemCallTable(t *testing.T) {
	table := denials()
	p := assemble(auditArch, runtime.GOARCH == "amd64", table)
	if len(p) > 4096 {
		t.Fatalf("%d instructions", len(p))
	}
	is := func(what string, got uint32, want unix.Errno) {
		t.Helper()
		w := uint32(unix.SECCOMP_RET_ALLOW)
		if want != 0 {
			w = unix.SECCOMP_RET_ERRNO | uint32(want)
		}
		if got != w {
			t.Errorf("%s: %#x, want %#x", what, got, w)
		}
	}
	seen := map[uintptr]bool{}
	for _, d := range table {
		if seen[d.nr] {
			t.Errorf("call %d stands behind a row that refuses it: this one is never reached", d.nr)
		}
		if d.arg < 0 {
			seen[d.nr] = true
			is("row", filter(t, p, auditArch, d.nr), d.errno)
		}
	}
	const high = 7 << 32 // the kernel's calls take the low half of these
	for _, c := range []struct {
		name string
		nr   uintptr
		args []uint64
		want unix.Errno
	}{
		{"read", unix.SYS_READ, nil, 0}, {"execve", unix.SYS_EXECVE, nil, 0}, {"openat", unix.SYS_OPENAT, nil, 0}, {"futex", unix.SYS_FUTEX, nil, 0},
		{"clone of a thread", unix.SYS_CLONE, []uint64{unix.CLONE_VM | unix.CLONE_THREAD | unix.CLONE_SIGHAND}, 0},
		{"clone like vfork", unix.SYS_CLONE, []uint64{unix.CLONE_VM | unix.CLONE_VFORK | 17}, 0},
		{"clone, user", unix.SYS_CLONE, []uint64{unix.CLONE_NEWUSER | 17}, unix.EPERM},
		{"clone, pid", unix.SYS_CLONE, []uint64{unix.CLONE_NEWPID | high}, unix.EPERM},
		{"clone, network", unix.SYS_CLONE, []uint64{unix.CLONE_NEWNET}, unix.EPERM},
		{"fcntl, flags", unix.SYS_FCNTL, []uint64{0, unix.F_GETFL}, 0}, {"fcntl, lease", unix.SYS_FCNTL, []uint64{0, unix.F_SETLEASE}, unix.EPERM},
		{"ioctl TCGETS", unix.SYS_IOCTL, []uint64{0, unix.TCGETS}, 0},
		{"ioctl TIOCSTI", unix.SYS_IOCTL, []uint64{0, tiocsti}, unix.EPERM},
		{"ioctl TIOCSTI with high bits", unix.SYS_IOCTL, []uint64{0, tiocsti | high}, unix.EPERM},
		{"ioctl TIOCLINUX", unix.SYS_IOCTL, []uint64{0, tioclinux}, unix.EPERM},
		{"ioctl TIOCSETD", unix.SYS_IOCTL, []uint64{0, tiocsetd}, unix.EPERM},
		{"personality 0", unix.SYS_PERSONALITY, []uint64{0}, 0}, {"asking for the personality", unix.SYS_PERSONALITY, []uint64{0xffffffff}, 0},
		{"without randomized addresses", unix.SYS_PERSONALITY, []uint64{noRandomize}, 0}, {"32 bits", unix.SYS_PERSONALITY, []uint64{perLinux32}, 0},
		{"mapping at address zero", unix.SYS_PERSONALITY, []uint64{0x100000}, unix.EPERM}, {"reading means executing", unix.SYS_PERSONALITY, []uint64{0x400000}, unix.EPERM},
		{"unix socket pair", unix.SYS_SOCKETPAIR, []uint64{unix.AF_UNIX}, 0}, {"pair of another family", unix.SYS_SOCKETPAIR, []uint64{unix.AF_TIPC}, unix.EAFNOSUPPORT},
		{"the newest that is known", newest, nil, 0}, {"one that is not known", newest + 1, nil, unix.ENOSYS}, {"number -1", ^uintptr(0), nil, unix.ENOSYS},
		{"unix socket", unix.SYS_SOCKET, []uint64{unix.AF_UNIX}, 0}, {"inet socket", unix.SYS_SOCKET, []uint64{unix.AF_INET}, 0},
		{"inet6 socket", unix.SYS_SOCKET, []uint64{unix.AF_INET6}, 0}, {"netlink socket", unix.SYS_SOCKET, []uint64{unix.AF_NETLINK}, 0},
		{"vsock", unix.SYS_SOCKET, []uint64{unix.AF_VSOCK}, unix.EAFNOSUPPORT}, {"alg socket", unix.SYS_SOCKET, []uint64{unix.AF_ALG}, unix.EAFNOSUPPORT},
		{"packet socket", unix.SYS_SOCKET, []uint64{unix.AF_PACKET}, unix.EAFNOSUPPORT}, {"socket of no family", unix.SYS_SOCKET, []uint64{0}, unix.EAFNOSUPPORT},
	} {
		is(c.name, filter(t, p, auditArch, c.nr, c.args...), c.want)
	}
	// What must be refused by name, so that no row gets lost.
	for nr, want := range map[uintptr]unix.Errno{
		unix.SYS_IO_URING_SETUP: unix.ENOSYS, unix.SYS_IO_URING_ENTER: unix.ENOSYS, unix.SYS_IO_URING_REGISTER: unix.ENOSYS, unix.SYS_IO_PGETEVENTS: unix.ENOSYS,
		unix.SYS_IO_SETUP: unix.ENOSYS, unix.SYS_CLONE3: unix.ENOSYS, unix.SYS_USERFAULTFD: unix.EPERM, unix.SYS_BPF: unix.EPERM, unix.SYS_PERF_EVENT_OPEN: unix.EPERM,
		unix.SYS_KEYCTL: unix.EPERM, unix.SYS_ADD_KEY: unix.EPERM, unix.SYS_REQUEST_KEY: unix.EPERM, unix.SYS_PTRACE: unix.EPERM,
		unix.SYS_PROCESS_VM_READV: unix.EPERM, unix.SYS_PROCESS_VM_WRITEV: unix.EPERM, unix.SYS_PIDFD_GETFD: unix.EPERM, unix.SYS_KEXEC_LOAD: unix.EPERM, unix.SYS_KEXEC_FILE_LOAD: unix.EPERM,
		unix.SYS_INIT_MODULE: unix.EPERM, unix.SYS_FINIT_MODULE: unix.EPERM, unix.SYS_DELETE_MODULE: unix.EPERM, unix.SYS_MOUNT: unix.EPERM, unix.SYS_UMOUNT2: unix.EPERM,
		unix.SYS_OPEN_TREE: unix.EPERM, unix.SYS_OPEN_TREE_ATTR: unix.EPERM, unix.SYS_MOVE_MOUNT: unix.EPERM, unix.SYS_FSOPEN: unix.EPERM, unix.SYS_FSCONFIG: unix.EPERM,
		unix.SYS_FSMOUNT: unix.EPERM, unix.SYS_FSPICK: unix.EPERM, unix.SYS_MOUNT_SETATTR: unix.EPERM, unix.SYS_STATMOUNT: unix.ENOSYS, unix.SYS_LISTMOUNT: unix.ENOSYS,
		unix.SYS_PIVOT_ROOT: unix.EPERM, unix.SYS_CHROOT: unix.EPERM, unix.SYS_UNSHARE: unix.EPERM, unix.SYS_SETNS: unix.EPERM, unix.SYS_OPEN_BY_HANDLE_AT: unix.EPERM,
		unix.SYS_NAME_TO_HANDLE_AT: unix.EPERM, unix.SYS_SWAPON: unix.EPERM, unix.SYS_SWAPOFF: unix.EPERM, unix.SYS_ACCT: unix.EPERM, unix.SYS_QUOTACTL: unix.EPERM,
		unix.SYS_QUOTACTL_FD: unix.EPERM, unix.SYS_REBOOT: unix.EPERM, unix.SYS_SYSLOG: unix.EPERM, unix.SYS_CLOCK_SETTIME: unix.EPERM, unix.SYS_FANOTIFY_INIT: unix.EPERM,
	} {
		is(fmt.Sprintf("call %d", nr), filter(t, p, auditArch, nr), want)
	}
	is("another architecture", filter(t, p, 0x40000003, unix.SYS_READ), unix.ENOSYS)
	if runtime.GOARCH == "amd64" {
		is("x32", filter(t, p, auditArch, unix.SYS_READ|0x40000000), unix.ENOSYS)
	}
}

// Where rules stand alone, two arguments of one call decide, and what every table has is in there too.
func TestConfinedTable(t *testing.T) {
	p := assemble(auditArch, runtime.GOARCH == "amd64", confinedDenials(6, false))
	if len(p) > 4096 {
		t.Fatalf("%d instructions", len(p))
	}
	for _, c := range []struct {
		name string
		nr   uintptr
		args []uint64
		want unix.Errno
	}{
		{"stream pair", unix.SYS_SOCKETPAIR, []uint64{unix.AF_UNIX, unix.SOCK_STREAM | unix.SOCK_CLOEXEC | unix.SOCK_NONBLOCK}, 0},
		{"packet pair", unix.SYS_SOCKETPAIR, []uint64{unix.AF_UNIX, unix.SOCK_SEQPACKET | unix.SOCK_CLOEXEC}, 0},
		{"stream pair of another family", unix.SYS_SOCKETPAIR, []uint64{unix.AF_TIPC, unix.SOCK_STREAM}, unix.EAFNOSUPPORT},
		{"datagram pair", unix.SYS_SOCKETPAIR, []uint64{unix.AF_UNIX, unix.SOCK_DGRAM | unix.SOCK_CLOEXEC}, unix.ESOCKTNOSUPPORT},
		{"raw pair", unix.SYS_SOCKETPAIR, []uint64{unix.AF_UNIX, unix.SOCK_RAW}, unix.ESOCKTNOSUPPORT},
		{"terminal's attributes", unix.SYS_IOCTL, []uint64{0, unix.TCGETS}, 0}, {"terminal's input", unix.SYS_IOCTL, []uint64{0, tiocsti}, unix.EPERM},
		{"a file's flags", unix.SYS_IOCTL, []uint64{0, unix.FS_IOC_GETFLAGS}, 0}, {"to set them", unix.SYS_IOCTL, []uint64{0, unix.FS_IOC_SETFLAGS}, unix.EPERM},
		{"to seal it", unix.SYS_IOCTL, []uint64{0, unix.FS_IOC_ENABLE_VERITY}, unix.EPERM},
		{"own priority", unix.SYS_SETPRIORITY, []uint64{unix.PRIO_PROCESS, 0}, 0}, {"another's", unix.SYS_SETPRIORITY, []uint64{unix.PRIO_PROCESS, 7}, unix.EPERM},
		{"the user's", unix.SYS_SETPRIORITY, []uint64{unix.PRIO_USER, 0}, unix.EPERM}, {"the group's", unix.SYS_SETPRIORITY, []uint64{unix.PRIO_PGRP, 0}, unix.EPERM},
		{"own disk priority", unix.SYS_IOPRIO_SET, []uint64{ioprioWhoProcess, 0}, 0}, {"another's", unix.SYS_IOPRIO_SET, []uint64{ioprioWhoProcess, 1<<32 - 1}, unix.EPERM},
		{"the user's", unix.SYS_IOPRIO_SET, []uint64{3, 0}, unix.EPERM},
		{"own processors", unix.SYS_SCHED_SETAFFINITY, []uint64{0}, 0}, {"another's", unix.SYS_SCHED_SETAFFINITY, []uint64{7}, unix.EPERM},
		{"another's class", unix.SYS_SCHED_SETSCHEDULER, []uint64{7}, unix.EPERM}, {"its parameters", unix.SYS_SCHED_SETPARAM, []uint64{7}, unix.EPERM},
		{"its attributes", unix.SYS_SCHED_SETATTR, []uint64{7}, unix.EPERM}, {"its limits", unix.SYS_PRLIMIT64, []uint64{7}, unix.EPERM}, {"own limits", unix.SYS_PRLIMIT64, []uint64{0}, 0},
		{"fchmod", unix.SYS_FCHMOD, nil, unix.EPERM}, {"fchown", unix.SYS_FCHOWN, nil, unix.EPERM}, {"fsetxattr", unix.SYS_FSETXATTR, nil, unix.EPERM},
		{"fremovexattr", unix.SYS_FREMOVEXATTR, nil, unix.EPERM}, {"utimensat without a name", unix.SYS_UTIMENSAT, nil, unix.EPERM},
	} {
		want := uint32(unix.SECCOMP_RET_ALLOW)
		if c.want != 0 {
			want = unix.SECCOMP_RET_ERRNO | uint32(c.want)
		}
		if got := filter(t, p, auditArch, c.nr, c.args...); got != want {
			t.Errorf("%s: %#x, want %#x", c.name, got, want)
		}
	}
}

// The small filter refuses keys in either numbering, and leaves what stands beside them.
func TestKeysInTheSmallFilter(t *testing.T) {
	p := assembleSockets(auditArch, runtime.GOARCH == "amd64", socketDenials(), compatArch, compatDenials())
	refuse, allow := unix.SECCOMP_RET_ERRNO|uint32(unix.EPERM), uint32(unix.SECCOMP_RET_ALLOW)
	first := map[string]uintptr{"amd64": 286, "arm64": 309}[runtime.GOARCH]
	for _, c := range []struct {
		arch  uint32
		first uintptr
	}{{auditArch, unix.SYS_ADD_KEY}, {compatArch, first}} {
		for d, want := range []uint32{allow, refuse, refuse, refuse, allow} {
			if got := filter(t, p, c.arch, c.first+uintptr(d)-1); got != want {
				t.Errorf("call %d of %#x: %#x, want %#x", c.first+uintptr(d)-1, c.arch, got, want)
			}
		}
	}
}
