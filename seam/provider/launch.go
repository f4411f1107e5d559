package provider

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/aspengine/asp/sandbox"
	"github.com/aspengine/asp/seam/manifest"
	"github.com/aspengine/asp/seam/wire"
)

const (
	stderrBytes = 64 << 10
	// graceExit is how long a provider may take to end by itself, and how long
	// what it started may outlive it.
	graceExit     = time.Second
	graceLeftover = 200 * time.Millisecond

	defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	privateTmp  = "/tmp" // of the sandbox, in memory
)

// process is a provider that was started. Its two ends of pipes belong to the
// connection.
type process struct {
	sandbox  *sandbox.Process
	boundary sandbox.Boundary
	demand   demand   // that it was launched under
	reach    []string // what of the network it was launched for
	in, out  *os.File
	exited   chan struct{}
	// Set before exited is closed.
	result sandbox.Result
	err    error
}

// start launches m. ctx bounds the launch; life bounds the process. Whoever
// starts one waits for exited, after kill or without.
func (p *Pool) start(ctx, life context.Context, m manifest.Manifest, v *manifest.Verified) (*process, *fault) {
	d, caps := p.demanded(), p.o.Sandbox.Caps
	if p.o.Sandbox.Probe != nil {
		var err error
		if caps, err = p.o.Sandbox.Probe(ctx); err != nil {
			return nil, launchFault(err)
		}
	}
	reach := p.reach(m)
	spec, scratch, err := p.spec(m, caps, d, reach)
	if err != nil {
		return nil, launchFault(err)
	}
	clean := func() {
		if scratch != "" {
			_ = os.RemoveAll(scratch)
		}
	}
	inR, inW, err := os.Pipe()
	if err != nil {
		clean()
		return nil, launchFault(err)
	}
	outR, outW, err := os.Pipe()
	if err != nil {
		clean()
		return nil, launchFault(errors.Join(err, inR.Close(), inW.Close()))
	}
	run, cancel := context.WithCancel(life)
	unhook := context.AfterFunc(ctx, cancel)
	child, err := sandbox.Start(run, caps, spec, sandbox.Stdio{In: inR, Out: outW, Exec: v.Exec})
	abandoned := !unhook()
	inR.Close()
	outW.Close()
	if err == nil && abandoned {
		_, _ = child.Wait()
		err = ctx.Err()
	}
	if err != nil {
		cancel()
		inW.Close()
		outR.Close()
		clean()
		return nil, launchFault(err)
	}
	pr := &process{sandbox: child, boundary: child.Boundary(), demand: d, reach: reach, in: inW, out: outR, exited: make(chan struct{})}
	p.wg.Go(func() {
		defer close(pr.exited)
		pr.result, pr.err = child.Wait()
		cancel()
		clean()
	})
	return pr, nil
}

func launchFault(err error) *fault {
	f := faultOf(wire.DegradeUnavailable, wire.Unavailable, wire.FailHealth, "it cannot be started: %s", err)
	if f.blameless = true; errors.Is(err, sandbox.ErrUnsupported) {
		// Not its health, which would open on interactive: what is asked of a launch is policy.
		f.reason, f.class, f.unsupported = wire.DegradeInsufficientAssurance, wire.FailPolicy, true
	}
	return f
}

// spec puts the launch together. scratch is a directory to remove afterwards, "" where
// the working directory is in the sandbox's own memory.
func (p *Pool) spec(m manifest.Manifest, caps sandbox.Caps, d demand, reach []string) (s sandbox.Spec, scratch string, err error) {
	l := p.o.Sandbox
	limits := l.Limits.filled()
	s = sandbox.Spec{
		Argv: append([]string{m.Bin}, m.Args...), Dir: privateTmp, Require: d.require,
		// The life of a provider has no end of its own; its requests have.
		Limits: sandbox.Limits{Wall: math.MaxInt64, Output: stderrBytes, Files: limits.Files, Memory: mebibytes(limits.MemoryMb), CPUPct: uint64(limits.CPUPct),
			FileSize: mebibytes(limits.FileMb), Processes: uint64(max(limits.Processes, 0)), Grace: graceLeftover},
		Isolate: d.isolate,
		Egress:  reach, EgressHeld: true, Gateway: gateway,
	}
	for _, d := range l.Protect {
		s.Protect = append(s.Protect, sandbox.Protect{Path: d})
	}
	if caps.Namespaces() {
		s.Hide = append(slices.Clone(l.Hide), "/run/user", "/var/tmp")
		s.Mounts = append([]sandbox.Mount{{Kind: sandbox.MountTmpfs, Target: privateTmp}}, p.exposed(m, d)...)
		if st, err := os.Lstat("/var/tmp"); err == nil && st.IsDir() {
			s.Mounts = append(s.Mounts, sandbox.Mount{Kind: sandbox.MountTmpfs, Target: "/var/tmp"})
		}
	} else {
		if scratch, err = os.MkdirTemp(l.Scratch, "provider-"); err != nil {
			return s, "", err
		}
		s.Dir = filepath.Join(scratch, "work")
		if err = os.Mkdir(s.Dir, 0o700); err != nil {
			return s, "", errors.Join(err, os.RemoveAll(scratch))
		}
		s.Write = []string{s.Dir}
		for _, x := range p.exposed(m, demand{isolate: true}) {
			s.Read = append(s.Read, x.Source)
		}
	}
	s.Env = map[string]string{"HOME": s.Dir, "TMPDIR": s.Dir, "LANG": "C.UTF-8", "PATH": defaultPath}
	for _, name := range m.Env {
		// The home and the temporary directory are its own, whatever it would like.
		if l.Lookup != nil && name != "HOME" && name != "TMPDIR" && !strings.HasPrefix(name, "GIT_") {
			if v, ok := l.Lookup(name); ok {
				s.Env[name] = v
			}
		}
	}
	for k, v := range l.Env {
		s.Env[k] = v
	}
	for k, v := range s.Env {
		if k == "" || strings.ContainsAny(k, "=\x00") || strings.ContainsRune(v, 0) {
			return s, scratch, errors.Join(fmt.Errorf("variable %.200q cannot be passed", k), os.RemoveAll(scratch))
		}
	}
	return s, scratch, nil
}

func mebibytes(n int64) uint64 { return uint64(min(max(n, 0), 1<<40)) << 20 }

// exposed are the read-only views into hidden directories: what the provider is
// made of, and what the configuration says. Of a file in a place of the user's own the
// directory is shown (and for …/bin/x what bin belongs to, which is where interpreters
// keep their libraries), unless that would show something that has to stay hidden.
func (p *Pool) exposed(m manifest.Manifest, d demand) []sandbox.Mount {
	l := p.o.Sandbox
	hidden := append(slices.Clone(l.Hide), privateTmp, "/dev", "/run/user", "/var/tmp")
	keep := append(slices.Clone(hidden), l.Protect...)
	isolate := d.isolate || d.require == sandbox.Isolated // then all but the system is hidden
	var shown []string
	show := func(path string) {
		if _, err := os.Lstat(path); err == nil && (under(path, hidden) || isolate && !sandbox.SystemPath(path)) && !under(path, shown) {
			shown = append(shown, path)
		}
	}
	own := func(path string) {
		dir := filepath.Dir(path)
		if isolate && filepath.Dir(dir) == "/" {
			show(path) // a directory of the root holds more than one program's files
			return
		}
		if up := filepath.Dir(dir); filepath.Base(dir) == "bin" && (!isolate || filepath.Dir(up) != "/") && harmless(up, keep, l.Protect) {
			show(up)
		} else if harmless(dir, keep, l.Protect) {
			show(dir)
		}
		show(path)
	}
	for _, path := range append(m.Files(), m.Bin) {
		own(path)
		if real, err := filepath.EvalSymlinks(path); err == nil && real != path {
			own(real)
		}
	}
	for _, a := range m.Args {
		if st, err := os.Stat(a); filepath.IsAbs(a) && err == nil && st.Mode().IsRegular() && !under(a, l.Protect) {
			own(filepath.Clean(a))
		}
	}
	for _, r := range l.Read {
		show(r)
	}
	mounts := make([]sandbox.Mount, len(shown))
	for i, path := range shown {
		mounts[i] = sandbox.Mount{Kind: sandbox.MountBindRO, Target: path, Source: path}
	}
	return mounts
}

// harmless tells whether dir can be shown whole: it lies in nothing that is
// protected, and nothing that is hidden lies in it.
func harmless(dir string, hidden, protected []string) bool {
	if dir == "/" || under(dir, protected) {
		return false
	}
	return !slices.ContainsFunc(hidden, func(h string) bool { return under(h, []string{dir}) })
}

// under tells whether path is one of dirs or lies below one.
func under(path string, dirs []string) bool {
	return slices.ContainsFunc(dirs, func(d string) bool {
		return d != "" && (path == d || strings.HasPrefix(path, strings.TrimSuffix(d, "/")+"/"))
	})
}

// kill ends all of it and waits.
func (pr *process) kill() {
	pr.sandbox.Kill()
	<-pr.exited
}

// reap waits for the end, and brings it about after grace.
func (pr *process) reap(grace time.Duration) {
	t := time.NewTimer(grace)
	defer t.Stop()
	select {
	case <-pr.exited:
	case <-t.C:
		pr.kill()
	}
}

// epitaph says how it ended. Only after exited.
func (pr *process) epitaph() string {
	r := pr.result
	s := ""
	switch {
	case pr.err != nil:
		s = "its end was not seen: " + pr.err.Error()
	case r.Lost != "":
		s = "its end was not seen: " + strings.Join(append([]string{r.Lost}, r.Leftovers...), "; it may have left running: ")
	case !r.Started && r.StartError != "":
		s = "it could not be executed: " + r.StartError
	case r.Cancelled:
		s = "it was killed"
	case r.Signal != "":
		s = "it was ended by " + r.Signal
	default:
		s = fmt.Sprintf("it ended with exit status %d", r.ExitCode)
	}
	if t := strings.TrimSpace(string(r.Stderr)); t != "" {
		s += fmt.Sprintf("; standard error ends in %q", tail(t, 400))
	}
	return s
}

// tail is the end of foreign text.
func tail(s string, max int) string {
	s = strings.ToValidUTF8(s, "\ufffd")
	if len(s) <= max {
		return s
	}
	return strings.ToValidUTF8(s[len(s)-max:], "")
}
