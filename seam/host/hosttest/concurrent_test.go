package hosttest

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// clients is how many harnesses share one workspace here.
const clients = 64

// TestFirstCommitterWins: all change the same file from the same state. One does,
// the others are told of the conflict, and what they brought is nowhere.
func TestFirstCommitterWins(t *testing.T) {
	w := newWorld(t, "", map[string]string{"a": "base\n"})
	s := w.serve()
	first := s.dial()
	base := first.baseline()
	first.close()
	answers := make([]answer, clients)
	together(clients, func(i int) {
		c := s.dial()
		defer c.close()
		after := fmt.Sprintf("client %d\n", i)
		c.put(after)
		answers[i] = c.good("host/applyProposal", applyParams(proposal(fmt.Sprintf("p%d", i), base, modify("a", "base\n", after))))
	})
	winner := -1
	for i, a := range answers {
		switch {
		case a.result["applied"] == true && winner < 0:
			winner = i
		case a.result["applied"] == true:
			t.Errorf("clients %d and %d both won", winner, i)
		case a.refused() != "conflict":
			t.Errorf("client %d: %.500s", i, a.raw)
		}
	}
	if got := w.read("a"); winner < 0 || got != fmt.Sprintf("client %d\n", winner) {
		t.Errorf("client %d won, a holds %q", winner, got)
	}
}

// together runs f in n goroutines that start at once.
func together(n int, f func(i int)) {
	var wg sync.WaitGroup
	start := make(chan struct{})
	for i := range n {
		wg.Go(func() { <-start; f(i) })
	}
	close(start)
	wg.Wait()
}

// counters is how many files the clients below share: every success makes those who
// add to the same one try again.
func counters() int {
	if os.Getenv("ASP_CRASH") == "long" {
		return 1
	}
	return 8
}

// ask sends a request on a connection of its own, with the content that it names, and
// returns its result. An error means that there was no answer.
func ask(socket, method string, params any, contents ...string) (obj, error) {
	c, err := net.Dial("unix", socket)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(limit))
	for _, content := range contents {
		blob := obj{"encoding": "base64", "bytes": base64.StdEncoding.EncodeToString([]byte(content))}
		if err := tell(c, obj{"id": "put", "method": "workspace/putBlob", "params": obj{"blobs": []obj{blob}}}); err != nil {
			return nil, err
		}
	}
	in := bufio.NewReader(c)
	for range contents { // the content has to be there before the plan that names it
		if _, err := answerTo(in, "put"); err != nil {
			return nil, err
		}
	}
	if err := tell(c, obj{"id": "ask", "method": method, "params": params}); err != nil {
		return nil, err
	}
	return answerTo(in, "ask")
}

func tell(w io.Writer, m obj) error {
	m["jsonrpc"] = "2.0"
	b, err := json.Marshal(m)
	if err == nil {
		_, err = w.Write(append(b, '\n'))
	}
	return err
}

func answerTo(in *bufio.Reader, id string) (obj, error) {
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return nil, err
		}
		var m struct {
			ID     any
			Result obj
		}
		if err := json.Unmarshal(line, &m); err != nil || m.ID == id {
			return m.Result, err
		}
	}
}

// adder is one client that adds one to a counter.
type adder struct {
	w      *world
	socket string
	name   string
	file   string
}

// persist asks until there is an answer: replies are lost while the host is killed and
// started again.
func (a *adder) persist(method string, params any, contents ...string) (obj, error) {
	for end := time.Now().Add(limit); ; {
		r, err := ask(a.socket, method, params, contents...)
		if err == nil || time.Now().After(end) {
			return r, err
		}
		time.Sleep(time.Millisecond)
	}
}

// add adds one, and tries again when another one was faster. It returns the result.
func (a *adder) add() (obj, error) {
	st, err := a.persist("host/status", obj{})
	if err != nil {
		return nil, err
	}
	ws, _ := st["workspace"].(obj)
	base, _ := ws["baseline"].(obj)
	for try := 0; ; try++ {
		before, err := os.ReadFile(filepath.Join(a.w.root, a.file))
		if err != nil {
			return nil, err
		}
		n, err := strconv.Atoi(strings.TrimSpace(string(before)))
		if err != nil {
			return nil, err
		}
		after := strconv.Itoa(n+1) + "\n"
		p := applyParams(proposal(fmt.Sprintf("%s-%d", a.name, try), base, modify(a.file, string(before), after)))
		r, err := a.persist("host/applyProposal", p, after)
		if err != nil || r["applied"] == true {
			return r, err
		}
		if why := (answer{result: r}).refused(); why != "conflict" && why != "stale-baseline" {
			return nil, fmt.Errorf("refused: %v", r["refusal"])
		}
		base, _ = r["baselineBefore"].(obj) // a refusal says on which baseline
	}
}

// TestNoLostUpdate: 64 clients add one each to counters that they share, while the
// host is killed and started again twice. No addition is lost, none is made twice
// by a client that asks again because it got no answer, and the successes are in
// one order.
func TestNoLostUpdate(t *testing.T) {
	files := map[string]string{}
	for i := range counters() {
		files[fmt.Sprint("n", i)] = "0\n"
	}
	w := newWorld(t, "", files)
	s := w.serve()
	var mu sync.Mutex
	baselines := map[string]int{} // that a success started from
	// The host is killed when a third and when two thirds have succeeded, with the
	// others at work.
	milestones := make(chan struct{}, clients)
	finished := make(chan struct{})
	go func() {
		defer close(finished)
		together(clients, func(i int) {
			a := adder{w: w, socket: s.socket, name: fmt.Sprint("c", i), file: fmt.Sprint("n", i%len(files))}
			r, err := a.add()
			if err != nil {
				t.Errorf("client %d: %v", i, err)
			}
			b, _ := r["baselineBefore"].(obj)
			mu.Lock()
			baselines[fmt.Sprint(b["rev"], b["dirty"])]++
			mu.Unlock()
			milestones <- struct{}{}
		})
	}()
	for i := range clients {
		<-milestones
		if i == clients/3 || i == 2*clients/3 {
			s.kill()
			s = w.serve()
		}
	}
	<-finished
	for name := range files {
		if got, want := w.read(name), strconv.Itoa(clients/len(files))+"\n"; got != want {
			t.Errorf("%s is %q after %s additions", name, got, want)
		}
	}
	// Serial order: no two successes started from the same state.
	for b, n := range baselines {
		if n != 1 {
			t.Errorf("%d successes from %s", n, b)
		}
	}
	_, out, _ := w.run("", "receipts", "list", "--json")
	var list []struct{ ProposalID, Outcome string }
	must(t, json.Unmarshal([]byte(out), &list))
	applied := map[string]int{}
	for _, r := range list {
		if r.Outcome == "applied" {
			client, _, _ := strings.Cut(r.ProposalID, "-")
			applied[client]++
		}
	}
	for i := range clients {
		if n := applied[fmt.Sprint("c", i)]; n != 1 {
			t.Errorf("client %d was applied %d times", i, n)
		}
	}
}

// TestOneAfterTheOther: changes that do not meet all succeed, each on the state that
// another one left.
func TestOneAfterTheOther(t *testing.T) {
	w := newWorld(t, "", map[string]string{"a": "a\n"})
	s := w.serve()
	probe := s.dial()
	base := probe.baseline()
	probe.close()
	answers := make([]answer, clients)
	together(clients, func(i int) {
		c := s.dial()
		defer c.close()
		content := fmt.Sprintf("%d\n", i)
		c.put(content)
		answers[i] = c.good("host/applyProposal", applyParams(proposal(fmt.Sprintf("p%d", i), base, create(fmt.Sprintf("d/%d", i), content))))
	})
	follows := map[string]string{}
	for i, a := range answers {
		if a.result["applied"] != true {
			t.Fatalf("client %d: %.500s", i, a.raw)
		}
		b, _ := a.result["baselineBefore"].(obj)
		n, _ := a.result["baselineAfter"].(obj)
		follows[fmt.Sprint(b["rev"], b["dirty"])] = fmt.Sprint(n["rev"], n["dirty"])
		if got := w.read(fmt.Sprintf("d/%d", i)); got != fmt.Sprintf("%d\n", i) {
			t.Errorf("d/%d holds %q", i, got)
		}
	}
	at := fmt.Sprint(base["rev"], base["dirty"])
	for range clients {
		at = follows[at]
	}
	c := s.dial()
	defer c.close()
	now := c.baseline()
	if want := fmt.Sprint(now["rev"], now["dirty"]); at != want || len(follows) != clients {
		t.Errorf("the successes form no chain to %s: %d links, end %q", want, len(follows), at)
	}
}

// TestPipelined: many requests on one connection, answered in any order.
func TestPipelined(t *testing.T) {
	w := newWorld(t, "", map[string]string{"a": "a\n"})
	c := w.stdio()
	base := c.baseline()
	const n = 100
	for i := range n {
		c.put(fmt.Sprintf("%d\n", i))
	}
	for i := range n {
		c.start("host/applyProposal", applyParams(proposal(fmt.Sprintf("p%d", i), base, create(fmt.Sprintf("d/%d", i), fmt.Sprintf("%d\n", i)))))
	}
	c.start("shutdown", obj{})
	c.notify("exit", obj{})
	seen := map[string]bool{}
	for range n + 1 {
		a := c.next()
		if a.err != nil || a.result != nil && a.result["applied"] != true {
			t.Errorf("%.500s", a.raw)
		}
		seen[fmt.Sprint(a.id)] = true
	}
	if len(seen) != n+1 {
		t.Errorf("%d different answers, want %d", len(seen), n+1)
	}
	if code := c.status(); code != 0 {
		t.Errorf("exit status %d", code)
	}
	for i := range n {
		if got := w.read(fmt.Sprintf("d/%d", i)); got != fmt.Sprintf("%d\n", i) {
			t.Errorf("d/%d holds %q", i, got)
		}
	}
}
