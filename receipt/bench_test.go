package receipt_test

import (
	"path/filepath"
	"testing"

	"github.com/aspengine/asp/internal/home"
	"github.com/aspengine/asp/internal/vfs"
	"github.com/aspengine/asp/receipt"
)

// One receipt with its barrier, in a store at its retention.
func BenchmarkAppend(b *testing.B) {
	h, err := home.Open(vfs.OS{}, filepath.Join(b.TempDir(), "asp"))
	if err != nil {
		b.Fatal(err)
	}
	defer h.Close()
	st, err := h.Workspace(home.Identity{Root: "/work"})
	if err != nil {
		b.Fatal(err)
	}
	defer st.Close()
	s, err := receipt.Open(st, receipt.Options{Retention: receipt.Retention{Count: 1000}})
	if err != nil {
		b.Fatal(err)
	}
	for i := 0; b.Loop(); i++ {
		if _, err := s.Append(ctx, entry(i)); err != nil {
			b.Fatal(err)
		}
		if err := s.Sync(home.EachFile); err != nil {
			b.Fatal(err)
		}
	}
}
