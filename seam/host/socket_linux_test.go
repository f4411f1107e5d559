package host_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/goleak"

	"github.com/aspengine/asp/apply"
	"github.com/aspengine/asp/internal/canon"
	"github.com/aspengine/asp/internal/need"
	"github.com/aspengine/asp/seam/host"
)

// dialWord makes the test binary a harness: it connects to the socket named and
// copies what comes back.
const dialWord = "dial-a-host"

func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == dialWord {
		c, err := net.Dial("unix", os.Args[2])
		if err != nil {
			os.Exit(3)
		}
		_, _ = io.WriteString(c, question)
		_, _ = io.Copy(os.Stdout, c)
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

const question = `{"jsonrpc":"2.0","id":1,"method":"host/applyProposal","params":` + applyParams + "}\n"

// listening serves the socket until the test ends.
func listening(t *testing.T, path string) (stop func() error) {
	t.Helper()
	b := newBench(t, host.Options{}, fake{apply: func(context.Context, *fake, apply.ProposalRequest) (*apply.Answer, error) {
		return &apply.Answer{Stored: canon.ObjectOf()}, nil
	}})
	ctx, cancel := context.WithCancel(context.Background())
	ready, end := make(chan struct{}), make(chan error, 1)
	go func() { end <- b.h.Listen(ctx, path, func() { close(ready) }) }()
	select {
	case <-ready:
	case err := <-end:
		cancel()
		t.Fatal(err)
	}
	stop = func() error {
		cancel()
		err := <-end
		end <- nil
		return err
	}
	t.Cleanup(func() { _ = stop() })
	return stop
}

func ask(path string) (string, error) {
	c, err := net.Dial("unix", path)
	if err != nil {
		return "", err
	}
	defer c.Close()
	if _, err := io.WriteString(c, question); err != nil {
		return "", err
	}
	return bufio.NewReader(c).ReadString('\n')
}

func private(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	// Its parent is made for this test too, and closed to everybody else.
	if err := errors.Join(os.Chmod(filepath.Dir(dir), 0o755), os.Chmod(dir, 0o755)); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestSocket(t *testing.T) {
	path := filepath.Join(private(t), "s")
	stop := listening(t, path)
	fi, err := os.Lstat(path)
	if err != nil || fi.Mode().Perm() != 0o600 || fi.Mode()&os.ModeSocket == 0 {
		t.Fatalf("%v, %v; want a socket of mode 0600", fi.Mode(), err)
	}
	for range 3 {
		if got, err := ask(path); err != nil || !strings.Contains(got, `"id":1`) || !strings.Contains(got, `"result":{}`) {
			t.Fatalf("answer %q, %v", got, err)
		}
	}
	// A second host leaves the first one alone.
	h := host.New(host.Options{})
	if err := h.Listen(context.Background(), path, nil); !errors.Is(err, host.ErrLive) {
		t.Errorf("a second host: %v", err)
	}
	if _, err := ask(path); err != nil {
		t.Errorf("after a second host tried: %v", err)
	}
	// A session that is open ends with the host.
	c, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := stop(); err != nil {
		t.Error(err)
	}
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, io.EOF) && !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the session: %v", err)
	}
	if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket is left: %v", err)
	}
}

func TestSocketThatAKilledHostLeft(t *testing.T) {
	path := filepath.Join(private(t), "s")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	l.Close()
	stop := listening(t, path)
	if _, err := ask(path); err != nil {
		t.Error(err)
	}
	// Whose socket was replaced does not remove the other's.
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	again := listening(t, path)
	if err := stop(); err != nil {
		t.Error(err)
	}
	if _, err := ask(path); err != nil {
		t.Errorf("the first host removed the second one's socket: %v", err)
	}
	_ = again()
}

func TestSocketNames(t *testing.T) {
	dir := private(t)
	open := filepath.Join(dir, "open")
	if err := errors.Join(os.Mkdir(open, 0o777), os.Chmod(open, 0o777)); err != nil {
		t.Fatal(err)
	}
	file, fifo := filepath.Join(dir, "file"), filepath.Join(dir, "fifo")
	if err := errors.Join(os.WriteFile(file, []byte("mine"), 0o600), syscall.Mkfifo(fifo, 0o600)); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(dir, "elsewhere"), filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		file: "no socket", fifo: "no socket", filepath.Join(dir, "link"): "no socket", filepath.Join(open, "s"): "others may write", filepath.Join(dir, "missing", "s"): "no such file",
		dir + "/" + strings.Repeat("n", 300): "too long",
	} {
		err := host.New(host.Options{}).Listen(context.Background(), path, nil)
		if err == nil || !strings.Contains(err.Error(), want) && !strings.Contains(err.Error(), "invalid argument") {
			t.Errorf("%.100s: %v, want %q", path, err, want)
		}
	}
	if b, err := os.ReadFile(file); err != nil || string(b) != "mine" {
		t.Errorf("the file is %q, %v", b, err)
	}
	// A directory of any depth.
	deep := dir
	for range 5 {
		deep = filepath.Join(deep, strings.Repeat("d", 60))
	}
	if err := os.MkdirAll(deep, 0o700); err != nil {
		t.Fatal(err)
	}
	stop := listening(t, filepath.Join(deep, "s"))
	if err := stop(); err != nil {
		t.Error(err)
	}
}

func TestSocketOfAnotherUser(t *testing.T) {
	need.Root(t)
	dir := private(t)
	for d := dir; d != "/"; d = filepath.Dir(d) {
		if fi, err := os.Stat(d); err != nil || fi.Mode()&0o001 == 0 {
			need.Missing(t, "%s is closed to other users", d)
		}
	}
	path := filepath.Join(dir, "s")
	listening(t, path)
	// Its mode keeps others out; who gets past that is known by the kernel.
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	harness := filepath.Join(dir, "harness")
	if err := errors.Join(os.WriteFile(harness, self, 0o755), os.Chmod(harness, 0o755)); err != nil {
		t.Fatal(err)
	}
	run := func(uid uint32) (string, error) {
		cmd := exec.Command(harness, dialWord, path)
		cmd.Dir = dir
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
		stdin, err := cmd.StdinPipe()
		if err != nil {
			return "", err
		}
		defer stdin.Close()
		out, err := cmd.Output()
		return string(out), err
	}
	if _, err := run(65534); err == nil {
		t.Error("the mode of the socket lets others connect")
	}
	if err := os.Chmod(path, 0o666); err != nil {
		t.Fatal(err)
	}
	if out, err := run(65534); err != nil || out != "" {
		t.Errorf("another user is told %q, %v", out, err)
	}
	if _, err := ask(path); err != nil {
		t.Errorf("the own user: %v", err)
	}
}
