package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"github.com/aspengine/asp/sandbox"
)

// sandboxRows takes the start and end of `true`, in the two forms that there are,
// beside bubblewrap with as many namespaces. The end is when the answer is there and all
// processes of the command are dead: what the kernel then does to take the mounts down is not timed, neither for
// us nor for bubblewrap, which says how the command ended while its own first process lives. Ours proves by a probe, each time, what
// it gives, and the isolated form has a private root, Landlock and a system call filter
// besides; bubblewrap proves nothing and has none of these here. sandbox-runtime is the
// boundary that agents put around a command: bubblewrap behind a program for Node, with
// a filter and two proxies. It has no form without its command line, so that is timed. Ours is
// this very program, started as the child half: make builds it without cgo, as it builds asp, or each
// start would load a libc that asp does not have.
func (c *config) sandboxRows(ctx context.Context) error {
	live, scratch := filepath.Join(c.mem, "sandbox-live"), filepath.Join(c.mem, "sandbox-scratch")
	for _, d := range []string{live, scratch} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return err
		}
		defer os.RemoveAll(d)
	}
	caps := sandbox.Probe(ctx, sandbox.ProbeDirs{Lower: live, Scratch: scratch})
	if !caps.Namespaces() {
		c.out.note("the start of a sandbox is not measured: %s", caps.Missing())
		return nil
	}
	start := func(require sandbox.Level) contender {
		var ends sandbox.Ends
		return contender{run: func() error {
			res, err := sandbox.Run(ctx, caps, sandbox.Spec{Argv: []string{"true"}, Dir: "/", Env: map[string]string{"PATH": "/usr/bin:/bin"},
				Hide: []string{scratch}, Protect: []sandbox.Protect{{Path: live}}, Require: require, Ends: &ends})
			if err == nil && res.ExitCode != 0 {
				err = fmt.Errorf("true ended with %d", res.ExitCode)
			}
			return err
		}, after: func() error {
			ends.Wait()
			return nil
		}}
	}
	cs, names := []contender{start(sandbox.MediatedWrite)}, []string{"namespaces, writes kept away"}
	if caps.CanIsolate() {
		cs, names = append(cs, start(sandbox.Isolated)), append(names, "isolated")
	} else {
		c.out.note("the start of an isolated launch is not measured: %s", caps.MissingIsolation())
	}
	var peers []string
	if bwrap, err := exec.LookPath("bwrap"); err == nil {
		peers = append(peers, "bubblewrap")
		cs = append(cs, contender{run: command("/", nil, bwrap, "--unshare-all", "--die-with-parent", "--new-session", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp", "true")})
	} else {
		c.out.note("bubblewrap is not installed: there is nothing to compare the start of a sandbox with")
	}
	if run, err := c.sandboxRuntime(); err == nil {
		cs, peers = append(cs, contender{run: run}), append(peers, "sandbox-runtime")
	} else {
		c.out.note("sandbox-runtime is not measured: %v", err)
	}
	t, err := race(ctx, 3*c.runs, cs...)
	if err != nil {
		return err
	}
	most := map[string]float64{"bubblewrap": 1.5, "sandbox-runtime": 0.2}
	for i, name := range names {
		w := row{Group: "sandbox", What: "start and end of true, " + name, Where: c.memType, Unit: "ms", Ours: t[i], Runs: 3 * c.runs}
		if len(peers) == 0 {
			c.out.add(w)
		}
		for j, peer := range peers {
			w.Peer, w.PeerIs = t[len(names)+j], peer
			c.out.add(w, limit{most[peer], "peer"})
		}
	}
	return nil
}

// sandboxRuntime starts `true` by its command line, with no network and writes to an
// empty directory only. It is run once: it wants a Node, bubblewrap and two more
// programs, and what it says without them is more than an exit status.
func (c *config) sandboxRuntime() (func() error, error) {
	program, err := c.peer("srt")
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(c.mem, "sandbox-runtime")
	settings := filepath.Join(dir, "settings.json")
	if err := os.MkdirAll(filepath.Join(dir, "work"), 0o700); err != nil {
		return nil, err
	}
	if err := writeFile(settings, []byte(`{"network":{"allowedDomains":[],"deniedDomains":[]},"filesystem":{"denyRead":[],"allowWrite":["."],"denyWrite":[]}}`)); err != nil {
		return nil, err
	}
	run := command(filepath.Join(dir, "work"), []string{"HOME=" + dir}, program, "--settings", settings, "true")
	return run, run()
}

// percentiles runs a contender alone, over and over, and gives the times in
// milliseconds that half of the runs and that all but one in a hundred keep to.
func percentiles(ctx context.Context, runs int, x contender) (p50, p99 float64, err error) {
	took := make([]time.Duration, 0, runs)
	for i := range runs + 1 {
		if err := ctx.Err(); err != nil {
			return 0, 0, err
		}
		began := time.Now()
		err := x.run()
		d := time.Since(began)
		if err == nil && x.after != nil {
			err = x.after()
		}
		if err != nil {
			return 0, 0, err
		}
		if i > 0 {
			took = append(took, d)
		}
	}
	slices.Sort(took)
	return ms(took[len(took)/2]), ms(took[len(took)*99/100]), nil
}
