package provider

import (
	"errors"
	"fmt"

	"github.com/aspengine/asp/internal/canon"
	"github.com/aspengine/asp/seam/wire"
)

// Words and records of the protocol that authors meet.
type (
	Baseline    = wire.Baseline    // one state of a workspace, issued by the host
	BlobRef     = wire.BlobRef     // blob:sha256:<hex>, the name of content
	Change      = wire.Change      // one path of a changeset
	ChangeKind  = wire.ChangeKind  // create, modify, delete, rename; move in plans
	Comparison  = wire.Comparison  // which findings are meant
	Degradation = wire.Degradation // one cause of missing coverage
	Edge        = wire.Edge        // joins two nodes of an answer
	Error       = wire.Error       // an error of the protocol
	FailClass   = wire.FailClass   // how a host takes an error
	Location    = wire.Location    // a path and perhaps a range
	Node        = wire.Node        // a symbol or file of an answer
	Position    = wire.Position    // zero-based line and UTF-16 unit
	Range       = wire.Range       // half open
	Severity    = wire.Severity    // of a finding
	TreeEntry   = wire.TreeEntry   // one entry of the baseline tree
)

// The comparisons: findings that the change brings, all of the after-state, and
// those that it ends.
const (
	Introduced = wire.CompareIntroduced
	All        = wire.CompareAll
	Resolved   = wire.CompareResolved
)

// The severities.
const (
	SeverityError   = wire.SeverityError
	SeverityWarning = wire.SeverityWarning
	SeverityInfo    = wire.SeverityInfo
)

// The kinds of changes.
const (
	Create = wire.KindCreate
	Modify = wire.KindModify
	Delete = wire.KindDelete
	Rename = wire.KindRename
	Move   = wire.KindMove
)

// InputError refuses a request for what it says; the host never takes that for a
// fault of the provider.
func InputError(format string, a ...any) *Error {
	return wire.NewError(wire.CodeInvalidInput, wire.FailInput, fmt.Sprintf(format, a...), "")
}

// HealthError says that the provider could not work just now; asking again may
// help.
func HealthError(format string, a ...any) *Error {
	return wire.NewError(wire.CodeNotReady, wire.FailHealth, fmt.Sprintf(format, a...), "")
}

func contractError(code int, format string, a ...any) *Error {
	return wire.NewError(code, wire.FailContract, fmt.Sprintf(format, a...), "")
}

// Denied tells whether err is the host's refusal to show something: out of the
// granted globs, or not part of this request. It looks the same whether or not
// the thing exists.
func Denied(err error) bool {
	var e *Error
	return errors.As(err, &e) && (e.Code == wire.CodeScopeDenied || e.Data != nil && e.Data.FailClass == wire.FailPolicy)
}

// unavailable tells whether err says that the host does not have the content.
func unavailable(err error) bool {
	var e *Error
	return errors.As(err, &e) && e.Code == wire.CodeBlobUnavailable
}

// Unsupported says that the provider cannot do what was asked, for a reason that
// asking again does not change. Reason is operation, language, resource-kind,
// scope or capability-version; operation where empty.
type Unsupported struct {
	Reason, Detail string
}

func (u *Unsupported) Error() string { return "unsupported: " + u.Detail }

// Data is free-form JSON from the host: an object, or nothing at all.
type Data struct{ v canon.Value }

// Absent tells whether the host sent nothing.
func (d Data) Absent() bool { return d.v.Kind() == canon.Invalid }

// Decode fills into, a pointer to a struct with json tags, strictly: unknown
// members, missing ones (all without omitempty or omitzero are needed), wrong
// kinds and numbers that are no plain integers are errors. Members that may be
// left out keep what into held before, which is how defaults are given. The error
// is an *Error of class input.
func (d Data) Decode(into any) error {
	v := d.v
	if v.Kind() == canon.Invalid {
		v = canon.ObjectOf()
	}
	if err := wire.Decode(v, into); err != nil {
		return InputError("%v", err)
	}
	return nil
}

// JSON is the canonical form: sorted keys, no white space; nil when absent.
func (d Data) JSON() []byte {
	if d.Absent() {
		return nil
	}
	return d.v.Bytes()
}

// FromJSON makes Data of an object in JSON, read as strictly as any message.
func FromJSON(b []byte) (Data, error) {
	v, err := canon.Parse(b, canon.Limits{})
	if err == nil && v.Kind() != canon.Object {
		err = fmt.Errorf("read JSON: object expected, not %s", v.Kind())
	}
	return Data{v}, err
}

// cut bounds text that a provider sends.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && s[n]&0xC0 == 0x80 {
		n--
	}
	return s[:n] + "..."
}
