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
// beside bubblewrap with as many namespaces. Ours proves by a probe, each time, what
// it gives, and the isolated form has a private root, Landlock and a system call filter
// besides; bubblewrap proves nothing and has none of these here.
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
		return contender{run: func() error {
			res, err := sandbox.Run(ctx, caps, sandbox.Spec{Argv: []string{"true"}, Dir: "/", Env: map[string]string{"PATH": "/usr/bin:/bin"},
				Hide: []string{scratch}, Protect: []sandbox.Protect{{Path: live}}, Require: require})
			if err == nil && res.ExitCode != 0 {
				err = fmt.Errorf("true ended with %d", res.ExitCode)
			}
			return err
		}}
	}
	cs, names := []contender{start(sandbox.MediatedWrite)}, []string{"namespaces, writes kept away"}
	if caps.CanIsolate() {
		cs, names = append(cs, start(sandbox.Isolated)), append(names, "isolated")
	} else {
		c.out.note("the start of an isolated launch is not measured: %s", caps.MissingIsolation())
	}
	peer := ""
	if bwrap, err := exec.LookPath("bwrap"); err == nil {
		peer = "bubblewrap"
		cs = append(cs, contender{run: command("/", nil, bwrap, "--unshare-all", "--die-with-parent", "--new-session", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp", "true")})
	} else {
		c.out.note("bubblewrap is not installed: there is nothing to compare the start of a sandbox with")
	}
	t, err := race(ctx, 3*c.runs, cs...)
	if err != nil {
		return err
	}
	for i, name := range names {
		w := row{Group: "sandbox", What: "start and end of true, " + name, Where: c.memType, Unit: "ms", Ours: t[i], Runs: 3 * c.runs}
		if peer == "" {
			c.out.add(w)
			continue
		}
		w.Peer, w.PeerIs = t[len(names)], peer
		c.out.add(w, limit{1.5, "peer"})
	}
	return nil
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
