package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/aspengine/asp/checks/policy"
	"github.com/aspengine/asp/internal/home"
	"github.com/aspengine/asp/seam/manifest"
	"github.com/aspengine/asp/seam/provider"
	"github.com/spf13/pflag"
)

func serverCommand() *command {
	return &command{
		name: "server", short: "add, list, look at and remove providers", hasJSON: true,
		args: "(add --manifest F | list | status ID | reset ID | remove ID) [--repo D]",
		long: `
A provider is started only if it was added here and a repository enables it; what it
says counts only if the committed policy of that repository pins it. Adding copies
the manifest into ASP_HOME and verifies every file that it lists; it is verified again
at every launch. Files are named by the manifest: the program by its full path, the
others relative to where the manifest was.

A provider has no network, unless config.json in ASP_HOME lists where to under
providers.ID.network and its manifest names the same; status shows what that comes to.

status and reset look at the quarantine, which is kept per repository: in the one that
--repo names, else in all that are enrolled. reset ends it before its time.

examples:
  asp server add --manifest /opt/checker/asp-server.json
  asp repo enable checker --repo . --mode advisory
  asp server status checker --json`,
		run:   runServer,
		flags: func(fs *pflag.FlagSet) { fs.String("manifest", "", "the asp-server.json to add, a `F`ile") },
	}
}

func runServer(ctx context.Context, e *env, fs *pflag.FlagSet) error {
	asJSON, _ := fs.GetBool("json")
	file, _ := fs.GetString("manifest")
	verb := fs.Arg(0)
	switch {
	case verb == "add" && fs.NArg() == 1 && file != "":
	case verb == "list" && fs.NArg() == 1 && file == "":
	case (verb == "status" || verb == "reset" || verb == "remove") && fs.NArg() == 2 && file == "":
	default:
		return usagef("say add --manifest F, list, status ID, reset ID or remove ID; see `asp server --help`")
	}
	h, err := e.openHome()
	if err != nil {
		return err
	}
	defer h.Close()
	s := &servers{e: e, h: h, r: manifest.OpenRegistry(h), asJSON: asJSON}
	switch verb {
	case "add":
		return s.add(ctx, file)
	case "list":
		return s.list(ctx)
	case "remove":
		return s.remove(ctx, fs.Arg(1))
	}
	if err := manifest.CheckID(fs.Arg(1)); err != nil {
		return usageError{err.Error()}
	}
	roots, err := s.roots(ctx, fs)
	if err != nil {
		return err
	}
	if verb == "reset" {
		return s.reset(ctx, fs.Arg(1), roots)
	}
	return s.status(ctx, fs.Arg(1), roots)
}

// refused ends an enrolment command with status 1 after its reasons were printed.
func (e *env) refused(asJSON bool, action, id string, problems ...string) error {
	for _, p := range problems {
		e.ui.errorf("%s", p)
	}
	if asJSON {
		if err := e.printJSON(map[string]any{"action": action, "server": map[string]any{"id": id}, "problems": problems}); err != nil {
			return err
		}
	}
	return exitStatus(exitRefused)
}

type servers struct {
	e      *env
	h      *home.Home
	r      *manifest.Registry
	asJSON bool
}

func (s *servers) add(ctx context.Context, file string) error {
	if !filepath.IsAbs(file) {
		file = filepath.Join(s.e.dir, file)
	}
	b, err := s.e.read(ctx, file, manifest.MaxFile)
	if err != nil {
		return err
	}
	m, err := manifest.Parse(filepath.Clean(file), b)
	if err == nil {
		err = s.r.Add(ctx, m)
	}
	var bad *manifest.Error
	if errors.As(err, &bad) {
		return s.e.refused(s.asJSON, "add", m.ID, bad.Problems...)
	}
	if err != nil {
		return err
	}
	if s.asJSON {
		d, err := s.describe(ctx, m.ID, nil)
		if err != nil {
			return err
		}
		return s.e.printJSON(map[string]any{"action": "add", "server": d})
	}
	fmt.Fprintf(s.e.stdout, "added %s %s from %s; %d files verified\n", m.ID, clean(m.Version), clean(m.Publisher), len(m.Checksums))
	s.e.ui.notef("nothing starts it yet: enable it with `asp repo enable %s --repo D --mode advisory`", m.ID)
	return nil
}

func (s *servers) list(ctx context.Context) error {
	entries, err := s.r.List(ctx)
	if err != nil {
		return err
	}
	all := []*serverJSON{}
	for _, x := range entries {
		d, err := s.describe(ctx, x.ID, nil)
		if err != nil {
			return err
		}
		all = append(all, d)
	}
	if s.asJSON {
		return s.e.printJSON(map[string]any{"action": "list", "servers": all})
	}
	if len(all) == 0 {
		s.e.ui.notef("no provider was added; `asp server add --manifest F` does")
	}
	for _, d := range all {
		fmt.Fprintf(s.e.stdout, "%-24s %-12s %-10s %s\n", d.ID, clean(d.Version), d.Install.State, strings.Join(d.Capabilities, ","))
	}
	return nil
}

func (s *servers) remove(ctx context.Context, id string) error {
	if err := manifest.CheckID(id); err != nil {
		return usageError{err.Error()}
	}
	err := s.r.Remove(ctx, id)
	if errors.Is(err, manifest.ErrUnknown) {
		return s.e.refused(s.asJSON, "remove", id, err.Error())
	}
	if err != nil {
		return err
	}
	if s.asJSON {
		return s.e.printJSON(map[string]any{"action": "remove", "server": map[string]any{"id": id}})
	}
	fmt.Fprintf(s.e.stdout, "removed %s; repositories that enable it have a missing provider now\n", id)
	return nil
}

func (s *servers) status(ctx context.Context, id string, roots []string) error {
	d, err := s.describe(ctx, id, roots)
	if errors.Is(err, manifest.ErrUnknown) {
		return s.e.refused(s.asJSON, "status", id, err.Error())
	}
	if err != nil {
		return err
	}
	if s.asJSON {
		return s.e.printJSON(map[string]any{"action": "status", "server": d})
	}
	w := s.e.stdout
	fmt.Fprintf(w, "%s  %s %s\n", d.ID, clean(d.Name), clean(d.Version))
	fmt.Fprintf(w, "  manifest     %s: %s\n", d.Install.State, clean(d.Install.Manifest))
	for _, p := range d.Install.Problems {
		fmt.Fprintf(w, "               %s\n", clean(p))
	}
	if d.Trust != nil {
		fmt.Fprintf(w, "  program      %s\n", clean(d.Install.Bin))
		fmt.Fprintf(w, "  capabilities %s over %s\n", strings.Join(d.Capabilities, ", "), clean(strings.Join(d.Protocols, ", ")))
		fmt.Fprintf(w, "  publisher    %s, %s\n", clean(d.Trust.Identity), clean(d.Trust.Source))
		fmt.Fprintf(w, "  fingerprint  %s (%d files listed)\n", clean(d.Trust.Integrity), d.Trust.Checksums)
		fmt.Fprintf(w, "  profiles     %s\n", clean(strings.Join(d.Trust.Conformance, ", ")))
		fmt.Fprintf(w, "  network      %s\n", networkSaid(d.Access.Granted))
		for _, x := range d.Access.NotGranted {
			fmt.Fprintf(w, "               not granted: %s\n", clean(x))
		}
	}
	for _, r := range d.Authority.Repos {
		fmt.Fprintf(w, "  enabled      %s in %s\n", r.Mode, clean(r.Path))
		if q := r.Quarantine; q != nil {
			fmt.Fprintf(w, "               in quarantine until %s: %s; `asp server reset %s` ends it\n", q.Until, clean(q.Reason), id)
		}
		if r.Ambient != "" {
			fmt.Fprintf(w, "               %s\n", clean(r.Ambient))
		}
	}
	if len(d.Authority.Repos) == 0 {
		fmt.Fprintf(w, "  enabled      nowhere\n")
	}
	return nil
}

func (s *servers) reset(ctx context.Context, id string, roots []string) error {
	// One that was removed may still be in quarantine somewhere.
	_, unknown := s.r.Get(ctx, id)
	done := []string{}
	for _, root := range roots {
		had := false
		err := s.pool(ctx, root, func(p *provider.Pool) error {
			had = p.Standing(ctx, id).Quarantine != nil
			return p.Reset(id)
		})
		if err != nil {
			return err
		}
		if had {
			done = append(done, root)
		}
	}
	if len(done) == 0 && errors.Is(unknown, manifest.ErrUnknown) {
		return s.e.refused(s.asJSON, "reset", id, unknown.Error())
	}
	if s.asJSON {
		return s.e.printJSON(map[string]any{"action": "reset", "server": map[string]any{"id": id, "released": done}})
	}
	for _, root := range done {
		fmt.Fprintf(s.e.stdout, "%s is out of quarantine in %s\n", id, clean(root))
	}
	if len(done) == 0 {
		fmt.Fprintf(s.e.stdout, "%s was in no quarantine; its failures are forgotten\n", id)
	}
	return nil
}

// roots are the repositories that a quarantine is looked for in.
func (s *servers) roots(ctx context.Context, fs *pflag.FlagSet) ([]string, error) {
	if fs.Changed("repo") {
		root, _, err := s.e.root(ctx, fs)
		return []string{root}, err
	}
	en, err := loadEnrolment(s.h)
	if err != nil {
		return nil, err
	}
	return sortedRoots(en), nil
}

// pool gives f a pool of the repository that launches nothing. A repository that
// is gone has none.
func (s *servers) pool(ctx context.Context, root string, f func(*provider.Pool) error) error {
	id, err := workspaceAt(ctx, root)
	if err != nil {
		return nil
	}
	st, err := s.h.Workspace(id)
	if err != nil {
		return err
	}
	p := provider.New(provider.Options{Registry: s.r, State: st.Dir(), Version: Version, Now: s.e.now})
	err = f(p)
	return errors.Join(err, p.Close(ctx), st.Close())
}

// serverJSON is server{} of --json.
type serverJSON struct {
	ID           string        `json:"id"`
	Name         string        `json:"name,omitempty"`
	Version      string        `json:"version,omitempty"`
	Protocols    []string      `json:"protocolVersions,omitzero"`
	Capabilities []string      `json:"capabilities,omitzero"`
	Install      installJSON   `json:"install"`
	Access       *accessJSON   `json:"access,omitempty"`
	Trust        *trustJSON    `json:"trust,omitempty"`
	Authority    authorityJSON `json:"authority"`
}

type installJSON struct {
	Manifest string   `json:"manifest"`
	State    string   `json:"state"` // valid, malformed, untrusted
	Bin      string   `json:"bin,omitempty"`
	Args     []string `json:"args,omitzero"`
	Problems []string `json:"problems"`
}

type accessJSON struct {
	Read        []string `json:"read"`
	Write       []string `json:"write"`
	Network     bool     `json:"network"`
	Allowlist   []string `json:"allowlist"`
	Environment []string `json:"environment"`
	// Granted is what it may reach of the network while a request is open, by
	// config.json and its manifest together; NotGranted says what is in one of them alone.
	Granted    []string `json:"granted"`
	NotGranted []string `json:"notGranted"`
}

type trustJSON struct {
	Identity    string   `json:"identity"`
	Integrity   string   `json:"integrity"`
	Conformance []string `json:"conformance"`
	Source      string   `json:"source"`
	License     string   `json:"license"`
	Checksums   int      `json:"checksums"`
	Verified    bool     `json:"verified"`
}

// authorityJSON says that a manifest gives none: a repository's policy does.
type authorityJSON struct {
	Launch bool       `json:"launch"` // some repository enables it
	Gate   bool       `json:"gate"`   // false
	Detail string     `json:"detail"`
	Repos  []inRepoJS `json:"repos"`
}

type inRepoJS struct {
	Path       string          `json:"path"`
	Mode       string          `json:"mode"`
	Quarantine *quarantineJSON `json:"quarantine,omitempty"`
	// Ambient is what it published by itself when it ran last, for people.
	Ambient string `json:"ambient,omitempty"`
}

type quarantineJSON struct {
	Until    string `json:"until"`
	Failures int    `json:"failures"`
	Reason   string `json:"reason"`
}

// describe looks at a provider as it is now. How it stands is looked up in roots.
func (s *servers) describe(ctx context.Context, id string, roots []string) (*serverJSON, error) {
	d := &serverJSON{ID: id, Install: installJSON{Manifest: s.h.Path(home.ServersDir, "manifests", id, manifest.FileName), State: "valid", Problems: []string{}},
		Authority: authorityJSON{Detail: "a manifest grants nothing; the committed policy of a repository pins providers", Repos: []inRepoJS{}}}
	m, err := s.r.Get(ctx, id)
	var bad *manifest.Error
	switch {
	case errors.As(err, &bad):
		d.Install.State, d.Install.Problems = "malformed", bad.Problems
	case err != nil:
		return nil, err
	default:
		if err := s.take(ctx, d, m); err != nil {
			return nil, err
		}
	}
	en, err := loadEnrolment(s.h)
	if err != nil {
		return nil, err
	}
	for _, root := range sortedRoots(en) {
		if mode, ok := en.Enabled(root, id); ok {
			d.Authority.Launch = true
			d.Authority.Repos = append(d.Authority.Repos, inRepoJS{Path: root, Mode: string(mode)})
		}
	}
	for _, root := range roots {
		if err := s.standing(ctx, d, root); err != nil {
			return nil, err
		}
	}
	return d, nil
}

func (s *servers) take(ctx context.Context, d *serverJSON, m manifest.Manifest) error {
	v, err := m.Verify(ctx)
	if err != nil {
		return err
	}
	defer v.Close()
	if !v.All {
		d.Install.State, d.Install.Problems = "untrusted", v.Problems
	}
	d.Name, d.Version, d.Protocols = m.Name, m.Version, m.Protocols
	for _, f := range m.Families {
		d.Capabilities = append(d.Capabilities, string(f))
	}
	d.Install.Bin, d.Install.Args = m.Bin, m.Args
	d.Trust = &trustJSON{m.Publisher, m.Fingerprint, m.Profiles, m.Source, m.License, len(m.Checksums), v.All}
	d.Access = &accessJSON{Read: m.FSRead, Write: m.FSWrite, Network: m.Network, Allowlist: m.Allowlist, Environment: m.Env, Granted: []string{}, NotGranted: []string{}}
	cfg, _, err := policy.Load(s.h)
	if err != nil {
		d.Access.NotGranted = append(d.Access.NotGranted, "anything: "+err.Error())
		return nil
	}
	reach := m.Reach(cfg.Providers[m.ID].Network)
	d.Access.Granted = append(d.Access.Granted, reach.Granted...)
	d.Access.NotGranted = append(d.Access.NotGranted, notGranted(m, reach)...)
	return nil
}

func (s *servers) standing(ctx context.Context, d *serverJSON, root string) error {
	return s.pool(ctx, root, func(p *provider.Pool) error {
		st := p.Standing(ctx, d.ID)
		var show *quarantineJSON
		if q := st.Quarantine; q != nil {
			show = &quarantineJSON{q.Until.UTC().Format(time.RFC3339), q.Failures, q.Reason}
		}
		for i := range d.Authority.Repos {
			if r := &d.Authority.Repos[i]; r.Path == root {
				r.Quarantine, r.Ambient = show, st.Ambient.String()
				return nil
			}
		}
		if show != nil {
			d.Authority.Repos = append(d.Authority.Repos, inRepoJS{Path: root, Mode: "disabled", Quarantine: show})
		}
		return nil
	})
}
