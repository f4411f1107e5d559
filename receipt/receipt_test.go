package receipt_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/aspengine/asp/internal/canon"
	"github.com/aspengine/asp/internal/home"
	"github.com/aspengine/asp/internal/vfs"
	"github.com/aspengine/asp/receipt"
	"github.com/aspengine/asp/seam/wire"
)

var ctx = context.Background()

// place is one workspace's state on disk, which tests may damage.
type place struct {
	t    *testing.T
	path string // of the workspace's state
	st   *home.State
}

func newPlace(t *testing.T) *place {
	t.Helper()
	return openPlace(t, filepath.Join(t.TempDir(), "asp"))
}

func openPlace(t *testing.T, aspHome string) *place {
	t.Helper()
	h, err := home.Open(vfs.OS{}, aspHome)
	if err != nil {
		t.Fatal(err)
	}
	st, err := h.Workspace(home.Identity{Root: "/work", GitDir: "/work/.git"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(st.Close(), h.Close()); err != nil {
			t.Error(err)
		}
	})
	return &place{t, st.Path(""), st}
}

func (p *place) store(o receipt.Options) *receipt.Store {
	p.t.Helper()
	s, err := receipt.Open(p.st, o)
	if err != nil {
		p.t.Fatal(err)
	}
	return s
}

func (p *place) file(name string) string { return filepath.Join(p.path, name) }

func draft(n int) receipt.Draft {
	at := time.Date(2026, 5, 4, 3, 2, n%60, 1000*n, time.UTC)
	return receipt.Draft{
		Kind: wire.ReceiptApplyAttempt, Family: wire.Edit, CallSite: wire.Interactive,
		RequestDigest: "sha256:r", ProposalID: fmt.Sprintf("p-%d", n), PolicyDigest: "sha256:p",
		Baseline: wire.Baseline{Rev: "tree:sha256:00"}, Started: at.Add(-time.Second), Ended: at,
	}
}

func entry(n int) receipt.Entry {
	return receipt.Entry{
		Receipt: receipt.New(draft(n), "1.2.3"), Outcome: receipt.Applied, Provider: "prov", PlanDigest: "sha256:d",
		Result: canon.ObjectOf(canon.Member{Key: "n", Value: canon.IntOf(int64(n))}),
	}
}

// fill appends and syncs n entries, and returns their ids.
func fill(t *testing.T, s *receipt.Store, from, n int) []string {
	t.Helper()
	var ids []string
	for i := range n {
		st, err := s.Append(ctx, entry(from+i))
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, st.Receipt.ReceiptID)
		if err := s.Sync(home.EachFile); err != nil {
			t.Fatal(err)
		}
	}
	return ids
}

func verified(t *testing.T, s *receipt.Store) receipt.Report {
	t.Helper()
	r, err := s.Verify(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func wantOK(t *testing.T, s *receipt.Store, n int) {
	t.Helper()
	if r := verified(t, s); !r.OK || r.Checked != n || len(r.Problems) > 0 {
		t.Fatalf("Verify = %+v, want %d receipts and no problem", r, n)
	}
}

func TestChain(t *testing.T) {
	p := newPlace(t)
	s := p.store(receipt.Options{})
	wantOK(t, s, 0)
	ids := fill(t, s, 0, 5)
	wantOK(t, s, 5)
	previous := ""
	for i, id := range ids {
		b, err := os.ReadFile(p.file("receipts/" + id + ".json"))
		if err != nil {
			t.Fatal(err)
		}
		st, err := s.Get(id)
		if err != nil {
			t.Fatal(err)
		}
		if st.Previous != previous {
			t.Errorf("receipt %d names %q, want the digest of its predecessor's file, %q", i, st.Previous, previous)
		}
		previous = fmt.Sprintf("sha256:%x", sha256.Sum256(b))
		if st.Digest != previous || st.Provider() != "prov" || st.PlanDigest() != "sha256:d" {
			t.Errorf("receipt %d: %+v", i, st)
		}
		if got := string(st.Value().Bytes()); got != string(b) {
			t.Errorf("Value differs from the file: %s", got)
		}
	}
	l, err := s.List(ctx)
	if err != nil || len(l) != 5 {
		t.Fatalf("List = %v, %v", l, err)
	}
	for i, e := range l {
		if e.ReceiptID != ids[i] || e.Kind != "apply-attempt" || e.Outcome != receipt.Applied || e.ProposalID != fmt.Sprintf("p-%d", i) {
			t.Errorf("List[%d] = %+v", i, e)
		}
	}
	if _, err := s.Get("rcpt-20260101T000000000000Z-0000000000000000"); !errors.Is(err, receipt.ErrNoReceipt) {
		t.Errorf("Get of an unknown id: %v", err)
	}
	if _, err := s.Get("../workspace"); !errors.Is(err, receipt.ErrNoReceipt) {
		t.Errorf("Get of a path: %v", err)
	}
	for _, name := range []string{"receipts.next"} {
		if _, err := os.Lstat(p.file(name)); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s is left after Sync: %v", name, err)
		}
	}
}

func TestAppendRefuses(t *testing.T) {
	p := newPlace(t)
	s := p.store(receipt.Options{})
	first := entry(1)
	if _, err := s.Append(ctx, first); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*receipt.Entry){
		"the same id":  func(e *receipt.Entry) { e.Receipt.ReceiptID = first.Receipt.ReceiptID },
		"a foreign id": func(e *receipt.Entry) { e.Receipt.ReceiptID = "../../x" },
		"an outcome":   func(e *receipt.Entry) { e.Outcome = "done" },
		"a trust":      func(e *receipt.Entry) { e.Receipt.TrustArtifact = true },
		"a kind":       func(e *receipt.Entry) { e.Receipt.Kind = "gossip" },
		"the evidence": func(e *receipt.Entry) { e.Provider, e.PlanDigest, e.Evidence = "", "", canon.StringOf("x") },
	} {
		e := entry(2)
		change(&e)
		if _, err := s.Append(ctx, e); err == nil {
			t.Errorf("an entry wrong in %s was kept", name)
		}
	}
	wantOK(t, s, 1)
	ended, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := s.List(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("List = %v", err)
	}
}

func TestNewMirrorsAndMatchesTheSchema(t *testing.T) {
	d := draft(3)
	d.Coverage = wire.Coverage{
		Required: []string{"command/vet"}, Enrolled: []string{"command/vet"},
		Degraded: []wire.Degradation{{Source: "command/vet", Reason: wire.DegradeTimedOut, Requirement: "command/vet", Detail: "30 s", Capability: wire.Check}},
	}
	d.Failures = []wire.Degradation{{Source: "prov", Reason: wire.DegradeOptionalDegraded, Detail: "x"}}
	d.Providers = []wire.ProviderProvenance{{Provider: "prov", Capability: wire.Edit, Identity: "i", Integrity: "sha256:1"}}
	d.ProviderIDs = []string{"prov", "other", "other"}
	r := receipt.New(d, "0.0.1")
	if len(r.Failures) != 2 || r.Failures[0].Reason != wire.DegradeTimedOut {
		t.Errorf("failures = %+v", r.Failures)
	}
	if strings.Join(r.ProviderIDs, " ") != "prov other" {
		t.Errorf("provider ids = %v", r.ProviderIDs)
	}
	if !r.PrivateOnly || !r.Experimental || r.TrustArtifact {
		t.Error("the constants are wrong")
	}
	if r.Timing.ElapsedMs != 1000 || r.IssuedAt != "2026-05-04T03:02:03.000Z" {
		t.Errorf("timing = %+v, issued %s", r.Timing, r.IssuedAt)
	}
	if a, b := receipt.NewID(d.Kind, d.Ended), receipt.NewID(d.Kind, d.Ended); a == b {
		t.Error("the same id twice")
	}
	schema := publicSchema(t, "verdict.schema.json#/$defs/auditReceipt")
	empty := draft(1)
	empty.CallSite, empty.ProposalID = "", ""
	empty.Ended = time.Time{} // a clock that runs backwards
	for _, r := range []wire.AuditReceipt{r, receipt.New(empty, "dev")} {
		v, err := canon.From(r)
		if err != nil {
			t.Fatal(err)
		}
		doc, err := jsonschema.UnmarshalJSON(strings.NewReader(string(v.Bytes())))
		if err != nil {
			t.Fatal(err)
		}
		if err := schema.Validate(doc); err != nil {
			t.Error(err)
		}
	}
}

// publicSchema compiles one of the public schemas: those of ASP_SCHEMA_DIR, or
// of shared/asp/schemas beside one of our parents.
func publicSchema(t *testing.T, name string) *jsonschema.Schema {
	t.Helper()
	dir := os.Getenv("ASP_SCHEMA_DIR")
	if dir == "" {
		wd, err := os.Getwd()
		if err != nil {
			t.Fatal(err)
		}
		for ; wd != filepath.Dir(wd) && dir == ""; wd = filepath.Dir(wd) {
			if s := filepath.Join(wd, "shared", "asp", "schemas"); exists(s) {
				dir = s
			}
		}
	}
	if dir == "" {
		t.Skip("the public schemas are not here; set ASP_SCHEMA_DIR")
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.schema.json"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no schemas in %s: %v", dir, err)
	}
	const base = "https://covibes.dev/asp/schemas/"
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	for _, f := range files {
		in, err := os.Open(f)
		if err != nil {
			t.Fatal(err)
		}
		doc, err := jsonschema.UnmarshalJSON(in)
		in.Close()
		if err != nil {
			t.Fatal(err)
		}
		if err := c.AddResource(base+filepath.Base(f), doc); err != nil {
			t.Fatal(err)
		}
	}
	s, err := c.Compile(base + name)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func exists(p string) bool { _, err := os.Stat(p); return err == nil }
