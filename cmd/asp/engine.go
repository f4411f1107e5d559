package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/aspengine/asp/apply"
	"github.com/aspengine/asp/checks/policy"
	"github.com/aspengine/asp/internal/home"
	"github.com/aspengine/asp/snapshot/gitbase"
	"github.com/aspengine/asp/snapshot/gitbase/gitconfig"
	"github.com/spf13/pflag"
)

// open opens the engine for the workspace that --repo names. The returned
// function closes everything.
func (e *env) open(ctx context.Context, fs *pflag.FlagSet, step func(string)) (*apply.Engine, func(), error) {
	dir, h, err := e.places(fs)
	if err != nil {
		return nil, nil, err
	}
	eng, err := apply.Open(ctx, e.engineOptions(dir, h, step, lenient(fs.Name())))
	if err != nil {
		h.Close()
		return nil, nil, classify(err)
	}
	if err := eng.ConfigProblem(); err != nil {
		e.ui.notef("note: going on without the configuration: %v", err)
	}
	end := func() {
		if err := eng.Close(); err != nil {
			e.ui.notef("note: %v", err)
		}
		h.Close()
	}
	stop, err := e.enlist(fs, eng)
	if err != nil {
		end()
		return nil, nil, err
	}
	return eng, func() { stop(); end() }, nil
}

func (e *env) engineOptions(dir string, h *home.Home, step func(string), lenient bool) apply.Options {
	return apply.Options{Dir: dir, Home: h, Version: Version, Now: e.now, Step: step, UserHome: e.getenv("HOME"), Lenient: lenient, Recovered: e.tellRecovered}
}

// places finds the directory that --repo names and opens the state directory,
// which the caller closes.
func (e *env) places(fs *pflag.FlagSet) (string, *home.Home, error) {
	dir, err := fs.GetString("repo")
	if err != nil {
		return "", nil, err
	}
	if dir == "" {
		return "", nil, usagef("--repo is empty; name a directory")
	}
	if !filepath.IsAbs(dir) {
		dir = filepath.Join(e.dir, dir)
	}
	if fi, err := os.Stat(dir); err != nil || !fi.IsDir() {
		return "", nil, &placeError{fmt.Errorf("--repo %.200q is no directory that can be opened", dir)}
	}
	h, err := e.openHome()
	if err != nil {
		return "", nil, err
	}
	return dir, h, nil
}

// lenient tells the commands that repair and look, which must work although a
// check in the configuration is misspelt.
func lenient(command string) bool {
	return command == "recover" || command == "doctor" || command == "receipts"
}

// classify says whose fault it is that a workspace cannot be opened.
func classify(err error) error {
	var pe *policy.Error
	var ue *gitbase.UnsupportedError
	switch {
	case errors.As(err, &pe), errors.Is(err, home.ErrUntrusted), errors.Is(err, home.ErrInside):
		return &trustError{err}
	case errors.As(err, &ue):
		return err
	case errors.Is(err, gitbase.ErrNoWorkTree), errors.Is(err, gitbase.ErrGitFile), errors.Is(err, gitconfig.ErrSyntax), errors.Is(err, gitconfig.ErrLimit):
		return &placeError{err}
	}
	return err
}

// read reads a file named on the command line; "-" is stdin. It stops one byte
// over the limit, which is enough for whoever decodes it to refuse it, and when
// ctx ends.
func (e *env) read(ctx context.Context, name string, limit int) ([]byte, error) {
	if name == "" {
		return nil, usagef("the name of the plan is empty; name a file, or - for stdin")
	}
	b, err := readAll(ctx, func() ([]byte, error) { return e.readFile(name, limit) })
	if errors.Is(err, context.Canceled) {
		err = fmt.Errorf("cancelled while %.200q was read; nothing is changed: %w", name, err)
	}
	return b, err
}

func (e *env) readFile(name string, limit int) ([]byte, error) {
	r := e.stdin
	var b bytes.Buffer
	if name != "-" {
		if !filepath.IsAbs(name) {
			name = filepath.Join(e.dir, name)
		}
		f, err := os.Open(name)
		if err != nil {
			return nil, usageError{err.Error()}
		}
		defer f.Close()
		if fi, err := f.Stat(); err == nil && fi.IsDir() {
			return nil, usagef("%.200q is a directory; name a file", name)
		} else if err == nil {
			b.Grow(int(min(fi.Size(), int64(limit))) + bytes.MinRead)
		}
		r = f
	}
	if _, err := b.ReadFrom(io.LimitReader(r, int64(limit)+1)); err != nil {
		return nil, fmt.Errorf("read %.200q: %w", name, err)
	}
	e.heap.expect(b.Len())
	return b.Bytes(), nil
}

func noArgs(fs *pflag.FlagSet) error {
	if fs.NArg() > 0 {
		return usagef("unexpected argument %.100q; see `asp %s --help`", fs.Arg(0), fs.Name())
	}
	return nil
}

func oneArg(fs *pflag.FlagSet, what string) (string, error) {
	if fs.NArg() != 1 || fs.Arg(0) == "" {
		return "", usagef("give one %s; see `asp %s --help`", what, fs.Name())
	}
	return fs.Arg(0), nil
}
