//go:build !linux

package watch

// Tree watches nothing here.
type Tree struct{}

// New answers ErrUnsupported.
func New(string, Options) (*Tree, error) { return nil, ErrUnsupported }

// Add implements the same for a tree that there is none of.
func (t *Tree) Add(int, string) error { return ErrUnsupported }

// Drop does nothing.
func (t *Tree) Drop(string) {}

// Changes says that nothing is known.
func (t *Tree) Changes() Changes { return Changes{Lost: ErrUnsupported.Error()} }

// Close does nothing.
func (t *Tree) Close() error { return nil }
