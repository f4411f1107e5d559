package worktree

import (
	"crypto/sha256"
	"hash"

	"github.com/aspengine/asp/snapshot"
)

type digester struct{ hash.Hash }

func newDigester() digester { return digester{sha256.New()} }

func (d digester) digest() (out snapshot.Digest) {
	copy(out[:], d.Sum(nil))
	return out
}
