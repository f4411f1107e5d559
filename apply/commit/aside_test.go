package commit_test

import (
	"context"
	"errors"
	"io"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/aspengine/asp/apply/commit"
	"github.com/aspengine/asp/internal/vfs"
	"github.com/aspengine/asp/internal/vfs/faultfs"
	"github.com/aspengine/asp/internal/vfs/memfs"
)

// asides are the scenarios that exchange where that can be done, on a system where
// it cannot. All of them in the long form; they differ in nothing else.
func asides(t testing.TB) []scenario {
	var out []scenario
	for _, s := range scenarios() {
		s.aside = true
		w := s.world(t)
		e, done := w.mustEnv(w.fs)
		f, err := commit.Forecast(t.Context(), e, s.changes(t), commit.Options{})
		done()
		if err != nil {
			t.Fatal(err)
		}
		if f.Replaced > 0 || s.name == "file becomes directory" || long() {
			out = append(out, s)
		}
	}
	if len(out) < 6 {
		t.Fatalf("%d scenarios replace a path", len(out))
	}
	return out
}

// TestAside: without an exchange every scenario comes to the same end, by no other
// rename than those that overwrite nothing, and less is promised.
func TestAside(t *testing.T) { runScenarios(t, replacing(t), commit.RollbackAttempted) }

func replacing(t testing.TB) (out []scenario) {
	for _, s := range asides(t) {
		if s.name != "file becomes directory" {
			out = append(out, s)
		}
	}
	return out
}

// TestAsideSweep stops the process, and the power, at each operation: what is
// recovered is wholly as before or wholly as after.
func TestAsideSweep(t *testing.T) {
	t.Run("deaths", func(t *testing.T) { deathSweep(t, asides(t)) })
	t.Run("power cuts", func(t *testing.T) { powerCutSweep(t, asides(t)) })
	t.Run("faults", func(t *testing.T) { faultSweep(t, asides(t), []error{unix.EIO}) })
}

// TestAsideStranger: what somebody writes to the name in the moment in which it is
// absent is not overwritten, the old bytes are kept, the path waits for a person once,
// and either choice leaves what it says.
func TestAsideStranger(t *testing.T) {
	for _, keep := range []commit.Keep{commit.KeepMine, commit.KeepTheirs} {
		s := scenarioNamed(t, "modify")
		s.aside = true
		w := s.world(t)
		wrote := false
		ff := faultfs.New(w.fs, func(e faultfs.Event) faultfs.Fault {
			// The second rename of the swap puts the new file.
			if e.Op == faultfs.NoReplace && !wrote && state(t, w.fs)["a"] == "" {
				wrote = true
				w.put("a", file(0o644, "stranger\n"))
			}
			return faultfs.Fault{}
		})
		r, _, err := attempt(t, w, ff, s, commit.SyncEach)
		if !wrote || err != nil || r.Outcome != commit.NeedsAttention || len(r.Paths) != 1 || r.Paths[0].Path != "a" || !r.Paths[0].Kept {
			t.Fatalf("wrote %v: %v %v %+v", wrote, r.Outcome, err, r.Paths)
		}
		e, done := w.mustEnv(w.fs)
		defer done()
		saved := ""
		err = commit.Resolve(context.Background(), e, "a", keep, func(_ commit.PreImage, r io.Reader) error {
			b, err := io.ReadAll(r)
			saved = string(b)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		want, kept := file(0o644, "stranger\n"), "a old\n" // what goes is saved
		if keep == commit.KeepTheirs {
			want, kept = s.before["a"], "stranger\n"
		}
		if got := state(t, w.fs)["a"]; got != want || saved != kept {
			t.Errorf("%v: %q is there, %q was saved", keep, got, saved)
		}
		if l := leftovers(t, w.fs); len(l) > 0 {
			t.Errorf("left over: %v", l)
		}
	}
}

// TestAsideOnlyWhereItMust: a file system that lacks the exchange on a system that has
// one is refused as before, and where there is one no path is ever absent.
func TestAsideOnlyWhereItMust(t *testing.T) {
	s := scenarioNamed(t, "modify")
	w := newWorldOn(t, memfs.New(memfs.Options{Umask: 0o022, NoExchange: true}), s.before)
	e, done := w.mustEnv(w.fs)
	defer done()
	e.Probe = func(vfs.Dir) (commit.MountFacts, error) { return commit.MountFacts{Type: "odd"}, nil }
	r, err := runIn(e, "tx1", s.changes(t), commit.Options{})
	if r.Outcome != commit.Refused || !errors.Is(err, commit.ErrPrimitive) {
		t.Errorf("%v, %v", r.Outcome, err)
	}
	same(t, "refused", state(t, w.fs), s.before)
}
