package rpc

import (
	"strings"
	"testing"

	"github.com/aspengine/asp/internal/canon"
)

// TestTranscriptShowsProtocolWords: the words of status and degradations are no piece of
// a file, and what stands beside them may be.
func TestTranscriptShowsProtocolWords(t *testing.T) {
	v, err := canon.Parse([]byte(`{"assuranceCapabilities":["isolated"],"capability":"check","role":"required","providerState":"crashed","legacyAliases":["old-name"],"detail":"secret"}`), canon.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	got := string(withoutContents(v).Bytes())
	for _, w := range []string{`"isolated"`, `"check"`, `"required"`, `"crashed"`, `"old-name"`} {
		if !strings.Contains(got, w) {
			t.Errorf("%s is left out of %s", w, got)
		}
	}
	if strings.Contains(got, "secret") {
		t.Errorf("a detail is shown: %s", got)
	}
}
