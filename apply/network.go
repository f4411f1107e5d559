package apply

import (
	"github.com/aspengine/asp/internal/canon"
	"github.com/aspengine/asp/seam/wire"
)

// NetworkRecord is what a provider asked the proxy of its sandbox for when it was asked for
// something else than an assessment, whose record has its own.
type NetworkRecord struct {
	Provider string      `json:"provider"`
	For      wire.Family `json:"for"`
	Asked    []string    `json:"asked"` // bounded
}

// networkRecord is nil where nothing was asked for.
func networkRecord(id string, f wire.Family, asked []string) []NetworkRecord {
	if len(asked) == 0 {
		return nil
	}
	return []NetworkRecord{{valid(cut(id)), f, validAll(asked)}}
}

// onlyNetwork is the evidence of what has no other.
type onlyNetwork struct {
	Network []NetworkRecord `json:"network"`
}

// networkEvidence is such evidence; no value where nothing was asked for.
func networkEvidence(all []NetworkRecord) (canon.Value, error) {
	if len(all) == 0 {
		return canon.Value{}, nil
	}
	return canon.From(onlyNetwork{all})
}
