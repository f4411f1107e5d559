//go:build linux

package hosttest

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// linearOps is how many operations the histories below have together, and in each.
func linearOps(t *testing.T) (all, each int) {
	t.Helper()
	if s := os.Getenv("LINEAR_OPS"); s != "" {
		n, err := strconv.Atoi(s)
		must(t, err)
		return n, 2000
	}
	if os.Getenv("ASP_CRASH") == "long" {
		return 20_000, 2000
	}
	return 200, 200
}

// TestLinearizable: clients of one host and processes of their own apply plans to
// the same few files, some are killed and ask again, the host is killed and started
// again, and an editor that asks nobody saves all the time. A checker finds an order
// of everything that was answered which respects real time and in which every
// answer is right: no acknowledged update is lost, and no refusal is without cause.
func TestLinearizable(t *testing.T) {
	all, each := linearOps(t)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	var sum tally
	for round := 0; sum.total() < all; round++ {
		ok := t.Run(fmt.Sprint(round), func(t *testing.T) {
			s := newScene(t, rand.New(rand.NewPCG(seed, uint64(round))))
			s.play(each)
			sum.add(s.history)
			if err := judge(s.starts, s.history); err != nil {
				t.Fatal(err)
			}
			s.control(t)
		})
		if !ok {
			break
		}
	}
	t.Logf("%s", sum.String())
}

// control turns an applied plan that another one was built on into a refused one:
// the checker has to see through that.
func (s *scene) control(t *testing.T) {
	t.Helper()
	for i, h := range s.history {
		if h.out != applied {
			continue
		}
		for _, next := range s.history {
			built := false
			for p, c := range h.post {
				built = built || c > none && next.pre[p] == c
			}
			if next.out != applied || !built {
				continue
			}
			forged := slices.Clone(s.history)
			forged[i].out = refused
			if judge(s.starts, forged) == nil {
				t.Errorf("accepted without %v, which %v was built on", h, next)
			}
			return
		}
	}
	t.Error("no plan was built on another one")
}

// tally counts operations by who and outcome.
type tally map[string]int

func (c *tally) add(history []happened) {
	if *c == nil {
		*c = tally{}
	}
	for _, h := range history {
		kind, _, _ := strings.Cut(h.who, " ")
		(*c)[kind+" "+string(h.out)]++
	}
}

func (c tally) total() (n int) {
	for _, m := range c {
		n += m
	}
	return n
}

func (c tally) String() string {
	var parts []string
	for k, n := range c {
		parts = append(parts, fmt.Sprintf("%s %d", k, n))
	}
	slices.Sort(parts)
	return fmt.Sprintf("%d operations: %s", c.total(), strings.Join(parts, ", "))
}

// scene is one workspace with everybody who works in it, and what happened there.
type scene struct {
	w      *world
	rng    *rand.Rand // of who makes the others
	starts []state
	clock  atomic.Int64
	values atomic.Int32
	left   atomic.Int64 // operations that may still begin
	socket string

	mu      sync.Mutex
	history []happened
	err     error // the first
}

const groups = 3

func pathOf(group, i int) string { return fmt.Sprintf("g%d/%c", group, 'a'+i) }

func newScene(t *testing.T, rng *rand.Rand) *scene {
	s := &scene{rng: rng}
	s.w = newWorld(t, "", s.start())
	return s
}

// start fills the groups.
func (s *scene) start() map[string]string {
	files := map[string]string{}
	for g := range groups {
		var start state
		for i := range start {
			start[i] = s.fresh()
			files[pathOf(g, i)] = start[i].text()
		}
		s.starts = append(s.starts, start)
	}
	return files
}

func (s *scene) fresh() content { return content(s.values.Add(1)) }

func (s *scene) fork() *rand.Rand { return rand.New(rand.NewPCG(s.rng.Uint64(), s.rng.Uint64())) }

func (s *scene) record(h happened) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.history = append(s.history, h)
}

// fail ends the scene.
func (s *scene) fail(err error) {
	s.left.Store(0)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.err = err
	}
}

// play lets everybody work until so many operations began, and looks at the end.
func (s *scene) play(ops int) {
	t := s.w.t
	s.left.Store(int64(ops))
	server := s.w.serve()
	s.socket = server.socket
	base, err := s.baseline()
	must(t, err)
	var clients, editors sync.WaitGroup
	stop := make(chan struct{})
	for g := range groups {
		pace := make(chan struct{}, 64)
		for i := range 3 {
			c := &planner{s: s, group: g, name: fmt.Sprintf("g%dc%d", g, i), rng: s.fork(), pace: pace, base: base}
			if c.ask, c.kind = c.bySocket, "socket"; i == 0 && g == 0 {
				c.ask, c.kind = c.byProcess, "process"
			}
			clients.Go(c.work)
		}
		e := &editor{s: s, group: g, rng: s.fork(), pace: pace, stop: stop}
		editors.Go(func() {
			if err := e.work(); err != nil {
				s.fail(fmt.Errorf("the editor: %w", err))
			}
		})
	}
	ended := make(chan struct{})
	go func() { clients.Wait(); close(ended) }()
	// The host is killed at thirds, with everybody at work.
	for _, at := range []int64{int64(ops) * 2 / 3, int64(ops) / 3} {
		for running := true; running && s.left.Load() > at; {
			select {
			case <-ended:
				running = false
			case <-time.After(time.Millisecond):
			}
		}
		server.kill()
		server = s.w.serve()
	}
	<-ended
	close(stop)
	editors.Wait()
	server.kill()
	if s.err != nil {
		t.Fatal(s.err)
	}
	// What a kill left is settled before the look.
	if code, out, errs := s.w.run("", "recover", "--repo", s.w.root, "--keep-mine", "--json"); code != 0 {
		t.Errorf("recover ends with %d: %s%s", code, out, errs)
	}
	s.close()
}

// close adds a look at all files when nobody works.
func (s *scene) close() {
	for g := range s.starts {
		h := happened{who: "look", group: g, out: final, call: s.clock.Add(1)}
		for i := range h.pre {
			h.pre[i], h.post[i] = s.look(g, i), other
			if h.pre[i] == other {
				s.w.t.Errorf("%s is torn: %q", pathOf(g, i), s.w.read(pathOf(g, i)))
			}
		}
		h.ret = s.clock.Add(1)
		s.record(h)
	}
}

// look reads a file as anybody can: between two swaps it may be what never was.
func (s *scene) look(group, i int) content {
	b, err := os.ReadFile(filepath.Join(s.w.root, pathOf(group, i)))
	if errors.Is(err, os.ErrNotExist) {
		return none
	}
	c, ok := parse(string(b))
	if err != nil || !ok {
		return other
	}
	return c
}

// planner is a client: it looks, plans on what it saw, and asks for it.
type planner struct {
	s     *scene
	group int
	name  string
	kind  string
	rng   *rand.Rand
	pace  chan struct{}
	n     int
	base  obj
	ask   func(p obj, contents []string) (answer obj, err error)
}

var (
	// errNoAnswer: whoever was asked died first.
	errNoAnswer = errors.New("no answer")
	// errRolledBack: a save came while the plan's pre-images were read, and the
	// answer says to ask again.
	errRolledBack = errors.New("rolled back")
	// errAttention: a save came while the plan was undone, and the answer says that
	// somebody has to look.
	errAttention = errors.New("needs attention")
)

// failure tells the errors that an answer may be.
func failure(answer []byte) error {
	var m struct {
		Error struct {
			Message string
			Data    struct{ Retryable bool }
		}
	}
	err := json.Unmarshal(answer, &m)
	switch {
	case err == nil && strings.HasPrefix(m.Error.Message, "needs attention"):
		return errAttention
	case err == nil && m.Error.Data.Retryable && strings.Contains(m.Error.Message, "changed while it was read"):
		return errRolledBack
	}
	return fmt.Errorf("an error: %s", answer)
}

// settle decides for what is on disk. Others may do so at once.
func (s *scene) settle() { _ = s.w.command("recover", "--repo", s.w.root, "--keep-mine").Run() }

func (c *planner) work() {
	for c.s.left.Add(-1) >= 0 {
		h, err := c.one()
		if err != nil {
			c.s.fail(fmt.Errorf("%s: %w", c.name, err))
			return
		}
		if h.out != "" {
			c.s.record(h)
		}
		select {
		case c.pace <- struct{}{}:
		default:
		}
	}
}

// one makes a plan and asks until it knows what came of it. An operation without
// outcome says nothing of the files.
func (c *planner) one() (happened, error) {
	h := happened{who: c.kind + " " + c.name, group: c.group, pre: nothing, post: nothing}
	var ops []obj
	var contents []string
	for many := c.rng.IntN(2) == 0; len(ops) == 0; {
		for i := range h.pre {
			if h.pre[i] = other; many || c.rng.IntN(groupPaths) == 0 {
				h.pre[i] = c.s.look(c.group, i)
			}
			if h.pre[i] == other {
				continue
			}
			if h.post[i] = c.s.fresh(); h.pre[i] != none && c.rng.IntN(8) == 0 {
				h.post[i] = none
			}
			p, was, is := pathOf(c.group, i), h.pre[i].text(), h.post[i].text()
			switch {
			case h.pre[i] == none:
				ops = append(ops, create(p, is))
			case h.post[i] == none:
				ops = append(ops, obj{"path": p, "kind": "delete", "precondition": obj{"expectedDigest": digest(was)}})
				continue
			default:
				ops = append(ops, modify(p, was, is))
			}
			contents = append(contents, is)
		}
	}
	if c.base == nil {
		var err error
		if c.base, err = c.s.baseline(); err != nil {
			return h, err
		}
	}
	c.n++
	p := proposal(fmt.Sprintf("%s-%d", c.name, c.n), c.base, ops...)
	h.call = c.s.clock.Add(1)
	for end := time.Now().Add(limit); ; {
		r, err := c.ask(p, contents)
		switch {
		case time.Now().After(end):
			return h, fmt.Errorf("no outcome: %v %v", r, err)
		case errors.Is(err, errNoAnswer):
			h.who = "again-" + c.kind + " " + c.name
			time.Sleep(time.Millisecond)
			continue
		case errors.Is(err, errAttention):
			c.s.settle()
			continue
		case errors.Is(err, errRolledBack):
			continue
		case err != nil:
			return h, err
		}
		for _, k := range []string{"baselineAfter", "baselineBefore"} {
			if b, ok := r[k].(obj); ok {
				c.base = b
				break
			}
		}
		if r["applied"] == true {
			h.out = applied
		} else {
			code, _, _ := strings.Cut((answer{result: r}).detail(), ":")
			switch code {
			case "stale-basis", "changed-underneath", "exists", "missing":
				h.out = refused
			case "foreign-baseline":
				c.base = nil
			case "needs-attention":
				// A kill and a save met. Somebody decides, and the plan is asked for again:
				// only its own answer says whether it was applied before.
				c.s.settle()
				continue
			default:
				return h, fmt.Errorf("%v: %v", h, r)
			}
		}
		h.ret = c.s.clock.Add(1)
		return h, nil
	}
}

func (s *scene) baseline() (obj, error) {
	out, err := s.w.command("status", "--repo", s.w.root, "--json").Output()
	var r struct {
		Workspace struct{ Baseline obj }
	}
	// A path that needs attention is told by the exit status, too.
	var exit *exec.ExitError
	if err == nil || errors.As(err, &exit) {
		err = json.Unmarshal(out, &r)
	}
	return r.Workspace.Baseline, err
}

// bySocket asks the host. One that was killed gives no answer.
func (c *planner) bySocket(p obj, contents []string) (obj, error) {
	conn, err := net.Dial("unix", c.s.socket)
	if err != nil {
		return nil, errors.Join(errNoAnswer, err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(limit))
	in := bufio.NewReader(conn)
	if len(contents) > 0 {
		if _, err := exchange(conn, in, "workspace/putBlob", obj{"blobs": blobs(contents)}); err != nil {
			return nil, err
		}
	}
	return exchange(conn, in, "host/applyProposal", applyParams(p))
}

func blobs(contents []string) []obj {
	list := []obj{}
	for _, content := range contents {
		list = append(list, obj{"encoding": "base64", "bytes": base64.StdEncoding.EncodeToString([]byte(content))})
	}
	return list
}

// exchange sends one request and waits for its answer, which has to be a result.
func exchange(conn net.Conn, in *bufio.Reader, method string, params any) (obj, error) {
	if err := tell(conn, obj{"id": method, "method": method, "params": params}); err != nil {
		return nil, errors.Join(errNoAnswer, err)
	}
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return nil, errors.Join(errNoAnswer, err)
		}
		var m struct {
			ID, Error any
			Result    obj
		}
		if err := json.Unmarshal(line, &m); err != nil {
			return nil, err
		}
		if m.ID != method {
			continue
		}
		if m.Error != nil {
			return nil, failure(line)
		}
		return m.Result, nil
	}
}

// byProcess runs the command, and kills it at some moment once in three times.
func (c *planner) byProcess(p obj, contents []string) (obj, error) {
	plan, err := json.Marshal(obj{"proposal": p, "blobs": blobs(contents)})
	if err != nil {
		return nil, err
	}
	cmd := c.s.w.command("apply", "--plan", "-", "--json")
	var out, errs bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(plan), &out, &errs
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	if c.rng.IntN(3) == 0 {
		timer := time.AfterFunc(time.Duration(c.rng.IntN(60))*time.Millisecond, func() { _ = cmd.Process.Kill() })
		defer timer.Stop()
	}
	err = cmd.Wait()
	var exit *exec.ExitError
	switch code := cmd.ProcessState.ExitCode(); {
	case code == -1:
		return nil, errNoAnswer
	case err != nil && !errors.As(err, &exit):
		return nil, err
	case code > 1:
		return nil, failure(out.Bytes())
	}
	var r obj
	err = json.Unmarshal(out.Bytes(), &r)
	return r, err
}
