package conformance

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/aspengine/asp/internal/canon"
	"github.com/aspengine/asp/seam/wire"
)

func serverRequirements() []requirement {
	on := func(id, title string, try func(ctx context.Context, t *trial, x subject) error) requirement {
		return requirement{id, title, func(ctx context.Context, t *trial) error { return t.eachSubject(ctx, try) }}
	}
	return []requirement{
		on("CORE-SERVER-INITIALIZE", "initialize declares server, families, capabilities and permissions, and asks for no writes", serverInitialize),
		on("CORE-SERVER-UNSUPPORTED-PROTOCOL", "a version that is not spoken is refused, with a class", serverVersion),
		on("CORE-SERVER-PREINITIALIZED", "a request before the handshake is refused and leaves the provider usable", serverPreinitialized),
		on("CORE-SERVER-INITIALIZED-GRANT", "nothing is done before the grant; what it asks for stays inside it", serverGrant),
		on("CORE-SERVER-CALLBACK-CONTENT", "content comes by callbacks, and bytes that are not what their name says count for nothing", serverCallbacks),
		on("CORE-SERVER-GRANT-SCOPE", "content that is refused is missing coverage, never a complete answer", serverScope),
		on("CORE-SERVER-VALID-RESULTS", "results are acceptable by the contract's own list", serverResults),
		on("CORE-SERVER-TYPED-ERROR", "what cannot be answered is an error with failClass", serverErrors),
		on("CORE-SERVER-REJECTED-MALFORMED-HOST-FIELDS", "host-owned and unknown members are refused, and never sent", serverHostFields),
		on("CORE-SERVER-REJECTED-FRESHNESS", "answers are bound to exactly what was asked about", serverFreshness),
		on("CORE-SERVER-TIMEOUT", "a cancelled request ends, and so does the provider", serverTimeout),
		on("CORE-SERVER-BEHAVIOR-ONLY", "the same question has the same answer, from an empty place and an empty environment", serverBehavior),
	}
}

// subject is a provider under trial.
type subject struct {
	name string
	argv []string
	// path and bad are a file and content in which it finds something; for a
	// provider that nobody knows, a plain one.
	path, bad string
	// operation and args make an edit provider propose a plan for path; without
	// them its answer may be anything typed.
	operation string
	args      canon.Value
}

// subjects are the provider that was named, or the bundled ones.
func (r *runner) subjects() []subject {
	if len(r.o.Provider) > 0 {
		return []subject{{name: "provider", argv: r.o.Provider, path: "src/sample.txt", bad: "sample\n"}}
	}
	var out []subject
	for _, s := range []subject{
		{name: "syntax", path: "conf/sample.json", bad: "{\"open\": [1, 2\n"},
		{name: "secrets", path: "conf/sample.env", bad: "AWS_ACCESS_KEY_ID=AKIA" + "Z7QXN3VJ5RLW2KPD\n"},
		{name: "replace", path: "src/sample.txt", bad: "alpha beta\n", args: object(member("literal", "alpha"), member("replacement", "gamma"))},
		{name: "gofix", path: "sample.go", bad: "package sample\n\nimport \"fmt\"\n\nfunc f() {}\n"},
	} {
		s.argv = append(slices.Clone(r.o.Host), "provider", s.name)
		out = append(out, s)
	}
	return out
}

func (t *trial) eachSubject(ctx context.Context, try func(ctx context.Context, t *trial, x subject) error) error {
	for _, x := range t.run.subjects() {
		if err := try(ctx, t, x); err != nil {
			t.problem("%s: %v", x.name, err)
		}
	}
	return nil
}

func serverInitialize(ctx context.Context, t *trial, x subject) error {
	g, err := t.engage(x)
	if err != nil {
		return err
	}
	a, err := g.call(ctx, "initialize", g.initializeParams("asp/1.0"))
	if err != nil {
		g.kill()
		return err
	}
	t.show(x.name, request(a), a.result)
	if !t.judge(a.err == nil, "%s: initialize is refused: %v", x.name, a.err) {
		g.kill()
		return nil
	}
	var r wire.InitializeResult
	err = wire.Decode(a.result, &r)
	t.judge(err == nil, "%s: %v", x.name, err)
	t.judge(r.ServerInfo.Name != "" && r.ServerInfo.Version != "" && r.ServerInfo.Fingerprint != "", "%s: serverInfo %+v", x.name, r.ServerInfo)
	for _, f := range r.CapabilityFamilies {
		t.judge(at(a.result, "capabilities", string(f)).Kind() == canon.Object, "%s: family %s has no capability block", x.name, f)
	}
	t.judge(!at(a.result, "requestedPermissions", "write").Truth(), "%s: asks for write access", x.name)
	t.judge(len(wire.ScanHostOwned(a.result)) == 0, "%s: host-owned keys in initialize", x.name)
	second, err := g.call(ctx, "initialize", g.initializeParams("asp/1.0"))
	t.judge(err == nil && second.err != nil, "%s: a second initialize is not refused", x.name)
	g.leave(ctx)
	return nil
}

func serverVersion(ctx context.Context, t *trial, x subject) error {
	for _, version := range []string{"asp/9.0", "asp/1", "", "mcp/1.0"} {
		g, err := t.engage(x)
		if err != nil {
			return err
		}
		a, err := g.call(ctx, "initialize", g.initializeParams(version))
		if err != nil {
			g.kill()
			return err
		}
		if t.judge(a.err != nil, "%s: initialize with %q is answered by a result", x.name, version) {
			t.show(x.name, request(a), errorValue(a.err))
			t.typed(x.name+": initialize with "+version, a.err)
		}
		g.close(10 * time.Second)
		select {
		case <-g.asked:
			t.problem("%s: asks for something before it was initialized", x.name)
		default:
		}
	}
	return nil
}

func serverPreinitialized(ctx context.Context, t *trial, x subject) error {
	g, err := t.engage(x)
	if err != nil {
		return err
	}
	for _, f := range []wire.Family{wire.Check, wire.Edit} {
		method, params := g.question(f)
		a, err := g.call(ctx, method, params)
		if err != nil {
			g.kill()
			return err
		}
		if t.judge(a.err != nil, "%s: %s before initialize is answered by a result", x.name, method) {
			t.show(x.name, request(a), errorValue(a.err))
			t.judge(len(g.served) == 0, "%s: read content before initialize", x.name)
		}
	}
	_, err = g.handshake(ctx)
	t.judge(err == nil, "%s: not usable after an early request: %v", x.name, err)
	g.leave(ctx)
	return nil
}

func serverGrant(ctx context.Context, t *trial, x subject) error {
	// Initialized, and not granted yet.
	g, err := t.engage(x)
	if err != nil {
		return err
	}
	a, err := g.call(ctx, "initialize", g.initializeParams("asp/1.0"))
	if err != nil {
		g.kill()
		return err
	}
	var r wire.InitializeResult
	if a.err != nil || wire.Decode(a.result, &r) != nil {
		g.kill()
		return fmt.Errorf("initialize: %v", a.err)
	}
	method, params := g.question(family(r))
	if a, err = g.call(ctx, method, params); err != nil {
		g.kill()
		return err
	}
	if t.judge(a.err != nil, "%s: %s before the grant is answered by a result", x.name, method) {
		t.show(x.name, request(a), errorValue(a.err))
	}
	t.judge(len(g.served) == 0, "%s: read content before the grant", x.name)
	if err := g.notify("initialized", g.grant("**/*")); err != nil {
		g.kill()
		return err
	}
	if a, err = g.call(ctx, method, params); err != nil {
		g.kill()
		return err
	}
	t.judge(a.err == nil || failClass(a.err) == wire.FailInput, "%s: refused after the grant: %v", x.name, a.err)
	g.leave(ctx)
	return nil
}

func serverCallbacks(ctx context.Context, t *trial, x subject) error {
	g, f, a, err := t.askSubject(ctx, x, nil)
	if err != nil {
		return err
	}
	if f == wire.Check {
		t.judge(a.err == nil, "%s: %v", x.name, a.err)
		t.judge(len(g.served) > 0, "%s: answered without having read anything", x.name)
	}
	g.leave(ctx)
	if g, f, a, err = t.askSubject(ctx, x, func(g *guest, p canon.Value) canon.Value { g.lie = true; return p }); err != nil {
		return err
	}
	if a.err == nil {
		status := text(a.result, "status")
		if f == wire.Edit {
			status = text(a.result, "proposal", "status")
		}
		t.judge(len(g.served) == 0 || status != "complete", "%s: complete over bytes that are not what their name says", x.name)
	} else {
		t.typed(x.name+": wrong bytes", a.err)
	}
	g.leave(ctx)
	return nil
}

func serverScope(ctx context.Context, t *trial, x subject) error {
	g, f, a, err := t.askSubject(ctx, x, func(g *guest, p canon.Value) canon.Value {
		g.granted = func(path string) bool { return path != x.path }
		return p
	})
	if err != nil {
		return err
	}
	if a.err == nil {
		r := a.result
		if f == wire.Edit {
			r = at(r, "proposal")
		}
		t.judge(g.refused == 0 && f == wire.Edit || text(r, "status") != "complete" || f == wire.Edit && at(r, "workspaceEdit", "documentChanges").Len() == 0,
			"%s: complete although its content was refused", x.name)
		for _, b := range stringsOf(at(r, "validAsOf", "blobs")) {
			t.judge(g.served[b], "%s: validAsOf names content that was never served", x.name)
		}
	} else {
		t.typed(x.name+": refused content", a.err)
	}
	g.leave(ctx)
	return nil
}

// acceptable judges a result by the list of the contract, section 4.
func (g *guest) acceptable(f wire.Family, a answer) {
	t, say := g.t, func(ok bool, format string, args ...any) { g.t.judge(ok, g.x.name+": "+format, args...) }
	if a.err != nil {
		t.typed(g.x.name, a.err)
		return
	}
	if f == wire.Edit {
		plan := at(a.result, "proposal")
		var p wire.EditPlan
		err := wire.Decode(plan, &p)
		say(err == nil && a.result.Len() == 1, "no acceptable plan: %v", err)
		say(len(wire.ScanForbidden(plan)) == 0, "forbidden keys in a plan: %v", wire.ScanForbidden(plan))
		say(p.ProposalID == text(a.params, "proposalId"), "the plan is called %q", p.ProposalID)
		say(canon.Equal(at(plan, "baseline"), at(a.params, "baseline")), "the plan is on another baseline")
		if p.WorkspaceEdit != nil {
			say(len(p.TouchedResources) == len(p.WorkspaceEdit.DocumentChanges), "touchedResources do not mirror documentChanges")
			for _, c := range p.WorkspaceEdit.DocumentChanges {
				say(slices.Contains(stringsOf(at(a.params, "scope", "paths")), c.Path), "%q is outside of the scope asked for", c.Path)
			}
		}
		return
	}
	var as wire.Assessment
	if err := wire.Decode(a.result, &as); err != nil {
		say(false, "no acceptable assessment: %v", err)
		return
	}
	cs := at(a.params, "changeset")
	say(len(wire.ScanHostOwned(a.result)) == 0, "host-owned keys in an assessment")
	say(canon.Equal(at(a.result, "validAsOf", "baseline"), at(cs, "baseline")), "validAsOf.baseline is not the one asked about")
	say(as.ValidAsOf.ChangesetDigest == canon.DigestText(cs), "validAsOf.changesetDigest is not the changeset's")
	say(len(as.ValidAsOf.Blobs) == len(g.served), "validAsOf names %d contents, %d were served", len(as.ValidAsOf.Blobs), len(g.served))
	for _, b := range as.ValidAsOf.Blobs {
		say(g.served[string(b)], "validAsOf names content that was never served")
	}
	if as.Status == wire.StatusComplete {
		say(same(as.Coverage.Requested, as.Coverage.Covered) && as.Coverage.Exhaustive && !as.Coverage.Truncated && len(as.Coverage.Degraded)+len(as.Coverage.Unsupported) == 0, "complete, and coverage %+v", as.Coverage)
	} else {
		say(!as.Coverage.Exhaustive, "%s, and exhaustive", as.Status)
	}
	for _, d := range as.Diagnostics {
		source, _, ok := strings.Cut(d.Code, "/")
		say(ok && (slices.Contains(as.Coverage.Covered.DiagnosticSources, source) || slices.Contains(as.Coverage.Requested.DiagnosticSources, source)), "code %q is under no declared source", d.Code)
		say(d.Location.Path == g.x.path, "a finding in %q, which nobody asked about", d.Location.Path)
		say(d.Introduced == nil || *d.Introduced, "a finding that was asked for as introduced says it is not")
	}
}

func serverResults(ctx context.Context, t *trial, x subject) error {
	g, f, a, err := t.askSubject(ctx, x, nil)
	if err != nil {
		return err
	}
	g.acceptable(f, a)
	if f == wire.Check && len(t.run.o.Provider) == 0 {
		t.judge(at(a.result, "diagnostics").Len() > 0, "%s: found nothing in its sample", x.name)
		t.judge(text(a.result, "status") == "complete", "%s: status %q", x.name, text(a.result, "status"))
	}
	g.leave(ctx)
	if f != wire.Check {
		return nil
	}
	// A clean file, a deletion and a rename.
	clean := x
	clean.path, clean.bad = "src/plain.txt", "nothing to see\n"
	if g, f, a, err = t.askSubject(ctx, clean, func(g *guest, p canon.Value) canon.Value {
		old := blobID(baseFiles["src/a.txt"])
		return put(p, []canon.Value{object(member("path", clean.path), member("kind", "create"), member("after", blobID(clean.bad))),
			object(member("path", "README.md"), member("kind", "delete"), member("before", blobID(g.tree["README.md"]))),
			object(member("path", "src/z.txt"), member("kind", "rename"), member("from", "src/a.txt"), member("before", old), member("after", old))}, "changeset", "changes")
	}); err != nil {
		return err
	}
	g.acceptable(f, a)
	t.judge(a.err == nil, "%s: a changeset of create, delete and rename is refused: %v", x.name, a.err)
	t.judge(at(a.result, "diagnostics").Len() == 0 || len(t.run.o.Provider) > 0, "%s: findings in plain text", x.name)
	g.leave(ctx)
	return nil
}

func serverErrors(ctx context.Context, t *trial, x subject) error {
	g, err := t.engage(x)
	if err != nil {
		return err
	}
	r, err := g.handshake(ctx)
	if err != nil {
		g.kill()
		return err
	}
	method, good := g.question(family(r))
	first := "changeset"
	if method == "edit/propose" {
		first = "baseline"
	}
	for _, c := range []struct {
		name   string
		params canon.Value
	}{{"no " + first, drop(good, first)}, {first + " of another kind", put(good, 7, first)}, {"nothing", object()}, {"null", put(good, canon.NullOf(), first)}} {
		a, err := g.call(ctx, method, c.params)
		if err != nil {
			g.kill()
			return err
		}
		if t.judge(a.err != nil, "%s: %s with %s is answered by a result", x.name, method, c.name) {
			t.show(x.name+": "+c.name, request(a), errorValue(a.err))
			t.typed(x.name+": "+c.name, a.err)
		}
	}
	a, err := g.call(ctx, "no/such/method", object())
	t.judge(err == nil && a.err != nil, "%s: an unknown method has a result", x.name)
	a, err = g.call(ctx, method, good)
	t.judge(err == nil && (a.err == nil || failClass(a.err) == wire.FailInput), "%s: not usable after bad requests: %v %v", x.name, err, a.err)
	g.leave(ctx)
	return nil
}

func serverHostFields(ctx context.Context, t *trial, x subject) error {
	for _, key := range []string{"decision", "authority", "callSite", "policyDigest"} {
		g, f, a, err := t.askSubject(ctx, x, func(g *guest, p canon.Value) canon.Value { return put(p, "gate", key) })
		if err != nil {
			return err
		}
		if t.judge(a.err != nil, "%s: a request with %s is answered by a result", x.name, key) {
			t.judge(failClass(a.err) == wire.FailInput || failClass(a.err) == wire.FailContract, "%s: a request with %s: failClass %q", x.name, key, failClass(a.err))
		}
		g.leave(ctx)
		if f == wire.Check && key == "decision" {
			if g, _, a, err = t.askSubject(ctx, x, func(g *guest, p canon.Value) canon.Value {
				return put(p, object(member("decision", "allow")), "configuration")
			}); err != nil {
				return err
			}
			t.judge(a.err != nil, "%s: an unknown setting is answered by a result", x.name)
			g.leave(ctx)
		}
	}
	g, f, a, err := t.askSubject(ctx, x, nil)
	if err != nil {
		return err
	}
	found := wire.ScanHostOwned(a.result)
	if f == wire.Edit {
		found = wire.ScanForbidden(a.result)
	}
	t.judge(len(found) == 0, "%s: sends %v", x.name, found)
	g.leave(ctx)
	return nil
}

func serverFreshness(ctx context.Context, t *trial, x subject) error {
	other := object(member("rev", "git:tree:"+strings.Repeat("77", 20)), member("dirty", "sha256:"+strings.Repeat("7", 64)))
	g, f, a, err := t.askSubject(ctx, x, func(g *guest, p canon.Value) canon.Value {
		if _, ok := p.Get("changeset"); ok {
			return put(p, other, "changeset", "baseline")
		}
		return put(p, other, "baseline")
	})
	if err != nil {
		return err
	}
	// It may refuse what is not the session's baseline; it may answer, bound to what
	// was asked about. It may not answer bound to anything else.
	g.acceptable(f, a)
	g.leave(ctx)
	return nil
}

func serverTimeout(ctx context.Context, t *trial, x subject) error {
	g, err := t.engage(x)
	if err != nil {
		return err
	}
	r, err := g.handshake(ctx)
	if err != nil {
		g.kill()
		return err
	}
	f := family(r)
	method, params := g.question(f)
	g.stall = make(chan struct{})
	q, err := g.ask(method, params)
	if err != nil {
		g.kill()
		return err
	}
	early := make(chan answer, 1)
	go func() {
		a, err := g.wait(ctx, q)
		if err != nil {
			close(early)
			return
		}
		early <- a
	}()
	select {
	case <-g.asked:
		if err := g.notify("$/cancelRequest", object(member("id", q.id))); err != nil {
			g.kill()
			return err
		}
		close(g.stall)
	case a, ok := <-early:
		// It needed no content to answer, so there is nothing to wait for.
		close(g.stall)
		t.show(x.name+": answered without content", canon.Value{}, errorValue(orEmpty(a.err)))
		t.judge(ok && (a.err != nil || f == wire.Edit), "%s: complete without a callback", x.name)
		g.leave(ctx)
		return nil
	case <-time.After(patience):
		g.kill()
		return fmt.Errorf("neither callback nor answer within %v", patience)
	}
	a, ok := <-early
	if !t.judge(ok, "%s: no answer after a cancel", x.name) {
		g.kill()
		return nil
	}
	if a.err != nil {
		t.show(x.name+": cancelled", request(a), errorValue(a.err))
		t.typed(x.name+": cancelled", a.err)
	} else {
		t.show(x.name+": cancelled", request(a), a.result)
		result := a.result
		if f == wire.Edit {
			result = at(result, "proposal")
		}
		t.judge(text(result, "status") != "complete", "%s: complete although cancelled without content", x.name)
	}
	// The end of its input ends it, whatever it was doing.
	err = g.close(10 * time.Second)
	t.judge(err == nil, "%s: did not end with status 0 at the end of its input: %v", x.name, err)
	return nil
}

func serverBehavior(ctx context.Context, t *trial, x subject) error {
	var last canon.Value
	for i := range 2 {
		g, _, a, err := t.askSubject(ctx, x, nil)
		if err != nil {
			return err
		}
		v := errorValue(orEmpty(a.err))
		if a.err == nil {
			v = a.result.Without("timing").Without("cache")
		}
		t.judge(i == 0 || canon.Equal(v, last), "%s: the same question had another answer the second time", x.name)
		last = v
		g.leave(ctx)
	}
	return nil
}
