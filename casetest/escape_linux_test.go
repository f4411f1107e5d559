package casetest

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

// attackers are those that the built command is tried as: root and an ordinary one
// where the tests are root, otherwise whoever they are.
func attackers() map[string][]worldOption {
	if os.Geteuid() == 0 {
		return map[string][]worldOption{"ordinary user": nil, "root": {asRoot}}
	}
	return map[string][]worldOption{"ordinary user": nil}
}

// leastTried is how many attempts have to be made, idle ones not counted.
const leastTried = 150

// TestEscapesOpenWithoutSandbox tries the attempts where nothing holds them, so that it is
// known that they can get something done.
func TestEscapesOpenWithoutSandbox(t *testing.T) {
	a := newArena(t)
	var got []outcome
	for _, g := range groups() {
		r := a.launch(a.attacker, attackerWord, "check", g, a.bait.encode())
		got = append(got, outcomes(string(r.out))...)
	}
	what := map[string]outcome{}
	for _, o := range got {
		what[o.name] = o
	}
	open := 0
	for _, at := range attempts() {
		o := what[at.name]
		switch {
		case o.name == "":
			t.Errorf("%s was not tried", at.name)
		case !at.open, o.what == notHere && os.Geteuid() != 0:
		case !a.key && (at.name == "keys-of-the-caller" || at.name == "names-of-keys"):
		case o.what != escaped || o.detail != "done":
			t.Errorf("without a sandbox: %s", o)
		default:
			open++
		}
	}
	came := a.stop()
	doors := []string{"tcp", "udp", "abstract", "outside", "tree"}
	if a.bait.Seen != "" {
		doors = append(doors, "seen")
	}
	for _, door := range doors {
		if !strings.Contains(came, door) {
			t.Errorf("nobody came to %s: %s", door, came)
		}
	}
	t.Logf("%d of %d attempts are open to anybody", open, len(what))
}

// TestEscapesOfChecks has command checks of the configuration try to get out.
func TestEscapesOfChecks(t *testing.T) {
	for who, opts := range attackers() {
		t.Run(who, func(t *testing.T) {
			a := newArena(t, opts...)
			checks := obj{"work": obj{"argv": []string{a.attacker, attackerWord, "work", a.bait.encode()}}}
			flags := []string{"--require-assurance", "isolated"}
			for _, g := range groups() {
				checks[g] = obj{"argv": []string{a.attacker, attackerWord, "check", g, a.bait.encode()}}
				flags = append(flags, "--check", g)
			}
			a.configure(obj{"checks": checks, "sandbox": obj{"require": "isolated", "read": []string{a.bait.Lent}}})
			p := a.plan().modify("x", "x\n", "y\n")
			m := a.mark()
			r := a.launch(binary, append([]string{"apply", "--plan", p.file(), "--json"}, flags...)...)
			r.refused("check-denied")
			if mode := r.str("assurance", "mode"); mode != "isolated" {
				t.Errorf("mode %q: %s", mode, r)
			}
			a.judge(findingsOf(r))
			a.untouched(m)
			// And what a check is for works in there.
			r = a.launch(binary, "apply", "--plan", p.file(), "--json", "--dry-run", "--check", "work", "--require-assurance", "isolated")
			if r.code != 0 || r.str("assurance", "mode") != "isolated" {
				t.Errorf("what has to work does not: %s", r)
			}
			a.untouched(m)
			if came := a.stop(); came != "came: \n" {
				t.Errorf("somebody %s", came)
			}
		})
	}
}

// TestEscapesOfProviders has a provider try the same.
func TestEscapesOfProviders(t *testing.T) {
	for who, opts := range attackers() {
		t.Run(who, func(t *testing.T) {
			a := newArena(t, opts...)
			a.configure(obj{"sandbox": obj{"require": "isolated"}})
			pin := a.enrolAttacker("provide", a.bait.encode())
			a.isolatedPolicy(pin)
			p := a.plan().modify("x", "x\n", "y\n")
			m := a.mark()
			r := a.launch(binary, "apply", "--plan", p.file(), "--json", "--call-site", "gate")
			r.refused("check-denied")
			if mode := r.str("assurance", "mode"); mode != "isolated" {
				t.Errorf("mode %q: %s", mode, r)
			}
			a.judge(findingsOf(r))
			a.untouched(m)
			if came := a.stop(); came != "came: \n" {
				t.Errorf("somebody %s", came)
			}
		})
	}
}

// leftToMediated is what a check may do that is only kept from changing things: look at
// the machine, have user namespaces with what the kernel gives there, trace its own
// children, and ask for calls whose arguments here do no more than ask.
var leftToMediated = []string{
	"see-host-places", "read-shadow", "sys", "control-groups", "debug-files", "file-handle", "trace-own-child", "trace-host", "write-memory-of-host",
	"unshare-user", "nested-user-namespace", "clone3", "bpf", "perf", "userfaultfd", "quota", "set-clock", "adjust-clock", "fanotify", "advise-memory-of-init",
	"other-architecture",
}

// TestEscapesOfMediated has checks that may read the machine try to change it, or to
// have somebody change it: all in one transaction.
func TestEscapesOfMediated(t *testing.T) {
	for who, opts := range attackers() {
		t.Run(who, func(t *testing.T) {
			a := newArena(t, opts...)
			checks, flags := obj{}, []string{"--require-assurance", "mediated-write"}
			for _, g := range groups() {
				checks[g] = obj{"argv": []string{a.attacker, attackerWord, "check", g, a.bait.encode()}}
				flags = append(flags, "--check", g)
			}
			a.configure(obj{"checks": checks, "sandbox": obj{"require": "mediated-write", "read": []string{a.bait.Lent}}})
			p := a.plan().modify("x", "x\n", "y\n")
			m := a.mark()
			r := a.launch(binary, append([]string{"apply", "--plan", p.file(), "--json"}, flags...)...)
			r.refused("check-denied")
			if mode := r.str("assurance", "mode"); mode != "mediated-write" {
				t.Errorf("mode %q: %s", mode, r)
			}
			a.judge(findingsOf(r), leftToMediated...)
			a.untouched(m)
			if came := a.stop(); came != "came: \n" {
				t.Errorf("somebody %s", came)
			}
		})
	}
}

// enrolAttacker registers the attacker as a provider.
func (a *arena) enrolAttacker(args ...string) obj {
	a.t.Helper()
	p := attackingProvider(a.bait)
	raw, err := p.Manifest(a.attacker, append([]string{attackerWord}, args...))
	must(a.t, err)
	var m struct{ Artifact struct{ Fingerprint string } }
	must(a.t, json.Unmarshal(raw, &m))
	a.run("server", "add", "--manifest", a.beside("escape.json", string(raw), 0o644)).exits(0)
	a.run("repo", "add", a.root).exits(0)
	a.run("repo", "enable", p.ID, "--mode", "gated").exits(0)
	return obj{"id": p.ID, "version": p.Version, "identity": p.Publisher, "integrity": m.Artifact.Fingerprint, "conformance": p.Profiles[0]}
}

// isolatedPolicy takes nothing less than an isolated provider on the gate.
func (w *world) isolatedPolicy(pin obj) {
	w.t.Helper()
	w.policy(pin)
	w.write(".asp/asp.json", strings.Replace(w.read(".asp/asp.json"), `"assurance":["advisory"]`, `"assurance":["isolated"]`, 1), 0o644)
	w.commit()
}

// findingsOf are the messages of all findings of an answer, a line each and more.
func findingsOf(r *result) string {
	var out strings.Builder
	list, _ := r.at("decision", "findings").([]any)
	for _, f := range list {
		m, _ := f.(map[string]any)
		d, _ := m["diagnostic"].(map[string]any)
		fmt.Fprintln(&out, d["message"])
	}
	return out.String()
}

// judge fails for every attempt that is not seen to have failed, those that are left to
// the program excepted.
func (a *arena) judge(text string, left ...string) {
	a.t.Helper()
	what := map[string]outcome{}
	for _, o := range outcomes(text) {
		what[o.name] = o
	}
	tried := 0
	for _, at := range attempts() {
		if slices.Contains(left, at.name) {
			continue
		}
		switch o := what[at.name]; o.what {
		case held:
			tried++
		case notHere:
			if os.Geteuid() == 0 {
				a.t.Errorf("nothing was tried: %s", o)
			}
		case escaped:
			a.t.Errorf("%s", o)
		default:
			a.t.Errorf("%s cannot be seen in the result", at.name)
		}
	}
	if tried < leastTried && !a.t.Failed() {
		a.t.Errorf("only %d attempts were made", tried)
	}
	a.t.Logf("%d attempts held", tried)
}
