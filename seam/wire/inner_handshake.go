package wire

import (
	"errors"

	"github.com/aspengine/asp/internal/canon"
)

// The protocol versions that exist. Their shapes exclude each other: whoever
// sends a message sends the one that was agreed on, never a union.
const (
	ProtocolV1  = "asp/1.0"
	ProtocolV01 = "asp/0.1"
)

// The methods of the inner seam, host to provider.
const (
	MethodInitialize      = "initialize"
	MethodInitialized     = "initialized"
	MethodEvaluate        = "check/evaluate"
	MethodPropose         = "edit/propose"
	MethodBaselineChanged = "workspace/baselineChanged"
	MethodShutdown        = "shutdown"
	MethodExit            = "exit"
)

// The methods of the inner seam, provider to host.
const (
	MethodListTree           = "workspace/listTree"
	MethodReadBlob           = "workspace/readBlob"
	MethodPutBlob            = "workspace/putBlob"
	MethodLogMessage         = "window/logMessage"
	MethodPublishDiagnostics = "judge/publishDiagnostics"
)

// The methods that both ends send.
const (
	MethodProgress = "$/progress"
	MethodCancel   = "$/cancelRequest"
)

// InitializeParams opens a session of either version; asp/0.1 reads the version
// and the workspace alone.
type InitializeParams struct {
	ProtocolVersion  string    `json:"protocolVersion"`
	Host             HostName  `json:"host" wire:"open"`
	HostCapabilities Data      `json:"hostCapabilities,omitempty" wire:"object"`
	Workspace        Workspace `json:"workspace" wire:"open"`
	AssuranceMode    Mode      `json:"assuranceMode,omitempty"`
	AuthorityMode    Mode      `json:"authorityMode,omitempty"` // deprecated, grants nothing
	TrustTier        string    `json:"trustTier,omitempty" wire:"in=first-party|certified|untrusted"`
}

// Workspace is what a provider is told of the workspace. Root is a name for
// messages; nothing lies there.
type Workspace struct {
	Root     string   `json:"root"`
	Baseline Baseline `json:"baseline" wire:"open"`
}

// InitializeResult is what a provider says of itself. All of it is a claim.
type InitializeResult struct {
	ServerInfo           ServerInfo   `json:"serverInfo" wire:"open"`
	CapabilityFamilies   []Family     `json:"capabilityFamilies" wire:"some,unique"`
	Roles                []string     `json:"roles,omitzero" wire:"some,unique,in=sense|judge|act"`
	Capabilities         Capabilities `json:"capabilities"`
	RequestedPermissions *Permissions `json:"requestedPermissions,omitempty"`
	Provenance           *Provenance  `json:"provenance,omitempty" wire:"open"`
}

// LegacyInitializeResult is the same in asp/0.1, whose capability blocks have
// no shape that a host could hold them to.
type LegacyInitializeResult struct {
	ServerInfo           ServerInfo   `json:"serverInfo" wire:"open"`
	CapabilityFamilies   []string     `json:"capabilityFamilies" wire:"some,unique"`
	Roles                []string     `json:"roles,omitzero"`
	Capabilities         Data         `json:"capabilities" wire:"object"`
	RequestedPermissions *Permissions `json:"requestedPermissions,omitempty" wire:"open"`
	Provenance           *Provenance  `json:"provenance,omitempty" wire:"open"`
}

// ServerInfo names a build. Name is for people and is not the server's id.
type ServerInfo struct {
	Name        string `json:"name"`
	Version     string `json:"version"`
	Fingerprint string `json:"fingerprint"`
}

// Provenance is a claim of origin.
type Provenance struct {
	Publisher string `json:"publisher,omitempty"`
	Signature string `json:"signature,omitempty"`
}

// Permissions are requested by a provider, or granted by the host.
type Permissions struct {
	Read             []string        `json:"read,omitzero"` // globs; ! excludes
	Write            *bool           `json:"write,omitempty"`
	Network          *bool           `json:"network,omitempty"`
	NetworkAllowlist []NetworkAccess `json:"networkAllowlist,omitzero"`
	ResourceLimits   *ResourceLimits `json:"resourceLimits,omitempty"`
}

// NetworkAccess is one destination.
type NetworkAccess struct {
	Host  string `json:"host"`
	Port  *int   `json:"port,omitempty"`
	Proto string `json:"proto,omitempty" wire:"in=https|http|tcp"`
}

// ResourceLimits are the caps of a sandbox: percent of one CPU, MiB,
// milliseconds for a request, descriptors.
type ResourceLimits struct {
	CPUPct      *int64 `json:"cpuPct,omitempty"`
	MemoryMb    *int64 `json:"memoryMb,omitempty"`
	WallclockMs *int64 `json:"wallclockMs,omitempty"`
	FD          *int64 `json:"fd,omitempty"`
}

// InitializedParams is the grant. It is a notification: a provider that dislikes
// it says so when it is first asked something.
type InitializedParams struct {
	GrantedPermissions Permissions `json:"grantedPermissions"`
	Baseline           Baseline    `json:"baseline" wire:"open"`
}

// Check demands limits, and an allowlist where the network is open.
func (p InitializedParams) Check() error {
	g := p.GrantedPermissions
	if g.ResourceLimits == nil {
		return errors.New("grantedPermissions needs resourceLimits")
	}
	if g.Network != nil && *g.Network && g.NetworkAllowlist == nil {
		return errors.New("a granted network needs networkAllowlist")
	}
	return nil
}

// Capabilities are the blocks that a provider declares. Sense, Judge and Act
// are older names of the first three.
type Capabilities struct {
	Inspect   *InspectCapability `json:"inspect,omitempty"`
	Check     *CheckCapability   `json:"check,omitempty"`
	Edit      *EditCapability    `json:"edit,omitempty"`
	Sense     *InspectCapability `json:"sense,omitempty"`
	Judge     *CheckCapability   `json:"judge,omitempty"`
	Act       *EditCapability    `json:"act,omitempty"`
	Watch     *WatchCapability   `json:"watch,omitempty"`
	Transport []string           `json:"transport,omitzero" wire:"in=stdio|socket"`
}

// InspectCapability declares read-only queries.
type InspectCapability struct {
	Verbs          []string    `json:"verbs,omitzero" wire:"in=references|callers|callees|symbols|impact"`
	Query          []string    `json:"query,omitzero"`
	Scopes         []string    `json:"scopes,omitzero" wire:"in=changeset|workspace"`
	PartialResults *bool       `json:"partialResults,omitempty"`
	Graph          *GraphKinds `json:"graph,omitempty"`
}

// GraphKinds lists what a graph is made of.
type GraphKinds struct {
	NodeKinds []string `json:"nodeKinds,omitzero"`
	EdgeKinds []string `json:"edgeKinds,omitzero"`
}

// CheckCapability declares assessments.
type CheckCapability struct {
	CapabilityVersion    string       `json:"capabilityVersion" wire:"nonempty"`
	DiagnosticSources    []string     `json:"diagnosticSources" wire:"some,unique"`
	Scopes               []string     `json:"scopes" wire:"some,unique,in=changeset|workspace"`
	Comparisons          []Comparison `json:"comparisons" wire:"some,unique"`
	PartialResults       bool         `json:"partialResults"`
	Incremental          bool         `json:"incremental"`
	UnsupportedReporting string       `json:"unsupportedReporting" wire:"in=assessment-status"`
	Fixes                *bool        `json:"fixes,omitempty"`
}

// EditCapability declares proposals.
type EditCapability struct {
	CapabilityVersion        string           `json:"capabilityVersion" wire:"nonempty"`
	Operations               []string         `json:"operations" wire:"some,unique,in=rename|move|change-signature|multi-edit|organize-imports|replace-resource|text-edit"`
	OperationSupport         OperationSupport `json:"operationSupport"`
	TextEditSupport          bool             `json:"textEditSupport"`
	WholeResourceSupport     bool             `json:"wholeResourceSupport"`
	RenameMoveSupport        bool             `json:"renameMoveSupport"`
	PreconditionSupport      string           `json:"preconditionSupport" wire:"in=required"`
	BlobUploadSupport        string           `json:"blobUploadSupport" wire:"in=workspace/putBlob"`
	PartialProposalSemantics string           `json:"partialProposalSemantics" wire:"in=status"`
	Scopes                   []string         `json:"scopes,omitzero" wire:"some,unique,in=workspace"`
}

// OperationSupport says which kinds of operations a provider proposes.
type OperationSupport struct {
	Create bool `json:"create"`
	Modify bool `json:"modify"`
	Delete bool `json:"delete"`
	Rename bool `json:"rename"`
	Move   bool `json:"move"`
}

// WatchCapability declares ambient diagnostics.
type WatchCapability struct {
	Push *bool `json:"push,omitempty"`
}

// CheckBlock is the check block, under whichever name it came.
func (c Capabilities) CheckBlock() *CheckCapability { return either(c.Check, c.Judge) }

// EditBlock is the edit block, under whichever name it came.
func (c Capabilities) EditBlock() *EditCapability { return either(c.Edit, c.Act) }

// InspectBlock is the inspect block, under whichever name it came.
func (c Capabilities) InspectBlock() *InspectCapability { return either(c.Inspect, c.Sense) }

func either[T any](a, b *T) *T {
	if a != nil {
		return a
	}
	return b
}

// CancelParams names a request to be given up.
type CancelParams struct {
	ID canon.Value `json:"id"`
}
