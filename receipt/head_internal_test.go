package receipt

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/aspengine/asp/internal/canon"
	"github.com/aspengine/asp/seam/wire"
)

// What a glance says of a head is what reading it says; and it says nothing of
// a head in which any byte of the entry is another.
func TestGlanceAgreesWithReading(t *testing.T) {
	d := Draft{Kind: wire.ReceiptApplyAttempt, Family: wire.Edit, CallSite: wire.Interactive, RequestDigest: digestOf(nil), ProposalID: "p\"1\\",
		PolicyDigest: digestOf(nil), Baseline: wire.Baseline{Rev: "r"}, Started: time.Unix(1, 0), Ended: time.Unix(2, 0)}
	e := Entry{Receipt: New(d, "test"), Outcome: Refused, Evidence: canon.ObjectOf(canon.Member{Key: "note", Value: canon.StringOf(`,"entry":null,{[`)})}
	st, err := e.seal("")
	if err != nil {
		t.Fatal(err)
	}
	h := &head{count: 3, bytes: 700, results: 2, boot: "b", entry: st, breaks: []string{`,"entry":null,`}, partner: partner{2, "d"}, pruned: checkpoint{Count: 1}}
	text, err := h.text()
	if err != nil {
		t.Fatal(err)
	}
	v, err := canon.Parse(text, limits)
	if err != nil || string(v.Bytes()) != string(text) {
		t.Fatalf("a head is not written in canonical form: %v: %s", err, text)
	}
	full, err := parseHead(text)
	if err != nil {
		t.Fatal(err)
	}
	quick, ok := glanceHead(text)
	if !ok {
		t.Fatal("a good head is not seen at a glance")
	}
	if full.digest() != quick.digest() || full.entry.Receipt.ReceiptID != quick.entry.Receipt.ReceiptID || string(full.entry.raw) != string(quick.entry.raw) {
		t.Errorf("entry %s of %s, read as %s of %s", quick.digest(), quick.entry.Receipt.ReceiptID, full.digest(), full.entry.Receipt.ReceiptID)
	}
	full.entry, quick.entry = nil, nil
	if d := cmp.Diff(full, quick, cmp.AllowUnexported(head{})); d != "" {
		t.Error(d)
	}
	for i := range text {
		for _, c := range []byte{text[i] ^ 1, '"', '}', 0} {
			bad := append([]byte(nil), text...)
			if bad[i] = c; text[i] == c {
				continue
			}
			q, ok := glanceHead(bad)
			if !ok {
				continue
			}
			f, err := parseHead(bad)
			if err != nil {
				t.Fatalf("byte %d made %q: a glance takes what reading refuses: %v", i, c, err)
			}
			f.entry, q.entry = nil, nil
			if d := cmp.Diff(f, q, cmp.AllowUnexported(head{})); d != "" {
				t.Fatalf("byte %d made %q: %s", i, c, d)
			}
		}
	}
	for _, s := range []string{"", "{}", `{"entry":{}}`, strings.Replace(string(text), `"format":2`, `"format":9`, 1), string(text[:len(text)-1])} {
		if _, ok := glanceHead([]byte(s)); ok {
			t.Errorf("%.60q is taken for a head", s)
		}
	}
}
