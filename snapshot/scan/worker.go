package scan

import (
	"context"
	"crypto/sha1"
	"crypto/sha256"
	"errors"
	"hash"
	"io"
	"io/fs"
	"runtime"
	"strconv"
	"sync"
	"syscall"
)

// Buffer sizes. A file that fits into fileBuf is read once whatever digests
// are asked for later; a larger one is streamed.
const (
	listBuf = 32 << 10
	fileBuf = 256 << 10
)

// Workers is how many workers a scan uses when it is not told: at least two,
// because one of them is usually waiting in the kernel.
func Workers() int { return min(max(runtime.GOMAXPROCS(0), 2), 8) }

// Task is one directory to look at: its path below the root and whatever its
// finder wants to remember about it.
type Task[T any] struct {
	Path string // "" for the root
	Data T
}

// Worker is the state of one goroutine of a scan. Its methods are for the
// callback that got it, and only until that returns.
type Worker[T any] struct {
	Reader
	w *walk[T]
	// ID counts workers from 0, for results kept per worker.
	ID int
}

type walk[T any] struct {
	mu    sync.Mutex
	cond  sync.Cond
	stack []Task[T]
	busy  int
	err   error
}

// Push adds a directory to the scan.
func (w *Worker[T]) Push(t Task[T]) {
	w.w.mu.Lock()
	w.w.stack = append(w.w.stack, t)
	w.w.mu.Unlock()
	w.w.cond.Signal()
}

// Walk calls fn for the first task and for every task pushed by fn, from n
// workers, each task once, newest first (so that the stack stays as small as
// the tree is deep and wide). fn gets the directory opened below root without
// following links; a directory that vanished or became something else
// meanwhile is handed over with err set and the handle invalid. Walk returns
// the first error of fn, or the context's, after every worker ended.
func Walk[T any](ctx context.Context, root DirHandle, n int, first Task[T],
	fn func(w *Worker[T], d DirHandle, t Task[T], err error) error) error {
	ws := &walk[T]{stack: []Task[T]{first}}
	ws.cond.L = &ws.mu
	stop := context.AfterFunc(ctx, func() { ws.fail(context.Cause(ctx)) })
	defer stop()
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			w := &Worker[T]{w: ws, ID: i}
			for {
				t, ok := ws.next()
				if !ok {
					return
				}
				d, err := root.OpenDir(t.Path)
				err = fn(w, d, t, err)
				d.Close()
				ws.done(err)
			}
		})
	}
	wg.Wait()
	return ws.err
}

func (ws *walk[T]) next() (Task[T], bool) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	for len(ws.stack) == 0 && ws.busy > 0 && ws.err == nil {
		ws.cond.Wait()
	}
	if ws.err != nil || len(ws.stack) == 0 {
		return Task[T]{}, false
	}
	t := ws.stack[len(ws.stack)-1]
	ws.stack = ws.stack[:len(ws.stack)-1]
	ws.busy++
	return t, true
}

func (ws *walk[T]) done(err error) {
	ws.mu.Lock()
	ws.busy--
	if ws.err == nil {
		ws.err = err
	}
	over := ws.err != nil || ws.busy == 0 && len(ws.stack) == 0
	ws.mu.Unlock()
	if over {
		ws.cond.Broadcast()
	}
}

func (ws *walk[T]) fail(err error) {
	ws.mu.Lock()
	if ws.err == nil {
		ws.err = err
	}
	ws.mu.Unlock()
	ws.cond.Broadcast()
}

// Reader holds the buffers for reading directories and files. The zero value
// is ready; not for concurrent use.
type Reader struct {
	dir    []byte
	file   []byte
	h256   hash.Hash
	h1     hash.Hash
	header []byte
}

// List calls fn for every name of d but "." and "..", unsorted.
func (r *Reader) List(d DirHandle, fn func(Name) error) error {
	if r.dir == nil {
		r.dir = make([]byte, listBuf)
	}
	return d.list(r.dir, fn)
}

// Content is one look at a file's bytes.
type Content struct {
	// Stat is of the open file, equal before and after the bytes were read.
	Stat Stat
	// Bytes holds everything when Small, valid until the Reader is used again.
	Bytes   []byte
	Small   bool
	digests Digests
	have    Want
	r       *Reader
}

// Read reads the regular file name in d. A small file is kept, and Digests
// computes what is asked then; of a large one the digests in want are
// computed on the way. The errors are ErrUnreadable, ErrNotRegular,
// ErrChanging and those of the system, in an *fs.PathError.
func (r *Reader) Read(d DirHandle, name string, want Want) (Content, error) {
	for range 3 {
		c, err := r.readOnce(d, name, want)
		if err == ErrChanging {
			continue
		}
		if err != nil {
			return c, &fs.PathError{Op: "read", Path: name, Err: err}
		}
		return c, nil
	}
	return Content{}, &fs.PathError{Op: "read", Path: name, Err: ErrChanging}
}

func (r *Reader) readOnce(d DirHandle, name string, want Want) (Content, error) {
	c := Content{r: r}
	fd, err := d.openFile(name)
	switch {
	case errors.Is(err, syscall.EACCES) || errors.Is(err, syscall.EPERM):
		return c, ErrUnreadable
	case errors.Is(err, syscall.ELOOP) || errors.Is(err, syscall.ENXIO) || errors.Is(err, syscall.ENODEV):
		return c, ErrNotRegular
	case err != nil:
		return c, err
	}
	defer closeFile(fd)
	var after Stat
	if err := fstat(fd, &c.Stat); err != nil {
		return c, err
	}
	if c.Stat.Kind != File {
		return c, ErrNotRegular
	}
	if r.file == nil {
		r.file = make([]byte, fileBuf)
	}
	var total int64
	if c.Stat.Size < fileBuf {
		// No read beyond the size to see the end: the second look at the size
		// tells as much.
		n, err := readFull(fd, r.file[:c.Stat.Size])
		if err != nil {
			return c, err
		}
		c.Small, c.Bytes, total = true, r.file[:n], int64(n)
	} else if total, err = r.stream(fd, c.Stat.Size, want, &c.digests); err != nil {
		return c, err
	} else {
		c.have = want
	}
	if err := fstat(fd, &after); err != nil {
		return c, err
	}
	// A read between two equal looks saw one state, up to the granularity of
	// the clock; the racy rules of the caches take care of that rest.
	if total != c.Stat.Size || after.Size != c.Stat.Size || after.Mtime != c.Stat.Mtime || after.Ctime != c.Stat.Ctime {
		return c, ErrChanging
	}
	return c, nil
}

func readFull(fd int, buf []byte) (int, error) {
	n := 0
	for n < len(buf) {
		k, err := retry(func() (int, error) { return readFile(fd, buf[n:]) })
		if err != nil {
			return n, err
		}
		if k == 0 {
			break
		}
		n += k
	}
	return n, nil
}

func (r *Reader) stream(fd int, size int64, want Want, out *Digests) (int64, error) {
	r.reset(want, size)
	var total int64
	for {
		n, err := readFull(fd, r.file)
		if err != nil {
			return total, err
		}
		if n == 0 {
			break
		}
		total += int64(n)
		r.write(want, r.file[:n])
	}
	r.sum(want, out)
	return total, nil
}

// Digests returns at least the wanted digests. For a large file only those
// named in Read are there; asking for others is an error of the program.
func (c *Content) Digests(want Want) Digests {
	if miss := want &^ c.have; miss != 0 && c.Small {
		c.r.reset(miss, int64(len(c.Bytes)))
		c.r.write(miss, c.Bytes)
		c.r.sum(miss, &c.digests)
		c.have |= miss
	}
	return c.digests
}

// Has tells whether Digests can answer want.
func (c *Content) Has(want Want) bool { return c.Small || want&^c.have == 0 }

func (r *Reader) reset(want Want, size int64) {
	if want&WantSHA256 != 0 {
		if r.h256 == nil {
			r.h256 = sha256.New()
		}
		r.h256.Reset()
	}
	if want&WantGit != 0 {
		if r.h1 == nil {
			r.h1 = sha1.New()
		}
		r.h1.Reset()
		r.header = AppendBlobHeader(r.header[:0], size)
		r.h1.Write(r.header)
	}
}

func (r *Reader) write(want Want, b []byte) {
	if want&WantSHA256 != 0 {
		r.h256.Write(b)
	}
	if want&WantGit != 0 {
		r.h1.Write(b)
	}
}

func (r *Reader) sum(want Want, out *Digests) {
	if want&WantSHA256 != 0 {
		r.h256.Sum(out.SHA256[:0])
	}
	if want&WantGit != 0 {
		r.h1.Sum(out.Git[:0])
	}
}

// Link reads the target of the link name; the result is valid until the
// Reader is used again.
func (r *Reader) Link(d DirHandle, name string) ([]byte, error) {
	if r.file == nil {
		r.file = make([]byte, fileBuf)
	}
	return d.Readlink(name, r.file)
}

// AppendBlobHeader appends what git hashes before a blob's bytes.
func AppendBlobHeader(b []byte, size int64) []byte {
	b = append(b, "blob "...)
	b = strconv.AppendInt(b, size, 10)
	return append(b, 0)
}

// Of computes digests of bytes in memory.
func Of(b []byte, want Want) Digests {
	var d Digests
	if want&WantSHA256 != 0 {
		d.SHA256 = sha256.Sum256(b)
	}
	if want&WantGit != 0 {
		h := sha1.New()
		h.Write(AppendBlobHeader(nil, int64(len(b))))
		h.Write(b)
		h.Sum(d.Git[:0])
	}
	return d
}

// OpenedFile is a regular file opened by Open.
type OpenedFile struct {
	fd   int
	Stat Stat
}

// Open opens the regular file name in d for streaming, with the same care as
// Read.
func (d DirHandle) Open(name string) (*OpenedFile, error) {
	fd, err := d.openFile(name)
	if err != nil {
		switch {
		case errors.Is(err, syscall.EACCES) || errors.Is(err, syscall.EPERM):
			err = ErrUnreadable
		case errors.Is(err, syscall.ELOOP) || errors.Is(err, syscall.ENXIO) || errors.Is(err, syscall.ENODEV):
			err = ErrNotRegular
		}
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	f := &OpenedFile{fd: fd}
	if err = fstat(fd, &f.Stat); err == nil && f.Stat.Kind != File {
		err = ErrNotRegular
	}
	if err != nil {
		closeFile(fd)
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	return f, nil
}

// Read implements io.Reader.
func (f *OpenedFile) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	n, err := retry(func() (int, error) { return readFile(f.fd, p) })
	if err != nil {
		return 0, &fs.PathError{Op: "read", Path: "file", Err: err}
	}
	if n == 0 {
		return 0, io.EOF
	}
	return n, nil
}

// ReadAt implements io.ReaderAt.
func (f *OpenedFile) ReadAt(p []byte, off int64) (int, error) {
	done := 0
	for done < len(p) {
		n, err := retry(func() (int, error) { return readFileAt(f.fd, p[done:], off+int64(done)) })
		if err != nil {
			return done, &fs.PathError{Op: "read", Path: "file", Err: err}
		}
		if n == 0 {
			return done, io.EOF
		}
		done += n
	}
	return done, nil
}

// Close releases the descriptor.
func (f *OpenedFile) Close() error { return closeFile(f.fd) }
