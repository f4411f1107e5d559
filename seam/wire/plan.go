package wire

import (
	"encoding/base64"
	"errors"
	"fmt"

	"github.com/aspengine/asp/internal/canon"
)

// EditPlan is a proposal: structured operations with preconditions. It is
// data of its provider and decides nothing.
type EditPlan struct {
	ProposalID       string            `json:"proposalId" wire:"nonempty"`
	Provider         PlanProvider      `json:"provider"`
	Status           Status            `json:"status"`
	Baseline         Baseline          `json:"baseline"`
	ValidAsOf        PlanValidAsOf     `json:"validAsOf"`
	TouchedResources []TouchedResource `json:"touchedResources" wire:"unique"`
	WorkspaceEdit    *WorkspaceEdit    `json:"workspaceEdit,omitempty"`
	Incomplete       *PlanIncomplete   `json:"incomplete,omitempty"`
	Unsupported      *PlanUnsupported  `json:"unsupported,omitempty"`
	Refusal          *PlanRefusal      `json:"refusal,omitempty"`
	Error            *PlanError        `json:"error,omitempty"`
	ConflictHints    []ConflictHint    `json:"conflictHints,omitzero"`
	Annotations      []PlanAnnotation  `json:"annotations,omitzero"`
	Confidence       *float64          `json:"confidence,omitempty" wire:"unit"`
	Rationale        string            `json:"rationale,omitempty"`
	Warnings         []string          `json:"warnings,omitzero"`
}

// Check demands the member that each status needs.
func (p EditPlan) Check() error {
	ok, member := true, ""
	switch p.Status {
	case StatusComplete:
		ok, member = p.WorkspaceEdit != nil, "workspaceEdit"
	case StatusIncomplete:
		ok, member = p.Incomplete != nil, "incomplete"
	case StatusUnsupported:
		ok, member = p.Unsupported != nil, "unsupported"
	case StatusError, StatusCancelled:
		ok, member = p.Refusal != nil, "refusal"
	}
	if ok {
		return nil
	}
	return fmt.Errorf("status %s needs %s", p.Status, member)
}

// PlanProvider names who made a plan.
type PlanProvider struct {
	ID                string `json:"id"`
	Version           string `json:"version"`
	CapabilityFamily  Family `json:"capabilityFamily"`
	CapabilityVersion string `json:"capabilityVersion" wire:"nonempty"`
	ConfigDigest      string `json:"configDigest"`
	BuildDigest       string `json:"buildDigest,omitempty"`
}

// Check holds the family.
func (p PlanProvider) Check() error {
	if p.CapabilityFamily == Edit {
		return nil
	}
	return errors.New("capabilityFamily must be edit")
}

// PlanValidAsOf is the freshness that a provider states.
type PlanValidAsOf struct {
	Baseline Baseline  `json:"baseline"`
	Blobs    []BlobRef `json:"blobs" wire:"unique"`
}

// Precondition holds exactly one of its members.
type Precondition struct {
	ExpectedDigest  BlobRef `json:"expectedDigest,omitempty"`
	ExpectedAbsence bool    `json:"expectedAbsence,omitempty" wire:"true"`
}

// Check demands exactly one member.
func (p Precondition) Check() error {
	if (p.ExpectedDigest != "") != p.ExpectedAbsence {
		return nil
	}
	return errors.New("a precondition is expectedDigest or expectedAbsence:true")
}

// TouchedResource mirrors one operation of the edit.
type TouchedResource struct {
	Path         string       `json:"path"`
	Kind         ChangeKind   `json:"kind"`
	To           string       `json:"to,omitempty"`
	Precondition Precondition `json:"precondition"`
}

// WorkspaceEdit is the payload of a plan.
type WorkspaceEdit struct {
	Baseline        Baseline         `json:"baseline"`
	DocumentChanges []DocumentChange `json:"documentChanges"`
}

// DocumentChange is one operation; its place in the list is its time.
type DocumentChange struct {
	Path         string       `json:"path"`
	Kind         ChangeKind   `json:"kind"`
	To           string       `json:"to,omitempty"`
	Precondition Precondition `json:"precondition"`
	After        BlobRef      `json:"after,omitempty"`
	Edits        []TextEdit   `json:"edits,omitzero"`
	Annotations  []Annotation `json:"annotations,omitzero"`
}

// Check demands the members that each kind needs, and refuses those that mean
// nothing for it. A rename may repeat its digest as after.
func (c DocumentChange) Check() error {
	digest, edits := c.Precondition.ExpectedDigest != "", c.Edits != nil
	var needs string
	switch c.Kind {
	case KindCreate:
		switch {
		case digest:
			needs = "expectedAbsence:true"
		case c.After == "":
			needs = "after"
		case edits || c.To != "":
			return errors.New("create takes neither edits nor to")
		}
	case KindModify:
		switch {
		case !digest:
			needs = "expectedDigest"
		case edits == (c.After != ""):
			needs = "either after or edits"
		case c.To != "":
			return errors.New("modify takes no to")
		}
	case KindDelete:
		switch {
		case !digest:
			needs = "expectedDigest"
		case edits || c.After != "" || c.To != "":
			return errors.New("delete takes neither after nor edits nor to")
		}
	case KindRename, KindMove:
		switch {
		case !digest:
			needs = "expectedDigest"
		case edits || c.After != "" && c.After != c.Precondition.ExpectedDigest:
			return fmt.Errorf("%s takes no new content; a modify beside it does", c.Kind)
		}
	}
	if needs != "" {
		return fmt.Errorf("%s needs %s", c.Kind, needs)
	}
	return nil
}

// CheckValue demands the destination of a rename. An empty one is there, and is
// refused for what it is, a path that cannot be.
func (c DocumentChange) CheckValue(v canon.Value) error {
	if _, ok := v.Get("to"); !ok && (c.Kind == KindRename || c.Kind == KindMove) {
		return fmt.Errorf("%s needs to", c.Kind)
	}
	return nil
}

// TextEdit replaces a range of the resource whose digest is RangeBasis.
type TextEdit struct {
	Range            Range   `json:"range"`
	RangeBasis       BlobRef `json:"rangeBasis"`
	CoordinateSystem string  `json:"coordinateSystem"`
	NewText          string  `json:"newText"`
}

// UTF16 is the one coordinate system.
const UTF16 = "utf16"

// Check holds the coordinate system.
func (e TextEdit) Check() error {
	if e.CoordinateSystem == UTF16 {
		return nil
	}
	return errors.New("coordinateSystem must be utf16")
}

// Range is half open.
type Range struct {
	Start Position `json:"start"`
	End   Position `json:"end"`
}

// Position is a zero-based line and UTF-16 code unit.
type Position struct {
	Line int `json:"line" wire:"min0"`
	Char int `json:"char" wire:"min0"`
}

// Annotation explains one operation.
type Annotation struct {
	Message string `json:"message"`
	Range   *Range `json:"range,omitempty"`
	Data    Data   `json:"data,omitempty" wire:"object"`
}

// PlanAnnotation explains a plan.
type PlanAnnotation struct {
	Path     string   `json:"path"`
	Range    *Range   `json:"range,omitempty"`
	Message  string   `json:"message"`
	Severity Severity `json:"severity,omitempty"`
	Data     Data     `json:"data,omitempty" wire:"object"`
}

// PlanIncomplete says why a plan covers less than was asked.
type PlanIncomplete struct {
	Reason      string `json:"reason" wire:"in=unresolved-reference|partial-coverage|ambiguous-target|budget-exhausted|provider-limitation"`
	Detail      string `json:"detail"`
	Recoverable *bool  `json:"recoverable,omitempty"`
}

// PlanUnsupported says what a provider cannot do.
type PlanUnsupported struct {
	Operation           string   `json:"operation"`
	Reason              string   `json:"reason" wire:"in=operation|language|resource-kind|scope|capability-version"`
	Detail              string   `json:"detail"`
	SupportedOperations []string `json:"supportedOperations,omitzero" wire:"unique"`
}

// PlanRefusal says why a provider gave no plan.
type PlanRefusal struct {
	Reason string `json:"reason" wire:"in=cancelled|provider-error|malformed-request|missing-content|scope-denied"`
	Detail string `json:"detail"`
	Data   Data   `json:"data,omitempty" wire:"object"`
}

// PlanError is an error inside a plan.
type PlanError struct {
	Code    string `json:"code"`
	Message string `json:"message"`
	Data    Data   `json:"data,omitempty" wire:"object"`
}

// ConflictHint warns of a conflict that the provider foresees.
type ConflictHint struct {
	Path   string `json:"path"`
	Kind   string `json:"kind" wire:"in=stale-baseline|overlap|missing-precondition|range-drift"`
	Detail string `json:"detail"`
	Data   Data   `json:"data,omitempty" wire:"object"`
}

// Bundle is a plan file with the content that it names. A plan that names no
// new content may come without blobs.
type Bundle struct {
	Proposal Data   `json:"proposal" wire:"object"` // an EditPlan, as it came
	Blobs    []Blob `json:"blobs,omitzero"`
}

// Encoding is how the bytes of a Blob are written.
type Encoding string

// The encodings.
const (
	UTF8   Encoding = "utf-8"
	Base64 Encoding = "base64"
)

// Check implements the word list.
func (w Encoding) Check() error { return oneOf(w, UTF8, Base64) }

// Blob is content in a message.
type Blob struct {
	Encoding Encoding `json:"encoding"`
	Bytes    string   `json:"bytes"`
}

// Decode gives the content. Base64 is the padded standard alphabet without
// line breaks, in its one canonical spelling.
func (b Blob) Decode() ([]byte, error) {
	if b.Encoding == UTF8 {
		return []byte(b.Bytes), nil
	}
	for i := range len(b.Bytes) {
		if b.Bytes[i] == '\n' || b.Bytes[i] == '\r' {
			return nil, errors.New("base64 with line breaks")
		}
	}
	return base64.StdEncoding.Strict().DecodeString(b.Bytes)
}
