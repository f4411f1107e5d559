package receipt_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/aspengine/asp/internal/home"
	"github.com/aspengine/asp/receipt"
	"github.com/aspengine/asp/seam/wire"
)

// answer is an entry of another kind than an attempt to apply.
func answer(n int, kind wire.ReceiptKind) receipt.Entry {
	d := draft(n)
	d.Kind, d.ProposalID = kind, ""
	return receipt.Entry{Receipt: receipt.New(d, "1.2.3"), Outcome: receipt.Answered}
}

func add(t *testing.T, s *receipt.Store, e receipt.Entry) string {
	t.Helper()
	st, err := s.Append(ctx, e)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Sync(home.EachFile); err != nil {
		t.Fatal(err)
	}
	return st.Receipt.ReceiptID
}

// What is asked often does not push out what was applied, nor statuses what was
// evaluated.
func TestStatusesPushNothingOut(t *testing.T) {
	p := newPlace(t)
	s := p.store(receipt.Options{Retention: receipt.Retention{Count: 40}})
	kept := fill(t, s, 0, 3)
	for _, k := range []wire.ReceiptKind{wire.ReceiptEvaluate, wire.ReceiptInspect, wire.ReceiptEditRequest, wire.ReceiptProviderFailure} {
		kept = append(kept, add(t, s, answer(3, k)))
	}
	var first string
	for i := range 150 {
		k := []wire.ReceiptKind{wire.ReceiptStatus, wire.ReceiptCapabilities, wire.ReceiptAuthorityStatus}[i%3]
		if id := add(t, s, answer(10+i, k)); i == 0 {
			first = id
		}
	}
	for _, id := range kept {
		if _, err := s.Get(id); err != nil {
			t.Errorf("%s: %v", id, err)
		}
	}
	if _, err := s.Get(first); !errors.Is(err, receipt.ErrNoReceipt) {
		t.Errorf("the first status: %v", err)
	}
	if o, err := s.Lookup(ctx, "prov", "p-0"); err != nil || o.Applied == nil {
		t.Errorf("%+v, %v", o, err)
	}
	l := mustList(t, s)
	if n := len(l) - len(kept); n < 2 || n > 5 {
		t.Errorf("%d statuses are kept, want at most an eighth of 40", n)
	}
	for i := range l[1:] {
		if l[i].ReceiptID > l[i+1].ReceiptID {
			t.Errorf("the list is out of order at %d", i)
		}
	}
	wantOK(t, s, len(l))
	// Another store on the same place, with nothing opened yet, sees the same.
	wantOK(t, p.store(receipt.Options{}), len(l))
}

// Every receipt, of whatever kind, is the file receipts/<receiptId>.json.
func TestEveryReceiptIsAFileInOneDirectory(t *testing.T) {
	p := newPlace(t)
	s := p.store(receipt.Options{})
	for i, k := range []wire.ReceiptKind{wire.ReceiptStatus, wire.ReceiptCapabilities, wire.ReceiptEvaluate, wire.ReceiptInspect,
		wire.ReceiptEditRequest, wire.ReceiptApplyAttempt, wire.ReceiptAuthorityStatus, wire.ReceiptProviderFailure} {
		st, err := s.Append(ctx, answer(i, k))
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Sync(home.EachFile); err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(p.file("receipts/" + st.Receipt.ReceiptID + ".json"))
		if err != nil || string(b) != string(st.Value().Bytes()) {
			t.Errorf("%s: %q, %v", k, b, err)
		}
	}
	wantOK(t, s, 8)
	dirs, err := os.ReadDir(p.path)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range dirs {
		if d.IsDir() && d.Name() != "receipts" && d.Name() != "results" {
			t.Errorf("directory %s", d.Name())
		}
	}
	// An id of another chain than that of the kind is refused.
	e := answer(9, wire.ReceiptStatus)
	e.Receipt.Kind = wire.ReceiptEvaluate
	if _, err := s.Append(ctx, e); err == nil {
		t.Error("an evaluation with the id of a status is taken")
	}
}

// testdata/one-chain is the state of a program that had one chain for all kinds:
// it is verified, read, repaired and appended to as it is.
func TestTheStateOfOneChainStillOpens(t *testing.T) {
	for _, boot := range []string{"one", "two"} { // "two": after the machine started anew
		p := newPlace(t)
		if err := os.CopyFS(p.path, os.DirFS("testdata/one-chain")); err != nil && !errors.Is(err, os.ErrExist) {
			t.Fatal(err)
		}
		s := p.store(receipt.Options{Boot: boot})
		wantOK(t, s, 5)
		kinds := map[string]int{}
		for _, x := range mustList(t, s) {
			kinds[x.Kind]++
			if st, err := s.Get(x.ReceiptID); err != nil || string(st.Receipt.Kind) != x.Kind {
				t.Errorf("%s: %v", x.ReceiptID, err)
			}
		}
		if kinds["apply-attempt"] != 2 || kinds["evaluate"] != 1 || kinds["status"] != 1 || kinds["provider-failure"] != 1 {
			t.Errorf("%v", kinds)
		}
		if o, err := s.Lookup(ctx, "prov", "p-3"); err != nil || o.Applied == nil {
			t.Errorf("%+v, %v", o, err)
		}
		if err := s.Recover(ctx); err != nil {
			t.Fatal(err)
		}
		add(t, s, entry(7))
		add(t, s, answer(8, wire.ReceiptEvaluate))
		add(t, s, answer(9, wire.ReceiptStatus))
		wantOK(t, s, 8)
		s = p.store(receipt.Options{Boot: boot, Retention: receipt.Retention{Count: 4}})
		fill(t, s, 10, 3)
		if l := mustList(t, s); len(l) > 6 {
			t.Errorf("%d are kept, want at most four in the first chain and two more", len(l))
		}
		wantOK(t, s, len(mustList(t, s)))
	}
}

// Each chain is followed: removal, of the newest too, is found in all of them.
func TestVerifyFollowsEveryChain(t *testing.T) {
	for _, end := range []string{"", "-answer", "-status"} {
		for which, want := range map[int]string{0: "the predecessor of", 1: "does not precede", 2: "the newest, was removed"} {
			p := newPlace(t)
			s := p.store(receipt.Options{})
			fill(t, s, 0, 3)
			for i := range 3 {
				add(t, s, answer(i, wire.ReceiptEvaluate))
				add(t, s, answer(i, wire.ReceiptStatus))
			}
			names, err := filepath.Glob(p.file("receipts/rcpt-*Z-????????????????" + end + ".json"))
			if err != nil || len(names) != 3 {
				t.Fatalf("%q: %v, %v", end, names, err)
			}
			wantOK(t, s, 9)
			if err := os.Remove(names[which]); err != nil {
				t.Fatal(err)
			}
			for range 2 { // it stays found
				r := verified(t, s)
				if r.OK || r.Checked != 8 || !strings.Contains(strings.Join(r.Problems, "\n"), want) {
					t.Errorf("%q, receipt %d: %+v, want %q", end, which, r, want)
				}
			}
		}
	}
}

// A receipt that no barrier covered yet is not put back by who only looks, nor
// by the next append: under the same boot nothing but a hand takes it away.
func TestAnUnsyncedNewestThatIsRemovedStaysFound(t *testing.T) {
	for _, kind := range []wire.ReceiptKind{wire.ReceiptApplyAttempt, wire.ReceiptEvaluate, wire.ReceiptStatus} {
		p := newPlace(t)
		s := p.store(receipt.Options{Boot: "one"})
		add(t, s, answer(0, kind))
		st, err := s.Append(ctx, answer(1, kind))
		if err != nil {
			t.Fatal(err)
		}
		s.Batch().Drop()
		names, err := filepath.Glob(p.file("receipts/" + st.Receipt.ReceiptID + ".json"))
		if err != nil || len(names) != 1 {
			t.Fatalf("%v, %v", names, err)
		}
		if err := os.Remove(names[0]); err != nil {
			t.Fatal(err)
		}
		find := func(when, want string) {
			t.Helper()
			s := p.store(receipt.Options{Boot: "one"})
			if r := verified(t, s); r.OK || !strings.Contains(strings.Join(r.Problems, "\n"), want) {
				t.Errorf("%s, %s: %+v", kind, when, r)
			}
		}
		find("at once", "the newest, was removed")
		find("once more", "the newest, was removed")
		if err := p.store(receipt.Options{Boot: "one"}).Recover(ctx); err != nil {
			t.Fatal(err)
		}
		find("after Recover", "the newest, was removed")
		add(t, p.store(receipt.Options{Boot: "one"}), answer(2, kind))
		find("after another", "does not precede")
		// After a power cut it could not be told from what the cut took.
	}
}
