package casetest

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/aspengine/asp/internal/need"
)

// TestOldKernels runs the built command where a system call of the newer kind does not exist, or
// Landlock is of an older version: what is required is still proved, or refused with the workspace as it was;
// nothing crashes and nothing hangs.
func TestOldKernels(t *testing.T) {
	need.UserNS(t)
	type row struct {
		name  string
		lacks []string
		then  string // the refusal, "" where isolated is proved all the same
	}
	rows := []row{
		{"clone3", []string{enosys(unix.SYS_CLONE3)}, ""},
		{"move_mount", []string{enosys(unix.SYS_MOVE_MOUNT)}, "weak-assurance"},
		{"close_range", []string{enosys(unix.SYS_CLOSE_RANGE)}, ""},
		{"pidfd", []string{enosys(unix.SYS_PIDFD_OPEN), enosys(unix.SYS_PIDFD_SEND_SIGNAL)}, ""},
		{"rules of Landlock", []string{enosys(unix.SYS_LANDLOCK_ADD_RULE)}, "weak-assurance"},
		{"statx", []string{enosys(unix.SYS_STATX)}, "weak-assurance"},
	}
	for abi := 1; abi <= 5; abi++ {
		rows = append(rows, row{fmt.Sprint("Landlock ", abi), landlockABI(abi), ""})
	}
	rows = append(rows, row{"openat2", []string{enosys(unix.SYS_OPENAT2)}, "check-indeterminate"}) // no path can be resolved safely
	w := newWorld(t, map[string]string{"x": "x\n"})
	w.configure(obj{"checks": obj{"ok": obj{"argv": []string{"true"}}}})
	p := w.plan().modify("x", "x\n", "y\n")
	m := w.mark()
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			w := w.as(t)
			args := []string{"apply", "--plan", p.file(), "--json", "--check", "ok", "--require-assurance", "isolated"}
			if row.then == "" {
				args = append(args, "--dry-run")
			}
			r := w.lacking(row.lacks...)(args...)
			switch row.then {
			case "":
				if r.code != 0 || r.str("assurance", "mode") != "isolated" {
					t.Errorf("isolated is not proved: %s", r)
				}
			default:
				r.refused(row.then)
			}
			m.unchanged()
			if es, err := os.ReadDir(filepath.Join(w.asp, "scratch")); err == nil && len(es) > 0 {
				t.Errorf("scratch directories are left: %v", es)
			}
		})
	}
}
