package gitbase_test

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/aspengine/asp/internal/vfs"
	"github.com/aspengine/asp/snapshot"
	"github.com/aspengine/asp/snapshot/gitbase"
)

// grow makes a repository of n files, 25 in a directory, about 4 KiB each.
// Benchmarks want TMPDIR on tmpfs.
func grow(b *testing.B, n int) tree {
	b.Helper()
	r := newRepo(b)
	rnd := rand.New(rand.NewPCG(1, uint64(n)))
	chunk := make([]byte, 64<<10)
	for i := range chunk {
		chunk[i] = "abcdefghijklmnopqrstuvwxyz \n"[rnd.IntN(28)]
	}
	for i := range n {
		d := i / 25
		p := fmt.Sprintf("m%02d/pkg%02d/part%d/file%05d.go", d%20, d/20%20, d/400, i)
		o, l := rnd.IntN(len(chunk)-9000), 500+rnd.IntN(7500)
		r.write(b, p, string(chunk[o:o+l]))
	}
	r.commit(b)
	time.Sleep(50 * time.Millisecond) // let the index age beyond the racy tick
	r.git(b, "update-index", "--refresh")
	return r
}

// dirty changes k files.
func (r tree) dirty(b *testing.B, k int) {
	files := strings.Split(r.git(b, "ls-files"), "\n")
	for i := range k {
		p := r.path(files[(i*7919)%len(files)])
		f, err := os.OpenFile(p, os.O_APPEND|os.O_WRONLY, 0)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := f.WriteString("// changed\n"); err != nil {
			b.Fatal(err)
		}
		f.Close()
	}
	time.Sleep(100 * time.Millisecond) // old enough for the stat cache
}

func (r tree) files(b *testing.B) []string {
	return strings.Split(r.git(b, "ls-files"), "\n")
}

func sizes(b *testing.B, f func(b *testing.B, r tree)) {
	for _, n := range []int{5000, 50000} {
		for _, k := range []int{0, 100} {
			b.Run(fmt.Sprintf("files=%d/dirty=%d", n, k), func(b *testing.B) {
				r := grow(b, n)
				r.dirty(b, k)
				f(b, r)
			})
		}
	}
}

// BenchmarkStamp measures, on the same tree, our stamps and what they are held
// against: a bare parallel lstat, a parallel open+read+SHA-256, git status.
func BenchmarkStamp(b *testing.B) {
	sizes(b, func(b *testing.B, r tree) {
		state, err := vfs.OS{}.OpenRoot(b.TempDir())
		if err != nil {
			b.Fatal(err)
		}
		defer state.Close()
		ctx := context.Background()
		warm, err := gitbase.Open(ctx, r.dir, snapshot.Options{State: state})
		if err != nil {
			b.Fatal(err)
		}
		stamp(b, warm, false)
		if err := warm.Close(); err != nil {
			b.Fatal(err)
		}
		files := r.files(b)
		b.Run("stamp", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				ws, err := gitbase.Open(ctx, r.dir, snapshot.Options{State: state})
				if err != nil {
					b.Fatal(err)
				}
				s := stamp(b, ws, false)
				if s.Hashed != 0 {
					b.Fatalf("%d files were read", s.Hashed)
				}
				ws.Close()
			}
		})
		b.Run("content", func(b *testing.B) {
			ws, err := gitbase.Open(ctx, r.dir, snapshot.Options{})
			if err != nil {
				b.Fatal(err)
			}
			defer ws.Close()
			for b.Loop() {
				stamp(b, ws, true)
			}
		})
		b.Run("floor-lstat", func(b *testing.B) {
			for b.Loop() {
				parallel(files, func(p string) {
					var st unix.Stat_t
					if err := unix.Lstat(r.path(p), &st); err != nil {
						b.Error(err)
					}
				})
			}
		})
		b.Run("floor-sha256", func(b *testing.B) {
			for b.Loop() {
				parallelWith(files, func() func(string) {
					buf := make([]byte, 256<<10)
					h := sha256.New()
					return func(p string) {
						f, err := os.Open(r.path(p))
						if err != nil {
							b.Error(err)
							return
						}
						h.Reset()
						if _, err := io.CopyBuffer(struct{ io.Writer }{h}, struct{ io.Reader }{f}, buf); err != nil {
							b.Error(err)
						}
						f.Close()
						h.Sum(nil)
					}
				})
			}
		})
		b.Run("git-status", func(b *testing.B) {
			for b.Loop() {
				cmd := exec.Command("git", "--no-optional-locks", "status", "--porcelain=v2", "-uall")
				cmd.Dir = r.dir
				if _, err := cmd.Output(); err != nil {
					b.Fatal(err)
				}
			}
		})
	})
}

func parallel(files []string, f func(string)) {
	parallelWith(files, func() func(string) { return f })
}

func parallelWith(files []string, mk func() func(string)) {
	var wg sync.WaitGroup
	const n = 2
	for i := range n {
		wg.Go(func() {
			f := mk()
			for _, p := range files[i*len(files)/n : (i+1)*len(files)/n] {
				f(p)
			}
		})
	}
	wg.Wait()
}
