//go:build linux && (amd64 || arm64)

package sandbox

import (
	"encoding/binary"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// filter runs a program as the kernel would, over the instructions that assemble uses.
func filter(t *testing.T, p []unix.SockFilter, arch uint32, nr uintptr, args ...uint64) uint32 {
	t.Helper()
	got, _ := interpret(t, p, arch, uint32(nr), args)
	return got
}

// interpret also tells how many instructions it took.
func interpret(t *testing.T, p []unix.SockFilter, arch, nr uint32, args []uint64) (answer uint32, steps int) {
	t.Helper()
	var data [64]byte
	binary.LittleEndian.PutUint32(data[0:], nr)
	binary.LittleEndian.PutUint32(data[4:], arch)
	for i, a := range args {
		binary.LittleEndian.PutUint64(data[16+8*i:], a)
	}
	var acc uint32
	for pc := 0; pc < len(p); pc++ {
		in := p[pc]
		steps++
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
		case unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K:
			jump(acc >= in.K)
		case unix.BPF_JMP | unix.BPF_JA:
			pc += int(in.K)
		case unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K:
			jump(acc&in.K != 0)
		case unix.BPF_RET | unix.BPF_K:
			return in.K, steps
		default:
			t.Fatalf("instruction %d: code %#x", pc, in.Code)
		}
	}
	t.Fatal("ran off the end")
	return 0, 0
}

// judge reads the table in the plainest way there is.
func judge(t table, rest unix.Errno, nr uint32, args []uint64) unix.Errno {
	for _, r := range t {
		if !slices.Contains(r.nrs, uintptr(nr)) {
			continue
		}
		for _, c := range r.when {
			v := uint32(args[c.arg])
			if v&c.noBits != 0 || slices.Contains(c.not, v) || c.only != nil && !slices.Contains(c.only, v) {
				return c.errno
			}
		}
		return r.errno
	}
	if nr > newest {
		return unix.ENOSYS
	}
	return rest
}

const high = 7 << 32 // the kernel's calls take the low half of their arguments

type question struct {
	nr   uint32
	args []uint64
}

// questions are all numbers up to 1023, some of those above, those of x32, and for calls whose arguments
// count what is in the table and what lies beside it.
func questions(t table) []question {
	var out []question
	for n := uint32(0); n < 1024; n++ {
		out = append(out, question{n, make([]uint64, 6)}, question{n | 0x40000000, make([]uint64, 6)})
	}
	for _, n := range []uint32{4096, 1 << 16, 0xf0001, 0xf0002, 0xf0005, 1<<30 - 1, 1<<31 - 1, 1 << 31, 1<<32 - 2} {
		out = append(out, question{n, make([]uint64, 6)})
	}
	for _, r := range t {
		for _, c := range r.when {
			for _, v := range append(slices.Concat(c.not, c.only), c.noBits) {
				for _, v := range []uint64{uint64(v), uint64(v) - 1, uint64(v) + 1, uint64(v) | high, uint64(v &^ (v - 1)), uint64(^v)} {
					for _, other := range []uint64{0, 1, 2} {
						args := []uint64{other, other, 0, 0, 0, 0}
						args[c.arg] = v
						out = append(out, question{uint32(r.nrs[0]), args})
					}
				}
			}
		}
	}
	return out
}

func result(e unix.Errno) uint32 {
	if e == 0 {
		return unix.SECCOMP_RET_ALLOW
	}
	return unix.SECCOMP_RET_ERRNO | uint32(e)
}

// TestFiltersSayWhatTheTablesSay asks every program about every number, and for
// what it takes to find the answer.
func TestFiltersSayWhatTheTablesSay(t *testing.T) {
	small := assembleSmall(auditArch, smallCalls(), compatArch, compatCalls())
	type filtered struct {
		name string
		p    []unix.SockFilter
		arch uint32
		t    table
		rest unix.Errno
	}
	all := []filtered{
		{"isolated", assemble(auditArch, isolatedCalls()), auditArch, isolatedCalls(), unix.ENOSYS},
		{"small", small, auditArch, smallCalls(), 0}, {"small, 32 bits", small, compatArch, compatCalls(), 0},
	}
	for abi := 2; abi < 4; abi++ {
		for _, network := range []bool{false, true} {
			c := confinedCalls(abi, network)
			all = append(all, filtered{fmt.Sprint("rules ", abi, network), assemble(auditArch, c), auditArch, c, unix.ENOSYS})
		}
	}
	for _, f := range all {
		seen := map[uintptr]bool{}
		for _, r := range f.t {
			for _, nr := range r.nrs {
				if seen[nr] {
					t.Errorf("%s: call %d is in two rows", f.name, nr)
				}
				seen[nr] = true
			}
		}
		most, sum, n := 0, 0, 0
		for i, q := range questions(f.t) {
			got, steps := interpret(t, f.p, f.arch, q.nr, q.args)
			if want := result(judge(f.t, f.rest, q.nr, q.args)); got != want {
				t.Errorf("%s: call %d %x: %#x, want %#x", f.name, q.nr, q.args, got, want)
			}
			if i < 2048 && got == result(0) {
				most, sum, n = max(most, steps), sum+steps, n+1
			}
		}
		t.Logf("%s: %d instructions; a call that is made takes %d, %d at most", f.name, len(f.p), sum/n, most)
		if len(f.p) > 1000 || f.rest != 0 && sum/n > 13 {
			t.Errorf("%s: %d instructions, %d of them for a call", f.name, len(f.p), sum/n)
		}
	}
	for _, arch := range []uint32{compatArch, unix.AUDIT_ARCH_RISCV64, 0} {
		for n := range uintptr(1024) {
			if got := filter(t, all[0].p, arch, n); got != result(unix.ENOSYS) {
				t.Errorf("call %d of architecture %#x: %#x", n, arch, got)
			}
			if got := filter(t, small, arch, n); arch != compatArch && got != result(unix.ENOSYS) {
				t.Errorf("small: call %d of architecture %#x: %#x", n, arch, got)
			}
		}
	}
}

// made is what the kernel answers in AskKernel where the filter lets a call be made.
const made = 4000

// AskKernel is the whole of a process that puts the filter of an isolated launch on itself, with
// made in the place of every permission, makes all calls of questions and writes the answers.
func AskKernel() int {
	const ours = 0x5ca1ab1e // in the last argument of a call of its own
	runtime.LockOSThread()
	p := []unix.SockFilter{
		load(offArg0 + 8*5), jump(unix.BPF_JEQ, ours, 0, 1), answers(0),
		load(offNr), jump(unix.BPF_JEQ, unix.SYS_RT_SIGRETURN, 0, 1), answers(0), // the run-time system may be signalled
	}
	for _, in := range assemble(auditArch, isolatedCalls()) {
		if in == answers(0) {
			in = answers(made)
		}
		p = append(p, in)
	}
	ask := questions(isolatedCalls())
	answers := make([]uint16, len(ask))
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return 1
	}
	// From here on the run-time system must not come to this thread: it could do nothing for it.
	prog := unix.SockFprog{Len: uint16(len(p)), Filter: &p[0]}
	if _, _, e := unix.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, uintptr(unsafe.Pointer(&prog))); e != 0 {
		return 1
	}
	for i := range ask {
		a := ask[i].args
		if ask[i].nr == unix.SYS_RT_SIGRETURN {
			continue
		}
		_, _, e := unix.RawSyscall6(uintptr(ask[i].nr), uintptr(a[0]), uintptr(a[1]), uintptr(a[2]), uintptr(a[3]), uintptr(a[4]), uintptr(a[5]))
		answers[i] = uint16(e)
	}
	for b := unsafe.Slice((*byte)(unsafe.Pointer(&answers[0])), 2*len(answers)); len(b) > 0; {
		n, _, e := unix.RawSyscall6(unix.SYS_WRITE, 1, uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)), 0, 0, ours)
		if e != 0 {
			break
		}
		b = b[n:]
	}
	_, _, _ = unix.RawSyscall6(unix.SYS_EXIT_GROUP, 0, 0, 0, 0, 0, ours)
	runtime.KeepAlive(p)
	return 1
}

// TestKernelSaysWhatTheTableSays has the kernel run the program, not our interpreter.
func TestKernelSaysWhatTheTableSays(t *testing.T) {
	cmd := exec.Command("/proc/self/exe")
	// Nothing of the run-time system may come between.
	cmd.Env = append(os.Environ(), "ASP_SANDBOX_TEST_HELPER=filtered", "GODEBUG=asyncpreemptoff=1", "GOGC=off")
	out, err := cmd.Output()
	ask := questions(isolatedCalls())
	if err != nil || len(out) != 2*len(ask) {
		t.Fatalf("%v, %d bytes for %d questions", err, len(out), len(ask))
	}
	for i, q := range ask {
		want := judge(isolatedCalls(), unix.ENOSYS, q.nr, q.args)
		if want == 0 {
			want = made
		}
		if q.nr == unix.SYS_RT_SIGRETURN || runtime.GOARCH == "amd64" && (q.nr == 335 || q.nr == 336) {
			continue // the latter are uretprobe and uprobe, which new kernels let through every filter
		}
		if got := unix.Errno(binary.NativeEndian.Uint16(out[2*i:])); got != want {
			t.Errorf("call %d %x: %d, want %d", q.nr, q.args, got, want)
		}
	}
}

// TestEveryCallIsDecided: what golang.org/x/sys knows stands in the tables, allowed or refused,
// on each architecture; and what is revised last is the newest.
func TestEveryCallIsDecided(t *testing.T) {
	dir, err := exec.Command("go", "list", "-f", "{{.Dir}}", "golang.org/x/sys/unix").Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, arch := range []string{"amd64", "arm64"} {
		decided := map[string]bool{
			"SYS_ARCH_SPECIFIC_SYSCALL": true, // marks where those of an architecture would begin
		}
		for _, file := range []string{"seccomp_calls_linux.go", "seccomp_linux_" + arch + ".go"} {
			f, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			ast.Inspect(f, func(n ast.Node) bool {
				if s, ok := n.(*ast.SelectorExpr); ok {
					decided[s.Sel.Name] = true
				}
				return true
			})
		}
		file := filepath.Join(strings.TrimSpace(string(dir)), "zsysnum_linux_"+arch+".go")
		src, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		known, last := 0, 0
		for _, m := range regexp.MustCompile(`(?m)^\s*(SYS_\w+)\s*=\s*(\d+)`).FindAllStringSubmatch(string(src), -1) {
			known++
			n, err := strconv.Atoi(m[2])
			if err != nil {
				t.Fatal(err)
			}
			last = max(last, n)
			if !decided[m[1]] {
				t.Errorf("%s, %d, is neither allowed nor refused on %s", m[1], n, arch)
			}
		}
		if known < 300 || last != newest {
			t.Errorf("%s: %d calls, the newest is %d and not %d", arch, known, last, newest)
		}
	}
}

// TestSystemCallTable names what a command has to be able to do, and what it must not.
func TestSystemCallTable(t *testing.T) {
	p := assemble(auditArch, isolatedCalls())
	is := func(what string, got uint32, want unix.Errno) {
		t.Helper()
		if w := result(want); got != w {
			t.Errorf("%s: %#x, want %#x", what, got, w)
		}
	}
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
		{"ioctl TIOCSTI", unix.SYS_IOCTL, []uint64{0, unix.TIOCSTI}, unix.EPERM},
		{"ioctl TIOCSTI with high bits", unix.SYS_IOCTL, []uint64{0, unix.TIOCSTI | high}, unix.EPERM},
		{"ioctl TIOCLINUX", unix.SYS_IOCTL, []uint64{0, unix.TIOCLINUX}, unix.EPERM},
		{"ioctl TIOCSETD", unix.SYS_IOCTL, []uint64{0, unix.TIOCSETD}, unix.EPERM},
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
	p := assemble(auditArch, confinedCalls(6, false))
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
		{"terminal's attributes", unix.SYS_IOCTL, []uint64{0, unix.TCGETS}, 0}, {"terminal's input", unix.SYS_IOCTL, []uint64{0, unix.TIOCSTI}, unix.EPERM},
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
		if got, want := filter(t, p, auditArch, c.nr, c.args...), result(c.want); got != want {
			t.Errorf("%s: %#x, want %#x", c.name, got, want)
		}
	}
}

// The small filter refuses keys in either numbering, and leaves what stands beside them.
func TestKeysInTheSmallFilter(t *testing.T) {
	p := assembleSmall(auditArch, smallCalls(), compatArch, compatCalls())
	refuse, allow := result(unix.EPERM), result(0)
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
