package sandbox

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/aspengine/asp/sandbox/cgroup"
	"golang.org/x/sys/unix"
)

// half is the parent's hold on a child half.
type half struct {
	proc       *os.Process
	state      *os.ProcessState // how it ended; set before exited is closed, nil where nobody knows
	namespaces bool
	in         *os.File // order socket
	reportR    *os.File
	group      *cgroup.Group // nil when there is none, for groupErr
	groupErr   error
	swept      bool     // everything in group is dead
	ends       *Ends    // who takes down what outlives the processes; nil for finish
	mounts     *os.File // see lease; nil where they go with the processes

	captures [2]*capture // stdout and stderr, nil where not captured
	once     sync.Once
	exited   chan struct{}
}

type capture struct {
	r    *os.File
	buf  *bounded // nil until somebody listens
	done chan struct{}
	eof  bool
}

// spawn starts the child half. Nothing is read of its output before listen.
func spawn(namespaces, netOff bool, io Stdio) (_ *half, err error) {
	var ours, theirs []*os.File
	defer func() {
		for _, f := range theirs {
			f.Close()
		}
		if err != nil {
			for _, f := range ours {
				f.Close()
			}
		}
	}()
	own := func(parent, childEnd *os.File, e error) (*os.File, *os.File) {
		if e != nil {
			err = errors.Join(err, e)
			return nil, nil
		}
		ours, theirs = append(ours, parent), append(theirs, childEnd)
		return parent, childEnd
	}
	h := &half{namespaces: namespaces, exited: make(chan struct{})}
	orderW, orderR := own(socketPair())
	reportR, reportW := own(os.Pipe())
	capturing := func(slot int) *os.File {
		r, w := own(os.Pipe())
		h.captures[slot] = &capture{r: r, done: make(chan struct{})}
		return w
	}
	stdin, stdout, stderr := io.In, io.Out, io.Err
	if stdout == nil {
		stdout = capturing(0)
	}
	if stderr == nil {
		stderr = capturing(1)
	}
	if err != nil {
		return nil, err
	}
	if stdin == nil {
		if stdin, err = os.Open(os.DevNull); err != nil {
			return nil, err
		}
		theirs = append(theirs, stdin)
	}
	h.in, h.reportR = orderW, reportR
	var sweep func()
	h.group, sweep, h.groupErr = newGroup()
	files := []*os.File{stdin, stdout, stderr, orderR, reportW}
	if io.Exec != nil {
		files = append(files, io.Exec) // execFD
	}
	start := func() error { return h.start(files, netOff) }
	err = start()
	if sweep != nil {
		sweep()
	}
	if err != nil && h.group != nil {
		// It takes clone3, and the right to move processes: what fails may be this.
		h.groupErr = fmt.Errorf("start in control group: %w", err)
		_ = h.group.Close() // what stays is swept by a later launch
		h.group = nil
		err = start()
	}
	if err != nil {
		return nil, err
	}
	return h, nil
}

// socketPair makes a connection of which the child gets one end. Descriptors can follow
// what is said on it.
func socketPair() (parent, child *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, os.NewSyscallError("socketpair", err)
	}
	return os.NewFile(uintptr(fds[0]), "order"), os.NewFile(uintptr(fds[1]), "order"), nil
}

// listen starts to take the output in, of each stream at most limit bytes.
func (h *half) listen(limit int) {
	for _, c := range h.captures {
		if c != nil {
			c.buf = newBounded(limit)
			go c.drain()
		}
	}
}

// launchNamespaces are those of a launch.
func launchNamespaces(netOff bool) uintptr {
	flags := uintptr(unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS)
	if cgroupNamespaces() && !noMoreCgroups() {
		flags |= unix.CLONE_NEWCGROUP
	}
	if netOff {
		flags |= unix.CLONE_NEWNET
	}
	return flags
}

// cgroupNamespaces tells whether the kernel has them: one without control groups has
// not, and then there is nothing for them to hide.
func cgroupNamespaces() bool {
	var st unix.Stat_t
	return unix.Lstat("/proc/self/ns/cgroup", &st) == nil
}

// noMoreCgroups tells whether we are where noControlGroups was called, as a check of our own is.
// The namespace that we are in is that sandbox's then, and hides as much.
func noMoreCgroups() bool {
	b, err := readAll("/proc/sys/user/max_cgroup_namespaces")
	return err == nil && strings.TrimSpace(string(b)) == "0"
}

// start starts the child from a thread that lives until the child is dead: the
// death signal is sent when the starting thread ends, not the process.
func (h *half) start(files []*os.File, netOff bool) error {
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := h.become(files, netOff)
		started <- err
		if err != nil {
			return
		}
		h.state, _ = h.proc.Wait() // the report says more than the status
		close(h.exited)
	}()
	return <-started
}

// halfEnv is the whole environment of a child half: nothing of the caller's is in its memory. It
// lives short and does one thing, so nothing is collected, and the run-time system need not look
// how many processors there are, nor wake threads for others. No time of it is local: a library
// that asks for the time zone when the program starts, asked for or not, reads no file then.
var halfEnv = [...]string{"GOGC=off", "GOMAXPROCS=1", "TZ="}

// become makes the process.
func (h *half) become(files []*os.File, netOff bool) (err error) {
	argv := []string{"asp", ChildArg}
	if h.namespaces {
		group := -1
		if h.group != nil {
			group = int(h.group.Init().Fd())
		}
		h.proc, err = forkInto(argv, halfEnv[:], files, launchNamespaces(netOff), group)
		return err
	}
	// No death signal: the child half must outlive us for the moment that it takes to kill its
	// descendants.
	attr := &syscall.SysProcAttr{Setsid: true}
	intoGroup(attr, h.group)
	h.proc, err = os.StartProcess("/proc/self/exe", argv, &os.ProcAttr{Dir: "/", Env: halfEnv[:], Files: files, Sys: attr})
	return err
}

func (h *half) send(m message) error { return tell(h.in, m) }

func (h *half) receive() (report, error) {
	var r report
	err := hear(h.reportR, &r)
	return r, err
}

// kill ends the run; it returns at once. With a pid namespace the death of its
// first process is everybody's. Without, the child half is told to kill what is
// below it.
func (h *half) kill() {
	if h.namespaces {
		_ = h.proc.Kill()
		return
	}
	// The control group is killed when the child half is dead: it is in there too, and
	// has to say what it left behind.
	h.once.Do(func() { h.in.Close() })
}

// finish waits until the child half is dead, with a pid namespace everybody in it before, and the
// output is read. It tells whether somebody still holds an output pipe.
func (h *half) finish() (stuck bool) {
	if !h.namespaces {
		h.waitPlain()
	}
	<-h.exited
	h.once.Do(func() { h.in.Close() })
	h.reportR.Close()
	if h.ends != nil {
		h.ends.open.Go(h.takeDown)
	} else {
		h.takeDown()
	}
	for _, c := range h.captures {
		if c == nil {
			continue
		}
		// Whoever could write is dead, so the end is near; a process that got
		// away without namespaces must not hold us up.
		_ = c.r.SetReadDeadline(time.Now().Add(2 * time.Second))
		<-c.done
		c.r.Close()
		stuck = stuck || !c.eof
	}
	return stuck
}

// escapable tells, after finish, whether something of the run may live on: the child half
// died of a signal, and nothing else held what was below it. A control group does only under
// rules, which keep the command from leaving it.
func (h *half) escapable(rules bool) bool {
	if h.namespaces || rules && h.swept {
		return false
	}
	if h.state == nil {
		return true
	}
	ws, ok := h.state.Sys().(syscall.WaitStatus)
	return !ok || ws.Signaled()
}

// waitPlain gives a child half without pid namespace that does not end (it may
// have been stopped by the command) some time after its pipe was closed, and
// then takes its whole group.
func (h *half) waitPlain() {
	select {
	case <-h.exited:
		return
	default:
	}
	// The child half ends by itself after its report; kill() asked it to
	// otherwise.
	t := time.NewTimer(10 * time.Second)
	defer t.Stop()
	select {
	case <-h.exited:
	case <-t.C:
		_ = syscall.Kill(-h.proc.Pid, syscall.SIGKILL)
	}
}

func (c *capture) drain() {
	defer close(c.done)
	_, err := io.Copy(c.buf, c.r)
	c.eof = err == nil
}

func (h *half) output() (stdout, stderr []byte, truncated bool) {
	var out [2][]byte
	for i, c := range h.captures {
		if c == nil {
			continue
		}
		b, cut := c.buf.bytes()
		out[i], truncated = b, truncated || cut
	}
	return out[0], out[1], truncated
}
