package apply

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/aspengine/asp/internal/canon"
	"github.com/aspengine/asp/internal/home"
	"github.com/aspengine/asp/internal/vfs"
	"github.com/aspengine/asp/sandbox"
	"github.com/aspengine/asp/seam/wire"
)

// answeredFile keeps what the machine answered when host/status last asked it, so that
// the next process need not ask within the minutes for which a Machine believes it. It
// is for that report alone: whatever runs is launched as the machine is then, and
// proves its own boundary.
//
// An answer holds for the boot, the binary and everything of this process that decides
// what a launch may do. Its age is counted by the clock of the boot, which nobody sets.
const (
	answeredFile   = "assurance.json"
	answeredFormat = 1
	answeredSize   = 256 << 10
)

type answered struct {
	Format int64       `json:"format"`
	Here   string      `json:"here"`  // digest of what it holds for
	Until  int64       `json:"until"` // milliseconds of uptime
	Modes  []wire.Mode `json:"modes"`
	// Evidence is what the launch proved and the record of its attempts, for people.
	Evidence string   `json:"evidence"`
	Attempts []string `json:"attempts"`
}

// assuranceModes are the modes that a check could establish here, by a launch that
// proved as much. Each run proves its own.
func (e *Engine) assuranceModes(ctx context.Context) []wire.Mode {
	here, up, known := e.here()
	if e.o.Machine.asked() {
		known = false // this process has an answer, or waits for one
	}
	if known {
		if a, ok := e.answer(); ok && a.Here == here && up < a.Until && a.Until <= up+machineYes.Milliseconds() {
			return a.Modes
		}
	}
	a := answered{Format: answeredFormat, Here: here, Modes: []wire.Mode{wire.Advisory}}
	caps, until, err := e.caps(ctx)
	if err == nil && (caps.Namespaces() || caps.CanConfine()) {
		b, proved, err := e.isolation(ctx, caps)
		for _, x := range []struct {
			level sandbox.Level
			mode  wire.Mode
		}{{sandbox.Gated, wire.Gated}, {sandbox.MediatedWrite, wire.MediatedWrite}, {sandbox.Isolated, wire.Isolated}} {
			if err == nil && b.Level >= x.level {
				a.Modes = append(a.Modes, x.mode)
			}
		}
		a.Evidence, a.Attempts = b.Evidence, b.Record()
		if proved.Before(until) {
			until = proved // the zero time where it could not be told
		}
	}
	if left := time.Until(until).Milliseconds(); known && err == nil && ctx.Err() == nil && left > 0 {
		a.Until = up + left
		if b, err := canon.Marshal(a); err == nil {
			_ = home.WriteFile(e.state.Dir(), answeredFile, b) // else the next one asks
		}
	}
	return a.Modes
}

// answer reads the file; anything unexpected in it is no answer.
func (e *Engine) answer() (a answered, ok bool) {
	b, err := home.ReadFile(e.state.Dir(), answeredFile, answeredSize)
	if err != nil {
		return a, false
	}
	v, err := canon.Parse(b, canon.Limits{})
	if err != nil || v.Kind() != canon.Object {
		return a, false
	}
	format, _ := v.Get("format")
	here, _ := v.Get("here")
	until, _ := v.Get("until")
	modes, _ := v.Get("modes")
	n, ok := format.Int()
	if !ok || n != answeredFormat || here.Kind() != canon.String || modes.Kind() != canon.Array {
		return a, false
	}
	all := []wire.Mode{wire.Advisory, wire.Gated, wire.MediatedWrite, wire.Isolated}
	for i, m := range modes.Elements() {
		if m.Kind() != canon.String || i >= len(all) || m.Str() != string(all[i]) {
			return a, false
		}
	}
	a.Here, a.Modes = here.Str(), all[:modes.Len()]
	a.Until, ok = until.Int()
	return a, ok && len(a.Modes) > 0
}

// here names what an answer holds for, and how long this boot lasts already; false
// where the system does not say.
func (e *Engine) here() (digest string, up int64, ok bool) {
	var parts [][]byte
	read := func(name string) []byte {
		b, err := os.ReadFile(name)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			b = []byte("none") // a switch that this kernel does not have
		case err != nil:
			b = []byte("no answer: " + err.Error())
		}
		parts = append(parts, []byte(name), b)
		return b
	}
	boot := read("/proc/sys/kernel/random/boot_id")
	read("/proc/sys/kernel/version")
	read("/proc/self/cgroup")
	read("/proc/self/mountinfo")
	read("/proc/self/limits")
	read("/proc/self/uid_map")
	read("/proc/self/attr/current")
	for _, s := range []string{"user/max_user_namespaces", "user/max_mnt_namespaces", "user/max_pid_namespaces", "user/max_net_namespaces", "user/max_ipc_namespaces", "user/max_uts_namespaces", "user/max_cgroup_namespaces",
		"kernel/unprivileged_userns_clone", "kernel/apparmor_restrict_unprivileged_userns"} {
		read("/proc/sys/" + s)
	}
	for _, n := range []string{"user", "mnt", "pid", "net", "ipc", "uts", "cgroup", "time"} {
		l, err := os.Readlink("/proc/self/ns/" + n)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "", 0, false
		}
		parts = append(parts, []byte(n), []byte(l))
	}
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return "", 0, false
	}
	for l := range bytes.Lines(status) {
		for _, p := range []string{"Uid:", "Gid:", "Groups:", "Cap", "NoNewPrivs:", "Seccomp"} {
			if bytes.HasPrefix(l, []byte(p)) {
				parts = append(parts, l)
			}
		}
	}
	exe, ok := program()
	if !ok || len(boot) < 36 {
		return "", 0, false
	}
	all := []string{e.o.Version, exe, e.o.Home.Path(home.ScratchDir), e.ws.Root(), keyOf(e.like())}
	for _, p := range parts {
		all = append(all, hex.EncodeToString(p))
	}
	up, ok = uptime()
	return canon.DigestText(texts(all)), up, ok
}

// program names the file that runs, by everything that changes when it does.
func program() (string, bool) {
	name, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return "", false
	}
	d, err := vfs.OS{}.OpenRoot(filepath.Dir(name))
	if err != nil {
		return "", false
	}
	defer d.Close()
	st, err := d.Lstat(filepath.Base(name)) // one that was replaced is "… (deleted)"
	if err != nil || st.Kind != vfs.KindFile {
		return "", false
	}
	return strings.Join([]string{name, strconv.FormatUint(st.Dev, 10), strconv.FormatUint(st.Ino, 10), strconv.FormatInt(st.Size, 10), strconv.FormatInt(st.Mtime, 10), strconv.FormatInt(st.Ctime, 10)}, " "), true
}

// uptime is the age of this boot in milliseconds, the time that the machine slept included.
func uptime() (int64, bool) {
	b, err := os.ReadFile("/proc/uptime")
	if err != nil {
		return 0, false
	}
	s, _, _ := strings.Cut(string(b), " ")
	f, err := strconv.ParseFloat(s, 64)
	return int64(f * 1000), err == nil
}
