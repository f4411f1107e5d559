package casetest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/aspengine/asp/internal/need"
)

// checkOutput is what a failed check printed, as the receipt or the answer has it.
func (w *world) outputOf(r *result) string {
	w.t.Helper()
	show := w.run("receipts", "show", r.str("receipt", "receiptId"), "--json")
	return string(r.out) + string(show.out)
}

func TestSB01(t *testing.T) {
	need.UserNS(t)
	probe := func(w *world) string {
		return `{"checks":{"probe":{"argv":["sh","-c","touch ` + w.path("escaped") + ` 2>/dev/null; touch ` + filepath.Join(w.tmp, "escaped") + ` 2>/dev/null; exit 0"]}}`
	}
	t.Run("mediated-write is proved and holds", func(t *testing.T) {
		w := newWorld(t, map[string]string{"x": "x\n"})
		w.config(probe(w) + `,"sandbox":{"require":"mediated-write"}}`)
		r := w.plan().modify("x", "x\n", "y\n").apply("--check", "probe", "--require-assurance", "mediated-write").applied()
		if m := r.str("assurance", "mode"); m != "mediated-write" && m != "isolated" {
			t.Errorf("mode %q: %s", m, r)
		}
		w.gone("escaped")
		w.clean()
	})
	// Without namespaces there are rules, without Landlock nothing.
	naked := func(w *world, args ...string) *result { return w.naked(args...) }
	// A user namespace that allows no more of them.
	without := func(w *world, args ...string) *result {
		sh := w.command(w.root, "unshare", append([]string{"-Ur", "sh", "-c",
			`echo 0 > /proc/sys/user/max_user_namespaces && exec setpriv --bounding-set -all --inh-caps -all "$0" "$@"`, binary}, args...)...)
		return w.begin(sh, args)()
	}
	usable := func(t *testing.T, w *world) {
		need.Tool(t, "unshare")
		need.Tool(t, "setpriv")
		cmd := w.command(w.root, "unshare", "-Ur", "sh", "-c", `echo 0 > /proc/sys/user/max_user_namespaces && setpriv --bounding-set -all --inh-caps -all unshare -U true`)
		cmd.Stderr = nil
		if out, err := exec.Command("true").CombinedOutput(); err != nil {
			t.Fatal(err, out)
		}
		if err := cmd.Run(); err == nil {
			need.Missing(t, "namespaces cannot be taken away here")
		}
	}
	t.Run("required and not to be had", func(t *testing.T) {
		w := newWorld(t, map[string]string{"x": "x\n"})
		marker := filepath.Join(w.tmp, "ran")
		w.config(`{"checks":{"mark":{"argv":["sh","-c","touch ` + marker + `"]}},"sandbox":{"require":"mediated-write"}}`)
		p := w.plan().modify("x", "x\n", "y\n")
		m := w.mark()
		r := naked(w, "apply", "--plan", p.file(), "--json", "--check", "mark")
		if r.at("applied") == true || r.code != 3 && r.code != 1 {
			t.Fatalf("want an error or a refusal: %s", r)
		}
		w.gone(marker)
		m.unchanged()
	})
	t.Run("demanded by the caller and not to be had", func(t *testing.T) {
		w := newWorld(t, map[string]string{"x": "x\n"})
		w.config(probe(w) + `,"sandbox":{"require":"none"}}`)
		p := w.plan().modify("x", "x\n", "y\n")
		m := w.mark()
		for _, mode := range []string{"mediated-write", "isolated"} {
			naked(w, "apply", "--plan", p.file(), "--json", "--check", "probe", "--require-assurance", mode).refused("weak-assurance")
			naked(w, "apply", "--plan", p.file(), "--json", "--check", "probe", "--require-assurance", mode, "--dry-run")
			w.gone("escaped")
			w.gone(filepath.Join(w.tmp, "escaped"))
			m.unchanged()
		}
	})
	t.Run("nothing is said and nothing is to be had", func(t *testing.T) {
		w := newWorld(t, map[string]string{"x": "x\n"})
		w.config(probe(w) + `}`)
		p := w.plan().modify("x", "x\n", "y\n")
		m := w.mark()
		naked(w, "apply", "--plan", p.file(), "--json", "--check", "probe").refused("check-indeterminate")
		w.gone("escaped")
		w.gone(filepath.Join(w.tmp, "escaped"))
		m.unchanged()
	})
	t.Run("an answer with namespaces is none without", func(t *testing.T) {
		w := newWorld(t, map[string]string{"x": "x\n"})
		usable(t, w)
		can := func(r *result) string { return fmt.Sprint(r.at("assuranceCapabilities")) }
		with := can(w.run("status", "--json"))
		if !strings.Contains(with, "mediated-write") {
			t.Fatalf("with namespaces: %s", with)
		}
		if got := can(without(w, "status", "--json")); got != "[advisory gated mediated-write]" {
			t.Errorf("without: %s", got)
		}
		if got := can(w.run("status", "--json")); got != with {
			t.Errorf("with them again: %s, and %s before", got, with)
		}
	})
	t.Run("best effort says what it was", func(t *testing.T) {
		w := newWorld(t, map[string]string{"x": "x\n"})
		// Once: what a command writes there each time voids what it says each time.
		w.config(`{"checks":{"probe":{"argv":["sh","-c","test -e ` + w.path("escaped") + ` || : >` + w.path("escaped") + `"]}},"sandbox":{"require":"none"}}`)
		p := w.plan().modify("x", "x\n", "y\n")
		r := naked(w, "apply", "--plan", p.file(), "--json", "--check", "probe").applied()
		if mode, detail := r.str("assurance", "mode"), r.str("assurance", "detail"); mode != "advisory" || !strings.Contains(detail, "direct-write-risk") {
			t.Errorf("mode %q without namespaces: %s", mode, detail)
		}
		w.is("escaped", "") // it could
	})
}

func TestSB04(t *testing.T) {
	need.UserNS(t)
	w := newWorld(t, map[string]string{"x": "x\n"})
	w.config(`{"checks":{"spy":{"argv":["sh","-c","env; for f in /proc/[0-9]*/environ /proc/[0-9]*/cmdline; do tr '\\0' '\\n' < $f; done 2>/dev/null; echo FDS; for f in /proc/self/fd/*; do echo fd $f $(readlink $f); done; cat <&9; exit 1"]}}}`)
	outside := filepath.Join(w.base, "outside")
	w.write(outside, "canary-9\n", 0o644)
	p := w.plan().modify("x", "x\n", "y\n")
	f, err := os.Open(outside)
	must(t, err)
	defer f.Close()
	cmd := w.command(w.root, "sh", "-c", `exec 9<`+outside+`; exec "$0" "$@"`, binary, "apply", "--plan", p.file(), "--json", "--check", "spy")
	cmd.Env = append(cmd.Env, "API_TOKEN=canary-1", "LANG=C.UTF-8")
	r := w.begin(cmd, []string{"apply", "--json"})()
	r.refused("check-denied")
	out := w.outputOf(r)
	text := w.text(p, "spy")
	for _, canary := range []string{"canary-1", "canary-9", "API_TOKEN"} {
		if strings.Contains(out, canary) || strings.Contains(text, canary) {
			t.Errorf("the check saw %q", canary)
		}
	}
	if !strings.Contains(text, "PATH=") || !strings.Contains(text, "FDS") {
		t.Fatalf("the spy's report is not there: %s", text)
	}
	for _, l := range strings.Split(text, "\n") {
		l = strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(l), "|"))
		if k, v, ok := strings.Cut(l, "="); ok && (k == "HOME" || k == "TMPDIR") && (v == w.home || v == w.tmp) {
			t.Errorf("the check has the user's %s", l)
		}
	}
	// Output is bounded.
	w.config(`{"checks":{"loud":{"argv":["sh","-c","yes 0123456789012345678901234567890123456789 | head -c 100000000; exit 1"]}}}`)
	r = w.plan().modify("x", "x\n", "y\n").apply("--check", "loud").refused("check-denied")
	if n := len(w.outputOf(r)); n > 4<<20 {
		t.Errorf("%d bytes of output were kept", n)
	}
	w.clean()
}

// text runs a dry run of the plan for people, with a token in the environment,
// and returns all that it says.
func (w *world) text(p *plan, check string) string {
	w.t.Helper()
	cmd := w.command(w.root, binary, "apply", "--plan", p.file(), "--dry-run", "--check", check)
	cmd.Env = append(cmd.Env, "API_TOKEN=canary-1")
	r := w.begin(cmd, []string{"apply"})()
	return string(r.out) + r.errs
}

func TestRP02(t *testing.T) {
	for _, size := range []int{65535, 65536, 65537, 1 << 20, 8 << 20} {
		w := newWorld(t, map[string]string{"x": "x\n"})
		after := strings.Repeat("é\n", size/3+1)[:size/3*3] + strings.Repeat("z", size%3)
		if len(after) != size {
			t.Fatal("size")
		}
		w.plan().modify("x", "x\n", after).apply().applied()
		if got := digest(w.read("x")); got != digest(after) {
			t.Errorf("%d bytes: %s", size, got)
		}
	}
	t.Run("over the limit", func(t *testing.T) {
		w := newWorld(t, map[string]string{"x": "x\n"})
		w.config(`{"limits":{"blobBytes":1000000,"planBytes":3000000}}`)
		w.plan().create("fits", strings.Repeat("a", 1000000)).apply().applied()
		for name, p := range map[string]*plan{
			"blob": w.plan().create("y", strings.Repeat("a", 1000001)),
			"plan": w.plan().create("y", strings.Repeat("a", 900000)).create("z", strings.Repeat("b", 900000)).create("zz", strings.Repeat("c", 900000)).create("q", strings.Repeat("d", 900000)),
		} {
			m := w.mark()
			r := p.apply()
			r.refused("bad-message")
			if !strings.Contains(string(r.out), "1000000") && !strings.Contains(string(r.out), "3000000") {
				t.Errorf("%s: the limit is not named: %s", name, r)
			}
			m.unchanged()
		}
	})
	t.Run("an endless line", func(t *testing.T) {
		w := newWorld(t, map[string]string{"x": "x\n"})
		w.config(`{"limits":{"planBytes":3000000}}`)
		m := w.mark()
		// More than the limit by far, on a pipe, under a bound on memory.
		sh := w.command(w.root, "sh", "-c", `yes | tr -d '\n' | head -c 400000000 | (ulimit -v 4000000; exec "$0" "$@")`, binary, "apply", "--plan", "-", "--json")
		r := w.begin(sh, []string{"apply", "--json"})()
		r.refusedAny([]string{"bad-message"})
		// A child's peak counts the moment before its exec, when it was a copy of
		// this process, so that one is no less than ours.
		var own syscall.Rusage
		must(t, syscall.Getrusage(syscall.RUSAGE_SELF, &own))
		if usage, ok := any(sh.ProcessState.SysUsage()).(*syscall.Rusage); ok && usage.Maxrss > max(200<<10, own.Maxrss+32<<10) {
			t.Errorf("peak memory %d KiB, of this process %d KiB", usage.Maxrss, own.Maxrss)
		}
		m.unchanged()
	})
}
