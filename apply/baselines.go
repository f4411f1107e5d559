package apply

import (
	"context"
	"errors"
	"fmt"
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
// a line, oldest first, after a line with its format; one that begins with a baseline
// is from before there was such a line. Only the host issues baselines, so a plan on any other
// is refused. It is small on purpose; a plan on a baseline older than the last
// few thousand is better made again.
const (
	issuedFile   = "baselines"
	issuedFormat = "format 1"
	maxIssued    = 4096
	issuedSize   = 1 << 20
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
	_ = home.WriteFile(e.state.Dir(), issuedFile, []byte(strings.Join(append(append([]string{issuedFormat}, lines...), l), "\n")+"\n"))
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
	s := strings.TrimRight(string(b), "\n")
	if s == "" {
		return nil, nil
	}
	lines := strings.Split(s, "\n")
	if strings.HasPrefix(lines[0], "format ") { // no baseline is written so
		if lines[0] != issuedFormat {
			return nil, fmt.Errorf("read %s: %.20q is not known; a newer program wrote it", e.state.Path(issuedFile), lines[0])
		}
		lines = lines[1:]
	}
	return lines, nil
}

func line(b snapshot.Baseline) string { return b.Rev + " " + b.Dirty }
