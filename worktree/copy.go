//go:build linux

package worktree

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"sort"
	"strings"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// copier copies one directory tree with several workers. Every name is opened
// relative to the tree's own descriptor and no link is followed, so a directory
// swapped for a link under our hands leads nowhere. Files get new inodes, always:
// a hard link would let a check edit the user's file.
type copier struct {
	src, dst string
	skip     func(rel string) bool
	limit    int64

	srcFD, dstFD int
	bytes        atomic.Int64

	mu      sync.Mutex
	cond    *sync.Cond
	queue   []string // directories to copy
	pending int      // queued or being copied
	err     error
	dirs    []copiedDir
	notes   []string
}

type copiedDir struct {
	rel  string
	mode uint32
	uid  int
	gid  int
	time [2]unix.Timespec
}

const maxNotes = 20

// copyTree copies src into the existing empty directory dst. Directories are
// left writable; finish gives them their modes and times when everything that
// belongs into them is there.
func copyTree(ctx context.Context, src, dst string, workers int, limit int64, skip func(string) bool) (*copier, error) {
	c := &copier{src: src, dst: dst, skip: skip, limit: limit, pending: 1, queue: []string{"."}}
	c.cond = sync.NewCond(&c.mu)
	var err error
	if c.srcFD, err = unix.Open(src, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0); err != nil {
		return nil, &fs.PathError{Op: "open", Path: src, Err: err}
	}
	defer unix.Close(c.srcFD)
	if c.dstFD, err = unix.Open(dst, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0); err != nil {
		return nil, &fs.PathError{Op: "open", Path: dst, Err: err}
	}
	defer unix.Close(c.dstFD)
	if workers <= 0 {
		workers = max(2, runtime.GOMAXPROCS(0))
	}
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() { c.work(ctx) })
	}
	wg.Wait()
	if c.err != nil {
		return nil, c.err
	}
	sort.Strings(c.notes)
	return c, nil
}

func (c *copier) work(ctx context.Context) {
	for {
		c.mu.Lock()
		for len(c.queue) == 0 && c.pending > 0 && c.err == nil {
			c.cond.Wait()
		}
		if c.pending == 0 || c.err != nil {
			c.mu.Unlock()
			return
		}
		rel := c.queue[len(c.queue)-1] // last first: the queue stays short
		c.queue = c.queue[:len(c.queue)-1]
		c.mu.Unlock()

		sub, err := c.copyDir(ctx, rel)
		c.mu.Lock()
		if err != nil && c.err == nil {
			c.err = err
		}
		c.queue = append(c.queue, sub...)
		c.pending += len(sub) - 1
		c.cond.Broadcast()
		c.mu.Unlock()
	}
}

func (c *copier) note(format string, a ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case len(c.notes) < maxNotes:
		c.notes = append(c.notes, fmt.Sprintf(format, a...))
	case len(c.notes) == maxNotes:
		c.notes = append(c.notes, "~ further names were left out")
	}
}

var beneath = unix.OpenHow{
	Flags:   unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC,
	Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
}

// copyDir copies the names in one directory and returns its subdirectories, made
// but not filled.
func (c *copier) copyDir(ctx context.Context, rel string) ([]string, error) {
	how := beneath
	from, err := unix.Openat2(c.srcFD, rel, &how)
	if err == unix.EACCES {
		c.note("%.200q: directory cannot be read, left empty", rel)
		return nil, nil
	}
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: filepath.Join(c.src, rel), Err: err}
	}
	defer unix.Close(from)
	to, err := unix.Openat2(c.dstFD, rel, &how)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: filepath.Join(c.dst, rel), Err: err}
	}
	defer unix.Close(to)
	names, err := readNames(from)
	if err != nil {
		return nil, &fs.PathError{Op: "list", Path: filepath.Join(c.src, rel), Err: err}
	}
	var sub []string
	for _, n := range names {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		p := filepath.Join(rel, n)
		if c.skip != nil && c.skip(p) {
			continue
		}
		isDir, err := c.copyName(from, to, n, p)
		if err == unix.ENOENT {
			continue // gone meanwhile; the stamp after the check sees it
		}
		if err != nil {
			return nil, &fs.PathError{Op: "copy", Path: filepath.Join(c.src, p), Err: err}
		}
		if isDir {
			sub = append(sub, p)
		}
	}
	return sub, nil
}

func (c *copier) copyName(from, to int, n, rel string) (isDir bool, err error) {
	var st unix.Stat_t
	if err := unix.Fstatat(from, n, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return false, err
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		if err := unix.Mkdirat(to, n, 0o700); err != nil {
			return false, err
		}
		c.mu.Lock()
		c.dirs = append(c.dirs, copiedDir{rel, st.Mode & 0o7777, int(st.Uid), int(st.Gid), [2]unix.Timespec{st.Atim, st.Mtim}})
		c.mu.Unlock()
		return true, nil
	case unix.S_IFLNK:
		buf := make([]byte, unix.PathMax)
		k, err := unix.Readlinkat(from, n, buf)
		if err != nil {
			return false, err
		}
		return false, unix.Symlinkat(string(buf[:k]), to, n)
	case unix.S_IFREG:
		err := c.copyFile(from, to, n, st)
		if err == unix.EACCES {
			c.note("%.200q: cannot be read, left out", rel)
			return false, nil
		}
		return false, err
	}
	c.note("%.200q: no file, link or directory, left out", rel)
	return false, nil
}

func (c *copier) copyFile(from, to int, n string, st unix.Stat_t) error {
	// NONBLOCK: should the name have become a FIFO since, opening must not hang.
	in, err := unix.Openat(from, n, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(in)
	if err := unix.Fstat(in, &st); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return unix.ENOENT
	}
	if total := c.bytes.Add(st.Size); c.limit > 0 && total > c.limit {
		return fmt.Errorf("%w of %d bytes", ErrTooLarge, c.limit)
	}
	out, err := unix.Openat(to, n, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	defer unix.Close(out)
	if err := copyBytes(in, out); err != nil {
		return err
	}
	if os.Geteuid() == 0 && (st.Uid != 0 || st.Gid != 0) {
		_ = unix.Fchown(out, int(st.Uid), int(st.Gid))
	}
	if err := unix.Fchmod(out, st.Mode&0o7777); err != nil {
		return err
	}
	// Build tools compare times.
	return unix.UtimesNanoAt(to, n, []unix.Timespec{st.Atim, st.Mtim}, unix.AT_SYMLINK_NOFOLLOW)
}

// copyBytes lets the kernel copy, which shares extents where the file system
// can, and falls back to reading and writing where it will not.
func copyBytes(in, out int) error {
	const chunk = 1 << 30
	started := false
	for {
		k, err := unix.CopyFileRange(in, nil, out, nil, chunk, 0)
		if err == unix.EINTR {
			continue
		}
		if err != nil && !started {
			f, g := dupFile(in), dupFile(out)
			if f != nil && g != nil {
				// Bare interfaces: io.Copy must not try the same call again.
				_, err = io.Copy(struct{ io.Writer }{g}, struct{ io.Reader }{f})
			}
			return errors.Join(err, f.Close(), g.Close())
		}
		if err != nil || k == 0 {
			return err
		}
		started = true
	}
}

func dupFile(fd int) *os.File {
	d, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	return os.NewFile(uintptr(d), "copy")
}

// finish gives the copied directories their modes, owners and times, inner ones
// first, as far as they are still there.
func (c *copier) finish() error {
	sort.Slice(c.dirs, func(i, j int) bool {
		return strings.Count(c.dirs[i].rel, "/") > strings.Count(c.dirs[j].rel, "/")
	})
	for _, d := range c.dirs {
		if err := c.finishDir(d); err != nil {
			return &fs.PathError{Op: "finish", Path: filepath.Join(c.dst, d.rel), Err: err}
		}
	}
	return nil
}

// finishDir goes through no link: the plan may have put one where a directory was
// copied, and what it leads to is not ours.
func (c *copier) finishDir(d copiedDir) error {
	fd, err := openBelow(c.dst, d.rel, unix.O_RDONLY)
	if err == unix.ENOENT || err == unix.ENOTDIR || err == unix.ELOOP {
		return nil // gone, or something else by now
	}
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if os.Geteuid() == 0 && (d.uid != 0 || d.gid != 0) {
		_ = unix.Fchown(fd, d.uid, d.gid)
	}
	if err := unix.Fchmod(fd, d.mode); err != nil {
		return err
	}
	return unix.UtimesNanoAt(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", fd), d.time[:], 0)
}

// layOver puts the after-state into a copy.
func layOver(lo *layout, tree string) error {
	for _, rel := range lo.remove {
		// What was a directory when the plan was worked out may have been copied as a
		// link since, and must not lead out of the copy.
		if err := removeBelow(tree, rel); err != nil {
			return err
		}
	}
	for _, e := range lo.write {
		p := filepath.Join(tree, e.Path.String())
		if err := makeDirs(tree, filepath.Dir(e.Path.String()), lo); err != nil {
			return err
		}
		if err := removeTree(filepath.Dir(p), filepath.Base(p)); err != nil {
			return err
		}
		at := target{dir: unix.AT_FDCWD, name: p}
		if st, err := lo.live.lstat(e.Path.String()); err == nil {
			at.now = &st
		}
		if err := lo.put(e, at); err != nil {
			return err
		}
	}
	return nil
}

// makeDirs makes the directories of rel below tree; a file in the way goes (the
// plan turned it into a directory), a link is refused.
func makeDirs(tree, rel string, lo *layout) error {
	if rel == "." {
		return nil
	}
	if err := makeDirs(tree, filepath.Dir(rel), lo); err != nil {
		return err
	}
	p := filepath.Join(tree, rel)
	st, err := os.Lstat(p)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return os.Mkdir(p, 0o777)
	case err != nil:
		return err
	case st.IsDir():
		return nil
	case st.Mode()&fs.ModeSymlink != 0 && !lo.gone[rel]:
		return fmt.Errorf("make directory %.200q: the live tree has a link there", rel)
	}
	if err := os.Remove(p); err != nil {
		return err
	}
	return os.Mkdir(p, 0o777)
}
