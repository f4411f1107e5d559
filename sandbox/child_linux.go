package sandbox

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sort"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	orderFD  = 3
	reportFD = 4
	execFD   = 5 // the program, where the order says Pinned
)

// exit status of the child half itself; the command's own is in the report.
const (
	childDone   = 0
	childBroken = 2 // no order, or the parent is gone
)

// init is the main function of the child half, and does nothing in any other process: Start and Probe
// give ChildArg as its only argument. It is the one place where something happens by being
// imported, because main comes too late: a program of which this is a part first
// initialises what all others import (markup, repositories, network), which took half as long again as the
// start of the run-time system, in each launch. What is imported here is all that comes before; so this
// room stays without package net, and whatever else is not needed in there.
func init() {
	if len(os.Args) != 2 || os.Args[1] != ChildArg {
		return
	}
	// Credentials belong to threads: everything from here to the start of the
	// command happens on this one.
	runtime.LockOSThread()
	os.Exit(childMain())
}

type child struct {
	in       io.Reader
	out      io.Writer
	order    order
	ring     int         // session keyring
	proxy    int         // port of the listener that the host serves, 0 for none
	groups   []int       // descriptors by which the command enters control groups
	lure     *lure       // nil where the root is the host's
	cage     *cage       // of a launch by rules
	unruled  error       // why there are none
	shared   []string    // directories of the host's that are shown without a shield
	left     []string    // those of shared that had too many names to be shown one by one
	stopping atomic.Bool // the parent's pipe ended: nothing more is reported
}

func childMain() int {
	var st unix.Stat_t
	if unix.Fstat(orderFD, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFSOCK {
		fmt.Fprintln(os.Stderr, "this subcommand is started by the program itself")
		return childBroken
	}
	if err := closeOnExec(); err != nil {
		return childBroken
	}
	orders := os.NewFile(orderFD, "order")
	c := &child{in: orders, out: os.NewFile(reportFD, "report")}
	if err := hear(c.in, &c.order); err != nil {
		return childBroken
	}
	var err error
	if c.groups, err = take(orderFD, c.order.Groups); err != nil {
		return childBroken
	}
	if c.order.Probe != nil {
		caps := probeInside(*c.order.Probe)
		_ = tell(c.out, &report{Stage: stageCaps, Caps: &caps})
		return childDone
	}
	if c.order.Spec.MergeOutput {
		if err := unix.Dup3(1, 2, 0); err != nil {
			return c.refuse(fail(err, "merge output"))
		}
	}
	if err := c.setup(); err != nil {
		return c.refuse(err)
	}
	ok, err := c.probe()
	if err != nil {
		return childBroken
	}
	if !ok {
		return childDone
	}
	return c.run(orders)
}

func (c *child) refuse(err error) int {
	r := report{Stage: stageSetup, Op: err.Error()}
	var o *opError
	if errors.As(err, &o) {
		r.Op, r.Errno = o.op, o.errno()
		if r.Errno == 0 {
			r.Op = o.Error()
		}
	}
	_ = tell(c.out, &r)
	return childDone
}

func (c *child) setup() error {
	s := &c.order.Spec
	if c.order.Namespaces {
		if !s.Network {
			if err := loopbackUp(); err != nil {
				return fail(err, "bring up loopback")
			}
			if len(s.Egress) > 0 {
				var err error
				bait := 0
				if c.order.Bait != nil {
					bait = c.order.Bait.Port
				}
				if c.proxy, err = lendListener(bait); err != nil {
					return fail(err, listenForProxy)
				}
			}
		}
		mounts := c.sharedRoot
		if c.order.PrivateRoot && !c.off(layerRoot) {
			mounts = c.privateRoot
		}
		if err := mounts(s, c.order.Pinned); err != nil {
			return err
		}
		_ = unix.Sethostname([]byte("check")) // cosmetic
	} else if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fail(err, "become reaper of orphans")
	}
	if err := c.keyring(); err != nil && s.Isolate {
		return err // in other launches there is the filter, which the probe tries
	}
	if !s.Isolate || c.isolating(layerLimits) {
		if err := setLimits(s.Limits.withDefaults()); err != nil {
			return err
		}
	}
	if !s.Isolate || c.isolating(layerPrivileges) {
		if err := dropPrivileges(); err != nil {
			return err
		}
	}
	// The command has the same uid: without this it could attach to us.
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fail(err, "become undumpable")
	}
	if c.order.Rules {
		c.confine()
		return nil
	}
	if c.isolating(layerLandlock) {
		if err := landlock(landlockRules(s)); err != nil {
			return err
		}
	}
	switch {
	case c.isolating(layerSeccomp):
		return seccomp()
	case !s.Isolate && c.order.Namespaces && !c.off(layerSeccomp):
		_ = filterSockets() // the probe sees it where there is none
	}
	return nil
}

// isolating tells whether a layer of an isolated launch is to be set up.
func (c *child) isolating(layer string) bool {
	return c.order.Spec.Isolate && !c.off(layer)
}

// off tells whether a test left a layer out.
func (c *child) off(layer string) bool { return slices.Contains(c.order.Off, layer) }

// keyring leaves the caller's session keyring for a new one. Its number is kept where it
// is the one in force, to be compared with the caller's; once system calls are filtered
// nobody can ask. -1 stands for a kernel without keys.
func (c *child) keyring() error {
	if c.off(layerKeyring) {
		return nil
	}
	id, err := unix.KeyctlInt(unix.KEYCTL_JOIN_SESSION_KEYRING, 0, 0, 0, 0)
	switch {
	case err == unix.ENOSYS:
		c.ring = -1
	case err != nil:
		return fail(err, "replace session keyring")
	case id == sessionKeyring():
		c.ring = id
	}
	return nil
}

// sessionKeyring is the number of the session keyring, 0 when the kernel has none.
func sessionKeyring() int {
	id, err := unix.KeyctlGetKeyringID(unix.KEY_SPEC_SESSION_KEYRING, false)
	if err != nil {
		return 0
	}
	return id
}

// probe makes the proof and asks the parent whether to go on.
func (c *child) probe() (bool, error) {
	p := &prober{marker: c.order.Marker, spec: &c.order.Spec, pinned: c.order.Pinned, namespaces: c.order.Namespaces, noLimits: !c.isolating(layerLimits), groups: c.groups, bounded: c.order.Bounded, thorough: c.order.Thorough}
	if c.order.Rules {
		r := p.caged(c.order.Bait, c.cage, c.unruled)
		return c.ask(p, &r)
	}
	r := p.run()
	r.Shared, r.Left = c.shared, c.left
	if p.namespaces {
		p.reach(&r, c.order.Bait, c.lure)
		c.lure.close()
	}
	if p.spec.Isolate {
		p.attempt(&r, c.order.Bait, c.ring)
	}
	if c.proxy != 0 {
		p.askProxy(&r, c.proxy, c.order.Bait)
	}
	return c.ask(p, &r)
}

// ask tells what the probe found, and hears whether to go on.
func (c *child) ask(p *prober, r *report) (bool, error) {
	if err := tell(c.out, r); err != nil {
		return false, err
	}
	var g goAhead
	if err := hear(c.in, &g); err != nil {
		return false, err
	}
	p.cleanUp()
	return g.Run, nil
}

func (c *child) run(orders io.Reader) int {
	go func() {
		// Nothing more is said on this pipe; its end means stop.
		_, _ = io.Copy(io.Discard, orders)
		c.stopping.Store(true)
		if !c.order.Namespaces {
			killDescendants()
		} // else we are process 1: the kernel kills the rest
		os.Exit(childBroken)
	}()
	r := report{Stage: stageExit}
	err := deaf()
	pid := 0
	if err == nil {
		pid, err = c.start()
	}
	if err != nil {
		r.StartErr = err.Error()
		_ = tell(c.out, &r)
		return childDone
	}
	_ = tell(c.out, &report{Stage: stageStart, Pid: pid})
	r.Started = true
	ws := waitFor(pid)
	r.ExitCode = ws.ExitStatus()
	if ws.Signaled() {
		r.ExitCode, r.Signal = -1, unix.SignalName(ws.Signal())
	}
	r.Leftovers = c.leftovers()
	if c.stopping.Load() {
		select {} // the other goroutine ends the process; this death was its doing
	}
	if !c.order.Namespaces {
		killDescendants()
	}
	_ = tell(c.out, &r)
	return childDone
}

// start executes the command from this thread, which holds no privilege.
func (c *child) start() (int, error) {
	s := &c.order.Spec
	var env []string
	for k, v := range s.Env {
		if c.proxy == 0 || !slices.Contains(proxyVariables[:], k) {
			env = append(env, k+"="+v)
		}
	}
	if c.proxy != 0 {
		for _, k := range proxyVariables {
			v := fmt.Sprintf("http://127.0.0.1:%d", c.proxy)
			if strings.EqualFold(k, "no_proxy") {
				v = "localhost,127.0.0.1,::1"
			}
			env = append(env, k+"="+v)
		}
	}
	sort.Strings(env)
	if err := os.Chdir(s.Dir); err != nil {
		return 0, err
	}
	if h := s.Env["HOME"]; h != "" {
		_ = os.MkdirAll(h, 0o700) // inside the private temporary directory, or it fails
	}
	exe, err := c.program()
	if err != nil {
		return 0, err
	}
	limits := lateLimits(s.Limits, s.Isolate)
	if s.Isolate && !c.isolating(layerLimits) {
		limits = nil
	}
	u := under{groups: c.groups, apart: -1, limits: limits}
	if c.order.Rules {
		if u.apart, err = signalDomain(); err != nil {
			return 0, err
		}
	}
	return forkUnder(exe, s.Argv, env, u)
}

// program is what to execute. A pinned one is mounted at its path in namespaces;
// without, it is the open file itself, except that the interpreter of a script
// needs a name, which is compared right before.
func (c *child) program() (string, error) {
	s := &c.order.Spec
	switch pin := c.order.Pinned; {
	case pin == "":
		return lookPath(s.Argv[0], s.Env["PATH"])
	case c.order.Namespaces:
		return pin, nil
	default:
		if err := samePinned(pin); err != nil {
			return "", &os.PathError{Op: "exec", Path: pin, Err: err}
		}
		var start [2]byte
		if n, _ := unix.Pread(execFD, start[:], 0); n == 2 && start == [2]byte{'#', '!'} {
			return pin, nil
		}
		return fmt.Sprintf("/proc/self/fd/%d", execFD), nil
	}
}

// samePinned compares what lies at path with the program of execFD.
func samePinned(path string) error {
	var there unix.Stat_t
	if err := unix.Stat(path, &there); err != nil {
		return err
	}
	return pinned(there)
}

var errNotPinned = errors.New("not the file that was verified")

func pinned(st unix.Stat_t) error {
	var want unix.Stat_t
	if err := unix.Fstat(execFD, &want); err != nil {
		return err
	}
	if st.Dev != want.Dev || st.Ino != want.Ino || st.Mode&unix.S_IFMT != unix.S_IFREG {
		return errNotPinned
	}
	return nil
}

// lookPath finds the program inside the sandbox; relative entries of PATH are
// not searched.
func lookPath(name, path string) (string, error) {
	if strings.Contains(name, "/") {
		return name, nil
	}
	for _, d := range filepath.SplitList(path) {
		if !filepath.IsAbs(d) {
			continue
		}
		p := filepath.Join(d, name)
		if st, err := os.Stat(p); err == nil && st.Mode().IsRegular() && unix.Access(p, unix.X_OK) == nil {
			return p, nil
		}
	}
	return "", &os.PathError{Op: "look up", Path: name, Err: errors.New("executable not found in PATH of the sandbox")}
}

// waitFor reaps whatever ends until it is pid.
func waitFor(pid int) syscall.WaitStatus {
	for {
		var ws syscall.WaitStatus
		got, err := syscall.Wait4(-1, &ws, 0, nil)
		if got == pid {
			return ws
		}
		if err != nil && err != syscall.EINTR {
			return ws // no child left; cannot happen before pid was seen
		}
	}
}

// reap collects the dead and tells whether the caller has no child any more. As
// the reaper of all orphans it then has no descendant either; a list of /proc
// could miss a process whose parent forked and ended while it was read.
func reap() (none bool) {
	for {
		var ws syscall.WaitStatus
		got, err := syscall.Wait4(-1, &ws, syscall.WNOHANG, nil)
		switch {
		case err == syscall.EINTR:
		case err != nil:
			return err == syscall.ECHILD
		case got == 0:
			return false
		}
	}
}

// leftovers names what still runs some time after the command ended. The grace
// is for processes that are about to end: tools wait for their helpers'
// pipes, not for their deaths.
func (c *child) leftovers() []string {
	end := time.Now().Add(c.order.Spec.Limits.withDefaults().Grace)
	for !reap() {
		if time.Now().Before(end) {
			time.Sleep(2 * time.Millisecond)
			continue
		}
		var names []string
		for i, p := range descendants() {
			if i == 20 {
				names = append(names, "and more")
				break
			}
			names = append(names, fmt.Sprintf("%.64q (pid %d)", p.comm, p.pid))
		}
		if names == nil && !reap() {
			names = []string{"a process that could not be named"}
		}
		return names
	}
	return nil
}
