package casetest

import (
	"fmt"
	"math"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/aspengine/asp/internal/need"
)

// TestSB01_WithoutLayers: with one layer less the mode that is reported drops, more
// than that is refused with the workspace untouched, and doctor says so too.
func TestSB01_WithoutLayers(t *testing.T) {
	need.UserNS(t)
	noFilter := fmt.Sprintf("%d:0=%d:%d", unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.EINVAL)
	// Without namespaces Landlock has to keep signals in as well.
	byRules := "mediated-write"
	if abi, _, e := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION); e != 0 || abi < 6 {
		need.Missing(t, "Landlock is of version %d here, and 6 is wanted", abi)
	}
	// limited makes a user namespace whose own namespaces are counted, and are none.
	limited := func(kind string) func(w *world, args ...string) *result {
		return func(w *world, args ...string) *result {
			cmd := w.command(w.root, "unshare", append([]string{"-Ur", "sh", "-c",
				`echo 0 > /proc/sys/user/max_` + kind + `_namespaces && exec setpriv --bounding-set -all --inh-caps -all "$0" "$@"`, binary}, args...)...)
			return w.begin(cmd, args)()
		}
	}
	lacking := func(calls ...string) func(w *world, args ...string) *result {
		return func(w *world, args ...string) *result { return w.lacking(calls...)(args...) }
	}
	// dropping filters as root, who needs no no_new_privs for it, and then becomes the user.
	dropping := func(calls string) func(w *world, args ...string) *result {
		return func(w *world, args ...string) *result {
			need.Root(w.t)
			setpriv, err := exec.LookPath("setpriv")
			must(t, err)
			argv := []string{withoutWord, calls, setpriv}
			if w.cred != nil {
				argv = append(argv, fmt.Sprint("--reuid=", w.cred.Uid), fmt.Sprint("--regid=", w.cred.Gid), "--clear-groups")
			}
			cmd := w.command(w.root, "/proc/self/exe", append(append(argv, binary), args...)...)
			cmd.SysProcAttr.Credential = nil
			return w.begin(cmd, args)()
		}
	}
	for _, row := range []struct {
		layer string
		run   func(w *world, args ...string) *result
		most  string // that may be reported
	}{
		{"nothing", lacking(enosys(unix.SYS_ACCT)), "isolated"},
		{"user namespace", limited("user"), byRules},
		{"user namespace, by a filter", lacking(noUserNS()...), byRules},
		{"user namespace and Landlock", lacking(append(noUserNS(), enosys(unix.SYS_LANDLOCK_CREATE_RULESET))...), "advisory"},
		{"user namespace and Landlock, when it comes to it", lacking(append(noUserNS(), enosys(unix.SYS_LANDLOCK_RESTRICT_SELF))...), "advisory"},
		{"user namespace and system call filter", lacking(append(noUserNS(), noFilter)...), "advisory"},
		{"user namespace and signals in Landlock", lacking(append(noUserNS(), landlockABI(5)...)...), "gated"},
		{"user namespace and most of Landlock", lacking(append(noUserNS(), landlockABI(1)...)...), "gated"},
		{"mount namespace", limited("mnt"), byRules},
		{"pid namespace", limited("pid"), byRules},
		{"ipc namespace", limited("ipc"), byRules},
		{"uts namespace", limited("uts"), byRules},
		{"cgroup namespace", limited("cgroup"), byRules},
		{"network namespace", limited("net"), byRules}, // not the others alone either, in there
		{"network namespace, by a filter", lacking(fmt.Sprintf("%d:0&%d:%d", unix.SYS_CLONE, unix.CLONE_NEWNET, unix.EPERM), enosys(unix.SYS_CLONE3)), "gated"},
		{"Landlock", lacking(enosys(unix.SYS_LANDLOCK_CREATE_RULESET)), "mediated-write"},
		{"Landlock, when it comes to it", lacking(enosys(unix.SYS_LANDLOCK_RESTRICT_SELF)), "mediated-write"},
		{"system call filter", lacking(noFilter), "gated"},
		{"change of the root", lacking(enosys(unix.SYS_PIVOT_ROOT)), "gated"},
		{"mount descriptors", lacking(enosys(unix.SYS_OPEN_TREE), enosys(unix.SYS_FSOPEN)), byRules},
		{"recursive read-only mounts", lacking(enosys(unix.SYS_MOUNT_SETATTR)), byRules},
		{"no_new_privs, silently", dropping(silent("%d:0=%d:%d", unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS)), "gated"},
		{"bounding set of capabilities, silently", lacking(silent("%d:0=%d:%d", unix.SYS_PRCTL, unix.PR_CAPBSET_DROP)), "mediated-write"},
		{"capabilities, silently", lacking(silent("%d::%d", unix.SYS_CAPSET)), "mediated-write"},
		{"limits, silently", lacking(silent("%d:2&%d:%d", unix.SYS_PRLIMIT64, uint32(math.MaxUint32))), "mediated-write"},
		{"Landlock, silently", lacking(silent("%d::%d", unix.SYS_LANDLOCK_RESTRICT_SELF)), "mediated-write"},
		{"system call filter, silently", lacking(silent("%d:0=%d:%d", unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER)), "gated"},
		{"change of the root, silently", lacking(silent("%d::%d", unix.SYS_PIVOT_ROOT)), "advisory"},
		{"keys", lacking(enosys(unix.SYS_KEYCTL)), "isolated"}, // there are none to be shared
	} {
		t.Run(row.layer, func(t *testing.T) {
			w := newWorld(t, map[string]string{"x": "x\n"})
			need.Tool(t, "unshare")
			need.Tool(t, "setpriv")
			ran := filepath.Join(w.tmp, "ran")
			mark := obj{"argv": []string{"sh", "-c", "touch " + ran + " 2>/dev/null; exit 0"}}
			w.configure(obj{"checks": obj{"mark": mark, "ok": obj{"argv": []string{"true"}}}})
			p := w.plan().modify("x", "x\n", "y\n")
			m := w.mark()
			r := row.run(w, "apply", "--plan", p.file(), "--json", "--dry-run", "--check", "ok")
			if weaker := rank(r.str("assurance", "mode")); weaker < 0 || weaker > rank(row.most) {
				t.Errorf("mode %q without %s: %s", r.str("assurance", "mode"), row.layer, r)
			}
			if out := r.String(); row.most == "advisory" && !(strings.Contains(out, "`asp doctor` says how to get one") && strings.Contains(out, "in config.json does without")) {
				t.Errorf("the refusal does not tell the way out: %s", r)
			}
			d := row.run(w, "doctor", "--json")
			if d.str("mode", "can") != row.most {
				t.Errorf("doctor says %q without %s: %s", d.str("mode", "can"), row.layer, d)
			}
			if row.most == "isolated" {
				r := row.run(w, "apply", "--plan", p.file(), "--json", "--dry-run", "--check", "ok", "--require-assurance", "isolated")
				if r.code != 0 || r.str("assurance", "mode") != "isolated" {
					t.Errorf("nothing of importance is missing: %s", r)
				}
				return
			}
			next := []string{"gated", "mediated-write", "isolated"}[rank(row.most)]
			for _, mode := range []string{next, "isolated"} {
				if mode == "gated" {
					continue // no flag asks for it: it is what every launch has to have
				}
				row.run(w, "apply", "--plan", p.file(), "--json", "--check", "mark", "--require-assurance", mode).refusedAny([]string{"weak-assurance", "check-indeterminate"})
				w.gone(ran)
				if mode == next && mode == "isolated" {
					break
				}
			}
			if next == "gated" {
				next = "mediated-write"
			}
			w.configure(obj{"checks": obj{"mark": mark}, "sandbox": obj{"require": next}})
			if r = row.run(w, "apply", "--plan", p.file(), "--json", "--check", "mark"); r.at("applied") == true || r.code != 1 && r.code != 3 {
				t.Errorf("%s is required: %s", next, r)
			}
			w.gone(ran) // not even started
			m.unchanged()
		})
	}
}

// rank orders the modes; -1 is none.
func rank(mode string) int {
	for i, m := range []string{"advisory", "gated", "mediated-write", "isolated"} {
		if m == mode {
			return i
		}
	}
	return -1
}

// silent is a system call that says it did its work, and did nothing.
func silent(format string, args ...any) string { return fmt.Sprintf(format, append(args, 0)...) }
