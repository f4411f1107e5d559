package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// place gives a directory on a file system of the kind asked for. For ext4 and
// xfs that is an image mounted over a loop device, which only root can do: the
// file systems people have at hand (without a journal, shared with others) say
// nothing about durability or its price.
func (c *config) place(ctx context.Context, fs string) (dir string, done func(), err error) {
	if fs == "tmpfs" {
		if c.memType != "tmpfs" {
			return "", nil, errors.New("no tmpfs at /dev/shm")
		}
		dir = filepath.Join(c.mem, "mem")
		return dir, func() { os.RemoveAll(dir) }, os.MkdirAll(dir, 0o755)
	}
	if os.Geteuid() != 0 {
		return "", nil, errors.New("mounting an image needs root")
	}
	mkfs, err := exec.LookPath("mkfs." + fs)
	if err != nil {
		return "", nil, fmt.Errorf("mkfs.%s is not installed", fs)
	}
	// The image is on a real disk, not in memory: a barrier should cost what a
	// barrier costs.
	base, err := os.MkdirTemp("/var/tmp", "asp-bench-")
	if err != nil {
		return "", nil, err
	}
	img, mnt := filepath.Join(base, "image"), filepath.Join(base, "mount")
	done = func() { os.RemoveAll(base) }
	defer func() {
		if err != nil {
			done()
		}
	}()
	if err = os.Mkdir(mnt, 0o755); err == nil {
		err = os.WriteFile(img, nil, 0o600)
	}
	if err == nil {
		err = os.Truncate(img, 1<<30)
	}
	quiet := "-q"
	if err == nil {
		err = exec.CommandContext(ctx, mkfs, quiet, img).Run()
	}
	if err == nil {
		var out []byte
		if out, err = exec.CommandContext(ctx, "mount", "-o", "loop", img, mnt).CombinedOutput(); err != nil {
			err = fmt.Errorf("mount: %w: %.200s", err, out)
		}
	}
	if err != nil {
		return "", nil, err
	}
	remove := done
	done = func() {
		for range 20 {
			if exec.Command("umount", mnt).Run() == nil {
				remove()
				return
			}
			time.Sleep(100 * time.Millisecond)
		}
		fmt.Fprintf(os.Stderr, "bench: %s is still mounted\n", mnt)
	}
	return mnt, done, nil
}
