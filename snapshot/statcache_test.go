package snapshot_test

import (
	"testing"

	"github.com/aspengine/asp/snapshot"
)

// FuzzStatCache: no bytes behind a right checksum make the reader panic, and
// what is added to a cache that was accepted is found in the next.
func FuzzStatCache(f *testing.F) {
	f.Add([]byte{}, "a")
	rec := append([]byte{3, 1, 0, 'a'}, make([]byte, 40+32+20+41)...)
	f.Add(rec, "a")
	f.Add(append(rec, rec...), "b")
	f.Add(rec[:len(rec)-1], "b")
	f.Fuzz(func(t *testing.T, body []byte, path string) {
		ok := snapshot.DecodeCache(body, path)
		if !ok && len(body) == 0 {
			t.Error("an entry that was added is not found")
		}
	})
}

// TestFreshFilesAreNotRemembered: a file stamped so lately that a later write
// could carry the same stamps is read again.
func TestFreshFilesAreNotRemembered(t *testing.T) {
	const now = 1_700_000_000_500_000_001
	for _, tt := range []struct {
		name         string
		mtime, ctime int64
		want         bool
	}{
		{"old", now - 1e9, now - 1e9, true},
		{"just written", now - 1, now - 1, false},
		{"mtime put back", now - 3600e9, now - 1, false},
		{"one tick ago", now - 10e6, now - 10e6, false},
		{"from the future", now + 1e9, now + 1e9, false},
		{"whole seconds, two ago", 1_699_999_998e9, 1_699_999_998e9, false},
		{"whole seconds, long ago", 1_600_000_000e9, 1_600_000_000e9, true},
	} {
		if got := snapshot.Remembers(tt.mtime, tt.ctime, now); got != tt.want {
			t.Errorf("%s: remembered %v", tt.name, got)
		}
	}
}
