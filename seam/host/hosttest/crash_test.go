package hosttest

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// checkOf configures a check that is required on a sweep.
func checkOf(argv ...string) string {
	b, err := json.Marshal(obj{"checks": obj{"hold": obj{"argv": argv, "required": true, "callSites": []string{"sweep"}}}})
	if err != nil {
		panic(err) // strings can be encoded
	}
	return string(b)
}

// TestLostReply: the reply is lost with the host, at whatever moment it is killed.
// Asked again, a new host says what came of it, once.
func TestLostReply(t *testing.T) {
	w := newWorld(t, "", map[string]string{"a": "a\n"})
	killed := 0
	for i := range 12 {
		s := w.serve()
		c := s.dial()
		name, content := fmt.Sprintf("f%d", i), strings.Repeat(fmt.Sprintf("%d\n", i), 1+1000*i)
		base := c.baseline()
		c.put(content)
		p := applyParams(proposal(fmt.Sprintf("p%d", i), base, create(name, content)))
		id := c.start("host/applyProposal", p)
		if i%3 == 0 {
			// The answer was there, and the harness did not read it.
			if a := c.next(); fmt.Sprint(a.id) != fmt.Sprint(id) {
				t.Fatalf("answer to %v", a.id)
			}
		} else if i%3 == 1 {
			for range 200 * i { // some moment of the transaction: whichever it is, the rest must hold
				_, _ = os.Lstat(filepath.Join(w.root, name))
			}
		}
		s.kill()
		c.close()
		killed++

		s = w.serve()
		c = s.dial()
		c.put(content)
		a := c.good("host/applyProposal", p)
		if a.result["applied"] != true {
			t.Fatalf("round %d, asked again: %.1000s", i, a.raw)
		}
		if got := w.read(name); got != content {
			t.Fatalf("round %d: the file holds %d bytes, want %d", i, len(got), len(content))
		}
		again := c.good("host/applyProposal", p)
		if string(again.raw[len(fmt.Sprintf(`{"id":%d`, c.n)):]) != string(a.raw[len(fmt.Sprintf(`{"id":%d`, c.n-1)):]) {
			t.Errorf("round %d: another answer:\n%.500s\n%.500s", i, a.raw, again.raw)
		}
		c.close()
		s.kill()
	}
	_, out, _ := w.run("", "receipts", "list", "--json")
	var list []struct{ ProposalID, Outcome string }
	must(t, json.Unmarshal([]byte(out), &list))
	applied := map[string]int{}
	for _, r := range list {
		if r.Outcome == "applied" {
			applied[r.ProposalID]++
		}
	}
	for i := range killed {
		if n := applied[fmt.Sprintf("p%d", i)]; n != 1 {
			t.Errorf("p%d was applied %d times", i, n)
		}
	}
	if st := w.git("status", "--porcelain", "-uall"); strings.Count(st, "\n") != killed {
		t.Errorf("git sees:\n%s", st)
	}
}

// TestRepeatWithoutItsContent: a retry need not bring the content again.
func TestRepeatWithoutItsContent(t *testing.T) {
	w := newWorld(t, "", map[string]string{"a": "a\n"})
	c := w.stdio()
	base := c.baseline()
	c.put("b\n")
	p := applyParams(proposal("p", base, modify("a", "a\n", "b\n")))
	first := c.good("host/applyProposal", p)
	if code := c.exit(); code != 0 || first.result["applied"] != true {
		t.Fatalf("exit status %d, %.500s", code, first.raw)
	}
	w.write("a", "the user went on\n")
	c = w.stdio()
	second := c.good("host/applyProposal", p)
	if second.result["applied"] != true || second.receipt() != first.receipt() {
		t.Errorf("asked again without the content: %.500s", second.raw)
	}
	p["proposal"] = proposal("p", base, modify("a", "a\n", "c\n"))
	c.put("c\n")
	if a := c.good("host/applyProposal", p); a.refused() != "conflict" || !strings.HasPrefix(a.detail(), "id-reuse:") {
		t.Errorf("the id with other content: %.500s", a.raw)
	}
	if got := w.read("a"); got != "the user went on\n" {
		t.Errorf("a holds %q", got)
	}
	if code := c.exit(); code != 0 {
		t.Errorf("exit status %d", code)
	}
}

// held starts an apply with a check that takes so many seconds, and returns once the
// check runs.
func held(t *testing.T, seconds string) (w *world, c *stdio, id int) {
	t.Helper()
	// The sleep is told from all others by how it spells its argument.
	arg := seconds + ".0" + strconv.Itoa(os.Getpid())
	w = newWorld(t, checkOf("sleep", arg), map[string]string{"a": "a\n"})
	c = w.stdio()
	base := c.baseline()
	c.put("b\n")
	p := applyParams(proposal("p", base, modify("a", "a\n", "b\n")))
	p["callSite"] = "sweep"
	id = c.start("host/applyProposal", p)
	for end := time.Now().Add(limit); !running("sleep\x00" + arg); {
		if time.Now().After(end) {
			t.Fatalf("the check does not begin: %s", c.errs)
		}
		runtime.Gosched()
	}
	return w, c, id
}

// running tells whether a process has this command line.
func running(cmdline string) bool {
	procs, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	return slices.ContainsFunc(procs, func(p string) bool {
		b, err := os.ReadFile(p)
		return err == nil && strings.TrimSuffix(string(b), "\x00") == cmdline
	})
}

// TestCancelAtOnce: a request that is cancelled in the same breath is answered, or is told
// to be cancelled with a receipt, whatever the host was at.
func TestCancelAtOnce(t *testing.T) {
	w := newWorld(t, checkOf("true"), map[string]string{"a": "a\n"})
	c := w.stdio()
	base := c.baseline()
	c.put("b\n")
	for n := range 3 {
		for method, params := range map[string]obj{
			"host/applyProposal":     applyParams(proposal(fmt.Sprint("p", n), base, modify("a", "a\n", "b\n"))),
			"host/evaluateChangeset": {"callSite": "gate", "changeset": changeset(base, obj{"path": "a", "kind": "modify", "before": digest("a\n"), "after": digest("b\n")})},
			"host/requestEditPlan":   {"callSite": "gate", "operation": "text-edit", "baseline": base},
			"host/queryInspect":      {"callSite": "gate", "request": obj{"method": "inspect/references", "params": obj{"symbol": obj{"id": "x"}}}},
		} {
			c.notify("$/cancelRequest", obj{"id": c.start(method, params)})
			a := c.next()
			d, _ := a.err["data"].(obj)
			detail, _ := d["detail"].(string)
			if a.err != nil && !strings.Contains(detail, "receipt rcpt-") {
				t.Errorf("%s: no receipt: %.500s", method, a.raw)
			}
		}
	}
}

// TestCancelDuringACheck: the harness cancels while a check runs.
func TestCancelDuringACheck(t *testing.T) {
	w, c, id := held(t, "600")
	before := w.everything()
	c.notify("$/cancelRequest", obj{"id": id})
	a := c.next()
	d, _ := a.err["data"].(obj)
	detail, _ := d["detail"].(string)
	if a.code() != -32016 || a.class() != "health" || !strings.HasPrefix(detail, "receipt rcpt-") {
		t.Fatalf("%.500s", a.raw)
	}
	code, out, _ := w.run("", "receipts", "show", strings.TrimPrefix(detail, "receipt "), "--json")
	if code != 0 || !strings.Contains(out, `"outcome":"cancelled"`) {
		t.Errorf("the receipt of the cancelled apply: %d %.500s", code, out)
	}
	if w.everything() != before {
		t.Error("a cancelled apply changed the workspace")
	}
	if code := c.exit(); code != 0 {
		t.Errorf("exit status %d", code)
	}
	nothingLeft(t, w)
}

// TestSignalDuringACheck: so it is when the host is told to stop.
func TestSignalDuringACheck(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGHUP} {
		w, c, _ := held(t, "600")
		before := w.everything()
		must(t, c.cmd.Process.Signal(sig))
		if a := c.next(); a.code() != -32016 {
			t.Errorf("%v: %.500s", sig, a.raw)
		}
		if code := c.status(); code != 0 {
			t.Errorf("%v: exit status %d: %s", sig, code, c.errs)
		}
		if w.everything() != before {
			t.Errorf("%v changed the workspace", sig)
		}
		nothingLeft(t, w)
	}
}

// TestEOFDuringACheck: the end of the input lets the check end.
func TestEOFDuringACheck(t *testing.T) {
	w, c, _ := held(t, "1")
	must(t, c.stdin.Close())
	if a := c.next(); a.result["applied"] != true {
		t.Errorf("%.500s", a.raw)
	}
	if code := c.status(); code != 0 {
		t.Errorf("exit status %d", code)
	}
	if got := w.read("a"); got != "b\n" {
		t.Errorf("a holds %q", got)
	}
	nothingLeft(t, w)
}

// TestKillDuringACheck: killed before the commit record, nothing was changed, and the
// next host goes on.
func TestKillDuringACheck(t *testing.T) {
	w, c, _ := held(t, "600")
	before := w.everything()
	must(t, c.cmd.Process.Kill())
	_ = c.cmd.Wait()
	if w.everything() != before {
		t.Error("a killed apply changed the workspace")
	}
	must(t, os.Remove(filepath.Join(w.asp, "config.json")))
	c = w.stdio()
	base := c.baseline()
	c.put("b\n")
	if a := c.good("host/applyProposal", applyParams(proposal("p", base, modify("a", "a\n", "b\n")))); a.result["applied"] != true {
		t.Errorf("%.500s", a.raw)
	}
	if code := c.exit(); code != 0 {
		t.Errorf("exit status %d", code)
	}
}

// nothingLeft looks for processes of the world, and for scratch and transactions.
func nothingLeft(t *testing.T, w *world) {
	t.Helper()
	procs, err := filepath.Glob("/proc/[0-9]*/environ")
	must(t, err)
	for _, p := range procs {
		if env, err := os.ReadFile(p); err == nil && strings.Contains(string(env), w.asp) {
			cmd, _ := os.ReadFile(filepath.Join(filepath.Dir(p), "cmdline"))
			t.Errorf("a process is left: %q", cmd)
		}
	}
	for _, d := range []string{filepath.Join(w.asp, "scratch"), filepath.Join(w.root, ".git", "asp")} {
		if es, err := os.ReadDir(d); err == nil && len(es) > 0 {
			t.Errorf("%s holds %v", d, es)
		}
	}
}
