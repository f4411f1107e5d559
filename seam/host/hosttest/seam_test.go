package hosttest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"

	"github.com/aspengine/asp/internal/canon"
	"github.com/aspengine/asp/seam/wire"
)

const outer = "outer-host.schema.json#/$defs/"

func changeset(base obj, changes ...obj) obj { return obj{"baseline": base, "changes": changes} }

// requests is one good request of every method, on a workspace whose file a holds
// "a\n".
func requests(base obj) []struct {
	method string
	params obj
	schema string
	into   func() any
} {
	return []struct {
		method string
		params obj
		schema string
		into   func() any
	}{
		{"host/status", obj{}, outer + "statusResult", func() any { return new(wire.StatusResult) }},
		{"host/status", obj{"callSite": "gate"}, outer + "statusResult", func() any { return new(wire.StatusResult) }},
		{"host/capabilities", obj{}, outer + "capabilitiesResult", func() any { return new(wire.CapabilitiesResult) }},
		{"host/authority/status", obj{}, outer + "authorityStatusResult", func() any { return new(wire.AuthorityStatusResult) }},
		{"host/evaluateChangeset", obj{"callSite": "interactive", "changeset": changeset(base, obj{"path": "a", "kind": "modify", "before": digest("a\n"), "after": digest("b\n")})},
			"verdict.schema.json", func() any { return new(wire.Verdict) }},
		{"host/evaluateChangeset", obj{"callSite": "gate", "comparison": "all", "timeoutMs": 60000, "changeset": changeset(base, obj{"path": "n", "kind": "create", "after": digest("b\n")})},
			"verdict.schema.json", func() any { return new(wire.Verdict) }},
		{"host/queryInspect", obj{"callSite": "interactive", "request": obj{"method": "sense/symbols", "params": obj{}}},
			outer + "queryInspectResult", func() any { return new(wire.QueryInspectResult) }},
		{"host/applyProposal", applyParams(proposal("once", base, modify("a", "a\n", "b\n"))), outer + "applyProposalResult", func() any { return new(wire.ApplyProposalResult) }},
		{"host/applyProposal", applyParams(proposal("late", base, modify("a", "a\n", "c\n"))), outer + "applyProposalResult", func() any { return new(wire.ApplyProposalResult) }},
	}
}

// TestEveryMethod holds every result against the schema, and its receipt against the
// request: CORE-HOST-STATUS, CORE-HOST-CAPABILITIES, CORE-HOST-EVALUATE.
func TestEveryMethod(t *testing.T) {
	w := newWorld(t, "", map[string]string{"a": "a\n"})
	c := w.stdio()
	base := c.baseline()
	c.put("b\n")
	for i, r := range requests(base) {
		a := c.call(r.method, r.params)
		if a.err != nil {
			t.Errorf("%d %s: %.1000s", i, r.method, a.raw)
			continue
		}
		valid(t, a.raw, "result", r.schema, r.into())
		rc, _ := a.result["receipt"].(obj)
		if rc["privateOnly"] != true || rc["experimental"] != true || rc["trustArtifact"] != false {
			t.Errorf("%d %s: receipt %v", i, r.method, rc)
		}
		params, err := json.Marshal(r.params)
		must(t, err)
		v, err := canon.Parse(params, canon.Limits{})
		must(t, err)
		want := canon.DigestText(canon.ObjectOf(canon.Member{Key: "method", Value: canon.StringOf(r.method)}, canon.Member{Key: "params", Value: v}))
		if rc["requestDigest"] != want {
			t.Errorf("%d %s: requestDigest %v, want %s", i, r.method, rc["requestDigest"], want)
		}
		// It is kept, as it was sent.
		code, out, _ := w.run("", "receipts", "show", fmt.Sprint(rc["receiptId"]), "--json")
		var kept struct{ Receipt json.RawMessage }
		if code != 0 || json.Unmarshal([]byte(out), &kept) != nil {
			t.Errorf("%d %s: receipt %v is not kept: %d %.500s", i, r.method, rc["receiptId"], code, out)
			continue
		}
		sent, err := json.Marshal(rc)
		must(t, err)
		if !same(t, kept.Receipt, sent) {
			t.Errorf("%d %s: kept %s, sent %s", i, r.method, kept.Receipt, sent)
		}
	}
	if got := w.read("a"); got != "b\n" {
		t.Errorf("a holds %q", got)
	}
	if code := c.exit(); code != 0 {
		t.Errorf("exit status %d, %s", code, c.errs)
	}
}

func same(t *testing.T, a, b []byte) bool {
	t.Helper()
	x, err := canon.Parse(a, canon.Limits{})
	must(t, err)
	y, err := canon.Parse(b, canon.Limits{})
	must(t, err)
	return canon.Equal(x, y)
}

// TestWrongRequests: what is wrong with an envelope is an error with a class, what is
// wrong inside a proposal a result with a receipt, and neither ends the session.
func TestWrongRequests(t *testing.T) {
	w := newWorld(t, "", map[string]string{"a": "a\n"})
	c := w.stdio()
	base := c.baseline()
	before := w.everything()
	mod := func(before, after string) obj {
		return obj{"path": "a", "kind": "modify", "before": digest(before), "after": digest(after)}
	}
	ev := func(changes ...obj) obj { return obj{"callSite": "gate", "changeset": changeset(base, changes...)} }
	for _, x := range []struct {
		method string
		params any
		code   int
		class  string
	}{
		{"initialize", obj{}, -32601, "contract"},
		{"host/status", []int{1}, -32602, "input"},
		{"host/status", obj{"verbose": true}, -32602, "input"},
		{"host/capabilities", obj{"Callsite": "gate"}, -32602, "input"},
		{"host/evaluateChangeset", obj{"callSite": "commit", "changeset": changeset(base)}, -32602, "input"},
		{"host/evaluateChangeset", obj{"callSite": "gate", "changeset": changeset(base), "timeoutMs": 0}, -32602, "input"},
		{"host/evaluateChangeset", obj{"callSite": "gate", "changeset": changeset(base), "timeoutMs": 1.5}, -32602, "input"},
		{"host/evaluateChangeset", obj{"callSite": "gate"}, -32602, "input"},
		{"host/evaluateChangeset", ev(mod("wrong", "a\n")), -32013, "input"},
		{"host/evaluateChangeset", ev(mod("a\n", "never put")), -32015, "health"},
		{"host/evaluateChangeset", ev(mod("a\n", "a\n"), obj{"path": "a", "kind": "delete", "before": digest("a\n")}), -32013, "input"},
		{"host/evaluateChangeset", ev(obj{"path": "../a", "kind": "delete", "before": digest("a\n")}), -32013, "input"},
		{"host/queryInspect", obj{"callSite": "gate", "request": "sense/symbols"}, -32602, "input"},
		{"host/requestEditPlan", obj{"callSite": "gate", "baseline": base}, -32602, "input"},
		{"host/applyProposal", obj{"callSite": "gate", "proposalId": "x"}, -32602, "input"},
		{"host/applyProposal", obj{"callSite": "gate", "proposalId": "x", "intent": "robot"}, -32602, "input"},
		{"workspace/putBlob", obj{"blobs": []obj{{"encoding": "latin1", "bytes": ""}}}, -32602, "input"},
		{"workspace/readBlob", obj{"blobs": []string{digest("a\n")}}, -32601, "contract"},
	} {
		a := c.call(x.method, x.params)
		if a.code() != x.code || a.class() != x.class {
			t.Errorf("%s %v: %.500s, want %d %s", x.method, x.params, a.raw, x.code, x.class)
			continue
		}
		valid(t, a.raw, "error", "error.schema.json", new(wire.Error))
		// Each of the seven methods carries a receipt, whatever is wrong with the request.
		d, _ := a.err["data"].(obj)
		detail, _ := d["detail"].(string)
		_, id, named := strings.Cut(detail, "receipt ")
		if named != (strings.HasPrefix(x.method, "host/")) {
			t.Errorf("%s %v: detail %q", x.method, x.params, detail)
		} else if named {
			if code, out, _ := w.run("", "receipts", "show", id, "--json"); code != 0 || !strings.Contains(out, `"outcome":"refused"`) && x.code != -32015 {
				t.Errorf("%s %v: receipt %q: %s", x.method, x.params, id, out)
			}
		}
	}
	for _, line := range []string{`{`, `[]`, `{"jsonrpc":"2.0","id":1,"id":2,"method":"host/status"}`, `{"jsonrpc":"2.0","id":1.5,"method":"host/status"}`, "\xff", `"x"`} {
		c.line([]byte(line))
		if a := c.next(); a.code() != -32700 && a.code() != -32600 || a.class() == "" {
			t.Errorf("%q: %.300s", line, a.raw)
		}
	}
	c.line(nil)
	c.line([]byte("\r"))
	for name, p := range map[string]obj{
		"stale-baseline": {"callSite": "interactive", "proposalId": "nobody", "intent": "user"},
		"malformed":      applyParams(obj{"proposalId": "p"}),
	} {
		a := c.good("host/applyProposal", p)
		valid(t, a.raw, "result", outer+"applyProposalResult", new(wire.ApplyProposalResult))
		if a.refused() != name || a.receipt() == "" || a.result["baselineAfter"] != nil {
			t.Errorf("%s: %.500s", name, a.raw)
		}
	}
	// An edit that is not the proposal's.
	p := applyParams(proposal("edit", base, modify("a", "a\n", "b\n")))
	p["edit"] = obj{"baseline": base, "documentChanges": []obj{}}
	c.put("b\n")
	if a := c.good("host/applyProposal", p); a.refused() != "malformed" {
		t.Errorf("another edit: %.500s", a.raw)
	}
	if w.everything() != before {
		t.Error("a refused request changed the workspace")
	}
	if code := c.exit(); code != 0 {
		t.Errorf("exit status %d", code)
	}
}

// TestStartsAnew: configuration and policy are those of the moment of a request.
func TestStartsAnew(t *testing.T) {
	w := newWorld(t, "", map[string]string{"a": "a\n"})
	c := w.stdio()
	digestOf := func() any {
		p, _ := c.good("host/status", obj{}).result["policy"].(obj)
		return p["policyDigest"]
	}
	first := digestOf()
	must(t, os.WriteFile(filepath.Join(w.asp, "config.json"), []byte(`{"checks":{"no":{"argv":["/bin/false"],"required":true}}}`), 0o600))
	if second := digestOf(); second == first {
		t.Error("the policy digest is still that of the old configuration")
	}
	base := c.baseline()
	c.put("b\n")
	if a := c.good("host/applyProposal", applyParams(proposal("p", base, modify("a", "a\n", "b\n")))); a.refused() != "validation-denied" {
		t.Errorf("the new check does not deny: %.500s", a.raw)
	}
	must(t, os.WriteFile(filepath.Join(w.asp, "config.json"), []byte(`{"checks":`), 0o600))
	if a := c.call("host/status", obj{}); a.code() != -32010 || a.class() != "policy" {
		t.Errorf("a broken configuration: %.500s", a.raw)
	}
	must(t, os.Remove(filepath.Join(w.asp, "config.json")))
	if third := digestOf(); third != first {
		t.Error("without the configuration the policy is another one than before it")
	}
	if code := c.exit(); code != 0 {
		t.Errorf("exit status %d", code)
	}
}

// TestEnds: the ways in which a session ends, and the exit status.
func TestEnds(t *testing.T) {
	w := newWorld(t, "", map[string]string{"a": "a\n"})
	t.Run("a pipe of requests", func(t *testing.T) {
		code, out, errs := w.run(`{"jsonrpc":"2.0","id":1,"method":"host/status","params":{}}`+"\n"+
			`{"jsonrpc":"2.0","id":2,"method":"shutdown","params":{}}`+"\n"+`{"jsonrpc":"2.0","method":"exit"}`+"\n", "host", "serve", "--repo", w.root)
		if code != 0 || strings.Count(out, "\n") != 2 || !strings.Contains(out, `"id":2,"jsonrpc":"2.0","result":null`) {
			t.Errorf("exit status %d, %.500q, %s", code, out, errs)
		}
	})
	t.Run("nothing", func(t *testing.T) {
		if code, out, errs := w.run("", "host", "serve", "--repo", w.root); code != 0 || out != "" || errs != "" {
			t.Errorf("exit status %d, %q, %q", code, out, errs)
		}
	})
	t.Run("exit", func(t *testing.T) {
		c := w.stdio()
		c.good("host/status", obj{})
		c.notify("exit", obj{})
		if code := c.status(); code != 0 {
			t.Errorf("exit status %d", code)
		}
	})
	t.Run("half a line", func(t *testing.T) {
		code, out, _ := w.run(`{"jsonrpc":"2.0","id":1,"method":"host/sta`, "host", "serve", "--repo", w.root)
		if code != 0 || !strings.Contains(out, "-32700") {
			t.Errorf("exit status %d, %q", code, out)
		}
	})
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGHUP, syscall.SIGINT} {
		t.Run(sig.String(), func(t *testing.T) {
			c := w.stdio()
			c.good("host/status", obj{})
			must(t, c.cmd.Process.Signal(sig))
			if code := c.status(); code != 0 {
				t.Errorf("exit status %d", code)
			}
		})
	}
	t.Run("no workspace", func(t *testing.T) {
		if code, _, errs := w.run("", "host", "serve", "--repo", filepath.Join(w.base, "nowhere")); code != 3 || errs == "" {
			t.Errorf("exit status %d, %q", code, errs)
		}
	})
	t.Run("usage", func(t *testing.T) {
		for _, args := range [][]string{{"host"}, {"host", "start"}, {"host", "serve", "x"}, {"host", "serve", "--socket", ""}} {
			if code, _, errs := w.run("", args...); code != 2 || errs == "" {
				t.Errorf("%v: exit status %d, %q", args, code, errs)
			}
		}
	})
}

// TestMachineIsAskedOnce: what the machine can do is tried by starting children; a host
// remembers it for some minutes and says the same.
func TestMachineIsAskedOnce(t *testing.T) {
	w := newWorld(t, "", map[string]string{"a": "a\n"})
	c := w.stdio()
	// The page faults of children that were waited for: none without another child.
	faults := func() string {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", c.cmd.Process.Pid))
		must(t, err)
		f := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+2:]))
		return f[8] // cminflt
	}
	first := c.good("host/status", obj{})
	had := faults()
	if had == "0" {
		t.Errorf("nothing was tried: %s", first.raw)
	}
	for range 3 {
		if a := c.good("host/status", obj{}); !reflect.DeepEqual(a.result["assuranceCapabilities"], first.result["assuranceCapabilities"]) {
			t.Errorf("%v and then %v", first.result["assuranceCapabilities"], a.result["assuranceCapabilities"])
		}
	}
	if now := faults(); now != had {
		t.Errorf("page faults of children: %s and then %s", had, now)
	}
	c.exit()
}
