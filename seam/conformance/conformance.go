// Package conformance holds a host or a provider against the requirements of the
// contract, section 10, from outside: it starts it like anybody would, talks
// JSON lines to it, and judges what comes back by the text of the contract.
//
// It shares no connection, client or supervision code with the host that it
// usually tests; only the strict parser and the message types are common. The
// providers that a host is tried with are this same program, started again with
// ProviderWord and a role; what they do is a function of the role and the
// request, so that a run with the same seed does the same.
//
// A requirement that was not run is not passed.
package conformance

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/aspengine/asp/internal/canon"
)

// ProviderWord and DenyWord are the hidden subcommands of the program that the
// suite is part of: Provide and Deny.
const (
	ProviderWord = "conformance-provider"
	DenyWord     = "conformance-nosandbox"
)

// The profiles, each a set of requirement ids.
const (
	Core      = "core"
	Server    = "server"
	Hostile   = "hostile"
	Edit      = "edit"
	Assurance = "assurance"
)

// Profiles lists all, in the order of the report.
func Profiles() []string { return []string{Core, Server, Hostile, Edit, Assurance} }

// Options say what is tried. Host and Self are required.
type Options struct {
	// Host is the command whose subcommands are those of the contract, section
	// 9; Self starts this program, by an absolute path.
	Host, Self []string
	// Provider is the command line of the provider that the server profile is
	// about; empty for the bundled ones of the host.
	Provider []string
	Profiles []string // empty: all
	Only     []string // requirement ids; empty: all of the profiles
	Seed     int64
	// Dir is where throw-away repositories are made; "" is the system's place
	// for temporary files. What is made is removed.
	Dir      string
	Parallel int          // requirements tried at once; 0 is two
	Progress func(Result) // called as results come, one at a time; may be nil
}

// IDs lists the requirement ids of the profiles, in the order of the contract.
func IDs(profiles ...string) []string {
	var out []string
	for _, q := range requirements() {
		if len(profiles) == 0 || slices.Contains(profiles, q.profile()) {
			out = append(out, q.id)
		}
	}
	return out
}

// requirement is one id of the contract with its trial. try returns an error
// when it could not go on; what it saw until then counts as well.
type requirement struct {
	id, title string
	try       func(ctx context.Context, t *trial) error
}

func (q requirement) profile() string {
	switch {
	case strings.HasPrefix(q.id, "CORE-SERVER-"):
		return Server
	case strings.HasPrefix(q.id, "CORE-"):
		return Core
	case strings.HasPrefix(q.id, "HOSTILE-"):
		return Hostile
	case strings.HasPrefix(q.id, "EDIT-HOST-"):
		return Edit
	}
	return Assurance
}

func requirements() []requirement {
	return slices.Concat(coreRequirements(), serverRequirements(), hostileRequirements(), editRequirements(), assuranceRequirements())
}

// trialTime bounds one requirement.
const trialTime = 5 * time.Minute

// runner is one run of the suite.
type runner struct {
	o       Options
	self    []string
	selfSum string
	token   string
	dir     string

	mu   sync.Mutex
	host string // name and version that the host gave
}

// Run tries the requirements and reports. An error means that the suite itself
// could not run, or that ctx ended.
func Run(ctx context.Context, o Options) (*Report, error) {
	if len(o.Host) == 0 || len(o.Self) == 0 || !filepath.IsAbs(o.Self[0]) {
		return nil, errors.New("run the suite: host and self are required, self by an absolute path")
	}
	if len(o.Profiles) == 0 {
		o.Profiles = Profiles()
	}
	dir, err := os.MkdirTemp(o.Dir, "conformance-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		return nil, err
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		return nil, err
	}
	r := &runner{o: o, self: o.Self, dir: dir, token: filepath.Base(dir)}
	if r.selfSum, err = fileSum(o.Self[0]); err != nil {
		return nil, err
	}
	var todo []requirement
	for _, q := range requirements() {
		if slices.Contains(o.Profiles, q.profile()) && (len(o.Only) == 0 || slices.Contains(o.Only, q.id)) {
			todo = append(todo, q)
		}
	}
	results := r.all(ctx, todo)
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	report := &Report{Suite: Suite, Seed: o.Seed, Host: r.host, Provider: "bundled", Profiles: o.Profiles, Requirements: results}
	if len(o.Provider) > 0 {
		report.Provider = filepath.Base(o.Provider[0])
	}
	report.summarize()
	return report, nil
}

func (r *runner) all(ctx context.Context, todo []requirement) []Result {
	results := make([]Result, len(todo))
	n := r.o.Parallel
	if n <= 0 {
		n = 2
	}
	work := make(chan int)
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			for i := range work {
				results[i] = r.one(ctx, todo[i])
				if r.o.Progress != nil {
					r.mu.Lock()
					r.o.Progress(results[i])
					r.mu.Unlock()
				}
			}
		})
	}
	for i := range todo {
		work <- i
	}
	close(work)
	wg.Wait()
	return results
}

func (r *runner) one(ctx context.Context, q requirement) Result {
	ctx, cancel := context.WithTimeout(ctx, trialTime)
	defer cancel()
	t := r.trial(q)
	err := q.try(ctx, t)
	if err != nil {
		t.problem("could not go on: %v", err)
	}
	t.end(ctx)
	os.RemoveAll(t.dir)
	res := Result{ID: q.id, Title: q.title, Profile: q.profile(), Result: Pass, Problems: t.problems, Evidence: t.evidence}
	if len(t.problems) > 0 {
		res.Result = Fail
	} else if t.checked == 0 {
		res.Result, res.Problems = Skipped, []string{"nothing was judged"}
	}
	if res.Problems == nil {
		res.Problems = []string{}
	}
	if res.Evidence == nil {
		res.Evidence = []Evidence{}
	}
	return res
}

// trial makes one with a random source of its own, so that which requirements
// run, and in what order, changes nothing in it.
func (r *runner) trial(q requirement) *trial {
	h := fnv.New64a()
	h.Write([]byte(q.id))
	return &trial{run: r, q: q, dir: filepath.Join(r.dir, q.id), rng: rand.New(rand.NewPCG(uint64(r.o.Seed), h.Sum64()))}
}

// trial is one requirement being tried.
type trial struct {
	run *runner
	q   requirement
	dir string
	rng *rand.Rand

	worlds   int
	sessions []*session
	checked  int // judgments made

	mu       sync.Mutex
	problems []string
	evidence []Evidence
}

// maxProblems bounds what is said of one requirement.
const maxProblems = 30

func (t *trial) problem(format string, a ...any) {
	s := strings.Join(strings.Fields(t.scrubber().text(fmt.Sprintf(format, a...))), " ")
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.problems) < maxProblems {
		t.problems = append(t.problems, s)
	}
}

// judge records one judgment: a problem unless ok. It returns ok.
func (t *trial) judge(ok bool, format string, a ...any) bool {
	t.mu.Lock()
	t.checked++
	t.mu.Unlock()
	if !ok {
		t.problem(format, a...)
	}
	return ok
}

// show keeps an exchange as evidence.
func (t *trial) show(step string, request, shown canon.Value) {
	s := t.scrubber()
	e := Evidence{Step: s.text(step)}
	if request.Kind() != canon.Invalid {
		e.Request = s.value(request, "request")
	}
	if shown.Kind() != canon.Invalid {
		e.Answer = s.value(shown, "answer")
	}
	if len(s.volatile) > 0 {
		e.Volatile = canon.ObjectOf(s.volatile...)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.evidence) < maxEvidence {
		t.evidence = append(t.evidence, e)
	}
}

func (t *trial) scrubber() *scrubber {
	pairs := []string{}
	for i := t.worlds; i > 0; i-- {
		d := filepath.Join(t.dir, fmt.Sprintf("w%d", i))
		for _, e := range []struct{ dir, word string }{{filepath.Join(d, "repo"), "ROOT"}, {filepath.Join(d, "state"), "ASP_HOME"}, {d, "WORLD"}} {
			pairs = append(pairs, e.dir, e.word)
		}
	}
	pairs = append(pairs, t.run.dir, "DIR", t.run.token, "TOKEN", t.run.self[0], "SELF", t.run.selfSum, "SELFSUM")
	if filepath.IsAbs(t.run.o.Host[0]) {
		pairs = append(pairs, t.run.o.Host[0], "HOST")
	}
	return &scrubber{words: strings.NewReplacer(pairs...)}
}

// end closes what the trial opened, and judges that nothing is left.
func (t *trial) end(ctx context.Context) {
	for _, s := range t.sessions {
		s.finish()
	}
	if t.worlds == 0 {
		return
	}
	left := processesWith(t.run.token + "-" + t.q.id + "-")
	for range 100 {
		if len(left) == 0 || ctx.Err() != nil {
			break
		}
		// The kernel may still be taking apart what was killed.
		time.Sleep(20 * time.Millisecond)
		left = processesWith(t.run.token + "-" + t.q.id + "-")
	}
	t.judge(len(left) == 0, "processes are left after the host ended: %s", clip(strings.Join(left, "; "), 300))
}

// hexID is a digest that names nothing.
func (t *trial) hexID() string {
	b := make([]byte, 32)
	for i := range b {
		b[i] = byte(t.rng.Uint32())
	}
	return hex.EncodeToString(b)
}
