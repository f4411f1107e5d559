package provider

import (
	"crypto/sha256"
	"encoding/hex"
	"io"
	"os"
	"slices"
	"time"

	"github.com/aspengine/asp/internal/canon"
	"github.com/aspengine/asp/seam/wire"
)

// initialize agrees on the version and says what this provider is.
func (s *session) initialize(params canon.Value) (canon.Value, *Error) {
	if s.initialized || s.stopping {
		return canon.Value{}, contractError(wire.CodeInvalidRequest, "initialize comes once")
	}
	// The version is looked at first: the parameters of another version may have
	// another shape, and the shape is not what is wrong then.
	if v, _ := params.Get("protocolVersion"); v.Kind() == canon.String && v.Str() != Protocol {
		return canon.Value{}, contractError(wire.CodeUnsupportedVersion, "protocol version %.60q is not spoken; %s is", v.Str(), Protocol)
	}
	var p wire.InitializeParams
	if err := wire.Decode(params, &p); err != nil {
		return canon.Value{}, InputError("%v", err)
	}
	result, err := canon.From(s.describe())
	if err != nil {
		return canon.Value{}, wire.NewError(wire.CodeInternal, wire.FailHealth, err.Error(), "")
	}
	s.initialized, s.baseline = true, p.Workspace.Baseline
	return result, nil
}

func (s *session) describe() wire.InitializeResult {
	p, no := s.p, false
	network, list := p.requests()
	r := wire.InitializeResult{
		ServerInfo:           wire.ServerInfo{Name: p.name(), Version: p.Version, Fingerprint: s.build},
		CapabilityFamilies:   p.families(),
		RequestedPermissions: &wire.Permissions{Read: []string{"**/*"}, Write: &no, Network: &network, NetworkAllowlist: list},
	}
	if p.Publisher != "" {
		r.Provenance = &wire.Provenance{Publisher: p.Publisher}
	}
	if c := p.Check; c != nil {
		fixes := c.Fixes
		r.Roles = append(r.Roles, "judge")
		r.Capabilities.Check = &wire.CheckCapability{
			CapabilityVersion: CheckVersion, DiagnosticSources: c.sources(p.ID), Scopes: c.scopes(), Comparisons: c.comparisons(),
			UnsupportedReporting: "assessment-status", Fixes: &fixes,
		}
	}
	if e := p.Edit; e != nil {
		has := func(k ChangeKind) bool { return slices.Contains(e.Kinds, k) }
		r.Roles = append(r.Roles, "act")
		r.Capabilities.Edit = &wire.EditCapability{
			CapabilityVersion: EditVersion, Operations: e.Operations,
			OperationSupport: wire.OperationSupport{Create: has(Create), Modify: has(Modify), Delete: has(Delete), Rename: has(Rename), Move: has(Move)},
			TextEditSupport:  has(Modify), WholeResourceSupport: has(Create) || has(Modify), RenameMoveSupport: has(Rename) || has(Move),
			PreconditionSupport: "required", BlobUploadSupport: wire.MethodPutBlob, PartialProposalSemantics: "status",
			Scopes: []string{wire.ScopeWorkspace},
		}
	}
	if i := p.Inspect; i != nil {
		r.Roles = append(r.Roles, "sense")
		r.Capabilities.Inspect = &wire.InspectCapability{Verbs: i.Verbs, Query: i.Queries, Scopes: []string{wire.ScopeWorkspace}}
	}
	return r
}

// takeGrant keeps what the host allows. A grant that cannot be kept shows as the
// error of the first request, because a notification has no answer.
func (s *session) takeGrant(params canon.Value) {
	var p wire.InitializedParams
	switch err := wire.Decode(params, &p); {
	case !s.initialized || s.granted:
		s.p.logf("initialized comes once, after initialize")
		return
	case err != nil:
		s.badGrant = contractError(wire.CodeInvalidInput, "the grant is malformed: %v", err)
	case p.Baseline != s.baseline:
		s.badGrant = contractError(wire.CodeInvalidInput, "the grant is for another baseline than initialize")
	}
	s.granted = true
	s.grant = Grant{Read: slices.Clone(p.GrantedPermissions.Read), Network: destinations(p.GrantedPermissions)}
	s.wallclock = defaultWallclock
	if l := p.GrantedPermissions.ResourceLimits; l != nil && l.WallclockMs != nil {
		if ms := *l.WallclockMs; ms > 0 && ms < defaultWallclock.Milliseconds() {
			s.wallclock = time.Duration(ms) * time.Millisecond
		}
	}
}

// fingerprint names the build. It must change when the program does, and a
// version does not always, so it is over the bytes that run.
func (p *Provider) fingerprint() string {
	if p.Fingerprint != "" {
		return p.Fingerprint
	}
	if name, err := os.Executable(); err == nil {
		if sum, err := sumFile(name); err == nil {
			return "sha256:" + sum
		}
	}
	// A sandbox may hide the executable from itself. Then this is a weaker name:
	// the manifest's checksums are what a host relies on.
	return canon.DigestText(canon.ObjectOf(member("id", canon.StringOf(p.ID)), member("version", canon.StringOf(p.Version))))
}

func sumFile(name string) (string, error) {
	f, err := os.Open(name)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
