package apply_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/aspengine/asp/apply"
	"github.com/aspengine/asp/apply/commit"
	"github.com/aspengine/asp/editplan"
	"github.com/aspengine/asp/internal/vfs"
	"github.com/aspengine/asp/internal/vfs/faultfs"
	"github.com/aspengine/asp/receipt"
	"github.com/aspengine/asp/seam/wire"
)

// TestGroupOfLongNames: names that are long, and longer still in the journal, where a
// control character takes six bytes, keep a proposal out of a group and nobody from an answer.
func TestGroupOfLongNames(t *testing.T) {
	b := gitBed(t, map[string]string{"a.txt": "a\n", "b.txt": "b\n", "c.txt": "c\n"})
	c := newCrowd(b)
	got := c.all(vfs.OS{}, "publishing",
		asks("p0", replace("a.txt", "a\n", "A\n")),
		asks("p1"+strings.Repeat("\x01", 500), replace("b.txt", "b\n", "B\n")),
		asks("p2"+strings.Repeat("\x01", 500), replace("c.txt", "c\n", "C\n")),
		asks(strings.Repeat("\x01", 5000), made("d.txt", "d\n")))
	for i, s := range got {
		if !s.applied() {
			t.Fatalf("%d: %v", i, s.err)
		}
	}
	if c.transaction(got[0]) != c.transaction(got[1]) || c.transaction(got[1]) == c.transaction(got[2]) {
		t.Error("p1 fits beside p0, and p2 does not")
	}
}

// TestGroupWithinRetention: pre-images that are kept for each alone are kept in a group.
func TestGroupWithinRetention(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2)) // what cannot be packed smaller
	raw := make([]byte, 1400)
	for i := range raw {
		raw[i] = byte(r.Uint32())
	}
	first, second := string(raw[:700]), string(raw[700:])
	b := gitBed(t, map[string]string{"a.txt": first, "b.txt": second})
	if err := os.WriteFile(filepath.Join(filepath.Dir(b.root), "home", "config.json"), []byte(`{"retention":{"blobBytes":1000}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	c := newCrowd(b)
	got := c.all(vfs.OS{}, "publishing", asks("p0", replace("a.txt", first, "A\n")), asks("p1", replace("b.txt", second, "B\n")))
	if !got[0].applied() || !got[1].applied() {
		t.Fatalf("%v %v", got[0].err, got[1].err)
	}
	u, err := c.engine(vfs.OS{}, nil).Undo(context.Background(), got[1].Receipt, apply.Request{CallSite: wire.Interactive, Intent: wire.IntentUser})
	if err != nil || u.Result == nil || !u.Result.Applied || b.read("b.txt") != second {
		t.Errorf("%v %v", err, u)
	}
}

// TestGroupHasNoRoom: what there is no room for is an error of the one who brings it, and
// not of the one who took it along.
func TestGroupHasNoRoom(t *testing.T) {
	b := gitBed(t, map[string]string{"a.txt": "a\n", "b.txt": "b\n", "c.txt": "c\n"})
	c := newCrowd(b)
	tried := false
	full := faultfs.New(vfs.OS{}, func(e faultfs.Event) faultfs.Fault {
		if e.Size >= 1<<17 { // the content of p1
			tried = true
			return faultfs.Fault{Err: unix.ENOSPC}
		}
		return faultfs.Fault{}
	})
	got := c.all(full, "publishing", asks("p0", replace("a.txt", "a\n", "A\n")), asks("p1", replace("b.txt", "b\n", strings.Repeat("b", 1<<20))), asks("p2", replace("c.txt", "c\n", "C\n")))
	if !got[0].applied() || !got[1].applied() || !got[2].applied() || !tried {
		t.Errorf("tried: %v; the leader: %v", tried, got[0].err)
	}
}

// TestGroupCancelled: who cancels before the commit record is written has nothing changed,
// whoever carries it out.
func TestGroupCancelled(t *testing.T) {
	for _, stage := range []string{"stage", "swap", "sync names"} {
		t.Run(stage, func(t *testing.T) {
			b := gitBed(t, map[string]string{"a.txt": "a\n", "b.txt": "b\n", "c.txt": "c\n"})
			c := newCrowd(b)
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			has, behind := make(chan struct{}), make(chan struct{})
			seen := map[string]bool{}
			lead := c.engine(vfs.OS{}, func(s string) {
				switch {
				case seen[s]:
				case s == "publishing":
					close(has)
					<-behind
				case s == stage:
					cancel()
				}
				seen[s] = true
			})
			out := make([]said, 3)
			done := make(chan int)
			run := func(i int, ctx context.Context, e *apply.Engine, id string, d editplan.Draft) {
				a, err := e.Apply(ctx, apply.Request{Load: asks(id, d), CallSite: wire.Interactive, Intent: wire.IntentUser})
				out[i] = said{a, err}
				done <- i
			}
			go run(0, context.Background(), lead, "p0", replace("a.txt", "a\n", "A\n"))
			<-has
			go run(1, ctx, c.engine(vfs.OS{}, nil), "p1", replace("b.txt", "b\n", "B\n"))
			for lead.InLine() < 2 {
				runtime.Gosched()
			}
			go run(2, context.Background(), c.engine(vfs.OS{}, nil), "p2", replace("c.txt", "c\n", "C\n"))
			for lead.InLine() < 3 {
				runtime.Gosched()
			}
			close(behind)
			for range out {
				<-done
			}
			var f *apply.Failure
			if !errors.As(out[1].err, &f) || f.Outcome != receipt.Cancelled || f.Receipt == "" {
				t.Errorf("cancelled: %v %v", out[1].err, out[1].Answer)
			}
			if !out[0].applied() || !out[2].applied() {
				t.Errorf("the others: %v %v", out[0].err, out[2].err)
			}
			if is := b.read("a.txt") + b.read("b.txt") + b.read("c.txt"); is != "A\nb\nC\n" {
				t.Errorf("%q", is)
			}
		})
	}
}

// TestGroupNeedsAttention: where one path of a group cannot be put back, its leader is told,
// the stranger's bytes stay, and only who touches that path waits for a person.
func TestGroupNeedsAttention(t *testing.T) {
	b := gitBed(t, map[string]string{"a.txt": "a\n", "b.txt": "b\n", "c.txt": "c\n"})
	c := newCrowd(b)
	first := ""
	ff := faultfs.New(vfs.OS{}, func(e faultfs.Event) faultfs.Fault {
		if e.Op != faultfs.Exchange {
			return faultfs.Fault{}
		}
		for _, n := range []string{"a.txt", "b.txt", "c.txt"} {
			switch at := e.Path == n || e.To == n; {
			case at && first == "":
				first = n
			case at && n != first && b.read(first) != "stranger\n":
				b.write(first, "stranger\n") // over what was swapped in
				return faultfs.Fault{Err: unix.EIO}
			}
		}
		return faultfs.Fault{}
	})
	got := c.all(ff, "publishing", asks("p0", replace("a.txt", "a\n", "A\n")), asks("p1", replace("b.txt", "b\n", "B\n")), asks("p2", replace("c.txt", "c\n", "C\n")))
	if !errors.Is(got[0].err, apply.ErrAttention) {
		t.Errorf("the leader: %v", got[0].err)
	}
	for i, n := range []string{"a.txt", "b.txt", "c.txt"} {
		switch is := b.read(n); {
		case n == first:
			if is != "stranger\n" || got[i].applied() {
				t.Errorf("%s holds %q; %v", n, is, got[i].err)
			}
			if i > 0 && codes(got[i].Answer) != "needs-attention "+n {
				t.Errorf("p%d: %s", i, codes(got[i].Answer))
			}
		case i > 0 && (!got[i].applied() || is != strings.ToUpper(n[:1])+"\n"), i == 0 && is != n[:1]+"\n":
			t.Errorf("%s holds %q; %v", n, is, got[i].err)
		}
	}
	rec, err := c.engine(vfs.OS{}, nil).Recover(context.Background())
	if err != nil || len(rec.Attention) != 1 || rec.Attention[0].Path != first || strings.Join(apply.Proposals(rec.Attention[0].Tag), " ") != "p0 p1 p2" {
		t.Errorf("%v %+v", err, rec)
	}
}

// TestGroupGuarantee: who asks for a guarantee has what it earns by itself, and is in no group.
func TestGroupGuarantee(t *testing.T) {
	if !apply.Joinable(apply.Request{}) {
		t.Error("a plain request goes alone")
	}
	if apply.Joinable(apply.Request{RequireGuarantee: commit.RollbackAttempted}) {
		t.Error("one that asks for a guarantee is in a group")
	}
}
