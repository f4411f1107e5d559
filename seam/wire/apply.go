package wire

import "errors"

// ApplyProposalParams asks for the transaction. Proposal and Edit stay values:
// what is wrong inside them is a refusal, not an error of the envelope.
type ApplyProposalParams struct {
	CallSite         CallSite `json:"callSite"`
	ProposalID       string   `json:"proposalId"`
	Intent           Intent   `json:"intent"`
	Proposal         Data     `json:"proposal,omitempty"`
	Edit             Data     `json:"edit,omitempty"`
	BasePolicyDigest string   `json:"basePolicyDigest,omitempty"`
}

// ApplyProposalResult is the outcome of a transaction.
type ApplyProposalResult struct {
	Applied        bool           `json:"applied"`
	ProposalID     string         `json:"proposalId"`
	BaselineBefore Baseline       `json:"baselineBefore"`
	BaselineAfter  *Baseline      `json:"baselineAfter" wire:"nullable"` // null unless applied
	Assurance      ApplyAssurance `json:"assurance"`
	Decision       *Verdict       `json:"decision,omitempty"`
	Refusal        *Refusal       `json:"refusal,omitempty"`
	Receipt        AuditReceipt   `json:"receipt"`
}

// Check ties the refusal and the new baseline to the outcome.
func (r ApplyProposalResult) Check() error {
	if r.Applied == (r.Refusal == nil) && r.Applied == (r.BaselineAfter != nil) {
		return nil
	}
	return errors.New("applied goes with baselineAfter and without refusal")
}

// RefusalReason is one of eleven words; internal/refusal maps our codes to them.
type RefusalReason string

// Check implements the word list.
func (w RefusalReason) Check() error {
	return oneOf(w, "missing-authority", "insufficient-assurance", "direct-write-risk", "unsupported", "stale-baseline",
		"conflict", "validation-denied", "validation-indeterminate", "malformed", "missing-blob", "precondition-failed")
}

// Refusal says why nothing was written. Detail, and the detail of each
// conflict, begins with our code and a colon.
type Refusal struct {
	Reason    RefusalReason `json:"reason"`
	Detail    string        `json:"detail"`
	Conflicts []Conflict    `json:"conflicts,omitzero"`
}

// Conflict is one failing operation.
type Conflict struct {
	Path   string `json:"path"`
	Detail string `json:"detail"`
}

// DryRunResult is what an apply would do.
type DryRunResult struct {
	DryRun         bool           `json:"dryRun"` // true
	WouldApply     bool           `json:"wouldApply"`
	ProposalID     string         `json:"proposalId"`
	BaselineBefore Baseline       `json:"baselineBefore"`
	Assurance      ApplyAssurance `json:"assurance"` // what an apply now would earn
	Decision       *Verdict       `json:"decision,omitempty"`
	Refusal        *Refusal       `json:"refusal,omitempty"`
	Changes        []DryRunChange `json:"changes"`
	Diff           string         `json:"diff"`
}

// DryRunChange is one path of a dry run.
type DryRunChange struct {
	Path   string     `json:"path"`
	Kind   ChangeKind `json:"kind"`
	Before BlobRef    `json:"before,omitempty"`
	After  BlobRef    `json:"after,omitempty"`
}

// CheckResult is what `asp check --json` prints.
type CheckResult struct {
	Command      string       `json:"command"`
	Repo         string       `json:"repo"`
	CallSite     CallSite     `json:"callSite"`
	Changeset    ChangeSet    `json:"changeset"`
	HostDecision Verdict      `json:"hostDecision"`
	Receipt      AuditReceipt `json:"receipt"`
}

// FailClass decides the fail policy of an error.
type FailClass string

// The classes.
const (
	FailHealth   FailClass = "health"
	FailContract FailClass = "contract"
	FailPolicy   FailClass = "policy"
	FailInput    FailClass = "input"
)

// Check implements the word list.
func (w FailClass) Check() error { return oneOf(w, FailHealth, FailContract, FailPolicy, FailInput) }

// The error codes: ours, then those of JSON-RPC.
const (
	CodeNotReady           = -32010
	CodeStaleBaseline      = -32011
	CodeScopeDenied        = -32012
	CodeInvalidInput       = -32013
	CodeUnsupportedVersion = -32014
	CodeBlobUnavailable    = -32015
	CodeCancelled          = -32016
	CodeParse              = -32700
	CodeInvalidRequest     = -32600
	CodeMethodNotFound     = -32601
	CodeInvalidParams      = -32602
	CodeInternal           = -32603
)

// Error is the error object of both seams and of --json. It is a Go error too.
type Error struct {
	Code    int        `json:"code"`
	Message string     `json:"message"`
	Data    *ErrorData `json:"data,omitempty"`
}

// ErrorData says how to take an error. A missing FailClass counts as contract.
type ErrorData struct {
	FailClass FailClass `json:"failClass"`
	Retryable *bool     `json:"retryable,omitempty"`
	Detail    string    `json:"detail,omitempty"`
}

func (e *Error) Error() string { return e.Message }

// NewError makes an error with its class. Retryable is set for health, where
// it is true.
func NewError(code int, class FailClass, message, detail string) *Error {
	d := &ErrorData{FailClass: class, Detail: detail}
	if class == FailHealth {
		yes := true
		d.Retryable = &yes
	}
	return &Error{Code: code, Message: message, Data: d}
}

// ErrorResult is what --json prints where there is no answer: exit status 2 and 3,
// and 1 where what was named is not there.
type ErrorResult struct {
	Error Error `json:"error"`
}
