package apply_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/aspengine/asp/apply"
	"github.com/aspengine/asp/checks"
	"github.com/aspengine/asp/internal/canon"
	"github.com/aspengine/asp/receipt"
	"github.com/aspengine/asp/seam/provider"
	"github.com/aspengine/asp/seam/wire"
)

// TestNetworkIsNotRemembered: what a provider says that may reach the network depends on more
// than the question. It is asked each time, and reminded of nothing.
func TestNetworkIsNotRemembered(t *testing.T) {
	for _, reach := range [][]string{nil, {"https://a.example:443"}} {
		c := &crew{roster: []provider.Standing{running(standing("p", wire.Gated, wire.Check))}}
		c.roster[0].Participant.Network = reach
		h := newHosted(t, "", pins("p", checkOnly, "gated", wire.Gate), c, map[string]string{"a": "1\n"})
		h.verdicts = apply.NewVerdicts(100)
		reminded := 0
		c.check = func(_ context.Context, id string, s provider.Subject, _ provider.Settings) checks.Result {
			if s.Views.Last != nil || s.Views.Introduced != nil {
				reminded++
			}
			r := c.said(id, checks.Passed)
			r.Accepted = &checks.Accepted{Comparison: wire.CompareIntroduced}
			return r
		}
		for _, after := range []string{"3\n", "3\n", "4\n"} {
			ev, err := h.evaluate(apply.EvaluateRequest{CallSite: wire.Gate, Blobs: put(after)}, wire.Change{Path: "a", Kind: wire.KindModify, Before: blobID("1\n"), After: blobID(after)})
			if err != nil || ev.Verdict.Decision != wire.Allow {
				t.Fatalf("%+v %v", ev, err)
			}
		}
		want, words := 2, 1 // without a network the second question is the first, and the third is reminded of it
		if reach != nil {
			want, words = 3, 0
		}
		if len(c.asked) != want || reminded != words {
			t.Errorf("reaching %v: asked %v, reminded %d times", reach, c.asked, reminded)
		}
	}
}

// TestNetworkInEvidence: what a provider asked for stands beside the receipt of whatever it was
// asked: a plan, what is applied of it, a query, an assessment, and each that failed.
func TestNetworkInEvidence(t *testing.T) {
	asked := func(what string) []string { return []string{`connected "https://` + what + `.example:443"`} }
	h := editing(t, pins("ed", editOnly, "gated"), wire.Gated)
	c := h.crew
	honest := c.propose
	c.propose = func(id string, q provider.ProposeRequest) (provider.Proposal, error) {
		p, err := honest(id, q)
		p.Network = asked("plan")
		return p, err
	}
	record := func(kind wire.ReceiptKind, want ...string) {
		t.Helper()
		all := h.stored()
		i := slices.IndexFunc(all, func(s *receipt.Stored) bool { return s.Receipt.Kind == kind })
		if i < 0 {
			t.Fatalf("no receipt of kind %s", kind)
		}
		list, _ := all[i].Evidence.Get("network")
		if got := string(list.Bytes()); got != "["+strings.Join(want, ",")+"]" {
			t.Errorf("%s: %s", kind, got)
		}
	}
	line := func(f wire.Family, what string) string {
		return fmt.Sprintf(`{"asked":["connected \"https://%s.example:443\""],"for":"%s","provider":"ed"}`, what, f)
	}
	if _, err := h.requestEdit("p1", "2\n"); err != nil {
		t.Fatal(err)
	}
	record(wire.ReceiptEditRequest, line(wire.Edit, "plan"))
	h.applyProposal(wire.ApplyProposalParams{ProposalID: "p1"}, nil)
	record(wire.ReceiptApplyAttempt, line(wire.Edit, "plan"))

	c.roster = []provider.Standing{standing("ed", wire.Gated, wire.Edit, wire.Inspect)}
	c.query = func(_ string, q provider.QueryRequest) (provider.Answer, error) {
		v, err := canon.Parse([]byte(`{"nodes":[],"edges":[],"validAsOf":{"rev":"`+q.Baseline.Rev+`","blobs":[]}}`), canon.Limits{})
		return provider.Answer{Value: v, Complete: true, Participant: c.roster[0].Participant, Network: asked("query")}, err
	}
	call := canon.ObjectOf(canon.Member{Key: "method", Value: canon.StringOf("inspect/references")}, canon.Member{Key: "params", Value: canon.ObjectOf(
		canon.Member{Key: "symbol", Value: canon.ObjectOf(canon.Member{Key: "id", Value: canon.StringOf("n")})})})
	if _, err := h.engine().Inspect(context.Background(), apply.InspectRequest{CallSite: wire.Gate, Request: call}); err != nil {
		t.Fatal(err)
	}
	record(wire.ReceiptInspect, line(wire.Inspect, "query"))

	c.propose = func(id string, _ provider.ProposeRequest) (provider.Proposal, error) {
		return provider.Proposal{}, &provider.Failure{Provider: id, Reason: wire.DegradeMalformed, State: wire.Malformed, Class: wire.FailContract,
			Detail: "no plan", Participant: c.roster[0].Participant, Network: asked("failure")}
	}
	if _, err := h.requestEdit("p2", "3\n"); err == nil {
		t.Fatal("no error")
	}
	record(wire.ReceiptProviderFailure, line(wire.Edit, "failure"))
}

// TestNetworkIsAlwaysTold: nothing that a provider does with its answer keeps what it reached
// out of the receipts.
func TestNetworkIsAlwaysTold(t *testing.T) {
	reached := []string{`connected "https://far.example:443"`}
	told := func(h *hosted) bool {
		return slices.ContainsFunc(h.stored(), func(s *receipt.Stored) bool { return strings.Contains(string(s.Evidence.Bytes()), "far.example") })
	}
	for name, answer := range map[string]func(h *hosted, id string, p *provider.Proposal) error{
		"no content":   func(_ *hosted, _ string, p *provider.Proposal) error { p.Blobs = nil; return nil },
		"direct write": func(_ *hosted, _ string, p *provider.Proposal) error { p.Participant.DirectWrite = true; return nil },
		"no method": func(_ *hosted, id string, p *provider.Proposal) error {
			return &provider.Failure{Provider: id, Reason: wire.DegradeUnsupported, State: wire.Active, Class: wire.FailContract, Detail: "no method", Network: reached}
		},
		"no such operation, and the next one fails": func(h *hosted, id string, p *provider.Proposal) error {
			if id == "ed2" {
				return &provider.Failure{Provider: id, Reason: wire.DegradeMalformed, State: wire.Malformed, Class: wire.FailContract, Detail: "x", Participant: h.crew.roster[1].Participant}
			}
			p.Decoded.Status = wire.StatusUnsupported
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := editing(t, pins("ed", editOnly, "gated"), wire.Gated)
			h.crew.roster = append(h.crew.roster, standing("ed2", wire.Gated, wire.Edit))
			honest := h.crew.propose
			h.crew.propose = func(id string, q provider.ProposeRequest) (provider.Proposal, error) {
				p, err := honest(id, q)
				if id == "ed" {
					p.Network = reached
				}
				return p, errors.Join(err, answer(h, id, &p))
			}
			if _, err := h.requestEdit("p1", "2x\n"); err == nil {
				t.Error("no error")
			}
			if !told(h) {
				t.Error("no receipt tells")
			}
		})
	}
	t.Run("asked again twice", func(t *testing.T) {
		h := editing(t, pins("ed", editOnly, "gated"), wire.Gated)
		n := 0
		h.crew.propose = func(id string, q provider.ProposeRequest) (provider.Proposal, error) {
			was := h.read("a")
			if n++; n == 2 {
				was = "1\n" // which it is not any more
			}
			p := proposal(t, h.crew, id, q.ProposalID, q.Baseline, "a", was, "2\n")
			if n == 2 {
				p.Network = reached
			}
			return p, nil
		}
		if _, err := h.requestEdit("p1", ""); err != nil {
			t.Fatal(err)
		}
		h.write("a", "mine\n")
		if a := h.applyProposal(wire.ApplyProposalParams{ProposalID: "p1"}, nil); n != 3 || code(a) != "" || !told(h) {
			t.Errorf("asked %d times, %q, told %v", n, code(a), told(h))
		}
	})
}
