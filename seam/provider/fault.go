package provider

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/aspengine/asp/checks"
	"github.com/aspengine/asp/seam/wire"
)

// fault is why a request came to nothing.
type fault struct {
	reason wire.DegradeReason
	state  wire.Lifecycle
	class  wire.FailClass
	detail string
	// blameless: it was not the provider's doing, and counts for no quarantine.
	blameless bool
	// unsupported: the machine cannot give the sandbox that is required.
	unsupported bool
	// artifact: it was not started because of its files, of which a look tells how they
	// are now.
	artifact Artifact
	code     int // of an error answer
	// untouched: the provider ended without having done anything for the request.
	untouched bool
}

func (f *fault) Error() string { return f.detail }

// maxDetail bounds what is said of a fault, in bytes.
const maxDetail = 2000

func faultOf(reason wire.DegradeReason, state wire.Lifecycle, class wire.FailClass, format string, a ...any) *fault {
	return &fault{reason: reason, state: state, class: class, detail: cut(fmt.Sprintf(format, a...), maxDetail)}
}

func malformed(format string, a ...any) *fault {
	return faultOf(wire.DegradeMalformed, wire.Malformed, wire.FailContract, format, a...)
}

func stale(format string, a ...any) *fault {
	return faultOf(wire.DegradeStale, wire.Active, wire.FailContract, format, a...)
}

func missing(format string, a ...any) *fault {
	f := faultOf(wire.DegradeMissing, wire.Unavailable, wire.FailPolicy, format, a...)
	f.blameless = true
	return f
}

// status is a fault in the words of checks.
func (f *fault) status() checks.Status {
	switch f.reason {
	case wire.DegradeTimedOut:
		return checks.TimedOut
	case wire.DegradeCrashed:
		return checks.Crashed
	case wire.DegradeCancelled:
		return checks.Cancelled
	case wire.DegradeStale, wire.DegradeStaleBaseline:
		return checks.Stale
	case wire.DegradeMalformed:
		return checks.Malformed
	case wire.DegradeIncompatible:
		return checks.Incompatible
	case wire.DegradeSkewed:
		return checks.Skewed
	case wire.DegradeQuarantined:
		return checks.Quarantined
	case wire.DegradeUnsupported:
		return checks.Unsupported
	case wire.DegradeError, wire.DegradeDirectWriteRisk:
		return checks.Errored
	case wire.DegradeMissing:
		return checks.Missing
	}
	return checks.Unavailable
}

// answered is the fault of an error answer to a request.
func answered(e *wire.Error) *fault {
	f := &fault{reason: wire.DegradeError, state: wire.Active, class: wire.FailContract, code: e.Code}
	detail := ""
	if e.Data != nil {
		if e.Data.FailClass.Check() == nil {
			f.class = e.Data.FailClass
		}
		detail = e.Data.Detail
	}
	if e.Code == wire.CodeCancelled {
		f.reason, f.state = wire.DegradeCancelled, wire.Cancelled
	}
	if e.Code == wire.CodeMethodNotFound {
		// It says that it does not do this, and does the rest as well as before.
		f.reason, f.blameless = wire.DegradeUnsupported, true
	}
	f.detail = cut(fmt.Sprintf("it answered with error %d, %s: %q", e.Code, f.class, cut(e.Message, 500)), maxDetail)
	if detail != "" {
		f.detail = cut(f.detail+fmt.Sprintf(" (%q)", cut(detail, 500)), maxDetail)
	}
	return f
}

// cut bounds foreign text and keeps it valid UTF-8.
func cut(s string, max int) string {
	s = strings.ToValidUTF8(s, "\ufffd")
	if len(s) <= max {
		return s
	}
	for max > 0 && !utf8.RuneStart(s[max]) {
		max--
	}
	return s[:max] + "…"
}
