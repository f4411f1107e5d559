package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/aspengine/asp/internal/vfs"
	"github.com/aspengine/asp/snapshot"
	"github.com/aspengine/asp/snapshot/gitbase"
)

// stampRows measures a look at the whole workspace in this process. Opening the
// repository and loading the stat cache are part of it, as git's are of its.
func (c *config) stampRows(ctx context.Context) error {
	r, err := newRepo(filepath.Join(c.mem, "stamp"), c.big)
	if err != nil {
		return err
	}
	defer os.RemoveAll(filepath.Dir(r.dir))
	if err := os.MkdirAll(r.home, 0o700); err != nil {
		return err
	}
	state, err := vfs.OS{}.OpenRoot(r.home)
	if err != nil {
		return err
	}
	defer state.Close()
	stamp := func(content bool, dirty int) func() error {
		return func() (err error) {
			ws, err := gitbase.Open(ctx, r.dir, snapshot.Options{State: state})
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, ws.Close()) }()
			s, err := ws.Stamp(ctx, snapshot.StampOptions{Content: content})
			if err != nil {
				return err
			}
			if len(s.Overlay) != dirty {
				return fmt.Errorf("%d paths differ, not %d", len(s.Overlay), dirty)
			}
			return nil
		}
	}
	status := command(r.dir, nil, "git", "--no-optional-locks", "status", "--porcelain=v2", "-uall")
	for _, dirty := range []int{0, 100} {
		if dirty > 0 {
			for k := range dirty {
				p := filepath.Join(r.dir, r.files[k*len(r.files)/dirty])
				f, err := os.OpenFile(p, os.O_APPEND|os.O_WRONLY, 0)
				if err != nil {
					return err
				}
				_, err = f.WriteString("// dirty\n")
				if err = errors.Join(err, f.Close()); err != nil {
					return err
				}
			}
			if err := r.settle(); err != nil {
				return err
			}
		}
		t, err := race(ctx, c.runs, contender{run: stamp(false, dirty)}, contender{run: status}, contender{run: r.lstatAll})
		if err != nil {
			return err
		}
		c.out.add(row{Group: "stamp", What: fmt.Sprintf("stamp of %d files, %d dirty", c.big, dirty), Where: c.memType, Unit: "ms", Ours: t[0], Peer: t[1], PeerIs: "git status", Floor: t[2], FloorIs: "parallel lstat"},
			limit{1, "peer"}, limit{2.5, "floor"})
	}
	t, err := race(ctx, c.runs, contender{run: stamp(true, 100)}, contender{run: r.hashAll})
	if err != nil {
		return err
	}
	c.out.add(row{Group: "stamp", What: fmt.Sprintf("stamp of %d files by content", c.big), Where: c.memType, Unit: "ms", Ours: t[0], Floor: t[1], FloorIs: "open, read, SHA-256"}, limit{1.2, "floor"})
	return nil
}

// growthRows measures what the size of the workspace adds to a small apply.
func (c *config) growthRows(ctx context.Context) error {
	var rs []*repo
	var cs []contender
	for _, n := range []int{c.small, c.big} {
		r, err := newRepo(filepath.Join(c.mem, fmt.Sprint("growth-", n)), n)
		if err != nil {
			return err
		}
		defer os.RemoveAll(filepath.Dir(r.dir))
		ch, err := r.change(1)
		if err != nil {
			return err
		}
		rs = append(rs, r)
		cs = append(cs, contender{run: command(r.dir, r.env(), c.asp, "apply", "--patch", ch.patch), after: r.restore(ch)})
	}
	big := rs[1]
	cs = append(cs, contender{run: big.lstatAll}, contender{run: command(big.dir, nil, "git", "--no-optional-locks", "status", "--porcelain=v2", "-uall")})
	t, err := race(ctx, c.runs, cs...)
	if err != nil {
		return err
	}
	c.out.add(row{Group: "growth", What: fmt.Sprintf("apply of 1 change, %d files", c.small), Where: c.memType, Unit: "ms", Ours: t[0]})
	c.out.add(row{Group: "growth", What: fmt.Sprintf("apply of 1 change, %d files", c.big), Where: c.memType, Unit: "ms", Ours: t[1]})
	c.out.add(row{Group: "growth", What: "… the difference is the walk", Where: c.memType, Unit: "ms", Ours: max(0, t[1]-t[0]), Peer: t[3], PeerIs: "git status", Floor: t[2], FloorIs: "parallel lstat"},
		limit{1, "peer"}, limit{2.5, "floor"})
	return nil
}
