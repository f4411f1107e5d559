package provider

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"sync"

	"github.com/aspengine/asp/internal/canon"
	"github.com/aspengine/asp/internal/home"
	"github.com/aspengine/asp/internal/vfs"
	"github.com/aspengine/asp/seam/manifest"
	"github.com/aspengine/asp/seam/wire"
)

const (
	artifactFile  = "artifacts.json"
	artifactBytes = 1 << 20
)

// Artifact is what a look at the files of a provider found, without a launch.
type Artifact struct {
	// Problem is why the next launch will refuse; "" when it will not.
	Problem string
	// Foreign: what is there is not what was added. Otherwise the program is gone,
	// or cannot be executed.
	Foreign bool
}

// Words is the problem as a failed launch says it.
func (a Artifact) Words() string {
	if a.Foreign {
		return "it is not started: its files are not what was added: " + a.Problem
	}
	return "it is not started: " + a.Problem
}

func (a Artifact) fault() *fault {
	// A program that is gone is a matter of health. One that differs is not, since
	// health opens an interactive call-site: what stands there is not what was given
	// authority.
	f := faultOf(wire.DegradeUnavailable, wire.Unavailable, wire.FailHealth, "%s", a.Words())
	if a.Foreign {
		f = faultOf(wire.DegradeMissingAuthority, wire.Unavailable, wire.FailPolicy, "%s", a.Words())
	}
	f.blameless, f.artifact = true, a
	return f
}

func artifactOf(v *manifest.Verified) Artifact {
	if v.All && v.Exec != nil {
		return Artifact{}
	}
	return Artifact{v.Problems[0], v.Exec != nil}
}

// artifactState is the file: what was found at which stamps of the files.
type artifactState struct {
	Format    int              `json:"format"`
	Providers []artifactRecord `json:"providers"`
}

type artifactRecord struct {
	ID      string `json:"id"`
	Stamp   string `json:"stamp"`
	Problem string `json:"problem,omitempty"`
	Foreign bool   `json:"foreign,omitempty"`
}

// gallery remembers looks, so that a status does not read every provider's files. It
// is for telling alone: each launch verifies what it executes. What cannot be read or
// written is looked up anew.
type gallery struct {
	dir vfs.Dir // nil: in memory alone

	mu  sync.Mutex
	mem artifactState
}

func (g *gallery) load() artifactState {
	if g.dir == nil {
		return g.mem
	}
	b, err := home.ReadFile(g.dir, artifactFile, artifactBytes)
	if err != nil {
		return artifactState{}
	}
	v, err := canon.Parse(b, canon.Limits{Bytes: artifactBytes})
	var s artifactState
	if err != nil || wire.Decode(v, &s) != nil || s.Format != 1 {
		return artifactState{}
	}
	return s
}

func (g *gallery) store(s artifactState) error {
	s.Format = 1
	if g.mem = s; g.dir == nil {
		return nil
	}
	b, err := canon.Marshal(s)
	if err != nil {
		return err
	}
	if err := home.WriteFile(g.dir, artifactFile, append(b, '\n')); err != nil && !errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("keep what was found of providers: %w", err)
	}
	return nil
}

// Look adds to the standings of enabled providers what is to be said of their files.
// Nothing is launched; one that runs was verified by its launch and is left out. ctx
// bounds the reading; of what it leaves out nothing is said.
func (p *Pool) Look(ctx context.Context, all []Standing) []Standing {
	all = slices.Clone(all)
	p.gallery.mu.Lock()
	defer p.gallery.mu.Unlock()
	known := p.gallery.load()
	changed := false
	for i := range all {
		s := &all[i]
		if s.Participant.Mode == "" || s.Problem != "" || s.Runs || p.o.Registry == nil {
			continue
		}
		m, err := p.o.Registry.Get(ctx, s.ID)
		if err != nil {
			continue
		}
		// The stamp is of before the look: what changes meanwhile has another.
		stamp := m.Stamp(p.o.Now())
		at := slices.IndexFunc(known.Providers, func(r artifactRecord) bool { return r.ID == s.ID })
		if at >= 0 && stamp != "" && known.Providers[at].Stamp == stamp {
			s.Artifact = Artifact{known.Providers[at].Problem, known.Providers[at].Foreign}
			continue
		}
		v, err := m.Verify(ctx)
		if err != nil {
			continue
		}
		s.Artifact = artifactOf(v)
		_ = v.Close()
		s.Artifact.Problem = cut(s.Artifact.Problem, maxDetail)
		if stamp == "" {
			continue
		}
		r := artifactRecord{s.ID, stamp, s.Artifact.Problem, s.Artifact.Foreign}
		if changed = true; at >= 0 {
			known.Providers[at] = r
		} else {
			known.Providers = append(known.Providers, r)
		}
	}
	if changed {
		slices.SortFunc(known.Providers, func(a, b artifactRecord) int { return canon.CompareUTF16(a.ID, b.ID) })
		if err := p.gallery.store(known); err != nil {
			p.logger().Warn("what was found of the files of providers is not kept", "error", err.Error())
		}
	}
	return all
}
