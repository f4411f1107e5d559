package wire

import (
	"fmt"

	"github.com/aspengine/asp/internal/canon"
)

// StatusResult answers host/status and `asp status --json`.
type StatusResult struct {
	Host                  StatusHost         `json:"host"`
	Workspace             StatusWorkspace    `json:"workspace"`
	Policy                StatusPolicy       `json:"policy"`
	Servers               []ServerStatus     `json:"servers"`
	Gates                 Gates              `json:"gates"`
	Capabilities          CapabilityCoverage `json:"capabilities"`
	AssuranceCapabilities []Mode             `json:"assuranceCapabilities" wire:"unique"`
	Receipt               AuditReceipt       `json:"receipt"`
}

// StatusHost describes the host.
type StatusHost struct {
	Name             string `json:"name"`
	Version          string `json:"version"`
	OuterProtocol    string `json:"outerProtocol"`
	State            string `json:"state" wire:"in=ready|degraded|unavailable"`
	BindingCandidate string `json:"bindingCandidate" wire:"in=json-rpc-stdio|mcp-extension|embedded-reference|unavailable"`
}

// StatusWorkspace describes the workspace.
type StatusWorkspace struct {
	Root        string   `json:"root"`
	Baseline    Baseline `json:"baseline"`
	ValidAsOf   Baseline `json:"validAsOf"`
	StaleReason string   `json:"staleReason,omitempty"`
}

// StatusPolicy describes the active policy.
type StatusPolicy struct {
	Source        string         `json:"source"`
	Activation    string         `json:"activation" wire:"in=active|pending|rejected"`
	PolicyDigest  string         `json:"policyDigest"`
	LocalOverride *LocalOverride `json:"localOverride,omitempty"`
}

// LocalOverride reports .asp/local.json; AuthorityEffect is always none.
type LocalOverride struct {
	Present         bool    `json:"present"`
	Path            *string `json:"path,omitempty" wire:"nullable"`
	AuthorityEffect string  `json:"authorityEffect" wire:"in=none"`
	Detail          string  `json:"detail,omitempty"`
}

// ServerStatus describes one provider.
type ServerStatus struct {
	ID                         string            `json:"id"`
	Roles                      []string          `json:"roles,omitzero"`
	Role                       string            `json:"role,omitempty" wire:"in=required|optional|advisory|disabled"`
	Category                   *string           `json:"category,omitempty" wire:"nullable"`
	Capabilities               []Family          `json:"capabilities" wire:"unique"`
	AuthorityEvidence          AuthorityEvidence `json:"authorityEvidence"`
	State                      string            `json:"state" wire:"in=ready|installed|degraded|unavailable|quarantined|incompatible"`
	LifecycleState             Lifecycle         `json:"lifecycleState"`
	EnrollmentState            string            `json:"enrollmentState" wire:"in=enrolled|optional|missing|quarantined|incompatible|disabled|error|installed-not-enrolled"`
	CapabilityStates           CapabilityHealths `json:"capabilityStates"`
	RequiredFor                []CallSite        `json:"requiredFor"`
	Coverage                   *HostCoverage     `json:"coverage,omitempty"`
	Manifest                   string            `json:"manifest,omitempty"`
	ManifestState              string            `json:"manifestState,omitempty" wire:"in=valid|present|missing|malformed|stale|incompatible|untrusted"`
	AccessExpectationsDeclared *bool             `json:"accessExpectationsDeclared,omitempty"`
	ManifestDetail             *ManifestDetail   `json:"manifestDetail,omitempty"`
	Detail                     string            `json:"detail,omitempty"`
}

// ManifestDetail says that a manifest gives no authority.
type ManifestDetail struct {
	Path            string `json:"path"`
	TrustEffect     string `json:"trustEffect" wire:"in=metadata-only"`
	LaunchAuthority bool   `json:"launchAuthority"` // false
	GateAuthority   bool   `json:"gateAuthority"`   // false
	Detail          string `json:"detail,omitempty"`
}

// CapabilityHealths is the health of a provider per family.
type CapabilityHealths struct {
	Inspect CapabilityHealth `json:"inspect"`
	Check   CapabilityHealth `json:"check"`
	Edit    CapabilityHealth `json:"edit"`
}

// CapabilityHealth is the health of one family.
type CapabilityHealth struct {
	Capability     Family        `json:"capability"`
	Advertised     bool          `json:"advertised"`
	Available      bool          `json:"available"`
	LifecycleState Lifecycle     `json:"lifecycleState"`
	Degraded       []Degradation `json:"degraded"`
}

// Gates is the state of each call-site.
type Gates struct {
	Interactive GateStatus `json:"interactive"`
	Gate        GateStatus `json:"gate"`
	Sweep       GateStatus `json:"sweep"`
}

// GateStatus says whether a call-site can be decided.
type GateStatus struct {
	Available            bool          `json:"available"`
	RequiredProviders    []string      `json:"requiredProviders"`
	RequiredCapabilities []Family      `json:"requiredCapabilities" wire:"unique"`
	Degraded             []Degradation `json:"degraded"`
}

// CapabilityCoverage is the composed surface.
type CapabilityCoverage struct {
	Inspect CapabilityStatus `json:"inspect"`
	Check   CapabilityStatus `json:"check"`
	Edit    CapabilityStatus `json:"edit"`
}

// CapabilityStatus is one family of the surface.
type CapabilityStatus struct {
	Available        bool                      `json:"available"`
	Providers        []string                  `json:"providers"`
	RequiredFor      []CallSite                `json:"requiredFor,omitzero"`
	Degraded         []Degradation             `json:"degraded"`
	CapabilityStates []CapabilityProviderState `json:"capabilityStates"`
	LegacyAliases    []string                  `json:"legacyAliases,omitzero"`
}

// CapabilityProviderState is one provider within a family.
type CapabilityProviderState struct {
	Provider       string        `json:"provider"`
	Role           string        `json:"role" wire:"in=required|optional|advisory|disabled"`
	Capability     Family        `json:"capability"`
	Advertised     bool          `json:"advertised"`
	Available      bool          `json:"available"`
	LifecycleState Lifecycle     `json:"lifecycleState"`
	Degraded       []Degradation `json:"degraded"`
}

// CapabilitiesResult answers host/capabilities.
type CapabilitiesResult struct {
	Capabilities CapabilityCoverage `json:"capabilities"`
	Sources      []ServerStatus     `json:"sources"`
	Coverage     HostCoverage       `json:"coverage"`
	LegacyRoles  *LegacyRoles       `json:"legacyRoles,omitempty"`
	Receipt      AuditReceipt       `json:"receipt"`
}

// LegacyRoles projects the families onto older words.
type LegacyRoles struct {
	Sense *bool `json:"sense,omitempty"`
	Judge *bool `json:"judge,omitempty"`
	Act   *bool `json:"act,omitempty"`
}

// AuthorityStatusResult answers host/authority/status.
type AuthorityStatusResult struct {
	PolicyActivation string         `json:"policyActivation" wire:"in=base-active|candidate-pending|candidate-approved"`
	PolicyDigest     string         `json:"policyDigest"`
	Providers        []ServerStatus `json:"providers"`
	Receipt          AuditReceipt   `json:"receipt"`
}

// EvaluateChangesetParams asks for a decision. Changeset stays a value: its
// digest is over what was sent.
type EvaluateChangesetParams struct {
	CallSite         CallSite `json:"callSite"`
	Changeset        Data     `json:"changeset" wire:"object"`
	Comparison       string   `json:"comparison,omitempty" wire:"in=all|introduced"`
	TimeoutMs        int64    `json:"timeoutMs,omitempty" wire:"min1"`
	BasePolicyDigest string   `json:"basePolicyDigest,omitempty"`
}

// QueryInspectParams asks a read-only question.
type QueryInspectParams struct {
	CallSite  CallSite  `json:"callSite"`
	Request   Data      `json:"request" wire:"object"` // an InspectCall
	Baseline  *Baseline `json:"baseline,omitempty"`
	TimeoutMs int64     `json:"timeoutMs,omitempty" wire:"min1"`
}

// InspectCall is what host/queryInspect passes on: a verb of the inner seam and
// its params.
type InspectCall struct {
	Method string `json:"method" wire:"nonempty"`
	Params Data   `json:"params,omitempty" wire:"object"`
}

// QueryInspectResult carries what each provider answered.
type QueryInspectResult struct {
	Data      InspectData   `json:"data"`
	ValidAsOf HostValidAsOf `json:"validAsOf"`
	Coverage  HostCoverage  `json:"coverage"`
	Receipt   AuditReceipt  `json:"receipt"`
}

// InspectData is the answers.
type InspectData struct {
	Results []InspectResult `json:"results"`
}

// InspectResult is the answer of one provider.
type InspectResult struct {
	Provider string       `json:"provider"`
	Result   InspectGraph `json:"result"`
}

// InspectGraph is an answer in the shape of the outer seam. Nodes, edges and data
// are the provider's own.
type InspectGraph struct {
	Nodes     []Data        `json:"nodes,omitzero"`
	Edges     []Data        `json:"edges,omitzero"`
	Data      Data          `json:"data,omitempty" wire:"object"`
	ValidAsOf HostValidAsOf `json:"validAsOf"`
}

// Check holds that nodes and edges are objects.
func (g InspectGraph) Check() error {
	for _, list := range [][]Data{g.Nodes, g.Edges} {
		for _, v := range list {
			if v.Kind() != canon.Object {
				return fmt.Errorf("a node or an edge is an object, not %s", v.Kind())
			}
		}
	}
	return nil
}

// StatusParams are the params of host/status, host/capabilities and
// host/authority/status.
type StatusParams struct {
	CallSite CallSite `json:"callSite,omitempty"`
}

// RequestEditPlanParams asks an edit provider for a plan.
type RequestEditPlanParams struct {
	CallSite   CallSite `json:"callSite"`
	Operation  string   `json:"operation"`
	Args       Data     `json:"args,omitempty" wire:"object"`
	Baseline   Baseline `json:"baseline"`
	Scope      Data     `json:"scope,omitempty" wire:"object"`
	ProposalID string   `json:"proposalId,omitempty"`
}

// RequestEditPlanResult carries the plan as it came.
type RequestEditPlanResult struct {
	Proposal Data         `json:"proposal" wire:"object"`
	Receipt  AuditReceipt `json:"receipt"`
}
