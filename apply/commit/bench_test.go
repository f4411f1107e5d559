//go:build linux

package commit_test

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/aspengine/asp/apply/commit"
	"github.com/aspengine/asp/internal/vfs"
	"github.com/aspengine/asp/snapshot"
)

// BenchmarkReplace measures a transaction that replaces N files of 4 KiB beside
// the floor of anything crash-safe: write aside, one syncfs, exchange all, one
// syncfs. The two take turns, and the medians and their ratio are reported; the
// time per loop means nothing. BENCH_DIR names a directory on the file system to
// measure, TMPDIR serves otherwise.
func BenchmarkReplace(b *testing.B) {
	for _, n := range []int{1, 10, 100, 1000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			g := newBenchTree(b, n)
			var floor, tx []time.Duration
			round := 0
			for b.Loop() {
				for _, f := range []struct {
					run func()
					to  *[]time.Duration
				}{{func() { g.floor(b) }, &floor}, {func() { g.transaction(b, round) }, &tx}} {
					round++
					g.next(round)
					began := time.Now()
					f.run()
					*f.to = append(*f.to, time.Since(began))
					g.settle(b)
				}
			}
			slices.Sort(floor)
			slices.Sort(tx)
			fl, t := floor[len(floor)/2], tx[len(tx)/2]
			b.ReportMetric(float64(fl.Microseconds()), "floor-µs")
			b.ReportMetric(float64(t.Microseconds()), "tx-µs")
			b.ReportMetric(float64(t)/float64(fl), "ratio")
		})
	}
}

type benchTree struct {
	dir    string
	root   vfs.Dir
	paths  []string
	bodies [][]byte
	now    []*commit.Image
	then   []*commit.Image
}

func newBenchTree(b *testing.B, n int) *benchTree {
	at := os.Getenv("BENCH_DIR")
	if at == "" {
		at = os.TempDir()
	}
	dir, err := os.MkdirTemp(at, "bench")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { os.RemoveAll(dir) })
	g := &benchTree{dir: dir}
	if err := os.Mkdir(filepath.Join(dir, ".git"), 0o755); err != nil {
		b.Fatal(err)
	}
	for i := range n {
		p := fmt.Sprintf("d%d/f%d.go", i%max(1, n/10), i)
		g.paths = append(g.paths, p)
		os.MkdirAll(filepath.Join(dir, filepath.Dir(p)), 0o755)
		text := body(i, -1)
		if err := os.WriteFile(filepath.Join(dir, p), text, 0o644); err != nil {
			b.Fatal(err)
		}
		g.now = append(g.now, fileImage(text))
	}
	if g.root, err = (vfs.OS{}).OpenRoot(dir); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { g.root.Close() })
	g.root.SyncFS()
	return g
}

func body(i, round int) []byte {
	return []byte(strings.Repeat(fmt.Sprintf("line of file %d in round %d\n", i, round), 150))
}

func fileImage(b []byte) *commit.Image {
	return &commit.Image{Kind: vfs.KindFile, Digest: snapshot.DigestOf(b), Size: int64(len(b)), Perm: 0o644,
		Open: func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(string(b))), nil }}
}

func (g *benchTree) next(round int) {
	g.then, g.bodies = nil, nil
	for i := range g.paths {
		t := body(i, round)
		g.bodies = append(g.bodies, t)
		g.then = append(g.then, fileImage(t))
	}
}

func (g *benchTree) settle(b *testing.B) {
	g.now = g.then
	os.RemoveAll(filepath.Join(g.dir, ".git", "floor"))
	g.root.SyncFS()
}

func (g *benchTree) floor(b *testing.B) {
	aside := filepath.Join(g.dir, ".git", "floor")
	if err := os.Mkdir(aside, 0o700); err != nil {
		b.Fatal(err)
	}
	for i := range g.paths {
		fd, err := unix.Open(fmt.Sprintf("%s/%d", aside, i), unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC, 0o644)
		if err != nil {
			b.Fatal(err)
		}
		unix.Write(fd, g.bodies[i])
		unix.Close(fd)
	}
	g.root.SyncFS()
	for i, p := range g.paths {
		if err := unix.Renameat2(unix.AT_FDCWD, fmt.Sprintf("%s/%d", aside, i), unix.AT_FDCWD, g.dir+"/"+p, unix.RENAME_EXCHANGE); err != nil {
			b.Fatal(err)
		}
	}
	g.root.SyncFS()
}

func (g *benchTree) transaction(b *testing.B, round int) {
	var cs []commit.Change
	for i, p := range g.paths {
		before := *g.now[i]
		before.Open = nil
		cs = append(cs, commit.Change{Path: path(b, p), Before: &before, After: g.then[i]})
	}
	e := commit.Env{FS: vfs.OS{}, Root: g.root, TxDir: filepath.Join(g.dir, ".git", "asp")}
	r, err := commit.Run(context.Background(), e, fmt.Sprintf("tx%d", round), cs, commit.Options{Sync: commit.SyncFS})
	if err != nil || r.Outcome != commit.Committed {
		b.Fatal(r.Outcome, r.Items, err)
	}
}
