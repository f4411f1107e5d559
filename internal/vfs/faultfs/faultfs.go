// Package faultfs wraps a file system so that a chosen operation fails, or the
// process "dies" at it, and so that a test can read what was done in which
// order. With an injector that lets everything pass it is only a recorder.
//
// Every operation gets a number, from 1 in the order of their starts, and every
// mutating one a second number of its own. A test that counts the operations of
// a run without faults can then repeat the run with a fault at each of them.
package faultfs

import (
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/aspengine/asp/internal/vfs"
)

// ErrDied is what every operation gives after the death of the process. The
// code under test cannot do anything more then; what a test looks at next is
// the file system under this one.
var ErrDied = errors.New("the process died")

// Event is one operation.
type Event struct {
	N    int // among all operations, from 1
	M    int // among mutating operations, from 1; 0 for others
	Op   Op
	Path string // relative to its root, "." for the root itself; with the root's label before it
	To   string // destination of renames and links, target of symlinks
	Size int64  // of writes: bytes; of truncations: the size; -1 for a copy from a reader
	Err  error  // how it ended; nil in what an Injector sees
}

// String gives the form that tests compare: "create tx/new/3", "exchange a b",
// "syncfs ." and so on; " ! error" is added to a failed one. Sizes and numbers
// are not in it.
func (e Event) String() string {
	var b strings.Builder
	b.WriteString(e.Op.String())
	b.WriteByte(' ')
	b.WriteString(e.Path)
	if e.To != "" {
		b.WriteByte(' ')
		b.WriteString(e.To)
	}
	if e.Err != nil {
		cause := e.Err
		for {
			next := errors.Unwrap(cause)
			if next == nil {
				break
			}
			cause = next
		}
		fmt.Fprintf(&b, " ! %v", cause)
	}
	return b.String()
}

// Death says when the process dies.
type Death uint8

// The deaths.
const (
	Lives      Death = iota
	DiesBefore       // the operation has no effect
	DiesAfter        // the operation is done, nobody learns of it
)

// Fault is what happens at one operation. The zero value lets it pass.
type Fault struct {
	// Err is given instead of doing the operation, wrapped as the system would.
	Err error
	// Short is how many bytes a write puts down before it fails with Err or
	// the process dies; with DiesAfter and 0 the whole write is done.
	Short int
	// Death, if set, counts for more than Err.
	Death Death
}

// Injector decides about each operation before it is done. It is called by one
// goroutine at a time. It may work on the file system below, to play a
// neighbour who interferes at that moment, but not on this one.
type Injector func(Event) Fault

// At gives the fault at the n-th operation, from 1.
func At(n int, f Fault) Injector {
	return When(func(e Event) bool { return e.N == n }, 1, f)
}

// AtMutation gives the fault at the n-th mutating operation, from 1.
func AtMutation(n int, f Fault) Injector {
	return When(func(e Event) bool { return e.M == n }, 1, f)
}

// When gives the fault at the n-th operation, from 1, that match says yes to.
// With n = 0 at all of them.
func When(match func(Event) bool, n int, f Fault) Injector {
	seen := 0
	return func(e Event) Fault {
		if !match(e) {
			return Fault{}
		}
		seen++
		if n == 0 || seen == n {
			return f
		}
		return Fault{}
	}
}

// FS is a file system with faults. It is safe for concurrent use.
type FS struct {
	under vfs.FS
	// Label, if set, names the roots in Event.Path: it is called with the path
	// given to OpenRoot, and "label:" is put before all paths below that root
	// unless the label is empty. To be set before use.
	Label func(root string) string

	decide sync.Mutex // held while the injector runs
	inject Injector

	mu        sync.Mutex
	events    []Event
	mutations int
	dead      bool
}

// New wraps under. A nil injector lets everything pass.
func New(under vfs.FS, inject Injector) *FS {
	return &FS{under: under, inject: inject}
}

// Dead tells whether the process has died.
func (f *FS) Dead() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.dead
}

// Events returns all operations so far, in the order of their starts. Those
// tried after the death of the process are not among them.
func (f *FS) Events() []Event {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]Event(nil), f.events...)
}

// Counts returns how many operations, and how many mutating ones, there were.
func (f *FS) Counts() (all, mutating int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.events), f.mutations
}

// Trace returns the mutating operations as lines.
func (f *FS) Trace() []string {
	var out []string
	for _, e := range f.Events() {
		if e.Op.Mutating() {
			out = append(out, e.String())
		}
	}
	return out
}

// OpenRoot opens a root of the file system below.
func (f *FS) OpenRoot(path string) (vfs.Dir, error) {
	label := ""
	if f.Label != nil {
		if label = f.Label(path); label != "" {
			label += ":"
		}
	}
	var d vfs.Dir
	err := f.do(Event{Op: OpenRoot, Path: label + "."}, func(Fault) (err error) { d, err = f.under.OpenRoot(path); return })
	if err != nil {
		return nil, err
	}
	return f.wrapDir(d, label, "."), nil
}
