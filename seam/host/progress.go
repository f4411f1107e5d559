package host

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/aspengine/asp/internal/canon"
)

// progress tells a harness what its request is doing, once that takes long. What
// it sends is advisory: the result alone counts, and a harness that does not read
// notices misses nothing.
type progress struct {
	mu   sync.Mutex
	step string
	stop chan struct{}
	done sync.WaitGroup
}

// watch starts the notices of one request; end stops them and waits until none is
// under way, so that none follows the answer.
func watch(ctx context.Context, every time.Duration, send func(context.Context, canon.Value) error) *progress {
	p := &progress{stop: make(chan struct{})}
	if send == nil {
		return p
	}
	p.done.Go(func() {
		t := time.NewTicker(every)
		defer t.Stop()
		said := ""
		for {
			select {
			case <-p.stop:
				if said != "" {
					_ = send(ctx, canon.ObjectOf(member("kind", canon.StringOf("end"))))
				}
				return
			case <-ctx.Done():
				return
			case <-t.C:
			}
			p.mu.Lock()
			now := p.step
			p.mu.Unlock()
			if now == "" || now == said {
				continue // the same words again would tell nothing
			}
			said = now
			// A connection that does not take it ends by itself.
			_ = send(ctx, canon.ObjectOf(member("kind", canon.StringOf("report")), member("message", canon.StringOf(strings.ToValidUTF8(now, "\uFFFD")))))
		}
	})
	return p
}

// tell is the engine's Step.
func (p *progress) tell(what string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.step = what
}

func (p *progress) end() {
	close(p.stop)
	p.done.Wait()
}

func member(k string, v canon.Value) canon.Member { return canon.Member{Key: k, Value: v} }
