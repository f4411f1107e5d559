package provider

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync"

	"github.com/aspengine/asp/internal/canon"
	"github.com/aspengine/asp/internal/home"
	"github.com/aspengine/asp/internal/vfs"
	"github.com/aspengine/asp/seam/wire"
)

const (
	maxAmbientPlaces = 1000
	maxAmbient       = 10_000 // findings that are counted on one place
	maxAmbientShown  = 3
	maxAmbientText   = 300

	ambientFile  = "ambient.json"
	ambientBytes = 1 << 20
)

// Ambient is what a provider published by itself, by its last launch. It is shown to
// people, and gates nothing.
type Ambient struct {
	Findings, Files int
	// Shown are some of them, each in quotes and bounded.
	Shown []string
}

// String says it in one sentence; "" where there is nothing.
func (a Ambient) String() string {
	if a.Findings == 0 {
		return ""
	}
	return fmt.Sprintf("published by itself, and counted nowhere: %d findings on %d files, the newest %s", a.Findings, a.Files, strings.Join(a.Shown, ", "))
}

// places are its findings by place; a new batch on one takes the place of the one before.
type places struct {
	by    map[string]place
	order []string // oldest batch first
	sum   int
}

type place struct {
	n    int
	text string // of the first
}

func (p *places) put(d wire.PublishDiagnosticsParams) {
	uri := cut(d.URI, 1000)
	old, there := p.by[uri]
	if !there && len(p.by) >= maxAmbientPlaces {
		return
	}
	p.sum -= old.n
	delete(p.by, uri)
	p.order = slices.DeleteFunc(p.order, func(s string) bool { return s == uri })
	if len(d.Diagnostics) == 0 {
		return
	}
	first := d.Diagnostics[0]
	n := min(len(d.Diagnostics), maxAmbient)
	if p.by == nil {
		p.by = map[string]place{}
	}
	p.by[uri] = place{n, fmt.Sprintf("%s: %.100q on %.300q: %.300q", oneOfSeverities(first.Severity), first.Code, uri, first.Message)}
	p.order = append(p.order, uri)
	p.sum += n
}

func oneOfSeverities(s wire.Severity) wire.Severity {
	if s.Check() != nil {
		return "finding"
	}
	return s
}

// ambient is the newest of it in few words.
func (p *places) ambient() Ambient {
	a := Ambient{Findings: p.sum, Files: len(p.by)}
	for i := len(p.order) - 1; i >= 0 && len(a.Shown) < maxAmbientShown; i-- {
		a.Shown = append(a.Shown, cut(p.by[p.order[i]].text, maxAmbientText))
	}
	return a
}

// ambientState is the file, by which commands of other processes show it.
type ambientState struct {
	Format    int             `json:"format"`
	Providers []ambientRecord `json:"providers"`
}

type ambientRecord struct {
	ID       string   `json:"id"`
	Findings int      `json:"findings" wire:"min0"`
	Files    int      `json:"files" wire:"min0"`
	Shown    []string `json:"shown,omitempty"`
}

// board keeps it. Two processes that write at once may lose one's; the next change
// brings it back.
type board struct {
	dir vfs.Dir // nil: nothing is kept
	mu  sync.Mutex
}

func (b *board) load() (ambientState, error) {
	var s ambientState
	raw, err := home.ReadFile(b.dir, ambientFile, ambientBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return ambientState{Format: 1}, nil
	}
	if err != nil {
		return s, fmt.Errorf("read what providers published: %w", err)
	}
	v, err := canon.Parse(raw, canon.Limits{Bytes: ambientBytes})
	if err == nil {
		err = wire.Decode(v, &s)
	}
	if err != nil {
		return s, fmt.Errorf("read what providers published: %s in the state of the workspace is damaged: %w; remove it, nothing hangs on it", ambientFile, err)
	}
	if s.Format != 1 {
		return s, fmt.Errorf("read what providers published: format %d is not known; a newer asp wrote it", s.Format)
	}
	return s, nil
}

// of is what is kept of id. What cannot be read is not shown: nothing rests on it.
func (b *board) of(id string) Ambient {
	if b.dir == nil {
		return Ambient{}
	}
	s, err := b.load()
	if err != nil {
		return Ambient{}
	}
	for _, r := range s.Providers {
		if r.ID == id {
			return Ambient{r.Findings, r.Files, r.Shown}
		}
	}
	return Ambient{}
}

func (b *board) keep(id string, a Ambient) error {
	if b.dir == nil {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	s, err := b.load()
	if err != nil {
		return err
	}
	n := len(s.Providers)
	s.Providers = slices.DeleteFunc(s.Providers, func(r ambientRecord) bool { return r.ID == id })
	if a.Findings == 0 && len(s.Providers) == n {
		return nil
	}
	if a.Findings > 0 {
		s.Providers = append(s.Providers, ambientRecord{id, a.Findings, a.Files, a.Shown})
		slices.SortFunc(s.Providers, func(a, b ambientRecord) int { return canon.CompareUTF16(a.ID, b.ID) })
	}
	raw, err := canon.Marshal(s)
	if err != nil {
		return err
	}
	if err := home.WriteFile(b.dir, ambientFile, append(raw, '\n')); err != nil {
		return fmt.Errorf("keep what providers published: %w", err)
	}
	return nil
}

// post keeps what the provider of e published, where that changed.
func (p *Pool) post(e *entry) {
	e.mu.Lock()
	a, changed := e.places.ambient(), e.published
	e.published = false
	e.mu.Unlock()
	if !changed {
		return
	}
	if err := p.board.keep(e.id, a); err != nil {
		p.logger().Warn("what a provider published is not kept", "id", e.id, "error", err.Error())
	}
}
