package apply

import (
	"fmt"
	"slices"
	"time"

	"github.com/aspengine/asp/apply/commit"
	"github.com/aspengine/asp/checks"
	"github.com/aspengine/asp/internal/canon"
	"github.com/aspengine/asp/internal/vfs"
	"github.com/aspengine/asp/preconditions"
	"github.com/aspengine/asp/receipt"
	"github.com/aspengine/asp/sandbox"
	"github.com/aspengine/asp/seam/wire"
)

// Evidence is what stands beside a receipt: what was established and how, and
// what an undo needs. It is ours alone, not on the wire.
type Evidence struct {
	Publish     string          `json:"publish"`
	Transaction string          `json:"transaction"`
	Facts       *FactsRecord    `json:"facts,omitempty"`
	Paths       []PathRecord    `json:"paths,omitempty"`
	Merged      []MergeRecord   `json:"merged,omitempty"` // operations brought onto files that had moved
	Packed      bool            `json:"packed,omitempty"` // the pre-images are kept in the pack of the transaction
	Checks      []CheckRecord   `json:"checks,omitempty"`
	Probes      []ProbeRecord   `json:"probes,omitempty"`
	Network     []NetworkRecord `json:"network,omitempty"`
	Refusals    []RefusalRecord `json:"refusals,omitempty"`
	Notes       []string        `json:"notes,omitempty"`
	Ref         string          `json:"ref,omitempty"`
	Commit      string          `json:"commit,omitempty"`
	Undoes      string          `json:"undoes,omitempty"` // receipt id
	Judged      *JudgedRecord   `json:"judged,omitempty"`
	Looked      string          `json:"looked,omitempty"` // how the last look at the whole tree was made: "walked" or "watched"
	// Added by the receipt store.
	PlanProvider string `json:"planProvider,omitempty"`
	PlanDigest   string `json:"planDigest,omitempty"`
}

// FactsRecord is commit.Facts as kept.
type FactsRecord struct {
	Mounts    []string `json:"mounts"`
	Style     string   `json:"style"`
	Barriers  []string `json:"barriers"`
	Syncs     int64    `json:"syncs"`
	Exchanged int64    `json:"exchanged"`
	Created   int64    `json:"created"`
	Deleted   int64    `json:"deleted"`
	Moved     int64    `json:"moved"`
	Beside    int64    `json:"beside,omitempty"`
	Skipped   []string `json:"skipped,omitempty"`
}

// PathRecord is one path's way.
type PathRecord struct {
	Path   string       `json:"path"`
	From   string       `json:"from,omitempty"`
	Moved  bool         `json:"moved,omitempty"` // the file itself was renamed from From
	Gone   string       `json:"gone,omitempty"`  // where the file itself was renamed to
	Before *ImageRecord `json:"before,omitempty"`
	After  *ImageRecord `json:"after,omitempty"`
	// Delta is the blob of the way from before to after; without a before, from
	// the before of From.
	Delta string `json:"delta,omitempty"`
}

// ImageRecord is one side of a path's way.
type ImageRecord struct {
	Kind   string `json:"kind"`
	Digest string `json:"digest"` // blob id
	Size   int64  `json:"size"`
	// Perm holds the permission bits; 0 for a file that the umask or a default ACL
	// of its directory shaped.
	Perm int64 `json:"perm,omitempty"`
}

// MergeRecord is one operation that did not find the content it was made for, and
// was merged with what was there.
type MergeRecord struct {
	Path     string `json:"path"`
	Op       int64  `json:"op"`
	Expected string `json:"expected"` // blob ids
	Found    string `json:"found"`
	Made     string `json:"made"` // equal to found where a file was only renamed
}

func mergeRecords(ms []preconditions.Merge) []MergeRecord {
	var out []MergeRecord
	for _, m := range ms {
		out = append(out, MergeRecord{m.Path.String(), int64(m.Op), m.Expected.Blob(), m.Found.Blob(), m.Made.Blob()})
	}
	return out
}

// mergeNotes tell a person what was merged.
func mergeNotes(ms []preconditions.Merge) []string {
	const shown = 20
	var out []string
	for i, m := range ms {
		if i == shown {
			return append(out, fmt.Sprintf("and %d more were merged; the receipt lists all", len(ms)-i))
		}
		out = append(out, fmt.Sprintf("merged: %q is not what the plan was made for; both changes are in it now", cut(m.Path.String())))
	}
	return out
}

// mergedDetail says it in one line of the assurance; "" where nothing was merged.
func mergedDetail(ms []preconditions.Merge) string {
	if len(ms) == 0 {
		return ""
	}
	s := fmt.Sprintf("merged with content that is not what the change was made for: %q (expected %s, found %s)", cut(ms[0].Path.String()), ms[0].Expected.Blob(), ms[0].Found.Blob())
	if len(ms) > 1 {
		s += fmt.Sprintf(" and %d more", len(ms)-1)
	}
	return s
}

// CheckRecord is what a check said, without its output.
type CheckRecord struct {
	Name      string   `json:"name"`
	Status    string   `json:"status"`
	ExitCode  int64    `json:"exitCode"`
	ElapsedMs int64    `json:"elapsedMs"`
	Isolation string   `json:"isolation"`
	Method    string   `json:"method"`
	Runs      int64    `json:"runs"`
	Evidence  string   `json:"evidence,omitempty"`
	Env       []string `json:"environment,omitempty"`      // ignored names that the check could see
	EnvCount  int64    `json:"environmentCount,omitempty"` // how many there are, where they are not all named
	Network   []string `json:"network,omitempty"`          // what it asked the proxy for, and what came of it
	Detail    string   `json:"detail,omitempty"`
	// Early is there where it ran before the transaction had its turn.
	Early *EarlyRecord `json:"early,omitempty"`
}

// EarlyRecord says since when a check ran that was asked before its turn, and over which
// after-state, as it was foreseen then and found later.
type EarlyRecord struct {
	Began string        `json:"began"` // RFC 3339
	State wire.Baseline `json:"state"`
}

// ProbeRecord is what a launch tried from inside before it ran anything, one line an
// attempt. Several checks may share one. Digest is that of the canonical form of
// Attempts, and stands in assurance.detail.
type ProbeRecord struct {
	Digest   string   `json:"digest"`
	Attempts []string `json:"attempts"`
}

// probeRecords are the different records of those who took part.
func probeRecords(results []checks.Result, more ...[]string) []ProbeRecord {
	for _, r := range results {
		more = append(more, r.Probed)
	}
	var out []ProbeRecord
	for _, p := range more {
		d := sandbox.RecordDigest(p)
		if len(p) > 0 && !slices.ContainsFunc(out, func(r ProbeRecord) bool { return r.Digest == d }) {
			out = append(out, ProbeRecord{d, p})
		}
	}
	return out
}

// RefusalRecord is one reason.
type RefusalRecord struct {
	Code   string `json:"code"`
	Path   string `json:"path,omitempty"`
	Op     int64  `json:"op"`
	Detail string `json:"detail"`
}

func (t *tx) evidence(out receipt.Outcome) (canon.Value, error) {
	ev := Evidence{Publish: t.r.Publish.String(), Transaction: t.txid, Packed: t.packed, Ref: t.r.Ref, Commit: t.refMade, Undoes: t.r.Undoes}
	if t.adm != nil {
		ev.Merged = mergeRecords(t.adm.Merges)
	}
	if t.facts != nil {
		ev.Facts = factsRecord(*t.facts)
	}
	if out == receipt.Applied || out == receipt.Staged {
		for i, c := range t.changes {
			n := t.adm.Nets[i]
			p := PathRecord{Path: c.Path.String(), Before: imageRecord(c.Before), After: imageRecord(c.After), From: n.From.String(), Moved: n.Moved, Gone: n.MovedTo.String()}
			if k, ok := t.kept[c.Path]; ok {
				p.Delta = k.delta.Blob()
			}
			ev.Paths = append(ev.Paths, p)
		}
	}
	if t.stamp != nil {
		ev.Looked = lookedBy(!t.stamp.Watched)
	}
	ev.Checks = checkRecords(t.report.Results)
	var plan []string
	if t.editor != nil {
		plan = t.editor.probed
	}
	ev.Probes, ev.Network = probeRecords(t.report.Results, plan), t.network
	if t.judged != nil {
		// Where the paths are recorded, they are the changeset.
		j := *t.judged
		if len(ev.Paths) > 0 && t.changeset.Baseline == t.baseline {
			j.Changeset = canon.Value{}
		}
		ev.Judged = &j
	}
	for _, it := range t.answer.Refusals {
		ev.Refusals = append(ev.Refusals, RefusalRecord{string(it.Code), valid(it.Path), int64(it.Op), valid(it.Detail)})
	}
	ev.Notes = validAll(t.answer.Notes)
	return canon.From(ev)
}

func checkRecords(results []checks.Result) []CheckRecord {
	var out []CheckRecord
	for _, r := range results {
		more := int64(0)
		if r.Env.Count > len(r.Env.Names) {
			more = int64(r.Env.Count)
		}
		var early *EarlyRecord
		if x := r.Early; x != nil {
			early = &EarlyRecord{x.Began.UTC().Format(time.RFC3339Nano), wire.Baseline{Rev: x.Rev, Dirty: x.Dirty}}
		}
		out = append(out, CheckRecord{
			Early: early,
			Name:  r.Name, Status: r.Status.String(), ExitCode: int64(r.ExitCode), ElapsedMs: r.Elapsed.Milliseconds(),
			Isolation: r.Isolation.String(), Method: r.Method.String(), Runs: int64(r.Runs), Evidence: valid(r.Evidence), Env: validAll(r.Env.Names), EnvCount: more, Network: validAll(r.Network), Detail: valid(r.Detail),
		})
	}
	return out
}

func validAll(in []string) []string {
	var out []string
	for _, s := range in {
		out = append(out, valid(cut(s)))
	}
	return out
}

func imageRecord(i *commit.Image) *ImageRecord {
	if i == nil {
		return nil
	}
	r := &ImageRecord{Kind: "file", Digest: i.Digest.Blob(), Size: i.Size, Perm: int64(i.Perm)}
	if i.Kind == vfs.KindSymlink {
		r.Kind = "symlink"
	}
	if i.UmaskApplies {
		r.Perm = 0
	}
	return r
}

func factsRecord(f commit.Facts) *FactsRecord {
	r := &FactsRecord{
		Style: f.Style.String(), Syncs: int64(f.Syncs()), Exchanged: int64(f.Exchanged), Created: int64(f.Created),
		Deleted: int64(f.Deleted), Moved: int64(f.Moved), Beside: int64(f.Beside), Skipped: f.Skipped,
	}
	for _, m := range f.Mounts {
		r.Mounts = append(r.Mounts, m.Type+": "+m.Why)
	}
	for _, b := range f.Barriers {
		r.Barriers = append(r.Barriers, b.What)
	}
	return r
}
