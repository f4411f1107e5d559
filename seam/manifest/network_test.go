package manifest

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Only what is configured and expected is granted; the rest is told.
func TestReach(t *testing.T) {
	for name, c := range map[string]struct {
		outbound   bool
		expected   []string
		configured []string
		want       Reach
	}{
		"nothing at all":    {false, nil, nil, Reach{}},
		"not configured":    {true, []string{"a.example"}, nil, Reach{Unmet: []string{"a.example"}}},
		"not expected":      {false, []string{"a.example"}, []string{"a.example:443"}, Reach{Unasked: []string{"a.example:443"}}},
		"no list":           {true, nil, []string{"a.example:443"}, Reach{Unasked: []string{"a.example:443"}}},
		"no destination":    {true, []string{"*", "https://a.example/v1"}, []string{"a.example:443"}, Reach{Unasked: []string{"a.example:443"}, Unclear: []string{"*", "https://a.example/v1"}}},
		"narrowed by both":  {true, []string{"https://a.example", "b.example"}, []string{"tcp://a.example:22", "A.example:443", "c.example:443"}, Reach{Granted: []string{"https://a.example:443"}, Unasked: []string{"tcp://a.example:22", "c.example:443"}, Unmet: []string{"b.example"}}},
		"a host whole":      {true, []string{"a.example", "a.example:443"}, []string{"tcp://a.example:22", "a.example:443", "https://a.example:443"}, Reach{Granted: []string{"https://a.example:443", "tcp://a.example:22"}}},
		"what is no rule":   {true, []string{"127.0.0.1"}, []string{"127.0.0.1:80"}, Reach{Unasked: []string{"127.0.0.1:80"}, Unmet: []string{"127.0.0.1"}}},
		"a name is no name": {true, []string{"example"}, []string{"a.example:443"}, Reach{Unasked: []string{"a.example:443"}, Unmet: []string{"example"}}},
	} {
		m := Manifest{Network: c.outbound, Allowlist: c.expected}
		if diff := cmp.Diff(c.want, m.Reach(c.configured)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}
