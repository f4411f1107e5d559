//go:build portablefs

package exchange_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/aspengine/asp/apply/commit"
	"github.com/aspengine/asp/apply/exchange"
	"github.com/aspengine/asp/internal/refusal"
	"github.com/aspengine/asp/internal/vfs"
)

// TestNoExchangeHere: where the system lacks what an exchange rests on, it is refused
// before anything is made, which only a recovery could take away.
func TestNoExchangeHere(t *testing.T) {
	up := t.TempDir()
	root := filepath.Join(up, "ws")
	if err := errors.Join(os.Mkdir(root, 0o755), os.WriteFile(filepath.Join(root, "a"), []byte("a\n"), 0o644)); err != nil {
		t.Fatal(err)
	}
	e := exchange.Env{FS: vfs.OS{}, RootPath: root}
	_, it, err := exchange.Forecast(e)
	if err != nil || it == nil || it.Code != refusal.UnsupportedOperation {
		t.Errorf("forecast: %v, %v", it, err)
	}
	r, err := exchange.Run(t.Context(), e, "tx1", nil, exchange.Options{})
	if err != nil || r.Outcome != commit.Refused || len(r.Items) != 1 || r.Items[0].Code != refusal.UnsupportedOperation {
		t.Errorf("run: %+v, %v", r, err)
	}
	if names, err := os.ReadDir(up); err != nil || len(names) != 1 {
		t.Errorf("left: %v, %v", names, err)
	}
}
