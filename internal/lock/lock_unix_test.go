//go:build unix

package lock

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// ownSession makes a child outlive its parent's session.
var ownSession = &syscall.SysProcAttr{Setsid: true}

func TestChildDoesNotInheritTheLock(t *testing.T) {
	dir, qf := places(t)
	p := start(t, "child", dir, qf)
	pid, err := strconv.Atoi(strings.TrimPrefix(p.line(t), "child "))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Kill(pid, syscall.SIGKILL) }()
	p.kill(t)
	l, err := Acquire(context.Background(), dir, qf)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Unlock()
	if err := syscall.Kill(pid, 0); err != nil {
		t.Fatalf("the child should still run: %v", err)
	}
}

func TestForeignQueueFiles(t *testing.T) {
	dir, qf := places(t)
	if err := syscall.Mkfifo(qf, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Acquire(context.Background(), dir, qf); err == nil {
		t.Error("a FIFO was taken for a queue file")
	}
	link := qf + "-link"
	if err := os.Symlink(qf+"-target", link); err != nil {
		t.Fatal(err)
	}
	if _, err := Acquire(context.Background(), dir, link); err == nil {
		t.Error("a link was followed to a queue file")
	}
	if _, err := Acquire(context.Background(), filepath.Join(dir, "none"), qf+"-3"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("missing directory: %v", err)
	}
}
