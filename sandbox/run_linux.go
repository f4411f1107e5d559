package sandbox

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Stdio says what the command's streams are, and what it is. A nil In is
// /dev/null; a nil Out or Err is captured into the Result. Files given are not
// closed.
type Stdio struct {
	In, Out, Err *os.File
	// Exec, if not nil, is the program, open for reading: Argv[0] must be an
	// absolute path that leads to this very file, and it is this file that runs,
	// whatever lies there by then. In namespaces it also is what is seen at that
	// path, so that scripts run too. Its own descriptor is not inherited.
	Exec *os.File
}

// Run starts s and waits for its end. See Start and Process.Wait.
func Run(ctx context.Context, caps Caps, s Spec) (Result, error) {
	p, err := Start(ctx, caps, s, Stdio{})
	if err != nil {
		return Result{}, err
	}
	return p.Wait()
}

// Process is a started command.
type Process struct {
	half     *half
	spec     Spec
	boundary Boundary
	proxy    Gateway // nil for none
	started  time.Time

	mu       sync.Mutex
	timedOut bool
	canceled bool

	running  chan struct{} // closed when the command is let go; its time counts from here
	done     chan struct{} // closed when everything is dead
	watching sync.WaitGroup
}

// Start sets the sandbox up, proves its boundary and lets the command run. caps
// is what Probe said; a Spec that needs more is answered with ErrUnsupported and
// nothing is started, as is a launch whose own proof falls short of s.Require.
// ctx bounds the whole run: its end kills everything. The caller must call Wait.
func Start(ctx context.Context, caps Caps, s Spec, stdio Stdio) (*Process, error) {
	namespaces, err := admit(caps, s)
	if err != nil {
		return nil, err
	}
	s.Isolate = (s.Isolate || s.Require == Isolated) && !s.Network && caps.CanIsolate()
	if stdio.Exec != nil && !filepath.IsAbs(s.Argv[0]) {
		return nil, fmt.Errorf("start sandbox: program %.200q is not absolute", s.Argv[0])
	}
	s.Limits = s.Limits.withDefaults()
	marker, err := newMarker()
	if err != nil {
		return nil, fmt.Errorf("start sandbox: %w", err)
	}
	gate, err := gateway(s)
	if err != nil {
		return nil, err
	}
	netOff := namespaces && !s.Network && caps.NetNS.Answer == Yes && !slices.Contains(s.off, layerNetwork)
	if gate != nil && !netOff {
		return nil, &UnsupportedError{Require: s.Require, Reason: "some of the network is granted, and there is no network namespace to close the rest: " + caps.NetNS.String(), Network: true}
	}
	rules := !namespaces && s.Require > Advisory && len(s.Write) > 0 // admit saw to the rest
	if !rules || s.Network {
		s.Network = !netOff
	}
	h, err := s.Spare.take(namespaces, netOff, stdio)
	if h == nil && err == nil {
		h, err = spawn(namespaces, netOff, stdio)
	}
	if err != nil {
		if namespaces {
			return nil, &UnsupportedError{s.Require, "namespaces could not be made", err, false}
		}
		return nil, fmt.Errorf("start sandbox: %w", err)
	}
	h.listen(s.Limits.Output)
	s.Ends.lease(h)
	s.Spare, s.Ends, s.Gateway = nil, nil, nil
	pinned := ""
	if stdio.Exec != nil {
		// Mounts are attached at names without links in them.
		if pinned, err = filepath.EvalSymlinks(s.Argv[0]); err != nil {
			pinned = s.Argv[0] // the child says what is wrong with it
		}
	}
	p := &Process{half: h, spec: s, started: time.Now(), running: make(chan struct{}), done: make(chan struct{})}
	p.watching.Add(1)
	go p.watch(ctx)
	o := order{Spec: s, Namespaces: namespaces, Rules: rules, PrivateRoot: caps.PrivateRoot.Answer == Yes, Marker: marker, Pinned: pinned, Off: s.off, Thorough: s.thorough}
	enter, held, unbound := h.bound(s.Limits, s.Isolate && !slices.Contains(s.off, layerGroupLimits), s.thorough)
	o.Groups, o.Bounded = len(enter), held
	defer func() {
		for _, f := range enter {
			f.Close()
		}
	}()
	var l *lures
	if namespaces || rules {
		l = layLures(&s, marker)
		o.Bait = &l.bait
		defer l.close()
	}
	if rules {
		defer os.RemoveAll(cageDir(&s, marker))
	}
	err = p.admitRun(o, l, enter, unbound, gate)
	if err != nil {
		h.kill()
		h.finish()
		p.endProxy()
		close(p.done)
		p.watching.Wait()
		if ctx.Err() != nil {
			return nil, fmt.Errorf("start sandbox: %w", ctx.Err())
		}
		return nil, err
	}
	p.boundary.NetworkOff = netOff
	close(p.running)
	return p, nil
}

// admit decides by caps alone, before anything is started.
func admit(caps Caps, s Spec) (namespaces bool, err error) {
	switch {
	case len(s.Argv) == 0 || s.Argv[0] == "":
		return false, errors.New("start sandbox: no program named")
	case !filepath.IsAbs(s.Dir):
		return false, fmt.Errorf("start sandbox: directory %.200q is not absolute", s.Dir)
	case s.Require == LevelInvalid:
		return false, errors.New("start sandbox: no level required; Advisory must be said")
	case s.Require > Isolated:
		return false, fmt.Errorf("start sandbox: no level %d", s.Require)
	case s.Require == Isolated && s.Network:
		return false, &UnsupportedError{s.Require, "the network is granted whole", nil, false}
	case s.Require == Isolated && !caps.CanIsolate():
		return false, &UnsupportedError{s.Require, caps.MissingIsolation(), nil, false}
	}
	namespaces = caps.Namespaces()
	if !namespaces && s.Require > Advisory && (!caps.CanConfine() || len(s.Write) == 0) {
		return false, &UnsupportedError{s.Require, caps.Missing(), nil, false}
	}
	for _, m := range s.Mounts {
		if !namespaces || m.Kind == MountOverlay && !caps.CanOverlay() {
			return false, &UnsupportedError{s.Require, "mounts are declared, but: " + caps.Missing(), nil, false}
		}
	}
	return namespaces, nil
}

// admitRun tells the child what to do, takes its probe's answer and decides.
// enter leads into the control groups, which do not hold what unbound says.
func (p *Process) admitRun(o order, l *lures, enter []*os.File, unbound string, gate Gateway) error {
	if err := errors.Join(p.half.send(&o), pass(p.half.in, enter)); err != nil {
		return fmt.Errorf("start sandbox: send order: %w", err)
	}
	var deaf error
	if gate != nil {
		// Before the report: the probe tries the proxy. Without a listener the report
		// says what was wrong.
		if deaf = serveProxy(p.half.in, gate); deaf == nil {
			p.proxy = gate
		}
	}
	r, err := p.half.receive()
	if err != nil {
		return fmt.Errorf("start sandbox: read report: %w", err)
	}
	switch r.Stage {
	case stageSetup:
		cause := error(errors.New(r.Op))
		if r.Errno != 0 {
			cause = fmt.Errorf("%s: %w", r.Op, syscall.Errno(r.Errno))
		}
		if o.Namespaces {
			return &UnsupportedError{p.spec.Require, "it could not be set up", cause, strings.HasPrefix(r.Op, listenForProxy)}
		}
		return fmt.Errorf("start sandbox: %w", cause)
	case stageProbe:
		if deaf != nil {
			return &UnsupportedError{p.spec.Require, "its proxy could not be set up", deaf, true}
		}
	default:
		return fmt.Errorf("start sandbox: child answered %q", r.Stage)
	}
	var problems []string
	if l != nil {
		problems = l.problems()
	}
	if p.spec.Isolate {
		settled, err := p.half.settle(o.Bounded, o.Thorough)
		if err != nil {
			return fmt.Errorf("start sandbox: set limits: %w", err)
		}
		r.Attempts = append(r.Attempts, settled...)
	}
	p.boundary = verdict(&p.spec, r, o.Marker, o.Namespaces, problems)
	if p.spec.Isolate && l != nil {
		p.boundary.isolated(&p.spec, r, len(l.bait.Outside), o.Bounded, o.Thorough)
	}
	if p.proxy != nil {
		p.boundary.egress(&p.spec, r)
		if p.spec.EgressHeld {
			_ = p.proxy.Let(nil) // of nothing there is no error
		}
		p.proxy.Take() // what was asked for until now was asked by the probe
	}
	p.boundary.Bounded = o.Bounded
	if len(o.Bounded) > 0 {
		p.boundary.Evidence += "; a control group bounds " + strings.Join(o.Bounded, ", ") + " of the whole run"
	}
	if unbound != "" {
		p.boundary.Evidence += "; not bounded as a whole: " + unbound
	}
	run := p.boundary.Level >= p.spec.Require
	err = p.half.send(&goAhead{Run: run})
	if len(p.boundary.Attempts) > 0 {
		// Beside the command: it decides nothing.
		p.boundary.Evidence += "; record of the probe " + RecordDigest(p.boundary.Record())
	}
	switch {
	case !run:
		return &UnsupportedError{p.spec.Require, p.boundary.Evidence, nil, false}
	case err != nil:
		return fmt.Errorf("start sandbox: send go-ahead: %w", err)
	}
	return nil
}

// setupLimit bounds everything before the command is let go: some milliseconds,
// unless the machine is in trouble.
const setupLimit = time.Minute

// watch ends the run when its time is over or the caller cancels.
func (p *Process) watch(ctx context.Context) {
	defer p.watching.Done()
	setup := time.NewTimer(setupLimit)
	defer setup.Stop()
	select {
	case <-p.done:
		return
	case <-setup.C:
		p.half.kill() // Start fails
		return
	case <-ctx.Done():
		p.mu.Lock()
		p.canceled = true
		p.mu.Unlock()
		p.half.kill()
		return
	case <-p.running:
	}
	t := time.NewTimer(p.spec.Limits.Wall)
	defer t.Stop()
	select {
	case <-p.done:
		return
	case <-t.C:
		p.mu.Lock()
		p.timedOut = true
		p.mu.Unlock()
	case <-ctx.Done():
		p.mu.Lock()
		p.canceled = true
		p.mu.Unlock()
	}
	p.half.kill()
}

// Kill ends the run as a cancelled context does. Wait must still be called.
func (p *Process) Kill() {
	p.mu.Lock()
	p.canceled = true
	p.mu.Unlock()
	p.half.kill()
}

// Boundary is what the launch established, known before the command runs.
func (p *Process) Boundary() Boundary { return p.boundary }

// Wait returns when every process of the run is dead and all output is read, and without Spec.Ends
// nothing else is left of it either.
func (p *Process) Wait() (Result, error) {
	r, rerr := p.half.receive()
	pid := 0
	if rerr == nil && r.Stage == stageStart {
		pid = r.Pid
		r, rerr = p.half.receive()
	}
	stuck := p.half.finish()
	log := p.endProxy()
	if pid > 0 && rerr != nil && !p.half.namespaces {
		// The child half did not end by itself; what it guarded is leaderless.
		_ = syscall.Kill(-pid, syscall.SIGKILL)
	}
	close(p.done)
	p.watching.Wait()
	res := Result{
		Started: r.Started, StartError: r.StartErr, ExitCode: r.ExitCode, Signal: r.Signal, Leftovers: r.Leftovers,
		Elapsed: time.Since(p.started), Boundary: p.boundary, Egress: log,
	}
	res.Stdout, res.Stderr, res.Truncated = p.half.output()
	p.mu.Lock()
	res.TimedOut, res.Cancelled = p.timedOut, p.canceled
	p.mu.Unlock()
	if stuck {
		res.Leftovers = append(res.Leftovers, "an unknown process that keeps the output open")
	}
	if (rerr != nil || r.Stage != stageExit) && p.half.escapable(p.boundary.Rules) {
		res.Leftovers = append(res.Leftovers, "whatever it started in sessions of its own: what would have ended that was killed")
		res.Boundary.Level = min(res.Boundary.Level, Gated)
		res.Boundary.Evidence += "; but the process that watched was killed, and what the command started may still run"
	}
	if rerr == nil && r.Stage == stageExit {
		// The command was done before the clock was.
		res.TimedOut, res.Cancelled = false, false
		return res, nil
	}
	if res.TimedOut || res.Cancelled {
		res.Started, res.ExitCode, res.Signal = pid > 0, -1, "SIGKILL"
		return res, nil
	}
	if rerr == nil {
		rerr = fmt.Errorf("child answered %q", r.Stage)
	}
	// Who watched the command is dead, by the command or by somebody's else: how it ended
	// nobody knows, and whether everything is dead is said above.
	res.Started, res.ExitCode, res.Lost = true, -1, rerr.Error()
	return res, nil
}
