package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
)

// startRows measures what a person waits for when nothing much is to be done.
func (c *config) startRows(ctx context.Context) error {
	t, err := race(ctx, 3*c.runs, contender{run: command(c.mem, nil, c.asp, "--version")}, contender{run: command(c.mem, nil, c.empty)})
	if err != nil {
		return err
	}
	c.out.add(row{Group: "start", What: "asp --version", Where: c.memType, Unit: "ms", Ours: t[0], Peer: t[1], PeerIs: "an empty Go program", Runs: 3 * c.runs}, limit{2, "peer"})
	r, err := newRepo(filepath.Join(c.mem, "start"), c.medium)
	if err != nil {
		return err
	}
	defer os.RemoveAll(filepath.Dir(r.dir))
	t, err = race(ctx, c.runs, contender{run: command(r.dir, r.env(), c.asp, "status")}, contender{run: command(r.dir, nil, "git", "--no-optional-locks", "status", "--porcelain=v2", "-uall")})
	if err != nil {
		return err
	}
	c.out.most(row{Group: "start", What: fmt.Sprintf("asp status, %d files", c.medium), Where: c.memType, Unit: "ms", Ours: t[0], Peer: t[1], PeerIs: "git status"}, 150)
	return nil
}
