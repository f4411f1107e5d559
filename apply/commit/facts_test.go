package commit_test

import (
	"strings"
	"testing"

	"github.com/aspengine/asp/apply/commit"
)

// TestEachFactCounts: the word is the strongest only if every single fact is there.
func TestEachFactCounts(t *testing.T) {
	whole := func() commit.Facts {
		return commit.Facts{
			Mounts:   []commit.MountFacts{{Type: "ext4", Ordered: true, Barriers: true, Renames: true}},
			Style:    commit.SyncFS,
			Barriers: []commit.Barrier{{What: "data and journal", Calls: 1}, {What: "names", Calls: 1}},
			Exchange: commit.Proven, NoReplace: commit.Proven, Exchanged: 1, Created: 1,
		}
	}
	for _, c := range []struct {
		name string
		lack func(f *commit.Facts)
		want commit.Guarantee
	}{
		{"nothing lacks", func(*commit.Facts) {}, commit.WorkspaceTransactional},
		{"a barrier was left out", func(f *commit.Facts) { f.Skipped = []string{"names"} }, commit.RollbackAttempted},
		{"nothing was synced", func(f *commit.Facts) { f.Style = commit.SyncNone }, commit.RollbackAttempted},
		{"a sync failed", func(f *commit.Facts) { f.Failed = []string{"names"} }, commit.RollbackAttempted},
		{"no barrier for the data", func(f *commit.Facts) { f.Barriers = f.Barriers[1:] }, commit.RollbackAttempted},
		{"no barrier for the names", func(f *commit.Facts) { f.Barriers = f.Barriers[:1] }, commit.RollbackAttempted},
		{"a barrier without a sync", func(f *commit.Facts) { f.Barriers[1].Calls = 0 }, commit.RollbackAttempted},
		{"an unknown mount", func(f *commit.Facts) { f.Mounts = nil }, commit.RollbackAttempted},
		{"no order", func(f *commit.Facts) { f.Mounts[0].Ordered = false }, commit.RollbackAttempted},
		{"no barriers on the mount", func(f *commit.Facts) { f.Mounts[0].Barriers = false }, commit.RollbackAttempted},
		{"no rename without replace", func(f *commit.Facts) { f.NoReplace = commit.Absent }, commit.TextOnlyTransactional},
		{"no exchange", func(f *commit.Facts) { f.Exchange = commit.Absent }, commit.GuaranteeNone},
		{"nothing written", func(f *commit.Facts) { f.Exchanged, f.Created = 0, 0 }, commit.GuaranteeNone},
	} {
		f := whole()
		c.lack(&f)
		if got := f.Guarantee(); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

// A file system that its description names is named once, any other before it.
func TestMountIsNamedOnce(t *testing.T) {
	for _, c := range []struct{ fs, why, want string }{
		{"tmpfs", "tmpfs lives in memory", "tmpfs lives in memory"},
		{"ext4", "ext4 on sda1 has no journal", "ext4 on sda1 has no journal"},
		{"ext4", "no journal was found", "ext4: no journal was found"},
		{"fuse", "", "fuse: "},
	} {
		if got := (commit.MountFacts{Type: c.fs, Why: c.why}).Words(); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}

// TestDetailCountsWhatItNames: the sentence is sealed before the last barriers are made,
// so it names those that it counts, and says the same when it is asked for later.
func TestDetailCountsWhatItNames(t *testing.T) {
	f := commit.Facts{
		Mounts: []commit.MountFacts{{Type: "ext4", Ordered: true, Barriers: true, Renames: true}}, Style: commit.SyncEach, Exchanged: 300, Exchange: commit.Proven,
		Barriers: []commit.Barrier{{What: "data and journal", Calls: 303}, {What: "names", Calls: 22}},
	}
	sealed := f.Detail()
	if want := "2 barriers by fsync before the commit record (325 syncs)"; !strings.Contains(sealed, want) {
		t.Errorf("no %q: %s", want, sealed)
	}
	f.Barriers = append(f.Barriers, commit.Barrier{What: "commit record", Calls: 1}, commit.Barrier{What: "removed directories", Calls: 2})
	if later := f.Detail(); later != sealed {
		t.Errorf("asked later: %s", later)
	}
}
