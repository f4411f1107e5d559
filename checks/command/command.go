// Package command is the check that runs a program of the trusted configuration
// over a candidate: exit status 0 is Passed, any other a complaint. It decides
// nothing about the level of isolation: it asks the sandbox for the one that is
// required, and reports the one that the launch proved.
package command

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"strings"
	"time"

	"github.com/aspengine/asp/checks"
	"github.com/aspengine/asp/sandbox"
	"github.com/aspengine/asp/sandbox/egress"
	"github.com/aspengine/asp/worktree"
)

// Prefix starts the coverage source of every command check.
const Prefix = "command/"

// messageLimit bounds the excerpt of the output in a finding, in bytes.
const messageLimit = 2000

// Spec is one named command of the trusted configuration, with what the host
// adds to it.
type Spec struct {
	Argv    []string
	Env     map[string]string // of the check itself; wins over everything below
	Timeout time.Duration     // 0: the sandbox's default
	Require sandbox.Level     // the zero value means Advisory, the contract's "none"

	// Pass holds variables of the host's environment that the configuration lets
	// through, with their values. GIT_* are dropped: they may name another
	// repository.
	Pass map[string]string
	// Path is PATH for the check. Relative entries are dropped; directories in it
	// stay visible. "" takes the system's usual one.
	Path    string
	Network bool // keep the host's network
	// Egress lists what of the network it may reach; see sandbox.Spec.
	Egress  []string
	Isolate bool // isolate where the machine can, though Require says less
	Limits  sandbox.Limits
}

// DefaultPath is PATH where the host gives none.
const DefaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// Check is a command check. It is immutable and safe for concurrent use.
type Check struct {
	name string
	spec Spec
}

// New makes the check with coverage source command/NAME.
func New(name string, s Spec) (*Check, error) {
	switch {
	case name == "" || strings.ContainsAny(name, "/:"):
		return nil, fmt.Errorf("make command check: name %.200q is empty or holds a slash or colon", name)
	case len(s.Argv) == 0 || s.Argv[0] == "":
		return nil, fmt.Errorf("make command check %.200q: no program", name)
	}
	if s.Require == sandbox.LevelInvalid {
		s.Require = sandbox.Advisory
	}
	return &Check{name: Prefix + name, spec: s}, nil
}

// Name is the coverage source.
func (c *Check) Name() string { return c.name }

// Run runs the command over the candidate. What goes wrong with the command is a
// Result; an error means that we lost track of it.
func (c *Check) Run(ctx context.Context, cand *worktree.Candidate) (checks.Result, error) {
	s, err := c.sandbox(cand)
	if err != nil {
		return checks.Result{}, err
	}
	res := checks.Result{Name: c.name, Started: time.Now()}
	out, err := sandbox.Run(ctx, cand.Caps, s)
	res.Elapsed = time.Since(res.Started)
	switch {
	case errors.Is(err, sandbox.ErrUnsupported):
		res.Status, res.Unsupported, res.Detail = checks.Unavailable, true, err.Error()
		return res, nil
	case err != nil && ctx.Err() != nil:
		res.Status, res.Detail = checks.Cancelled, "cancelled before it started"
		return res, nil
	case err != nil:
		return res, err
	}
	c.fill(&res, out)
	return res, nil
}

// Gateway is the one of every command check, for sandbox.Spec.
func Gateway(destinations []string) (sandbox.Gateway, error) { return egress.Open(destinations) }

// sandbox puts the launch together.
func (c *Check) sandbox(cand *worktree.Candidate) (sandbox.Spec, error) {
	var dirs []string
	path := c.spec.Path
	if path == "" {
		path = DefaultPath
	}
	for _, d := range filepath.SplitList(path) {
		if filepath.IsAbs(d) {
			dirs = append(dirs, filepath.Clean(d))
		}
	}
	s := cand.Sandbox(dirs)
	own := s.Env
	s.Env = map[string]string{"LANG": "C.UTF-8", "PATH": strings.Join(dirs, string(filepath.ListSeparator))}
	maps.Copy(s.Env, own)
	for k, v := range c.spec.Pass {
		if !strings.HasPrefix(k, "GIT_") {
			s.Env[k] = v
		}
	}
	maps.Copy(s.Env, c.spec.Env)
	for k, v := range s.Env {
		if k == "" || strings.ContainsAny(k, "=\x00") || strings.ContainsRune(v, 0) {
			return s, fmt.Errorf("set up %s: variable %.200q cannot be passed", c.name, k)
		}
	}
	s.Argv, s.Require, s.Network, s.Limits, s.MergeOutput = c.spec.Argv, c.spec.Require, c.spec.Network, c.spec.Limits, true
	s.Isolate, s.Egress, s.Gateway = c.spec.Isolate, c.spec.Egress, Gateway
	if c.spec.Timeout > 0 {
		s.Limits.Wall = c.spec.Timeout
	}
	return s, nil
}

// fill turns the end of the run into a status: the first row that fits, from
// "could not tell" to "passed".
func (c *Check) fill(res *checks.Result, out sandbox.Result) {
	res.ExitCode, res.Output, res.Truncated = out.ExitCode, out.Stdout, out.Truncated
	res.Evidence, res.DirectWrite = out.Boundary.Evidence, out.Boundary.DirectWrite
	res.Probed = out.Boundary.Record()
	res.Network = out.Egress
	res.Isolation = isolation(out.Boundary.Level)
	switch {
	case out.Cancelled:
		res.Status, res.Detail = checks.Cancelled, "cancelled by the caller; "+dead(out)
	case out.TimedOut:
		res.Status, res.Detail = checks.TimedOut, "its time was over; "+dead(out)
	case !out.Started:
		res.Status, res.Detail = checks.Unavailable, "cannot start: "+out.StartError
	case out.Lost != "":
		res.Status, res.Detail = checks.Crashed, "the process that watched it was ended, so how it ended is not known ("+out.Lost+"); "+dead(out)
	case out.Signal != "":
		res.Status, res.Detail = checks.Crashed, "ended by "+out.Signal
	case len(out.Leftovers) > 0:
		res.Status = checks.Incomplete
		res.Detail = fmt.Sprintf("exit status %d, but it left running (killed): %s", out.ExitCode, strings.Join(out.Leftovers, ", "))
	case out.ExitCode != 0:
		res.Status, res.Detail = checks.Failed, fmt.Sprintf("exit status %d", out.ExitCode)
		res.Findings = []checks.Finding{{
			Code:     c.name + ":exit",
			Message:  tail(out.Stdout, out.ExitCode),
			NextStep: fmt.Sprintf("make %.200q succeed over the changed tree, then apply again", strings.Join(c.spec.Argv, " ")),
		}}
	default:
		res.Status = checks.Passed
	}
}

// dead says what became of the processes of a run that did not end by itself.
func dead(out sandbox.Result) string {
	if len(out.Leftovers) > 0 {
		return "it may have left running: " + strings.Join(out.Leftovers, ", ")
	}
	return "all its processes were killed"
}

// tail is the end of the output, from the start of a line where that is near.
func tail(b []byte, code int) string {
	s := strings.ToValidUTF8(strings.TrimSpace(string(b)), "\ufffd")
	if s == "" {
		return fmt.Sprintf("exit status %d, no output", code)
	}
	if len(s) > messageLimit {
		s = s[len(s)-messageLimit:]
		if i := strings.IndexByte(s, '\n'); i >= 0 && i < messageLimit/2 {
			s = s[i+1:]
		}
		s = strings.ToValidUTF8(s, "")
	}
	return s
}

func isolation(l sandbox.Level) checks.Isolation {
	switch l {
	case sandbox.Gated:
		return checks.Gated
	case sandbox.MediatedWrite:
		return checks.MediatedWrite
	case sandbox.Isolated:
		return checks.Isolated
	}
	return checks.Advisory
}
