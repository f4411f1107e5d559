//go:build linux

package worktree

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// owner identifies a process for as long as the machine runs: a pid alone is
// used again, a pid with its start time is not.
type owner struct {
	pid   int
	start uint64 // clock ticks after boot, field 22 of /proc/PID/stat
	boot  string // first 8 hex digits of the boot id
	pidns uint64 // inode of the pid namespace that pid is counted in
}

// The whole record is in the directory's name, so that there is no moment at
// which a scratch directory exists without it.
const scratchPrefix = "s-"

func (o owner) name() (string, error) {
	var r [16]byte
	if _, err := rand.Read(r[:]); err != nil {
		return "", err
	}
	return fmt.Sprintf("%s%d-%d-%s-%d-%s", scratchPrefix, o.pid, o.start, o.boot, o.pidns, hex.EncodeToString(r[:])), nil
}

func parseOwner(name string) (owner, bool) {
	var o owner
	rest, ok := strings.CutPrefix(name, scratchPrefix)
	f := strings.Split(rest, "-")
	if !ok || len(f) != 5 || len(f[2]) != 8 || len(f[4]) != 32 {
		return o, false
	}
	var err [3]error
	o.pid, err[0] = strconv.Atoi(f[0])
	o.start, err[1] = strconv.ParseUint(f[1], 10, 64)
	o.boot = f[2]
	o.pidns, err[2] = strconv.ParseUint(f[3], 10, 64)
	return o, errors.Join(err[:]...) == nil && o.pid > 0
}

// self describes the running process.
func self() (owner, error) {
	o := owner{pid: os.Getpid()}
	st, err := readStat(o.pid)
	if err != nil {
		return o, fmt.Errorf("read own start time: %w", err)
	}
	o.start = st.start
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return o, fmt.Errorf("read boot id: %w", err)
	}
	if len(b) < 8 {
		return o, fmt.Errorf("read boot id: %d bytes", len(b))
	}
	o.boot = string(b[:8])
	var ns unix.Stat_t
	if err := unix.Stat("/proc/self/ns/pid", &ns); err != nil {
		return o, fmt.Errorf("read pid namespace: %w", err)
	}
	o.pidns = ns.Ino
	return o, nil
}

type procStat struct {
	state byte
	start uint64
}

// readStat reads the two fields of interest. The second field is the command's
// name in parentheses and may hold anything, so counting starts after the last
// closing one.
func readStat(pid int) (procStat, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return procStat{}, err
	}
	s := string(b)
	i := strings.LastIndexByte(s, ')')
	f := strings.Fields(s[i+1:])
	const startField = 22 - 3 // f[0] is field 3
	if i < 0 || len(f) <= startField || f[0] == "" {
		return procStat{}, fmt.Errorf("read stat of process %d: %d fields", pid, len(f))
	}
	start, err := strconv.ParseUint(f[startField], 10, 64)
	return procStat{f[0][0], start}, err
}

// dead tells whether o is proven dead as seen from me. Whatever cannot be told
// is not dead.
func (o owner) dead(me owner) bool {
	if o.boot != me.boot {
		return true
	}
	if o.pidns != me.pidns {
		return false // counted in a namespace that we cannot look into
	}
	st, err := readStat(o.pid)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		// /proc may hide other users' processes; the kernel's answer to a
		// null signal does not.
		return errors.Is(unix.Kill(o.pid, 0), unix.ESRCH)
	case err != nil:
		return errors.Is(err, unix.ESRCH)
	case st.start != o.start:
		return true
	}
	if st.state != 'Z' && st.state != 'X' {
		return false
	}
	// A leader can be a zombie while other threads of it still run.
	tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", o.pid))
	return err == nil && len(tasks) <= 1
}

// newScratch makes a fresh private directory below base.
func newScratch(base string) (string, error) {
	me, err := self()
	if err != nil {
		return "", err
	}
	name, err := me.name()
	if err != nil {
		return "", fmt.Errorf("name scratch directory: %w", err)
	}
	dir := filepath.Join(base, name)
	if err := os.Mkdir(dir, 0o700); err != nil {
		return "", fmt.Errorf("make scratch directory: %w", err)
	}
	return dir, nil
}

// Sweep removes scratch directories below scratchBase whose owner is dead and
// returns their names. Owners that live, or of whom nothing can be proven, and
// names that are not ours stay. Links are unlinked, never followed. It may run
// beside other Sweeps and Builds. A missing scratchBase is nothing to sweep.
func Sweep(ctx context.Context, scratchBase string) ([]string, error) {
	entries, err := os.ReadDir(scratchBase)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("sweep scratch: %w", err)
	}
	me, err := self()
	if err != nil {
		return nil, fmt.Errorf("sweep scratch: %w", err)
	}
	var gone []string
	var errs []error
	for _, e := range entries {
		if err := ctx.Err(); err != nil {
			return gone, errors.Join(append(errs, err)...)
		}
		o, ok := parseOwner(e.Name())
		if !ok || !e.IsDir() || !o.dead(me) {
			continue
		}
		if err := removeTree(scratchBase, e.Name()); err != nil {
			errs = append(errs, fmt.Errorf("sweep scratch %s: %w", e.Name(), err))
			continue
		}
		gone = append(gone, e.Name())
	}
	return gone, errors.Join(errs...)
}

// Close removes the candidate's scratch directory with everything in it, ends
// what was started for a run that did not come, and waits for the mounts of those that came. Closing twice is
// harmless.
func (c *Candidate) Close() error {
	if c.closed {
		return nil
	}
	c.closed = true
	c.spare.Close()
	c.ends.Wait()
	if c.Scratch == "" {
		return nil
	}
	base, name := filepath.Split(c.Scratch)
	if err := removeTree(base, name); err != nil {
		return fmt.Errorf("remove scratch directory: %w", err)
	}
	return nil
}
