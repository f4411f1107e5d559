package casetest

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/aspengine/asp/internal/need"
)

// The built command is the one that is delivered: it has no switch that weakens a
// launch. So each layer is taken away from outside, by the kernel's own limits on
// namespaces or by a filter under which a system call does not exist.

const withoutWord = "casetest-without"

// withoutMain executes a program in a kernel that lacks something. The argument is
// the number of a system call, and of a value of its first argument that is meant,
// -1 for any: NR:VALUE,...
func withoutMain(args []string) int {
	runtime.LockOSThread()
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 99
	}
	prog := []unix.SockFilter{}
	for c := range strings.SplitSeq(args[0], ",") {
		var nr, errno uint32
		var value int64
		if _, err := fmt.Sscanf(c, "%d:%d:%d", &nr, &value, &errno); err != nil {
			fmt.Fprintln(os.Stderr, c, err)
			return 99
		}
		refuse := unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | errno}
		prog = append(prog, unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 0})
		if value < 0 {
			prog = append(prog, unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: nr, Jf: 1}, refuse)
			continue
		}
		prog = append(prog, unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: nr, Jf: 3},
			unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 16},
			unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: uint32(value), Jf: 1}, refuse)
	}
	prog = append(prog, unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW})
	fprog := unix.SockFprog{Len: uint16(len(prog)), Filter: &prog[0]}
	_, _, e := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&fprog)))
	runtime.KeepAlive(prog)
	if e != 0 {
		fmt.Fprintln(os.Stderr, "filter:", e)
		return 99
	}
	err := unix.Exec(args[1], args[1:], os.Environ())
	fmt.Fprintln(os.Stderr, err)
	return 99
}

// TestSB01_WithoutLayers: with one layer less the mode that is reported drops, more
// than that is refused with the workspace untouched, and doctor says so too.
func TestSB01_WithoutLayers(t *testing.T) {
	need.UserNS(t)
	// limited makes a user namespace whose own namespaces are counted, and are none.
	limited := func(kind string) func(w *world, args ...string) *result {
		return func(w *world, args ...string) *result {
			cmd := w.command(w.root, "unshare", append([]string{"-Ur", "sh", "-c",
				`echo 0 > /proc/sys/user/max_` + kind + `_namespaces && exec setpriv --bounding-set -all --inh-caps -all "$0" "$@"`, binary}, args...)...)
			return w.begin(cmd, args)()
		}
	}
	lacking := func(calls ...string) func(w *world, args ...string) *result {
		return func(w *world, args ...string) *result {
			cmd := w.command(w.root, "/proc/self/exe", append([]string{withoutWord, strings.Join(calls, ","), binary}, args...)...)
			return w.begin(cmd, args)()
		}
	}
	enosys := func(nr int) string { return fmt.Sprintf("%d:-1:%d", nr, unix.ENOSYS) }
	for _, row := range []struct {
		layer string
		run   func(w *world, args ...string) *result
		most  string // that may be reported
	}{
		{"nothing", lacking(enosys(unix.SYS_ACCT)), "isolated"},
		{"user namespace", limited("user"), "advisory"},
		{"mount namespace", limited("mnt"), "advisory"},
		{"pid namespace", limited("pid"), "advisory"},
		{"network namespace", limited("net"), "gated"},
		{"Landlock", lacking(enosys(unix.SYS_LANDLOCK_CREATE_RULESET)), "mediated-write"},
		{"Landlock, when it comes to it", lacking(enosys(unix.SYS_LANDLOCK_RESTRICT_SELF)), "mediated-write"},
		{"system call filter", lacking(fmt.Sprintf("%d:%d:%d", unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.EINVAL)), "gated"},
		{"change of the root", lacking(enosys(unix.SYS_PIVOT_ROOT)), "gated"},
		{"mount descriptors", lacking(enosys(unix.SYS_OPEN_TREE), enosys(unix.SYS_FSOPEN)), "advisory"},
		{"recursive read-only mounts", lacking(enosys(unix.SYS_MOUNT_SETATTR)), "advisory"},
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
			if can := rank(d.str("mode", "can")); can < 0 || can > rank(row.most) {
				t.Errorf("doctor says %q without %s: %s", d.str("mode", "can"), row.layer, d)
			}
			if row.most == "isolated" {
				r := row.run(w, "apply", "--plan", p.file(), "--json", "--dry-run", "--check", "ok", "--require-assurance", "isolated")
				if r.code != 0 || r.str("assurance", "mode") != "isolated" {
					t.Errorf("nothing of importance is missing: %s", r)
				}
				return
			}
			for _, mode := range []string{"mediated-write", "isolated"} {
				if rank(mode) <= rank(row.most) {
					continue
				}
				r := row.run(w, "apply", "--plan", p.file(), "--json", "--check", "mark", "--require-assurance", mode).refusedAny([]string{"weak-assurance", "check-indeterminate"})
				if err := os.Remove(ran); err == nil && rank(r.str("assurance", "mode")) > 0 {
					t.Errorf("the check reached the temporary directory of the user: %s", r)
				}
				w.configure(obj{"checks": obj{"mark": mark}, "sandbox": obj{"require": mode}})
				if r = row.run(w, "apply", "--plan", p.file(), "--json", "--check", "mark"); r.at("applied") == true || r.code != 1 && r.code != 3 {
					t.Errorf("%s is required: %s", mode, r)
				}
				w.gone(ran) // not even started
			}
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
