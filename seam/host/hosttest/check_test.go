package hosttest

import (
	"strings"
	"testing"

	"github.com/aspengine/asp/internal/canon"
	"github.com/aspengine/asp/seam/wire"
)

// TestCheck: the decision is about what is on disk, or about what is staged, and
// writes nothing.
func TestCheck(t *testing.T) {
	w := newWorld(t, `{"checks":{"good":{"argv":["grep","-q","good","f"],"required":true,"callSites":["interactive","gate"]}}}`, map[string]string{"f": "good\n", ".gitignore": "ignored\n"})
	w.write("ignored", "x")
	check := func(args ...string) (int, wire.CheckResult) {
		t.Helper()
		before := w.everything()
		code, out, errs := w.run("", append([]string{"check", "--json"}, args...)...)
		if w.everything() != before {
			t.Errorf("%v changed the workspace", args)
		}
		v, err := canon.Parse([]byte(strings.TrimSpace(out)), canon.Limits{})
		if err != nil {
			t.Fatalf("%v: exit status %d, %q %s", args, code, out, errs)
		}
		var r wire.CheckResult
		if err := wire.Decode(v, &r); err != nil {
			t.Fatalf("%v: %v\n%s", args, err, out)
		}
		hd, _ := v.Get("hostDecision")
		valid(t, canon.ObjectOf(canon.Member{Key: "result", Value: hd}).Bytes(), "result", "verdict.schema.json", new(wire.Verdict))
		if r.HostDecision.Receipt.ReceiptID != r.Receipt.ReceiptID || r.HostDecision.Pass != (code == 0) {
			t.Errorf("%v: exit status %d, %s", args, code, out)
		}
		return code, r
	}
	paths := func(r wire.CheckResult) (out []string) {
		for _, c := range r.Changeset.Changes {
			out = append(out, string(c.Kind)+" "+c.Path)
		}
		return out
	}
	w.write("f", "good and better\n")
	w.git("add", "f")
	w.write("f", "bad\n")
	w.write("new", "n\n")
	if code, r := check("--changed"); code != 1 || r.HostDecision.Decision != wire.Deny || strings.Join(paths(r), ",") != "modify f,create new" {
		t.Errorf("--changed: exit status %d, %s, %v", code, r.HostDecision.Decision, paths(r))
	}
	if code, r := check("--staged"); code != 0 || strings.Join(paths(r), ",") != "modify f" {
		t.Errorf("--staged: exit status %d, %s, %v", code, r.HostDecision.Decision, paths(r))
	}
	// A gate has no policy here.
	if code, r := check("--staged", "--call-site", "gate"); code != 1 || r.HostDecision.Decision != wire.Indeterminate {
		t.Errorf("--call-site gate: exit status %d, %s", code, r.HostDecision.Decision)
	}
	for _, args := range [][]string{{"check"}, {"check", "--changed", "--staged"}, {"check", "--changed", "--call-site", "x"}, {"check", "--changed", "--check", "nothing"}, {"check", "--changed", "more"}, {"ci"}, {"ci", "verify"}} {
		if code, _, errs := w.run("", args...); code != 2 || errs == "" {
			t.Errorf("%v: exit status %d, %s", args, code, errs)
		}
	}
}

// TestCIVerify: without an active policy nothing is verified, and damage to the
// receipts is told.
func TestCIVerify(t *testing.T) {
	w := newWorld(t, "", map[string]string{"f": "1\n"})
	w.write("f", "2\n")
	w.git("commit", "-qam", "second")
	verify := func() (int, wire.CIVerifyResult) {
		t.Helper()
		code, out, errs := w.run("", "ci", "verify", "--changed-from", "HEAD~1", "--json")
		v, err := canon.Parse([]byte(strings.TrimSpace(out)), canon.Limits{})
		if err != nil {
			t.Fatalf("exit status %d, %q %s", code, out, errs)
		}
		var r wire.CIVerifyResult
		if err := wire.Decode(v, &r); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return code, r
	}
	code, r := verify()
	if code != 1 || r.Verified || r.GatePassed || !r.ReceiptValid || r.CallSite != wire.Gate || len(r.Failures) == 0 || r.Failures[0].Code != "missing" {
		t.Errorf("exit status %d, %+v", code, r)
	}
	if len(r.Changeset.Changes) != 1 || r.Changeset.Changes[0].Path != "f" || r.HostDecision.CallSite != wire.Gate {
		t.Errorf("%+v", r.Changeset)
	}
	if code, _, errs := w.run("", "ci", "verify", "--changed-from", "nowhere"); code != 3 || !strings.Contains(errs, "revision") {
		t.Errorf("exit status %d, %s", code, errs)
	}
}
