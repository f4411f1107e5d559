package casetest

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestViolentEnds kills the command in the midst of checks and of sessions with
// providers, at any moment, and counts what is left: processes at once, and after
// the next start scratch directories, control groups and mounts. 200 ends with
// ASP_CRASH=long.
func TestViolentEnds(t *testing.T) {
	rounds := 20
	if os.Getenv("ASP_CRASH") == "long" {
		rounds = 200
	}
	for who, opts := range attackers() {
		t.Run(who, func(t *testing.T) {
			if rounds <= 20 && who == "root" {
				t.Skip("only in the long form")
			}
			a := newArena(t, opts...)
			a.isolatedPolicy(a.enrolAttacker("hang", a.bait.encode()))
			ok := obj{"argv": []string{"true"}, "callSites": []string{}}
			hang := obj{"argv": []string{a.attacker, attackerWord, "hang", a.bait.Token}, "callSites": []string{"interactive"}}
			a.configure(obj{"checks": obj{"ok": ok, "hang": hang}, "sandbox": obj{"read": []string{a.bait.Lent}}})
			p := a.plan().edits("x", "x\n", edit(0, 0, 0, 1, "y")) // a request needs no blob then
			m := a.mark()
			var killed []int
			seen := 0
			for i := range rounds {
				pid, inside := a.violentEnd(i, p)
				killed = append(killed, pid)
				if inside {
					seen++
				}
			}
			if seen < rounds/3 {
				t.Errorf("only %d of %d were killed with something running inside", seen, rounds)
			}
			r := a.run("apply", "--plan", p.file(), "--json", "--dry-run", "--check", "ok", "--call-site", "sweep", "--require-assurance", "isolated")
			if r.code != 0 || r.str("assurance", "mode") != "isolated" {
				t.Errorf("after %d ends: %s", rounds, r)
			}
			for _, pid := range killed {
				for _, g := range groupsOf(pid) {
					t.Errorf("a control group is left: %s", g)
				}
			}
			a.untouched(m)
			t.Logf("%d ends, %d with something running inside", rounds, seen)
		})
	}
}

// violentEnd starts the command in one of several ways, kills it, and waits until
// nothing of it lives. inside tells whether what it had started was running.
func (a *arena) violentEnd(i int, p *plan) (pid int, inside bool) {
	a.t.Helper()
	var cmd *exec.Cmd
	switch args := []string{"apply", "--plan", p.file(), "--json"}; i % 4 {
	case 0:
		cmd = a.command(a.root, binary, append(args, "--require-assurance", "isolated")...)
	case 1:
		cmd = a.command(a.root, binary, append(args, "--require-assurance", "mediated-write")...)
	case 2:
		cmd = a.command(a.root, binary, append(args, "--call-site", "gate")...)
	default:
		cmd = a.command(a.root, binary, "host", "serve")
		r, w, err := os.Pipe()
		must(a.t, err)
		defer w.Close()
		defer r.Close()
		cmd.Stdin = r
		site := []string{"interactive", "gate"}[i/4%2]
		_, err = w.Write(a.request(p, site))
		must(a.t, err)
	}
	said, err := os.CreateTemp("", "ends-")
	must(a.t, err)
	must(a.t, os.Remove(said.Name()))
	defer said.Close()
	cmd.Stdout, cmd.Stderr = said, said
	must(a.t, cmd.Start())
	// Every other time as soon as it got to what it starts, otherwise at any moment.
	any := time.Duration(rand.IntN(120)) * time.Millisecond
	for began := time.Now(); ; {
		inside = len(a.marked()) > 0
		since := time.Since(began)
		if i/4%2 == 0 && inside || i/4%2 == 1 && since > any {
			break
		}
		if since > time.Minute {
			raw := make([]byte, 4000)
			n, _ := said.ReadAt(raw, 0)
			a.t.Fatalf("round %d: nothing was started in a minute: %s", i, raw[:n])
		}
	}
	must(a.t, cmd.Process.Kill())
	_ = cmd.Wait()
	for began := time.Now(); ; time.Sleep(time.Millisecond) {
		left := append(a.marked(), a.processes()...)
		if len(left) == 0 {
			return cmd.Process.Pid, inside
		}
		if time.Since(began) > 20*time.Second {
			a.t.Fatalf("round %d: still runs: %s", i, left)
		}
	}
}

// marked are the processes with the token in their arguments, the bait's aside.
func (a *arena) marked() []string {
	var out []string
	for _, pid := range numbers("/proc") {
		raw, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if pid != a.bait.Pid && strings.Contains(string(raw), a.bait.Token) {
			out = append(out, strings.ReplaceAll(string(raw), "\x00", " "))
		}
	}
	return out
}

// request is what a harness sends to have a plan applied.
func (a *arena) request(p *plan, callSite string) []byte {
	a.t.Helper()
	var b struct{ Proposal obj }
	must(a.t, json.Unmarshal(p.bundle(), &b))
	line, err := json.Marshal(obj{"jsonrpc": "2.0", "id": 1, "method": "host/applyProposal",
		"params": obj{"callSite": callSite, "proposalId": b.Proposal["proposalId"], "intent": "harness", "proposal": b.Proposal}})
	must(a.t, err)
	return append(line, '\n')
}

// groupsOf are the control groups that a process of this number made.
func groupsOf(pid int) []string {
	var out []string
	_ = filepath.WalkDir("/sys/fs/cgroup", func(p string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && strings.HasPrefix(d.Name(), fmt.Sprintf("asp-%d-", pid)) {
			out = append(out, p)
		}
		return nil
	})
	return out
}
