package rpc

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
)

// TestLargeLinesTakeTurns has two streams share one place.
func TestLargeLinesTakeTurns(t *testing.T) {
	shared := NewLarge(1)
	open := func(done chan struct{}) (*lines, *io.PipeWriter) {
		r, w := io.Pipe()
		l := newLines(r, 4<<20, readAhead)
		l.large, l.done, l.late = shared, done, func() { t.Error("late") }
		return l, w
	}
	long := strings.Repeat("x", 2<<20)
	first, w1 := open(nil)
	go io.WriteString(w1, long+"\n")
	line, err := first.next()
	if err != nil || len(line) != len(long) {
		t.Fatalf("%d bytes, %v", len(line), err)
	}
	// The place is held until the line was used; short lines pass meanwhile.
	second, w2 := open(nil)
	go io.WriteString(w2, "short\n"+long+"\n")
	if line, err := second.next(); err != nil || string(line) != "short" {
		t.Fatalf("%q, %v", line, err)
	}
	got := make(chan int)
	go func() {
		line, _ := second.next()
		got <- len(line)
	}()
	select {
	case <-got:
		t.Fatal("two large lines at once")
	default:
	}
	if !bytes.Equal(line, []byte(long)) {
		t.Error("the line changed while it was in use")
	}
	first.release()
	if n := <-got; n != len(long) {
		t.Fatalf("%d bytes after the place was free", n)
	}
	// Who waits in vain is let go by the end of its connection.
	done := make(chan struct{})
	third, w3 := open(done)
	go io.WriteString(w3, long)
	ended := make(chan error)
	go func() {
		_, err := third.next()
		ended <- err
	}()
	close(done)
	if err := <-ended; !errors.Is(err, io.EOF) {
		t.Fatalf("%v", err)
	}
	w3.CloseWithError(io.EOF)
	second.release()
	if len(shared.places) != 1 {
		t.Error("a place is lost")
	}
}
