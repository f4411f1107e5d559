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
