package casetest

import (
	"fmt"
	"strings"
	"testing"
)

// TestEscapesOverLimits goes beyond each limit of the configuration, in a check.
func TestEscapesOverLimits(t *testing.T) {
	for who, opts := range attackers() {
		t.Run(who, func(t *testing.T) {
			a := newArena(t, opts...)
			limits := obj{"memoryMb": 256, "fileMb": 8, "fd": 64, "processes": 60}
			kinds := []string{"memory", "file", "descriptors", "shared", "processes"}
			checks := obj{"bomb": obj{"argv": []string{"/bin/bash", "-c", ":(){ :|:& };: " + a.bait.Token + "; sleep 1"}, "timeoutMs": 3000, "callSites": []string{}}}
			for _, k := range kinds {
				checks[k] = obj{"argv": []string{a.attacker, attackerWord, "exceed", k, a.bait.encode()}, "callSites": []string{}}
			}
			configure := func() {
				a.configure(obj{"checks": checks, "sandbox": obj{"require": "isolated", "read": []string{a.bait.Lent}, "limits": limits}})
			}
			configure()
			p := a.plan().modify("x", "x\n", "y\n")
			m := a.mark()
			apply := func() *result {
				flags := []string{"apply", "--plan", p.file(), "--json", "--require-assurance", "isolated"}
				for _, k := range kinds {
					flags = append(flags, "--check", k)
				}
				return a.run(flags...).refusedAny([]string{"check-denied", "check-indeterminate"})
			}
			r := apply()
			bounded := !strings.Contains(string(r.out), "start too many processes")
			if !bounded {
				// Without control groups the kernel exempts root: then nothing is started.
				if who != "root" {
					t.Errorf("the number of processes is not bounded: %s", r)
				}
				delete(limits, "processes")
				kinds = kinds[:4]
				configure()
				r = apply()
			}
			got := map[string]string{}
			for _, o := range outcomes(findingsOf(r)) {
				got[o.name] = o.what
			}
			gaps, _ := r.at("decision", "coverage", "degraded").([]any)
			for _, g := range gaps {
				// What a control group ends says nothing more itself.
				if o, _ := g.(obj); o["reason"] == "crashed" && strings.Contains(fmt.Sprint(o["detail"]), "SIGKILL") {
					got[strings.TrimPrefix(fmt.Sprint(o["source"]), "command/")] = held
				}
			}
			for _, k := range kinds {
				if got[k] != held {
					t.Errorf("%s: %q in %s", k, got[k], r)
				}
			}
			a.untouched(m)
			if !bounded {
				return
			}
			// What multiplies itself ends with the namespace, and has not passed, whether
			// it was ended or nothing could be told of it any more.
			if r := a.run("apply", "--plan", p.file(), "--json", "--check", "bomb"); r.at("applied") == true {
				t.Errorf("a check that left a thousand processes passed: %s", r)
			}
			a.untouched(m)
		})
	}
}

// TestEscapesByStaying: what a check or a provider leaves running is dead when the
// command ends, and a check that leaves something has not passed.
func TestEscapesByStaying(t *testing.T) {
	for who, opts := range attackers() {
		t.Run(who, func(t *testing.T) {
			a := newArena(t, opts...)
			gone := func() {
				t.Helper()
				for _, p := range a.marked() {
					t.Errorf("still runs: %s", p)
				}
			}
			a.configure(obj{"checks": obj{"stay": obj{"argv": []string{a.attacker, attackerWord, "linger", a.bait.Token}}}, "sandbox": obj{"read": []string{a.bait.Lent}}})
			p := a.plan().modify("x", "x\n", "y\n")
			m := a.mark()
			for _, mode := range []string{"mediated-write", "isolated"} {
				r := a.run("apply", "--plan", p.file(), "--json", "--check", "stay", "--require-assurance", mode).refused("check-indeterminate")
				if !strings.Contains(string(r.out), "left running (killed)") {
					t.Errorf("%s: nothing is said of what was left: %s", mode, r)
				}
				gone()
			}
			a.untouched(m)
			a.isolatedPolicy(a.enrolAttacker("stay", a.bait.encode()))
			p = a.plan().modify("x", "x\n", "y\n")
			m = a.mark()
			a.run("apply", "--plan", p.file(), "--json", "--call-site", "gate", "--dry-run").exits(0)
			gone()
			a.untouched(m)
		})
	}
}

// TestEscapesThroughGit: a check may do what it likes to the repository. None of it
// is there afterwards, and nothing that it left for git is ever started.
func TestEscapesThroughGit(t *testing.T) {
	for who, opts := range attackers() {
		t.Run(who, func(t *testing.T) {
			a := newArena(t, opts...)
			trap := `printf '#!/bin/sh\ntouch ` + a.bait.Outside + `/escaped\n' > trap; chmod 755 trap; T=$PWD/trap`
			script := strings.Join([]string{"set -e", trap,
				"git status --porcelain >/dev/null", // works over the scratch tree
				"git config core.fsmonitor $T", "git config core.hooksPath $PWD", "git config filter.evil.clean $T", "git config filter.evil.smudge $T",
				"git config diff.external $T", "git config core.sshCommand $T", "git config core.pager $T", "git config alias.status '!'$T", "git config gpg.program $T",
				"mkdir -p .git/hooks; for h in post-checkout pre-commit reference-transaction post-index-change fsmonitor-watchman; do cp trap .git/hooks/$h; done",
				"echo '* filter=evil' > .git/info/attributes || { mkdir .git/info; echo '* filter=evil' > .git/info/attributes; }",
				"git update-ref refs/heads/evil HEAD; echo garbage > .git/index; rm -rf .git/objects; echo ref: refs/heads/none > .git/HEAD; ln -sf " + a.bait.Outside + " .git/refs/evil; rm -rf .git/refs/heads", "exit 0"}, "\n")
			a.configure(obj{"checks": obj{"git": obj{"argv": []string{"sh", "-c", script}}}})
			p := a.plan().modify("x", "x\n", "y\n")
			m := a.mark()
			r := a.run("apply", "--plan", p.file(), "--json", "--dry-run", "--check", "git", "--require-assurance", "isolated")
			if r.code != 0 {
				t.Fatalf("it could not even try: %s", r)
			}
			a.untouched(m)
			p.apply("--check", "git", "--require-assurance", "isolated").applied()
			a.gone(a.bait.Outside + "/escaped")
			a.is("x", "y\n")
			a.gitRun("fsck")
		})
	}
}
