package wire

import (
	"errors"
	"fmt"

	"github.com/aspengine/asp/internal/canon"
)

// LogMessageParams is a line for people. The text is foreign.
type LogMessageParams struct {
	Level   string `json:"level" wire:"in=error|warn|info|debug"`
	Message string `json:"message"`
}

// PublishDiagnosticsParams are ambient findings on one resource; they replace
// the earlier ones there. They never gate.
type PublishDiagnosticsParams struct {
	URI         string        `json:"uri"`
	ValidAsOf   HostValidAsOf `json:"validAsOf"`
	Diagnostics []Diagnostic  `json:"diagnostics"`
}

// ProgressParams is advice on a request that runs. The final result alone
// counts.
type ProgressParams struct {
	Token canon.Value   `json:"token"` // a string or an integer
	Value ProgressValue `json:"value"`
}

// Check holds the token.
func (p ProgressParams) Check() error {
	_, integer := p.Token.Int()
	if p.Token.Kind() == canon.String || integer {
		return nil
	}
	return errors.New("token is a string or an integer")
}

// ProgressValue is a report, some diagnostics, or the end.
type ProgressValue struct {
	Kind        string       `json:"kind" wire:"in=report|diagnostics|end"`
	Percentage  *int         `json:"percentage,omitempty" wire:"min0"`
	Message     string       `json:"message,omitempty"`
	Diagnostics []Diagnostic `json:"diagnostics,omitzero"`
}

// CheckValue demands the members of each kind, and no others.
func (p ProgressValue) CheckValue(v canon.Value) error {
	for k := range v.Members() {
		ok := k == "kind"
		switch p.Kind {
		case "report":
			ok = ok || k == "percentage" || k == "message"
		case "diagnostics":
			ok = ok || k == "diagnostics"
		case "end":
			ok = ok || k == "message"
		}
		if !ok {
			return fmt.Errorf("%s takes no member %.40q", p.Kind, k)
		}
	}
	if _, ok := v.Get("diagnostics"); !ok && p.Kind == "diagnostics" {
		return errors.New("diagnostics are missing")
	}
	if p.Percentage != nil && *p.Percentage > 100 {
		return errors.New("percentage is over 100")
	}
	return nil
}
