package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/aspengine/asp/apply/commit"
	"github.com/aspengine/asp/internal/home"
	"github.com/aspengine/asp/internal/vfs"
	"github.com/aspengine/asp/snapshot"
)

// aside is where the floor stages its files, as the engine does.
func (r *repo) aside() string { return filepath.Join(r.dir, ".git", "floor") }

// floor is the least that is safe against a power cut: write the new files
// aside, one syncfs, exchange all, one syncfs. It compares nothing, journals
// nothing and cannot be undone after a crash.
func (ch *change) floor(root vfs.Dir, r *repo) error {
	if err := os.Mkdir(r.aside(), 0o700); err != nil {
		return err
	}
	dir, err := unix.Open(r.dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	aside, err := unix.Open(r.aside(), unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(aside)
	for i := range ch.paths {
		fd, err := unix.Openat(aside, fmt.Sprint(i), unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC, 0o644)
		if err != nil {
			return err
		}
		_, err = unix.Write(fd, ch.after[i])
		unix.Close(fd)
		if err != nil {
			return err
		}
	}
	if err := root.SyncFS(); err != nil {
		return err
	}
	for i, p := range ch.paths {
		if err := unix.Renameat2(aside, fmt.Sprint(i), dir, p, unix.RENAME_EXCHANGE); err != nil {
			return err
		}
	}
	return root.SyncFS()
}

// commit runs the engine's commit room alone over the change.
func (ch *change) commit(ctx context.Context, root vfs.Dir, r *repo, style commit.SyncStyle) error {
	var cs []commit.Change
	for i, p := range ch.paths {
		path, err := snapshot.ParsePath(p)
		if err != nil {
			return err
		}
		before := &commit.Image{Kind: vfs.KindFile, Digest: snapshot.DigestOf(ch.before[i]), Size: int64(len(ch.before[i])), Perm: 0o644}
		after := &commit.Image{Kind: vfs.KindFile, Digest: snapshot.DigestOf(ch.after[i]), Size: int64(len(ch.after[i])), Perm: 0o644,
			Open: func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(ch.after[i])), nil }}
		cs = append(cs, commit.Change{Path: path, Before: before, After: after})
	}
	res, err := commit.Run(ctx, commit.Env{FS: vfs.OS{}, Root: root, TxDir: filepath.Join(r.dir, ".git", "asp")}, "bench-"+home.Random(8), cs, commit.Options{Sync: style})
	if err == nil && res.Outcome != commit.Committed {
		err = fmt.Errorf("outcome %s: %v", res.Outcome, res.Items)
	}
	return err
}

// lstatAll is the floor of a stamp: one lstat for each tracked file.
func (r *repo) lstatAll() error {
	var bad atomic.Int64
	dir, err := unix.Open(r.dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	each(len(r.files), func(i int) {
		var st unix.Stat_t
		if unix.Fstatat(dir, r.files[i], &st, unix.AT_SYMLINK_NOFOLLOW) != nil {
			bad.Add(1)
		}
	})
	if n := bad.Load(); n > 0 {
		return fmt.Errorf("%d files are missing", n)
	}
	return nil
}

// hashAll is the floor of a stamp by content: open, read and SHA-256.
func (r *repo) hashAll() error {
	var bad atomic.Int64
	each(len(r.files), func(i int) {
		b, err := os.ReadFile(filepath.Join(r.dir, r.files[i]))
		if err != nil {
			bad.Add(1)
			return
		}
		sha256.Sum256(b)
	})
	if n := bad.Load(); n > 0 {
		return fmt.Errorf("%d files cannot be read", n)
	}
	return nil
}

var fsNames = map[int64]string{0x01021994: "tmpfs", 0xEF53: "ext4", 0x58465342: "xfs", 0x9123683E: "btrfs", 0x794c7630: "overlay"}

func fsType(dir string) string {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return "unknown"
	}
	if n, ok := fsNames[st.Type]; ok {
		return n
	}
	return fmt.Sprintf("%#x", st.Type)
}

func kernel() string {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return "unknown kernel"
	}
	return "Linux " + unix.ByteSliceToString(u.Release[:])
}
