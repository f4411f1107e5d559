package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/aspengine/asp/apply"
	"github.com/aspengine/asp/internal/home"
	"github.com/aspengine/asp/internal/refusal"
	"github.com/aspengine/asp/receipt"
	"github.com/aspengine/asp/seam/wire"
	"github.com/aspengine/asp/snapshot/gitbase"
)

// The exit statuses of the contract, section 9.
const (
	exitOK        = 0
	exitRefused   = 1
	exitUsage     = 2
	exitError     = 3
	exitAttention = 4
	// exitPipe is what a shell says of a program that SIGPIPE ended, as it ends others
	// whose reader has had enough.
	exitPipe = 128 + 13
)

// usageError is a mistake in the command line.
type usageError struct{ msg string }

func (u usageError) Error() string { return u.msg }

func usagef(format string, a ...any) error { return usageError{fmt.Sprintf(format, a...)} }

// exitStatus ends a command with a status after its answer was printed.
type exitStatus int

func (s exitStatus) Error() string { return fmt.Sprintf("exit status %d", int(s)) }

// trustError is a state directory or configuration that cannot be relied on;
// placeError a --repo that is no workspace.
type (
	trustError struct{ err error }
	placeError struct{ err error }
)

// platformError says that the engine has no form for a system, which it names.
type platformError struct{ system string }

func (p *platformError) Error() string {
	return "asp changes no workspace on " + p.system + ": what it promises stands on system calls of Linux (openat2, renameat2, " +
		"locks that end with their holder), and it imitates none of them; run it on Linux, in a container or a virtual machine " +
		"(WSL 2 is one). `asp provider`, `asp schema` and --help work here"
}

func (t *trustError) Error() string { return t.err.Error() }
func (t *trustError) Unwrap() error { return t.err }
func (p *placeError) Error() string { return p.err.Error() }
func (p *placeError) Unwrap() error { return p.err }

// absentError is what the command line names and nobody has here: a receipt, a finding,
// a path that waits for no decision. It is a refusal, as it is where a transaction was
// named: that it is not there was told for certain.
type absentError struct{ err error }

func (a *absentError) Error() string { return a.err.Error() }
func (a *absentError) Unwrap() error { return a.err }

// absent makes an error an absentError if it is one of those.
func absent(err error, those ...error) error {
	for _, x := range those {
		if errors.Is(err, x) {
			return &absentError{err}
		}
	}
	return err
}

// finish turns what a command returned into an exit status; with asJSON, it also
// prints the error object of the contract on stdout, for the refusals among them too.
func (e *env) finish(err error, asJSON bool) int {
	if err == nil {
		return exitOK
	}
	var st exitStatus
	if errors.As(err, &st) {
		return int(st)
	}
	err = e.advise(err)
	code := exitError
	var u usageError
	var c *apply.UnknownCheckError
	var none *absentError
	var g *gitbase.UnsupportedError
	switch {
	case errors.As(err, &u), errors.As(err, &c):
		code = exitUsage
	case errors.As(err, &none):
		code = exitRefused
	case errors.As(err, &g):
		// Known for certain, and nothing that another attempt would change: a refusal, of
		// the repository as a whole. There is no receipt: they belong to a workspace.
		code, err = exitRefused, fmt.Errorf("%s: %w", refusal.UnsupportedOperation, err)
	}
	if errors.Is(err, apply.ErrAttention) {
		code = exitAttention
	}
	if asJSON {
		e.printError(err)
	}
	var f *apply.Failure
	switch {
	case errors.As(err, &f) && f.Outcome == receipt.Cancelled:
		e.ui.errorf("cancelled; nothing is changed (receipt %s)", f.Receipt)
	case errors.Is(err, context.Canceled):
		e.ui.errorf("cancelled")
	case errors.As(err, &f) && f.Receipt != "":
		e.ui.errorf("%v (receipt %s)", err, f.Receipt)
	default:
		e.ui.errorf("%v", err)
	}
	return code
}

// advise adds what helps where the file system of the state directory lacks what the
// state is kept by, as one under FUSE or over a network may.
func (e *env) advise(err error) error {
	var lacks bool
	for _, no := range []error{errors.ErrUnsupported, syscall.EINVAL, syscall.ENOSYS, syscall.ENOLCK, syscall.ENOTTY} {
		lacks = lacks || errors.Is(err, no)
	}
	state, herr := home.Resolve(e.getenv)
	if real, rerr := filepath.EvalSymlinks(state); rerr == nil {
		state = real
	}
	var (
		link *os.LinkError
		path *fs.PathError
		at   string
	)
	switch {
	case herr != nil || !lacks:
		return err
	case errors.As(err, &link):
		at = link.Old
	case errors.As(err, &path) && path.Op != "open": // to open what is no file is another matter
		at = path.Path
	}
	if !strings.HasPrefix(at, state+"/") && at != state {
		return err
	}
	return fmt.Errorf("%w: the file system of the state directory %.200q cannot do that; set ASP_HOME to a directory on ext4, xfs, btrfs or tmpfs", err, state)
}

// wireError maps an error to the object of the outer seam; the receipt that was
// stored for it is named in data.detail.
func wireError(err error) wire.Error {
	var (
		u usageError
		c *apply.UnknownCheckError
		f *apply.Failure
		g *gitbase.UnsupportedError

		none  *absentError
		trust *trustError
		place *placeError
		plat  *platformError
	)
	detail := ""
	var w *wire.Error
	if errors.As(err, &w) {
		return *w
	}
	if errors.As(err, &f) && f.Receipt != "" {
		detail = "receipt " + f.Receipt
	}
	msg := strings.ToValidUTF8(err.Error(), "\uFFFD")
	switch {
	case errors.As(err, &u), errors.As(err, &c):
		return *wire.NewError(wire.CodeInvalidInput, wire.FailInput, msg, detail)
	case errors.As(err, &trust):
		// What the trusted side got wrong is nothing that a retry or an open gate
		// could answer.
		return *wire.NewError(wire.CodeNotReady, wire.FailPolicy, msg, detail)
	case errors.As(err, &place):
		return *wire.NewError(wire.CodeInvalidInput, wire.FailInput, msg, detail)
	case errors.As(err, &none):
		return *wire.NewError(wire.CodeInvalidInput, wire.FailInput, msg, detail)
	case errors.Is(err, apply.ErrAttention), errors.As(err, &plat):
		w := wire.NewError(wire.CodeNotReady, wire.FailHealth, msg, detail)
		no := false // a person has to decide first, or go elsewhere
		w.Data.Retryable = &no
		return *w
	case errors.Is(err, context.Canceled):
		return *wire.NewError(wire.CodeCancelled, wire.FailHealth, "cancelled", detail)
	case errors.Is(err, context.DeadlineExceeded):
		return *wire.NewError(wire.CodeCancelled, wire.FailHealth, msg, detail)
	case errors.As(err, &g):
		w := wire.NewError(wire.CodeNotReady, wire.FailInput, msg, detail)
		no := false
		w.Data.Retryable = &no
		return *w
	}
	return *wire.NewError(wire.CodeNotReady, wire.FailHealth, msg, detail)
}
