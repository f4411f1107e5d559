package receipt_test

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/aspengine/asp/internal/home"
	"github.com/aspengine/asp/receipt"
)

func TestMain(m *testing.M) {
	if h := os.Getenv("RECEIPT_TEST_HOME"); h != "" {
		if err := appender(h, os.Getenv("RECEIPT_TEST_COUNT")); err != nil {
			fmt.Println("error:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// files reads all files below dir, by relative name.
func files(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(p)
		rel, _ := filepath.Rel(dir, p)
		out[rel] = string(b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// A power cut before the barrier keeps, of each name that an append touched, the
// old state, the new one, or an empty file. In every combination the chain is
// whole afterwards, holds everything that was synced, and goes on.
func TestPowerCutKeepsTheChain(t *testing.T) {
	for _, kept := range []int{0, 1, 4} { // entries before the one that is cut
		t.Run(fmt.Sprint(kept, " before"), func(t *testing.T) {
			p := newPlace(t)
			s := p.store(receipt.Options{Boot: "one"})
			ids := fill(t, s, 0, kept)
			before := files(t, p.path)
			cut, err := s.Append(ctx, entry(kept))
			if err != nil {
				t.Fatal(err)
			}
			after := files(t, p.path)
			s.Batch().Drop()
			var touched []string
			for n, b := range after {
				if before[n] != b {
					touched = append(touched, n)
				}
			}
			if len(touched) != 4 { // next, receipt, index, head
				t.Fatalf("an append touched %v", touched)
			}
			states := 1
			for range touched {
				states *= 3
			}
			for state := range states {
				for n := range files(t, p.path) {
					if err := os.Remove(filepath.Join(p.path, n)); err != nil {
						t.Fatal(err)
					}
				}
				var what []string
				now := map[string]string{}
				for n, b := range after {
					now[n] = b
				}
				for i, k := 0, state; i < len(touched); i, k = i+1, k/3 {
					n := touched[i]
					what = append(what, fmt.Sprint(n, "=", []string{"new", "old", "empty"}[k%3]))
					old, was := before[n]
					switch {
					case k%3 == 2:
						now[n] = ""
					case k%3 == 1 && was:
						now[n] = old
					case k%3 == 1:
						delete(now, n)
					}
				}
				// Names reach a journalling disk in the order in which they
				// were made. Without this a lone receipt without a head
				// would be what a cut leaves, and what tampering leaves.
				if _, ok := now["receipts.next"]; !ok && kept == 0 {
					continue
				}
				for n, b := range now {
					if err := os.WriteFile(filepath.Join(p.path, n), []byte(b), 0o600); err != nil {
						t.Fatal(err)
					}
				}
				s := p.store(receipt.Options{Boot: "two"})
				check := func() {
					t.Helper()
					if r := verified(t, s); !r.OK {
						t.Fatalf("%v: %q", what, r.Problems)
					}
					for i, id := range ids {
						if _, err := s.Get(id); err != nil {
							t.Fatalf("%v: %v", what, err)
						}
						o, err := s.Lookup(ctx, "prov", fmt.Sprintf("p-%d", i))
						if err != nil || o.Applied == nil {
							t.Fatalf("%v: Lookup of entry %d = %+v, %v", what, i, o, err)
						}
					}
				}
				if state%2 == 0 {
					if err := s.Recover(ctx); err != nil {
						t.Fatal(err)
					}
				}
				check()
				o, err := s.Lookup(ctx, "prov", fmt.Sprintf("p-%d", kept))
				if err != nil {
					t.Fatal(err)
				}
				_, err = s.Get(cut.Receipt.ReceiptID)
				if (o.Applied != nil) != (err == nil) {
					t.Fatalf("%v: the entry is both there and not: %+v, %v", what, o, err)
				}
				fill(t, s, kept+10, 1)
				check()
			}
		})
	}
}

// appender is the helper process: it appends entries until it is done or killed.
func appender(aspHome, count string) error {
	n, err := strconv.Atoi(count)
	if err != nil {
		return err
	}
	s, err := openStore(aspHome)
	if err != nil {
		return err
	}
	fmt.Println("ready")
	for i := range n {
		e := entry(i)
		e.Receipt.ProposalID = fmt.Sprintf("p-%d-%d", os.Getpid(), i)
		if _, err := s.Append(ctx, e); err != nil {
			return err
		}
		if i%3 == 0 {
			if err := s.Sync(home.EachFile); err != nil {
				return err
			}
		}
	}
	return s.Sync(home.WholeFS)
}

func spawn(t *testing.T, aspHome string, n int) *exec.Cmd {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command(exe)
	c.Env = append(os.Environ(), "RECEIPT_TEST_HOME="+aspHome, "RECEIPT_TEST_COUNT="+strconv.Itoa(n))
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Process.Kill(); _ = c.Wait() })
	if s := bufio.NewScanner(out); !s.Scan() || s.Text() != "ready" {
		t.Fatalf("helper: %q, %v", s.Text(), s.Err())
	}
	return c
}

func TestManyProcessesAppendOneChain(t *testing.T) {
	p := newPlace(t)
	aspHome := filepath.Dir(filepath.Dir(filepath.Clean(p.path)))
	const procs, each = 6, 20
	var cs []*exec.Cmd
	for range procs {
		cs = append(cs, spawn(t, aspHome, each))
	}
	for _, c := range cs {
		if err := c.Wait(); err != nil {
			t.Error(err)
		}
	}
	wantOK(t, p.store(receipt.Options{}), procs*each)
}

func TestKilledAppendersLeaveAChain(t *testing.T) {
	p := newPlace(t)
	aspHome := filepath.Dir(filepath.Dir(filepath.Clean(p.path)))
	s := p.store(receipt.Options{})
	for i := range 5 {
		// No more of them than are kept, however late the kill comes.
		a, b := spawn(t, aspHome, 150), spawn(t, aspHome, 150)
		for len(mustList(t, s)) < 6*(i+1) { // let them get on
			time.Sleep(time.Millisecond)
		}
		_ = a.Process.Kill()
		_ = b.Process.Kill()
		_, _ = a.Wait(), b.Wait()
		r := verified(t, s)
		if !r.OK {
			t.Fatalf("after kill %d: %q", i, r.Problems)
		}
		fill(t, s, i, 1)
		wantOK(t, s, r.Checked+1)
	}
}

func mustList(t *testing.T, s *receipt.Store) []receipt.Summary {
	t.Helper()
	l, err := s.List(ctx)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return l
}

func TestLookup(t *testing.T) {
	p := newPlace(t)
	s := p.store(receipt.Options{})
	if o, err := s.Lookup(ctx, "prov", "p-1"); err != nil || o != (receipt.Outcomes{}) {
		t.Fatalf("empty store: %+v, %v", o, err)
	}
	refused := entry(1)
	refused.Outcome = receipt.Refused
	if _, err := s.Append(ctx, refused); err != nil {
		t.Fatal(err)
	}
	if o, err := s.Lookup(ctx, "prov", "p-1"); err != nil || o != (receipt.Outcomes{}) {
		t.Fatalf("a refusal is no outcome: %+v, %v", o, err)
	}
	ids := fill(t, s, 1, 3)
	again := entry(1)
	again.Receipt.ReceiptID = receipt.NewID(again.Receipt.Kind, draft(7).Ended)
	if _, err := s.Append(ctx, again); err != nil {
		t.Fatal(err)
	}
	staged := entry(1)
	staged.Outcome = receipt.Staged
	if _, err := s.Append(ctx, staged); err != nil {
		t.Fatal(err)
	}
	check := func(when string) {
		t.Helper()
		o, err := s.Lookup(ctx, "prov", "p-1")
		if err != nil || o.Applied == nil || o.Applied.Receipt.ReceiptID != ids[0] ||
			o.Staged == nil || o.Staged.Receipt.ReceiptID != staged.Receipt.ReceiptID {
			t.Fatalf("%s: %+v, %v", when, o, err)
		}
		if n, _ := o.Applied.Result.Get("n"); n.Str() != "1" {
			t.Errorf("%s: result %s", when, o.Applied.Result.Bytes())
		}
		if o, err := s.Lookup(ctx, "other", "p-1"); err != nil || o != (receipt.Outcomes{}) {
			t.Fatalf("%s: another provider's proposal: %+v, %v", when, o, err)
		}
	}
	check("at first")
	index, err := filepath.Glob(p.file("results/*.json"))
	if err != nil || len(index) != 3 {
		t.Fatalf("index %v, %v", index, err)
	}
	for _, n := range index {
		if err := os.Remove(n); err != nil {
			t.Fatal(err)
		}
	}
	check("without an index")
	for _, n := range index {
		if err := os.WriteFile(n, []byte(`{"applied":"../../x"}`), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	check("with a wrong index")
	for _, n := range index {
		if err := os.WriteFile(n, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	check("with an empty index")
}

func TestRetention(t *testing.T) {
	p := newPlace(t)
	s := p.store(receipt.Options{Retention: receipt.Retention{Count: 16}})
	ids := fill(t, s, 0, 100)
	l := mustList(t, s)
	if len(l) > 16 || len(l) < 8 {
		t.Errorf("%d receipts kept, want at most 16", len(l))
	}
	wantOK(t, s, len(l))
	if _, err := s.Get(ids[0]); !errors.Is(err, receipt.ErrNoReceipt) {
		t.Errorf("the oldest: %v", err)
	}
	if o, err := s.Lookup(ctx, "prov", "p-0"); err != nil || o.Applied != nil {
		t.Errorf("a pruned outcome: %+v, %v", o, err)
	}
	if o, err := s.Lookup(ctx, "prov", "p-99"); err != nil || o.Applied == nil {
		t.Errorf("a kept outcome: %+v, %v", o, err)
	}
	// A hole in what is kept is a hole, with a checkpoint too.
	if err := os.Remove(p.file("receipts/" + l[0].ReceiptID + ".json")); err != nil {
		t.Fatal(err)
	}
	if r := verified(t, s); r.OK || !strings.Contains(strings.Join(r.Problems, "\n"), l[1].ReceiptID) {
		t.Errorf("the oldest kept one removed: %+v", r)
	}
	// And pruning does not tidy it away.
	fill(t, s, 0, 40)
	if r := verified(t, s); r.OK {
		t.Error("a hole was pruned away")
	}
}

func TestRetentionByBytesAndWithoutBarriers(t *testing.T) {
	p := newPlace(t)
	s := p.store(receipt.Options{Retention: receipt.Retention{Bytes: 20_000}})
	for i := range 60 {
		if _, err := s.Append(ctx, entry(i)); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(mustList(t, s)); n != 60 {
		t.Errorf("%d files, want 60: nothing goes before a barrier", n)
	}
	if r := verified(t, s); !r.OK {
		t.Fatal(r.Problems)
	}
	s.Batch().Drop() // the process ends without a barrier
	s = p.store(receipt.Options{Retention: receipt.Retention{Bytes: 20_000}})
	fill(t, s, 60, 30)
	total := 0
	for n, b := range files(t, p.path) {
		if strings.HasPrefix(n, "receipts/") {
			total += len(b)
		}
	}
	if total > 20_000 {
		t.Errorf("%d bytes kept", total)
	}
	if r := verified(t, s); !r.OK {
		t.Fatal(r.Problems)
	}
}
