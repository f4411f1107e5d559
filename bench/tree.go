package main

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// repo is a git work tree made for a measurement.
type repo struct {
	dir   string
	home  string // ASP_HOME for it, on the same file system
	files []string
}

func writeFile(name string, b []byte) error {
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	return os.WriteFile(name, b, 0o644)
}

// text makes file i of some kilobytes, the same in every run.
func text(i int) []byte {
	r := rand.New(rand.NewPCG(7, uint64(i)))
	var b bytes.Buffer
	for j := range 20 + r.IntN(160) {
		fmt.Fprintf(&b, "\tvalue%d := compute(%d, %q)\n", j, r.IntN(1000), "abcdefgh"[r.IntN(8):])
	}
	return b.Bytes()
}

// newRepo makes a repository of n files in leaves of 25 and commits it.
func newRepo(dir string, n int) (*repo, error) {
	r := &repo{dir: filepath.Join(dir, "tree"), home: filepath.Join(dir, "home")}
	var failed atomic.Pointer[error]
	for i := range n {
		r.files = append(r.files, fmt.Sprintf("m%02d/pkg%02d/part%d/file%05d.go", i/25%20, i/500%20, i/10000, i))
	}
	each(n, func(i int) {
		if err := writeFile(filepath.Join(r.dir, r.files[i]), text(i)); err != nil {
			failed.Store(&err)
		}
	})
	if err := failed.Load(); err != nil {
		return nil, *err
	}
	return r, r.begin()
}

// newRepoOf is newRepo with files that are named here.
func newRepoOf(dir string, files map[string]string) (*repo, error) {
	r := &repo{dir: filepath.Join(dir, "tree"), home: filepath.Join(dir, "home"), files: slices.Sorted(maps.Keys(files))}
	for name, text := range files {
		if err := writeFile(filepath.Join(r.dir, name), []byte(text)); err != nil {
			return nil, err
		}
	}
	return r, r.begin()
}

// begin makes a repository of what is there.
func (r *repo) begin() error {
	for _, args := range [][]string{{"init", "-q"}, {"config", "gc.auto", "0"}, {"config", "maintenance.auto", "false"}, {"add", "-A"}, {"commit", "-q", "-m", "all"}} {
		if err := r.git(args...); err != nil {
			return err
		}
	}
	return r.settle()
}

// settle lets the index age beyond the tick in which stat data prove nothing.
func (r *repo) settle() error {
	time.Sleep(50 * time.Millisecond)
	return r.git("update-index", "-q", "--refresh")
}

func (r *repo) git(args ...string) error {
	return command(r.dir, nil, append([]string{"git"}, args...)...)()
}

func (r *repo) env() []string { return []string{"ASP_HOME=" + r.home} }

// change is an edit of some files, as a patch and as bytes.
type change struct {
	paths         []string
	before, after [][]byte
	patch         string // file
}

// change makes a patch that replaces one line in n files spread over the tree
// and leaves the tree as it was.
func (r *repo) change(n int) (*change, error) {
	var paths []string
	for k := range n {
		paths = append(paths, r.files[k*len(r.files)/n])
	}
	return r.changeOf(fmt.Sprint("change-", n), paths, func(k int, b []byte) []byte {
		lines := strings.SplitAfter(string(b), "\n")
		lines[len(lines)/2] = fmt.Sprintf("\tchanged%d := true\n", k)
		return []byte(strings.Join(lines, ""))
	})
}

// changeOf makes a patch of what edit does to the paths, and leaves the tree as it
// was.
func (r *repo) changeOf(name string, paths []string, edit func(k int, b []byte) []byte) (*change, error) {
	c := &change{patch: filepath.Join(filepath.Dir(r.dir), name+".patch"), paths: paths}
	for k, p := range paths {
		b, err := os.ReadFile(filepath.Join(r.dir, p))
		if err != nil {
			return nil, err
		}
		c.before, c.after = append(c.before, b), append(c.after, edit(k, b))
	}
	if err := c.write(r, c.after); err != nil {
		return nil, err
	}
	b, err := output(r.dir, "git", "diff")
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(c.patch, b, 0o644); err != nil {
		return nil, err
	}
	if err := c.write(r, c.before); err != nil {
		return nil, err
	}
	return c, r.settle()
}

func (c *change) write(r *repo, to [][]byte) error {
	for i, p := range c.paths {
		if err := os.WriteFile(filepath.Join(r.dir, p), to[i], 0o644); err != nil {
			return err
		}
	}
	return nil
}

// verify says whether the tree holds the after-images: no contender may be fast
// by doing nothing.
func (c *change) verify(r *repo) error {
	for i, p := range c.paths {
		b, err := os.ReadFile(filepath.Join(r.dir, p))
		if err != nil {
			return err
		}
		if !bytes.Equal(b, c.after[i]) {
			return fmt.Errorf("%s was not changed", p)
		}
	}
	return nil
}

// each runs f for 0..n-1 on workers() goroutines.
func each(n int, f func(i int)) {
	var next atomic.Int64
	var wg sync.WaitGroup
	for range workers() {
		wg.Go(func() {
			for {
				lo := int(next.Add(64)) - 64
				if lo >= n {
					return
				}
				for i := lo; i < min(lo+64, n); i++ {
					f(i)
				}
			}
		})
	}
	wg.Wait()
}
