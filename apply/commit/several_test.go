package commit_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/aspengine/asp/apply/commit"
	"github.com/aspengine/asp/internal/vfs/faultfs"
)

// TestManyErrorsShortText: a disk that fails for the rest of the run fails at every
// step that is to be undone. The message names a few and counts the others, and all of
// them can be asked for.
func TestManyErrorsShortText(t *testing.T) {
	const files, good = 60, 30
	before, cs := tree{}, []commit.Change(nil)
	for i := range files {
		p := fmt.Sprintf("f%03d", i)
		before[p] = file(0o644, "old")
		cs = append(cs, modify(t, p, before[p], file(0o644, "new")))
	}
	w := newWorld(t, before)
	n := 0
	e, done := w.mustEnv(faultfs.New(w.fs, func(e faultfs.Event) faultfs.Fault {
		if e.Op != faultfs.Exchange {
			return faultfs.Fault{}
		}
		switch n++; {
		case n <= good:
			return faultfs.Fault{}
		case n == files: // the last of those that are undone
			return faultfs.Fault{Err: unix.EIO}
		}
		return faultfs.Fault{Err: unix.ENOSPC}
	}))
	defer done()
	r, err := runIn(e, "tx1", cs, commit.Options{})
	if err == nil || r.Outcome != commit.NeedsAttention {
		t.Fatal(r.Outcome, err)
	}
	text := err.Error()
	// What began it, five of the undo, and the count of the rest.
	if lines := strings.Count(text, "\n") + 1; lines > 7 || strings.Count(text, "no space left") > 6 {
		t.Errorf("%d lines:\n%s", lines, text)
	}
	if want := fmt.Sprintf("and %d more", n-1-good-5); !strings.HasSuffix(text, want) {
		t.Errorf("no %q at the end:\n%s", want, text)
	}
	if !errors.Is(err, unix.ENOSPC) || !errors.Is(err, unix.EIO) || strings.Contains(text, unix.EIO.Error()) {
		t.Errorf("EIO is not among the errors, or among those that are shown:\n%s", text)
	}
}
