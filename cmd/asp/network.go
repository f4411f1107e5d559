package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/aspengine/asp/checks/policy"
	"github.com/aspengine/asp/seam/manifest"
)

// networkSaid says what a provider may reach.
func networkSaid(granted []string) string {
	if len(granted) == 0 {
		return "none"
	}
	return clean(strings.Join(granted, ", ")) + ", while a request is open"
}

// reachJSON is a provider that may reach some of the network.
type reachJSON struct {
	Provider string   `json:"provider"`
	Granted  []string `json:"granted"`
}

// reaches are the registered providers that may, and what the configuration lists for
// one of them in vain.
func (e *env) reaches(ctx context.Context, cfg policy.Config) (all []reachJSON, problems []string, err error) {
	if !slices.ContainsFunc(slices.Collect(maps.Values(cfg.Providers)), func(p policy.Provider) bool { return len(p.Network) > 0 }) {
		return nil, nil, nil
	}
	h, err := e.openHome()
	if err != nil {
		return nil, nil, err
	}
	defer h.Close()
	list, err := manifest.OpenRegistry(h).List(ctx)
	if err != nil {
		return nil, nil, err
	}
	for _, x := range list {
		if x.Manifest == nil {
			continue
		}
		r := x.Manifest.Reach(cfg.Providers[x.ID].Network)
		if len(r.Granted) > 0 {
			all = append(all, reachJSON{x.ID, r.Granted})
		}
		for _, s := range notGranted(*x.Manifest, manifest.Reach{Unasked: r.Unasked}) {
			problems = append(problems, fmt.Sprintf("provider %q is not granted %s; take it out, or add the provider again from a manifest that names it", x.ID, s))
		}
	}
	return all, problems, nil
}

// notGranted says what the configuration and the manifest do not agree on, and what to do
// about it. Names in it are foreign.
func notGranted(m manifest.Manifest, r manifest.Reach) []string {
	var out []string
	for _, s := range r.Unasked {
		why := "its manifest does not name it"
		switch {
		case !m.Network:
			why = "its manifest expects no network"
		case len(m.Allowlist) == 0:
			why = "its manifest expects the network and names no destination"
		}
		out = append(out, fmt.Sprintf("%.200s: config.json lists it, and %s", s, why))
	}
	for _, s := range r.Unmet {
		out = append(out, fmt.Sprintf("%.200s: its manifest names it; to grant it, list host:port under providers.%s.network in config.json", s, m.ID))
	}
	for _, s := range r.Unclear {
		out = append(out, fmt.Sprintf("%.200s: its manifest names it, and it is no destination (a host, host:port, or one of https://, http:// and tcp:// before it)", s))
	}
	return out
}
