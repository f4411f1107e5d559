package casetest

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/aspengine/asp/internal/need"
)

// thing is one path: its bytes and permission bits; the zero thing is absence.
type thing struct {
	data string
	perm uint32
}

type things map[string]thing

// The five-file plan of the case: change, make in a new directory, delete, move
// into a new directory, change an executable.
var (
	crashOld = things{"a": {"a old\n", 0o644}, "c": {"c\n", 0o600}, "d": {"d\n", 0o644}, "f": {"f old\n", 0o755}, "other": {"other\n", 0o644}}
	crashNew = things{"a": {"a new\n", 0o644}, "n/b": {"b\n", 0o644}, "e/d": {"d\n", 0o644}, "f": {"f new\n", 0o755}, "other": {"other\n", 0o644}}
)

func crashWorld(t testing.TB, old things, opts ...worldOption) *world {
	w := newWorld(t, nil, opts...)
	for p, x := range old {
		w.write(p, x.data, os.FileMode(x.perm))
	}
	w.commit()
	return w
}

func crashPlan(w *world) *plan {
	return w.plan().modify("a", "a old\n", "a new\n").create("n/b", "b\n").remove("c", "c\n").rename("d", "e/d", "d\n").modify("f", "f old\n", "f new\n")
}

// things are the files of the workspace.
func (w *world) things() things {
	w.t.Helper()
	out := things{}
	must(w.t, filepath.WalkDir(w.root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(w.root, p)
		if d.IsDir() {
			if d.Name() == ".git" {
				return fs.SkipDir
			}
			if es, err := os.ReadDir(p); err == nil && len(es) == 0 {
				out[rel+"/"] = thing{} // an empty directory is a left-over
			}
			return nil
		}
		b, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		var st syscall.Stat_t
		if err := syscall.Lstat(p, &st); err != nil {
			return err
		}
		out[rel] = thing{string(b), uint32(st.Mode) & 0o7777}
		return nil
	}))
	return out
}

func (a things) equal(b things) bool {
	for p := range a {
		if a[p] != b[p] {
			return false
		}
	}
	for p := range b {
		if _, ok := a[p]; !ok {
			return false
		}
	}
	return true
}

// crashMode is one way of changing the workspace that is killed at every point.
type crashMode struct {
	name    string
	args    func(w *world, planFile string) []string
	prepare func(w *world, planFile string) // before the pristine state is kept
	old     things
	new     things // what the workspace holds after a success
	index   bool
	staged  bool               // the workspace stays as it is
	ref     string             // gets a commit
	plan    func(*world) *plan // nil: crashPlan
}

// make makes the plan.
func (m crashMode) make(w *world) *plan {
	if m.plan != nil {
		return m.plan(w)
	}
	return crashPlan(w)
}

// before is what the plan was made for.
func (m crashMode) before() things {
	if m.plan != nil {
		return m.old
	}
	return crashOld
}

func crashModes() []crashMode {
	apply := func(flags ...string) func(*world, string) []string {
		return func(_ *world, f string) []string { return append([]string{"apply", "--plan", f, "--json"}, flags...) }
	}
	var receipt string
	return []crashMode{
		{name: "journal", args: apply(), old: crashOld, new: crashNew},
		{name: "exchange", args: apply("--publish", "exchange"), old: crashOld, new: crashNew},
		{name: "stage", args: apply("--stage"), old: crashOld, new: crashOld, staged: true},
		{name: "ref", args: apply("--stage", "--ref", "deep/side"), old: crashOld, new: crashOld, staged: true, ref: "refs/heads/deep/side",
			prepare: func(w *world, _ string) {
				w.gitRun("config", "user.name", "Ann")
				w.gitRun("config", "user.email", "ann@example.org")
			}},
		{name: "index", args: apply("--index"), old: crashOld, new: crashNew, index: true},
		{name: "publish",
			prepare: func(w *world, f string) { w.run("apply", "--plan", f, "--stage", "--json").applied() },
			args:    func(*world, string) []string { return []string{"publish", crashID, "--json"} }, old: crashOld, new: crashNew},
		{name: "undo",
			prepare: func(w *world, f string) {
				receipt = w.run("apply", "--plan", f, "--json").applied().str("receipt", "receiptId")
			},
			args: func(*world, string) []string { return []string{"undo", receipt, "--json"} }, old: crashNew, new: crashOld},
	}
}

const crashID = "crash"

// proposal is the id under which the outcome is reported.
func (m crashMode) proposal(args []string) string {
	if m.name == "undo" {
		return "undo:" + args[1]
	}
	return crashID
}

// longCrash asks for every point instead of a selection.
func longCrash() bool { return os.Getenv("ASP_CRASH") == "long" }

// stride spreads about so many points over a run.
func stride(points, wanted int) int {
	if longCrash() {
		return 1
	}
	return max(1, points/wanted)
}

func TestCR01(t *testing.T) {
	for _, m := range crashModes() {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			crashSweep(t, m, 9)
		})
	}
	t.Run("recovery", func(t *testing.T) {
		t.Parallel()
		crashRecovery(t)
	})
	t.Run("ext4", func(t *testing.T) {
		dir := ext4(t)
		for _, m := range crashModes() {
			t.Run(m.name, func(t *testing.T) { crashSweep(t, m, 4, on(dir)) })
		}
	})
}

// TestCR01Scenes kills plans of other shapes: in the short form a few of them once.
func TestCR01Scenes(t *testing.T) {
	for i, s := range scenes() {
		for j, m := range crashModes()[:3] {
			if !longCrash() && (i+j)%5 != 0 {
				continue
			}
			m.old, m.plan = s.old, s.plan
			if m.new = s.new; m.staged {
				m.new = s.old
			}
			t.Run(s.name+"/"+m.name, func(t *testing.T) {
				t.Parallel()
				crashSweep(t, m, 1)
			})
		}
	}
}

// world is one where the mode's command is about to be run, with a copy of it.
func (m crashMode) world(t *testing.T, opts ...worldOption) (w *world, keep *kept, args []string) {
	t.Helper()
	w = crashWorld(t, m.before(), opts...)
	p := m.make(w)
	p.id = crashID
	file := p.file()
	if m.prepare != nil {
		m.prepare(w, file)
	}
	return w, w.keep(), m.args(w, file)
}

// judged looks at what one run left, by a check that reports to the test of the
// world it gets; point names the run, how says what was done to it.
type judged func(point, how string, check func(w *world))

// inSubtests fails, and ends the sweep, at the first point that is wrong.
func (w *world) inSubtests(t *testing.T) judged {
	return func(point, how string, check func(*world)) {
		t.Helper()
		if !t.Run(point, func(t *testing.T) { check(w.as(t)) }) {
			t.Fatal(how)
		}
	}
}

// crashSweep kills a command before each of its changes of the disk; in the
// short form before about so many of them.
func crashSweep(t *testing.T, m crashMode, points int, opts ...worldOption) {
	w, keep, args := m.world(t, opts...)
	whole := w.killedAt(0, args...)
	whole.applied()
	if now := w.things(); !now.equal(m.new) {
		t.Fatalf("a whole run leaves %v", now)
	}
	killSweep(w, m, keep, args, whole, points, w.inSubtests(t))
}

// killSweep kills the command, whose whole run is given.
func killSweep(w *world, m crashMode, keep *kept, args []string, whole *trace, points int, judge judged) {
	for n := 1; n <= len(whole.lines)+1; n += stride(len(whole.lines), points) {
		keep.restore()
		run := w.killedAt(n, args...)
		point := "survived"
		if run.killed {
			point = run.lines[n-1]
		}
		judge(fmt.Sprintf("%03d", n), fmt.Sprintf("killed before %d of %d: %s", n, len(whole.lines), point), func(w *world) {
			w.afterCrash(m, run, keep, args)
		})
		if !run.killed {
			break
		}
	}
}

// afterCrash checks what a killed run left, and what the next starts make of it.
func (w *world) afterCrash(m crashMode, run *trace, keep *kept, args []string) {
	t := w.t
	acknowledged := run.at("applied") == true
	mixed := w.things()
	if m.name == "exchange" && !mixed.equal(m.old) && !mixed.equal(m.new) {
		t.Errorf("an exchange shows a mix: %v", mixed)
	}
	for _, set := range []things{m.old, m.new} {
		for p := range set {
			if now := mixed[p]; now != m.old[p] && now != m.new[p] {
				t.Errorf("%s is neither old nor new: %+v", p, now)
			}
		}
	}
	first := w.run("recover", "--json")
	second := w.run("recover", "--json")
	if first.code != 0 || second.code != 0 {
		t.Fatalf("recover: %s\n%s", first, second)
	}
	if rec, _ := second.at("recovered").([]any); rec == nil || len(rec) != 0 {
		t.Errorf("the second recovery had something to do: %s", second)
	}
	outcome := ""
	rec, _ := first.at("recovered").([]any)
	if len(rec) > 1 {
		t.Errorf("more than one transaction was recovered: %s", first)
	}
	for _, r := range rec {
		o, _ := r.(obj)
		outcome, _ = o["outcome"].(string)
		// Killed before its first record, a transaction has no name yet.
		id, _ := o["proposalId"].(string)
		if want := m.proposal(args); id != want && !(id == "" && outcome == "rolled-back") {
			t.Errorf("recovered %q under the proposal id %q, want %q", outcome, id, want)
		}
	}
	now := w.things()
	isOld, isNew := now.equal(m.old), now.equal(m.new)
	switch {
	case !isOld && !isNew:
		t.Fatalf("a mix was left: %v\nrecover: %s", now, first)
	case acknowledged && !isNew, outcome == "completed" && !isNew, outcome == "rolled-back" && !isOld:
		t.Fatalf("acknowledged %v, recovered as %q, but old %v new %v", acknowledged, outcome, isOld, isNew)
	case outcome != "" && outcome != "completed" && outcome != "rolled-back":
		t.Fatalf("outcome %q", outcome)
	}
	w.clean()
	w.indexAfterCrash(m, keep, isNew)
	if !m.staged {
		if has := w.hasApplied(m); has != isNew {
			t.Errorf("a receipt says applied: %v; the workspace is new: %v (recovered as %q)", has, isNew, outcome)
		}
	}
	if r := w.run("receipts", "verify", "--json"); r.code != 0 {
		t.Fatalf("receipts verify: %s", r)
	}
	w.refAfterCrash(m, acknowledged)
	// The caller asks again: carried out now, or answered with the first outcome.
	before := w.list()
	again := w.run(args...)
	if m.name == "publish" && isNew && again.code == 3 {
		return // published, and the snapshot is gone
	}
	again.applied()
	if now := w.things(); !now.equal(m.new) {
		t.Errorf("after the retry: %v", now)
	}
	if !m.staged && isNew {
		for _, d := range before.diff(w.list(), nil) {
			t.Errorf("the retry of an applied plan wrote: %s", d)
		}
	}
	w.clean()
	if r := w.run("receipts", "verify", "--json"); r.code != 0 {
		t.Fatalf("receipts verify: %s", r)
	}
	w.refAfterCrash(m, true)
}

// refAfterCrash checks that the reference is there exactly when a receipt says
// so, with the after-state in it, and that git may work on it.
func (w *world) refAfterCrash(m crashMode, must bool) {
	w.t.Helper()
	if m.ref == "" {
		return
	}
	staged := false
	for _, r := range w.receipts() {
		staged = staged || r["outcome"] == "staged"
	}
	there := strings.TrimSpace(w.gitRun("for-each-ref", "--format=%(refname)", m.ref)) != ""
	if there != staged || must && !there {
		w.t.Errorf("the reference is there: %v, a receipt says so: %v, the answer was given: %v", there, staged, must)
	}
	if there && w.gitRun("show", m.ref+":a") != crashNew["a"].data {
		w.t.Error("the reference does not hold the after-state")
	}
	if _, err := os.Lstat(w.path(".git/" + m.ref + ".lock")); err == nil {
		w.t.Error("the lock of the reference is left")
	}
	w.gitRun("fsck", "--strict")
}

// hasApplied tells whether the kept receipts say that the command succeeded.
func (w *world) hasApplied(m crashMode) bool {
	w.t.Helper()
	n := 0
	for _, r := range w.receipts() {
		if r["outcome"] == "applied" {
			n++
		}
	}
	if m.name == "undo" {
		n-- // the change that is taken back
	}
	return n > 0
}

// indexAfterCrash checks git's index, byte for byte where it was not asked for.
func (w *world) indexAfterCrash(m crashMode, keep *kept, isNew bool) {
	w.t.Helper()
	was, err := os.ReadFile(filepath.Join(keep.dir, "ws/repo/.git/index"))
	must(w.t, err)
	is, err := os.ReadFile(w.path(".git/index"))
	must(w.t, err)
	if !m.index || !isNew {
		if string(was) != string(is) {
			w.t.Errorf("git's index changed")
		}
		return
	}
	if got := w.gitRun("--no-optional-locks", "diff", "--name-status"); got != "" {
		w.t.Errorf("index and workspace differ: %s", got)
	}
}

// crashRecovery kills the recovery of runs that were killed in their swap.
func crashRecovery(t *testing.T) {
	w := crashWorld(t, crashOld)
	p := crashPlan(w)
	p.id = crashID
	file := p.file()
	keep := w.keep()
	m := crashModes()[0]
	args := m.args(w, file)
	whole := w.killedAt(0, args...)
	from := 0
	for i, l := range whole.lines {
		if from == 0 && strings.HasPrefix(l, "mkdirat") && strings.Contains(l, "/.git/asp") {
			from = i + 1
		}
	}
	for at := from; at <= len(whole.lines); at += stride(len(whole.lines), 5) {
		for n := 1; ; n += stride(20, 4) {
			keep.restore()
			killed := w.killedAt(at, args...)
			run := w.killedAt(n, "recover", "--json")
			if !run.killed {
				break
			}
			killed.answer = nil // the recovery's answer is lost with it
			if !t.Run(fmt.Sprintf("%03d-%03d", at, n), func(t *testing.T) { w.as(t).afterCrash(m, killed, keep, args) }) {
				t.Fatalf("apply killed before %q, recovery before %q", killed.lines[at-1], run.lines[n-1])
			}
		}
	}
}

// kept is a copy of workspace and state, to begin again from.
type kept struct {
	w   *world
	dir string
}

func (w *world) keep() *kept {
	w.t.Helper()
	k := &kept{w, filepath.Join(w.base, "kept")}
	must(w.t, os.Mkdir(k.dir, 0o755))
	k.copy(w.base, k.dir)
	return k
}

func (k *kept) copy(from, to string) {
	k.w.t.Helper()
	if out, err := exec.Command("cp", "-a", filepath.Join(from, "ws"), filepath.Join(from, "state"), to).CombinedOutput(); err != nil {
		k.w.t.Fatalf("cp: %v: %s", err, out)
	}
}

func (k *kept) restore() {
	k.w.t.Helper()
	must(k.w.t, os.RemoveAll(k.w.ws))
	must(k.w.t, os.RemoveAll(k.w.asp))
	k.copy(k.dir, k.w.base)
}

// ext4 mounts a fresh file system with a journal, for root.
func ext4(t *testing.T) string {
	t.Helper()
	need.Loop(t)
	need.Tool(t, "mkfs.ext4")
	return image(t, "mkfs.ext4", "-q", "-F")
}

// caseless mounts one on which directories can forget the case of names.
func caseless(t *testing.T) string {
	t.Helper()
	if _, err := os.Stat("/sys/fs/ext4/features/casefold"); err != nil {
		// Nothing that could be installed helps; preconditions tests the same on a
		// file system of its own.
		t.Skip("the ext4 of this kernel cannot ignore case")
	}
	need.Loop(t)
	need.Tool(t, "mkfs.ext4")
	need.Tool(t, "chattr")
	return image(t, "mkfs.ext4", "-q", "-F", "-O", "casefold")
}

// image makes a file system in a file and mounts it.
func image(t *testing.T, mkfs ...string) string {
	t.Helper()
	dir := t.TempDir()
	img, mnt := filepath.Join(dir, "img"), filepath.Join(dir, "mnt")
	must(t, os.Mkdir(mnt, 0o755))
	for _, c := range [][]string{{"truncate", "-s", "64M", img}, append(mkfs, img), {"mount", "-o", "loop", img, mnt}} {
		if out, err := exec.Command(c[0], c[1:]...).CombinedOutput(); err != nil {
			need.Missing(t, "no such file system here: %s: %v: %s", c[0], err, out)
		}
	}
	for d := mnt; d != "/" && d != os.TempDir(); d = filepath.Dir(d) {
		must(t, os.Chmod(d, 0o755))
	}
	t.Cleanup(func() {
		if out, err := exec.Command("umount", mnt).CombinedOutput(); err != nil {
			t.Errorf("umount: %v: %s", err, out)
		}
	})
	return mnt
}
