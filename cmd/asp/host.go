package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"runtime/metrics"

	"github.com/aspengine/asp/apply"
	"github.com/aspengine/asp/seam/host"
	"github.com/aspengine/asp/seam/wire"
	"github.com/spf13/pflag"
)

func hostCommand() *command {
	return &command{
		name: "host", short: "serve a harness: JSON-RPC on stdin and stdout, or on a socket",
		args: "serve [--repo D] [--socket PATH]",
		long: `
Serves the outer seam of one workspace: JSON-RPC 2.0, one object a line. There is no
initialize; the methods are host/status, host/capabilities, host/evaluateChangeset,
host/queryInspect, host/requestEditPlan, host/applyProposal, host/authority/status,
workspace/putBlob and shutdown, the notifications $/cancelRequest and exit.

It ends with exit, with the end of its input, or with SIGTERM: what runs then is
answered within a few seconds or cancelled, and providers are stopped. With --socket
it serves every client of yours that connects to PATH (mode 0600, in a directory of
yours), until a signal; exit then ends one session.

What a walk of the git work tree found is kept and its directories are watched, so that
an apply costs the same in a large repository as in a small one; other requests that
hang on the whole tree walk it.

Configuration, enrolment and the committed policy are read anew for each request;
limits.messageBytes holds from the start. ASP_TRACE=FILE appends a transcript of all
messages without the contents of files; ASP_TRACE_CONTENTS=1 adds those.

examples:
  echo '{"jsonrpc":"2.0","id":1,"method":"host/status","params":{}}' | asp host serve
  asp host serve --repo ~/src/app --socket "$XDG_RUNTIME_DIR/asp-app"`,
		flags: func(fs *pflag.FlagSet) {
			fs.String("socket", "", "serve on this Unix socket `PATH` instead of stdin and stdout")
		},
		run: runHost,
	}
}

func runHost(ctx context.Context, e *env, fs *pflag.FlagSet) error {
	verb, err := oneArg(fs, "verb: serve")
	if err != nil {
		return err
	}
	if verb != "serve" {
		return usagef("asp host %.60q: there is only serve", verb)
	}
	in, out, ok := e.streams()
	if !ok {
		return errors.New("asp host serve needs files as stdin and stdout")
	}
	e.heap.leave()
	settle(e.getenv)
	w, err := e.openWorkspace(ctx, fs)
	if err != nil {
		return err
	}
	w.first.Reside()
	h := host.New(w.hostOptions())
	if socket, _ := fs.GetString("socket"); fs.Changed("socket") {
		err = e.serveSocket(ctx, h, socket)
	} else {
		err = serveStandard(ctx, h, in, out)
	}
	return errors.Join(err, w.close())
}

// hostMemory is the heap, in bytes, from which the collector works harder. It is
// no bound: those are on what a session may send and keep.
const hostMemory = 128 << 20

// hostHeap is the heap, in bytes, up to which nothing is collected. Where less than half
// of it lives, as in most repositories, the default would collect every few requests: a
// sixth of the processor time of a verdict.
const hostHeap = 24 << 20

// settle sets the collector for a process that lives long: what a program that
// lives for milliseconds gains by collecting late, this one would pay for in
// memory, for as long as it runs.
func settle(getenv func(string) string) {
	if getenv("GOGC") == "" {
		steady(0)
	}
	if getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(hostMemory)
	}
}

// steady sets the percentage that hostHeap amounts to, now and after each collection.
func steady(last int) {
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(live)
	var n uint64
	if live[0].Value.Kind() == metrics.KindUint64 {
		n = live[0].Value.Uint64()
	}
	percent := percentOf(n)
	if percent != last {
		debug.SetGCPercent(percent)
	}
	runtime.AddCleanup(new([2]uintptr), steady, percent)
}

// percentOf is by how much the heap may outgrow what lives of it, in percent: up to
// hostHeap, and to twice where that is more. In steps, since each new one stops the world.
func percentOf(live uint64) int {
	if live == 0 {
		return 400 // no collection yet: the heap begins at 4 MiB
	}
	return int(min(max(100*hostHeap/live, 200), 500)-100) / 50 * 50
}

// streams are stdin and stdout as files; false in tests that have none.
func (e *env) streams() (in, out *os.File, ok bool) {
	in, ok1 := e.stdin.(*os.File)
	a, ok2 := e.stdout.(*answerWriter)
	if !ok1 || !ok2 {
		return nil, nil, false
	}
	out, ok = a.w.(*os.File)
	return in, out, ok
}

func serveStandard(ctx context.Context, h *host.Host, in, out *os.File) error {
	t, err := host.Standard(in, out)
	if err != nil {
		return err
	}
	return h.Serve(ctx, "harness", t)
}

func (e *env) serveSocket(ctx context.Context, h *host.Host, socket string) error {
	if socket == "" {
		return usagef("--socket is empty; name a path")
	}
	if !filepath.IsAbs(socket) {
		socket = filepath.Join(e.dir, socket)
	}
	return h.Listen(ctx, socket, func() { e.ui.notef("listening on %s", socket) })
}

// hostOptions serve the workspace.
func (w *workspace) hostOptions() host.Options {
	o := host.Options{
		Open: func(ctx context.Context, step func(string)) (host.Engine, apply.Request, error) {
			eng, err := w.engine(ctx, step)
			if err != nil {
				return nil, apply.Request{}, err
			}
			how, err := publishBy(eng.Config().Publish)
			how.Merge = eng.Config().Merge
			if err != nil {
				return nil, how, errors.Join(err, eng.Close())
			}
			return eng, how, nil
		},
		Wrong: func(err error) *wire.Error {
			wrong := wireError(w.e.advise(err))
			return &wrong
		},
		MessageBytes: w.first.Config().Limits.MessageBytes,
		Log:          slog.New(slog.NewTextHandler(w.e.stderr, nil)),
	}
	if w.trace != nil {
		o.Trace, o.TraceContents = w.trace, w.e.traceContents()
	}
	return o
}

// publishBy reads the configured default mode.
func publishBy(mode string) (r apply.Request, err error) {
	switch mode {
	case "", "journal":
	case "exchange":
		r.Publish = apply.Exchange
	case "staged":
		r.Publish = apply.Stage
	default:
		err = fmt.Errorf("publish %.60q is no mode", mode)
	}
	return r, err
}
