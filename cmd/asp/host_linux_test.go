package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

// The test binary is the program too: what a host under test starts is this file.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "provider" {
		os.Exit(run(os.Args[1:]))
	}
	os.Exit(m.Run())
}

// inProcess is a workspace with a state directory, whose commands run in this process.
type inProcess struct {
	t         *testing.T
	dir, home string
}

func (p *inProcess) env(stdout, stderr *os.File) *env {
	get := func(k string) string {
		return map[string]string{"PATH": os.Getenv("PATH"), "HOME": p.dir, "ASP_HOME": p.home, "GOGC": "100", "GOMEMLIMIT": "off"}[k]
	}
	return &env{stdin: os.Stdin, stdout: &answerWriter{w: stdout, cancel: func() {}}, stderr: stderr, getenv: get, dir: p.dir, ui: newUI(stderr, stdout, get),
		now: time.Now, heap: newHeap()}
}

// asp runs a command line to its end and returns what it printed.
func (p *inProcess) asp(args ...string) []byte {
	p.t.Helper()
	out, err := os.CreateTemp(p.t.TempDir(), "out")
	if err != nil {
		p.t.Fatal(err)
	}
	defer out.Close()
	code := dispatch(p.t.Context(), p.env(out, out), args)
	b, err := os.ReadFile(out.Name())
	if err != nil || code != 0 {
		p.t.Fatalf("asp %q: exit status %d, %v\n%s", args, code, err, b)
	}
	return b
}

// TestHostLeavesNoGoroutine: sessions that end in every way, of a host with a watched
// work tree and a provider that runs, leave no goroutine and no descriptor of theirs, and
// the end of the host leaves none at all.
func TestHostLeavesNoGoroutine(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	p := &inProcess{t, filepath.Join(dir, "ws"), filepath.Join(dir, "home")}
	if err := os.Mkdir(p.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("git", "-C", p.dir, "init", "-q").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	manifest := filepath.Join(dir, "asp-server.json")
	if err := os.WriteFile(manifest, p.asp("provider", "syntax", "--print-manifest"), 0o600); err != nil {
		t.Fatal(err)
	}
	p.asp("server", "add", "--manifest", manifest)
	p.asp("repo", "add", p.dir)
	p.asp("repo", "enable", "syntax", "--repo", p.dir, "--mode", "advisory")

	idle := runtime.NumGoroutine()
	socket := filepath.Join(dir, "s")
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var host sync.WaitGroup
	host.Go(func() {
		if code := dispatch(ctx, p.env(w, w), []string{"host", "serve", "--repo", p.dir, "--socket", socket}); code != 0 {
			t.Errorf("exit status %d", code)
		}
		w.Close()
	})
	if line, err := bufio.NewReader(r).ReadString('\n'); err != nil || !strings.HasPrefix(line, "listening on ") {
		t.Fatalf("%q %v", line, err)
	}
	request := func(method string) string {
		return fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":%q,"params":{}}`+"\n", method)
	}
	// A session sends some text and reads so many lines, and then it is gone.
	session := func(send string, lines int) (last string) {
		t.Helper()
		c, err := net.Dial("unix", socket)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := io.WriteString(c, send); err != nil {
			t.Fatal(err)
		}
		in := bufio.NewReader(c)
		for range lines {
			if b, err := in.ReadBytes('\n'); err != nil || !bytes.Contains(b, []byte(`"result"`)) {
				t.Fatalf("%.300s %v", b, err)
			} else {
				last = string(b)
			}
		}
		return last
	}
	ways := []func(){
		func() { session(request("host/status"), 1) },
		func() { session(request("host/status"), 0) }, // and gone before the answer
		func() { session(request("shutdown")+`{"jsonrpc":"2.0","method":"exit"}`+"\n", 1) },
		func() { session(`{"half`, 0) },
		func() { session(request("host/capabilities"), 0) },
		func() { session("", 0) },
	}
	session(request("host/capabilities"), 1) // the provider runs from now on
	if s := session(request("host/status"), 1); !strings.Contains(s, `"state":"ready"`) || strings.Contains(s, `"state":"installed"`) {
		t.Fatalf("the provider does not run: %s", s)
	}
	for _, way := range ways {
		way()
	}
	session(request("host/status"), 1)
	n := 60
	if os.Getenv("ASP_CRASH") == "long" {
		n = 1000
	}
	descriptors := func() int {
		list, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(list)
	}
	// Sessions end by themselves, a moment after their peer: each look is after one more
	// request, and the least of them counts. A leak is in all.
	least := func(count func() int) int {
		out := count()
		for range 20 {
			session(request("host/status"), 1)
			out = min(out, count())
		}
		return out
	}
	routines, fds := least(runtime.NumGoroutine), least(descriptors)
	for i := range n {
		ways[i%len(ways)]()
	}
	// Five of the six ways leave one of theirs each if anything does.
	if after := least(runtime.NumGoroutine); after > routines+5 {
		t.Errorf("%d goroutines after %d sessions, %d before", after, n, routines)
	}
	if after := least(descriptors); after > fds+5 {
		t.Errorf("%d descriptors after %d sessions, %d before", after, n, fds)
	}
	stop()
	host.Wait()
	for i := 0; runtime.NumGoroutine() > idle; i++ {
		if i == 1_000_000 {
			b := make([]byte, 1<<20)
			t.Fatalf("%d goroutines when the host ended, %d before it:\n%s", runtime.NumGoroutine(), idle, b[:runtime.Stack(b, true)])
		}
		runtime.Gosched()
	}
}
