package hosttest

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// gated is a configuration with one check, of so many applies at a time. The check says
// in its private directory what it sees, waits there until the test lets it go on, and
// ends with what rule says.
func gated(atOnce int, rule string) string {
	script := `mkfifo "$TMPDIR/gate"; echo * >"$TMPDIR/.sees"; mv "$TMPDIR/.sees" "$TMPDIR/sees"; read -r x <"$TMPDIR/gate"; ` + rule
	b, err := json.Marshal(obj{
		"limits": obj{"checksAtOnce": atOnce},
		"checks": obj{"gate": obj{"argv": []string{"sh", "-c", script}, "required": true, "callSites": []string{"interactive"}}},
	})
	if err != nil {
		panic(err) // it holds strings and a number
	}
	return string(b)
}

// running are the checks that wait at their gate: what each sees, by its scratch
// directory.
func (w *world) running() map[string]string {
	w.t.Helper()
	found, err := filepath.Glob(filepath.Join(w.asp, "scratch", "*", "tmp", "sees"))
	must(w.t, err)
	out := map[string]string{}
	for _, f := range found {
		b, err := os.ReadFile(f)
		dir := filepath.Dir(f)
		if err != nil || w.opened[dir] {
			continue // it ends
		}
		out[dir] = strings.TrimSpace(string(b))
	}
	return out
}

// until waits for checks that see exactly this, all at once at their gates, and returns
// where they are, in the order of what they see.
func (w *world) until(sees ...string) []string {
	w.t.Helper()
	var last map[string]string
	for end := time.Now().Add(limit); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		last = w.running()
		var at []string
		for _, s := range sees {
			for dir, saw := range last {
				if saw == s && !slices.Contains(at, dir) {
					at = append(at, dir)
					break
				}
			}
		}
		if len(at) == len(sees) && len(last) == len(sees) {
			return at
		}
	}
	w.t.Fatalf("checks see %q, want %q", last, sees)
	return nil
}

func (w *world) open(dirs ...string) {
	w.t.Helper()
	for _, d := range dirs {
		if w.opened == nil {
			w.opened = map[string]bool{}
		}
		w.opened[d] = true
		f, err := os.OpenFile(filepath.Join(d, "gate"), os.O_WRONLY, 0) // once the check has it open
		must(w.t, err)
		must(w.t, f.Close())
	}
}

// applies starts an apply of one file on a connection of its own; the answer comes
// later. Its place in the line is certain only when its check is seen.
func (s *server) applies(base obj, op obj, content string) chan answer {
	s.w.t.Helper()
	c := s.dial()
	c.put(content)
	id := "p-" + strings.ReplaceAll(fmt.Sprint(op["path"]), "/", "-")
	c.start("host/applyProposal", applyParams(proposal(id, base, op)))
	out := make(chan answer, 1)
	go func() {
		defer c.close()
		out <- c.next()
	}()
	return out
}

// checked is what the receipt of an answer says of its check: how often it ran, and
// whether before its turn.
func (w *world) checked(a answer) (status string, runs int, early bool) {
	w.t.Helper()
	_, out, errs := w.run("", "receipts", "show", a.receipt(), "--json")
	var r struct {
		Evidence struct {
			Checks []struct {
				Status string
				Runs   int
				Early  *struct {
					Began string
					State struct{ Rev, Dirty string }
				}
			}
		}
	}
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		w.t.Fatalf("%v\n%s%s", err, out, errs)
	}
	if len(r.Evidence.Checks) == 0 {
		return "", 0, false
	}
	c := r.Evidence.Checks[0]
	if c.Early != nil {
		after, _ := a.result["baselineAfter"].(obj)
		dirty, _ := after["dirty"].(string)
		if _, err := time.Parse(time.RFC3339Nano, c.Early.Began); err != nil || after != nil && (c.Early.State.Rev != after["rev"] || c.Early.State.Dirty != dirty) {
			w.t.Errorf("judged early: %+v, and the apply left %v", *c.Early, after)
		}
	}
	return c.Status, c.Runs, c.Early != nil
}

func (w *world) clean() {
	w.t.Helper()
	left, err := os.ReadDir(filepath.Join(w.asp, "scratch"))
	must(w.t, err)
	for _, l := range left {
		w.t.Errorf("left in the scratch directory: %s", l.Name())
	}
}

func base(s *server) obj {
	c := s.dial()
	defer c.close()
	return c.baseline()
}

// TestWaitingPlansAreChecked: the checks of three plans stand at their gates at once, each
// over what those ahead of it leave; what they say is used, and nothing runs twice.
func TestWaitingPlansAreChecked(t *testing.T) {
	w := newWorld(t, gated(3, "true"), map[string]string{"old": "old\n"})
	s := w.serve()
	b := base(s)
	var answers []chan answer
	sees := []string{"a old", "a b old", "a b c"}
	answers = append(answers, s.applies(b, create("a", "1\n"), "1\n"))
	w.until(sees[:1]...)
	answers = append(answers, s.applies(b, create("b", "2\n"), "2\n"))
	w.until(sees[:2]...)
	// A move: what is put is the live file, and what leaves must not show.
	answers = append(answers, s.applies(b, obj{"path": "old", "to": "c", "kind": "rename", "precondition": obj{"expectedDigest": digest("old\n")}}, "3\n"))
	at := w.until(sees...)
	// What one ahead publishes, and the check behind it does not see, is no movement.
	for i, c := range answers {
		w.open(at[i])
		a := <-c
		status, runs, early := w.checked(a)
		if a.result["applied"] != true || status != "passed" || runs != 1 || early != (i > 0) {
			t.Errorf("plan %d: %s after %d runs, early %v: %.500s", i, status, runs, early, a.raw)
		}
	}
	if w.read("a")+w.read("b")+w.read("c") != "1\n2\nold\n" {
		t.Error("other content")
	}
	w.clean()
}

// TestRefusedAhead: a plan was judged over the change of another one ahead of it, which
// is then refused. It is judged anew, over the tree without that change.
func TestRefusedAhead(t *testing.T) {
	w := newWorld(t, gated(3, "! [ -e bad ]"), map[string]string{"old": "old\n"})
	s := w.serve()
	b := base(s)
	first := s.applies(b, create("bad", "1\n"), "1\n")
	w.until("bad old")
	second := s.applies(b, create("good", "2\n"), "2\n")
	w.until("bad old", "bad good old")
	third := s.applies(b, create("late", "3\n"), "3\n")
	at := w.until("bad old", "bad good old", "bad good late old")
	// What it says over the wrong tree is there before anybody knows that it is wrong.
	w.open(at[1])
	// It is not expected to pass any more, so that the third is judged without it, too.
	at = w.until("bad old", "bad late old")
	w.open(at[0])
	if a := <-first; a.result["applied"] == true {
		t.Errorf("the bad one: %.500s", a.raw)
	}
	at = w.until("good old", "good late old")
	w.open(at...)
	for i, c := range []chan answer{second, third} {
		a := <-c
		if status, _, early := w.checked(a); a.result["applied"] != true || status != "passed" || i == 1 && !early {
			t.Errorf("plan %d: %s, early %v: %.500s", i, status, early, a.raw)
		}
	}
	w.clean()
}

// twoAtTheirGates has a plan for a at the gate of its check, and one for b behind it at the
// gate of its own.
func (w *world) twoAtTheirGates(s *server) (first, second chan answer, at []string) {
	w.t.Helper()
	bl := base(s)
	first = s.applies(bl, create("a", "1\n"), "1\n")
	w.until("a old")
	second = s.applies(bl, create("b", "2\n"), "2\n")
	return first, second, w.until("a old", "a b old")
}

// judgedEarly has a plan for a at the gate of its check, and one for b behind it that was
// judged, as many of two at a time allow.
func (w *world) judgedEarly(s *server) (first, second chan answer, gate string) {
	w.t.Helper()
	first, second, at := w.twoAtTheirGates(s)
	c := s.dial()
	defer c.close()
	c.put("3\n")
	id := c.start("host/applyProposal", applyParams(proposal("third", base(s), create("c", "3\n"))))
	w.open(at[1])
	// The third is the other one of two only when the verdict on the second is there.
	w.until("a old", "a b c old")
	c.notify("$/cancelRequest", obj{"id": id})
	c.next()
	return first, second, at[0]
}

// TestStrangerWhileWaiting: somebody writes between the early verdict and the turn. The
// verdict is about another tree then, and is not used.
func TestStrangerWhileWaiting(t *testing.T) {
	w := newWorld(t, gated(2, "! [ -e b -a -e stray ]"), map[string]string{"old": "old\n"})
	first, second, gate := w.judgedEarly(w.serve())
	w.write("stray", "x\n")
	w.open(gate)
	w.open(w.until("a old stray")...) // of the first, again
	if a := <-first; a.result["applied"] != true {
		t.Errorf("the first: %.500s", a.raw)
	}
	w.open(w.until("a b old stray")...)
	a := <-second
	if status, runs, early := w.checked(a); a.refused() != "validation-denied" || status != "failed" || runs != 1 || early {
		t.Errorf("the second: %s after %d runs, early %v: %.500s", status, runs, early, a.raw)
	}
	w.clean()
}

// TestBrokenWhileWaiting: a check that is killed has said nothing, and is asked again.
func TestBrokenWhileWaiting(t *testing.T) {
	w := newWorld(t, gated(2, `[ -e "$TMPDIR/ok" ] || kill -9 $$`), map[string]string{"old": "old\n"})
	first, second, gate := w.judgedEarly(w.serve())
	must(t, os.WriteFile(filepath.Join(gate, "ok"), nil, 0o644))
	w.open(gate)
	if a := <-first; a.result["applied"] != true {
		t.Errorf("the first: %.500s", a.raw)
	}
	at := w.until("a b old")
	must(t, os.WriteFile(filepath.Join(at[0], "ok"), nil, 0o644))
	w.open(at...)
	a := <-second
	if status, runs, early := w.checked(a); a.result["applied"] != true || status != "passed" || runs != 1 || early {
		t.Errorf("the second: %s after %d runs, early %v: %.500s", status, runs, early, a.raw)
	}
	w.clean()
}

// TestStrangerCameAndWent: what a check says that ran while a stranger's file was there is
// not used, though the state is the foreseen one before the check and at the turn.
func TestStrangerCameAndWent(t *testing.T) {
	w := newWorld(t, gated(2, "! [ -e stray ]"), map[string]string{"old": "old\n"})
	first, second, at := w.twoAtTheirGates(w.serve())
	w.write("stray", "x\n")
	w.open(at[1])
	w.until("a old", "a b old stray") // it is asked again
	must(t, os.Remove(filepath.Join(w.root, "stray")))
	w.open(at[0])
	if a := <-first; a.result["applied"] != true {
		t.Errorf("the first: %.500s", a.raw)
	}
	w.open(w.until("a b old")...)
	a := <-second
	if status, runs, early := w.checked(a); a.result["applied"] != true || status != "passed" || runs != 1 || early {
		t.Errorf("the second: %s after %d runs, early %v: %.500s", status, runs, early, a.raw)
	}
	w.clean()
}

// TestStrangerWasThere: a file that was another while the check ran, and is again what it
// was when the check ends, voids what it said early.
func TestStrangerWasThere(t *testing.T) {
	w := newWorld(t, gated(2, `grep -q "^old$" old`), map[string]string{"old": "old\n"})
	first, second, at := w.twoAtTheirGates(w.serve())
	w.write("old", "new\n")
	w.write("old", "old\n")
	w.open(at[1])
	again := w.until("a old", "a b old") // it is asked again
	w.open(again[1])
	w.open(at[0])
	w.open(w.until("a old")...) // and so is the one who has the workspace
	if a := <-first; a.result["applied"] != true {
		t.Errorf("the first: %.500s", a.raw)
	}
	a := <-second
	if status, runs, early := w.checked(a); a.result["applied"] != true || status != "passed" || runs != 1 || !early {
		t.Errorf("the second: %s after %d runs, early %v: %.500s", status, runs, early, a.raw)
	}
	w.clean()
}

// TestRuleOverManyPlans: plans that do not meet and that each pass alone may together break
// what the check holds. As many go through as the rule lets, whatever ran before its turn.
func TestRuleOverManyPlans(t *testing.T) {
	const plans, most = 10, 5
	w := newWorld(t, `{"limits":{"checksAtOnce":4},"checks":{"few":{"argv":["sh","-c","set -- *; test $# -le 5"],"required":true,"callSites":["interactive"]}}}`, nil)
	s := w.serve()
	b := base(s)
	answers := make([]answer, plans)
	together(plans, func(i int) {
		content := fmt.Sprint(i)
		answers[i] = <-s.applies(b, create("f"+content, content), content)
	})
	applied := 0
	for _, a := range answers {
		switch {
		case a.result["applied"] == true:
			applied++
		case a.refused() != "validation-denied":
			t.Errorf("%.500s", a.raw)
		}
	}
	found, err := filepath.Glob(filepath.Join(w.root, "f*"))
	must(t, err)
	if applied != most || len(found) != most {
		t.Errorf("%d applied, %d files, want %d", applied, len(found), most)
	}
	w.clean()
}

// TestSamePathWhileWaiting: of two plans for one file the second is not judged early, is
// refused by what is on disk, and is not expected to do anything by those behind it. Here
// it is in a directory without a repository.
func TestSamePathWhileWaiting(t *testing.T) {
	w := newWorld(t, gated(3, "true"), map[string]string{"old": "old\n"})
	must(t, os.RemoveAll(filepath.Join(w.root, ".git")))
	s := w.serve()
	b := base(s)
	first := s.applies(b, create("a", "1\n"), "1\n")
	w.until("a old")
	second := s.applies(b, create("a/deep", "22\n"), "22\n")
	third := s.applies(b, create("c", "333\n"), "333\n")
	at := w.until("a old", "a c old")
	w.open(at...)
	if a := <-first; a.result["applied"] != true {
		t.Errorf("the first: %.500s", a.raw)
	}
	a := <-second
	if status, _, _ := w.checked(a); a.refused() == "" || status != "" {
		t.Errorf("the second, %s: %.500s", status, a.raw)
	}
	a = <-third
	if _, runs, early := w.checked(a); a.result["applied"] != true || runs != 1 || !early {
		t.Errorf("the third: %d runs, early %v: %.500s", runs, early, a.raw)
	}
	w.clean()
}

// TestLeaveWhileWaiting: a client that goes away takes its early check with it, and a
// host that is killed leaves nothing that the next one does not clear away.
func TestLeaveWhileWaiting(t *testing.T) {
	w := newWorld(t, gated(3, "true"), map[string]string{"old": "old\n"})
	s := w.serve()
	b := base(s)
	first := s.applies(b, create("a", "1\n"), "1\n")
	w.until("a old")
	c := s.dial()
	c.put("2\n")
	id := c.start("host/applyProposal", applyParams(proposal("gone", b, create("b", "2\n"))))
	w.until("a old", "a b old")
	third := s.applies(b, create("c", "3\n"), "3\n")
	w.until("a old", "a b old", "a b c old")
	c.notify("$/cancelRequest", obj{"id": id})
	if a := c.next(); a.err == nil {
		t.Errorf("the cancelled one: %.500s", a.raw)
	}
	c.close()
	at := w.until("a old", "a c old")
	w.open(at...)
	for _, f := range []chan answer{first, third} {
		if a := <-f; a.result["applied"] != true {
			t.Errorf("%.500s", a.raw)
		}
	}
	w.clean()

	w.dies(s)
	s = w.serve()
	last := s.applies(base(s), create("z", "9\n"), "9\n")
	w.open(w.until("a c old z")...)
	if a := <-last; a.result["applied"] != true {
		t.Errorf("after a host that was killed: %.500s", a.raw)
	}
	w.clean()
}

// dies kills the host with two checks at their gates.
func (w *world) dies(s *server) {
	w.t.Helper()
	b := base(s)
	for i, name := range []string{"x", "y"} {
		c := s.dial()
		c.put("0\n")
		c.start("host/applyProposal", applyParams(proposal(name, b, create(name, "0\n"))))
		defer c.close()
		w.until([]string{"a c old x", "a c old x y"}[:i+1]...)
	}
	s.kill()
}
