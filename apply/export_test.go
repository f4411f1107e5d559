package apply

import "github.com/aspengine/asp/internal/vfs"

// SetDirty makes the engine take n for the unwritten bytes of the host, which
// decide between the two ways to sync.
func (e *Engine) SetDirty(n int64) { e.dirty = func() (int64, error) { return n, nil } }

// CountDirty counts into n how often a transaction or its forecast asks what the host has unwritten.
func (e *Engine) CountDirty(n *int) { e.dirty = func() (int64, error) { *n++; return 0, nil } }

// SameRoot tells whether the workspace is still the directory that was opened.
func (e *Engine) SameRoot() error { return e.sameRoot(e.root) }

// Rebind opens the directory that the path of the workspace leads to now; RootNow is what is open.
func (e *Engine) Rebind() error    { return e.rebind() }
func (e *Engine) RootNow() vfs.Dir { return e.root }

// InLine is how many of this process have the workspace or wait for it.
func (e *Engine) InLine() int { return e.line.Len() }

// Joinable tells whether a request may be part of a group as far as it alone says.
func Joinable(r Request) bool { return joinable(r) }
