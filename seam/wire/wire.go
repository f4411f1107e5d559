// Package wire holds the messages of the protocol as plain structs, the words
// they are made of, and the one decoder. It has no behaviour: what a message
// means is decided by the room that receives it.
//
// Decoding is strict: closed objects, exact spelling of keys, every required
// member, integers as plain literals, words from the lists of the schema.
// Members with omitempty or omitzero are optional, all others required. Encoding is
// canon.From; see there for nil slices.
package wire

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/aspengine/asp/internal/canon"
)

// checker is implemented by types with a rule of their own, which Decode
// applies once the value has its shape. The error is one short sentence.
type checker interface{ Check() error }

// valueChecker is the same for rules on what is present, which a struct cannot
// tell from what is empty.
type valueChecker interface {
	CheckValue(v canon.Value) error
}

func oneOf[T ~string](w T, words ...T) error {
	if slices.Contains(words, w) {
		return nil
	}
	e := &wordError{word: string(w)}
	for _, x := range words {
		e.words = append(e.words, string(x))
	}
	return e
}

// wordError is a word that is not in the list.
type wordError struct {
	word  string
	words []string
}

func (e *wordError) Error() string { return fmt.Sprintf("%.60q is none of %q", e.word, e.words) }

// Words is the list that the words of a string type are from, by asking the type's
// own rule; nil for a type without one.
func Words(t reflect.Type) []string {
	if t.Kind() != reflect.String || !t.Implements(checkType) {
		return nil
	}
	v := reflect.New(t).Elem()
	v.SetString("\x00") // no word
	var e *wordError
	if errors.As(v.Interface().(checker).Check(), &e) {
		return e.words
	}
	return nil
}

// BlobRef names content: blob:sha256:<hex>. Other algorithms have the shape of
// one, and are refused by whoever needs the content.
type BlobRef string

// Check applies the pattern of the schema, ^blob:[a-z0-9]+:[0-9a-f]+$. By hand,
// because a plan may hold a million of them.
func (b BlobRef) Check() error {
	if rest, ok := strings.CutPrefix(string(b), "blob:"); ok {
		algorithm, hex, _ := strings.Cut(rest, ":")
		if consists(algorithm, 'z') && consists(hex, 'f') {
			return nil
		}
	}
	return fmt.Errorf("%.90q is no blob id", string(b))
}

// consists tells whether s is not empty and made of digits and the letters a to
// last.
func consists(s string, last byte) bool {
	for i := range len(s) {
		if c := s[i]; (c < '0' || c > '9') && (c < 'a' || c > last) {
			return false
		}
	}
	return s != ""
}

// CallSite is where a decision is asked for.
type CallSite string

// The call-sites.
const (
	Interactive CallSite = "interactive"
	Gate        CallSite = "gate"
	Sweep       CallSite = "sweep"
)

// Check implements the word list.
func (w CallSite) Check() error { return oneOf(w, Interactive, Gate, Sweep) }

// Intent says who asks for an apply.
type Intent string

// The intents.
const (
	IntentUser    Intent = "user"
	IntentAgent   Intent = "agent"
	IntentHarness Intent = "harness"
)

// Check implements the word list.
func (w Intent) Check() error { return oneOf(w, IntentUser, IntentAgent, IntentHarness) }

// Family is a capability family.
type Family string

// The families.
const (
	Inspect Family = "inspect"
	Check   Family = "check"
	Edit    Family = "edit"
)

// Check implements the word list.
func (w Family) Check() error { return oneOf(w, Inspect, Check, Edit) }

// Decision is the host's answer on a candidate.
type Decision string

// The decisions.
const (
	Allow         Decision = "allow"
	Deny          Decision = "deny"
	Indeterminate Decision = "indeterminate"
)

// Check implements the word list.
func (w Decision) Check() error { return oneOf(w, Allow, Deny, Indeterminate) }

// Mode is an assurance mode, weakest first.
type Mode string

// The assurance modes.
const (
	Advisory      Mode = "advisory"
	Gated         Mode = "gated"
	MediatedWrite Mode = "mediated-write"
	Isolated      Mode = "isolated"
)

// Check implements the word list.
func (w Mode) Check() error { return oneOf(w, modes...) }

var modes = []Mode{Advisory, Gated, MediatedWrite, Isolated}

// Rank orders the modes from 0, the weakest; -1 for no mode.
func (w Mode) Rank() int { return slices.Index(modes, w) }

// Guarantee is a transaction guarantee, weakest first.
type Guarantee string

// The guarantees.
const (
	GuaranteeNone          Guarantee = "none"
	RollbackAttempted      Guarantee = "rollback_attempted"
	TextOnlyTransactional  Guarantee = "text_only_transactional"
	WorkspaceTransactional Guarantee = "workspace_transactional"
	StagedSnapshot         Guarantee = "staged_snapshot"
)

// Check implements the word list.
func (w Guarantee) Check() error { return oneOf(w, guarantees...) }

var guarantees = []Guarantee{GuaranteeNone, RollbackAttempted, TextOnlyTransactional, WorkspaceTransactional, StagedSnapshot}

// Rank orders the guarantees from 0, the weakest; -1 for no guarantee.
func (w Guarantee) Rank() int { return slices.Index(guarantees, w) }

// Status is how an assessment or a plan ended.
type Status string

// The statuses.
const (
	StatusComplete    Status = "complete"
	StatusIncomplete  Status = "incomplete"
	StatusUnsupported Status = "unsupported"
	StatusError       Status = "error"
	StatusCancelled   Status = "cancelled"
)

// Check implements the word list.
func (w Status) Check() error {
	return oneOf(w, StatusComplete, StatusIncomplete, StatusUnsupported, StatusError, StatusCancelled)
}

// Lifecycle is the state of a provider.
type Lifecycle string

// The lifecycle states.
const (
	Launched     Lifecycle = "launched"
	Initializing Lifecycle = "initializing"
	Initialized  Lifecycle = "initialized"
	Active       Lifecycle = "active"
	Cancelled    Lifecycle = "cancelled"
	ShuttingDown Lifecycle = "shutting-down"
	Exited       Lifecycle = "exited"
	Crashed      Lifecycle = "crashed"
	TimedOut     Lifecycle = "timed-out"
	Incompatible Lifecycle = "incompatible"
	Malformed    Lifecycle = "malformed"
	Unavailable  Lifecycle = "unavailable"
	Quarantined  Lifecycle = "quarantined"
	Degraded     Lifecycle = "degraded"
)

// Check implements the word list.
func (w Lifecycle) Check() error {
	return oneOf(w, Launched, Initializing, Initialized, Active, Cancelled, ShuttingDown, Exited, Crashed, TimedOut,
		Incompatible, Malformed, Unavailable, Quarantined, Degraded)
}

// DegradeReason says why coverage is not what it should be.
type DegradeReason string

// The reasons.
const (
	DegradeFailOpen                DegradeReason = "fail-open"
	DegradeQuarantined             DegradeReason = "quarantined"
	DegradeCrashed                 DegradeReason = "crashed"
	DegradeSkewed                  DegradeReason = "skewed"
	DegradeMissing                 DegradeReason = "missing"
	DegradeStale                   DegradeReason = "stale"
	DegradeMissingRequiredProvider DegradeReason = "missing-required-provider"
	DegradeStaleBaseline           DegradeReason = "stale-baseline"
	DegradeBlockingDiagnostic      DegradeReason = "blocking-diagnostic"
	DegradeMissingAuthority        DegradeReason = "missing-authority"
	DegradeInsufficientAssurance   DegradeReason = "insufficient-assurance"
	DegradeIncomplete              DegradeReason = "incomplete"
	DegradeUnsupported             DegradeReason = "unsupported"
	DegradeError                   DegradeReason = "error"
	DegradeCancelled               DegradeReason = "cancelled"
	DegradeMalformed               DegradeReason = "malformed"
	DegradeTimedOut                DegradeReason = "timed-out"
	DegradeOptionalDegraded        DegradeReason = "optional-degraded"
	DegradeUnavailable             DegradeReason = "unavailable"
	DegradeIncompatible            DegradeReason = "incompatible"
	DegradeUnsupportedAssurance    DegradeReason = "unsupported-assurance"
	DegradePolicySelfAuthorization DegradeReason = "policy-self-authorization"
	DegradeDirectWriteRisk         DegradeReason = "direct-write-risk"
	DegradeLatticeFastPath         DegradeReason = "lattice-fast-path"
)

// Check implements the word list.
func (w DegradeReason) Check() error {
	return oneOf(w, DegradeFailOpen, DegradeQuarantined, DegradeCrashed, DegradeSkewed, DegradeMissing, DegradeStale,
		DegradeMissingRequiredProvider, DegradeStaleBaseline, DegradeBlockingDiagnostic, DegradeMissingAuthority,
		DegradeInsufficientAssurance, DegradeIncomplete, DegradeUnsupported, DegradeError, DegradeCancelled,
		DegradeMalformed, DegradeTimedOut, DegradeOptionalDegraded, DegradeUnavailable, DegradeIncompatible,
		DegradeUnsupportedAssurance, DegradePolicySelfAuthorization, DegradeDirectWriteRisk, DegradeLatticeFastPath)
}

// Data is free-form provider data: an object, kept as it came.
type Data = canon.Value

// Baseline names one state of a workspace.
type Baseline struct {
	Rev       string `json:"rev"`
	Dirty     string `json:"dirty,omitempty"`
	StampedAt string `json:"stampedAt,omitempty" wire:"time"`
}

// HostValidAsOf is the freshness that the host states.
type HostValidAsOf struct {
	Rev   string   `json:"rev"`
	Blobs []string `json:"blobs,omitzero"`
}

// ChangeSet is a content-addressed delta over a baseline.
type ChangeSet struct {
	Baseline Baseline `json:"baseline"`
	Changes  []Change `json:"changes"`
}

// Change is one path of a ChangeSet. Kind is create, modify, delete or rename.
type Change struct {
	Path   string     `json:"path"`
	Kind   ChangeKind `json:"kind"`
	From   string     `json:"from,omitempty"`
	Before BlobRef    `json:"before,omitempty"`
	After  BlobRef    `json:"after,omitempty"`
}

// Check demands the members that each kind needs. A rename may come without
// after; we always send one.
func (c Change) Check() error {
	need := func(ok bool, member string) error {
		if ok {
			return nil
		}
		return fmt.Errorf("%s needs %s", c.Kind, member)
	}
	var err error
	switch c.Kind {
	case KindMove:
		err = fmt.Errorf("kind %q is not allowed in a changeset", c.Kind)
	case KindCreate:
		err = need(c.After != "", "after")
	case KindModify:
		err = need(c.Before != "" && c.After != "", "before and after")
	case KindDelete:
		err = need(c.Before != "", "before")
	case KindRename:
		err = need(c.From != "" && c.Before != "", "from and before")
	}
	return err
}

// ChangeKind is what happens to a path. ChangeSets know no move.
type ChangeKind string

// The kinds.
const (
	KindCreate ChangeKind = "create"
	KindModify ChangeKind = "modify"
	KindDelete ChangeKind = "delete"
	KindRename ChangeKind = "rename"
	KindMove   ChangeKind = "move"
)

// Check implements the word list.
func (w ChangeKind) Check() error {
	return oneOf(w, KindCreate, KindModify, KindDelete, KindRename, KindMove)
}

// Coverage says what a decision rests on. Enrolled always equals Required.
type Coverage struct {
	Exhaustive bool          `json:"exhaustive"`
	Required   []string      `json:"required"`
	Enrolled   []string      `json:"enrolled"`
	Ran        []string      `json:"ran"`
	Degraded   []Degradation `json:"degraded"`
}

// HostCoverage is the coverage of a surface; Exhaustive may be absent.
type HostCoverage struct {
	Exhaustive *bool         `json:"exhaustive,omitempty"`
	Required   []string      `json:"required"`
	Enrolled   []string      `json:"enrolled"`
	Ran        []string      `json:"ran"`
	Degraded   []Degradation `json:"degraded"`
}

// Degradation is one cause of missing coverage.
type Degradation struct {
	Source        string        `json:"source"`
	Reason        DegradeReason `json:"reason"`
	Requirement   string        `json:"requirement,omitempty"`
	Detail        string        `json:"detail"`
	Capability    Family        `json:"capability,omitempty"`
	ProviderState Lifecycle     `json:"providerState,omitempty"`
}

// AuthorityEvidence is what the host knows of a provider, on five axes.
type AuthorityEvidence struct {
	Identity    string    `json:"identity"`
	Integrity   string    `json:"integrity"`
	Conformance string    `json:"conformance"`
	Isolation   Mode      `json:"isolation"`
	Authority   Authority `json:"authority"`
}

// Authority is the last of the five axes.
type Authority struct {
	Granted      bool     `json:"granted"`
	Requirement  string   `json:"requirement"`
	CallSite     CallSite `json:"callSite,omitempty"`
	PolicyDigest string   `json:"policyDigest,omitempty"`
}

// ApplyAssurance is what a run established.
type ApplyAssurance struct {
	Mode                 Mode      `json:"mode"`
	TransactionGuarantee Guarantee `json:"transactionGuarantee"`
	Detail               string    `json:"detail,omitempty"`
}
