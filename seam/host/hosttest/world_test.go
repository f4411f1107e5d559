package hosttest

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// obj is a JSON object being built or read.
type obj = map[string]any

// world is a git work tree with a state directory of its own.
type world struct {
	opened map[string]bool // gates of checks; see open
	t      testing.TB
	root   string
	asp    string
	base   string
	// fakes are the providers that the policy pins.
	fakes []string
}

func newWorld(t testing.TB, config string, files map[string]string) *world {
	t.Helper()
	base, err := filepath.EvalSymlinks(t.TempDir())
	must(t, err)
	w := &world{t: t, base: base, root: filepath.Join(base, "ws"), asp: filepath.Join(base, "state")}
	must(t, os.Mkdir(w.root, 0o755))
	must(t, os.Mkdir(w.asp, 0o700))
	if config != "" {
		must(t, os.WriteFile(filepath.Join(w.asp, "config.json"), []byte(config), 0o600))
	}
	for n, c := range files {
		w.write(n, c)
	}
	w.git("init", "-q", "-b", "main", "--template=")
	w.git("add", "-A")
	w.git("commit", "-q", "--allow-empty", "-m", "base")
	t.Cleanup(func() {
		if t.Failed() {
			return
		}
		if out, err := w.command("receipts", "verify", "--repo", w.root).CombinedOutput(); err != nil {
			t.Errorf("receipts verify: %v\n%s", err, out)
		}
	})
	return w
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (w *world) write(name, content string) {
	w.t.Helper()
	p := filepath.Join(w.root, name)
	must(w.t, os.MkdirAll(filepath.Dir(p), 0o755))
	must(w.t, os.WriteFile(p, []byte(content), 0o644))
}

func (w *world) read(name string) string {
	w.t.Helper()
	b, err := os.ReadFile(filepath.Join(w.root, name))
	must(w.t, err)
	return string(b)
}

func (w *world) env() []string {
	return []string{"PATH=" + os.Getenv("PATH"), "HOME=" + w.base, "LANG=C.UTF-8", "TMPDIR=" + w.base, "ASP_HOME=" + w.asp, "GIT_CONFIG_NOSYSTEM=1",
		"GIT_AUTHOR_NAME=A", "GIT_AUTHOR_EMAIL=a@example.org", "GIT_COMMITTER_NAME=A", "GIT_COMMITTER_EMAIL=a@example.org"}
}

func (w *world) git(args ...string) string {
	w.t.Helper()
	cmd := exec.Command("git", append([]string{"-C", w.root}, args...)...)
	cmd.Env = w.env()
	out, err := cmd.CombinedOutput()
	if err != nil {
		w.t.Fatalf("git %v: %v\n%s", args, err, out)
	}
	return string(out)
}

// command prepares a run of the binary.
func (w *world) command(args ...string) *exec.Cmd {
	cmd := exec.Command(binary, args...)
	cmd.Dir, cmd.Env = w.root, w.env()
	return cmd
}

// run runs the binary to its end.
func (w *world) run(stdin string, args ...string) (code int, stdout, stderr string) {
	w.t.Helper()
	cmd := w.command(args...)
	var out, errs bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &errs
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		w.t.Fatal(err)
	}
	if strings.Contains(errs.String(), "panic:") {
		w.t.Fatalf("asp %v panicked:\n%s", args, errs.String())
	}
	return cmd.ProcessState.ExitCode(), out.String(), errs.String()
}

// everything is a digest of all files below the root, the repository's included.
func (w *world) everything() string {
	w.t.Helper()
	h := sha256.New()
	must(w.t, filepath.WalkDir(w.root, func(p string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		fi, err := d.Info()
		if err != nil {
			return err
		}
		fmt.Fprintf(h, "%q %v\n", p, fi.Mode())
		if d.Type().IsRegular() {
			b, err := os.ReadFile(p)
			if err != nil {
				return err
			}
			h.Write(b)
		}
		return nil
	}))
	return hex.EncodeToString(h.Sum(nil))
}

// server is a host that runs.
type server struct {
	w      *world
	cmd    *exec.Cmd
	errs   *buffer
	socket string
	ended  chan struct{}
	err    error
}

// buffer may be written and read at once.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) { b.mu.Lock(); defer b.mu.Unlock(); return b.b.Write(p) }
func (b *buffer) String() string              { b.mu.Lock(); defer b.mu.Unlock(); return b.b.String() }

// limit is how long anything here may take before the test gives up.
const limit = time.Minute

// serve starts a host on a socket and returns once it accepts.
func (w *world) serve(env ...string) *server {
	w.t.Helper()
	s := &server{w: w, errs: &buffer{}, socket: filepath.Join(w.base, "socket"), ended: make(chan struct{})}
	s.cmd = w.command("host", "serve", "--repo", w.root, "--socket", s.socket)
	s.cmd.Env = append(s.cmd.Env, env...)
	r, wr, err := os.Pipe()
	must(w.t, err)
	defer r.Close()
	s.cmd.Stderr = wr
	must(w.t, s.cmd.Start())
	wr.Close()
	in := bufio.NewReader(r)
	line, err := in.ReadString('\n')
	if err != nil || !strings.HasPrefix(line, "listening on ") {
		rest, _ := io.ReadAll(in)
		w.t.Fatalf("the host does not start: %s%s", line, rest)
	}
	// What it says later goes to a pipe that nobody reads: it says little.
	go func() { s.err = s.cmd.Wait(); close(s.ended) }()
	w.t.Cleanup(func() {
		_ = s.cmd.Process.Kill()
		s.wait()
	})
	return s
}

func (s *server) wait() {
	s.w.t.Helper()
	select {
	case <-s.ended:
	case <-time.After(limit):
		s.w.t.Fatal("the host does not end")
	}
}

func (s *server) kill() {
	_ = s.cmd.Process.Kill()
	s.wait()
}

// client is a harness on one connection.
type client struct {
	t     testing.TB
	in    *bufio.Reader
	out   io.Writer
	close func()
	n     int
	notes []obj // notifications that came
}

func (s *server) dial() *client {
	s.w.t.Helper()
	c, err := net.Dial("unix", s.socket)
	must(s.w.t, err)
	_ = c.SetDeadline(time.Now().Add(limit))
	return &client{t: s.w.t, in: bufio.NewReaderSize(c, 64<<10), out: c, close: func() { c.Close() }}
}

// stdio starts a host on pipes.
type stdio struct {
	*client
	cmd   *exec.Cmd
	stdin io.Closer
	errs  *buffer
}

func (w *world) stdio(env ...string) *stdio {
	w.t.Helper()
	cmd := w.command("host", "serve", "--repo", w.root)
	cmd.Env = append(cmd.Env, env...)
	in, err := cmd.StdinPipe()
	must(w.t, err)
	out, err := cmd.StdoutPipe()
	must(w.t, err)
	s := &stdio{cmd: cmd, stdin: in, errs: &buffer{}}
	cmd.Stderr = s.errs
	must(w.t, cmd.Start())
	s.client = &client{t: w.t, in: bufio.NewReaderSize(out, 64<<10), out: in, close: func() { in.Close() }}
	w.t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return s
}

// exit ends the input and returns the exit status.
func (s *stdio) exit() int {
	s.t.Helper()
	s.close()
	return s.status()
}

// status waits for the process.
func (s *stdio) status() int {
	s.t.Helper()
	rest, err := io.ReadAll(s.in)
	if err != nil || len(rest) > 0 {
		s.t.Errorf("left on stdout: %.500q, %v", rest, err)
	}
	err = s.cmd.Wait()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		s.t.Fatal(err)
	}
	return s.cmd.ProcessState.ExitCode()
}

// answer is what came back for one request.
type answer struct {
	raw    []byte
	id     any
	result obj
	err    obj
}

func (a answer) code() int {
	n, _ := a.err["code"].(json.Number)
	i, _ := n.Int64()
	return int(i)
}

func (a answer) class() string {
	d, _ := a.err["data"].(obj)
	s, _ := d["failClass"].(string)
	return s
}

// start sends a request and returns its id.
func (c *client) start(method string, params any) int {
	c.t.Helper()
	c.n++
	m := obj{"jsonrpc": "2.0", "id": c.n, "method": method}
	if params != nil {
		m["params"] = params
	}
	b, err := json.Marshal(m)
	must(c.t, err)
	c.line(b)
	return c.n
}

func (c *client) line(b []byte) {
	c.t.Helper()
	if _, err := c.out.Write(append(b, '\n')); err != nil {
		c.t.Fatalf("write: %v", err)
	}
}

func (c *client) notify(method string, params any) {
	c.t.Helper()
	b, err := json.Marshal(obj{"jsonrpc": "2.0", "method": method, "params": params})
	must(c.t, err)
	c.line(b)
}

// next reads the next answer; notifications before it are kept.
func (c *client) next() answer {
	c.t.Helper()
	for {
		line, err := c.in.ReadBytes('\n')
		if err != nil {
			c.t.Fatalf("read: %v (%.200q)", err, line)
		}
		var m obj
		d := json.NewDecoder(bytes.NewReader(line))
		d.UseNumber()
		must(c.t, d.Decode(&m))
		if m["method"] != nil {
			c.notes = append(c.notes, m)
			continue
		}
		a := answer{raw: line, id: m["id"]}
		a.result, _ = m["result"].(obj)
		a.err, _ = m["error"].(obj)
		return a
	}
}

// call sends a request and waits for its answer, with no other open.
func (c *client) call(method string, params any) answer {
	c.t.Helper()
	id := c.start(method, params)
	a := c.next()
	if fmt.Sprint(a.id) != fmt.Sprint(id) {
		c.t.Fatalf("answer to %v, want %d: %.500s", a.id, id, a.raw)
	}
	return a
}

// good is call, for requests that have a result.
func (c *client) good(method string, params any) answer {
	c.t.Helper()
	a := c.call(method, params)
	if a.err != nil {
		c.t.Fatalf("%s: %.1000s", method, a.raw)
	}
	return a
}

func (c *client) baseline() obj {
	c.t.Helper()
	ws, _ := c.good("host/status", obj{}).result["workspace"].(obj)
	b, _ := ws["baseline"].(obj)
	return b
}

// digest is the blob id of bytes.
func digest(b string) string {
	s := sha256.Sum256([]byte(b))
	return "blob:sha256:" + hex.EncodeToString(s[:])
}

// put adds content to the session.
func (c *client) put(content string) string {
	c.t.Helper()
	a := c.good("workspace/putBlob", obj{"blobs": []obj{{"encoding": "base64", "bytes": base64.StdEncoding.EncodeToString([]byte(content))}}})
	ids, _ := a.result["ids"].([]any)
	if len(ids) != 1 || ids[0] != digest(content) {
		c.t.Fatalf("putBlob answers %s", a.raw)
	}
	return digest(content)
}

// modify is an operation that replaces a file.
func modify(path, before, after string) obj {
	return obj{"path": path, "kind": "modify", "precondition": obj{"expectedDigest": digest(before)}, "after": digest(after)}
}

func create(path, after string) obj {
	return obj{"path": path, "kind": "create", "precondition": obj{"expectedAbsence": true}, "after": digest(after)}
}

// proposal is an EditPlan as a harness would hold it.
func proposal(id string, base obj, ops ...obj) obj {
	var touched []obj
	for _, o := range ops {
		r := obj{"path": o["path"], "kind": o["kind"], "precondition": o["precondition"]}
		if o["to"] != nil {
			r["to"] = o["to"]
		}
		touched = append(touched, r)
	}
	return obj{
		"proposalId": id, "status": "complete", "baseline": base,
		"provider":         obj{"id": "mine", "version": "1", "capabilityFamily": "edit", "capabilityVersion": "edit/1.0", "configDigest": "none"},
		"validAsOf":        obj{"baseline": base, "blobs": []string{}},
		"touchedResources": touched, "workspaceEdit": obj{"baseline": base, "documentChanges": ops},
	}
}

func applyParams(p obj) obj {
	return obj{"callSite": "interactive", "proposalId": p["proposalId"], "intent": "harness", "proposal": p}
}

// refused returns the reason of a refusal, "" where there is none.
func (a answer) refused() string {
	r, _ := a.result["refusal"].(obj)
	s, _ := r["reason"].(string)
	return s
}

func (a answer) detail() string {
	r, _ := a.result["refusal"].(obj)
	s, _ := r["detail"].(string)
	return s
}

func (a answer) receipt() string {
	r, _ := a.result["receipt"].(obj)
	s, _ := r["receiptId"].(string)
	return s
}
