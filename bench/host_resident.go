package main

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// residentFiles are the sizes of the workspaces that one apply through a resident
// host is compared in.
func (c *config) residentFiles() (small, big int) {
	if c.big >= 50000 {
		return 200, 200_000
	}
	return 200, 5000
}

// residentRows measure what the size of the workspace adds to an apply of one file
// through a host that keeps it in memory, and how many applies a second one
// workspace takes from many clients.
func (c *config) residentRows(ctx context.Context) error {
	small, big := c.residentFiles()
	var cs []contender
	var hs []*hostClient
	for _, n := range []int{small, big} {
		r, err := newRepo(filepath.Join(c.mem, fmt.Sprint("resident-", n)), n)
		if err != nil {
			return err
		}
		defer os.RemoveAll(filepath.Dir(r.dir))
		h, err := c.serve(ctx, r)
		if err != nil {
			return err
		}
		defer h.close()
		// The first look is a walk, and so is one that comes when that is too old.
		if _, err := h.status(); err != nil {
			return err
		}
		hs = append(hs, h)
		cs = append(cs, contender{run: func() error { return h.applyOne(r.files[0]) }, after: h.meter})
	}
	t, err := race(ctx, max(c.runs, 21), cs...)
	if err != nil {
		return err
	}
	cpu := []float64{hs[0].cpu.median(), hs[1].cpu.median()}
	for i, n := range []int{small, big} {
		w := row{Group: "resident", What: fmt.Sprintf("apply of 1 change through a resident host, %d files", n), Where: c.memType, Unit: "ms", Ours: t[i]}
		p := row{Group: "resident", What: "… processor time of the host", Where: c.memType, Unit: "ms", Ours: cpu[i]}
		if i == 0 {
			c.out.add(w)
			c.out.add(p)
			continue
		}
		w.Peer, w.PeerIs, p.Peer, p.PeerIs = t[0], fmt.Sprintf("%d files", small), cpu[0], fmt.Sprintf("%d files", small)
		c.out.add(w, limit{1.2, "peer"})
		c.out.add(p)
	}
	if err := c.waitingRows(ctx); err != nil {
		return err
	}
	return c.crowdRows(ctx)
}

// crowdRows let clients apply to one workspace at once, each to a file of its own.
func (c *config) crowdRows(ctx context.Context) error {
	const clients, each = 64, 8
	for _, fs := range []string{"ext4", "tmpfs"} {
		dir, done, err := c.place(ctx, fs)
		if err != nil {
			c.out.note("applies of many clients on %s are not measured: %v", fs, err)
			continue
		}
		err = c.crowdOn(ctx, fs, dir, clients, each)
		done()
		if err != nil {
			return fmt.Errorf("on %s: %w", fs, err)
		}
	}
	return nil
}

func (c *config) crowdOn(ctx context.Context, fs, dir string, clients, each int) error {
	r, err := newRepo(filepath.Join(dir, "crowd"), 1000)
	if err != nil {
		return err
	}
	defer os.RemoveAll(filepath.Dir(r.dir))
	socket := filepath.Join(c.mem, "crowd-"+fs+".sock")
	h, err := c.serve(ctx, r, "--socket", socket)
	if err != nil {
		return err
	}
	defer h.close()
	hs := make([]*hostClient, clients)
	for i := range hs {
		if hs[i], err = dial(ctx, r, socket); err != nil {
			return err
		}
		defer hs[i].conn.Close()
		hs[i].id = i * 1_000_000
	}
	if _, err := hs[0].status(); err != nil {
		return err
	}
	if err := h.meter(); err != nil {
		return err
	}
	used := h.used
	d, all, err := askAll(hs, r.files, each, 0)
	if err != nil {
		return err
	}
	if err := h.meter(); err != nil {
		return err
	}
	c.out.add(row{Group: "resident", What: fmt.Sprintf("durable applies of 1 change, %d clients, each", clients), Where: fs, Unit: "ms",
		Ours: ms(all) / float64(len(d)), Peer: 1000. / 150, PeerIs: "150 a second"}, limit{1, "peer"})
	c.out.add(row{Group: "resident", What: "… processor time of the host, each", Where: fs, Unit: "ms", Ours: ms(h.used-used) / float64(len(d))})
	// Clients that ask again at once wait for each other: this is the time of 64 applies.
	c.out.add(row{Group: "resident", What: "… slowest of a hundred, all asking at once", Where: fs, Unit: "ms", Ours: ms(d[len(d)*99/100])})
	if d, _, err = askAll(hs, r.files, each, time.Second*time.Duration(clients)/150); err != nil {
		return err
	}
	c.out.add(row{Group: "resident", What: "… slowest of a hundred, at 150 a second", Where: fs, Unit: "ms", Ours: ms(d[len(d)*99/100]), Peer: 100, PeerIs: "the goal"}, limit{1, "peer"})
	return nil
}

// askAll has each client apply so many times and returns how long they took, sorted,
// and all of it. With a pace each client begins one in every pace, one client after the
// other, and what it is late counts; without, it asks again when it has an answer.
func askAll(hs []*hostClient, files []string, each int, pace time.Duration) (d []time.Duration, all time.Duration, err error) {
	took := make([][]time.Duration, len(hs))
	began := time.Now()
	err = together(len(hs), func(i int) error {
		for n := range each {
			at := time.Now()
			if pace > 0 {
				at = began.Add(pace * time.Duration(n*len(hs)+i) / time.Duration(len(hs)))
				time.Sleep(time.Until(at))
			}
			if err := hs[i].applyOne(files[i]); err != nil {
				return err
			}
			took[i] = append(took[i], time.Since(at))
		}
		return nil
	})
	all = time.Since(began)
	d = slices.Concat(took...)
	slices.Sort(d)
	return d, all, err
}

// hostClient speaks to a host, one request at a time.
type hostClient struct {
	r    *repo
	conn io.ReadWriteCloser
	in   *bufio.Reader
	cmd  *exec.Cmd // nil: not ours
	id   int
	base json.RawMessage // what the last answer said the workspace is
	cpu  meter
	used time.Duration
}

type pipes struct {
	io.Reader
	io.WriteCloser
}

// serve starts a host for r. With a socket it returns when that is there, and the
// client has no connection.
func (c *config) serve(ctx context.Context, r *repo, args ...string) (*hostClient, error) {
	cmd := exec.CommandContext(ctx, c.asp, append([]string{"host", "serve"}, args...)...)
	cmd.Dir, cmd.Env = r.dir, append(os.Environ(), r.env()...)
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	said, err := cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	h := &hostClient{r: r, conn: pipes{out, in}, in: bufio.NewReader(out), cmd: cmd}
	if len(args) > 0 {
		if _, err := bufio.NewReader(said).ReadString('\n'); err != nil { // "listening on"
			h.close()
			return nil, fmt.Errorf("start the host: %w", err)
		}
		return h, nil
	}
	go io.Copy(io.Discard, said) //nolint:errcheck // ends with the host
	return h, nil
}

func dial(ctx context.Context, r *repo, socket string) (*hostClient, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", socket)
	if err != nil {
		return nil, err
	}
	return &hostClient{r: r, conn: conn, in: bufio.NewReader(conn)}, nil
}

func (h *hostClient) close() {
	_ = h.conn.Close()
	_ = h.cmd.Process.Signal(os.Interrupt)
	_ = h.cmd.Wait() // how it ends says nothing about what was measured
}

func (h *hostClient) call(method string, params, result any) error {
	h.id++
	b, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": h.id, "method": method, "params": params})
	if err != nil {
		return err
	}
	if _, err := h.conn.Write(append(b, '\n')); err != nil {
		return err
	}
	for {
		line, err := h.in.ReadBytes('\n')
		if err != nil {
			return fmt.Errorf("%s: %w", method, err)
		}
		var a struct {
			ID     *int            `json:"id"`
			Result json.RawMessage `json:"result"`
			Error  json.RawMessage `json:"error"`
		}
		if err := json.Unmarshal(line, &a); err != nil {
			return fmt.Errorf("%s: %w", method, err)
		}
		switch {
		case a.ID == nil: // progress
		case a.Error != nil:
			return fmt.Errorf("%s: %.300s", method, a.Error)
		default:
			return json.Unmarshal(a.Result, result)
		}
	}
}

func (h *hostClient) status() (json.RawMessage, error) {
	var s struct {
		Workspace struct {
			Baseline json.RawMessage `json:"baseline"`
		} `json:"workspace"`
	}
	err := h.call("host/status", map[string]any{}, &s)
	h.base = s.Workspace.Baseline
	return h.base, err
}

// applyOne replaces one file by other bytes of about the same length.
func (h *hostClient) applyOne(path string) error {
	if h.base == nil {
		if _, err := h.status(); err != nil {
			return err
		}
	}
	was, err := os.ReadFile(filepath.Join(h.r.dir, path))
	if err != nil {
		return err
	}
	now := fmt.Appendf(nil, "%s// %d %d\n", strings.SplitAfter(string(was), "// ")[0], h.id, os.Getpid())
	blob := func(b []byte) string { return fmt.Sprintf("blob:sha256:%x", sha256.Sum256(b)) }
	var put json.RawMessage
	if err := h.call("workspace/putBlob", map[string]any{"blobs": []any{map[string]any{"encoding": "utf-8", "bytes": string(now)}}}, &put); err != nil {
		return err
	}
	type obj = map[string]any
	op := obj{"path": path, "kind": "modify", "precondition": obj{"expectedDigest": blob(was)}, "after": blob(now)}
	id := fmt.Sprintf("bench-%d-%d", os.Getpid(), h.id)
	p := obj{
		"proposalId": id, "status": "complete", "baseline": h.base,
		"provider":         obj{"id": "bench", "version": "1", "capabilityFamily": "edit", "capabilityVersion": "edit/1.0", "configDigest": "none"},
		"validAsOf":        obj{"baseline": h.base, "blobs": []string{}},
		"touchedResources": []obj{{"path": path, "kind": "modify", "precondition": op["precondition"]}},
		"workspaceEdit":    obj{"baseline": h.base, "documentChanges": []obj{op}},
	}
	var a struct {
		Applied bool            `json:"applied"`
		Refusal json.RawMessage `json:"refusal"`
		After   json.RawMessage `json:"baselineAfter"`
	}
	if err := h.call("host/applyProposal", obj{"callSite": "interactive", "proposalId": id, "intent": "harness", "proposal": p}, &a); err != nil {
		return err
	}
	if !a.Applied {
		return fmt.Errorf("not applied: %.300s", a.Refusal)
	}
	h.base = a.After
	return nil
}

// meter notes the processor time that the host used since the last time.
func (h *hostClient) meter() error {
	t, err := processorTime(h.cmd.Process.Pid)
	if err != nil {
		return err
	}
	h.cpu.took, h.used = append(h.cpu.took, t-h.used), t
	return nil
}

// processorTime sums what the threads of a process ran, in nanoseconds of the
// scheduler.
func processorTime(pid int) (time.Duration, error) {
	list, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	if err != nil {
		return 0, err
	}
	var sum time.Duration
	for _, name := range list {
		b, err := os.ReadFile(name)
		if err != nil {
			continue // a thread that ended
		}
		n, err := strconv.ParseInt(strings.Fields(string(b))[0], 10, 64)
		if err != nil {
			return 0, err
		}
		sum += time.Duration(n)
	}
	return sum, nil
}
