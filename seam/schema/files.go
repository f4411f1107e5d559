package schema

import (
	"github.com/aspengine/asp/internal/canon"
	"github.com/aspengine/asp/seam/wire"
)

// The two files that people write, as types: .asp/asp.json of a repository, and
// config.json of the state directory. checks/policy reads them, without these, and a
// test holds that a schema and its reader take the same, but for what a schema cannot
// see: an identifier that is defined twice, and which hosts are never let through.

type policyFile struct {
	Schema       string              `json:"$schema,omitempty"`
	AspVersion   string              `json:"aspVersion"`
	Requirements []policyRequirement `json:"requirements" wire:"some"`
	Gates        policyGates         `json:"gates"`
	Policy       policyRules         `json:"policy"`
	Budgets      *fileBudgets        `json:"budgets,omitempty"`
	Adapters     *policyAdapters     `json:"adapters,omitempty"`
}

type policyRequirement struct {
	ID           string        `json:"id" wire:"nonempty"`
	Capabilities []wire.Family `json:"capabilities" wire:"some,unique"`
	Assurance    []wire.Mode   `json:"assurance" wire:"some,unique"`
	Authority    policyPins    `json:"authority"`
}

type policyPins struct {
	Providers []policyPin `json:"providers" wire:"some"`
}

type policyPin struct {
	ID          string `json:"id" wire:"nonempty"`
	Version     string `json:"version" wire:"nonempty"`
	Package     string `json:"package,omitempty"`
	Identity    string `json:"identity" wire:"nonempty"`
	Integrity   string `json:"integrity" wire:"nonempty"`
	Conformance string `json:"conformance" wire:"nonempty"`
}

type policyGates struct {
	Interactive policyGate `json:"interactive"`
	Gate        policyGate `json:"gate"`
	Sweep       policyGate `json:"sweep"`
}

type policyGate struct {
	Required []string `json:"requiredRequirements" wire:"unique"`
	Optional []string `json:"optionalRequirements" wire:"unique"`
}

type policyRules struct {
	AuthorityModel           string            `json:"authorityModel" wire:"in=explicit-pinned-provider"`
	PolicyChangeActivation   string            `json:"policyChangeActivation" wire:"in=base-policy-two-phase"`
	CandidatePolicyAuthority string            `json:"candidatePolicyAuthority" wire:"in=trusted-base-or-organization-floor"`
	MissingHost              policyMissingHost `json:"missingHost"`
}

type policyMissingHost struct {
	Interactive string `json:"interactive" wire:"in=warn-open|fail-closed"`
	Gate        string `json:"gate" wire:"in=fail-closed"`
	Sweep       string `json:"sweep" wire:"in=warn-open|fail-closed"`
}

type policyAdapters struct {
	MCP *policyAdapter `json:"mcp,omitempty"`
	ACP *policyAdapter `json:"acp,omitempty"`
}

type policyAdapter struct {
	Enabled bool   `json:"enabled"`
	Mode    string `json:"mode,omitempty" wire:"in=inspect-status-only|full-outer-seam|mcp-extension-candidate"`
}

type fileBudgets struct {
	Interactive int64 `json:"interactiveMs,omitempty"`
	Gate        int64 `json:"gateMs,omitempty"`
	Sweep       int64 `json:"sweepMs,omitempty"`
}

type configFile struct {
	Schema           string                    `json:"$schema,omitempty"`
	Floor            *policyFile               `json:"floor,omitempty"`
	Checks           map[string]configCheck    `json:"checks,omitempty"`
	Sandbox          *configSandbox            `json:"sandbox,omitempty"`
	Limits           *configLimits             `json:"limits,omitempty"`
	Providers        map[string]configProvider `json:"providers,omitempty"`
	Publish          string                    `json:"publish,omitempty" wire:"in=journal|exchange|staged"`
	Merge            bool                      `json:"merge,omitempty"`
	GuaranteeCeiling wire.Guarantee            `json:"guaranteeCeiling,omitempty"`
	Budgets          *fileBudgets              `json:"budgets,omitempty"`
	Retention        *configRetention          `json:"retention,omitempty"`
}

type configCheck struct {
	Argv      []string          `json:"argv" wire:"some"`
	Env       map[string]string `json:"env,omitempty"`
	TimeoutMs int64             `json:"timeoutMs,omitempty"`
	CallSites []wire.CallSite   `json:"callSites,omitempty" wire:"unique"`
	Required  bool              `json:"required,omitempty"`
}

type configSandbox struct {
	Require string               `json:"require,omitempty" wire:"in=none|mediated-write|isolated"`
	Read    []string             `json:"read,omitempty" wire:"unique"`
	Env     []string             `json:"env,omitempty" wire:"unique"`
	Network []string             `json:"network,omitempty" wire:"unique"`
	Limits  *configSandboxLimits `json:"limits,omitempty"`
}

type configSandboxLimits struct {
	CPUPct      int64 `json:"cpuPct,omitempty"`
	MemoryMb    int64 `json:"memoryMb,omitempty"`
	WallclockMs int64 `json:"wallclockMs,omitempty"`
	FD          int64 `json:"fd,omitempty"`
	Processes   int64 `json:"processes,omitempty"`
	FileMb      int64 `json:"fileMb,omitempty"`
}

type configLimits struct {
	MessageBytes int64 `json:"messageBytes,omitempty"`
	PlanBytes    int64 `json:"planBytes,omitempty"`
	BlobBytes    int64 `json:"blobBytes,omitempty"`
	Operations   int64 `json:"operations,omitempty"`
	Callbacks    int64 `json:"callbacks,omitempty"`
	OutputBytes  int64 `json:"outputBytes,omitempty"`
	ChecksAtOnce int64 `json:"checksAtOnce,omitempty"`
}

type configProvider struct {
	Checks            []string    `json:"checks,omitempty" wire:"unique,nonempty"`
	Rules             []string    `json:"rules,omitempty" wire:"unique,nonempty"`
	DiagnosticSources []string    `json:"diagnosticSources,omitempty" wire:"unique,nonempty"`
	Configuration     canon.Value `json:"configuration,omitzero" wire:"object"`
	ConfigDigest      string      `json:"configDigest,omitempty" wire:"nonempty"`
	Comparison        string      `json:"comparison,omitempty" wire:"nonempty"`
	Scope             string      `json:"scope,omitempty" wire:"in=changeset|impact|workspace"`
	Network           []string    `json:"network,omitempty" wire:"unique"`
}

type configRetention struct {
	Receipts     int64 `json:"receipts,omitempty"`
	ReceiptBytes int64 `json:"receiptBytes,omitempty"`
	BlobBytes    int64 `json:"blobBytes,omitempty"`
	JudgedBytes  int64 `json:"judgedBytes,omitempty"`
	StagedDays   int64 `json:"stagedDays,omitempty"`
}

// The bounds of numbers in the files, and what their strings have to look like.
const (
	fileCount    = `{"minimum":1,"maximum":1125899906842624}`
	fileMillis   = `{"minimum":1,"maximum":8640000000}`
	fileVariable = `{"pattern":"^[A-Za-z_][A-Za-z0-9_]*$"}`
	fileNetwork  = `{"items":{"pattern":"^((https|http|tcp):/{2})?.+:[1-9][0-9]{0,4}$"}}`
	fileNoNUL    = `{"pattern":"^[^\\x00]*$"}`
)

// counts says of every member that it is a count.
func counts(more string) string {
	return `[{"additionalProperties":` + fileCount + `}` + more + `]`
}

// fileRules are the rules of the types here, as in rules.
func fileRules() map[string]rule {
	return map[string]rule{
		"policyFile":          {json: `[{"properties":{"aspVersion":{"pattern":"^asp/[0-9]+\\.[0-9]"}}}]`},
		"fileBudgets":         {json: `[{"additionalProperties":` + fileMillis + `}]`},
		"configSandboxLimits": {json: counts("")},
		"configRetention":     {json: counts("")},
		"configLimits":        {json: counts(`,{"properties":{"messageBytes":{"minimum":8388608}}}`)},
		"configFile": {json: `[{"properties":{"checks":{"propertyNames":{"pattern":"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$"}},` +
			`"providers":{"propertyNames":{"minLength":1}}}}]`},
		"configCheck": {json: `[{"properties":{"timeoutMs":` + fileMillis + `,"argv":{"prefixItems":[{"minLength":1}]}}},` +
			`{"properties":{"argv":{"items":` + fileNoNUL + `},"env":{"propertyNames":` + fileVariable + `,"additionalProperties":` + fileNoNUL + `}}}]`},
		"configSandbox": {json: `[{"properties":{"read":{"items":{"pattern":"^/[^\\x00]*$"}},"env":{"items":` + fileVariable + `},` +
			`"network":` + fileNetwork + `}}]`},
		"configProvider": {json: `[{"properties":{"network":` + fileNetwork + `}}]`},
	}
}
