package wire

import (
	"github.com/aspengine/asp/internal/canon"
	"github.com/aspengine/asp/internal/refusal"
)

// Forbidden is one key that no plan, or no assessment, may hold.
type Forbidden struct {
	Key  string
	Path string       // JSON path of the member
	Code refusal.Code // HostField or CommandLike
}

// ScanForbidden finds, at any depth of an EditPlan, the keys that belong to the
// host, and keys that carry something to execute. It looks at keys only:
// values may say anything. Every one is listed.
func ScanForbidden(v canon.Value) []Forbidden {
	var s scanner
	s.scan(v)
	return s.found
}

// ScanHostOwned finds, at any depth of an Assessment, the keys that belong to
// the host. An assessment executes nothing, so its data may speak of commands.
func ScanHostOwned(v canon.Value) []Forbidden {
	s := scanner{hostOnly: true}
	s.scan(v)
	return s.found
}

type scanner struct {
	at       trail
	hostOnly bool
	found    []Forbidden
}

func (s *scanner) scan(v canon.Value) {
	object := v.Kind() == canon.Object
	for i := range v.Len() {
		if object {
			k := v.Key(i)
			s.at.key(k)
			if c := forbidden(k); c != "" && (c == refusal.HostField || !s.hostOnly) {
				s.found = append(s.found, Forbidden{k, s.at.String(), c})
			}
		} else {
			s.at.index(i)
		}
		s.scan(v.At(i))
		s.at.back()
	}
}

func forbidden(key string) refusal.Code {
	switch key {
	case "authority", "assurance", "decision", "disposition", "pass", "verdict", "receipt", "applyReceipt",
		"transactionGuarantee", "policyDigest", "policyRef", "policyReference", "authorityEvidence", "hostDecision",
		"applyAttempt", "applyResult":
		return refusal.HostField
	case "command", "commands", "script", "scripts":
		return refusal.CommandLike
	}
	return ""
}
