package main

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aspengine/asp/snapshot"
)

// hostRows measures a resident host on stdio, with a provider that answers at
// once: the seeded one of the conformance suite, which comes with the binary and
// is enrolled, pinned and sandboxed like any other.
func (c *config) hostRows(ctx context.Context) error {
	for _, n := range c.hosts {
		r, err := newRepo(filepath.Join(c.mem, fmt.Sprint("host-", n)), n)
		if err != nil {
			return err
		}
		err = c.hostOn(ctx, r)
		os.RemoveAll(filepath.Dir(r.dir))
		if err != nil {
			return fmt.Errorf("%d files: %w", n, err)
		}
	}
	return c.hostStart(ctx)
}

// The goals of a host, in milliseconds. They are stated for 50,000 files and hold
// for fewer as well.
const (
	editP50Goal, editP99Goal = 25, 60
	statusGoal               = 150
	evaluateGoal, cacheGoal  = 5, 5
)

func (c *config) hostOn(ctx context.Context, r *repo) error {
	w, err := c.enrol(r)
	if err != nil {
		return err
	}
	host, err := talkTo(r.dir, r.env(), c.asp, "host", "serve")
	if err != nil {
		return err
	}
	w.host = host
	err = c.hostSession(ctx, w)
	if eerr := host.end(); err == nil {
		err = eerr
	}
	return err
}

func (c *config) hostSession(ctx context.Context, w *enrolled) error {
	ch, err := w.r.change(10)
	if err != nil {
		return err
	}
	files := len(w.r.files)
	where := row{Group: "host", Where: c.memType, Unit: "ms"}
	add := func(what string, v, floor, goal float64, runs int) {
		x := where
		x.What, x.Ours, x.Runs = fmt.Sprintf("%s, %d files", what, files), v, runs
		if floor > 0 {
			x.Floor, x.FloorIs = floor, "the provider asked directly"
			goal += floor
		}
		c.out.most(x, goal)
	}
	rounds := 3 * c.runs
	before := cpuTime(w.host.cmd.Process.Pid)
	edits, err := w.editRounds(ctx, ch, rounds)
	if err != nil {
		return err
	}
	spent := cpuTime(w.host.cmd.Process.Pid) - before
	add("request a plan of 10 changes and apply it, p50", quantile(edits, 0.5), 0, editP50Goal, rounds)
	add(fmt.Sprintf("… p99 of %d", rounds), quantile(edits, 0.99), 0, editP99Goal, rounds)
	if spent > 0 {
		x := where
		x.What, x.Ours, x.Runs = fmt.Sprintf("… processor time of the host for one, %d files", files), ms(spent)/float64(rounds+warmUp), 1
		c.out.add(x)
	}

	direct, err := w.direct(c)
	if err != nil {
		return err
	}
	defer direct.end()
	var asked, hit asks
	var own []time.Duration
	for i := range c.runs + 1 {
		if err := ctx.Err(); err != nil {
			return err
		}
		if i == 1 { // the first starts the provider
			asked, hit, own = asks{}, asks{}, nil
		}
		o, err := w.evaluateRound(direct, ch, i, &asked, &hit)
		if err != nil {
			return err
		}
		own = append(own, o)
	}
	spend := func(a asks) {
		if x := where; quantile(a.spent, 0.5) > 0 {
			x.What, x.Ours, x.Runs = fmt.Sprintf("… processor time of the host for one, %d files", files), quantile(a.spent, 0.5), c.runs
			c.out.add(x)
		}
	}
	floor := quantile(own, 0.5)
	add("evaluate 10 changes with a warm provider", quantile(asked.took, 0.5), floor, evaluateGoal, c.runs)
	spend(asked)
	add("the same asked again: the verdict is remembered", quantile(hit.took, 0.5), 0, cacheGoal, c.runs)
	spend(hit)
	return nil
}

// asks is what some requests took until they were answered, and the host's processor
// time for each.
type asks struct{ took, spent []time.Duration }

// quantile sorts and returns the value, in milliseconds, that a share q of the
// measurements do not exceed.
func quantile(d []time.Duration, q float64) float64 {
	slices.Sort(d)
	return ms(d[min(len(d)-1, int(q*float64(len(d))))])
}

// enrolled is a repository with the instant provider in force.
type enrolled struct {
	r    *repo
	host *talk
	base json.RawMessage // the baseline that was issued last
	role string
}

const instant = "instant"

// enrol adds the provider, commits a policy that gives it authority to edit and
// requires its check on the gate, and enables it.
func (c *config) enrol(r *repo) (*enrolled, error) {
	role := fmt.Sprintf(`{"id":%q,"version":"1.0.0","families":["check","edit"]}`, instant)
	sum, err := digestOf(c.asp)
	if err != nil {
		return nil, err
	}
	hexSum := sum.Hex()
	none := []string{}
	manifest := obj{
		"manifestVersion": "asp-server/1.0", "server": obj{"id": instant, "name": instant, "version": "1.0.0"},
		"protocolVersions": []string{"asp/1.0"}, "capabilities": []string{"check", "edit"}, "capabilityProfiles": []string{"bench"},
		"entrypoint": obj{"transport": "stdio", "bin": c.asp, "args": []string{"conformance-provider", role}},
		"artifact":   obj{"fingerprint": "sha256:" + hexSum, "checksums": []obj{{"path": c.asp, "sha256": hexSum}}},
		"provenance": obj{"publisher": "bench", "source": "local", "license": "Apache-2.0"},
		"accessExpectations": obj{
			"filesystem": obj{"read": []string{"**/*"}, "write": none}, "network": obj{"outbound": false, "allowlist": none},
			"secrets": obj{"names": none}, "environment": obj{"inherit": false, "variables": none}, "dataClasses": []string{"source-code"}},
	}
	pin := obj{"id": instant, "version": "1.0.0", "identity": "bench", "integrity": "sha256:" + hexSum, "conformance": "bench"}
	need := func(id, family string) obj {
		return obj{"id": id, "capabilities": []string{family}, "assurance": []string{"gated"}, "authority": obj{"providers": []obj{pin}}}
	}
	gate := func(required ...string) obj {
		return obj{"requiredRequirements": append(none, required...), "optionalRequirements": none}
	}
	policy := obj{
		"aspVersion": "asp/1.0", "requirements": []obj{need("checked", "check"), need("edits", "edit")},
		"gates": obj{"interactive": gate(), "gate": gate("checked"), "sweep": gate()},
		"policy": obj{"authorityModel": "explicit-pinned-provider", "policyChangeActivation": "base-policy-two-phase",
			"candidatePolicyAuthority": "trusted-base-or-organization-floor",
			"missingHost":              obj{"interactive": "warn-open", "gate": "fail-closed", "sweep": "fail-closed"}},
	}
	file := filepath.Join(filepath.Dir(r.dir), "asp-server.json")
	for name, v := range map[string]obj{file: manifest, filepath.Join(r.dir, ".asp", "asp.json"): policy} {
		b, err := json.Marshal(v)
		if err != nil {
			return nil, err
		}
		if err := writeFile(name, b); err != nil {
			return nil, err
		}
	}
	asp := func(args ...string) func() error { return command(r.dir, r.env(), append([]string{c.asp}, args...)...) }
	err = chain(func() error { return r.git("add", "-A") }, func() error { return r.git("commit", "-q", "-m", "policy") },
		asp("repo", "add", r.dir), asp("server", "add", "--manifest", file), asp("repo", "enable", instant, "--repo", r.dir, "--mode", "gated"), r.settle)()
	return &enrolled{r: r, role: role}, err
}

// rebase takes the baseline of this moment.
func (w *enrolled) rebase() error {
	a, err := w.host.call("host/status", obj{})
	if err == nil {
		w.base, err = pick(a, "workspace", "baseline")
	}
	return err
}

// warmUp is how many rounds are not measured.
const warmUp = 2

// editRounds asks for a plan and applies it, there and back. Timed is what a
// harness waits for: both requests.
func (w *enrolled) editRounds(ctx context.Context, ch *change, rounds int) ([]time.Duration, error) {
	if err := w.rebase(); err != nil {
		return nil, err
	}
	var out []time.Duration
	for i := range rounds + warmUp {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		from, to := ch.before, ch.after
		if i%2 == 1 {
			from, to = to, from
		}
		id := fmt.Sprint("round-", i)
		began := time.Now()
		_, err := w.host.call("host/requestEditPlan", obj{"callSite": "interactive", "operation": "multi-edit", "baseline": w.base, "proposalId": id, "args": ch.plan(from, to)})
		if err != nil {
			return nil, err
		}
		a, err := w.host.call("host/applyProposal", obj{"callSite": "interactive", "proposalId": id, "intent": "agent"})
		took := time.Since(began)
		if err == nil {
			err = is(a, "true", "applied")
		}
		if err == nil && i%2 == 0 {
			err = ch.verify(w.r)
		}
		if err == nil {
			w.base, err = pick(a, "baselineAfter")
		}
		if err != nil {
			return nil, err
		}
		if i >= warmUp {
			out = append(out, took)
		}
	}
	if rounds%2 == 1 { // the last one went there
		if err := ch.write(w.r, ch.before); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// cpuTime is the processor time that a process took so far, to the tick of the
// kernel; 0 where it cannot be told.
func cpuTime(pid int) time.Duration { return fieldsTime(pid, 11, 12) }

// cpuTimeOfAll is cpuTime with the processes that it started and that have ended.
func cpuTimeOfAll(pid int) time.Duration { return fieldsTime(pid, 11, 12, 13, 14) }

// fieldsTime sums fields of a process's stat, counted from behind its name.
func fieldsTime(pid int, fields ...int) time.Duration {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	// The second field, the name in brackets, may hold blanks.
	f := strings.Fields(string(b)[strings.LastIndexByte(string(b), ')')+1:])
	if len(f) < 15 {
		return 0
	}
	sum := 0
	for _, i := range fields {
		n, _ := strconv.Atoi(f[i])
		sum += n
	}
	return time.Duration(sum) * 10 * time.Millisecond // USER_HZ is 100 everywhere
}

// threadTime is the processor time of the threads that a process has now, as the scheduler
// counts it: cpuTime is too coarse for one request. 0 where it cannot be told.
func threadTime(pid int) (sum time.Duration) {
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	for _, f := range files {
		b, _ := os.ReadFile(f) // a thread may have ended
		ran, _, _ := strings.Cut(string(b), " ")
		n, _ := strconv.ParseInt(ran, 10, 64)
		sum += time.Duration(n)
	}
	return sum
}

// plan tells the provider what to propose: whole contents, uploaded by it.
func (ch *change) plan(from, to [][]byte) obj {
	var changes []obj
	var uploads []string
	for i, p := range ch.paths {
		changes = append(changes, obj{"path": p, "kind": "modify", "precondition": obj{"expectedDigest": blobName(from[i])}, "after": blobName(to[i])})
		uploads = append(uploads, string(to[i]))
	}
	return obj{"how": "changes", "changes": changes, "uploads": uploads}
}

func blobName(b []byte) string {
	s := sha256.Sum256(b)
	return snapshot.BlobPrefix + hex.EncodeToString(s[:])
}

// evaluateRound has a change judged that was never judged before, then the same
// change again, and asks the provider directly about it.
func (w *enrolled) evaluateRound(direct *talk, ch *change, round int, asked, hit *asks) (own time.Duration, err error) {
	if err = w.rebase(); err != nil {
		return
	}
	content := map[string][]byte{}
	var changes []obj
	var blobs []obj
	for i, p := range ch.paths {
		after := append(slices.Clone(ch.after[i]), fmt.Sprintf("// round %d\n", round)...)
		blobs = append(blobs, obj{"encoding": "base64", "bytes": base64.StdEncoding.EncodeToString(after)})
		changes = append(changes, obj{"path": p, "kind": "modify", "before": blobName(ch.before[i]), "after": blobName(after)})
		content[blobName(ch.before[i])], content[blobName(after)] = ch.before[i], after
	}
	if _, err = w.host.call("workspace/putBlob", obj{"blobs": blobs}); err != nil {
		return
	}
	changeset := obj{"baseline": w.base, "changes": changes}
	pid := w.host.cmd.Process.Pid
	for i, into := range []*asks{asked, hit} {
		var a json.RawMessage
		before, began := threadTime(pid), time.Now()
		a, err = w.host.call("host/evaluateChangeset", obj{"callSite": "gate", "changeset": changeset})
		into.took = append(into.took, time.Since(began))
		into.spent = append(into.spent, max(0, threadTime(pid)-before))
		if err == nil {
			err = is(a, `"allow"`, "decision")
		}
		if err == nil {
			err = w.remembered(a, i == 1)
		}
		if err != nil {
			return
		}
	}
	direct.serve = func(_ string, params json.RawMessage) (any, error) { return serveBlobs(params, content) }
	began := time.Now()
	a, err := direct.call("check/evaluate", obj{"changeset": changeset, "scope": "changeset", "comparison": "introduced"})
	own = time.Since(began)
	if err == nil {
		err = is(a, `"complete"`, "status")
	}
	return
}

// remembered reads from the receipt of a verdict whether the provider was asked.
func (w *enrolled) remembered(verdict json.RawMessage, want bool) error {
	id, err := pick(verdict, "receipt", "receiptId")
	if err != nil {
		return err
	}
	var name string
	if err := json.Unmarshal(id, &name); err != nil {
		return err
	}
	var b []byte
	for _, pattern := range []string{"*/receipts/", "*/*/receipts/"} {
		found, err := filepath.Glob(filepath.Join(w.r.home, pattern+name+".json"))
		if err != nil {
			return err
		}
		if len(found) == 1 {
			if b, err = os.ReadFile(found[0]); err != nil {
				return err
			}
		}
	}
	if got := strings.Contains(string(b), `"cache":"verdict"`); b == nil || got != want {
		return fmt.Errorf("receipt %s (%d bytes): answered from memory %v, want %v", name, len(b), got, want)
	}
	return nil
}

// serveBlobs answers workspace/readBlob from memory.
func serveBlobs(params json.RawMessage, content map[string][]byte) (any, error) {
	var q struct{ Blobs []string }
	if err := json.Unmarshal(params, &q); err != nil {
		return nil, err
	}
	out := []obj{}
	for _, id := range q.Blobs {
		b, ok := content[id]
		if !ok {
			return nil, fmt.Errorf("no blob %.100q", id)
		}
		out = append(out, obj{"id": id, "encoding": "utf-8", "bytes": string(b)})
	}
	return obj{"blobs": out}, nil
}

// direct starts the same provider without a host: what it takes by itself.
func (w *enrolled) direct(c *config) (*talk, error) {
	t, err := talkTo(w.r.dir, nil, c.asp, "conformance-provider", w.role)
	if err != nil {
		return nil, err
	}
	if _, err := t.call("initialize", obj{"protocolVersion": "asp/1.0"}); err != nil {
		return nil, err
	}
	return t, t.notify("initialized", obj{"baseline": w.base, "grantedPermissions": obj{"read": []string{"**/*"}}})
}

// hostStart measures the first answer of a host, from the start of its process.
func (c *config) hostStart(ctx context.Context) error {
	r, err := newRepo(filepath.Join(c.mem, "host-start"), c.medium)
	if err != nil {
		return err
	}
	defer os.RemoveAll(filepath.Dir(r.dir))
	var host *talk
	t, err := race(ctx, c.runs,
		contender{run: func() (err error) {
			if host, err = talkTo(r.dir, r.env(), c.asp, "host", "serve"); err != nil {
				return err
			}
			_, err = host.call("host/status", obj{})
			return err
		}, after: func() error { return host.end() }},
		contender{run: command(r.dir, nil, "git", "--no-optional-locks", "status", "--porcelain=v2", "-uall")})
	if err != nil {
		return err
	}
	c.out.most(row{Group: "host", What: fmt.Sprintf("host/status from the start of the process, %d files", c.medium), Where: c.memType, Unit: "ms", Ours: t[0], Peer: t[1], PeerIs: "git status"}, statusGoal)
	return nil
}
