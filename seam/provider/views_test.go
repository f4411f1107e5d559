package provider_test

import (
	"strings"
	"testing"

	"github.com/aspengine/asp/checks"
	"github.com/aspengine/asp/seam/provider"
	"github.com/aspengine/asp/seam/wire"
)

// said is an answer with findings on a.txt, by fingerprint.
func said(c wire.Comparison, fingerprints ...string) *checks.Accepted {
	a := &checks.Accepted{Digest: "sha256:00", Comparison: c, ValidAsOf: wire.AssessmentValidAsOf{Baseline: base, ChangesetDigest: "sha256:11", Blobs: []wire.BlobRef{}},
		Provider: wire.AssessmentProvider{ID: "p", Version: "1.0.0", ConfigDigest: "d", CapabilityVersion: "check/1.0"}}
	for _, f := range fingerprints {
		a.Diagnostics = append(a.Diagnostics, wire.Diagnostic{Code: "fake/bad", Severity: wire.SeverityError, Source: "fake", Message: "m", Location: wire.Location{Path: "a.txt"}, Fingerprint: f})
	}
	return a
}

// TestHeldToItsOwnViews: the fake finds one thing, with the fingerprint f, whatever the
// comparison is.
func TestHeldToItsOwnViews(t *testing.T) {
	const intro, all, resolved = wire.CompareIntroduced, wire.CompareAll, wire.CompareResolved
	elsewhere := said(all, "f")
	elsewhere.Diagnostics[0].Location.Path = "b/c.go"
	w := newWorld(t, nil)
	w.add("p")
	for name, c := range map[string]struct {
		asked  wire.Comparison
		views  provider.Views
		rename bool
		good   bool
	}{
		"nothing known":                     {intro, provider.Views{}, false, true},
		"there after the change":            {intro, provider.Views{All: said(all, "f")}, false, true},
		"not there after the change":        {intro, provider.Views{All: said(all)}, false, false},
		"there, among others":               {intro, provider.Views{All: said(all, "f", "g")}, false, true},
		"others were there before":          {intro, provider.Views{All: said(all, "f", "g"), Before: said(all, "g")}, false, true},
		"others were not":                   {intro, provider.Views{All: said(all, "f", "g"), Before: said(all)}, false, false},
		"it was there before":               {intro, provider.Views{All: said(all, "f"), Before: said(all, "f")}, false, false},
		"one more of the same":              {intro, provider.Views{All: said(all, "f", "f"), Before: said(all, "f")}, false, true},
		"before, on another path":           {intro, provider.Views{All: said(all, "f"), Before: elsewhere}, false, true},
		"a rename says nothing":             {intro, provider.Views{All: said(all, "f"), Before: said(all, "f")}, true, true},
		"all, and introduced was less":      {all, provider.Views{Introduced: said(intro), Before: said(all)}, false, false},
		"all, and introduced fits":          {all, provider.Views{Introduced: said(intro, "f"), Before: said(all)}, false, true},
		"all, and introduced was more":      {all, provider.Views{Introduced: said(intro, "f", "g")}, false, false},
		"all, nothing known of the before":  {all, provider.Views{Introduced: said(intro)}, false, true},
		"all, and resolved is there still":  {all, provider.Views{Resolved: said(resolved, "f"), Before: said(all, "f")}, false, false},
		"resolved, and it is gone":          {resolved, provider.Views{All: said(all), Before: said(all, "f")}, false, true},
		"resolved, and it was never there":  {resolved, provider.Views{All: said(all), Before: said(all)}, false, false},
		"resolved, and more was":            {resolved, provider.Views{All: said(all), Before: said(all, "f", "g")}, false, false},
		"the last answer alone is no bound": {intro, provider.Views{Last: said(all)}, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			must(t, w.pool.Reset("p"))
			r := w.check("p", provider.Settings{Comparison: string(c.asked)}, func(s *provider.Subject) {
				s.Views = c.views
				if c.rename {
					s.Changes = append(s.Changes, wire.Change{Path: "new", From: "twin", Kind: wire.KindRename, Before: blob("same\n"), After: blob("same\n")})
				}
			})
			if good := r.Status == checks.Passed || r.Status == checks.Failed; good != c.good || !good && (r.Status != checks.Malformed || !strings.Contains(r.Detail, "findings")) {
				t.Errorf("%s: %s", r.Status, r.Detail)
			}
			if r.Accepted == nil == c.good || c.good && (r.Accepted.Comparison != c.asked || len(r.Accepted.Diagnostics) != 1 || r.Accepted.Diagnostics[0].Source != "forged") {
				t.Errorf("accepted %+v", r.Accepted)
			}
		})
	}
}

// TestRemindersAreBounded: findings are told all or not at all.
func TestRemindersAreBounded(t *testing.T) {
	for name, c := range map[string]struct {
		n    int
		text string
		told bool
	}{
		"none":       {0, "m", true},
		"many":       {1000, "m", true},
		"too many":   {1001, "m", false},
		"too much":   {600, strings.Repeat("m", 2000), false},
		"asked anew": {-1, "m", false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, nil)
			w.add("p", "remember=yes")
			v := said(wire.CompareAll)
			for range c.n {
				v.Diagnostics = append(v.Diagnostics, wire.Diagnostic{Code: "fake/bad", Severity: wire.SeverityError, Source: "fake", Message: c.text, Location: wire.Location{Path: "a.txt"}, Fingerprint: "f"})
			}
			w.check("p", provider.Settings{}, func(s *provider.Subject) {
				if c.n >= 0 {
					s.Views.Before, s.Views.Last = v, v
				}
			})
			want := "prior absent assessments absent"
			if c.told {
				want = "prior there assessments there"
			} else if c.n >= 0 {
				want = "prior absent assessments there"
			}
			if got := w.said("p"); !strings.Contains(got, want) {
				t.Errorf("%q, want %s", got, want)
			}
		})
	}
}
