package policy

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/aspengine/asp/checks"
	"github.com/aspengine/asp/internal/canon"
	"github.com/aspengine/asp/internal/home"
	"github.com/aspengine/asp/internal/vfs"
	"github.com/aspengine/asp/seam/wire"
)

// Parse reads a policy back from its Value. problem is Policy.Problem of a
// rejected one. The digest is computed again.
func Parse(v canon.Value, problem string) (Policy, error) {
	c := Config{Value: v.Without("repository"), Providers: map[string]Provider{}, Sandbox: Sandbox{Require: wire.Advisory}}
	r := &reader{}
	p := Policy{Source: SourceBuiltin, Activation: Activated, Value: v, Digest: canon.DigestText(v)}
	if !r.object(v, "$", "!repository", "!floor", "!checks", "!sandbox", "!guaranteeCeiling", "!providers") {
		return Policy{}, &Error{"policy", r.problems}
	}
	var present []canon.Member
	for k, m := range v.Members() {
		if k != "repository" && m.Kind() != canon.Null {
			present = append(present, canon.Member{Key: k, Value: m})
		}
	}
	value := canon.ObjectOf(present...)
	readConfig(r, value, &c)
	switch repo, _ := v.Get("repository"); repo.Kind() {
	case canon.Null:
	case canon.String:
		p.Source, p.Activation, p.Problem = SourceRepository, Rejected, problem
		if repo.Str() != rejectedValue {
			r.fail("$.repository", "%.60q, must be %q", repo.Str(), rejectedValue)
		}
	default:
		q := readRepository(r, repo, "$.repository")
		p.Source, p.Repository = SourceRepository, &q
	}
	switch {
	case c.Floor != nil && p.Source == SourceRepository:
		p.Source = SourceBoth
	case c.Floor != nil:
		p.Source = SourceFloor
	}
	if len(r.problems) > 0 {
		return Policy{}, &Error{"policy", r.problems}
	}
	p.Config = c
	return p, nil
}

// rejectedValue stands for a committed policy outside its schema.
const rejectedValue = "rejected"

// keptDir holds every policy that a decision was made by, under its digest.
const keptDir = "policies"

// Keep stores the value of a policy in the state directory, for Replay; a policy
// that is there already costs one look. No barrier is asked for: what a power
// cut takes is stored again by the next decision, and until then a replay says
// that it is not kept. Policies are shared by all workspaces and few, one for
// every edit of the configuration; they are not removed.
func Keep(h *home.Home, p Policy) error {
	d, name, err := keptAs(h, p.Digest)
	if err != nil {
		return fmt.Errorf("keep policy %.100q: %w", p.Digest, err)
	}
	defer d.Close()
	b := p.Value.Bytes()
	if st, err := d.Lstat(name); err == nil && st.Kind == vfs.KindFile && st.Size == int64(len(b)) {
		return nil
	}
	_ = home.CleanTemp(d)
	if err := home.WriteFile(d, name, b); err != nil {
		return fmt.Errorf("keep policy %.100q: %w", p.Digest, err)
	}
	return nil
}

// Tidy removes what dead writers left where policies are kept.
func Tidy(h *home.Home) {
	d, err := h.Dir().OpenDir(keptDir)
	if err != nil {
		return
	}
	defer d.Close()
	_ = home.CleanTemp(d)
}

// ErrNotKept answers for a policy that no file holds.
var ErrNotKept = errors.New("the policy is not kept")

// Kept reads a policy that Keep stored, and holds its bytes against the digest.
func Kept(h *home.Home, digest string) (canon.Value, error) {
	d, name, err := keptAs(h, digest)
	if err != nil {
		return canon.Value{}, fmt.Errorf("read policy %.100q: %w", digest, err)
	}
	defer d.Close()
	b, err := home.ReadFile(d, name, 4*MaxFile)
	if errors.Is(err, fs.ErrNotExist) {
		return canon.Value{}, ErrNotKept
	}
	if err != nil {
		return canon.Value{}, fmt.Errorf("read policy %.100q: %w", digest, err)
	}
	v, err := canon.Parse(b, canon.Limits{Bytes: 4 * MaxFile})
	if err == nil && canon.DigestText(v) != digest {
		err = errors.New("the file was changed")
	}
	if err != nil {
		return canon.Value{}, fmt.Errorf("read policy %.100q: %w", digest, err)
	}
	return v, nil
}

func keptAs(h *home.Home, digest string) (vfs.Dir, string, error) {
	hex, ok := strings.CutPrefix(digest, "sha256:")
	if !ok || len(hex) != 64 || strings.Trim(hex, "0123456789abcdef") != "" {
		return nil, "", fmt.Errorf("%.100q is no digest", digest)
	}
	d, err := h.Sub(keptDir)
	return d, hex + ".json", err
}

// record is a Question as canonical data.
type record struct {
	CallSite         wire.CallSite      `json:"callSite"`
	Named            []string           `json:"named,omitzero"`
	Results          []result           `json:"results"`
	Apply            bool               `json:"apply"`
	BasePolicyDigest string             `json:"basePolicyDigest,omitempty"`
	Blocking         []wire.Degradation `json:"blocking,omitzero"`
	Candidate        *wire.Degradation  `json:"candidate,omitempty"`
	// Problem of a rejected policy, which its value does not hold.
	Problem string `json:"problem,omitempty"`
}

type result struct {
	Name        string             `json:"name"`
	Status      string             `json:"status"`
	Isolation   string             `json:"isolation"`
	Findings    []finding          `json:"findings,omitzero"`
	ExitCode    int64              `json:"exitCode,omitempty"`
	Evidence    string             `json:"evidence,omitempty"`
	Detail      string             `json:"detail,omitempty"`
	Provider    *participant       `json:"provider,omitempty"`
	Family      wire.Family        `json:"family,omitempty"`
	Diagnostics []wire.Diagnostic  `json:"diagnostics,omitzero"`
	More        int64              `json:"more,omitempty"`
	MoreBlocks  int64              `json:"moreBlocking,omitempty"`
	Reason      wire.DegradeReason `json:"reason,omitempty"`
	State       wire.Lifecycle     `json:"state,omitempty"`
	FailClass   string             `json:"failClass,omitempty"`
	Comparison  string             `json:"comparison,omitempty"`
	Cache       string             `json:"cache,omitempty"`
}

type finding struct {
	Code     string `json:"code"`
	Message  string `json:"message"`
	Path     string `json:"path,omitempty"`
	Line     int64  `json:"line,omitempty"`
	NextStep string `json:"nextStep,omitempty"`
}

type participant struct {
	ID            string        `json:"id"`
	Version       string        `json:"version"`
	Publisher     string        `json:"publisher"`
	Fingerprint   string        `json:"fingerprint"`
	Profiles      []string      `json:"profiles"`
	Families      []wire.Family `json:"families"`
	ServerVersion string        `json:"serverVersion,omitempty"`
	Mode          wire.Mode     `json:"mode,omitempty"`
	Verified      bool          `json:"verified"`
	NoChecksums   bool          `json:"noChecksums,omitempty"`
	ConfigDigest  string        `json:"configDigest,omitempty"`
	PinnedConfig  string        `json:"pinnedConfig,omitempty"`
	DirectWrite   bool          `json:"directWrite,omitempty"`
	FastPath      string        `json:"fastPath,omitempty"`
}

// Record is everything of a question that the decision depends on, as canonical
// data for the evidence of its receipt. Text longer than a decision shows, and
// findings beyond those that it lists, are left out; ParseRecord and Decide give
// the same decision all the same. So are the largest of fixes that come to more than
// 8 MiB together.
func Record(p Policy, q Question) (canon.Value, error) {
	rec := record{CallSite: q.CallSite, Named: trimAll(q.Named), Results: []result{}, Apply: q.Apply, BasePolicyDigest: trim(q.BasePolicyDigest, maxDetail),
		Candidate: q.Candidate, Problem: trim(p.Problem, maxDetail)}
	for _, g := range q.Blocking {
		g.Source, g.Detail = trim(g.Source, maxDetail), trim(g.Detail, maxMessage)
		rec.Blocking = append(rec.Blocking, g)
	}
	for _, r := range q.Results {
		w := result{Name: r.Name, Status: r.Status.String(), Isolation: r.Isolation.String(), ExitCode: int64(r.ExitCode), Evidence: trim(r.Evidence, maxDetail),
			Detail: trim(r.Detail, maxDetail), Family: r.Family, More: int64(r.More), MoreBlocks: int64(r.MoreBlocking), Reason: r.Reason, State: r.State, FailClass: trim(string(r.FailClass), 100),
			Comparison: trim(r.Comparison, 100), Cache: trim(r.Cache, 100)}
		for i, f := range r.Findings {
			if i == maxFindings {
				w.More += int64(len(r.Findings) - i)
				break
			}
			w.Findings = append(w.Findings, finding{trim(f.Code, 200), trim(f.Message, maxMessage), trim(f.Path, 4096), int64(f.Line), trim(f.NextStep, maxDetail)})
		}
		if who := r.Provider; who != nil {
			w.Provider = &participant{ID: trim(who.ID, maxDetail), Version: trim(who.Version, 200), Publisher: trim(who.Publisher, maxDetail),
				Fingerprint: trim(who.Fingerprint, maxDetail), Profiles: trimAll(who.Profiles), Families: who.Families, ServerVersion: trim(who.ServerVersion, 200),
				Mode: who.Mode, Verified: who.Verified, NoChecksums: who.NoChecksums, ConfigDigest: trim(who.ConfigDigest, 200), PinnedConfig: trim(who.PinnedConfig, 200),
				DirectWrite: who.DirectWrite, FastPath: trim(who.FastPath, maxDetail)}
			w.shorten(r)
		}
		rec.Results = append(rec.Results, w)
	}
	rec.boundFixes()
	v, err := canon.From(rec)
	if err != nil {
		return v, fmt.Errorf("record what was decided on: %w", err)
	}
	return v, nil
}

// shorten keeps the diagnostics that a decision shows.
func (w *result) shorten(r checks.Result) {
	shown, more := worstFirst(r)
	for _, g := range shown {
		g.Code, g.Message, g.Help = trim(g.Code, 200), trim(g.Message, maxMessage), trim(g.Help, maxDetail)
		w.Diagnostics = append(w.Diagnostics, g)
	}
	if w.More += int64(more); more == 0 {
		return
	}
	w.MoreBlocks = 0
	for _, g := range r.Diagnostics {
		if gating(g, r.Comparison) == "" {
			w.MoreBlocks++
		}
	}
	w.MoreBlocks = max(0, w.MoreBlocks-int64(len(shown))) + int64(r.MoreBlocking)
}

// trim makes foreign text valid and keeps twice as much of it as is ever shown,
// so that cutting it again gives what cutting the whole gave.
func trim(s string, shown int) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if len(s) <= 2*shown {
		return s
	}
	return strings.ToValidUTF8(s[:2*shown], "")
}

func trimAll(in []string) []string {
	var out []string
	for _, s := range in {
		out = append(out, trim(s, maxDetail))
	}
	return out
}

// Replay decides once more on a recorded question by a recorded policy. It
// returns the digest of that policy, computed again.
func Replay(value, rec canon.Value) (Decision, string, error) {
	var w record
	if err := wire.Decode(rec, &w); err != nil {
		return Decision{}, "", fmt.Errorf("read what was decided on: %w", err)
	}
	p, err := Parse(value, w.Problem)
	if err != nil {
		return Decision{}, "", err
	}
	q := Question{CallSite: w.CallSite, Named: w.Named, Apply: w.Apply, BasePolicyDigest: w.BasePolicyDigest, Blocking: w.Blocking, Candidate: w.Candidate}
	for _, r := range w.Results {
		c := checks.Result{Name: r.Name, ExitCode: int(r.ExitCode), Evidence: r.Evidence, Detail: r.Detail, Provided: checks.Provided{
			Family: r.Family, Diagnostics: r.Diagnostics, More: int(r.More), MoreBlocking: int(r.MoreBlocks), Reason: r.Reason, State: r.State, FailClass: wire.FailClass(r.FailClass),
			Comparison: r.Comparison, Cache: r.Cache,
		}}
		for c.Status = checks.Passed; c.Status.String() != r.Status; c.Status++ {
			if c.Status.String() == checks.StatusInvalid.String() { // past the last one
				c.Status = checks.StatusInvalid
				break
			}
		}
		if c.Isolation, _ = checks.ParseIsolation(r.Isolation); c.Isolation.String() != r.Isolation {
			return Decision{}, "", fmt.Errorf("read what was decided on: isolation %.60q is none", r.Isolation)
		}
		for _, f := range r.Findings {
			c.Findings = append(c.Findings, checks.Finding{Code: f.Code, Message: f.Message, Path: f.Path, Line: int(f.Line), NextStep: f.NextStep})
		}
		if who := r.Provider; who != nil {
			c.Provider = &checks.Participant{ID: who.ID, Version: who.Version, Publisher: who.Publisher, Fingerprint: who.Fingerprint, Profiles: slices.Clone(who.Profiles),
				Families: who.Families, ServerVersion: who.ServerVersion, Mode: who.Mode, Verified: who.Verified, NoChecksums: who.NoChecksums, ConfigDigest: who.ConfigDigest,
				PinnedConfig: who.PinnedConfig, DirectWrite: who.DirectWrite, FastPath: who.FastPath}
		}
		q.Results = append(q.Results, c)
	}
	return Decide(p, q), p.Digest, nil
}
