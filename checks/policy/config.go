package policy

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/aspengine/asp/internal/canon"
	"github.com/aspengine/asp/internal/home"
	"github.com/aspengine/asp/sandbox/egress"
	"github.com/aspengine/asp/seam/wire"
)

// MaxFile bounds every file of the configuration, in bytes.
const MaxFile = 4 << 20

// Config is config.json of the trusted state directory. The zero Config, for a
// missing file, demands nothing and sets no limit of its own.
type Config struct {
	Floor     *Repository
	Checks    []Command // sorted by name
	Sandbox   Sandbox
	Limits    Limits
	Providers map[string]Provider
	// Publish is the default mode: journal, exchange or staged; "" is journal.
	Publish string
	// Merge allows a clean three-way merge where a touched file moved since its plan
	// was made. It is said here alone: a repository that may be written by the one
	// whose plan is applied has no word for it.
	Merge bool
	// Ceiling is the strongest guarantee that may be claimed; "" is no limit.
	Ceiling   wire.Guarantee
	Budgets   map[wire.CallSite]time.Duration
	Retention Retention
	Value     canon.Value // as read; no value for a missing file
}

// Command is a check that runs a program over the candidate.
type Command struct {
	Name      string
	Argv      []string // at least one
	Env       map[string]string
	Timeout   time.Duration // 0: none given
	CallSites []wire.CallSite
	Required  bool
	Digest    string // of its configuration
}

// ID is its requirement id and coverage source.
func (c Command) ID() string { return CommandPrefix + c.Name }

// Sandbox is what every check and provider has to run in.
type Sandbox struct {
	Require wire.Mode // advisory for none, mediated-write, isolated
	// Free: none was said in words, so that checks and providers may also run where
	// nothing keeps them from the workspace.
	Free    bool
	Read    []string // absolute paths that may be read beside the candidate
	Env     []string // names of variables that are passed on
	Network []string // destinations that command checks may reach, as egress.ParseRule reads them; not providers
	Limits  map[string]int64
}

// Limits on foreign input; 0 where nothing is configured.
type Limits struct {
	MessageBytes int64 // a line of either seam; at least 8 MiB
	PlanBytes    int64 // a plan file or bundle
	BlobBytes    int64 // one blob
	Operations   int64 // of one plan
	Callbacks    int64 // of one provider request
	OutputBytes  int64 // of a check, kept
	ChecksAtOnce int64 // of how many applies of a host; 1: none is checked before its turn
}

// Provider is what an enrolled provider is asked, and its pinned configuration.
type Provider struct {
	Checks, Rules, DiagnosticSources []string
	Configuration                    canon.Value // an object, or no value
	ConfigDigest, Comparison         string
	Scope                            string // changeset, impact, workspace; "" is changeset
	// Network are destinations that it may reach, as egress.ParseRule reads them, as far as
	// its manifest expects to.
	Network []string
}

// Retention bounds receipts and blobs; 0 where nothing is configured.
type Retention struct {
	Receipts     int64 // number kept
	ReceiptBytes int64
	BlobBytes    int64
	JudgedBytes  int64 // content of decisions that changed nothing
	StagedDays   int64
}

// Command returns the configured check of that name, nil without one.
func (c Config) Command(name string) *Command {
	for i := range c.Checks {
		if c.Checks[i].Name == name {
			return &c.Checks[i]
		}
	}
	return nil
}

// Load reads config.json and repos.json of a state directory; either may be
// missing. Errors of content are *Error.
func Load(h *home.Home) (Config, Enrolment, error) {
	var c Config
	b, err := h.ReadFile(home.ConfigFile, MaxFile)
	if err == nil {
		if c, err = ParseConfig(h.Path(home.ConfigFile), b); err != nil {
			err = fmt.Errorf("%w; mend the file: `asp schema config` tells what it may hold, and without it go its floor and its checks", err)
		}
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return Config{}, nil, err
	}
	var e Enrolment
	b, err = h.ReadFile(home.ReposFile, MaxFile)
	if err == nil {
		if e, err = ParseEnrolment(h.Path(home.ReposFile), b); err != nil {
			err = fmt.Errorf("%w; mend the file, or move it away and enrol anew (asp repo add)", err)
		}
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return Config{}, nil, err
	}
	return c, e, nil
}

// ParseConfig reads config.json. The error is an *Error that lists what is
// wrong; file is the name to show.
func ParseConfig(file string, b []byte) (Config, error) {
	c := Config{Providers: map[string]Provider{}, Budgets: map[wire.CallSite]time.Duration{}, Sandbox: Sandbox{Require: wire.Advisory}}
	err := parseFile(file, b, func(r *reader, v canon.Value) { readConfig(r, v, &c) })
	if err != nil {
		return Config{}, err
	}
	return c, nil
}

func readConfig(r *reader, v canon.Value, c *Config) {
	const path = "$"
	c.Value = v
	if !r.object(v, path, "$schema", "floor", "checks", "sandbox", "limits", "providers", "publish", "merge", "guaranteeCeiling", "budgets", "retention") {
		return
	}
	member(v, path, "$schema", func(m canon.Value, path string) { r.text(m, path) })
	member(v, path, "floor", func(m canon.Value, path string) {
		f := readRepository(r, m, path)
		c.Floor = &f
	})
	member(v, path, "checks", func(m canon.Value, path string) {
		r.each(m, path, func(name string, m canon.Value, path string) {
			c.Checks = append(c.Checks, readCommand(r, name, m, path))
		})
		slices.SortFunc(c.Checks, func(a, b Command) int { return strings.Compare(a.Name, b.Name) })
	})
	member(v, path, "sandbox", func(m canon.Value, path string) { c.Sandbox = readSandbox(r, m, path) })
	member(v, path, "limits", func(m canon.Value, path string) { c.Limits = readLimits(r, m, path) })
	member(v, path, "providers", func(m canon.Value, path string) {
		r.each(m, path, func(id string, m canon.Value, path string) {
			if id == "" {
				r.fail(path, "empty provider id")
			}
			c.Providers[id] = readProvider(r, m, path)
		})
	})
	member(v, path, "publish", func(m canon.Value, path string) { c.Publish = word(r, m, path, "journal", "exchange", "staged") })
	member(v, path, "merge", func(m canon.Value, path string) { c.Merge = r.truth(m, path) })
	member(v, path, "guaranteeCeiling", func(m canon.Value, path string) {
		c.Ceiling = word(r, m, path, wire.GuaranteeNone, wire.RollbackAttempted, wire.TextOnlyTransactional, wire.WorkspaceTransactional, wire.StagedSnapshot)
	})
	member(v, path, "budgets", func(m canon.Value, path string) { c.Budgets = readBudgets(r, m, path) })
	member(v, path, "retention", func(m canon.Value, path string) {
		r.integers(m, path, 1, map[string]*int64{"receipts": &c.Retention.Receipts, "receiptBytes": &c.Retention.ReceiptBytes,
			"blobBytes": &c.Retention.BlobBytes, "judgedBytes": &c.Retention.JudgedBytes, "stagedDays": &c.Retention.StagedDays})
	})
}

// checkName tells whether a check may have that name: it is part of requirement
// ids and of what people type. Compared by hand, because compiling patterns
// costs start-up time in every command.
func checkName(s string) bool {
	for i := range len(s) {
		if !alnum(s[i]) && (i == 0 || s[i] != '.' && s[i] != '_' && s[i] != '-') {
			return false
		}
	}
	return s != "" && len(s) <= 100
}

// envName tells whether s can name a variable.
func envName(s string) bool {
	for i := range len(s) {
		if digit := s[i] >= '0' && s[i] <= '9'; !alnum(s[i]) && s[i] != '_' || digit && i == 0 {
			return false
		}
	}
	return s != ""
}

func alnum(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z'
}

func readCommand(r *reader, name string, v canon.Value, path string) Command {
	c := Command{Name: name, CallSites: callSites, Digest: canon.DigestText(v)}
	if !checkName(name) {
		r.fail(path, "the name of a check may hold letters, digits, dot, dash and underscore, at most 100")
	}
	if !r.object(v, path, "!argv", "env", "timeoutMs", "callSites", "required") {
		return c
	}
	member(v, path, "argv", func(m canon.Value, path string) {
		c.Argv = list(r, m, path, 1, false, func(e canon.Value, p string) string { return r.noNUL(e, p) })
		if len(c.Argv) > 0 && c.Argv[0] == "" {
			r.fail(path+"[0]", "empty, must name a program")
		}
	})
	member(v, path, "env", func(m canon.Value, path string) {
		c.Env = map[string]string{}
		r.each(m, path, func(k string, m canon.Value, path string) {
			r.envName(k, path)
			c.Env[k] = r.noNUL(m, path)
		})
	})
	member(v, path, "timeoutMs", func(m canon.Value, path string) { c.Timeout = r.millis(m, path) })
	member(v, path, "callSites", func(m canon.Value, path string) {
		c.CallSites = list(r, m, path, 0, true, func(e canon.Value, path string) wire.CallSite { return word(r, e, path, callSites...) })
	})
	member(v, path, "required", func(m canon.Value, path string) { c.Required = r.truth(m, path) })
	return c
}

func (r *reader) noNUL(v canon.Value, path string) string {
	s := r.text(v, path)
	if strings.IndexByte(s, 0) >= 0 {
		r.fail(path, "holds a NUL byte")
	}
	return s
}

func (r *reader) envName(k, path string) {
	if !envName(k) {
		r.fail(path, "%.60q is no name of a variable", k)
	}
}

// integers reads a closed object of optional integers.
func (r *reader) integers(v canon.Value, path string, least int64, into map[string]*int64) {
	var names []string
	for k := range into {
		names = append(names, k)
	}
	slices.Sort(names)
	if !r.object(v, path, names...) {
		return
	}
	for _, k := range names {
		member(v, path, k, func(m canon.Value, path string) { *into[k] = r.integer(m, path, least) })
	}
}

func readSandbox(r *reader, v canon.Value, path string) Sandbox {
	s := Sandbox{Require: wire.Advisory}
	if !r.object(v, path, "require", "read", "env", "limits", "network") {
		return s
	}
	member(v, path, "require", func(m canon.Value, path string) {
		w := word(r, m, path, "none", wire.MediatedWrite, wire.Isolated)
		if s.Free = w == "none"; !s.Free {
			s.Require = w
		}
	})
	member(v, path, "read", func(m canon.Value, path string) {
		s.Read = list(r, m, path, 0, true, func(e canon.Value, path string) string {
			p := r.noNUL(e, path)
			if e.Kind() == canon.String && !filepath.IsAbs(p) {
				r.fail(path, "%.100q, must be an absolute path", p)
			}
			return p
		})
	})
	member(v, path, "env", func(m canon.Value, path string) {
		s.Env = list(r, m, path, 0, true, func(e canon.Value, path string) string {
			k := r.text(e, path)
			if e.Kind() == canon.String {
				r.envName(k, path)
			}
			return k
		})
	})
	member(v, path, "network", func(m canon.Value, path string) { s.Network = r.destinations(m, path) })
	member(v, path, "limits", func(m canon.Value, path string) {
		names := []string{"cpuPct", "memoryMb", "wallclockMs", "fd", "processes", "fileMb"}
		s.Limits = map[string]int64{}
		if !r.object(m, path, names...) {
			return
		}
		for _, k := range names {
			member(m, path, k, func(m canon.Value, path string) { s.Limits[k] = r.integer(m, path, 1) })
		}
	})
	return s
}

// destinations reads a list of them.
func (r *reader) destinations(v canon.Value, path string) []string {
	return list(r, v, path, 0, true, func(e canon.Value, path string) string {
		d := r.text(e, path)
		if e.Kind() == canon.String {
			if _, err := egress.ParseRule(d); err != nil {
				r.fail(path, "%v", err)
			}
		}
		return d
	})
}

// MinMessageBytes is the least limit on a line that a protocol peer may count on.
const MinMessageBytes = 8 << 20

func readLimits(r *reader, v canon.Value, path string) Limits {
	var l Limits
	r.integers(v, path, 1, map[string]*int64{
		"messageBytes": &l.MessageBytes, "planBytes": &l.PlanBytes, "blobBytes": &l.BlobBytes,
		"operations": &l.Operations, "callbacks": &l.Callbacks, "outputBytes": &l.OutputBytes, "checksAtOnce": &l.ChecksAtOnce,
	})
	if l.MessageBytes > 0 && l.MessageBytes < MinMessageBytes {
		r.fail(path+".messageBytes", "%d, must be at least %d", l.MessageBytes, MinMessageBytes)
	}
	return l
}

func readProvider(r *reader, v canon.Value, path string) Provider {
	var p Provider
	if !r.object(v, path, "checks", "rules", "diagnosticSources", "configuration", "configDigest", "comparison", "scope", "network") {
		return p
	}
	for _, f := range []struct {
		key  string
		into *[]string
	}{{"checks", &p.Checks}, {"rules", &p.Rules}, {"diagnosticSources", &p.DiagnosticSources}} {
		member(v, path, f.key, func(m canon.Value, path string) { *f.into = list(r, m, path, 0, true, r.nonempty) })
	}
	member(v, path, "configuration", func(m canon.Value, path string) {
		if r.kind(m, path, canon.Object) {
			p.Configuration = m
		}
	})
	member(v, path, "configDigest", func(m canon.Value, path string) { p.ConfigDigest = r.nonempty(m, path) })
	member(v, path, "comparison", func(m canon.Value, path string) { p.Comparison = r.nonempty(m, path) })
	member(v, path, "scope", func(m canon.Value, path string) { p.Scope = word(r, m, path, "changeset", "impact", "workspace") })
	member(v, path, "network", func(m canon.Value, path string) { p.Network = r.destinations(m, path) })
	return p
}
