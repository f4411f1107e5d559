package manifest

import (
	"slices"

	"github.com/aspengine/asp/sandbox/egress"
)

// Reach is what comes of the destinations that the trusted configuration lists for a
// provider and those that its manifest expects: only what is in both is granted.
type Reach struct {
	Granted []string // spelt as egress.Rule spells them, sorted
	// Unasked are destinations that the configuration lists and the manifest does not expect;
	// Unmet those that the manifest expects and of which nothing is granted; Unclear
	// what stands in the manifest and is no destination that could be granted.
	Unasked, Unmet, Unclear []string
}

// Reach narrows what the configuration lists, each as egress.ParseRule reads it, to what the
// manifest expects. A manifest that expects no outbound network gets nothing, and so
// does one that expects it and names no destination: no list is not every list.
func (m Manifest) Reach(configured []string) Reach {
	var out Reach
	var expected []egress.Destination
	var said []string
	if m.Network {
		for _, s := range m.Allowlist {
			d, err := egress.ParseDestination(s)
			if err != nil {
				out.Unclear = append(out.Unclear, s)
				continue
			}
			expected, said = append(expected, d), append(said, s)
		}
	}
	met := make([]bool, len(expected))
	for _, s := range configured {
		r, err := egress.ParseRule(s)
		covered := false
		for i, d := range expected {
			if err == nil && d.Covers(r) {
				covered, met[i] = true, true
			}
		}
		if covered {
			out.Granted = append(out.Granted, r.String())
		} else {
			out.Unasked = append(out.Unasked, s)
		}
	}
	for i, s := range said {
		if !met[i] {
			out.Unmet = append(out.Unmet, s)
		}
	}
	slices.Sort(out.Granted)
	out.Granted = slices.Compact(out.Granted)
	return out
}
