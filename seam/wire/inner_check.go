package wire

import (
	"errors"
	"fmt"
	"time"

	"github.com/aspengine/asp/internal/canon"
)

// Comparison says which findings are meant.
type Comparison string

// The comparisons.
const (
	CompareIntroduced Comparison = "introduced" // absent before the change
	CompareAll        Comparison = "all"
	CompareResolved   Comparison = "resolved" // gone after the change
)

// Check implements the word list.
func (w Comparison) Check() error { return oneOf(w, CompareIntroduced, CompareAll, CompareResolved) }

// The scopes that are a word. The third form is an object with paths.
const (
	ScopeChangeset = "changeset"
	ScopeWorkspace = "workspace"
)

// PathScope makes the scope {paths}.
func PathScope(paths []string) canon.Value {
	items := make([]canon.Value, len(paths))
	for i, p := range paths {
		items[i] = canon.StringOf(p)
	}
	return canon.ObjectOf(canon.Member{Key: "paths", Value: canon.ArrayOf(items...)})
}

// ScopePaths are the paths of a scope; nil for a word.
func ScopePaths(scope canon.Value) []string {
	list, ok := scope.Get("paths")
	if !ok {
		return nil
	}
	paths := make([]string, 0, list.Len())
	for _, p := range list.Elements() {
		paths = append(paths, p.Str())
	}
	return paths
}

// checkScope holds a scope to its three forms. An inspect request may name no
// path and may say more.
func checkScope(v canon.Value, inspect bool) error {
	if v.Kind() == canon.String {
		return oneOf(v.Str(), ScopeChangeset, ScopeWorkspace)
	}
	paths, ok := v.Get("paths")
	switch {
	case !ok || paths.Kind() != canon.Array:
		return errors.New("a scope is changeset, workspace or {paths}")
	case !inspect && (v.Len() != 1 || paths.Len() == 0):
		return errors.New("a scope of paths has at least one path and no other member")
	}
	for _, p := range paths.Elements() {
		if p.Kind() != canon.String {
			return errors.New("the paths of a scope are strings")
		}
	}
	return nil
}

// EvaluateParams asks for an assessment in asp/1.0. Changeset stays a value: its
// digest is over what is sent.
type EvaluateParams struct {
	Changeset         Data              `json:"changeset" wire:"object"` // a ChangeSet
	Scope             canon.Value       `json:"scope" wire:"scope"`
	Comparison        Comparison        `json:"comparison"`
	Configuration     Data              `json:"configuration,omitempty" wire:"object"`
	DiagnosticSources []string          `json:"diagnosticSources,omitzero" wire:"unique,nonempty"`
	Rules             []string          `json:"rules,omitzero" wire:"unique,nonempty"`
	PriorDiagnostics  []PriorDiagnostic `json:"priorDiagnostics,omitzero"`
	PriorAssessments  []PriorAssessment `json:"priorAssessments,omitzero"`
}

// Check holds the changeset to its shape.
func (p EvaluateParams) Check() error {
	var c ChangeSet
	return Decode(p.Changeset, &c)
}

// PriorDiagnostic is a finding of an earlier assessment with its freshness.
type PriorDiagnostic struct {
	Diagnostic Diagnostic          `json:"diagnostic"`
	ValidAsOf  AssessmentValidAsOf `json:"validAsOf"`
}

// PriorAssessment refers to an earlier assessment.
type PriorAssessment struct {
	AssessmentID string              `json:"assessmentId"`
	ValidAsOf    AssessmentValidAsOf `json:"validAsOf"`
	Provider     AssessmentProvider  `json:"provider"`
	Digest       string              `json:"digest,omitempty"`
}

// LegacyEvaluateParams asks for an assessment in asp/0.1.
type LegacyEvaluateParams struct {
	CallSite        CallSite   `json:"callSite"`
	Changeset       Data       `json:"changeset" wire:"object"`
	ChangesetDigest string     `json:"changesetDigest,omitempty"`
	Comparison      Comparison `json:"comparison,omitempty"`
	Checks          []string   `json:"checks,omitzero"`
}

// Assessment is what a check provider found. It is data of its provider and
// decides nothing.
type Assessment struct {
	Status      Status              `json:"status"`
	Diagnostics []Diagnostic        `json:"diagnostics"`
	Evidence    []Evidence          `json:"evidence,omitzero"`
	Coverage    AssessmentCoverage  `json:"coverage"`
	ValidAsOf   AssessmentValidAsOf `json:"validAsOf"`
	Provider    AssessmentProvider  `json:"provider"`
	Timing      AssessmentTiming    `json:"timing"`
	Cache       CacheInfo           `json:"cache"`
}

// AssessmentCoverage says what was asked and what was looked at.
type AssessmentCoverage struct {
	Requested   CoveragePart  `json:"requested"`
	Covered     CoveragePart  `json:"covered"`
	Degraded    []Degradation `json:"degraded"`
	Unsupported []Degradation `json:"unsupported"`
	Exhaustive  bool          `json:"exhaustive"`
	Truncated   bool          `json:"truncated"`
}

// CoveragePart is one side of it.
type CoveragePart struct {
	Scope             canon.Value `json:"scope" wire:"scope"`
	DiagnosticSources []string    `json:"diagnosticSources" wire:"unique,nonempty"`
	Rules             []string    `json:"rules" wire:"unique,nonempty"`
	Comparison        Comparison  `json:"comparison"`
}

// AssessmentValidAsOf is the freshness that an assessment states: the issued
// baseline member by member, and the blobs that were read.
type AssessmentValidAsOf struct {
	Baseline        Baseline  `json:"baseline"`
	ChangesetDigest string    `json:"changesetDigest"`
	Blobs           []BlobRef `json:"blobs" wire:"unique"`
}

// AssessmentProvider names who assessed, with what settings.
type AssessmentProvider struct {
	ID                string `json:"id" wire:"nonempty"`
	Version           string `json:"version" wire:"nonempty"`
	ConfigDigest      string `json:"configDigest" wire:"nonempty"`
	CapabilityVersion string `json:"capabilityVersion" wire:"nonempty"`
	BuildDigest       string `json:"buildDigest,omitempty"`
	ArtifactDigest    string `json:"artifactDigest,omitempty"`
	CapabilityFamily  string `json:"capabilityFamily,omitempty" wire:"in=check"`
}

// AssessmentTiming holds both ends, or the milliseconds between, or all three.
type AssessmentTiming struct {
	StartedAt string `json:"startedAt,omitempty" wire:"time"`
	EndedAt   string `json:"endedAt,omitempty" wire:"time"`
	ElapsedMs *int64 `json:"elapsedMs,omitempty" wire:"min0"`
}

// Check demands one of the forms, and that time runs forward.
func (t AssessmentTiming) Check() error {
	start, err1 := time.Parse(time.RFC3339, t.StartedAt)
	end, err2 := time.Parse(time.RFC3339, t.EndedAt)
	if err1 == nil && err2 == nil && end.Before(start) {
		return fmt.Errorf("timing runs backwards: it ended at %s and started at %s", t.EndedAt, t.StartedAt)
	}
	if t.ElapsedMs != nil || t.StartedAt != "" && t.EndedAt != "" {
		return nil
	}
	return errors.New("timing needs elapsedMs, or startedAt and endedAt")
}

// CacheInfo says where an assessment came from.
type CacheInfo struct {
	Status      string `json:"status" wire:"in=hit|miss|stale|disabled"`
	Key         string `json:"key,omitempty"`
	Digest      string `json:"digest,omitempty"`
	RefreshedAt string `json:"refreshedAt,omitempty" wire:"time"`
}

// Evidence backs an assessment.
type Evidence struct {
	Kind    string `json:"kind" wire:"in=trace|artifact|metric|message|reference"`
	ID      string `json:"id,omitempty"`
	Digest  string `json:"digest,omitempty"`
	URI     string `json:"uri,omitempty"`
	Message string `json:"message,omitempty"`
	Data    Data   `json:"data,omitempty" wire:"object"`
}

// LegacyAssessment is the declared reading of an assessment in asp/0.1: open
// objects, a place that may be missing, columns, evidence of any kind. Members
// that are not named here are not looked at, but for forbidden keys.
type LegacyAssessment struct {
	Status      Status              `json:"status"`
	Diagnostics []LegacyDiagnostic  `json:"diagnostics" wire:"open"`
	Coverage    LegacyCoverage      `json:"coverage" wire:"open"`
	ValidAsOf   AssessmentValidAsOf `json:"validAsOf"`
	Provider    LegacyProvider      `json:"provider" wire:"open"`
	Timing      LegacyTiming        `json:"timing" wire:"open"`
	Cache       *LegacyCache        `json:"cache,omitempty" wire:"open"`
	Evidence    []Data              `json:"evidence,omitzero" wire:"object"`
}

// LegacyDiagnostic is one finding in asp/0.1.
type LegacyDiagnostic struct {
	Code        string          `json:"code" wire:"nonempty"`
	Severity    Severity        `json:"severity"`
	Source      string          `json:"source,omitempty"`
	Message     string          `json:"message"`
	Location    *LegacyLocation `json:"location,omitempty" wire:"open"`
	Fingerprint string          `json:"fingerprint"`
	Introduced  *bool           `json:"introduced,omitempty"`
	Help        string          `json:"help,omitempty"`
}

// LegacyLocation may be empty.
type LegacyLocation struct {
	Path  string       `json:"path,omitempty"`
	Range *LegacyRange `json:"range,omitempty" wire:"open"`
}

// LegacyRange is half open.
type LegacyRange struct {
	Start LegacyPosition  `json:"start" wire:"open"`
	End   *LegacyPosition `json:"end,omitempty" wire:"open"`
}

// LegacyPosition has a line and, in one of two spellings, a column.
type LegacyPosition struct {
	Line   int  `json:"line" wire:"min0"`
	Column *int `json:"column,omitempty" wire:"min0"`
	Char   *int `json:"char,omitempty" wire:"min0"`
}

// LegacyCoverage is the coverage of asp/0.1; its reasons are free words.
type LegacyCoverage struct {
	Requested   LegacyCoveragePart  `json:"requested" wire:"open"`
	Covered     LegacyCoveragePart  `json:"covered" wire:"open"`
	Degraded    []LegacyDegradation `json:"degraded" wire:"open"`
	Unsupported []LegacyDegradation `json:"unsupported" wire:"open"`
	Exhaustive  bool                `json:"exhaustive"`
	Truncated   bool                `json:"truncated"`
}

// LegacyCoveragePart is one side of it.
type LegacyCoveragePart struct {
	Scope             canon.Value `json:"scope" wire:"scope"`
	DiagnosticSources []string    `json:"diagnosticSources"`
	Rules             []string    `json:"rules"`
	Comparison        Comparison  `json:"comparison"`
}

// LegacyDegradation is one cause of missing coverage.
type LegacyDegradation struct {
	Source      string `json:"source"`
	Reason      string `json:"reason"`
	Requirement string `json:"requirement,omitempty"`
	Detail      string `json:"detail"`
}

// LegacyProvider names who assessed.
type LegacyProvider struct {
	ID                string `json:"id" wire:"nonempty"`
	Version           string `json:"version" wire:"nonempty"`
	ConfigDigest      string `json:"configDigest" wire:"nonempty"`
	CapabilityVersion string `json:"capabilityVersion" wire:"nonempty"`
}

// LegacyTiming is a duration.
type LegacyTiming struct {
	DurationMs canon.Value `json:"durationMs,omitempty"` // a number, whole or not
}

// LegacyCache may say where an assessment came from.
type LegacyCache struct {
	Status string `json:"status,omitempty"`
}
