// Package replace is the bundled edit provider that changes text by literal or
// regular expression (RE2) over the files of a request's scope, and moves files by
// their paths. It plans and never writes. Operations:
//
//	text-edit         one rule, as text edits
//	multi-edit        several rules over the same content, as text edits
//	replace-resource  the same as whole new content; or a content for one path
//	move              one rule over paths
//
// A file that is not UTF-8 gets whole new content in every case, byte for byte
// the same but for what was replaced. Rules of one request look at the content as
// it was; where two of them want the same bytes the request is refused.
package replace

import (
	"context"
	"encoding/base64"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/aspengine/asp/provider"
)

// The bounds of one request.
const (
	maxRules   = 100
	maxPattern = 4 << 10
	maxFiles   = 10_000
	maxBytes   = 256 << 20
	maxEdits   = 50_000
)

// New describes the provider.
func New(version string) *provider.Provider {
	return &provider.Provider{
		ID: "replace", Name: "Replace", Version: version,
		Edit: &provider.Edit{
			Operations: []string{"text-edit", "multi-edit", "replace-resource", "move"},
			Kinds:      []provider.ChangeKind{provider.Create, provider.Modify, provider.Move},
			Run:        run,
		},
	}
}

// args are of all operations but replace-resource with a content.
type args struct {
	Literal     string    `json:"literal,omitempty"`
	Pattern     string    `json:"pattern,omitempty"`
	Replacement string    `json:"replacement,omitempty"`
	Rules       []ruleArg `json:"rules,omitzero"`
	Include     []string  `json:"include,omitzero"` // globs; all where absent
	Exclude     []string  `json:"exclude,omitzero"`
	Expect      int       `json:"expect,omitempty"` // number of matches; another number refuses the request
}

type ruleArg struct {
	Literal     string `json:"literal,omitempty"`
	Pattern     string `json:"pattern,omitempty"`
	Replacement string `json:"replacement"`
}

// contentArgs are of replace-resource for one path.
type contentArgs struct {
	Path     string `json:"path"`
	Content  string `json:"content"`
	Encoding string `json:"encoding,omitempty"` // utf-8 or base64
}

// rule finds places and says what to put there.
type rule struct {
	literal []byte
	pattern *regexp.Regexp
	with    string
}

func compile(a ruleArg) (rule, error) {
	switch {
	case (a.Literal == "") == (a.Pattern == ""):
		return rule{}, provider.InputError("a rule has one of literal and pattern")
	case a.Literal != "":
		return rule{literal: []byte(a.Literal), with: a.Replacement}, nil
	case len(a.Pattern) > maxPattern:
		return rule{}, provider.InputError("pattern longer than %d bytes", maxPattern)
	}
	re, err := regexp.Compile(a.Pattern)
	if err != nil {
		return rule{}, provider.InputError("%v", err)
	}
	if re.MatchString("") {
		return rule{}, provider.InputError("pattern %.100q matches the empty string, which is everywhere", a.Pattern)
	}
	return rule{pattern: re, with: a.Replacement}, nil
}

func (a args) rules() ([]rule, error) {
	list := a.Rules
	if a.Literal != "" || a.Pattern != "" {
		list = append([]ruleArg{{a.Literal, a.Pattern, a.Replacement}}, list...)
	} else if a.Replacement != "" {
		return nil, provider.InputError("replacement without literal or pattern")
	}
	if len(list) == 0 || len(list) > maxRules {
		return nil, provider.InputError("a request has 1 to %d rules", maxRules)
	}
	out := make([]rule, len(list))
	for i, r := range list {
		var err error
		if out[i], err = compile(r); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func run(ctx context.Context, h *provider.Host, r *provider.EditRequest) (*provider.Plan, error) {
	if r.Operation == "replace-resource" {
		var c contentArgs
		if r.Args.Decode(&c) == nil {
			return resource(ctx, h, r, c)
		}
	}
	var a args
	if err := r.Args.Decode(&a); err != nil {
		return nil, err
	}
	rules, err := a.rules()
	if err != nil {
		return nil, err
	}
	if len(rules) > 1 && r.Operation != "multi-edit" && r.Operation != "replace-resource" {
		return nil, provider.InputError("%s takes one rule; multi-edit takes several", r.Operation)
	}
	j := &job{h: h, r: r, a: a, rules: rules, plan: &provider.Plan{}}
	if err := j.list(ctx); err != nil {
		return nil, err
	}
	if r.Operation == "move" {
		err = j.move()
	} else {
		err = j.replace(ctx)
	}
	if err != nil {
		return nil, err
	}
	switch p := j.plan; {
	case a.Expect > 0 && j.matches != a.Expect:
		return nil, provider.InputError("%d matches, %d were expected", j.matches, a.Expect)
	case p.Len() == 0 && p.Incomplete == "":
		p.Incomplete, p.Reason = "nothing in the scope matches", "unresolved-reference"
	case p.Incomplete == "":
		p.Rationale = fmt.Sprintf("%d matches in %d files", j.matches, p.Len())
	}
	return j.plan, nil
}

// resource plans a content for one path, which may be new.
func resource(ctx context.Context, h *provider.Host, r *provider.EditRequest, c contentArgs) (*provider.Plan, error) {
	content := []byte(c.Content)
	switch c.Encoding {
	case "", "utf-8":
	case "base64":
		var err error
		if content, err = base64.StdEncoding.Strict().DecodeString(c.Content); err != nil {
			return nil, provider.InputError("content: %v", err)
		}
	default:
		return nil, provider.InputError("encoding is utf-8 or base64")
	}
	if !provider.ValidPath(c.Path) || !r.Touches(c.Path) {
		return nil, provider.InputError("%.200q is no path or out of the requested scope", c.Path)
	}
	t, err := h.ListTree(ctx, nil, []string{c.Path})
	if err != nil {
		return nil, err
	}
	plan := &provider.Plan{}
	if len(t.Entries) == 1 && t.Entries[0].Kind != "file" {
		return nil, &provider.Unsupported{Reason: "resource-kind", Detail: fmt.Sprintf("%.200q is no regular file", c.Path)}
	}
	if len(t.Entries) == 1 && t.Entries[0].BlobID == provider.Ref(content) {
		plan.Incomplete, plan.Reason = "the file has this content already", "unresolved-reference"
		return plan, nil
	}
	id, err := h.PutBlob(ctx, content)
	if err != nil {
		return nil, err
	}
	if len(t.Entries) == 1 {
		plan.Replace(c.Path, t.Entries[0].BlobID, id)
	} else {
		plan.Create(c.Path, id)
	}
	return plan, nil
}

// job is one request over many files.
type job struct {
	h       *provider.Host
	r       *provider.EditRequest
	a       args
	rules   []rule
	plan    *provider.Plan
	files   []provider.TreeEntry
	all     map[string]bool // every path that is known to be there
	matches int
}

// list finds the files of the scope: by name where every entry of the scope is a
// file, otherwise in the whole granted tree. Names are not handed to the host as
// globs: a file may be called [id].ts.
func (j *job) list(ctx context.Context) error {
	var t provider.Tree
	var err error
	if len(j.r.Scope) <= 1000 && j.r.Operation != "move" && !slices.ContainsFunc(j.r.Scope, func(s string) bool { return s == "." || strings.HasSuffix(s, "/") }) {
		if t, err = j.h.ListTree(ctx, nil, j.r.Scope); err != nil {
			return err
		}
	}
	if len(t.Entries) < len(j.r.Scope) || slices.ContainsFunc(t.Entries, func(e provider.TreeEntry) bool { return e.Kind == "dir" }) {
		if t, err = j.h.ListTree(ctx, nil, nil); err != nil {
			return err
		}
	}
	if t.Truncated {
		j.incomplete("partial-coverage", "the host left entries out of the tree")
	}
	j.all = make(map[string]bool, len(t.Entries))
	for _, e := range t.Entries {
		j.all[e.Path] = true
		if e.Kind == "file" && j.r.Touches(e.Path) && included(e.Path, j.a) {
			j.files = append(j.files, e)
		}
	}
	slices.SortFunc(j.files, func(a, b provider.TreeEntry) int { return strings.Compare(a.Path, b.Path) })
	return nil
}

func included(p string, a args) bool {
	in := func(globs []string) bool {
		return slices.ContainsFunc(globs, func(g string) bool { return provider.MatchGlob(g, p) })
	}
	return (a.Include == nil || in(a.Include)) && !in(a.Exclude)
}

func (j *job) incomplete(reason, format string, a ...any) {
	if j.plan.Incomplete == "" {
		j.plan.Reason, j.plan.Incomplete = reason, fmt.Sprintf(format, a...)
	} else if len(j.plan.Warnings) < 100 {
		j.plan.Warnings = append(j.plan.Warnings, fmt.Sprintf(format, a...))
	}
}

// move plans new paths.
func (j *job) move() error {
	taken := map[string]string{}
	for _, e := range j.files {
		spots, err := find([]byte(e.Path), j.rules, maxEdits)
		if err != nil {
			return err
		}
		if len(spots) == 0 {
			continue
		}
		j.matches += len(spots)
		to := string(apply([]byte(e.Path), spots))
		switch from, twice := taken[to]; {
		case to == e.Path:
			continue
		case !provider.ValidPath(to) || !j.r.Touches(to):
			return provider.InputError("%.200q would move to %.200q, which is no path or out of the requested scope", e.Path, to)
		case twice:
			j.incomplete("ambiguous-target", "%.200q and %.200q would both move to %.200q", from, e.Path, to)
			continue
		case j.all[to]:
			j.incomplete("ambiguous-target", "%.200q would move to %.200q, which is there", e.Path, to)
			continue
		}
		taken[to] = e.Path
		if j.plan.Len() >= maxFiles {
			j.incomplete("budget-exhausted", "stopped after %d files", maxFiles)
			return nil
		}
		j.plan.Move(e.Path, to, e.BlobID)
	}
	return nil
}
