package provider_test

import (
	"bytes"
	"context"
	"fmt"

	"github.com/aspengine/asp/provider"
)

// A check that looks at one file at a time.
func ExamplePerFile() {
	p := &provider.Provider{
		ID: "tabs", Version: "1.0.0",
		Check: &provider.Check{
			Rules: []string{"tabs/indent"},
			Run: provider.PerFile{Analyse: func(_ context.Context, f *provider.File, _ *provider.CheckRequest) ([]provider.Diagnostic, error) {
				at := bytes.IndexByte(f.Content, '\t')
				if at < 0 {
					return nil, nil
				}
				return []provider.Diagnostic{{Rule: "tabs/indent", Severity: provider.SeverityWarning, Message: "a tab",
					Range: f.Text().Span(at, at+1), Key: "tab"}}, nil
			}}.Check,
		},
	}
	fmt.Println(p.Validate()) // in main: os.Exit(provider.Main(p))
	// Output: <nil>
}
