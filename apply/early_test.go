package apply_test

import (
	"os"
	"testing"
)

// TestSameRoot: a workspace whose path leads to another directory, as after an exchange, is
// not the one that a scratch tree lies over, though the same is in it.
func TestSameRoot(t *testing.T) {
	b := newBed(t, "", map[string]string{"a": "a\n"})
	e := b.open()
	if err := e.SameRoot(); err != nil {
		t.Error(err)
	}
	if err := os.Rename(b.root, b.root+".old"); err != nil {
		t.Fatal(err)
	}
	if err := e.SameRoot(); err == nil {
		t.Error("a workspace that is gone is the same")
	}
	if err := os.CopyFS(b.root, os.DirFS(b.root+".old")); err != nil {
		t.Fatal(err)
	}
	if err := e.SameRoot(); err == nil {
		t.Error("a copy is the same")
	}
	// Who has its turn goes over to it, and what is done early stays with what it began in.
	early := e.RootNow()
	if err := e.Rebind(); err != nil {
		t.Fatal(err)
	}
	if err := e.SameRoot(); err != nil {
		t.Error(err)
	}
	if _, err := early.Lstat("a"); err != nil || early == e.RootNow() {
		t.Errorf("the directory from before: %v", err)
	}
	if err := e.Close(); err != nil {
		t.Error(err)
	}
	if _, err := early.Lstat("a"); err == nil {
		t.Error("it stays open")
	}
}
