package casetest

import (
	"bufio"
	"bytes"
	enc "encoding/binary"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
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

const tracerWord = "casetest-tracer"

// tracerMain is the tracer's own process: waiting for "any child" must not see
// children of other tests.
func tracerMain(args []string) int {
	fs := flag.NewFlagSet(tracerWord, flag.ExitOnError)
	report := fs.String("report", "", "file for what was seen")
	uid := fs.Int("uid", -1, "user of the command")
	kill := fs.Int("kill", 0, "kill before this call")
	pause := fs.String("pause", "", "hold before the first call whose line holds this")
	held := fs.String("held", "", "file made when held; the run goes on when it is gone")
	_ = fs.Parse(args)
	t := &tracer{kill: *kill, pause: *pause, held: *held, seen: map[int]bool{}}
	code, err := t.run(*uid, fs.Args())
	if err != nil {
		fmt.Fprintln(os.Stderr, "tracer:", err)
		return 99
	}
	if err := os.WriteFile(*report, []byte(strings.Join(t.lines, "\n")), 0o644); err != nil {
		fmt.Fprintln(os.Stderr, "tracer:", err)
		return 99
	}
	return code
}

type tracer struct {
	kill  int
	pause string
	held  string
	lines []string // one a counted call
	seen  map[int]bool
}

func (t *tracer) run(uid int, argv []string) (int, error) {
	runtime.LockOSThread()
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
	var ws syscall.WaitStatus
	if _, err := syscall.Wait4(leader, &ws, 0, nil); err != nil {
		return 0, err
	}
	const options = unix.PTRACE_O_TRACESYSGOOD | unix.PTRACE_O_TRACECLONE | unix.PTRACE_O_TRACEFORK | unix.PTRACE_O_TRACEVFORK |
		unix.PTRACE_O_TRACEEXEC | unix.PTRACE_O_EXITKILL
	if err := syscall.PtraceSetOptions(leader, options); err != nil {
		return 0, err
	}
	t.seen[leader] = true
	_ = syscall.PtraceSyscall(leader, 0)
	code := 0
	for {
		pid, err := syscall.Wait4(-1, &ws, unix.WALL, nil)
		if err == syscall.EINTR {
			continue
		}
		if err == syscall.ECHILD {
			return code, nil
		}
		if err != nil {
			return 0, err
		}
		switch {
		case ws.Exited() && pid == leader:
			code = ws.ExitStatus()
		case ws.Signaled() && pid == leader:
			code = 128 + int(ws.Signal())
		case ws.Stopped():
			sig := 0
			switch s := ws.StopSignal(); {
			case s == syscall.SIGTRAP|0x80:
				t.call(leader, pid)
			case s == syscall.SIGTRAP:
			case s == syscall.SIGSTOP && !t.seen[pid]:
			default:
				sig = int(s)
			}
			t.seen[pid] = true
			_ = syscall.PtraceSyscall(pid, sig)
		}
	}
}

// syscallInfo is the kernel's ptrace_syscall_info for an entry.
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

func (t *tracer) call(leader, pid int) {
	var in syscallInfo
	_, _, errno := syscall.RawSyscall6(syscall.SYS_PTRACE, unix.PTRACE_GET_SYSCALL_INFO, uintptr(pid), unsafe.Sizeof(in), uintptr(unsafe.Pointer(&in)), 0, 0)
	if errno != 0 || in.op != unix.PTRACE_SYSCALL_INFO_ENTRY {
		return
	}
	line := describe(pid, in)
	if line == "" {
		return
	}
	t.lines = append(t.lines, line)
	if t.pause != "" && strings.Contains(line, t.pause) {
		t.pause = ""
		_ = os.WriteFile(t.held, nil, 0o644)
		for {
			if _, err := os.Stat(t.held); err != nil {
				break
			}
			time.Sleep(time.Millisecond)
		}
	}
	if len(t.lines) == t.kill {
		_ = syscall.Kill(leader, syscall.SIGKILL)
	}
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
	unix.SYS_FSETXATTR: "fsetxattr", unix.SYS_FREMOVEXATTR: "fremovexattr", unix.SYS_SENDFILE: "sendfile", unix.SYS_GETDENTS64: "",
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

// trace is one run of the binary under the tracer.
type trace struct {
	*result
	lines  []string
	killed bool
}

// traced prepares a run under the tracer; the function returned waits for it.
func (w *world) traced(flags []string, args ...string) func() *trace {
	w.t.Helper()
	self, err := os.Executable()
	must(w.t, err)
	report := filepath.Join(w.base, "trace")
	_ = os.Remove(report)
	argv := append([]string{tracerWord, "-report", report}, flags...)
	if w.cred != nil {
		argv = append(argv, "-uid", fmt.Sprint(w.cred.Uid))
	}
	cmd := exec.Command(self, append(append(argv, "--", binary), args...)...)
	cmd.Dir, cmd.Env = w.root, append(w.cleanEnv(), w.env...)
	wait := w.begin(cmd, args)
	return func() *trace {
		w.t.Helper()
		t := &trace{result: wait()}
		b, err := os.ReadFile(report)
		if err != nil {
			w.t.Fatalf("no trace: %s", t.result)
		}
		s := bufio.NewScanner(bytes.NewReader(b))
		for s.Scan() {
			t.lines = append(t.lines, s.Text())
		}
		t.killed = t.code == 128+int(syscall.SIGKILL)
		return t
	}
}

// killedAt runs the binary and kills it before its n-th change of the disk; 0 is
// never.
func (w *world) killedAt(n int, args ...string) *trace {
	w.t.Helper()
	return w.traced([]string{"-kill", fmt.Sprint(n)}, args...)()
}

// heldAt runs the binary until the first change of the disk whose line holds
// call, lets the test meddle, and goes on. It fails if the call never came.
func (w *world) heldAt(call string, meddle func(), args ...string) *trace {
	w.t.Helper()
	held := filepath.Join(w.base, "held")
	wait := w.traced([]string{"-pause", call, "-held", held}, args...)
	done := make(chan *trace, 1)
	go func() { done <- wait() }()
	for {
		select {
		case t := <-done:
			w.t.Fatalf("the run never came to %q: %s", call, t.result)
		case <-time.After(time.Millisecond):
		}
		if _, err := os.Stat(held); err == nil {
			break
		}
	}
	meddle()
	must(w.t, os.Remove(held))
	return <-done
}
