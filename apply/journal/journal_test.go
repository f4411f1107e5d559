package journal_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/aspengine/asp/apply/journal"
	"github.com/aspengine/asp/internal/need"
	"github.com/aspengine/asp/internal/vfs"
	"github.com/aspengine/asp/internal/vfs/memfs"
	"github.com/aspengine/asp/snapshot"
)

func img(text string) journal.Image {
	return journal.Image{Kind: vfs.KindFile, Digest: snapshot.DigestOf([]byte(text)), Size: int64(len(text)), Perm: 0o644, Ino: 77}
}

func steps() []journal.Step {
	dir := journal.Image{Kind: vfs.KindDir, Perm: 0o755, Ino: 5}
	return []journal.Step{
		{Op: journal.Put, Live: journal.Place{Path: "n"}, Name: "s-0", After: dir},
		{Op: journal.Exchange, Live: journal.Place{Path: "a"}, Area: 1, Name: "s-1", Before: img("old"), After: img("new")},
		{Op: journal.Take, Live: journal.Place{Path: "dir/c"}, Name: "s-2", Before: img("gone")},
		{Op: journal.Move, Live: journal.Place{Path: "n/d"}, From: "d", Before: img("d"), After: img("d")},
		{Op: journal.Exchange, Live: journal.Place{Base: "/repo/.git", Path: "index"}, Name: "s-3", Before: img("i"), After: img("j")},
	}
}

func areas() []journal.Area { return []journal.Area{{Dir: "."}, {Dir: "mnt", Beside: ".asp-tx-1"}} }

// write makes a journal and returns its bytes.
func write(t testing.TB, st []journal.Step, commit bool) []byte {
	t.Helper()
	root, err := memfs.New(memfs.Options{}).OpenRoot("/")
	if err != nil {
		t.Fatal(err)
	}
	w, err := journal.Create(root, "journal", "tx1", "tag", false, areas())
	if err != nil {
		t.Fatal(err)
	}
	err = errors.Join(w.Flush(), w.Intent(st, []string{"dir"}), w.Flush())
	if commit {
		err = errors.Join(err, w.Commit([]byte("evidence")), w.Flush())
	}
	if err = errors.Join(err, w.Sync(), w.Close()); err != nil {
		t.Fatal(err)
	}
	f, err := root.Open("journal")
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(f)
	if err != nil || int64(len(b)) != w.Size() {
		t.Fatal(len(b), w.Size(), err)
	}
	return b
}

func TestRoundTrip(t *testing.T) {
	for _, commit := range []bool{false, true} {
		b := write(t, steps(), commit)
		got, err := journal.Read(bytes.NewReader(b))
		if err != nil {
			t.Fatal(err)
		}
		want := &journal.Log{TxID: "tx1", Tag: "tag", Areas: areas(), Steps: steps(), Emptied: []string{"dir"},
			Begun: true, Ready: true, Committed: commit, Valid: int64(len(b))}
		if commit {
			want.Evidence = []byte("evidence")
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Error(d)
		}
	}
}

// TestTorn: every prefix is read; it is committed only when whole.
func TestTorn(t *testing.T) {
	b := write(t, steps(), true)
	for n := range b {
		l, err := journal.Read(bytes.NewReader(b[:n]))
		if err != nil || l.Committed || l.Valid > int64(n) {
			t.Fatalf("%d bytes: %+v %v", n, l, err)
		}
	}
}

// TestRoom: the room behind an intent is zeros that no reader takes for a record. A
// commit record is written over it and leaves the size of the file alone, one that is
// longer makes the file longer, and both are read. What was cut off is gone, and so is
// the room behind it.
func TestRoom(t *testing.T) {
	for _, size := range []int{0, 100, 5000, 20000} {
		root, err := memfs.New(memfs.Options{}).OpenRoot("/")
		if err != nil {
			t.Fatal(err)
		}
		read := func() []byte {
			t.Helper()
			f, err := root.Open("journal")
			if err != nil {
				t.Fatal(err)
			}
			b, err := io.ReadAll(f)
			if err != nil {
				t.Fatal(err)
			}
			return b
		}
		w, err := journal.Create(root, "journal", "tx1", "tag", false, areas())
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(w.Flush(), w.Intent(steps(), nil)); err != nil {
			t.Fatal(err)
		}
		w.Room(5000)
		if err := errors.Join(w.Flush(), w.Sync()); err != nil {
			t.Fatal(err)
		}
		before := read()
		if len(before)%4096 != 0 || int64(len(before)) < w.Size()+5000 {
			t.Fatalf("%d bytes after %d of records", len(before), w.Size())
		}
		if l, err := journal.Read(bytes.NewReader(before)); err != nil || !l.Ready || l.Committed || l.Valid != w.Size() {
			t.Fatalf("intent with room: %+v %v, want valid up to %d", l, err, w.Size())
		}
		intent := w.Size()
		evidence := bytes.Repeat([]byte("e"), size)
		if err := errors.Join(w.Commit(evidence), w.Flush()); err != nil {
			t.Fatal(err)
		}
		after := read()
		if fits := w.Size() <= int64(len(before)); fits != (len(after) == len(before)) || fits != (size <= 5000) {
			t.Errorf("evidence of %d: the file had %d bytes and has %d, records take %d", size, len(before), len(after), w.Size())
		}
		if l, err := journal.Read(bytes.NewReader(after)); err != nil || !l.Committed || !bytes.Equal(l.Evidence, evidence) || l.Valid != w.Size() {
			t.Errorf("evidence of %d: not read: committed %v, valid to %d of %d, %v", size, l.Committed, l.Valid, w.Size(), err)
		}
		// Every sector of the record may be missing.
		for at := intent / 512 * 512; at < w.Size(); at += 512 {
			torn := bytes.Clone(after)
			from, to := max(at, intent), min(at+512, w.Size())
			clear(torn[from:to])
			if bytes.Equal(torn, after) {
				continue
			}
			if l, err := journal.Read(bytes.NewReader(torn)); err != nil || !l.Ready || l.Committed {
				t.Fatalf("evidence of %d without the sector at %d: %v %v", size, at, l.Committed, err)
			}
		}
		if err := w.Cut(intent); err != nil {
			t.Fatal(err)
		}
		if l, err := journal.Read(bytes.NewReader(read())); err != nil || !l.Ready || l.Committed || int64(len(read())) != intent {
			t.Errorf("cut: %v %v", l.Committed, err)
		}
	}
}

// TestFlipped: no single flipped bit makes another journal.
func TestFlipped(t *testing.T) {
	whole, _ := journal.Read(bytes.NewReader(write(t, steps(), true)))
	b := write(t, steps(), true)
	for i := range b {
		for bit := range 8 {
			b[i] ^= 1 << bit
			l, err := journal.Read(bytes.NewReader(b))
			if err == nil && l.Committed && cmp.Diff(whole, l) != "" {
				t.Fatalf("bit %d of byte %d", bit, i)
			}
			b[i] ^= 1 << bit
		}
	}
}

// TestSplice: a whole record is not valid in another place.
func TestSplice(t *testing.T) {
	open, done := write(t, steps(), false), write(t, steps()[:2], true)
	tail := done[len(write(t, steps()[:2], false)):]
	l, err := journal.Read(bytes.NewReader(append(open, tail...)))
	if err != nil || !l.Ready || l.Committed {
		t.Fatalf("%+v %v", l, err)
	}
}

func TestNewerVersion(t *testing.T) {
	b := write(t, steps(), true)
	binary.LittleEndian.PutUint32(b[8:], journal.Version+1)
	binary.LittleEndian.PutUint32(b[12:], crc32.Checksum(b[:12], crc32.MakeTable(crc32.Castagnoli)))
	if _, err := journal.Read(bytes.NewReader(b)); !errors.Is(err, journal.ErrVersion) {
		t.Fatal(err)
	}
}

// TestForged: paths and names are checked again, with checksums that are right.
func TestForged(t *testing.T) {
	long := strings.Repeat("x", 300)
	forge := []func(*journal.Step){
		func(s *journal.Step) { s.Live.Path = "../out" },
		func(s *journal.Step) { s.Live.Path = "/etc/passwd" },
		func(s *journal.Step) { s.Live.Path = "a/./b" },
		func(s *journal.Step) { s.Live.Path = "" },
		func(s *journal.Step) { s.Live.Path = long },
		func(s *journal.Step) { s.Name = "../x" },
		func(s *journal.Step) { s.Name = ".." },
		func(s *journal.Step) { s.Name = "" },
		func(s *journal.Step) { s.Live.Base = "relative" },
		func(s *journal.Step) { s.Live = journal.Place{Base: "/repo/.git/../..", Path: "x"} },
		func(s *journal.Step) { s.Live = journal.Place{Base: "/repo/.git", Path: "hooks/x"} },
		func(s *journal.Step) { s.Op = 9 },
		func(s *journal.Step) { s.Op = journal.Put },
		func(s *journal.Step) { s.Before.Digest = snapshot.Digest{} },
		func(s *journal.Step) { s.Before.Kind = vfs.KindOther },
		func(s *journal.Step) { s.Area = 2 },
	}
	for i, f := range forge {
		st := steps()
		f(&st[1])
		l, err := journal.Read(bytes.NewReader(write(t, st, true)))
		if err != nil || l.Ready || l.Committed {
			t.Errorf("forgery %d is believed: %+v %v", i, l, err)
		}
	}
}

// TestManySteps: several Steps records, and the limits.
func TestManySteps(t *testing.T) {
	var st []journal.Step
	for i := range 20000 {
		st = append(st, journal.Step{Op: journal.Exchange, Live: journal.Place{Path: fmt.Sprint("some/directory/of/files/f", i)}, Name: fmt.Sprint("s-", i), Before: img("o"), After: img("n")})
	}
	l, err := journal.Read(bytes.NewReader(write(t, st, true)))
	if err != nil || len(l.Steps) != len(st) || !l.Committed || l.Steps[19999] != st[19999] {
		t.Fatal(len(l.Steps), err)
	}
	root, err := memfs.New(memfs.Options{}).OpenRoot("/")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := journal.Create(root, "j", strings.Repeat("x", 200), "", false, areas()); !errors.Is(err, journal.ErrTooLarge) {
		t.Error(err)
	}
	w, err := journal.Create(root, "j", "tx", "", false, areas())
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Commit(make([]byte, journal.MaxEvidence+1)); !errors.Is(err, journal.ErrTooLarge) {
		t.Error(err)
	}
}

// TestForgedLength: a length costs no more memory than there are bytes.
func TestForgedLength(t *testing.T) {
	b := write(t, nil, false)[:16]
	b = append(b, 1, 0, 0, 0, 2, 0, 0, 0, 0) // 32 MiB announced
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if l, err := journal.Read(bytes.NewReader(b)); err != nil || l.Begun {
		t.Fatal(l, err)
	}
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; n > 1<<20 {
		t.Errorf("%d bytes allocated for %d", n, len(b))
	}
}

func TestAttention(t *testing.T) {
	root, err := memfs.New(memfs.Options{}).OpenRoot("/")
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range [][]journal.Open{nil, {{Step: 3, Why: "w"}, {Step: 0, Why: ""}}} {
		name := fmt.Sprint("attention-", i)
		if err := journal.WriteAttention(root, name, "tx1", want); err != nil {
			t.Fatal(err)
		}
		read := func(id string, steps int) ([]journal.Open, bool) {
			f, err := root.Open(name)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			got, ok, err := journal.ReadAttention(f, id, steps)
			if err != nil {
				t.Fatal(err)
			}
			return got, ok
		}
		if got, ok := read("tx1", 4); !ok || cmp.Diff(want, got) != "" {
			t.Error(got, ok)
		}
		if _, ok := read("tx2", 4); ok {
			t.Error("of another transaction")
		}
		if _, ok := read("tx1", 3); ok && len(want) > 0 {
			t.Error("a step out of range")
		}
	}
}

// FuzzRead: no panic, no escape from the limits, and what is read can be
// written and read again to the same.
func FuzzRead(f *testing.F) {
	f.Add(write(f, steps(), true))
	f.Add(write(f, nil, false))
	f.Add([]byte("ASPJRNL\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		need.Bounded(t, len(b), func() {
			l, err := journal.Read(bytes.NewReader(b))
			if err != nil {
				return
			}
			if l.Valid > int64(len(b)) || l.Committed && !l.Ready || l.Ready && !l.Begun {
				t.Fatalf("%+v", l)
			}
			_, _, _ = journal.ReadAttention(bytes.NewReader(b), "tx1", 10)
			if !l.Ready {
				return
			}
			for _, s := range l.Steps {
				if _, err := snapshot.ParsePath(s.Live.Path); err != nil || s.Name != "" && vfs.CheckName(s.Name) != nil || s.Area >= len(l.Areas) {
					t.Fatalf("%+v", s)
				}
			}
		})
	})
}

// FuzzPayload gives the decoder payloads with right checksums, which FuzzRead
// hardly ever finds.
func FuzzPayload(f *testing.F) {
	whole := write(f, steps(), true)
	f.Add(uint8(1), whole[25:60], uint8(2), whole[60:])
	f.Fuzz(func(t *testing.T, k1 uint8, p1 []byte, k2 uint8, p2 []byte) {
		need.Bounded(t, len(p1)+len(p2), func() {
			b := bytes.Clone(whole[:16])
			crc := binary.LittleEndian.Uint32(b[12:])
			for _, r := range []struct {
				k uint8
				p []byte
			}{{k1, p1}, {k2, p2}} {
				head := append([]byte{r.k}, binary.LittleEndian.AppendUint32(nil, uint32(len(r.p)))...)
				table := crc32.MakeTable(crc32.Castagnoli)
				c := crc32.Update(0, table, binary.LittleEndian.AppendUint32(nil, crc))
				c = crc32.Update(c, table, head)
				crc = crc32.Update(c, table, r.p)
				b = append(append(append(b, head...), binary.LittleEndian.AppendUint32(nil, crc)...), r.p...)
			}
			l, err := journal.Read(bytes.NewReader(b))
			if err != nil {
				t.Fatal(err)
			}
			for _, s := range l.Steps {
				if _, err := snapshot.ParsePath(s.Live.Path); err != nil || s.Area >= len(l.Areas) {
					t.Fatalf("%+v", s)
				}
			}
		})
	})
}
