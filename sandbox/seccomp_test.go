//go:build linux && (amd64 || arm64)

package sandbox

import (
	"encoding/binary"
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
			t.Errorf("call %d stands twice: the second row is never reached", d.nr)
		}
		seen[d.nr] = true
		if d.arg < 0 {
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
		{"ioctl TCGETS", unix.SYS_IOCTL, []uint64{0, unix.TCGETS}, 0},
		{"ioctl TIOCSTI", unix.SYS_IOCTL, []uint64{0, tiocsti}, unix.EPERM},
		{"ioctl TIOCSTI with high bits", unix.SYS_IOCTL, []uint64{0, tiocsti | high}, unix.EPERM},
		{"ioctl TIOCLINUX", unix.SYS_IOCTL, []uint64{0, tioclinux}, unix.EPERM},
		{"unix socket", unix.SYS_SOCKET, []uint64{unix.AF_UNIX}, 0}, {"inet socket", unix.SYS_SOCKET, []uint64{unix.AF_INET}, 0},
		{"inet6 socket", unix.SYS_SOCKET, []uint64{unix.AF_INET6}, 0}, {"netlink socket", unix.SYS_SOCKET, []uint64{unix.AF_NETLINK}, 0},
		{"vsock", unix.SYS_SOCKET, []uint64{unix.AF_VSOCK}, unix.EAFNOSUPPORT}, {"alg socket", unix.SYS_SOCKET, []uint64{unix.AF_ALG}, unix.EAFNOSUPPORT},
		{"packet socket", unix.SYS_SOCKET, []uint64{unix.AF_PACKET}, unix.EAFNOSUPPORT}, {"socket of no family", unix.SYS_SOCKET, []uint64{0}, unix.EAFNOSUPPORT},
	} {
		is(c.name, filter(t, p, auditArch, c.nr, c.args...), c.want)
	}
	is("another architecture", filter(t, p, 0x40000003, unix.SYS_READ), unix.ENOSYS)
	if runtime.GOARCH == "amd64" {
		is("x32", filter(t, p, auditArch, unix.SYS_READ|0x40000000), unix.ENOSYS)
	}
}
