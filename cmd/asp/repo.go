package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/aspengine/asp/apply"
	"github.com/aspengine/asp/checks/policy"
	"github.com/aspengine/asp/internal/canon"
	"github.com/aspengine/asp/internal/home"
	"github.com/aspengine/asp/internal/lock"
	"github.com/aspengine/asp/internal/vfs"
	"github.com/aspengine/asp/seam/manifest"
	"github.com/aspengine/asp/seam/wire"
	"github.com/aspengine/asp/snapshot"
	"github.com/aspengine/asp/snapshot/gitbase"
	"github.com/spf13/pflag"
)

func repoCommand() *command {
	return &command{
		name: "repo", short: "enrol repositories and the providers that take part in them", hasJSON: true,
		args: "(add D | enable ID [--repo D] --mode M | disable ID [--repo D] | status D | remove D)",
		long: `
A repository that is enrolled may bring a policy: .asp/asp.json as committed at HEAD.
Without enrolment that file is ignored. A provider that was added with asp server add
takes part only where it is enabled: advisory, it may speak; gated, its word may also
decide, if the policy pins it. Enrolment is kept in ASP_HOME; nothing in the
repository is written or trusted for it.

examples:
  asp repo add .
  asp repo enable checker --repo . --mode gated
  asp repo status . --json
  asp repo remove .`,
		run: runRepo,
		flags: func(fs *pflag.FlagSet) {
			fs.String("mode", "", "advisory or gated; the most that providers may be (add: default gated), or what one is (enable)")
		},
	}
}

func runRepo(ctx context.Context, e *env, fs *pflag.FlagSet) error {
	asJSON, _ := fs.GetBool("json")
	mode, _ := fs.GetString("mode")
	verb := fs.Arg(0)
	place := verb == "add" || verb == "status" || verb == "remove"
	switch {
	case place && fs.NArg() == 2 && !fs.Changed("repo") && (mode == "" || verb == "add"):
		if err := fs.Set("repo", fs.Arg(1)); err != nil {
			return err
		}
	case verb == "enable" && fs.NArg() == 2 && mode != "":
	case verb == "disable" && fs.NArg() == 2 && mode == "":
	case verb == "enable" && fs.NArg() == 2:
		return usagef("--mode is missing; say enable ID --repo D --mode advisory (or gated)")
	default:
		return usagef("say add D, enable ID --repo D --mode advisory (or gated), disable ID --repo D, status D or remove D; see `asp repo --help`")
	}
	if mode != "" && mode != string(wire.Advisory) && mode != string(wire.Gated) {
		return usagef("--mode %.60q is neither advisory nor gated", mode)
	}
	h, err := e.openHome()
	if err != nil {
		return err
	}
	defer h.Close()
	root, git, err := e.root(ctx, fs)
	if verb == "remove" && err != nil {
		// What is gone can still be taken off the list, by the path that it has there.
		root, err = e.absolute(fs), nil
	}
	if err != nil {
		return err
	}
	p := &repos{e: e, h: h, root: root, git: git, asJSON: asJSON}
	switch verb {
	case "add":
		if err := h.CheckOutside(root); err != nil {
			return &trustError{err}
		}
		return p.change(ctx, verb, func(en policy.Enrolment) error { return en.Add(root, wire.Mode(mode)) })
	case "remove":
		return p.change(ctx, verb, func(en policy.Enrolment) error {
			if !en.Remove(root) {
				return fmt.Errorf("%.200q is not enrolled", root)
			}
			return nil
		})
	case "enable":
		return p.enable(ctx, fs.Arg(1), wire.Mode(mode))
	case "disable":
		return p.change(ctx, verb, func(en policy.Enrolment) error {
			if !en.Disable(root, fs.Arg(1)) {
				return fmt.Errorf("%.150q is not enabled in %.200q", fs.Arg(1), root)
			}
			return nil
		})
	}
	return p.show(ctx, verb)
}

// openHome opens the state directory that the environment names. The caller
// closes it.
func (e *env) openHome() (*home.Home, error) {
	if e.platform != nil {
		return nil, e.platform
	}
	path, err := home.Resolve(e.getenv)
	if err != nil {
		return nil, &trustError{err}
	}
	h, err := home.Open(vfs.OS{}, path)
	if err != nil {
		if !errors.Is(err, home.ErrUntrusted) { // which says what to do itself
			err = fmt.Errorf("%w; set ASP_HOME to a directory that you may make and write", err)
		}
		return nil, &trustError{err}
	}
	return h, nil
}

// absolute is what --repo names, made absolute.
func (e *env) absolute(fs *pflag.FlagSet) string {
	dir, _ := fs.GetString("repo")
	if !filepath.IsAbs(dir) {
		dir = filepath.Join(e.dir, dir)
	}
	return filepath.Clean(dir)
}

// root finds the canonical root of the workspace that --repo names, and whether it
// is a git work tree.
func (e *env) root(ctx context.Context, fs *pflag.FlagSet) (string, bool, error) {
	dir, _ := fs.GetString("repo")
	if dir == "" {
		return "", false, usagef("the directory is empty; name one")
	}
	dir = e.absolute(fs)
	if fi, err := os.Stat(dir); err != nil || !fi.IsDir() {
		return "", false, &placeError{fmt.Errorf("%.200q is no directory that can be opened", dir)}
	}
	id, err := workspaceAt(ctx, dir)
	if err != nil {
		return "", false, classify(err)
	}
	return id.Root, id.GitDir != "", nil
}

// workspaceAt identifies the workspace that holds dir, as the engine does.
func workspaceAt(ctx context.Context, dir string) (home.Identity, error) {
	places, err := gitbase.Discover(ctx, dir)
	if errors.Is(err, gitbase.ErrNoRepository) {
		root, err := filepath.EvalSymlinks(dir)
		return home.Identity{Root: root}, err
	}
	return home.Identity{Root: places.Root, GitDir: places.GitDir}, err
}

// loadEnrolment reads repos.json alone: a mistake in config.json must not keep
// anybody from enrolling.
func loadEnrolment(h *home.Home) (policy.Enrolment, error) {
	b, err := h.ReadFile(home.ReposFile, policy.MaxFile)
	if errors.Is(err, fs.ErrNotExist) {
		return policy.Enrolment{}, nil
	}
	if err != nil {
		return nil, &trustError{err}
	}
	en, err := policy.ParseEnrolment(h.Path(home.ReposFile), b)
	if err != nil {
		return nil, &trustError{err}
	}
	return en, nil
}

func sortedRoots(en policy.Enrolment) []string { return slices.Sorted(maps.Keys(en)) }

type repos struct {
	e      *env
	h      *home.Home
	root   string
	git    bool
	asJSON bool
}

func (p *repos) enable(ctx context.Context, id string, mode wire.Mode) error {
	if err := manifest.CheckID(id); err != nil {
		return usageError{err.Error()}
	}
	if _, err := manifest.OpenRegistry(p.h).Get(ctx, id); errors.Is(err, manifest.ErrUnknown) {
		return p.e.refused(p.asJSON, "enable", id, err.Error())
	} else if err != nil {
		return p.e.refused(p.asJSON, "enable", id, fmt.Sprintf("the manifest of %s cannot be used: %v", id, err))
	}
	return p.change(ctx, "enable", func(en policy.Enrolment) error { return en.Enable(p.root, id, mode) })
}

// change rewrites repos.json under a lock. An error of f is a refusal.
func (p *repos) change(ctx context.Context, action string, f func(policy.Enrolment) error) (err error) {
	unlock, err := lock.Short(ctx, p.h.Dir())
	if err != nil {
		return err
	}
	refusal := ""
	err = func() error {
		en, err := loadEnrolment(p.h)
		if err != nil {
			return err
		}
		if err := f(en); err != nil {
			refusal = err.Error()
			return nil
		}
		b, err := en.Bytes()
		if err != nil {
			return err
		}
		_ = home.CleanTemp(p.h.Dir())
		var batch home.Batch
		if err := batch.WriteFile(p.h.Dir(), home.ReposFile, b); err != nil {
			batch.Drop()
			return err
		}
		return batch.Sync(home.EachFile)
	}()
	if err := errors.Join(err, unlock()); err != nil {
		return err
	}
	if refusal != "" {
		p.e.ui.errorf("%s", refusal)
		if p.asJSON {
			if err := p.e.printJSON(map[string]any{"action": action, "repo": map[string]any{"path": p.root}, "problems": []string{refusal}}); err != nil {
				return err
			}
		}
		return exitStatus(exitRefused)
	}
	return p.show(ctx, action)
}

// repoJSON is repo{} of --json.
type repoJSON struct {
	Path           string        `json:"path"`
	State          string        `json:"state"` // enrolled or not-enrolled
	Enrolled       bool          `json:"enrolled"`
	Identity       string        `json:"identity"`
	Git            gitJSON       `json:"git"`
	EnabledServers []enabledJSON `json:"enabledServers"`
	LocalMode      string        `json:"localMode"` // advisory, gated or none
	GateReadiness  readinessJSON `json:"gateReadiness"`
	Authority      repoAuthority `json:"authority"`
}

type gitJSON struct {
	Present bool   `json:"present"`
	Head    string `json:"head,omitempty"`
	Branch  string `json:"branch,omitempty"`
}

type enabledJSON struct {
	ID    string `json:"id"`
	Mode  string `json:"mode"`
	State string `json:"state"` // installed, missing, malformed, untrusted
	// Network is what it may reach while a request is open; none without it.
	Network []string `json:"network,omitempty"`
}

type readinessJSON struct {
	Ready   bool     `json:"ready"`
	Reasons []string `json:"reasons"`
}

type repoAuthority struct {
	Source       string `json:"source"`
	Activation   string `json:"activation"`
	PolicyDigest string `json:"policyDigest"`
	Detail       string `json:"detail,omitempty"`
}

// show prints how the repository stands after action.
func (p *repos) show(ctx context.Context, action string) error {
	d, err := p.describe(ctx)
	if err != nil {
		return err
	}
	if p.asJSON {
		return p.e.printJSON(map[string]any{"action": action, "repo": d})
	}
	w := p.e.stdout
	fmt.Fprintf(w, "%s: %s, providers %s\n", clean(d.Path), d.State, d.LocalMode)
	for _, s := range d.EnabledServers {
		line := fmt.Sprintf("  %-24s %-9s %s", clean(s.ID), s.Mode, s.State)
		if len(s.Network) > 0 {
			line += ", network: " + networkSaid(s.Network)
		}
		fmt.Fprintln(w, line)
	}
	if d.Authority.Source != "" {
		fmt.Fprintf(w, "  policy: %s, %s\n", clean(d.Authority.Source), d.Authority.Activation)
	}
	for _, r := range d.GateReadiness.Reasons {
		fmt.Fprintf(w, "  no gate decision: %s\n", clean(r))
	}
	if d.Authority.Activation == policy.Rejected {
		fmt.Fprintf(w, "  no apply: refused at every call-site, until the policy at HEAD is taken back or put right\n")
	}
	return nil
}

func (p *repos) describe(ctx context.Context) (*repoJSON, error) {
	en, err := loadEnrolment(p.h)
	if err != nil {
		return nil, err
	}
	r, enrolled := en[p.root]
	d := &repoJSON{Path: p.root, State: "not-enrolled", Enrolled: enrolled, Git: gitJSON{Present: p.git}, EnabledServers: []enabledJSON{},
		LocalMode: "none", GateReadiness: readinessJSON{Reasons: []string{}}}
	if enrolled {
		d.State, d.LocalMode = "enrolled", string(r.Mode)
	}
	reg := manifest.OpenRegistry(p.h)
	var granted map[string]policy.Provider // nothing where config.json cannot be read; below it is said
	if cfg, _, err := policy.Load(p.h); err == nil {
		granted = cfg.Providers
	}
	for _, id := range slices.Sorted(maps.Keys(r.Servers)) {
		mode, _ := en.Enabled(p.root, id)
		s := enabledJSON{ID: id, Mode: string(mode), State: "installed"}
		m, err := reg.Get(ctx, id)
		switch {
		case errors.Is(err, manifest.ErrUnknown):
			s.State = "missing"
		case err != nil:
			s.State = "malformed"
		default:
			v, err := m.Verify(ctx)
			if err != nil {
				return nil, err
			}
			if _ = v.Close(); !v.All {
				s.State = "untrusted"
			}
			s.Network = m.Reach(granted[id].Network).Granted
		}
		d.EnabledServers = append(d.EnabledServers, s)
	}
	id, err := workspaceAt(ctx, p.root)
	if err != nil {
		return d, nil // removed from the list, and gone
	}
	d.Identity = id.ID()
	return d, p.policy(ctx, d)
}

// policy tells which policy is active and whether a gate could be decided.
func (p *repos) policy(ctx context.Context, d *repoJSON) error {
	eng, err := apply.Open(ctx, p.e.engineOptions(p.root, p.h, nil, false))
	if err != nil {
		// The place is enrolled or not all the same; what is wrong with it is said.
		d.GateReadiness.Reasons = append(d.GateReadiness.Reasons, err.Error())
		return nil
	}
	defer eng.Close()
	pol := eng.Policy()
	d.Authority = repoAuthority{pol.Source, pol.Activation, pol.Digest, pol.Problem}
	if ws, err := gitbase.OpenRoot(ctx, p.root, snapshot.Options{}); err == nil {
		if repo, ok := ws.(*gitbase.Repo); ok {
			if head, err := repo.Head(); err == nil {
				d.Git.Head, d.Git.Branch = head.Commit, head.Ref
			}
		}
		_ = ws.Close()
	}
	reason := func(s string) { d.GateReadiness.Reasons = append(d.GateReadiness.Reasons, s) }
	switch {
	case pol.Activation == policy.Rejected:
		reason("the committed policy is rejected: " + pol.Problem)
	case pol.Source == policy.SourceBuiltin && !d.Enrolled:
		reason("the repository is not enrolled, and ASP_HOME/config.json has no floor")
	case pol.Source == policy.SourceBuiltin:
		reason("there is no .asp/asp.json at HEAD, and ASP_HOME/config.json has no floor")
	}
	d.GateReadiness.Ready = len(d.GateReadiness.Reasons) == 0
	return nil
}

// printJSON prints one object on stdout.
func (e *env) printJSON(v any) error {
	b, err := canon.Marshal(v)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(e.stdout, "%s\n", b)
	return err
}
