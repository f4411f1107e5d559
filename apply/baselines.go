package apply

import (
	"context"
	"errors"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/aspengine/asp/internal/home"
	"github.com/aspengine/asp/internal/lock"
	"github.com/aspengine/asp/receipt"
	"github.com/aspengine/asp/seam/wire"
	"github.com/aspengine/asp/snapshot"
)

// issuedFile holds the baselines that this host gave out for the workspace, one
// a line, oldest first: only the host issues baselines, so a plan on any other
// is refused. It is small on purpose; a plan on a baseline older than the last
// few thousand is better made again.
const (
	issuedFile = "baselines"
	maxIssued  = 4096
	issuedSize = 1 << 20
)

// issue notes a baseline as given out and puts it into wire form. A note that
// cannot be kept costs a later plan its baseline and nothing else, so the error
// is not the caller's.
func (e *Engine) issue(b snapshot.Baseline, at time.Time) wire.Baseline {
	w := wire.Baseline{Rev: b.Rev, Dirty: b.Dirty, StampedAt: receipt.Time(at)}
	l := line(b)
	lines, err := e.issuedLines()
	if err != nil || slices.Contains(lines, l) {
		return w
	}
	// Engines of one workspace note at the same time, in one host and in several:
	// whoever writes looks again, alone.
	unlock, err := lock.Short(context.Background(), e.state.Dir())
	if err != nil {
		return w
	}
	defer unlock()
	if lines, err = e.issuedLines(); err != nil || slices.Contains(lines, l) {
		return w
	}
	if len(lines) >= maxIssued {
		lines = lines[len(lines)-maxIssued/2:]
	}
	_ = home.CleanTemp(e.state.Dir()) // of whoever died here, whatever it was writing
	_ = home.WriteFile(e.state.Dir(), issuedFile, []byte(strings.Join(append(lines, l), "\n")+"\n"))
	return w
}

// issued tells whether b was given out.
func (e *Engine) issued(b snapshot.Baseline) (bool, error) {
	lines, err := e.issuedLines()
	if err != nil {
		return false, err
	}
	return slices.Contains(lines, line(b)), nil
}

func (e *Engine) issuedLines() ([]string, error) {
	b, err := home.ReadFile(e.state.Dir(), issuedFile, issuedSize)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, home.ErrTooLarge) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if s := strings.TrimRight(string(b), "\n"); s != "" {
		return strings.Split(s, "\n"), nil
	}
	return nil, nil
}

func line(b snapshot.Baseline) string { return b.Rev + " " + b.Dirty }
