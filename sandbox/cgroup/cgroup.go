//go:build linux

// Package cgroup makes control groups for what a sandbox starts: to bound its memory,
// processes and CPU time as a whole, and to kill all of it by one write.
//
// Groups are made below the caller's own, never beside or above it: what bounds the
// caller bounds them too. A group's directory is named after the process that made it
// (pid, start time, pid namespace), so there is no moment at which it exists without a
// record of its owner; groups live no longer than the kernel, so the record needs no
// boot. Sweep ends and removes those whose owner is proven dead, never by age.
//
// In the unified hierarchy a group has two parts, because the kernel allows no
// processes beside parts that are bounded: init, for the process that watches, and
// main, for what is watched and bounded. A controller that the system still keeps in a
// hierarchy of its own (version 1) is used there; then only main exists in it.
//
// The room writes below cgroup file systems and nowhere else, and starts nothing.
package cgroup

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Controllers of a Limits.
const (
	Memory = "memory"
	Pids   = "pids"
	CPU    = "cpu"
)

var controllers = [...]string{Memory, Pids, CPU}

// Tree is where the calling process may have groups. The zero Tree has no place. It is
// immutable.
type Tree struct {
	unified string            // own directory in the unified hierarchy, "" when there is none
	v1      map[string]string // own directory by controller, in hierarchies of version 1
}

// Find reads where the calling process is.
func Find() (Tree, error) {
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return Tree{}, err
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return Tree{}, err
	}
	t := parse(string(own), string(mounts))
	// A process that delegate moved still has its groups where it was.
	if o, ok := parseName(filepath.Base(t.unified)); ok {
		if me, err := self(); err == nil && o == me {
			t.unified = filepath.Dir(t.unified)
		}
	}
	return t, nil
}

// parse brings /proc/self/cgroup and mountinfo together. A hierarchy whose mount does
// not show the process's own group has no place for us.
func parse(own, mounts string) Tree {
	t := Tree{v1: map[string]string{}}
	groups := map[string]string{} // by controller, "" being the unified hierarchy
	for line := range strings.Lines(own) {
		f := strings.SplitN(strings.TrimRight(line, "\n"), ":", 3)
		if len(f) != 3 || !strings.HasPrefix(f[2], "/") || strings.HasPrefix(f[2], "/..") || strings.HasSuffix(f[2], " (deleted)") {
			continue
		}
		for c := range strings.SplitSeq(f[1], ",") {
			groups[c] = filepath.Clean(f[2])
		}
	}
	unescape := strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)
	for line := range strings.Lines(mounts) {
		before, after, ok := strings.Cut(line, " - ")
		f, g := strings.Fields(before), strings.Fields(after)
		if !ok || len(f) < 6 || len(g) < 3 {
			continue
		}
		root, point := unescape.Replace(f[3]), unescape.Replace(f[4])
		below := func(group string) (string, bool) {
			if group == "" || group != root && root != "/" && !strings.HasPrefix(group, root+"/") {
				return "", false
			}
			return filepath.Join(point, strings.TrimPrefix(group, root)), true
		}
		switch g[0] {
		case "cgroup2":
			if d, ok := below(groups[""]); ok {
				t.unified = d
			}
		case "cgroup":
			for o := range strings.SplitSeq(g[2], ",") {
				if d, ok := below(groups[o]); ok && slices.Contains(controllers[:], o) {
					t.v1[o] = d
				}
			}
		}
	}
	return t
}

// Limits bound a group as a whole; zero means no bound.
type Limits struct {
	MemoryBytes uint64 // with what lies in file systems in memory; swap is none
	Processes   uint64 // threads are counted
	CPUPct      uint64 // percent of one processor
}

func (l Limits) of(controller string) uint64 {
	return map[string]uint64{Memory: l.MemoryBytes, Pids: l.Processes, CPU: l.CPUPct}[controller]
}

// Group is a control group of our own. It is for one owner at a time.
type Group struct {
	tree   Tree
	name   string
	top    string // in the unified hierarchy, "" when there is none
	init   *os.File
	extra  []string // directories of version 1
	bounds []bound  // in force
}

// bound is one controller's limit on a group.
type bound struct {
	controller, dir string
	n               uint64
	v1              bool
}

// New makes a group. A system that gives no place for one is an error: EACCES, EPERM
// or EROFS where it is not ours to make, ENOENT where there is no hierarchy.
func (t Tree) New() (*Group, error) {
	if t.unified == "" {
		return nil, &fs.PathError{Op: "make control group", Path: "unified hierarchy", Err: unix.ENOENT}
	}
	name, err := newName()
	if err != nil {
		return nil, err
	}
	g := &Group{tree: t, name: name, top: filepath.Join(t.unified, name)}
	if err := unix.Mkdir(g.top, 0o755); err != nil {
		return nil, &fs.PathError{Op: "make control group in", Path: t.unified, Err: err}
	}
	err = os.Mkdir(g.part("init"), 0o755)
	if err == nil {
		g.init, err = os.OpenFile(g.part("init"), unix.O_PATH|unix.O_DIRECTORY, 0)
	}
	if err != nil {
		return nil, errors.Join(err, g.Close())
	}
	return g, nil
}

func (g *Group) part(name string) string { return filepath.Join(g.top, name) }

// Init is the directory in which the watching process is to be started, as
// SysProcAttr.CgroupFD. It belongs to the group.
func (g *Group) Init() *os.File { return g.init }

// Bound makes the main part with limits. A process enters it by writing "0" to each of
// the files, whoever it is by then: the kernel asks who opened them. held names the
// controllers that are in force; why says for each other one that was asked for what
// was in the way. The caller closes the files.
func (g *Group) Bound(l Limits) (enter []*os.File, held map[string]bool, why map[string]error, err error) {
	held, why = map[string]bool{}, map[string]error{}
	defer func() {
		if err != nil {
			for _, f := range enter {
				f.Close()
			}
			enter = nil
		}
	}()
	main := g.part("main")
	var want []string
	for _, c := range controllers {
		if l.of(c) == 0 {
			continue
		}
		if dir := g.tree.v1[c]; dir != "" {
			if why[c] = g.boundV1(dir, c, l.of(c)); why[c] == nil {
				delete(why, c)
				held[c] = true
			}
			continue
		}
		if why[c] = g.offer(c); why[c] == nil {
			delete(why, c)
			want = append(want, c)
		}
	}
	if err = os.Mkdir(main, 0o755); err != nil {
		return nil, nil, nil, err
	}
	for _, c := range want {
		if why[c] = set(main, settings(c, l.of(c), false)); why[c] == nil {
			delete(why, c)
			held[c] = true
			g.bounds = append(g.bounds, bound{controller: c, dir: main, n: l.of(c)})
		}
	}
	for _, dir := range append([]string{main}, g.extra...) {
		f, err := os.OpenFile(filepath.Join(dir, "cgroup.procs"), os.O_WRONLY, 0)
		if err != nil {
			return enter, nil, nil, err
		}
		enter = append(enter, f)
	}
	return enter, held, why, nil
}

// offer makes a controller available to the parts of g.
func (g *Group) offer(c string) error {
	if err := enable(g.top, c); err == nil {
		return nil
	}
	// The own group does not hand it down yet.
	if err := g.tree.delegate(c); err != nil {
		return err
	}
	return enable(g.top, c)
}

func enable(dir, c string) error { return put(filepath.Join(dir, "cgroup.subtree_control"), "+"+c) }

// put writes a file that is there: outside a cgroup file system nothing is to be made.
func put(file, value string) error {
	f, err := os.OpenFile(file, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(value)
	return errors.Join(err, f.Close())
}

// delegate has the own group hand a controller down. Where the kernel refuses that
// because there are processes in it, and the calling process is the only one (a scope
// or container of its own), it moves itself into a part of it first. Other people's
// processes are never moved, and no group beside the own one is used: that would get
// around the limits which were set on it.
func (t Tree) delegate(c string) error {
	err := enable(t.unified, c)
	if !errors.Is(err, unix.EBUSY) {
		return err
	}
	b, rerr := os.ReadFile(filepath.Join(t.unified, "cgroup.procs"))
	if rerr != nil || strings.TrimSpace(string(b)) != strconv.Itoa(os.Getpid()) {
		return err // others are in there
	}
	name, nerr := newName()
	if nerr != nil {
		return nerr
	}
	if merr := os.Mkdir(filepath.Join(t.unified, name), 0o755); merr != nil {
		return merr
	}
	if merr := put(filepath.Join(t.unified, name, "cgroup.procs"), "0"); merr != nil {
		return errors.Join(merr, rmdir(filepath.Join(t.unified, name)))
	}
	return enable(t.unified, c)
}

func (g *Group) boundV1(own, c string, n uint64) error {
	dir := filepath.Join(own, g.name)
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if !slices.Contains(g.extra, dir) { // one hierarchy may have several controllers
		g.extra = append(g.extra, dir)
	}
	err := set(dir, settings(c, n, true))
	if err == nil {
		g.bounds = append(g.bounds, bound{controller: c, dir: dir, n: n, v1: true})
	}
	return err
}

// LowMemory is the limit of memory in a group that is lowered, in bytes.
func LowMemory() uint64 { return 128 * uint64(os.Getpagesize()) }

// Lower puts limits in force that cost little to exceed, in the place of those of Bound: no process
// beside one, LowMemory, and where cpu is set a millisecond in four at most. It is for who tries them, and ends with Settle.
func (g *Group) Lower(cpu bool) error {
	for _, b := range g.bounds {
		if b.controller == CPU && !cpu {
			continue
		}
		if err := set(b.dir, b.low()); err != nil {
			return err
		}
	}
	return nil
}

func (b bound) low() []setting {
	// No greater share than that of the limit, which was allowed here.
	per := strconv.FormatUint(max(4000, 100_000/max(b.n, 1)), 10)
	switch {
	case b.controller == Pids:
		return settings(Pids, 1, b.v1)
	case b.controller == Memory:
		// The first is the limit itself; the one with swap may not be below it, and stays.
		return settings(Memory, LowMemory(), b.v1)[:1]
	case b.v1:
		return []setting{{"cpu.cfs_quota_us", "1000", false}, {"cpu.cfs_period_us", per, false}} // the quota first: it may not grow in between
	}
	return []setting{{"cpu.max", "1000 " + per, false}}
}

// Settle puts the limits of Bound in force again. tried are the controllers whose limits
// somebody has tried to exceed. doubts has, by its controller, what is not as it has to be: nothing
// was refused of what was tried, as the kernel counts it, or what it says now is not what was set.
func (g *Group) Settle(tried ...string) (doubts map[string]error, err error) {
	doubts = map[string]error{}
	for _, b := range g.bounds {
		if slices.Contains(tried, b.controller) {
			if n, err := b.refusals(); err != nil || n == 0 {
				doubts[b.controller] = errors.Join(err, errors.New("nothing was refused"))
			}
		}
		list := settings(b.controller, b.n, b.v1)
		if err := set(b.dir, list); err != nil {
			return nil, err
		}
		for _, s := range list {
			got, err := os.ReadFile(filepath.Join(b.dir, s.file))
			want := s.value
			if n, perr := strconv.ParseUint(want, 10, 64); perr == nil && b.controller == Memory && n > 1 {
				want = strconv.FormatUint(n&^uint64(os.Getpagesize()-1), 10) // whole pages
			}
			if is := strings.TrimSpace(string(got)); is != want && !(s.optional && errors.Is(err, fs.ErrNotExist)) {
				doubts[b.controller] = errors.Join(err, fmt.Errorf("%s is %.40q, not %q", s.file, is, want))
			}
		}
	}
	return doubts, nil
}

// refusals is how often the kernel kept somebody within the limit.
func (b bound) refusals() (uint64, error) {
	file, key := "pids.events", "max "
	switch {
	case b.controller == Memory && b.v1:
		file, key = "memory.failcnt", ""
	case b.controller == Memory:
		file = "memory.events"
	case b.controller == CPU:
		file, key = "cpu.stat", "nr_throttled "
	}
	raw, err := os.ReadFile(filepath.Join(b.dir, file))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(raw)) {
		if n, ok := strings.CutPrefix(strings.TrimSpace(line), key); ok {
			return strconv.ParseUint(n, 10, 64)
		}
	}
	return 0, fmt.Errorf("%s: %.40q", file, raw)
}

// setting is a file of a controller. An optional one is missing on some kernels, where
// it has nothing to bound.
type setting struct {
	file, value string
	optional    bool
}

const period = 100_000 // microseconds, the kernel's default

func settings(c string, n uint64, v1 bool) []setting {
	s, quota := strconv.FormatUint(n, 10), strconv.FormatUint(max(n*period/100, 1000), 10)
	switch {
	case c == Pids:
		return []setting{{"pids.max", s, false}}
	case c == Memory && v1:
		return []setting{{"memory.limit_in_bytes", s, false}, {"memory.memsw.limit_in_bytes", s, true}}
	case c == Memory:
		return []setting{{"memory.max", s, false}, {"memory.swap.max", "0", true}, {"memory.oom.group", "1", true}}
	case v1:
		return []setting{{"cpu.cfs_period_us", strconv.Itoa(period), false}, {"cpu.cfs_quota_us", quota, false}}
	}
	return []setting{{"cpu.max", quota + " " + strconv.Itoa(period), false}}
}

func set(dir string, list []setting) error {
	for _, s := range list {
		err := put(filepath.Join(dir, s.file), s.value)
		if err != nil && !(s.optional && errors.Is(err, fs.ErrNotExist)) {
			return err
		}
	}
	return nil
}

// Kill kills every process of the group, also one that is just being forked. It
// returns at once; ENOENT where the kernel (before 5.14) has no such file.
func (g *Group) Kill() error { return kill(g.top) }

func kill(dir string) error { return put(filepath.Join(dir, "cgroup.kill"), "1") }

// Close removes the group. Processes that are still in it are killed. Closing twice is
// harmless.
func (g *Group) Close() error {
	var err error
	if g.init != nil {
		err = g.init.Close()
		g.init = nil
	}
	err = errors.Join(err, remove(g.top))
	for _, d := range g.extra {
		err = errors.Join(err, rmdir(d))
	}
	return err
}

// remove ends what is in a group of the unified hierarchy and removes its directories.
func remove(top string) error {
	_ = kill(top) // rmdir tells whether it worked
	for _, part := range []string{"init", "main"} {
		if err := rmdir(filepath.Join(top, part)); err != nil {
			return err
		}
	}
	return rmdir(top)
}

// rmdir waits, at most a second, for a group that the kernel still calls busy: a
// killed process leaves it a moment after its death was seen.
func rmdir(dir string) error {
	for end := time.Now().Add(time.Second); ; time.Sleep(time.Millisecond) {
		err := unix.Rmdir(dir)
		switch {
		case err == nil || err == unix.ENOENT:
			return nil
		case err == unix.EINTR:
		case err != unix.EBUSY || time.Now().After(end):
			return &fs.PathError{Op: "remove control group", Path: dir, Err: err}
		}
	}
}

// prefix starts the name of every group; see owner.
const prefix = "asp-"

// owner identifies a process for as long as the machine runs.
type owner struct {
	pid          int
	start, pidns uint64
}

func newName() (string, error) {
	var r [8]byte
	if _, err := rand.Read(r[:]); err != nil {
		return "", err
	}
	o, err := self()
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%s%d-%d-%d-%s", prefix, o.pid, o.start, o.pidns, hex.EncodeToString(r[:])), nil
}

func self() (owner, error) {
	o := owner{pid: os.Getpid()}
	var ns unix.Stat_t
	if err := unix.Stat("/proc/self/ns/pid", &ns); err != nil {
		return o, fmt.Errorf("read own pid namespace: %w", err)
	}
	o.pidns = ns.Ino
	var err error
	if o.start, _, err = readStat(o.pid); err != nil {
		return o, fmt.Errorf("read own start time: %w", err)
	}
	return o, nil
}

// parseName reads the record back.
func parseName(name string) (owner, bool) {
	rest, ok := strings.CutPrefix(name, prefix)
	f := strings.Split(rest, "-")
	if !ok || len(f) != 4 || len(f[3]) != 16 {
		return owner{}, false
	}
	pid, err := strconv.Atoi(f[0])
	start, err2 := strconv.ParseUint(f[1], 10, 64)
	ns, err3 := strconv.ParseUint(f[2], 10, 64)
	return owner{pid, start, ns}, errors.Join(err, err2, err3) == nil && pid > 0
}

// readStat reads start time and state of a process. The command's name, in
// parentheses, may hold anything.
func readStat(pid int) (start uint64, state byte, err error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, 0, err
	}
	s := string(b)
	f := strings.Fields(s[strings.LastIndexByte(s, ')')+1:])
	const startField = 22 - 3
	if len(f) <= startField {
		return 0, 0, fmt.Errorf("read stat of process %d: %d fields", pid, len(f))
	}
	start, err = strconv.ParseUint(f[startField], 10, 64)
	return start, f[0][0], err
}

// dead tells whether o is proven dead as seen from me; what cannot be told is not.
func (o owner) dead(me owner) bool {
	if o.pidns != me.pidns {
		return false
	}
	start, state, err := readStat(o.pid)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		// /proc may hide other users' processes; a null signal finds them.
		return errors.Is(unix.Kill(o.pid, 0), unix.ESRCH)
	case err != nil:
		return errors.Is(err, unix.ESRCH)
	}
	if start != o.start {
		return true
	}
	if state != 'Z' && state != 'X' {
		return false
	}
	// A leader can be a zombie while other threads of it still run.
	tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", o.pid))
	return err == nil && len(tasks) <= 1
}

// Sweep kills what is in groups of dead owners, removes them and returns their names.
// It may run beside other Sweeps and New.
func (t Tree) Sweep() ([]string, error) {
	me, err := self()
	if err != nil {
		return nil, err
	}
	var out []string
	seen := map[string]bool{}
	for _, own := range append([]string{t.unified}, t.v1[Memory], t.v1[Pids], t.v1[CPU]) {
		if own == "" || seen[own] {
			continue
		}
		seen[own] = true
		names, rerr := readNames(own)
		if rerr != nil {
			err = errors.Join(err, rerr)
			continue
		}
		for _, n := range names {
			o, ok := parseName(n)
			if !ok || !o.dead(me) {
				continue
			}
			dir := filepath.Join(own, n)
			if own == t.unified {
				rerr = remove(dir)
			} else {
				rerr = rmdir(dir)
			}
			if rerr != nil {
				err = errors.Join(err, rerr)
			} else if !slices.Contains(out, n) {
				out = append(out, n)
			}
		}
	}
	return out, err
}

func readNames(dir string) ([]string, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return f.Readdirnames(-1)
}
