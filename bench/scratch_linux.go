package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/aspengine/asp/sandbox"
	"github.com/aspengine/asp/snapshot"
	"github.com/aspengine/asp/worktree"
)

// scratchRows takes the time from nothing to a first command that has run over
// the after-state of 100 changes, beside git worktree add, which lays in no
// change and runs nothing. Removal is apart, for both.
func (c *config) scratchRows(ctx context.Context) error {
	var overlay []float64
	sizes, many := []int{c.big / 10, c.big}, 30
	if c.form == "full" {
		sizes, many = []int{10000, 100000}, 200 // what the goals are stated for
	}
	for _, n := range sizes {
		r, err := newRepo(filepath.Join(c.mem, fmt.Sprint("scratch-", n)), n)
		if err != nil {
			return err
		}
		defer os.RemoveAll(filepath.Dir(r.dir))
		ch, err := r.change(100)
		if err != nil {
			return err
		}
		scratch := filepath.Join(filepath.Dir(r.dir), "scratch")
		if err := os.MkdirAll(scratch, 0o700); err != nil {
			return err
		}
		caps := sandbox.Probe(ctx, sandbox.ProbeDirs{Lower: r.dir, Scratch: scratch})
		linked := filepath.Join(filepath.Dir(r.dir), "linked")
		cs := []contender{{run: command(r.dir, nil, "git", "worktree", "add", "-q", "--detach", linked),
			after: chain(func() error { return os.RemoveAll(linked) }, func() error { return r.git("worktree", "prune") })}}
		names := []string{"git"}
		if caps.CanOverlay() {
			cs = append(cs, r.scratch(ctx, ch, caps, worktree.Overlay, scratch))
			names = append(names, "overlay")
		} else {
			c.out.note("scratch by overlay is not measured: %s", caps.Missing())
		}
		cs = append(cs, r.scratch(ctx, ch, caps, worktree.Copy, scratch))
		names = append(names, "copy")
		t, err := race(ctx, max(3, c.runs/2|1), cs...)
		if err != nil {
			return err
		}
		for i, name := range names[1:] {
			w := row{Group: "scratch", What: fmt.Sprintf("scratch worktree by %s, %d files, first command run", name, n), Where: c.memType, Unit: "ms", Ours: t[i+1], Peer: t[0], PeerIs: "git worktree add", Runs: max(3, c.runs/2|1)}
			switch {
			case name == "copy":
				c.out.add(w, limit{1.0 / 3, "peer"})
			case n == 100000:
				overlay = append(overlay, w.Ours)
				c.out.add(w, limit{1.0 / 250, "peer"})
			default:
				overlay = append(overlay, w.Ours)
				c.out.add(w)
			}
		}
		if caps.CanOverlay() && n == sizes[1] {
			p50, p99, err := percentiles(ctx, many, r.scratch(ctx, ch, caps, worktree.Overlay, scratch))
			if err != nil {
				return err
			}
			w := row{Group: "scratch", What: fmt.Sprintf("half of %d by overlay, %d files", many, n), Where: c.memType, Unit: "ms", Ours: p50, Runs: many}
			c.out.most(w, 10)
			w.What, w.Ours = fmt.Sprintf("99 in 100 of %d by overlay, %d files", many, n), p99
			c.out.most(w, 25)
		}
	}
	if len(overlay) == 2 {
		c.out.add(row{Group: "scratch", What: fmt.Sprintf("overlay at %d files beside %d files", sizes[1], sizes[0]), Where: c.memType, Unit: "ms", Ours: overlay[1], Peer: overlay[0], PeerIs: "the small one"}, limit{1.3, "peer"})
	}
	return nil
}

func (r *repo) scratch(ctx context.Context, ch *change, caps sandbox.Caps, m worktree.Method, base string) contender {
	var cand *worktree.Candidate
	return contender{
		run: func() error {
			var effects []snapshot.Effect
			for i, p := range ch.paths {
				path, err := snapshot.ParsePath(p)
				if err != nil {
					return err
				}
				effects = append(effects, snapshot.Effect{Path: path, Digest: snapshot.DigestOf(ch.after[i]), Size: int64(len(ch.after[i])), Mode: snapshot.ModeRegular,
					Open: func() (snapshot.ReadCloser, error) { return reader(ch.after[i]), nil }})
			}
			git := filepath.Join(r.dir, ".git")
			var err error
			cand, err = worktree.Build(ctx, worktree.Spec{Root: r.dir, GitDir: git, CommonDir: git, Effects: effects, ScratchBase: base, Caps: caps, Method: m})
			if err != nil {
				return err
			}
			s := cand.Sandbox(nil)
			s.Argv, s.Require, s.Env["PATH"] = []string{"true"}, sandbox.Advisory, os.Getenv("PATH")
			res, err := sandbox.Run(ctx, cand.Caps, s)
			if err == nil && res.ExitCode != 0 {
				err = fmt.Errorf("the command ended with %d", res.ExitCode)
			}
			return err
		},
		after: func() error {
			if cand == nil {
				return errors.New("no candidate")
			}
			return cand.Close()
		},
	}
}

func reader(b []byte) io.ReadCloser { return io.NopCloser(bytes.NewReader(b)) }
