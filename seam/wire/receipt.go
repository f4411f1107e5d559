package wire

import "errors"

// ReceiptKind is what a receipt is for.
type ReceiptKind string

// The kinds.
const (
	ReceiptStatus          ReceiptKind = "status"
	ReceiptCapabilities    ReceiptKind = "capabilities"
	ReceiptEvaluate        ReceiptKind = "evaluate"
	ReceiptInspect         ReceiptKind = "inspect"
	ReceiptEditRequest     ReceiptKind = "edit-request"
	ReceiptApplyAttempt    ReceiptKind = "apply-attempt"
	ReceiptAuthorityStatus ReceiptKind = "authority-status"
	ReceiptProviderFailure ReceiptKind = "provider-failure"
)

// Check implements the word list.
func (w ReceiptKind) Check() error {
	return oneOf(w, ReceiptStatus, ReceiptCapabilities, ReceiptEvaluate, ReceiptInspect, ReceiptEditRequest,
		ReceiptApplyAttempt, ReceiptAuthorityStatus, ReceiptProviderFailure)
}

// AuditReceipt is the record that every answer carries. The last three members
// are constants: true, true, false.
type AuditReceipt struct {
	ReceiptID          string               `json:"receiptId"`
	IssuedAt           string               `json:"issuedAt" wire:"time"`
	Kind               ReceiptKind          `json:"kind"`
	Host               HostName             `json:"host"`
	CapabilityFamily   Family               `json:"capabilityFamily"`
	CallSite           CallSite             `json:"callSite,omitempty"`
	RequestDigest      string               `json:"requestDigest"`
	ChangesetDigest    string               `json:"changesetDigest,omitempty"`
	ProposalID         string               `json:"proposalId,omitempty"`
	ProviderIDs        []string             `json:"providerIds" wire:"unique"`
	ProviderProvenance []ProviderProvenance `json:"providerProvenance"`
	PolicyDigest       string               `json:"policyDigest"`
	Baseline           Baseline             `json:"baseline"`
	ValidAsOf          HostValidAsOf        `json:"validAsOf"`
	Coverage           Coverage             `json:"coverage"`
	AuthorityEvidence  []AuthorityEvidence  `json:"authorityEvidence"`
	Assurance          ApplyAssurance       `json:"assurance"`
	Timing             Timing               `json:"timing"`
	Failures           []Degradation        `json:"failures"`
	PrivateOnly        bool                 `json:"privateOnly"`
	Experimental       bool                 `json:"experimental"`
	TrustArtifact      bool                 `json:"trustArtifact"`
}

// Check holds the constants.
func (r AuditReceipt) Check() error {
	if r.PrivateOnly && r.Experimental && !r.TrustArtifact {
		return nil
	}
	return errors.New("privateOnly and experimental must be true, trustArtifact false")
}

// HostName names the host.
type HostName struct {
	Name    string `json:"name"`
	Version string `json:"version"`
}

// ProviderProvenance names a provider that took part.
type ProviderProvenance struct {
	Provider    string `json:"provider"`
	Capability  Family `json:"capability"`
	Identity    string `json:"identity"`
	Integrity   string `json:"integrity"`
	Conformance string `json:"conformance,omitempty"`
}

// Timing is RFC 3339 times and whole milliseconds.
type Timing struct {
	StartedAt string `json:"startedAt" wire:"time"`
	EndedAt   string `json:"endedAt" wire:"time"`
	ElapsedMs int64  `json:"elapsedMs" wire:"min0"`
}

// Verdict is the decision envelope. Pass is true exactly for allow.
type Verdict struct {
	Pass              bool                `json:"pass"`
	Decision          Decision            `json:"decision"`
	CallSite          CallSite            `json:"callSite"`
	RequestDigest     string              `json:"requestDigest"`
	Findings          []Finding           `json:"findings"`
	Coverage          Coverage            `json:"coverage"`
	ChangesetDigest   string              `json:"changesetDigest,omitempty"`
	PolicyDigest      string              `json:"policyDigest"`
	AuthorityEvidence []AuthorityEvidence `json:"authorityEvidence"`
	ValidAsOf         HostValidAsOf       `json:"validAsOf"`
	Assurance         ApplyAssurance      `json:"assurance"`
	Receipt           AuditReceipt        `json:"receipt"`
}

// Check ties pass to the decision.
func (v Verdict) Check() error {
	if v.Pass == (v.Decision == Allow) {
		return nil
	}
	return errors.New("pass contradicts decision")
}

// Disposition says whether a finding blocks.
type Disposition string

// The dispositions.
const (
	Gating          Disposition = "gating"
	AdvisoryFinding Disposition = "advisory"
)

// Check implements the word list.
func (w Disposition) Check() error { return oneOf(w, Gating, AdvisoryFinding) }

// StepOrigin says who wrote a next step.
type StepOrigin string

// The origins.
const (
	StepFromServer  StepOrigin = "server"
	StepSynthesized StepOrigin = "synthesized"
)

// Check implements the word list.
func (w StepOrigin) Check() error { return oneOf(w, StepFromServer, StepSynthesized) }

// Finding is a diagnostic with what the host makes of it.
type Finding struct {
	Diagnostic     Diagnostic        `json:"diagnostic"`
	Authority      AuthorityEvidence `json:"authority"`
	Disposition    Disposition       `json:"disposition"`
	NextStep       string            `json:"nextStep,omitempty"`
	NextStepOrigin StepOrigin        `json:"nextStepOrigin,omitempty"`
	SeverityNote   string            `json:"severityNote,omitempty"`
}

// Check demands a next step of what blocks.
func (f Finding) Check() error {
	if f.Disposition == Gating && f.NextStep == "" {
		return errors.New("a gating finding needs nextStep")
	}
	return nil
}

// Severity of a diagnostic or annotation.
type Severity string

// The severities.
const (
	SeverityError   Severity = "error"
	SeverityWarning Severity = "warning"
	SeverityInfo    Severity = "info"
)

// Check implements the word list.
func (w Severity) Check() error { return oneOf(w, SeverityError, SeverityWarning, SeverityInfo) }

// Diagnostic is a finding as a check gave it. All text is foreign.
type Diagnostic struct {
	Code            string           `json:"code"`
	Severity        Severity         `json:"severity"`
	Source          string           `json:"source"`
	Message         string           `json:"message"`
	Location        Location         `json:"location"`
	Fingerprint     string           `json:"fingerprint"`
	Introduced      *bool            `json:"introduced,omitempty"`
	Help            string           `json:"help,omitempty"`
	CodeDescription *CodeDescription `json:"codeDescription,omitempty"`
	Fix             *Fix             `json:"fix,omitempty"`
}

// Location is a path below the root, "." for the whole tree, and a range.
type Location struct {
	Path  string `json:"path"`
	Range *Range `json:"range,omitempty"`
}

// CodeDescription links to a page on a code.
type CodeDescription struct {
	Href string `json:"href,omitempty"`
}

// Fix is one of an edit capability with arguments, or an edit.
type Fix struct {
	EditRef       string         `json:"editRef,omitempty"`
	ActRef        string         `json:"actRef,omitempty"`
	Args          Data           `json:"args,omitempty" wire:"object"`
	WorkspaceEdit *WorkspaceEdit `json:"workspaceEdit,omitempty"`
}

// Check demands exactly one form.
func (f Fix) Check() error {
	n := 0
	for _, set := range []bool{f.EditRef != "", f.ActRef != "", f.WorkspaceEdit != nil} {
		if set {
			n++
		}
	}
	if n != 1 || f.WorkspaceEdit != nil && f.Args.Kind() != 0 {
		return errors.New("a fix is one of editRef, actRef, workspaceEdit")
	}
	return nil
}
