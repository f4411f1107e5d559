package casetest

import (
	"bytes"
	enc "encoding/binary"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The tracer runs a command under ptrace and counts every system call, of all
// its threads and children together, that changes something on a disk. It can
// kill the command right before the n-th of them, or hold it there while a test
// changes the world. An external tracer counts by thread, and a Go program
// wanders over its threads; this one makes "the n-th" mean one thing.
//
// A seccomp filter stops the command at these calls only. Stopping at every call
// made each of a thousand calls wait for the tracer twice, signals of the
// scheduler included, and a run on a busy machine last seconds.

const tracerWord = "casetest-tracer"

// stuckAfter is when a command that came to no stop is taken for one that waits
// for ever. Then the tracer says where, instead of waiting with it.
const stuckAfter = 90 * time.Second

// tracerMain is the tracer's own process: waiting for "any child" must not see
// children of other tests.
func tracerMain(args []string) int {
	fs := flag.NewFlagSet(tracerWord, flag.ExitOnError)
	report := fs.String("report", "", "file for what was seen")
	uid := fs.Int("uid", -1, "user of the command")
	kill := fs.Int("kill", 0, "kill before this call")
	killAt := fs.String("killat", "", "kill before the first call whose line holds this")
	fail := fs.Int("fail", 0, "let this call fail")
	failAt := fs.String("failat", "", "let each call fail whose line matches this")
	nth := fs.Int("nth", 0, "only so manieth of them; 0: each")
	errno := fs.Int("errno", 0, "how it fails")
	pause := fs.String("pause", "", "hold before the first call whose line holds this")
	held := fs.String("held", "", "file made when held; the run goes on when it is gone")
	_ = fs.Parse(args)
	t := &tracer{kill: *kill, killAt: *killAt, fail: *fail, nth: *nth, errno: syscall.Errno(*errno), pause: *pause, held: *held}
	if *failAt != "" {
		t.failAt = regexp.MustCompile(*failAt)
	}
	// The thread of run is under the filter too, and nobody traces it: a write of its
	// own fails. The scheduler writes, to wake its poller, where a thread that gives up
	// its turn has a timer; then the runtime ends the process and cannot even say so.
	// So nothing here waits by a timer: see nap. The collector's helper would.
	debug.SetGCPercent(-1)
	go t.watch()
	done := make(chan error)
	var code int
	go func() {
		var err error
		code, err = t.run(*uid, fs.Args())
		done <- err
	}()
	err := <-done
	if err == nil {
		err = t.err
	}
	if err == nil {
		err = os.WriteFile(*report, []byte(strings.Join(t.lines, "\n")), 0o644)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "tracer:", err)
		return 99
	}
	return code
}

// watch ends the process when nothing moves any more. The end of the tracer kills
// what it traces.
func (t *tracer) watch() {
	for last := int64(-1); ; last = t.stops.Load() {
		for end := time.Now().Add(stuckAfter); time.Now().Before(end); {
			nap(time.Second)
		}
		if t.stops.Load() == last {
			fmt.Fprintf(os.Stderr, "tracer: nothing moved for %s\n%s", stuckAfter, descendants(os.Getpid()))
			os.Exit(99)
		}
	}
}

// nap sleeps for d, or less, in the kernel.
func nap(d time.Duration) {
	ts := unix.NsecToTimespec(int64(d))
	_ = unix.Nanosleep(&ts, nil)
}

// descendants says of every process below pid what it waits for.
func descendants(pid int) string {
	var out strings.Builder
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", pid))
	for _, task := range tasks {
		fmt.Fprintf(&out, "== %s\n", task)
		for _, f := range []string{"cmdline", "status", "wchan", "syscall", "stack"} {
			b, err := os.ReadFile(filepath.Join(task, f))
			fmt.Fprintf(&out, "%s: %.1500q %v\n", f, b, err)
		}
		b, _ := os.ReadFile(filepath.Join(task, "children"))
		for _, c := range strings.Fields(string(b)) {
			if n, err := strconv.Atoi(c); err == nil {
				out.WriteString(descendants(n))
			}
		}
	}
	return out.String()
}

type tracer struct {
	kill   int
	killAt string
	failAt *regexp.Regexp // nil: none
	nth    int            // of those that match; 0: each
	seen   int            // that matched
	fail   int
	errno  syscall.Errno
	err    error // of making a call fail
	pause  string
	held   string
	code   int          // how the command ended
	lines  []string     // one a counted call
	stops  atomic.Int64 // how often anything was seen to move
}

// run starts and traces the command, on a thread of its own: the filter is the
// thread's, and so is the right to trace.
func (t *tracer) run(uid int, argv []string) (int, error) {
	runtime.LockOSThread() // for ever: the thread ends with the goroutine
	if err := filter(); err != nil {
		return 0, fmt.Errorf("filter system calls: %w", err)
	}
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Ptrace: true}
	if uid >= 0 {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}
	}
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	leader := cmd.Process.Pid
	if err := seize(leader); err != nil {
		_ = syscall.Kill(leader, syscall.SIGKILL)
		return 0, err
	}
	for {
		var ws syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &ws, unix.WALL, nil)
		if err == syscall.EINTR {
			continue
		}
		if err == syscall.ECHILD {
			return t.code, nil
		}
		if err != nil {
			return 0, err
		}
		if err := t.moved(leader, pid, ws); err != nil {
			return 0, err
		}
	}
}

// moved takes note of an end, and lets a thread that stopped go on.
func (t *tracer) moved(leader, pid int, ws syscall.WaitStatus) error {
	t.stops.Add(1)
	switch {
	case ws.Exited() && pid == leader:
		t.code = ws.ExitStatus()
	case ws.Signaled() && pid == leader:
		t.code = 128 + int(ws.Signal())
	case ws.Stopped():
		return t.stopped(leader, pid, ws)
	}
	return nil
}

// stopped lets a thread go on from wherever it stopped.
func (t *tracer) stopped(leader, pid int, ws syscall.WaitStatus) error {
	request, sig := unix.PTRACE_CONT, 0
	switch event := int(ws) >> 16; {
	case event == unix.PTRACE_EVENT_SECCOMP:
		if err := t.call(leader, pid); err != nil {
			return err
		}
	case event == unix.PTRACE_EVENT_STOP && ws.StopSignal() != syscall.SIGTRAP:
		request = unix.PTRACE_LISTEN // stopped like any process, until SIGCONT
	case event != 0:
	default:
		sig = int(ws.StopSignal())
	}
	// ESRCH: it was killed in the stop; its end is reported like every other.
	if err := ptrace(request, pid, 0, uintptr(sig)); err != nil && err != syscall.ESRCH {
		return fmt.Errorf("let %d go on from %#x: %w", pid, int(ws), err)
	}
	return nil
}

func ptrace(request, pid int, addr, data uintptr) error {
	if _, _, errno := syscall.RawSyscall6(syscall.SYS_PTRACE, uintptr(request), uintptr(pid), addr, data, 0, 0); errno != 0 {
		return errno
	}
	return nil
}

// seize turns the plain tracing of a child that just stopped in its exec into the
// kind in which a new thread's first stop is no SIGSTOP. Such a signal cannot be
// told from a real one by anything but memory of pids, and those come again.
func seize(pid int) error {
	var ws syscall.WaitStatus
	wait := func() (err error) {
		for err = syscall.EINTR; err == syscall.EINTR; {
			_, err = syscall.Wait4(pid, &ws, syscall.WUNTRACED, nil)
		}
		if err == nil && !ws.Stopped() {
			err = fmt.Errorf("status %#x", int(ws))
		}
		return err
	}
	if err := wait(); err != nil {
		return fmt.Errorf("wait for exec: %w", err)
	}
	if err := ptrace(unix.PTRACE_DETACH, pid, 0, uintptr(syscall.SIGSTOP)); err != nil {
		return fmt.Errorf("detach: %w", err)
	}
	if err := wait(); err != nil {
		return fmt.Errorf("wait for stop: %w", err)
	}
	const options = unix.PTRACE_O_TRACESECCOMP | unix.PTRACE_O_TRACECLONE | unix.PTRACE_O_TRACEFORK | unix.PTRACE_O_TRACEVFORK |
		unix.PTRACE_O_TRACEEXEC | unix.PTRACE_O_EXITKILL
	if err := ptrace(unix.PTRACE_SEIZE, pid, 0, options); err != nil {
		return fmt.Errorf("seize: %w", err)
	}
	return syscall.Kill(pid, syscall.SIGCONT)
}

// filter stops what this thread starts at every call that describe may name.
func filter() error {
	load := func(off uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: off}
	}
	const (
		nr, flags = 0, 16 + 2*8 // offsets in seccomp_data: number, third argument
		equal     = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
		any       = unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K
		give      = unix.BPF_RET | unix.BPF_K
		retTrace  = 0x7ff00000
		retAllow  = 0x7fff0000
	)
	prog := []unix.SockFilter{load(nr), {Code: equal, K: unix.SYS_OPENAT, Jf: 4}, load(flags),
		{Code: any, K: unix.O_CREAT | unix.O_TRUNC, Jf: 1}, {Code: give, K: retTrace}, {Code: give, K: retAllow}}
	calls := []uint32{
		unix.SYS_WRITE, unix.SYS_PWRITE64, unix.SYS_WRITEV, unix.SYS_PWRITEV, unix.SYS_PWRITEV2, unix.SYS_OPENAT2, unix.SYS_RENAMEAT2,
		unix.SYS_RENAMEAT, unix.SYS_LINKAT, unix.SYS_SYMLINKAT, unix.SYS_UNLINKAT, unix.SYS_MKDIRAT, unix.SYS_FCHMODAT, unix.SYS_FCHMODAT2,
		unix.SYS_UTIMENSAT, unix.SYS_FCHOWNAT, unix.SYS_COPY_FILE_RANGE,
	}
	for call := range onDescriptor {
		calls = append(calls, uint32(call))
	}
	for i, call := range calls {
		prog = append(prog, unix.SockFilter{Code: equal, K: call, Jt: uint8(len(calls) - i)})
	}
	prog = append(prog, unix.SockFilter{Code: give, K: retAllow}, unix.SockFilter{Code: give, K: retTrace})
	if os.Geteuid() != 0 {
		if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
			return err
		}
	}
	fprog := unix.SockFprog{Len: uint16(len(prog)), Filter: &prog[0]}
	return unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&fprog)), 0, 0)
}

// syscallInfo is the kernel's ptrace_syscall_info for a call that is about to be
// made.
type syscallInfo struct {
	op   uint8
	_    [3]byte
	arch uint32
	ip   uint64
	sp   uint64
	nr   uint64
	args [6]uint64
	_    [16]byte
}

// line is the call that a thread is about to make, "" if it changes no disk.
func line(pid int) string {
	var in syscallInfo
	_, _, errno := syscall.RawSyscall6(syscall.SYS_PTRACE, unix.PTRACE_GET_SYSCALL_INFO, uintptr(pid), unsafe.Sizeof(in), uintptr(unsafe.Pointer(&in)), 0, 0)
	if errno != 0 || in.op != unix.PTRACE_SYSCALL_INFO_SECCOMP {
		return ""
	}
	return describe(pid, in)
}

func (t *tracer) call(leader, pid int) error {
	line := line(pid)
	if line == "" {
		return nil
	}
	t.lines = append(t.lines, line)
	if t.pause != "" && strings.Contains(line, t.pause) {
		t.pause = ""
		if err := t.hold(leader); err != nil {
			return err
		}
	}
	fails := len(t.lines) == t.fail
	if t.failAt != nil && t.failAt.MatchString(line) {
		t.seen++
		fails = fails || t.nth == 0 || t.nth == t.seen
	}
	if fails {
		t.err = refuse(pid, t.errno)
	}
	if len(t.lines) == t.kill || t.killAt != "" && strings.Contains(line, t.killAt) {
		t.killAt = ""
		_ = syscall.Kill(leader, syscall.SIGKILL)
	}
	return nil
}

// hold waits for the test, which looks and writes on a thread that the filter does
// not bind. Meanwhile the command changes nothing on a disk: a thread that is about
// to waits too. It gets its signals, may speak, and may end.
func (t *tracer) hold(leader int) error {
	tick := make(chan struct{})
	go func() {
		defer close(tick)
		for err := os.WriteFile(t.held, nil, 0o644); err == nil; _, err = os.Lstat(t.held) {
			t.stops.Add(1)
			nap(time.Millisecond)
			tick <- struct{}{}
		}
	}()
	type stop struct {
		pid int
		ws  syscall.WaitStatus
	}
	var later []stop
	for held := true; held; {
		var ws syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &ws, unix.WALL|syscall.WNOHANG, nil)
		switch {
		case err == syscall.EINTR:
		case err != nil || pid == 0: // an end of everything is found again by run
			_, held = <-tick
		case ws.Stopped() && int(ws)>>16 == unix.PTRACE_EVENT_SECCOMP && line(pid) != "":
			later = append(later, stop{pid, ws})
		default:
			if err := t.moved(leader, pid, ws); err != nil {
				return err
			}
		}
	}
	for _, s := range later {
		if err := t.moved(leader, s.pid, s.ws); err != nil {
			return err
		}
	}
	return nil
}

// describe names a call that changes the disk, "" for every other.
func describe(pid int, in syscallInfo) string {
	a := in.args
	fd := func(i int) string {
		s, _ := os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", pid, int32(a[i])))
		return s
	}
	at := func(i int) string { // directory descriptor and name
		name := peek(pid, a[i+1])
		if filepath.IsAbs(name) || int32(a[i]) == unix.AT_FDCWD {
			return name
		}
		return filepath.Join(fd(i), name)
	}
	switch in.nr {
	case unix.SYS_WRITE, unix.SYS_PWRITE64, unix.SYS_WRITEV, unix.SYS_PWRITEV, unix.SYS_PWRITEV2:
		if s := fd(0); strings.HasPrefix(s, "/") && !strings.HasPrefix(s, "/dev/null") && !strings.HasPrefix(s, "/proc/") && int32(a[0]) > 2 {
			return "write " + s
		}
		return ""
	case unix.SYS_OPENAT:
		if a[2]&(unix.O_CREAT|unix.O_TRUNC) == 0 {
			return ""
		}
		return "create " + at(0)
	case unix.SYS_OPENAT2:
		b := make([]byte, 8)
		if _, err := syscall.PtracePeekData(pid, uintptr(a[2]), b); err != nil || enc.NativeEndian.Uint64(b)&(unix.O_CREAT|unix.O_TRUNC) == 0 {
			return ""
		}
		return "create " + at(0)
	case unix.SYS_RENAMEAT2:
		return fmt.Sprintf("renameat2 %s -> %s flags %d", at(0), at(2), a[4])
	case unix.SYS_RENAMEAT:
		return fmt.Sprintf("renameat %s -> %s", at(0), at(2))
	case unix.SYS_LINKAT:
		return fmt.Sprintf("linkat %s -> %s", at(0), at(2))
	case unix.SYS_SYMLINKAT:
		return "symlinkat " + at(1)
	case unix.SYS_UNLINKAT:
		return "unlinkat " + at(0)
	case unix.SYS_MKDIRAT:
		return "mkdirat " + at(0)
	case unix.SYS_FCHMODAT, unix.SYS_FCHMODAT2:
		return "fchmodat " + at(0)
	case unix.SYS_UTIMENSAT:
		return "utimensat " + at(0)
	case unix.SYS_FCHOWNAT:
		return "fchownat " + at(0)
	case unix.SYS_COPY_FILE_RANGE:
		return "copy_file_range -> " + fd(2)
	}
	if name := onDescriptor[in.nr]; name != "" {
		if s := fd(0); strings.HasPrefix(s, "/") {
			return name + " " + s
		}
	}
	return ""
}

var onDescriptor = map[uint64]string{
	unix.SYS_FSYNC: "fsync", unix.SYS_FDATASYNC: "fdatasync", unix.SYS_SYNCFS: "syncfs", unix.SYS_SYNC_FILE_RANGE: "sync_file_range",
	unix.SYS_FTRUNCATE: "ftruncate", unix.SYS_FALLOCATE: "fallocate", unix.SYS_FCHMOD: "fchmod", unix.SYS_FCHOWN: "fchown",
	unix.SYS_FSETXATTR: "fsetxattr", unix.SYS_FREMOVEXATTR: "fremovexattr", unix.SYS_SENDFILE: "sendfile",
}

// peek reads a string of the traced process, at most a path's length.
func peek(pid int, addr uint64) string {
	var out []byte
	b := make([]byte, 8)
	for len(out) < unix.PathMax {
		if n, err := syscall.PtracePeekData(pid, uintptr(addr)+uintptr(len(out)), b); err != nil || n < len(b) {
			break
		}
		if i := bytes.IndexByte(b, 0); i >= 0 {
			return string(append(out, b[:i]...))
		}
		out = append(out, b...)
	}
	return string(out)
}
