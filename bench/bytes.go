package main

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// bytesRows measures what stays on disk: what one apply adds under ASP_HOME
// against the bytes of the files that it changed, and what many leave.
func (c *config) bytesRows(ctx context.Context) error {
	for _, n := range c.sizes {
		r, err := newRepo(filepath.Join(c.mem, fmt.Sprint("bytes-", n)), max(c.small, 2*n))
		if err != nil {
			return err
		}
		defer os.RemoveAll(filepath.Dir(r.dir))
		ch, err := r.change(n)
		if err != nil {
			return err
		}
		run := command(r.dir, r.env(), c.asp, "apply", "--patch", ch.patch)
		// The first two make the state itself: two heads of the chain of
		// receipts, which later ones replace in turn.
		if err := chain(run, r.restore(ch), run, r.restore(ch))(); err != nil {
			return err
		}
		before, err := kept(r.home)
		if err != nil {
			return err
		}
		if err := run(); err != nil {
			return err
		}
		after, err := kept(r.home)
		if err != nil {
			return err
		}
		var changed int64
		for _, b := range ch.before {
			changed += int64(len(b))
		}
		c.out.most(row{Group: "bytes", What: fmt.Sprintf("bytes kept by an apply of %d changes (%s changed)", n, number(float64(changed), "B")), Where: c.memType, Unit: "B", Ours: float64(after - before), Runs: 1},
			1.2*float64(changed)+64<<10)
	}
	return c.manyRow(ctx)
}

// manyRow applies over and over and compares the two halves: what is bounded
// grows no faster later than at first.
func (c *config) manyRow(ctx context.Context) error {
	r, err := newRepo(filepath.Join(c.mem, "many"), 50)
	if err != nil {
		return err
	}
	defer os.RemoveAll(filepath.Dir(r.dir))
	ch, err := r.change(1)
	if err != nil {
		return err
	}
	back := filepath.Join(filepath.Dir(r.dir), "back.patch")
	b, err := os.ReadFile(ch.patch)
	if err != nil {
		return err
	}
	if err := os.WriteFile(back, reversed(b), 0o644); err != nil {
		return err
	}
	patches := []string{ch.patch, back}
	var half int64
	for i := range c.keep {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := command(r.dir, r.env(), c.asp, "apply", "--patch", patches[i%2])(); err != nil {
			return err
		}
		if i == c.keep/2-1 {
			if half, err = kept(r.home); err != nil {
				return err
			}
		}
	}
	all, err := kept(r.home)
	if err != nil {
		return err
	}
	// Whatever is done how often, the retention of receipts (64 MiB, 2000 of
	// them) and of pre-images (512 transactions) holds. These are small.
	const bound = 64 << 20
	c.out.most(row{Group: "bytes", What: fmt.Sprintf("bytes kept after %d applies (%s after half of them)", c.keep, number(float64(half), "B")), Where: c.memType, Unit: "B", Ours: float64(all), Runs: 1}, bound)
	return nil
}

// reversed turns a patch of replaced lines around.
func reversed(b []byte) []byte {
	lines := strings.SplitAfter(string(b), "\n")
	for i := 0; i < len(lines); i++ {
		switch {
		case strings.HasPrefix(lines[i], "index "):
			lines[i] = ""
		case strings.HasPrefix(lines[i], "-") && !strings.HasPrefix(lines[i], "--- ") && i+1 < len(lines) && strings.HasPrefix(lines[i+1], "+"):
			lines[i], lines[i+1] = "-"+lines[i+1][1:], "+"+lines[i][1:]
			i++
		}
	}
	return []byte(strings.Join(lines, ""))
}

// kept adds up the files below dir, by their sizes.
func kept(dir string) (int64, error) {
	var n int64
	err := filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		fi, err := d.Info()
		if err == nil {
			n += fi.Size()
		}
		return err
	})
	return n, err
}
