package hosttest

import (
	"bufio"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/aspengine/asp/internal/canon"
)

// fake is a provider that the host under test launches: this test binary, told by its
// arguments what it is. It finds the lines that hold BAD, proposes to put a line at the
// top of a file, and tells every file as impacted that the changed one names.
type fake struct {
	in     *bufio.Scanner
	id     string
	how    map[string]string
	legacy bool
	last   int
	served []string
	base   any // as it was told last
}

// The words of the arguments beside id=: proto=asp/0.1, incremental, operations=A;B,
// publish, names=old (legacy names of requests alone), hide (findings that it calls introduced), work=crash, and what is done to the
// answer of a check: work=twice, work=stray (a callback after it), work=backwards.
func fakeMain(args []string) int {
	f := &fake{in: bufio.NewScanner(os.Stdin), how: map[string]string{}}
	f.in.Buffer(nil, 32<<20)
	for _, a := range args {
		k, v, _ := strings.Cut(a, "=")
		f.how[k] = v
	}
	f.id, f.legacy = f.how["id"], f.how["proto"] == "asp/0.1"
	for {
		m := f.read()
		if m == nil {
			return 0
		}
		params, _ := m["params"].(obj)
		method, _ := m["method"].(string)
		if f.how["names"] == "old" { // it knows nothing by another name
			for new, old := range map[string]string{"check/evaluate": "judge/evaluate", "edit/propose": "act/propose", "inspect/references": "sense/references", "inspect/impact": "sense/impact"} {
				if method == new {
					method = "unknown"
				} else if method == old {
					method = new
				}
			}
		}
		switch method {
		case "initialize":
			f.base = params["workspace"].(obj)["baseline"]
			f.initialize(m["id"])
		case "initialized", "": // the grant, and the answer to what was not waited for
		case "workspace/baselineChanged":
			f.base = params["baseline"]
		case "shutdown":
			if f.legacy {
				f.send(obj{"id": m["id"], "error": obj{"code": -32601, "message": "no"}})
				continue
			}
			f.send(obj{"id": m["id"], "result": nil})
		case "exit":
			return 0
		case "check/evaluate":
			if f.how["work"] == "crash" {
				return 7
			}
			f.served = nil
			f.evaluate(m["id"], params)
		case "edit/propose":
			f.served = nil
			f.propose(m["id"], params)
		case "inspect/impact", "sense/impact", "inspect/references":
			if f.how["work"] == "crash" {
				return 7
			}
			f.served = nil
			f.inspect(m["id"], method, params)
		default:
			f.send(obj{"id": m["id"], "error": obj{"code": -32601, "message": "no"}})
		}
	}
}

func (f *fake) read() obj {
	if !f.in.Scan() {
		return nil
	}
	var m obj
	d := json.NewDecoder(strings.NewReader(f.in.Text()))
	d.UseNumber()
	if err := d.Decode(&m); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(9)
	}
	return m
}

func (f *fake) send(m obj) {
	m["jsonrpc"] = "2.0"
	b, err := json.Marshal(m)
	if err != nil {
		os.Exit(9)
	}
	os.Stdout.Write(append(b, '\n'))
}

func (f *fake) call(method string, params obj) obj {
	f.last++
	f.send(obj{"id": f.last, "method": method, "params": params})
	m := f.read()
	r, _ := m["result"].(obj)
	if r == nil {
		fmt.Fprintln(os.Stderr, "refused:", m["error"])
		os.Exit(8)
	}
	return r
}

func (f *fake) blob(id string) string {
	r := f.call("workspace/readBlob", obj{"blobs": []string{id}})
	b := r["blobs"].([]any)[0].(obj)
	if !slices.Contains(f.served, id) {
		f.served = append(f.served, id)
	}
	s := b["bytes"].(string)
	if b["encoding"] == "base64" {
		raw, _ := base64.StdEncoding.DecodeString(s)
		s = string(raw)
	}
	return s
}

func (f *fake) initialize(id any) {
	_, incremental := f.how["incremental"]
	operations := []string{"text-edit"}
	if o := f.how["operations"]; o != "" {
		operations = strings.Split(o, ";")
	}
	check := obj{"capabilityVersion": "check/1.0", "diagnosticSources": []string{f.id}, "scopes": []string{"changeset", "workspace"}, "comparisons": []string{"introduced", "all", "resolved"},
		"partialResults": false, "incremental": incremental, "unsupportedReporting": "assessment-status"}
	edit := obj{"capabilityVersion": "edit/1.0", "operations": operations, "operationSupport": obj{"create": true, "modify": true, "delete": true, "rename": true, "move": true},
		"textEditSupport": true, "wholeResourceSupport": true, "renameMoveSupport": true, "preconditionSupport": "required", "blobUploadSupport": "workspace/putBlob", "partialProposalSemantics": "status"}
	read := obj{"read": []string{"**/*"}, "write": false, "network": false}
	info := obj{"name": "Fake", "version": "1.0.0", "fingerprint": "sha256:00"}
	if f.legacy {
		f.send(obj{"id": id, "result": obj{"serverInfo": info, "capabilityFamilies": []string{"check"}, "requestedPermissions": read, "provenance": obj{"publisher": "p", "packageName": "n"},
			"capabilities": obj{"check": obj{"diagnosticSources": []string{f.id}, "comparisons": []string{"all"}}}}})
		return
	}
	f.send(obj{"id": id, "result": obj{"serverInfo": info, "capabilityFamilies": []string{"check", "edit", "inspect"}, "requestedPermissions": read, "provenance": obj{"publisher": "p"},
		"capabilities": obj{"check": check, "edit": edit, "inspect": obj{"verbs": []string{"impact", "references"}, "query": []string{}}}}})
}

// finding is the one of a line.
func (f *fake) finding(path, line string, introduced bool) obj {
	sum := sha256.Sum256([]byte(path + "\x00" + line))
	d := obj{"code": f.id + "/bad", "severity": "error", "source": f.id, "message": line, "location": obj{"path": path}, "fingerprint": "sha256:" + hex.EncodeToString(sum[:])}
	if introduced {
		d["introduced"] = true
	}
	return d
}

func badLines(s string) (out []string) {
	for l := range strings.Lines(s) {
		if strings.Contains(l, "BAD") {
			out = append(out, strings.TrimSpace(l))
		}
	}
	return out
}

func (f *fake) evaluate(id any, p obj) {
	comparison, _ := p["comparison"].(string)
	changeset := p["changeset"].(obj)
	told := map[string]int{} // fingerprints of before
	prior, knows := p["priorDiagnostics"].([]any)
	for _, x := range prior {
		told[x.(obj)["diagnostic"].(obj)["fingerprint"].(string)]++
	}
	found := []any{}
	seen := map[string]bool{}
	look := func(path, content string, before map[string]int) {
		for i, l := range badLines(content) {
			d := f.finding(path, l, comparison == "introduced")
			key := d["fingerprint"].(string)
			if comparison == "introduced" && before[key] > 0 {
				before[key]--
				continue
			}
			d["location"].(obj)["range"] = obj{"start": obj{"line": i, "char": 0}, "end": obj{"line": i, "char": 1}}
			if f.legacy {
				d["location"].(obj)["range"] = obj{"start": obj{"line": i, "column": 0}}
			}
			found = append(found, d)
		}
		seen[path] = true
	}
	for _, x := range changeset["changes"].([]any) {
		c := x.(obj)
		after, _ := c["after"].(string)
		if after == "" {
			continue
		}
		before := told
		if b, _ := c["before"].(string); b != "" && !knows && comparison == "introduced" {
			before = map[string]int{}
			for _, l := range badLines(f.blob(b)) {
				before[f.finding(c["path"].(string), l, false)["fingerprint"].(string)]++
			}
		}
		look(c["path"].(string), f.blob(after), before)
	}
	if scope, ok := p["scope"].(obj); ok {
		for _, x := range scope["paths"].([]any) {
			path := x.(string)
			if seen[path] {
				continue
			}
			for _, e := range f.call("workspace/listTree", obj{"paths": []string{path}})["entries"].([]any) {
				look(path, f.blob(e.(obj)["blobId"].(string)), map[string]int{})
			}
		}
	}
	if _, hides := f.how["hide"]; hides && comparison == "introduced" {
		found = []any{}
	}
	if _, ok := f.how["publish"]; ok {
		f.send(obj{"method": "judge/publishDiagnostics", "params": obj{"uri": "a.txt", "validAsOf": obj{"rev": "r"}, "diagnostics": []any{f.finding("a.txt", "ambient \x1b[31mBAD", false)}}})
	}
	scope := p["scope"]
	version, timing, cache := "check/1.0", obj{"elapsedMs": 1}, obj{"status": "miss"}
	rules, _ := p["rules"].([]any)
	if f.legacy {
		scope, version, timing, cache = obj{"paths": []string{"a.txt"}}, "check/0.1", obj{"durationMs": 1.5}, obj{"status": "disabled"}
		rules, _ = p["checks"].([]any)
	}
	if rules == nil {
		rules = []any{}
	}
	part := obj{"scope": scope, "diagnosticSources": []any{}, "rules": rules, "comparison": comparison}
	if f.how["work"] == "backwards" {
		timing = obj{"startedAt": "2026-01-02T03:04:06Z", "endedAt": "2026-01-02T03:04:05Z"}
	}
	answer := obj{"id": id, "result": obj{"status": "complete", "diagnostics": found, "timing": timing, "cache": cache,
		"coverage":  obj{"requested": part, "covered": part, "degraded": []any{}, "unsupported": []any{}, "exhaustive": true, "truncated": false},
		"validAsOf": obj{"baseline": changeset["baseline"], "changesetDigest": digestOf(changeset), "blobs": f.blobs()},
		"provider":  obj{"id": f.id, "version": "1.0.0", "configDigest": "sha256:cfg", "capabilityVersion": version}}}
	f.send(answer)
	switch f.how["work"] {
	case "twice":
		answer["result"].(obj)["diagnostics"] = []any{}
		f.send(answer)
	case "stray":
		f.send(obj{"id": "stray", "method": "workspace/listTree", "params": obj{}})
	}
}

func (f *fake) blobs() []string {
	if f.served == nil {
		return []string{}
	}
	return f.served
}

func digestOf(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		os.Exit(9)
	}
	x, err := canon.Parse(b, canon.Limits{})
	if err != nil {
		os.Exit(9)
	}
	return canon.DigestText(x)
}

func (f *fake) propose(id any, p obj) {
	entries := f.call("workspace/listTree", obj{"paths": []string{"a.txt"}})["entries"].([]any)
	basis := entries[0].(obj)["blobId"].(string)
	f.blob(basis)
	pre := obj{"expectedDigest": basis}
	f.send(obj{"id": id, "result": obj{"proposal": obj{
		"proposalId": p["proposalId"], "status": "complete", "baseline": p["baseline"],
		"provider":         obj{"id": f.id, "version": "1.0.0", "capabilityFamily": "edit", "capabilityVersion": "edit/1.0", "configDigest": "d"},
		"validAsOf":        obj{"baseline": p["baseline"], "blobs": f.blobs()},
		"touchedResources": []obj{{"path": "a.txt", "kind": "modify", "precondition": pre}},
		"workspaceEdit": obj{"baseline": p["baseline"], "documentChanges": []obj{{"path": "a.txt", "kind": "modify", "precondition": pre, "edits": []obj{
			{"range": obj{"start": obj{"line": 0, "char": 0}, "end": obj{"line": 0, "char": 0}}, "rangeBasis": basis, "coordinateSystem": "utf16", "newText": "proposed\n"}}}}},
	}}})
}

// inspect tells the files that hold the name of a changed one.
func (f *fake) inspect(id any, method string, p obj) {
	asOf := obj{"rev": f.base.(obj)["rev"]}
	if !strings.HasSuffix(method, "/impact") {
		asOf["blobs"] = f.blobs()
		f.send(obj{"id": id, "result": obj{"nodes": []any{}, "edges": []any{}, "validAsOf": asOf}})
		return
	}
	impacted := []string{}
	for _, e := range f.call("workspace/listTree", obj{})["entries"].([]any) {
		content := f.blob(e.(obj)["blobId"].(string))
		for _, c := range p["changeset"].(obj)["changes"].([]any) {
			if strings.Contains(content, c.(obj)["path"].(string)) {
				impacted = append(impacted, e.(obj)["path"].(string))
			}
		}
	}
	asOf["blobs"] = f.blobs()
	f.send(obj{"id": id, "result": obj{"changedNodes": []any{}, "impactedNodes": []any{}, "impactedFiles": impacted, "validAsOf": asOf}})
}

// enrol adds the fake under an id, enables it in the mode gated and commits a policy
// that pins every provider enrolled so far for the families, in all call-sites.
func (w *world) enrol(id string, families []string, args ...string) {
	w.t.Helper()
	w.add(id, args...)
	w.fakes = append(w.fakes, id)
	must(w.t, os.MkdirAll(filepath.Join(w.root, ".asp"), 0o755))
	w.write(".asp/asp.json", w.policy("gated", families...))
	w.git("add", "-A")
	w.git("commit", "-q", "-m", "policy")
}

func (w *world) add(id string, args ...string) {
	w.t.Helper()
	exe, err := os.Executable()
	must(w.t, err)
	program, err := os.ReadFile(exe)
	must(w.t, err)
	sum := sha256.Sum256(program)
	proto, families := "asp/1.0", []string{"check", "edit", "inspect"}
	if slices.Contains(args, "proto=asp/0.1") {
		proto, families = "asp/0.1", []string{"check"}
	}
	b, err := json.Marshal(obj{"manifestVersion": "asp-server/1.0", "server": obj{"id": id, "name": "Fake", "version": "1.0.0"}, "protocolVersions": []string{proto},
		"capabilities": families, "capabilityProfiles": []string{"core"}, "entrypoint": obj{"transport": "stdio", "bin": exe, "args": append([]string{"fake", "id=" + id}, args...)},
		"artifact":   obj{"fingerprint": "sha256:00", "checksums": []obj{{"path": exe, "sha256": hex.EncodeToString(sum[:])}}},
		"provenance": obj{"publisher": "p", "source": "s", "license": "MIT"},
		"accessExpectations": obj{"filesystem": obj{"read": []string{"**/*"}, "write": []string{}}, "network": obj{"outbound": false, "allowlist": []string{}}, "secrets": obj{"names": []string{}},
			"environment": obj{"inherit": false, "variables": []string{}}, "dataClasses": []string{}}})
	must(w.t, err)
	file := filepath.Join(w.base, id+".json")
	must(w.t, os.WriteFile(file, b, 0o644))
	for _, args := range [][]string{{"server", "add", "--manifest", file}, {"repo", "add", w.root}, {"repo", "enable", id, "--mode", "gated"}} {
		if code, out, errs := w.run("", args...); code != 0 {
			w.t.Fatalf("%v: %s%s", args, out, errs)
		}
	}
}

// policy pins the fakes.
func (w *world) policy(assurance string, families ...string) string {
	var reqs []obj
	var ids []string
	for _, id := range w.fakes {
		ids = append(ids, "req-"+id)
		reqs = append(reqs, obj{"id": "req-" + id, "capabilities": families, "assurance": []string{assurance}, "authority": obj{"providers": []obj{
			{"id": id, "version": "1.0.0", "identity": "p", "integrity": "sha256:00", "conformance": "core"}}}})
	}
	gate := obj{"requiredRequirements": ids, "optionalRequirements": []string{}}
	b, err := json.Marshal(obj{"aspVersion": "asp/1.0", "requirements": reqs, "gates": obj{"interactive": gate, "gate": gate, "sweep": gate},
		"policy": obj{"authorityModel": "explicit-pinned-provider", "policyChangeActivation": "base-policy-two-phase", "candidatePolicyAuthority": "trusted-base-or-organization-floor",
			"missingHost": obj{"interactive": "warn-open", "gate": "fail-closed", "sweep": "warn-open"}}})
	must(w.t, err)
	return string(b)
}

// trace is a transcript of both seams.
type trace struct {
	t    testing.TB
	file string
}

func (w *world) trace() *trace { return &trace{w.t, filepath.Join(w.base, "trace")} }
func (r *trace) env() string   { return "ASP_TRACE=" + r.file }

// sent are the params of the messages of a method, in order.
func (r *trace) sent(method string) (out []obj) {
	r.t.Helper()
	b, err := os.ReadFile(r.file)
	must(r.t, err)
	for l := range strings.Lines(string(b)) {
		var x obj
		must(r.t, json.Unmarshal([]byte(l), &x))
		m, _ := x["message"].(obj)
		if m["method"] == method {
			p, _ := m["params"].(obj)
			out = append(out, p)
		}
	}
	return out
}
