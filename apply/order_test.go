package apply_test

import (
	"context"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/aspengine/asp/apply"
	"github.com/aspengine/asp/internal/home"
	"github.com/aspengine/asp/internal/vfs"
	"github.com/aspengine/asp/internal/vfs/faultfs"
	"github.com/aspengine/asp/seam/wire"
)

// platter follows a trace and says what of it a power cut could still take, by
// the letter of the system calls alone: bytes are safe after a sync of their
// file, a name after a sync of the directory that it is in, and both after a
// sync of the whole file system. The state directory and the workspace count as
// two file systems.
type platter struct {
	nodes map[string]*node // by name
	opens map[string]*node // by the name under which it was opened last
	loose map[string]bool  // names that no sync has covered
}

type node struct{ dirty bool }

// plainName takes the punctuation of a label away: "ws:a/b" is ws/a/b.
func plainName(name string) string { return path.Clean(strings.Replace(name, ":", "/", 1)) }

func (p *platter) step(e faultfs.Event) {
	if e.Err != nil {
		return
	}
	at, to := plainName(e.Path), plainName(e.To)
	switch e.Op {
	case faultfs.Create:
		n := &node{dirty: true}
		p.nodes[at], p.opens[at], p.loose[at] = n, n, true
	case faultfs.Open:
		if n := p.nodes[at]; n != nil {
			p.opens[at] = n
		}
	case faultfs.Mkdir, faultfs.Symlink:
		p.loose[at] = true
	case faultfs.Write, faultfs.Truncate:
		if n := p.opens[at]; n != nil {
			n.dirty = true
		}
	case faultfs.Link:
		p.nodes[to], p.loose[to] = p.nodes[at], true
	case faultfs.NoReplace, faultfs.Replace:
		p.nodes[to], p.loose[to] = p.nodes[at], true
		p.moveBelow(at, to)
		p.forget(at)
	case faultfs.Exchange:
		p.nodes[at], p.nodes[to] = p.nodes[to], p.nodes[at]
		p.loose[at], p.loose[to] = true, true
	case faultfs.Unlink, faultfs.Rmdir:
		p.forget(at)
	case faultfs.Sync:
		if n := p.opens[at]; n != nil {
			n.dirty = false
		}
	case faultfs.SyncDir:
		for name := range p.loose {
			if path.Dir(name) == at {
				delete(p.loose, name)
			}
		}
	case faultfs.SyncFS:
		for name := range p.loose {
			if device(name) == device(at) {
				delete(p.loose, name)
			}
		}
		for name, n := range p.nodes {
			if n != nil && device(name) == device(at) {
				n.dirty = false
			}
		}
	}
}

func (p *platter) forget(name string) {
	delete(p.nodes, name)
	delete(p.loose, name)
}

// moveBelow renames what is known of a directory's content.
func (p *platter) moveBelow(from, to string) {
	for name, n := range p.nodes {
		if rest, ok := strings.CutPrefix(name, from+"/"); ok {
			p.nodes[to+"/"+rest] = n
			delete(p.nodes, name)
		}
	}
	for name := range p.loose {
		if rest, ok := strings.CutPrefix(name, from+"/"); ok {
			p.loose[to+"/"+rest] = true
			delete(p.loose, name)
		}
	}
}

func device(name string) string {
	if strings.HasPrefix(name, "home") {
		return "home"
	}
	return "ws"
}

// lost says why a power cut now could take the bytes under name; "" is safe.
func (p *platter) lost(name string) string {
	if why := p.lostItself(name); why != "" {
		return why
	}
	for d := name; d != "." && d != "/"; d = path.Dir(d) {
		if p.loose[d] {
			return "the name " + d + " is not synced"
		}
	}
	return ""
}

func (p *platter) lostItself(name string) string {
	if why := p.lostBytes(name); why != "" {
		return why
	}
	if p.loose[name] {
		return "its name is not synced"
	}
	return ""
}

func (p *platter) lostBytes(name string) string {
	if n := p.nodes[name]; n != nil && n.dirty {
		return "its bytes are not synced"
	}
	return ""
}

// made are the names of files that were made and match.
func (p *platter) made(match *regexp.Regexp) (out []string) {
	for name, n := range p.nodes {
		if n != nil && match.MatchString(name) {
			out = append(out, name)
		}
	}
	return out
}

// watched is one run whose operations were recorded.
type watched struct {
	t      *testing.T
	b      *bed
	events []faultfs.Event
	begin  int // events before the request
	answer *apply.Answer
}

// watch runs act on an engine over a recorder. The state directory is new, so
// that nothing in it is durable from before, not even the names of its
// directories. dirty is how much unwritten data the host is said to have, which
// decides between the two ways to sync.
func watch(t *testing.T, b *bed, dirty int64, act func(e *apply.Engine) (*apply.Answer, error)) *watched {
	t.Helper()
	ff := recorder(t, b)
	h, err := home.Open(ff, filepath.Join(filepath.Dir(b.root), "home1"))
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	e, err := apply.Open(context.Background(), apply.Options{Dir: b.root, Home: h, FS: ff, Version: "test"})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	e.SetDirty(dirty)
	w := &watched{t: t, b: b, begin: len(ff.Events())}
	if w.answer, err = act(e); err != nil || !w.answer.Result.Applied {
		t.Fatalf("%v %v", err, w.answer.Refusals)
	}
	return w.end(ff)
}

// recorder is a file system that names what it sees by where it lies beside the
// workspace, in which a state directory home1 is new.
func recorder(t *testing.T, b *bed) *faultfs.FS {
	t.Helper()
	top := filepath.Dir(b.root)
	ff := faultfs.New(vfs.OS{}, nil)
	ff.Label = func(root string) string {
		rel, err := filepath.Rel(top, root)
		if err != nil {
			t.Fatal(err)
		}
		return rel
	}
	if err := os.MkdirAll(filepath.Join(top, "home1"), 0o700); err != nil {
		t.Fatal(err)
	}
	return ff
}

// end takes what was recorded, and shows it where the test fails.
func (w *watched) end(ff *faultfs.FS) *watched {
	w.events = ff.Events()
	w.t.Cleanup(func() {
		if w.t.Failed() {
			w.t.Log("\n" + strings.Join(w.lines(), "\n"))
		}
	})
	return w
}

func (w *watched) lines() (out []string) {
	for _, e := range w.events {
		if e.Op.Mutating() {
			out = append(out, e.String())
		}
	}
	return out
}

// first is the number of the first operation at or after from that matches.
func (w *watched) first(from int, op faultfs.Op, name string) int {
	w.t.Helper()
	match := regexp.MustCompile(name)
	for i := from; i < len(w.events); i++ {
		e := w.events[i]
		if e.Op == op && e.Err == nil && (match.MatchString(plainName(e.Path)) || e.To != "" && match.MatchString(plainName(e.To))) {
			return i
		}
	}
	w.t.Fatalf("no %v of %s", op, name)
	return 0
}

// safe checks that everything made that matches, and at least one file, is
// durable before the operation with the number.
func (w *watched) safe(before int, when string, names ...string) {
	w.t.Helper()
	w.kept(before, when, (*platter).lost, names...)
}

// synced is safe without the directories above: a later barrier covers them.
func (w *watched) synced(before int, when string, names ...string) {
	w.t.Helper()
	w.kept(before, when, (*platter).lostItself, names...)
}

func (w *watched) kept(before int, when string, lost func(*platter, string) string, names ...string) {
	w.t.Helper()
	p := &platter{nodes: map[string]*node{}, opens: map[string]*node{}, loose: map[string]bool{}}
	for _, e := range w.events[:before] {
		p.step(e)
	}
	for _, name := range names {
		got := p.made(regexp.MustCompile(name))
		if len(got) == 0 {
			w.t.Errorf("%s: nothing like %s is there", when, name)
		}
		for _, n := range got {
			if why := lost(p, n); why != "" {
				w.t.Errorf("%s: %s can be lost: %s", when, n, why)
			}
		}
	}
}

// What the names in the state directory look like.
const (
	stateDir    = `^home1/workspaces/[0-9a-f]{64}/`
	packName    = stateDir + `packs/tx-[0-9a-f]+\.pack$`
	stagedFile  = stateDir + `staged/[0-9a-f]+\.json$`
	receiptFile = stateDir + `receipts/[^/.]+\.json$`
	resultFile  = stateDir + `results/[0-9a-f]+\.json$`
	headFile    = stateDir + `receipts\.head\.[ab]$`
	intentFile  = stateDir + `pending-ref\.json$`
	unnamedFile = `^ws/\.git/objects/tmp_obj_asp_[0-9a-f_]+$`
	objectFile  = `^ws/\.git/objects/[0-9a-f]{2}/[0-9a-f]{38}$`
	journalFile = `^ws/\.git/asp/tx-[0-9a-f]+/journal$`
)

// both runs f for both ways to sync.
func both(t *testing.T, f func(t *testing.T, dirty int64)) {
	for _, dirty := range []int64{0, 1 << 40} {
		t.Run(map[bool]string{true: "syncfs", false: "fsync"}[dirty == 0], func(t *testing.T) { f(t, dirty) })
	}
}

func request(e *apply.Engine, r apply.Request) (*apply.Answer, error) {
	r.CallSite, r.Intent = wire.Interactive, wire.IntentUser
	return e.Apply(context.Background(), r)
}

// TestOrderGroup: a group keeps to the order of one transaction, and all of its receipts are
// durable before its directory goes and anybody is answered.
func TestOrderGroup(t *testing.T) {
	both(t, func(t *testing.T, dirty int64) {
		b := gitBed(t, map[string]string{"a.txt": "a\n", "b.txt": "b\n", "c.txt": "c\n"})
		ff := recorder(t, b)
		c := (&crowd{bed: b, fs: ff, state: "home1", dirty: dirty}).reside()
		w := &watched{t: t, b: b, begin: len(ff.Events())}
		got := c.all(ff, "publishing", asks("p0", replace("a.txt", "a\n", "A\n")), asks("p1", replace("b.txt", "b\n", "B\n")), asks("p2", replace("c.txt", "c\n", "C\n")))
		for i, s := range got {
			if !s.applied() || c.transaction(s) != c.transaction(got[0]) {
				t.Fatalf("%d: %v", i, s.err)
			}
		}
		w.end(ff).journalled(`^ws/[abc]\.txt$`)
	})
}

// TestOrderStage: the pack is durable before a staged file or a receipt speaks
// of it, and all of it before the answer.
func TestOrderStage(t *testing.T) {
	b := gitBed(t, twoFiles)
	w := watch(t, b, 0, func(e *apply.Engine) (*apply.Answer, error) {
		return request(e, apply.Request{Publish: apply.Stage, Load: plan("p1", bothFiles)})
	})
	w.synced(w.first(w.begin, faultfs.Create, stateDir+`staged/`), "before the staged file", packName)
	w.safe(len(w.events), "at the answer", packName, stagedFile, receiptFile, resultFile, headFile)
}

// TestOrderRef: objects are durable before the intent names them, the intent
// before git's lock is taken, the receipt before the reference moves, and the
// reference before the intent goes.
func TestOrderRef(t *testing.T) {
	b := gitBed(t, twoFiles)
	w := watch(t, b, 0, func(e *apply.Engine) (*apply.Answer, error) {
		return request(e, apply.Request{Publish: apply.Stage, Ref: "deep/side", Message: "m", Load: plan("p1", bothFiles)})
	})
	object := w.first(w.begin, faultfs.NoReplace, objectFile)
	w.synced(object, "before the objects", packName)
	w.kept(object, "before the first object has its name", (*platter).lostBytes, unnamedFile)
	intent := w.first(object, faultfs.Replace, intentFile) // the one that names the commit
	w.safe(intent, "before the intent", objectFile)
	lock := w.first(intent, faultfs.Link, `/refs/heads/deep/side\.lock$`)
	w.safe(lock, "before the lock", objectFile, intentFile)
	moved := w.first(lock, faultfs.Replace, `/refs/heads/deep/side$`)
	w.safe(moved, "before the reference moves", packName, stagedFile, receiptFile, resultFile, headFile, `/refs/heads/deep/side\.lock$`)
	gone := w.first(moved, faultfs.Unlink, intentFile)
	w.safe(gone, "before the intent goes", `/refs/heads/deep/side$`)
}

// journalled checks what every transaction with a journal has to keep to: the
// journal before the first swap, names and new bytes before the commit record,
// that record before the receipt, and pre-images and receipt before anything of
// the transaction directory goes.
func (w *watched) journalled(files ...string) {
	w.t.Helper()
	swap := w.first(w.begin, faultfs.Exchange, `^ws/[ab]\.txt$`)
	w.safe(swap, "before the first swap", journalFile, `^ws/\.git/asp/tx-[0-9a-f]+/[0-9a-f]{16}-[0-9a-f]+$`)
	receipts := w.first(swap, faultfs.Link, receiptFile)
	record := -1 // the commit record is the last write of the journal
	for i, e := range w.events {
		if e.Op == faultfs.Write && regexp.MustCompile(journalFile).MatchString(plainName(e.Path)) {
			record = i
		}
	}
	if record < swap || record > receipts {
		w.t.Fatalf("the commit record is number %d, the first swap %d, the receipt %d", record, swap, receipts)
	}
	w.safe(record, "before the commit record", files...)
	w.safe(receipts, "before the receipt", append(files, journalFile)...)
	gone := w.first(record, faultfs.Unlink, `^ws/\.git/asp/tx-`)
	w.safe(gone, "before the transaction goes", packName, receiptFile, resultFile, headFile)
}

// TestOrderJournal: in the mode that changes the workspace path by path, plain,
// as an undo and as the publishing of what was staged.
func TestOrderJournal(t *testing.T) {
	both(t, func(t *testing.T, dirty int64) {
		b := gitBed(t, twoFiles)
		files := []string{`^ws/a\.txt$`, `^ws/b\.txt$`}
		w := watch(t, b, dirty, func(e *apply.Engine) (*apply.Answer, error) {
			return request(e, apply.Request{Load: plan("p1", bothFiles)})
		})
		w.journalled(files...)
		id := w.answer.Receipt
		watch(t, b, dirty, func(e *apply.Engine) (*apply.Answer, error) {
			return e.Undo(context.Background(), id, apply.Request{CallSite: wire.Interactive, Intent: wire.IntentUser})
		}).journalled(files...)
		watch(t, b, dirty, func(e *apply.Engine) (*apply.Answer, error) {
			return request(e, apply.Request{Publish: apply.Stage, Load: plan("p2", bothFiles)})
		})
		watch(t, b, dirty, func(e *apply.Engine) (*apply.Answer, error) {
			return e.PublishStaged(context.Background(), "p2", apply.Request{CallSite: wire.Interactive, Intent: wire.IntentUser})
		}).journalled(files...)
	})
}

// TestOrderIndex: the blobs are durable before an index names them, and the
// index is one of the files that the commit record speaks of.
func TestOrderIndex(t *testing.T) {
	both(t, func(t *testing.T, dirty int64) {
		b := gitBed(t, twoFiles)
		w := watch(t, b, dirty, func(e *apply.Engine) (*apply.Answer, error) {
			return request(e, apply.Request{Index: true, Load: plan("p1", bothFiles)})
		})
		w.kept(w.first(w.begin, faultfs.NoReplace, objectFile), "before the first object has its name", (*platter).lostBytes, unnamedFile)
		w.safe(w.first(w.begin, faultfs.Exchange, `^ws/\.git/index$`), "before the index is swapped", objectFile, journalFile)
		w.journalled(`^ws/a\.txt$`, `^ws/b\.txt$`, `^ws/\.git/index$`)
	})
}

// TestOrderExchange: after the tree was exchanged, pre-images and receipt are
// durable before anything of the old one goes.
func TestOrderExchange(t *testing.T) {
	if !vfs.CanSyncFS {
		t.Skip("this form has no exchange of directories")
	}
	b := gitBed(t, twoFiles)
	w := watch(t, b, 0, func(e *apply.Engine) (*apply.Answer, error) {
		return request(e, apply.Request{Publish: apply.Exchange, Load: plan("p1", bothFiles)})
	})
	swap := w.first(w.begin, faultfs.Exchange, `^ws$`)
	gone := w.first(swap, faultfs.Unlink, `^\.asp-exchange-`)
	w.safe(gone, "before the old tree goes", packName, receiptFile, resultFile, headFile)
}
