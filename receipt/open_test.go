package receipt_test

import (
	"github.com/aspengine/asp/internal/home"
	"github.com/aspengine/asp/internal/vfs"
	"github.com/aspengine/asp/receipt"
)

// openStore opens the store of the tests' one workspace, for helper processes.
func openStore(aspHome string) (*receipt.Store, error) {
	h, err := home.Open(vfs.OS{}, aspHome)
	if err != nil {
		return nil, err
	}
	st, err := h.Workspace(home.Identity{Root: "/work", GitDir: "/work/.git"})
	if err != nil {
		return nil, err
	}
	return receipt.Open(st, receipt.Options{})
}
