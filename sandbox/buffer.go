package sandbox

import (
	"fmt"
	"sync"
)

// bounded keeps the first and the last part of what is written to it. Writes
// never block and never fail, however much comes.
type bounded struct {
	mu    sync.Mutex
	half  int
	head  []byte
	tail  []byte // ring once full
	at    int    // next write position in tail when full
	total int64
}

func newBounded(max int) *bounded { return &bounded{half: max / 2} }

// Write implements io.Writer.
func (b *bounded) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := len(p)
	b.total += int64(n)
	if room := b.half - len(b.head); room > 0 {
		k := min(room, len(p))
		b.head = append(b.head, p[:k]...)
		p = p[k:]
	}
	if len(p) > b.half {
		p = p[len(p)-b.half:]
	}
	if room := b.half - len(b.tail); room > 0 {
		k := min(room, len(p))
		b.tail = append(b.tail, p[:k]...)
		p = p[k:]
	}
	for len(p) > 0 {
		k := copy(b.tail[b.at:], p)
		b.at = (b.at + k) % b.half
		p = p[k:]
	}
	return n, nil
}

// bytes returns head and tail, with a line between them that tells how much is
// missing, and whether something is.
func (b *bounded) bytes() ([]byte, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := append([]byte(nil), b.head...)
	cut := b.total - int64(len(b.head)) - int64(len(b.tail))
	if cut > 0 {
		out = fmt.Appendf(out, "\n[... %d bytes left out ...]\n", cut)
	}
	out = append(out, b.tail[b.at:]...)
	return append(out, b.tail[:b.at]...), cut > 0
}
