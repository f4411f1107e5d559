// Package provider makes a program a provider of the Agent Server Protocol,
// version asp/1.0: it speaks the protocol on stdin and stdout, holds the host's
// messages to their shape, asks the host for content, and builds answers that a
// strict host accepts. An author writes one function for each family that the
// provider serves.
//
// What a provider is given comes from callbacks alone: it opens no file of the
// workspace and writes none. Every answer names the blobs that were read for it,
// because this package counts them, and the digest of the settings that were in
// force. A function that panics, ignores its context or answers with something
// that no host may accept costs its own request and nothing else.
//
// The session is synchronous: one request at a time, and while a callback is
// open the next message has to be its answer (or a cancellation). The rest of
// the program may do what it likes, but stdout belongs to the protocol.
package provider

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/aspengine/asp/seam/wire"
)

// Protocol is the one version that is spoken; a host that asks for another is
// refused.
const Protocol = wire.ProtocolV1

// The capability versions, which assessments and plans repeat.
const (
	CheckVersion = "check/1.0"
	EditVersion  = "edit/1.0"
)

// Provider is a provider as its author describes it. ID and Version are what an
// enrolled manifest and a policy pin name; they must not change while the
// behaviour stays the same, and must when it does not. At least one family is
// there. A Provider is not changed while it serves; it serves one host at a time.
type Provider struct {
	ID      string // as in asp-server.json, such as "acme-secrets"
	Name    string // for people; ID where empty
	Version string

	Publisher string   // for the manifest: who vouches for it, "unpublished" where empty
	Source    string   // for the manifest: where it comes from, "unpublished" where empty
	License   string   // for the manifest: an SPDX expression, "NOASSERTION" where empty
	Profiles  []string // for the manifest: conformance profiles it was tested for

	// Environment names the variables that the program needs; a host gives no
	// others.
	Environment []string

	// Network lists where the program connects: a host, host:port, or one of https://,
	// http:// and tcp:// before these. A host lets none of it through that its own
	// configuration does not list too, and that by a proxy (HTTPS_PROXY) while a request
	// is open; see Grant.
	Network []string

	// Fingerprint names the build; where empty it is the SHA-256 of the
	// executable.
	Fingerprint string

	Check   *Check
	Edit    *Edit
	Inspect *Inspect

	// MessageBytes bounds one line, in and out: 16 MiB where 0, never under 1 MiB.
	MessageBytes int
	// Log takes what is for people, such as the stack of a panic; nil: nothing.
	// It must not be stdout.
	Log io.Writer
}

// Check describes the check family.
type Check struct {
	// Sources are namespaces of findings; the provider's ID where empty. Rules
	// are all rules there are, each SOURCE/NAME; every finding has one as its code.
	Sources, Rules []string
	// Scopes holds "changeset" and "workspace", Comparisons the three words.
	// Where empty: all. A request beyond them is answered as unsupported.
	Scopes      []string
	Comparisons []Comparison
	// Configure holds the settings of a request against the provider's own and
	// returns the effective ones, defaults included: a struct with json tags, a
	// map or nil. They are what configDigest is over and what Request.Config
	// holds. nil: the provider has no settings and refuses any.
	Configure func(settings Data) (effective any, err error)
	// Fixes says that findings may carry a Fix.
	Fixes bool
	Run   CheckFunc
}

// CheckFunc looks at a change. It reports findings for r.Comparison; PerFile
// makes one of a function that looks at a single file. ctx ends when the host
// cancels, at the granted wall-clock limit, and when the session ends; what is
// returned then does not matter. An error becomes the error of the request: an
// *Error as it is, *Unsupported as an assessment that says so, anything else as
// a failure of health.
type CheckFunc func(ctx context.Context, h *Host, r *CheckRequest) (*Report, error)

// Edit describes the edit family.
type Edit struct {
	// Operations are of: rename, move, change-signature, multi-edit,
	// organize-imports, replace-resource, text-edit.
	Operations []string
	// Kinds are the changes that plans are made of.
	Kinds []ChangeKind
	// Config are fixed settings that configDigest is over: a struct with json
	// tags, a map or nil.
	Config any
	Run    EditFunc
}

// EditFunc proposes a plan for a request. Nothing is written: the plan goes to
// the host. Errors are as for CheckFunc; a denied or missing blob becomes a plan
// that says so.
type EditFunc func(ctx context.Context, h *Host, r *EditRequest) (*Plan, error)

// Inspect describes the inspect family.
type Inspect struct {
	// Verbs are of: references, callers, callees, symbols, impact. Queries are
	// the provider's own questions.
	Verbs, Queries []string
	Run            InspectFunc
}

// InspectFunc answers a read-only question. Errors are as for CheckFunc, but that
// *Unsupported is an error of the request.
type InspectFunc func(ctx context.Context, h *Host, r *InspectRequest) (*Answer, error)

// families lists what the provider serves.
func (p *Provider) families() []wire.Family {
	var f []wire.Family
	if p.Inspect != nil {
		f = append(f, wire.Inspect)
	}
	if p.Check != nil {
		f = append(f, wire.Check)
	}
	if p.Edit != nil {
		f = append(f, wire.Edit)
	}
	return f
}

func (p *Provider) name() string {
	if p.Name != "" {
		return p.Name
	}
	return p.ID
}

func (p *Provider) limit() int {
	switch n := p.MessageBytes; {
	case n == 0:
		return 16 << 20
	default:
		return max(n, 1<<20)
	}
}

func (p *Provider) logf(format string, a ...any) {
	if p.Log != nil {
		fmt.Fprintf(p.Log, p.ID+": "+format+"\n", a...)
	}
}

func (c *Check) sources(id string) []string {
	if len(c.Sources) > 0 {
		return c.Sources
	}
	return []string{id}
}

func (c *Check) scopes() []string {
	if len(c.Scopes) > 0 {
		return c.Scopes
	}
	return []string{wire.ScopeChangeset, wire.ScopeWorkspace}
}

func (c *Check) comparisons() []Comparison {
	if len(c.Comparisons) > 0 {
		return c.Comparisons
	}
	return []Comparison{Introduced, All, Resolved}
}

// Validate says what is wrong with the description: an author's mistake that
// Serve would refuse to start with.
func (p *Provider) Validate() error {
	switch {
	case p.ID == "" || p.Version == "":
		return fmt.Errorf("provider %q: ID and Version are needed", p.ID)
	case len(p.families()) == 0:
		return fmt.Errorf("provider %s: it has no family", p.ID)
	}
	for _, s := range p.Network {
		if _, err := access(s); err != nil {
			return fmt.Errorf("provider %s: %w", p.ID, err)
		}
	}
	if c := p.Check; c != nil {
		if c.Run == nil || len(c.Rules) == 0 {
			return fmt.Errorf("provider %s: Check needs Rules and Run", p.ID)
		}
		for _, r := range c.Rules {
			if !slices.ContainsFunc(c.sources(p.ID), func(s string) bool { return strings.HasPrefix(r, s+"/") }) {
				return fmt.Errorf("provider %s: rule %q begins with no source of %q", p.ID, r, c.sources(p.ID))
			}
		}
	}
	if e := p.Edit; e != nil && (e.Run == nil || len(e.Operations) == 0 || len(e.Kinds) == 0) {
		return fmt.Errorf("provider %s: Edit needs Operations, Kinds and Run", p.ID)
	}
	if i := p.Inspect; i != nil && i.Run == nil {
		return fmt.Errorf("provider %s: Inspect needs Run", p.ID)
	}
	return nil
}
