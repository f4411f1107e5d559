package commit_test

import (
	"context"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"testing"

	"github.com/aspengine/asp/apply/commit"
	"github.com/aspengine/asp/apply/journal"
	"github.com/aspengine/asp/internal/vfs"
)

// forge puts a journal with these steps into the transaction area, and a file
// of the same bytes as the after-image of "a" beside it.
func forge(t testing.TB, w *world, st []journal.Step, committed bool) {
	t.Helper()
	git := w.root(w.fs, gitDir)
	defer git.Close()
	w.ok(git.Mkdir("asp", 0o700))
	top := w.root(w.fs, txDir)
	defer top.Close()
	w.ok(top.Mkdir("tx1", 0o700))
	d := w.root(w.fs, txDir+"/tx1")
	defer d.Close()
	j, err := journal.Create(d, "journal", "tx1", "", false, []journal.Area{{Dir: "."}})
	w.ok(err)
	w.ok(j.Intent(st, []string{"dir", "dir/sub", "lone"}))
	if committed {
		w.ok(j.Commit(nil))
	}
	w.ok(errors.Join(j.Flush(), j.Sync(), j.Close()))
	f, err := d.Create("0123456789abcdef-0", 0o644)
	w.ok(err)
	_, err = f.Write([]byte("evil\n"))
	w.ok(errors.Join(err, f.Close()))
}

func journalImage(s string, ino uint64) journal.Image {
	im := image(s)
	return journal.Image{Kind: im.Kind, Digest: im.Digest, Size: im.Size, Perm: im.Perm, Ino: ino}
}

// TestForgedJournal: whatever a journal says, recovery changes no byte that is
// not exactly an image of the transaction and at its place, and goes nowhere
// else.
func TestForgedJournal(t *testing.T) {
	const ours = "0123456789abcdef-0"
	evil := journalImage(file(0o644, "evil\n"), 1)
	at := func(p string) journal.Place { return journal.Place{Path: p} }
	tests := map[string]journal.Step{
		"over a file":            {Op: journal.Exchange, Live: at("a"), Name: ours, Before: evil, After: journalImage(file(0o644, "other\n"), 1)},
		"create that is foreign": {Op: journal.Put, Live: at("bystander"), Name: "0123456789abcdef-1", After: journalImage(base["bystander"], 99999)},
		"into the git directory": {Op: journal.Take, Live: at(".git/hook"), Name: ours, Before: evil},
		"below the git directory": {Op: journal.Take, Live: at(".git/hooks/x"), Name: ours,
			Before: evil},
		"the git directory":       {Op: journal.Put, Live: at(".git"), Name: "0123456789abcdef-1", After: journal.Image{Kind: vfs.KindDir, Ino: 4}},
		"outside":                 {Op: journal.Take, Live: journal.Place{Base: "/etc", Path: "passwd"}, Name: ours, Before: evil},
		"over a directory":        {Op: journal.Exchange, Live: at("dir"), Name: ours, Before: evil, After: journal.Image{Kind: vfs.KindDir, Ino: 1 << 40}},
		"a name that is not ours": {Op: journal.Take, Live: at("x"), Name: "journal", Before: evil},
	}
	for name, st := range tests {
		for _, committed := range []bool{false, true} {
			w := newWorld(t, base)
			forge(t, w, []journal.Step{st}, committed)
			e, done := w.mustEnv(w.fs)
			for range 2 {
				_, _ = commit.Recover(context.Background(), e, commit.RecoverOptions{})
			}
			done()
			if got := state(t, w.fs); !equalTrees(got, base) {
				t.Errorf("%s, committed %v", name, committed)
				same(t, name, got, base)
			}
		}
	}
}

// TestNewerJournal: a journal of a later release is left alone, and said so.
func TestNewerJournal(t *testing.T) {
	w := newWorld(t, base)
	forge(t, w, nil, false)
	d := w.root(w.fs, txDir+"/tx1")
	defer d.Close()
	w.ok(d.Unlink("journal"))
	f, err := d.Create("journal", 0o600)
	w.ok(err)
	head := binary.LittleEndian.AppendUint32([]byte("ASPJRNL\n"), journal.Version+1)
	head = binary.LittleEndian.AppendUint32(head, crc32.Checksum(head, crc32.MakeTable(crc32.Castagnoli)))
	_, err = f.Write(head)
	w.ok(errors.Join(err, f.Close()))
	e, done := w.mustEnv(w.fs)
	defer done()
	_, err = commit.Recover(context.Background(), e, commit.RecoverOptions{})
	if !errors.Is(err, journal.ErrVersion) {
		t.Fatal(err)
	}
	if _, err := d.Lstat("0123456789abcdef-0"); err != nil {
		t.Error("something was removed")
	}
}
