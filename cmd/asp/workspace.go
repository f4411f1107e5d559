package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"time"

	"github.com/aspengine/asp/apply"
	"github.com/aspengine/asp/internal/home"
	"github.com/aspengine/asp/seam/provider"
	"github.com/spf13/pflag"
)

// workspace is a workspace with its providers, for commands that may launch them.
// Engines come and go; the pool stays, so that providers stay warm.
type workspace struct {
	e     *env
	dir   string
	home  *home.Home
	first *apply.Engine // holds what the pool was told; never used for a request
	pool  *provider.Pool
	known *apply.Verdicts
	trace *os.File
}

// rememberedVerdicts bounds the answers of providers that one command keeps.
const rememberedVerdicts = 1024

// stopTime is how long providers may take to end politely.
const stopTime = 3 * time.Second

// openWorkspace opens what --repo names. What is wrong with it, or with the trusted
// configuration, is said now and not with the first request.
func (e *env) openWorkspace(ctx context.Context, fs *pflag.FlagSet) (_ *workspace, err error) {
	w := &workspace{e: e, known: apply.NewVerdicts(rememberedVerdicts)}
	if w.dir, w.home, err = e.places(fs); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, w.close())
		}
	}()
	if w.first, err = apply.Open(ctx, e.engineOptions(w.dir, w.home, nil, false)); err != nil {
		return nil, classify(err)
	}
	if w.trace, err = e.traceFile(); err != nil {
		return nil, err
	}
	o, err := w.first.ProviderOptions(ctx)
	if err != nil {
		return nil, err
	}
	if w.trace != nil {
		o.Trace, o.TraceContents = w.trace, e.traceContents()
	}
	w.pool = provider.New(o)
	return w, nil
}

// engine opens an engine, with the configuration and the policy of this moment.
func (w *workspace) engine(ctx context.Context, step func(string)) (*apply.Engine, error) {
	o := w.e.engineOptions(w.dir, w.home, step, false)
	o.Providers, o.Verdicts = w.pool, w.known
	eng, err := apply.Open(ctx, o)
	if err != nil {
		return nil, classify(err)
	}
	return eng, nil
}

// close ends every provider and closes everything.
func (w *workspace) close() error {
	var errs []error
	if w.pool != nil {
		// Also after a signal: what was started is stopped.
		ctx, cancel := context.WithTimeout(context.Background(), stopTime)
		errs = append(errs, w.pool.Close(ctx))
		cancel()
	}
	if w.first != nil {
		errs = append(errs, w.first.Close())
	}
	if w.trace != nil {
		errs = append(errs, w.trace.Close())
	}
	return errors.Join(append(errs, w.home.Close())...)
}

// traceFile opens the transcript that ASP_TRACE asks for; nil without one.
func (e *env) traceFile() (*os.File, error) {
	name := e.getenv("ASP_TRACE")
	if name == "" {
		return nil, nil
	}
	if !filepath.IsAbs(name) {
		name = filepath.Join(e.dir, name)
	}
	f, err := os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, usagef("ASP_TRACE: %v", err)
	}
	return f, nil
}

// traceContents tells whether a transcript may hold the contents of files.
func (e *env) traceContents() bool { return e.getenv("ASP_TRACE_CONTENTS") == "1" }
