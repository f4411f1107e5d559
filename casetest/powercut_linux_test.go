package casetest

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/aspengine/asp/internal/need"
)

// TestPowerCut cuts the power at random moments while three programs change
// three directories of one file system as fast as they can, from one numbered
// tree to the next: the binary, a program that writes in place, and one that
// writes beside and renames, both without any sync. What the binary leaves is,
// after recovery, exactly one of the numbered trees, not older than the last
// that it acknowledged, and its receipts say which. The other two are there to
// show that the cuts cut. The binary does so by the journal and by the exchange in turns,
// and in the long form also by staging each tree and publishing it. There a second one
// puts commits on a reference of another repository meanwhile.
//
// ext4 and xfs are shut down without a flush of their log. btrfs has no such
// call: the image that it lies in is cloned at a random moment, which is what a
// disk holds when the power goes. ext4 is cut in that way too.
//
// In the short form a few cuts each; POWERCUTS is another number, and POWERCUT_ON
// names one of the file systems.
func TestPowerCut(t *testing.T) {
	if os.Getenv("REQUIRE_POWERCUT") == "1" {
		t.Setenv(need.Require, "1")
	}
	need.Loop(t)
	if os.Getenv(machineWord) == "" {
		anotherMachine(t)
		return
	}
	cuts := 3
	if n, err := strconv.Atoi(os.Getenv("POWERCUTS")); err == nil {
		cuts = n
	}
	for _, c := range []struct {
		name string
		disk func(t *testing.T) disk
	}{
		{"ext4", func(t *testing.T) disk { return newShutDisk(t, "64M", "mkfs.ext4", "-q", "-F") }},
		{"xfs", func(t *testing.T) disk { return newShutDisk(t, "320M", "mkfs.xfs", "-q") }},
		{"btrfs-cloned", func(t *testing.T) disk { return newClonedDisk(t, "160M", "mkfs.btrfs", "-q") }},
		{"ext4-cloned", func(t *testing.T) disk { return newClonedDisk(t, "64M", "mkfs.ext4", "-q", "-F") }},
	} {
		if only := os.Getenv("POWERCUT_ON"); only != "" && only != c.name {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			var sum cutTally
			for done := 0; done < cuts && !t.Failed(); done += cutsOfADisk {
				t.Run(fmt.Sprint("from ", done), func(t *testing.T) { sum.add(powerCuts(t, c.disk(t), min(cutsOfADisk, cuts-done))) })
			}
			t.Logf("%s: %s", c.name, sum)
		})
	}
}

// cutsOfADisk is how many cuts one disk gets before there is a fresh one: the images
// are small, and looking at all receipts after each cut takes longer with each.
const cutsOfADisk = 100

// cutTally is what came of cuts.
type cutTally struct {
	cuts, acknowledged, completed, takenBack int
	commits                                  int    // acknowledged on a reference
	torn, lost                               [2]int // by the two other programs
}

func (c *cutTally) add(d cutTally) {
	c.cuts += d.cuts
	c.acknowledged += d.acknowledged
	c.commits += d.commits
	c.completed += d.completed
	c.takenBack += d.takenBack
	for i := range d.torn {
		c.torn[i] += d.torn[i]
		c.lost[i] += d.lost[i]
	}
}

func (c cutTally) String() string {
	return fmt.Sprintf("%d cuts, %d plans and %d commits acknowledged, none lost, no tree torn; recovery completed %d and took back %d; in place: %d torn, %d lost; by rename: %d torn, %d lost",
		c.cuts, c.acknowledged, c.commits, c.completed, c.takenBack, c.torn[0], c.lost[0], c.torn[1], c.lost[1])
}

const machineWord = "CASETEST_MACHINE"

// anotherMachine runs the calling test again in a mount namespace of its own:
// no other program's namespace keeps a dead mount alive, and every start after a
// cut can have another boot id, as after a real one.
func anotherMachine(t *testing.T) {
	boot := filepath.Join(t.TempDir(), "boot_id")
	must(t, os.WriteFile(boot, []byte("boot 0\n"), 0o644))
	const script = `mount --make-rprivate / && mount --bind "$0" /proc/sys/kernel/random/boot_id && exec "$@"`
	cmd := exec.Command("sh", "-c", script, boot, os.Args[0], "-test.run", "^"+t.Name()+"$", "-test.v", "-test.timeout", "6h")
	cmd.Env = append(os.Environ(), machineWord+"="+boot, "ASP_BINARY="+binary)
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for line := range strings.Lines(string(out)) {
		if !strings.Contains(line, "===") && !strings.Contains(line, "--- PASS") {
			t.Log(strings.TrimSpace(line))
		}
	}
	if !strings.Contains(string(out), "--- PASS: "+t.Name()) {
		t.Fatalf("the test was not run:\n%s", out)
	}
}

// bootAgain gives the machine another boot id.
func bootAgain(t *testing.T) {
	t.Helper()
	must(t, os.WriteFile(os.Getenv(machineWord), fmt.Appendf(nil, "boot %d\n", time.Now().UnixNano()), 0o644))
}

// powerCuts runs load and cut alternately over one disk.
func powerCuts(t *testing.T, d disk, cuts int) (sum cutTally) {
	seed := uint64(time.Now().UnixNano())
	if n, err := strconv.ParseUint(os.Getenv("POWERCUT_SEED"), 10, 64); err == nil {
		seed = n
	}
	rnd := rand.New(rand.NewPCG(seed, 1))
	w := newWorld(t, numbered(0), on(d.dir()))
	baseline := w.baselineNow() // every plan touches only what it names, so one is enough
	naive := []*naive{{name: "in place", dir: filepath.Join(w.base, "place"), write: inPlace}, {name: "by rename", dir: filepath.Join(w.base, "rename"), write: byRename}}
	for _, n := range naive {
		must(t, writeTree(n.dir, numbered(0)))
	}
	long := os.Getenv("POWERCUTS") != ""
	var refs *world
	var refBaseline obj
	if long {
		refs = newWorld(t, refTree(0), on(d.dir()))
		newRefWorld(refs)
		refBaseline = refs.baselineNow()
	}
	unix.Sync()
	at, refAt, took := 0, 0, time.Duration(0)
	for cut := range cuts {
		for _, n := range naive {
			n.begin()
		}
		modes := []string{"journal", "exchange"}
		if long {
			modes = append(modes, "staged")
		}
		from := at
		changes := w.beginLoad(at, modes[cut%len(modes)], func(n int) *plan { return w.step(baseline, n-1) })
		var commits *load
		if long {
			commits = refs.beginLoad(refAt, "ref", func(n int) *plan { return refs.refStep(refBaseline, n) })
		}
		// The moment is any of the next plans, however slow the machine is.
		time.Sleep(time.Duration(rnd.Int64N(int64(min(max(2*took, 400*time.Millisecond), 10*time.Second)))))
		acknowledged, refAcknowledged := int(changes.acknowledged.Load()), refAt
		if long {
			refAcknowledged = int(commits.acknowledged.Load())
		}
		for _, n := range naive {
			n.promised = n.acknowledged.Load()
		}
		d.cut(t, func() {
			changes.end()
			if long {
				commits.end()
			}
			for _, n := range naive {
				n.end()
			}
		})
		attempted := int(changes.attempted.Load())
		took = max(took/2, time.Duration(changes.took.Load()))
		if long {
			took = max(took, time.Duration(commits.took.Load()))
		}
		if acknowledged == from || long && refAcknowledged == refAt {
			took += took + 100*time.Millisecond // none came to its end
		}
		for _, n := range naive {
			n.judge(t)
		}
		if !t.Run(fmt.Sprintf("%04d", cut), func(t *testing.T) {
			var outcome string
			at, outcome = w.as(t).afterPowerCut(acknowledged, attempted)
			sum.completed += btoi(outcome == "completed")
			sum.takenBack += btoi(outcome == "rolled-back")
		}) {
			t.Fatalf("cut %d of seed %d: acknowledged %d, attempted %d, answers %v", cut, seed, acknowledged, attempted, changes.answers)
		}
		if long && !t.Run(fmt.Sprintf("%04d ref", cut), func(t *testing.T) {
			from := refAt
			refAt = refs.as(t).refAfterPowerCut(refAcknowledged, int(commits.attempted.Load()))
			sum.commits += refAcknowledged - from
		}) {
			t.Fatalf("cut %d of seed %d: commits acknowledged %d, attempted %d, answers %v", cut, seed, refAcknowledged, commits.attempted.Load(), commits.answers)
		}
		sum.cuts, sum.acknowledged = sum.cuts+1, sum.acknowledged+acknowledged-from
	}
	for i, n := range naive {
		sum.torn[i], sum.lost[i] = n.torn, n.lost
		if n.torn+n.lost == 0 && cuts >= 3 {
			t.Errorf("a program that writes %s without any sync lost nothing in %d cuts: they cut nothing", n.name, cuts)
		}
	}
	if cuts >= 20 && long && sum.commits == 0 {
		t.Errorf("no commit was acknowledged in %d cuts", cuts)
	}
	t.Logf("seed %d: %s", seed, sum)
	return sum
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// numbered is tree n: files that all trees have with a content for each, one
// that only this has, one that is moved from tree to tree, in directories that
// come and go.
func numbered(n int) map[string]string {
	out := map[string]string{fmt.Sprintf("made/%d/new", n): fmt.Sprintf("made for %d\n", n), fmt.Sprintf("moved/%d", n%2): "moved\n"}
	for i, size := range []int{1, 40, 300, 3000} {
		out[fmt.Sprintf("d%d/file", i%2)+strconv.Itoa(i)] = strings.Repeat(fmt.Sprintf("tree %d\n", n), size)
	}
	return out
}

// step is the plan from tree n to the next.
func (w *world) step(baseline obj, n int) *plan {
	was, next := numbered(n), numbered(n+1)
	p := &plan{w: w, id: fmt.Sprintf("tree-%d", n+1), provider: "case", baseline: baseline}
	for _, f := range slices.Sorted(maps.Keys(was)) {
		switch _, stays := next[f]; {
		case stays:
			p.modify(f, was[f], next[f])
		case strings.HasPrefix(f, "moved/"):
			p.rename(f, fmt.Sprintf("moved/%d", (n+1)%2), was[f])
		default:
			p.remove(f, was[f])
		}
	}
	return p.create(fmt.Sprintf("made/%d/new", n+1), next[fmt.Sprintf("made/%d/new", n+1)])
}

// load is a row of plans that are applied one after the other.
type load struct {
	acknowledged, attempted atomic.Int64 // numbers of trees
	took                    atomic.Int64 // nanoseconds for the slowest
	stop, done              chan struct{}
	answers                 []string // of what was not applied
}

// beginLoad applies, from tree to tree, what makes the next.
func (w *world) beginLoad(from int, mode string, next func(tree int) *plan) *load {
	l := &load{stop: make(chan struct{}), done: make(chan struct{})}
	l.acknowledged.Store(int64(from))
	l.attempted.Store(int64(from))
	plans := filepath.Join(os.TempDir(), filepath.Base(w.base))
	must(w.t, os.MkdirAll(plans, 0o755))
	w.t.Cleanup(func() { os.RemoveAll(plans) })
	go func() {
		defer close(l.done)
		for n := from; ; n++ {
			select {
			case <-l.stop:
				return
			default:
			}
			file := filepath.Join(plans, "plan.json")
			if err := os.WriteFile(file, next(n+1).bundle(), 0o644); err != nil {
				l.answers = append(l.answers, err.Error())
				return
			}
			l.attempted.Store(int64(n + 1))
			began := time.Now()
			steps := [][]string{{"apply", "--plan", file, "--publish", mode}}
			switch mode {
			case "ref":
				steps = [][]string{{"apply", "--plan", file, "--stage", "--ref", refTip}}
			case "staged":
				steps = [][]string{{"apply", "--plan", file, "--stage"}, {"publish", fmt.Sprintf("tree-%d", n+1)}}
			}
			for _, args := range steps {
				cmd := w.command("/", binary, append(args, "--repo", w.root, "--json")...)
				out, err := cmd.Output()
				var answer struct{ Applied bool }
				if jerr := json.Unmarshal(out, &answer); err != nil || jerr != nil || !answer.Applied {
					l.answers = append(l.answers, fmt.Sprintf("%v %.300s", err, out))
					return
				}
			}
			l.acknowledged.Store(int64(n + 1))
			l.took.Store(max(l.took.Load(), int64(time.Since(began))))
		}
	}()
	return l
}

// end waits until the load has seen that it is over.
func (l *load) end() { close(l.stop); <-l.done }

// afterPowerCut recovers, and returns the number of the tree that is there.
func (w *world) afterPowerCut(acknowledged, attempted int) (n int, outcome string) {
	t := w.t
	first := w.run("recover", "--json")
	second := w.run("recover", "--json")
	if first.code != 0 || second.code != 0 {
		t.Fatalf("recover: %s\n%s", first, second)
	}
	if rec, _ := second.at("recovered").([]any); rec == nil || len(rec) != 0 {
		t.Errorf("the second recovery had something to do: %s", second)
	}
	rec, _ := first.at("recovered").([]any)
	for _, r := range rec {
		o, _ := r.(obj)
		outcome, _ = o["outcome"].(string)
	}
	now, err := readTree(w.root)
	must(t, err)
	n = -1
	for i := acknowledged; i <= attempted; i++ {
		if maps.Equal(now, numbered(i)) {
			n = i
		}
	}
	if n < 0 {
		t.Fatalf("acknowledged %d, attempted %d, recovered as %q, and the workspace is none of those trees: %.2000q", acknowledged, attempted, outcome, now)
	}
	w.clean()
	if r := w.run("receipts", "verify", "--json"); r.code != 0 {
		t.Fatalf("receipts verify: %s", r)
	}
	if newest := w.newestTree("applied"); newest != n {
		t.Errorf("the newest receipt says tree %d, the workspace is tree %d (recovered as %q)", newest, n, outcome)
	}
	return n, outcome
}

// newestTree is the highest number of a tree of which a receipt says this outcome.
func (w *world) newestTree(outcome string) (newest int) {
	for _, r := range w.receipts() {
		var k int
		if id, _ := r["proposalId"].(string); r["outcome"] == outcome {
			if _, err := fmt.Sscanf(id, "tree-%d", &k); err == nil {
				newest = max(newest, k)
			}
		}
	}
	return newest
}

// readTree reads all files below a directory, without git's and ours.
func readTree(dir string) (map[string]string, error) {
	out := map[string]string{}
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			if err == nil && d.Name() == ".git" {
				return fs.SkipDir
			}
			return err
		}
		b, err := os.ReadFile(p)
		rel, _ := filepath.Rel(dir, p)
		out[rel] = string(b)
		return err
	})
	return out, err
}

func writeTree(dir string, tree map[string]string) error {
	var errs []error
	for p, data := range tree {
		f := filepath.Join(dir, p)
		errs = append(errs, os.MkdirAll(filepath.Dir(f), 0o755), os.WriteFile(f, []byte(data), 0o644))
	}
	return errors.Join(errs...)
}

// naive is a program that changes a tree as most do.
type naive struct {
	name         string
	dir          string
	write        func(file, data string) error
	at           int64
	acknowledged atomic.Int64
	promised     int64
	stop, done   chan struct{}
	torn, lost   int
}

func inPlace(file, data string) error { return os.WriteFile(file, []byte(data), 0o644) }

func byRename(file, data string) error {
	return errors.Join(os.WriteFile(file+".tmp", []byte(data), 0o644), os.Rename(file+".tmp", file))
}

func (n *naive) begin() {
	n.stop, n.done = make(chan struct{}), make(chan struct{})
	n.acknowledged.Store(n.at)
	go func() {
		defer close(n.done)
		for i := int(n.at); n.change(i) == nil; i++ {
			n.acknowledged.Store(int64(i + 1))
			select {
			case <-n.stop:
				return
			case <-time.After(time.Millisecond): // leaves the disk to the others as well
			}
		}
	}()
}

// change goes from tree i to the next.
func (n *naive) change(i int) error {
	was, next := numbered(i), numbered(i+1)
	for f, data := range next {
		if strings.HasPrefix(f, "moved/") {
			if err := os.Rename(filepath.Join(n.dir, fmt.Sprintf("moved/%d", i%2)), filepath.Join(n.dir, f)); err != nil {
				return err
			}
			continue
		}
		if err := os.MkdirAll(filepath.Dir(filepath.Join(n.dir, f)), 0o755); err != nil {
			return err
		}
		if err := n.write(filepath.Join(n.dir, f), data); err != nil {
			return err
		}
	}
	for f := range was {
		if _, stays := next[f]; !stays && !strings.HasPrefix(f, "moved/") {
			if err := os.RemoveAll(filepath.Dir(filepath.Join(n.dir, f))); err != nil {
				return err
			}
		}
	}
	return nil
}

func (n *naive) end() { close(n.stop); <-n.done }

// judge counts what the cut left, and begins again from a whole tree.
func (n *naive) judge(t *testing.T) {
	now, err := readTree(n.dir)
	must(t, err)
	whole := int64(-1)
	for i := n.at; i <= n.acknowledged.Load()+1; i++ {
		if maps.Equal(now, numbered(int(i))) {
			whole = i
		}
	}
	switch {
	case whole < 0:
		n.torn++
	case whole < n.promised:
		n.lost++
	}
	n.at = n.acknowledged.Load() + 1
	must(t, os.RemoveAll(n.dir))
	must(t, writeTree(n.dir, numbered(int(n.at))))
	d, err := os.Open(n.dir)
	must(t, err)
	defer d.Close()
	must(t, unix.Syncfs(int(d.Fd())))
}

// disk is a file system whose power can go.
type disk interface {
	dir() string
	// cut loses what the disk does not have, calls stopped when nothing that is
	// written from then on can count, and brings back what it has.
	cut(t *testing.T, stopped func())
}

// imageFile is a file system in a file, mounted by a loop device.
type imageFile struct{ img, mnt, opts string }

func newImageFile(t *testing.T, dir, size string, mkfs ...string) *imageFile {
	t.Helper()
	need.Loop(t)
	need.Tool(t, mkfs[0])
	f := &imageFile{filepath.Join(dir, "img"), filepath.Join(dir, "mnt"), "loop"}
	if mkfs[0] == "mkfs.xfs" {
		f.opts += ",nouuid" // a copy can be mounted while some namespace still holds its original
	}
	must(t, os.MkdirAll(f.mnt, 0o755))
	for _, c := range [][]string{{"truncate", "-s", size, f.img}, append(slices.Clone(mkfs), f.img)} {
		if out, err := exec.Command(c[0], c[1:]...).CombinedOutput(); err != nil {
			need.Missing(t, "no such file system here: %s: %v: %s", c[0], err, out)
		}
	}
	f.mount(t)
	for d := f.mnt; d != "/" && d != os.TempDir(); d = filepath.Dir(d) {
		must(t, os.Chmod(d, 0o755))
	}
	t.Cleanup(func() { f.unmount(t) })
	return f
}

func (f *imageFile) mount(t *testing.T) {
	t.Helper()
	bootAgain(t)
	if out, err := exec.Command("mount", "-o", f.opts, f.img, f.mnt).CombinedOutput(); err != nil {
		need.Missing(t, "cannot mount: %v %s", err, out)
	}
}

func (f *imageFile) unmount(t *testing.T) {
	t.Helper()
	if out, err := exec.Command("umount", f.mnt).CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

// shutDisk is cut by the file system's own shutdown call.
type shutDisk struct{ *imageFile }

func newShutDisk(t *testing.T, size string, mkfs ...string) disk {
	return shutDisk{newImageFile(t, t.TempDir(), size, mkfs...)}
}

func (d shutDisk) dir() string { return d.mnt }

func (d shutDisk) cut(t *testing.T, stopped func()) {
	t.Helper()
	root, err := os.Open(d.mnt)
	must(t, err)
	const shutdown, noLogFlush = 0x8004587D, 2
	err = unix.IoctlSetPointerInt(int(root.Fd()), shutdown, noLogFlush)
	root.Close()
	if err != nil {
		t.Fatalf("shut the file system down: %v", err)
	}
	stopped()
	d.unmount(t)
	// Whoever made a mount namespace meanwhile may still hold the dead mount, and would
	// be given it again by a mount of the same image: a copy is what the disk held.
	next := d.img + "'"
	if out, err := exec.Command("cp", "--sparse=always", d.img, next).CombinedOutput(); err != nil {
		t.Fatalf("copy the disk: %v %s", err, out)
	}
	must(t, os.Rename(next, d.img))
	d.mount(t)
}

// clonedDisk lies on a file system that shares blocks; the power goes by a
// clone of its image, which the file system makes of one moment.
type clonedDisk struct{ outer, inner *imageFile }

func newClonedDisk(t *testing.T, size string, mkfs ...string) disk {
	outer := newImageFile(t, t.TempDir(), "640M", "mkfs.xfs", "-q", "-m", "reflink=1")
	return &clonedDisk{outer, newImageFile(t, filepath.Join(outer.mnt, "disk"), size, mkfs...)}
}

func (d *clonedDisk) dir() string { return d.inner.mnt }

func (d *clonedDisk) cut(t *testing.T, stopped func()) {
	t.Helper()
	src, err := os.Open(d.inner.img)
	must(t, err)
	defer src.Close()
	clone := d.inner.img + "'"
	dst, err := os.OpenFile(clone, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	must(t, err)
	err = unix.IoctlFileClone(int(dst.Fd()), int(src.Fd()))
	must(t, dst.Close())
	if errors.Is(err, syscall.EOPNOTSUPP) {
		need.Missing(t, "the file system does not share blocks: %v", err)
	}
	must(t, err)
	stopped()
	d.inner.unmount(t)
	must(t, os.Rename(clone, d.inner.img))
	d.inner.mount(t)
}
