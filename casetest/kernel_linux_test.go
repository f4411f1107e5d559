package casetest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The built command is the one that is delivered: it has no switch that weakens a
// launch. So each layer is taken away from outside, by the kernel's own limits on
// namespaces or by a filter under which a system call does not exist.

const withoutWord = "casetest-without"

// withoutMain executes a program in a kernel that lacks something. The first argument
// lists system calls, separated by commas, each as number:when:error. When is empty for
// always, "I=V" where argument I has the value V, "I&V" where it has one of its bits. An error of
// "landlock=N" has the call answered with the version N, as an old kernel would.
func withoutMain(args []string) int {
	runtime.LockOSThread()
	old, err := lackMain(args[0])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 99
	}
	if old == nil {
		err = unix.Exec(args[1], args[1:], os.Environ())
		fmt.Fprintln(os.Stderr, err)
		return 99
	}
	// The filter is on this thread alone, which starts the program; another answers.
	failed := make(chan error, 1)
	go func() { failed <- old.answer() }()
	cmd := exec.Command(args[1], args[2:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	err = cmd.Run()
	select {
	case ferr := <-failed:
		fmt.Fprintln(os.Stderr, "answering:", ferr)
		return 99
	default:
	}
	return statusOf(err)
}

// statusOf is the status of a program that was run on behalf of another, 99 where it was not.
func statusOf(err error) int {
	var end *exec.ExitError
	if errors.As(err, &end) {
		return end.ExitCode()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 99
	}
	return 0
}

// oldKernel answers questions for a version.
type oldKernel struct{ listener, version int }

// lackMain puts the filter on the calling thread, and on all others where nobody has to answer.
func lackMain(lacks string) (*oldKernel, error) {
	if os.Geteuid() != 0 { // root may go without, and a row is about what is then missing
		if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
			return nil, err
		}
	}
	var prog []unix.SockFilter
	op := func(code uint16, k uint32, jt, jf uint8) {
		prog = append(prog, unix.SockFilter{Code: code, K: k, Jt: jt, Jf: jf})
	}
	var old *oldKernel
	for c := range strings.SplitSeq(lacks, ",") {
		f := strings.Split(c, ":")
		if len(f) != 3 {
			return nil, fmt.Errorf("%q: not understood", c)
		}
		var nr, index, value, errno uint32
		_, err := fmt.Sscan(f[0], &nr)
		action := uint32(unix.SECCOMP_RET_ERRNO)
		if v, ok := strings.CutPrefix(f[2], "landlock="); ok {
			old = &oldKernel{}
			_, verr := fmt.Sscan(v, &old.version)
			err, action = errors.Join(err, verr), unix.SECCOMP_RET_USER_NOTIF
		} else {
			_, verr := fmt.Sscan(f[2], &errno)
			err = errors.Join(err, verr)
		}
		test := uint16(unix.BPF_JEQ)
		if strings.Contains(f[1], "&") {
			test = unix.BPF_JSET
		}
		if f[1] != "" {
			_, verr := fmt.Sscan(strings.NewReplacer("=", " ", "&", " ").Replace(f[1]), &index, &value)
			err = errors.Join(err, verr)
		}
		if err != nil {
			return nil, fmt.Errorf("%q: %w", c, err)
		}
		op(unix.BPF_LD|unix.BPF_W|unix.BPF_ABS, 0, 0, 0)
		if f[1] == "" {
			op(unix.BPF_JMP|unix.BPF_JEQ|unix.BPF_K, nr, 0, 1)
		} else {
			op(unix.BPF_JMP|unix.BPF_JEQ|unix.BPF_K, nr, 0, 3)
			op(unix.BPF_LD|unix.BPF_W|unix.BPF_ABS, 16+8*index, 0, 0)
			op(unix.BPF_JMP|test|unix.BPF_K, value, 0, 1)
		}
		op(unix.BPF_RET|unix.BPF_K, action|errno, 0, 0)
	}
	op(unix.BPF_RET|unix.BPF_K, unix.SECCOMP_RET_ALLOW, 0, 0)
	fprog := unix.SockFprog{Len: uint16(len(prog)), Filter: &prog[0]}
	flags := uintptr(unix.SECCOMP_FILTER_FLAG_TSYNC)
	if old != nil {
		flags = unix.SECCOMP_FILTER_FLAG_NEW_LISTENER
	}
	fd, _, e := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, flags, uintptr(unsafe.Pointer(&fprog)))
	runtime.KeepAlive(prog)
	if e != 0 {
		return nil, fmt.Errorf("filter: %w", e)
	}
	if old != nil {
		old.listener = int(fd)
		unix.CloseOnExec(old.listener)
	}
	return old, nil
}

// answer answers until nobody can ask any more.
func (o *oldKernel) answer() error {
	const (
		notifRecv = 0xc0502100 // SECCOMP_IOCTL_NOTIF_RECV
		notifSend = 0xc0182101 // SECCOMP_IOCTL_NOTIF_SEND
	)
	for {
		var asked [10]uint64 // struct seccomp_notif
		if _, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(o.listener), notifRecv, uintptr(unsafe.Pointer(&asked))); e == unix.EINTR || e == unix.ENOENT {
			continue
		} else if e != 0 {
			return e
		}
		said := [3]uint64{asked[0], uint64(o.version), 0} // struct seccomp_notif_resp
		if _, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(o.listener), notifSend, uintptr(unsafe.Pointer(&said))); e != 0 && e != unix.ENOENT {
			return e
		}
	}
}

// lacking runs the built command in a kernel that lacks what withoutMain understands.
func (w *world) lacking(lacks ...string) func(args ...string) *result {
	return func(args ...string) *result {
		cmd := w.command(w.root, "/proc/self/exe", append([]string{withoutWord, strings.Join(lacks, ","), binary}, args...)...)
		return w.begin(cmd, args)()
	}
}

// naked runs it where there are neither namespaces nor Landlock.
func (w *world) naked(args ...string) *result {
	return w.lacking(append(noUserNS(), enosys(unix.SYS_LANDLOCK_CREATE_RULESET))...)(args...)
}

// enosys is a system call that a kernel does not have.
func enosys(nr int) string { return fmt.Sprintf("%d::%d", nr, unix.ENOSYS) }

// noUserNS is a kernel or a container that refuses user namespaces to everybody in it.
func noUserNS() []string {
	eperm := int(unix.EPERM)
	return []string{
		fmt.Sprintf("%d:0&%d:%d", unix.SYS_CLONE, unix.CLONE_NEWUSER, eperm), fmt.Sprintf("%d:0&%d:%d", unix.SYS_UNSHARE, unix.CLONE_NEWUSER, eperm),
		fmt.Sprintf("%d::%d", unix.SYS_SETNS, eperm), enosys(unix.SYS_CLONE3),
	}
}

// landlockABI is a kernel whose Landlock is of an older version: it says so, and refuses
// a longer list of rights than it knew.
func landlockABI(n int) []string {
	out := []string{fmt.Sprintf("%d:2=1:landlock=%d", unix.SYS_LANDLOCK_CREATE_RULESET, n)}
	if n < 6 {
		out = append(out, fmt.Sprintf("%d:1=24:%d", unix.SYS_LANDLOCK_CREATE_RULESET, unix.E2BIG))
	}
	if n < 4 {
		out = append(out, fmt.Sprintf("%d:1=16:%d", unix.SYS_LANDLOCK_CREATE_RULESET, unix.E2BIG))
	}
	return out
}
