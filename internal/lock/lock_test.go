package lock

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// The test binary is its own helper process; see helper.
func TestMain(m *testing.M) {
	if os.Getenv("LOCK_TEST_HELPER") != "" {
		if err := helper(os.Getenv("LOCK_TEST_HELPER"), os.Args[1:]); err != nil {
			fmt.Println("error:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

func helper(act string, args []string) error {
	ctx := context.Background()
	dir, queueFile := args[0], args[1]
	switch act {
	case "hold": // take the lock, say so, hold it until stdin ends
		l, err := Acquire(ctx, dir, queueFile)
		if err != nil {
			return err
		}
		fmt.Println("held", l.queue.ticket)
		_, _ = io.Copy(io.Discard, os.Stdin)
		return l.Unlock()
	case "child": // take the lock, start a child that outlives us, say its id, wait
		l, err := Acquire(ctx, dir, queueFile)
		if err != nil {
			return err
		}
		defer l.Unlock()
		c := exec.Command("sleep", "600")
		c.SysProcAttr = ownSession
		if err := c.Start(); err != nil {
			return err
		}
		fmt.Println("child", c.Process.Pid)
		_, _ = io.Copy(io.Discard, os.Stdin)
		return nil
	case "count": // n times: take, read-increment-write a counter, log the ticket
		n, err := strconv.Atoi(args[2])
		if err != nil {
			return err
		}
		for range n {
			l, err := Acquire(ctx, dir, queueFile)
			if err != nil {
				return err
			}
			if err := increment(args[3], l.queue.ticket); err != nil {
				return err
			}
			if err := l.Unlock(); err != nil {
				return err
			}
		}
		return nil
	}
	return errors.New("unknown helper act")
}

// increment loses counts and mixes the log when two run at once.
func increment(base string, ticket int64) error {
	b, err := os.ReadFile(base + ".count")
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	n, _ := strconv.Atoi(string(b))
	f, err := os.OpenFile(base+".log", os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := fmt.Fprintln(f, ticket); err != nil {
		return err
	}
	return os.WriteFile(base+".count", []byte(strconv.Itoa(n+1)), 0o600)
}

type process struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Scanner
}

func start(t *testing.T, act string, args ...string) *process {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command(exe, args...)
	c.Env = append(os.Environ(), "LOCK_TEST_HELPER="+act)
	c.Stderr = os.Stderr
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Process.Kill(); _ = c.Wait() })
	return &process{c, in, bufio.NewScanner(out)}
}

func (p *process) line(t *testing.T) string {
	t.Helper()
	if !p.out.Scan() {
		t.Fatalf("helper ended without a line: %v", p.out.Err())
	}
	if s := p.out.Text(); !strings.HasPrefix(s, "error:") {
		return s
	}
	t.Fatal(p.out.Text())
	return ""
}

func (p *process) kill(t *testing.T) {
	t.Helper()
	if err := p.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = p.cmd.Wait()
}

// queued waits until n tickets are held.
func queued(t *testing.T, queueFile string, n int) {
	t.Helper()
	q, err := openQueue(queueFile)
	if err != nil {
		t.Fatal(err)
	}
	defer q.f.Close()
	for {
		var b [8]byte
		if _, err := q.f.ReadAt(b[:], 0); err != nil && !errors.Is(err, io.EOF) {
			t.Fatal(err)
		}
		held := 0
		for pos := firstTicketPos; pos < firstTicketPos+100; pos++ {
			at, err := q.heldIn(pos, pos)
			if err != nil {
				t.Fatal(err)
			}
			if at >= 0 {
				held++
			}
		}
		if held == n {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

func places(t *testing.T) (dir, queueFile string) {
	t.Helper()
	return t.TempDir(), filepath.Join(t.TempDir(), "queue")
}

func checkLog(t *testing.T, base string, want int) {
	t.Helper()
	b, err := os.ReadFile(base + ".count")
	if err != nil {
		t.Fatal(err)
	}
	if got := string(b); got != strconv.Itoa(want) {
		t.Errorf("counter = %s, want %d: two holders at once", got, want)
	}
	b, err = os.ReadFile(base + ".log")
	if err != nil {
		t.Fatal(err)
	}
	last, n := 0, 0
	for s := range strings.FieldsSeq(string(b)) {
		v, err := strconv.Atoi(s)
		if err != nil {
			t.Fatal(err)
		}
		if v <= last {
			t.Errorf("ticket %d was served after %d", v, last)
		}
		last, n = v, n+1
	}
	if n != want {
		t.Errorf("%d log lines, want %d", n, want)
	}
}

func TestProcessesExcludeEachOtherInOrder(t *testing.T) {
	dir, qf := places(t)
	base := filepath.Join(t.TempDir(), "x")
	const procs, times = 32, 12
	var ps []*process
	for range procs {
		ps = append(ps, start(t, "count", dir, qf, strconv.Itoa(times), base))
	}
	for _, p := range ps {
		if b, _ := io.ReadAll(bufio.NewReader(readerOf(p))); len(b) > 0 {
			t.Errorf("helper: %s", b)
		}
		if err := p.cmd.Wait(); err != nil {
			t.Error(err)
		}
	}
	checkLog(t, base, procs*times)
	left, err := os.ReadDir(dir)
	if err != nil || len(left) > 0 {
		t.Errorf("the lock left %v in the directory (%v)", left, err)
	}
}

// readerOf drains what a helper still prints.
func readerOf(p *process) io.Reader {
	r, w := io.Pipe()
	go func() {
		for p.out.Scan() {
			fmt.Fprintln(w, p.out.Text())
		}
		w.CloseWithError(p.out.Err())
	}()
	return r
}

func TestGoroutinesExcludeEachOtherInOrder(t *testing.T) {
	dir, qf := places(t)
	base := filepath.Join(t.TempDir(), "x")
	const routines, times = 16, 20
	var wg sync.WaitGroup
	for range routines {
		wg.Go(func() {
			for range times {
				l, err := Acquire(context.Background(), dir, qf)
				if err != nil {
					t.Error(err)
					return
				}
				if err := increment(base, l.queue.ticket); err != nil {
					t.Error(err)
				}
				if err := l.Unlock(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	checkLog(t, base, routines*times)
}

func TestKilledHolderAndWaitersLeaveNothing(t *testing.T) {
	dir, qf := places(t)
	a := start(t, "hold", dir, qf)
	a.line(t)
	b := start(t, "hold", dir, qf)
	queued(t, qf, 2)
	c := start(t, "hold", dir, qf)
	queued(t, qf, 3)
	if _, err := TryAcquire(context.Background(), dir, qf); !errors.Is(err, ErrBusy) {
		t.Fatalf("TryAcquire = %v, want ErrBusy", err)
	}
	b.kill(t) // a waiter in the middle
	queued(t, qf, 2)
	a.kill(t) // the holder
	if got := c.line(t); !strings.HasPrefix(got, "held") {
		t.Fatalf("third in the queue: %q", got)
	}
	if h, ok := ReadHolder(qf); !ok || h.PID != c.cmd.Process.Pid || !h.Alive {
		t.Errorf("holder record = %+v, %v, want process %d alive", h, ok, c.cmd.Process.Pid)
	}
	c.kill(t)
	if h, ok := ReadHolder(qf); ok && h.Alive {
		t.Errorf("holder record calls a dead process alive: %+v", h)
	}
	l, err := TryAcquire(context.Background(), dir, qf)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Unlock(); err != nil {
		t.Fatal(err)
	}
	if _, ok := ReadHolder(qf); ok {
		t.Error("a record is left after Unlock")
	}
}

func TestOrderIsArrival(t *testing.T) {
	dir, qf := places(t)
	first := start(t, "hold", dir, qf)
	first.line(t)
	var ps []*process
	for i := range 8 {
		ps = append(ps, start(t, "hold", dir, qf))
		queued(t, qf, i+2)
	}
	first.in.Close()
	for i, p := range ps {
		// Each is served while the later ones still hold their tickets.
		p.line(t)
		queued(t, qf, len(ps)-i)
		p.in.Close()
	}
}

func TestCancelledWaiterGivesUpItsPlace(t *testing.T) {
	dir, qf := places(t)
	l, err := Acquire(context.Background(), dir, qf)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() {
		_, err := Acquire(ctx, dir, qf)
		done <- err
	}()
	queued(t, qf, 2)
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Fatalf("Acquire = %v, want context.Canceled", err)
	}
	queued(t, qf, 1)
	if err := l.Unlock(); err != nil {
		t.Fatal(err)
	}
	if err := l.Unlock(); err != nil {
		t.Fatalf("second Unlock: %v", err)
	}
	if _, err := Acquire(ctx, dir, qf); !errors.Is(err, context.Canceled) {
		t.Fatalf("Acquire with an ended context = %v", err)
	}
}

func TestOtherQueueFileStillExcludes(t *testing.T) {
	dir, qf := places(t)
	l, err := Acquire(context.Background(), dir, qf)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := TryAcquire(context.Background(), dir, qf+"2"); !errors.Is(err, ErrBusy) {
		t.Fatalf("through another queue: %v, want ErrBusy", err)
	}
	got := make(chan error)
	go func() {
		m, err := Acquire(context.Background(), dir, qf+"2")
		if err == nil {
			err = m.Unlock()
		}
		got <- err
	}()
	queued(t, qf+"2", 1)
	if err := l.Unlock(); err != nil {
		t.Fatal(err)
	}
	if err := <-got; err != nil {
		t.Fatal(err)
	}
}

func TestLostCounterKeepsTheOrder(t *testing.T) {
	dir, qf := places(t)
	l, err := Acquire(context.Background(), dir, qf)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(qf, 0); err != nil {
		t.Fatal(err)
	}
	q, err := openQueue(qf)
	if err != nil {
		t.Fatal(err)
	}
	if err := q.draw(context.Background()); err != nil {
		t.Fatal(err)
	}
	if q.ticket <= l.queue.ticket {
		t.Errorf("ticket %d drawn after %d", q.ticket, l.queue.ticket)
	}
	if err := errors.Join(q.close(), l.Unlock()); err != nil {
		t.Fatal(err)
	}
}

func TestReplacedDirectoryIsNotLockedByItsOldName(t *testing.T) {
	parent := t.TempDir()
	dir, qf := filepath.Join(parent, "d"), filepath.Join(t.TempDir(), "queue")
	next := filepath.Join(parent, "next")
	for _, d := range []string{dir, next} {
		if err := os.Mkdir(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	l, err := Acquire(context.Background(), dir, qf)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Also(next); err != nil {
		t.Fatal(err)
	}
	for _, mv := range [][2]string{{dir, dir + ".old"}, {next, dir}} {
		if err := os.Rename(mv[0], mv[1]); err != nil {
			t.Fatal(err)
		}
	}
	// Another queue, so that only the directory lock can refuse.
	if _, err := TryAcquire(context.Background(), dir, qf+"2"); !errors.Is(err, ErrBusy) {
		t.Fatalf("new directory under the old name: %v, want ErrBusy", err)
	}
	if err := l.Unlock(); err != nil {
		t.Fatal(err)
	}
	m, err := TryAcquire(context.Background(), dir, qf+"2")
	if err != nil {
		t.Fatal(err)
	}
	m.Unlock()
}

// TestReplacedDirectoryBetweenOpenAndLock: what was opened has another name by the time
// it is locked. The lock on it would exclude nobody who comes by the name.
func TestReplacedDirectoryBetweenOpenAndLock(t *testing.T) {
	parent := t.TempDir()
	dir := filepath.Join(parent, "d")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	f, err := openDirectory(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Rename(dir, dir+".old"), os.Mkdir(dir, 0o700)); err != nil {
		t.Fatal(err)
	}
	if ok, err := lockOpened(f, dir); ok || err != nil {
		t.Fatalf("locked the old directory for the new one: %v, %v", ok, err)
	}
	for _, d := range []string{dir, dir + ".old"} { // and nothing stays locked
		l, err := lockDirectory(d)
		if err != nil {
			t.Fatal(err)
		}
		l.Close()
	}
}
