package apply_test

import (
	"context"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/aspengine/asp/apply"
	"github.com/aspengine/asp/checks"
	"github.com/aspengine/asp/internal/canon"
	"github.com/aspengine/asp/internal/need"
	"github.com/aspengine/asp/seam/wire"
)

// SB-01 through the engine: isolated is what is asked for and proved, and never what a
// run without a proof says.
func TestSB01_IsolatedIsAskedFor(t *testing.T) {
	const config = `{"checks":{"look":{"argv":["sh","-c","test ! -e /etc/shadow && test ! -e /sys && test -e a.txt"]}}%}`
	b := newBed(t, strings.Replace(config, "%", "", 1), twoFiles)
	e := b.open()
	caps, err := e.Caps(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if !caps.CanIsolate() {
		need.Missing(t, "this machine cannot isolate: %s", caps.MissingIsolation())
	}
	proof, err := e.Isolation(context.Background())
	if err != nil || len(proof.Attempts) == 0 {
		t.Fatalf("proof: %v, %+v", err, proof)
	}
	s, err := e.Status(context.Background(), apply.SurfaceRequest{})
	if err != nil || !slices.Contains(s.Result.AssuranceCapabilities, wire.Isolated) {
		t.Errorf("status: %v, %v", err, s.Result.AssuranceCapabilities)
	}
	// Not asked for: the machine's files are there, and the check says so.
	a, err := b.apply(apply.Request{Load: plan("p1", bothFiles), Checks: []string{"look"}})
	if err != nil || a.Result.Applied || len(a.Checks) != 1 || a.Checks[0].Status != checks.Failed || a.Checks[0].Isolation != checks.MediatedWrite {
		t.Fatalf("%v %s", err, codes(a))
	}
	a, err = b.apply(apply.Request{Load: plan("p2", bothFiles), Checks: []string{"look"}, RequireAssurance: checks.Isolated})
	if err != nil || !a.Result.Applied || a.Result.Assurance.Mode != wire.Isolated || !strings.Contains(a.Result.Assurance.Detail, "attempts from inside") {
		t.Errorf("asked for: %v %s %+v", err, codes(a), a.Result.Assurance)
	}
	// What was tried stands beside the receipt, under the digest that the assurance names.
	st, err := b.open().Receipts().Get(a.Result.Receipt.ReceiptID)
	if err != nil {
		t.Fatal(err)
	}
	probes, _ := st.Evidence.Get("probes")
	records := 0
	for _, p := range probes.Elements() {
		records++
		digest, _ := p.Get("digest")
		tried, _ := p.Get("attempts")
		lines := 0
		for _, x := range tried.Elements() {
			if lines++; !strings.HasPrefix(x.Str(), "held: ") {
				t.Error(x.Str())
			}
		}
		if !strings.Contains(a.Result.Assurance.Detail, digest.Str()) || canon.DigestText(tried) != digest.Str() || lines < 30 {
			t.Errorf("record %s of %d attempts; detail %s", digest.Str(), lines, a.Result.Assurance.Detail)
		}
	}
	if records != 1 {
		t.Errorf("%d records of probes", records)
	}
	c := newBed(t, strings.Replace(config, "%", `,"sandbox":{"require":"isolated"}`, 1), twoFiles)
	a, err = c.apply(apply.Request{Load: plan("p1", bothFiles), Checks: []string{"look"}})
	if err != nil || !a.Result.Applied || a.Result.Assurance.Mode != wire.Isolated {
		t.Errorf("configured: %v %s %+v", err, codes(a), a.Result.Assurance)
	}
	// Nobody took part, so nothing was proved.
	n := newBed(t, "", twoFiles)
	a, err = n.apply(apply.Request{Load: plan("p1", bothFiles), RequireAssurance: checks.Isolated})
	if err != nil || codes(a) != "weak-assurance " || n.read("a.txt") != "one\n" {
		t.Errorf("without a check: %v %s", err, codes(a))
	}
}

// The time that is configured for all bounds a check that gives itself more.
func TestWallClockBoundsTheChecksOwnTime(t *testing.T) {
	const config = `{"checks":{"slow":{"argv":["sleep","1000"],"timeoutMs":900000}},"sandbox":{"limits":{"wallclockMs":200}}}`
	a, err := newBed(t, config, twoFiles).apply(apply.Request{Load: plan("p1", bothFiles), Checks: []string{"slow"}})
	if err != nil || a.Result.Applied || len(a.Checks) != 1 || a.Checks[0].Status != checks.TimedOut {
		t.Errorf("%v %s %+v", err, codes(a), a.Checks)
	}
}

// What a launch proves is asked anew where more is to be read, reached or limited, and with
// what is configured.
func TestIsolationIsOfWhatIsConfigured(t *testing.T) {
	machine := apply.NewMachine()
	b := newBed(t, "", twoFiles)
	for _, c := range []struct{ config, evidence string }{
		{`{}`, "tried to exceed: descriptors; set, not tried: wall clock"},
		{`{"sandbox":{"limits":{"memoryMb":200,"fileMb":5}}}`, "tried to exceed: descriptors, file size, memory of a process"},
		{`{"sandbox":{"network":["a.invalid:443"]}}`, "only a.invalid:443 is let through"},
	} {
		if err := os.WriteFile(b.home.Path("config.json"), []byte(c.config), 0o600); err != nil {
			t.Fatal(err)
		}
		e, err := apply.Open(t.Context(), apply.Options{Dir: b.root, Home: b.home, Version: "test", Machine: machine})
		if err != nil {
			t.Fatal(err)
		}
		proof, err := e.Isolation(t.Context())
		e.Close()
		if err != nil || !strings.Contains(proof.Evidence, c.evidence) {
			t.Errorf("%s: %v, %s", c.config, err, proof.Evidence)
		}
	}
}
