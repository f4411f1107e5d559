package snapshot

import (
	"encoding/binary"

	"github.com/aspengine/asp/snapshot/scan"
)

// DecodeCache wraps body into a cache file with a right checksum, decodes it
// and looks up path in every state of the table.
func DecodeCache(body []byte, path string) bool {
	le := binary.LittleEndian
	raw := append([]byte(cacheMagic), 1, 0, 'k', 0, 0)
	raw = append(raw, body...)
	raw = le.AppendUint32(raw, checksum(raw))
	c := &StatCache{raw: raw, key: "k"}
	if !c.decode() {
		return false
	}
	b := c.Builder(1 << 62)
	b.Lookup(path, &scan.Stat{})
	b.Add(path, &scan.Stat{Kind: scan.File, Size: 1}, &Known{HasGit: true, CleanKey: [21]byte{1}})
	next, changed := MergeCaches(c, "memo", []*CacheBuilder{b})
	if !changed || len(path) > MaxPath {
		return true
	}
	_, found := next.Builder(1<<62).Lookup(path, &scan.Stat{Kind: scan.File, Size: 1})
	return found
}

// Remembers tells whether a cache takes a file with these stamps at now.
func Remembers(mtime, ctime, now int64) bool {
	b := (&StatCache{}).Builder(now)
	b.Add("a", &scan.Stat{Kind: scan.File, Mtime: mtime, Ctime: ctime}, &Known{})
	return b.n == 1
}
