package lock

import (
	"errors"
	"testing"
)

// TestWhileFree: a holder is seen, others who look are not, and while one looks nobody
// takes the lock.
func TestWhileFree(t *testing.T) {
	dir, queueFile := places(t)
	l, err := Acquire(t.Context(), dir, queueFile)
	if err != nil {
		t.Fatal(err)
	}
	if free, err := WhileFree(dir, func() error { t.Error("called although it is held"); return nil }); free || err != nil {
		t.Errorf("held: free %v, %v", free, err)
	}
	if err := l.Unlock(); err != nil {
		t.Fatal(err)
	}
	odd := errors.New("odd")
	free, err := WhileFree(dir, func() error {
		if free, err := WhileFree(dir, func() error { return nil }); !free || err != nil {
			t.Errorf("somebody else looks: free %v, %v", free, err)
		}
		if _, err := TryAcquire(t.Context(), dir, queueFile); !errors.Is(err, ErrBusy) {
			t.Errorf("taken while somebody looks: %v", err)
		}
		return odd
	})
	if !free || !errors.Is(err, odd) {
		t.Errorf("free %v, %v", free, err)
	}
	l, err = TryAcquire(t.Context(), dir, queueFile)
	if err != nil {
		t.Fatalf("after the look: %v", err)
	}
	if err := l.Unlock(); err != nil {
		t.Fatal(err)
	}
	if _, err := WhileFree(dir+"-none", func() error { return nil }); err == nil {
		t.Error("a directory that is not there is free")
	}
}
