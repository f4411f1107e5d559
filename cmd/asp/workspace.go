package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"github.com/aspengine/asp/apply"
	"github.com/aspengine/asp/internal/home"
	"github.com/spf13/pflag"
)

// workspace is a workspace with its providers, for commands that may launch them.
// Engines come and go; the pool stays, so that providers stay warm.
type workspace struct {
	*participants // nil until everything else is open
	e             *env
	dir           string
	home          *home.Home
	first         *apply.Engine // holds what the pool was told; never used for a request
	machine       *apply.Machine
}

// openWorkspace opens what --repo names. What is wrong with it, or with the trusted
// configuration, is said now and not with the first request.
func (e *env) openWorkspace(ctx context.Context, fs *pflag.FlagSet) (_ *workspace, err error) {
	w := &workspace{e: e, machine: apply.NewMachine()}
	if w.dir, w.home, err = e.places(fs); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, w.close())
		}
	}()
	o := e.engineOptions(w.dir, w.home, nil, false)
	o.Machine = w.machine
	if w.first, err = apply.Open(ctx, o); err != nil {
		return nil, classify(err)
	}
	w.participants, err = e.participants(w.first, false)
	return w, err
}

// engine opens an engine, with the configuration and the policy of this moment.
func (w *workspace) engine(ctx context.Context, step func(string)) (*apply.Engine, error) {
	o := w.e.engineOptions(w.dir, w.home, step, false)
	o.Providers, o.Verdicts, o.Machine, o.Shares = w.pool, w.known, w.machine, w.first
	eng, err := apply.Open(ctx, o)
	if err != nil {
		return nil, classify(err)
	}
	return eng, nil
}

// close ends every provider and closes everything. What could only not be remembered,
// like a stat cache, is a note: the answers are as good without it.
func (w *workspace) close() error {
	var errs []error
	if w.participants != nil {
		errs = append(errs, w.participants.close())
	}
	if w.first != nil {
		if err := w.first.Close(); err != nil {
			w.e.ui.notef("note: %v", err)
		}
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
