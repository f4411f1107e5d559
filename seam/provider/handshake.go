package provider

import (
	"context"
	"errors"
	"slices"

	"github.com/aspengine/asp/internal/canon"
	"github.com/aspengine/asp/seam/manifest"
	"github.com/aspengine/asp/seam/wire"
)

// hostName is what providers are told, and candidateRoot a name for their
// messages: nothing lies there.
const (
	hostName      = "asp"
	candidateRoot = "/candidate"
)

// dialects are the versions that this host speaks, the highest first.
var dialects = [...]string{wire.ProtocolV1, wire.ProtocolV01}

// dialect chooses the highest version that both know. It is never lowered
// afterwards.
func dialect(m manifest.Manifest) (string, *fault) {
	for _, d := range dialects {
		if slices.Contains(m.Protocols, d) {
			return d, nil
		}
	}
	return "", faultOf(wire.DegradeIncompatible, wire.Incompatible, wire.FailContract,
		"its manifest offers protocol versions %.300q, and this host speaks %q", m.Protocols, dialects)
}

// declared is what the handshake established. All of it is the provider's
// word, cut down to what its manifest says.
type declared struct {
	serverVersion string
	families      []wire.Family
	capabilities  wire.Capabilities // of asp/0.1 only what could be read
	sources       []string
	directWrite   bool
	grant         grant
	reach         []string // what of the network it may reach while a request is open
}

// incompatible is the answer to every initialize that did not work.
func incompatible(format string, a ...any) *fault {
	return faultOf(wire.DegradeIncompatible, wire.Incompatible, wire.FailContract, format, a...)
}

// handshake initializes a session and sends the grant.
func (s *session) handshake(ctx context.Context, b wire.Baseline) *fault {
	params, err := canon.From(wire.InitializeParams{ProtocolVersion: s.protocol, Host: wire.HostName{Name: hostName, Version: s.p.o.Version},
		Workspace: wire.Workspace{Root: candidateRoot, Baseline: b}})
	if err != nil {
		return launchFault(err)
	}
	s.entry.moved(s, wire.Initializing)
	v, err := s.conn.Call(ctx, wire.MethodInitialize, params, nil)
	var e *wire.Error
	switch {
	case errors.As(err, &e):
		return incompatible("it refused to initialize: error %d, %q", e.Code, cut(e.Message, 500))
	case err != nil:
		return s.failed(ctx, err)
	}
	d, f := s.declare(v)
	if f != nil {
		return f
	}
	s.declared = d
	grant, err := canon.From(wire.InitializedParams{GrantedPermissions: d.grant.permissions(s.p.limits, d.reach), Baseline: b})
	if err != nil {
		return launchFault(err)
	}
	if err := s.conn.Notify(ctx, wire.MethodInitialized, grant); err != nil {
		return s.failed(ctx, err)
	}
	s.first, s.baseline = b, b
	s.entry.moved(s, wire.Initialized)
	return nil
}

func (s *session) declare(v canon.Value) (declared, *fault) {
	var d declared
	if found := wire.ScanHostOwned(v); len(found) > 0 {
		return d, malformed("its initialize result has member %s, which belongs to the host (%.300s)", found[0].Key, found[0].Path)
	}
	var requests *wire.Permissions
	if s.protocol == wire.ProtocolV01 {
		var r wire.LegacyInitializeResult
		if err := wire.DecodeOpen(v, &r); err != nil {
			return d, malformed("its initialize result is not one of asp/0.1: %s", err)
		}
		d.serverVersion, requests = r.ServerInfo.Version, r.RequestedPermissions
		d.families = s.families(r.CapabilityFamilies)
		check, _ := r.Capabilities.Get("check")
		list, _ := check.Get("diagnosticSources")
		for _, x := range list.Elements() {
			d.sources = append(d.sources, x.Str())
		}
	} else {
		var r wire.InitializeResult
		if err := wire.Decode(v, &r); err != nil {
			return d, malformed("its initialize result is not one of asp/1.0: %s", err)
		}
		d.serverVersion, requests, d.capabilities = r.ServerInfo.Version, r.RequestedPermissions, r.Capabilities
		var words []string
		for _, f := range r.CapabilityFamilies {
			words = append(words, string(f))
		}
		d.families = s.families(words)
		c := r.Capabilities
		for f, there := range map[wire.Family]bool{wire.Check: c.CheckBlock() != nil, wire.Edit: c.EditBlock() != nil, wire.Inspect: c.InspectBlock() != nil} {
			if slices.Contains(d.families, f) && !there {
				return d, incompatible("it lists family %s and declares no capability for it", f)
			}
		}
		if block := c.CheckBlock(); block != nil {
			d.sources = block.DiagnosticSources
		}
	}
	if d.serverVersion != s.m.Version {
		return d, faultOf(wire.DegradeSkewed, wire.Incompatible, wire.FailContract,
			"it says that it is version %q, and its manifest says %q; add it again from the manifest of what is installed", cut(d.serverVersion, 100), s.m.Version)
	}
	d.directWrite = requests != nil && requests.Write != nil && *requests.Write
	g, err := narrow(requests, s.m.FSRead)
	if err != nil {
		return d, malformed("it asks to read what cannot be granted: %s", err)
	}
	d.grant = g
	if d.reach, err = requested(s.proc.reach, requests); err != nil {
		return d, malformed("it asks to reach what cannot be granted: %s", err)
	}
	return d, nil
}

// families are those of the handshake that the manifest lists too.
func (s *session) families(words []string) []wire.Family {
	var out []wire.Family
	for _, f := range s.m.Families {
		if slices.Contains(words, string(f)) {
			out = append(out, f)
		}
	}
	return out
}
