package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/aspengine/asp/apply"
	"github.com/aspengine/asp/internal/home"
	"github.com/aspengine/asp/internal/vfs"
	"github.com/spf13/pflag"
)

// open opens the engine for the workspace that --repo names. The returned
// function closes everything.
func (e *env) open(ctx context.Context, fs *pflag.FlagSet, step func(string)) (*apply.Engine, func(), error) {
	dir, err := fs.GetString("repo")
	if err != nil {
		return nil, nil, err
	}
	if dir == "" {
		return nil, nil, usagef("--repo is empty; name a directory")
	}
	if !filepath.IsAbs(dir) {
		dir = filepath.Join(e.dir, dir)
	}
	path, err := home.Resolve(e.getenv)
	if err != nil {
		return nil, nil, err
	}
	h, err := home.Open(vfs.OS{}, path)
	if err != nil {
		return nil, nil, err
	}
	eng, err := apply.Open(ctx, apply.Options{Dir: dir, Home: h, Version: Version, Now: e.now, Step: step, UserHome: e.getenv("HOME")})
	if err != nil {
		h.Close()
		return nil, nil, err
	}
	return eng, func() {
		if err := eng.Close(); err != nil {
			e.ui.notef("note: %v", err)
		}
		h.Close()
	}, nil
}

// read reads a file named on the command line; "-" is stdin. It stops one byte
// over the limit, which is enough for whoever decodes it to refuse it.
func (e *env) read(name string, limit int) ([]byte, error) {
	r := e.stdin
	if name != "-" {
		if !filepath.IsAbs(name) {
			name = filepath.Join(e.dir, name)
		}
		f, err := os.Open(name)
		if err != nil {
			return nil, usageError{err.Error()}
		}
		defer f.Close()
		r = f
	}
	b, err := io.ReadAll(io.LimitReader(r, int64(limit)+1))
	if err != nil {
		return nil, fmt.Errorf("read %.200q: %w", name, err)
	}
	return b, nil
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
