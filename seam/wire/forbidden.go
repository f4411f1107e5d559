package wire

import (
	"github.com/aspengine/asp/internal/canon"
	"github.com/aspengine/asp/internal/refusal"
)

// Forbidden is one key that no plan may hold.
type Forbidden struct {
	Key  string
	Path string       // JSON path of the member
	Code refusal.Code // HostField or CommandLike
}

// ScanForbidden finds, at any depth of an EditPlan, the keys that belong to the
// host, and keys that carry something to execute. It looks at keys only:
// values may say anything. Every one is listed.
func ScanForbidden(v canon.Value) []Forbidden {
	var out []Forbidden
	scan(v, "$", &out)
	return out
}

func scan(v canon.Value, path string, out *[]Forbidden) {
	switch v.Kind() {
	case canon.Array:
		for i, e := range v.Elements() {
			if e.Len() > 0 { // the path is built only where something can be below it
				scan(e, path+canon.IndexStep(i), out)
			}
		}
	case canon.Object:
		for k, m := range v.Members() {
			if c := forbidden(k); c != "" {
				*out = append(*out, Forbidden{k, path + canon.KeyStep(k), c})
			}
			if m.Len() > 0 {
				scan(m, path+canon.KeyStep(k), out)
			}
		}
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
