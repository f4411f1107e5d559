// Package receipt makes the record that every answer carries and keeps it: one
// file a receipt, each naming the digest of its predecessor's bytes, the head
// of that chain kept apart. A change, a removal (of the newest too), an
// insertion, a reordering and a fork are found by Verify.
//
// The chain finds accidents and tampering by who does not rewrite all of it; it
// is not signed, and a receipt is no proof to third parties (trustArtifact is
// always false).
//
// Files, below the state directory of a workspace:
//
//	receipts/<receiptId>.json   the stored form, canonical bytes, nothing else
//	receipts.head.a, .b         the last two heads, written in turn
//	receipts.next               an entry that is not known to be durable yet
//	results/<key>.json          index by proposal: a cache, rebuilt at need
//
// There are three chains in that one directory, so that what is asked often does
// not push out what was applied. The id of a receipt says which chain it is in, so
// that an append reads no other receipt and a reader needs no index. The two
// further chains have heads of their own, receipts-answer.head.a and so on.
//
// Nothing is durable before Store.Sync (or a barrier on the batch given to
// Open). A power cut before it loses unsynced entries and nothing else: the
// other head still stands. A killed process loses nothing that it wrote: the
// next writer finishes what it began.
package receipt

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/aspengine/asp/internal/canon"
	"github.com/aspengine/asp/internal/home"
	"github.com/aspengine/asp/seam/wire"
)

// Outcome is what came of the request that a receipt is for.
type Outcome string

// The outcomes. Answered is that of every method but apply.
const (
	Applied    Outcome = "applied"
	Staged     Outcome = "staged"
	Refused    Outcome = "refused"
	RolledBack Outcome = "rolled-back"
	Failed     Outcome = "failed"
	Cancelled  Outcome = "cancelled"
	Answered   Outcome = "answered"
)

func (o Outcome) valid() bool {
	switch o {
	case Applied, Staged, Refused, RolledBack, Failed, Cancelled, Answered:
		return true
	}
	return false
}

// Draft is what the caller knows of a receipt. New adds the rest.
type Draft struct {
	Kind            wire.ReceiptKind
	Family          wire.Family
	CallSite        wire.CallSite // "" where there is none
	RequestDigest   string
	ChangesetDigest string
	ProposalID      string
	Providers       []wire.ProviderProvenance
	ProviderIDs     []string // further ids beside those of Providers
	PolicyDigest    string
	Baseline        wire.Baseline
	ValidAsOf       wire.HostValidAsOf // zero: the baseline's revision
	Coverage        wire.Coverage
	Authority       []wire.AuthorityEvidence
	Assurance       wire.ApplyAssurance // zero: advisory, none
	Started, Ended  time.Time
	// Failures beyond those that Coverage.Degraded shows already.
	Failures []wire.Degradation
}

// New makes the receipt object: a fresh id, the constants, and every cause of
// degraded coverage among its failures. version is the program's.
func New(d Draft, version string) wire.AuditReceipt {
	r := wire.AuditReceipt{
		ReceiptID:          NewID(d.Kind, d.Ended),
		IssuedAt:           Time(d.Ended),
		Kind:               d.Kind,
		Host:               wire.HostName{Name: "asp", Version: version},
		CapabilityFamily:   d.Family,
		CallSite:           d.CallSite,
		RequestDigest:      d.RequestDigest,
		ChangesetDigest:    d.ChangesetDigest,
		ProposalID:         d.ProposalID,
		ProviderProvenance: d.Providers,
		PolicyDigest:       d.PolicyDigest,
		Baseline:           d.Baseline,
		ValidAsOf:          d.ValidAsOf,
		Coverage:           d.Coverage,
		AuthorityEvidence:  d.Authority,
		Assurance:          d.Assurance,
		Timing: wire.Timing{
			StartedAt: Time(d.Started),
			EndedAt:   Time(d.Ended),
			ElapsedMs: max(0, d.Ended.Sub(d.Started).Milliseconds()),
		},
		PrivateOnly:   true,
		Experimental:  true,
		TrustArtifact: false,
	}
	if r.ValidAsOf.Rev == "" {
		r.ValidAsOf.Rev = d.Baseline.Rev
	}
	if r.Assurance.Mode == "" {
		r.Assurance.Mode = wire.Advisory
	}
	if r.Assurance.TransactionGuarantee == "" {
		r.Assurance.TransactionGuarantee = wire.GuaranteeNone
	}
	seen := map[string]bool{}
	add := func(id string) {
		if !seen[id] {
			seen[id] = true
			r.ProviderIDs = append(r.ProviderIDs, id)
		}
	}
	for _, p := range d.Providers {
		add(p.Provider)
	}
	for _, id := range d.ProviderIDs {
		add(id)
	}
	r.Failures = append(append(r.Failures, d.Coverage.Degraded...), d.Failures...)
	return r
}

// Time writes a moment as receipts hold it: UTC, milliseconds.
func Time(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z07:00") }

// NewID makes an id for a receipt of that kind. It sorts by time, names the chain
// that the receipt belongs to, and is never made twice.
func NewID(k wire.ReceiptKind, now time.Time) string {
	id := "rcpt-" + now.UTC().Format("20060102T150405") + fmt.Sprintf("%06dZ-", now.UTC().Nanosecond()/1000) + home.Random(8)
	return id + laneOf(k).suffix()
}

// isID tells whether s has the form that NewID makes.
func isID(s string) bool {
	_, ok := laneOfID(s)
	return ok
}

// isPlainID tells whether s has the form rcpt-YYYYMMDDTHHMMSSuuuuuuZ-<16
// hexadecimal digits>, which is all of an id in the first chain.
func isPlainID(s string) bool {
	const form = "rcpt-00000000T000000000000Z-xxxxxxxxxxxxxxxx"
	if len(s) != len(form) {
		return false
	}
	for i := range len(s) {
		switch c := s[i]; form[i] {
		case '0':
			if c < '0' || c > '9' {
				return false
			}
		case 'x':
			if !hexDigit(c) {
				return false
			}
		default:
			if c != form[i] {
				return false
			}
		}
	}
	return true
}

func hexDigit(c byte) bool { return c >= '0' && c <= '9' || c >= 'a' && c <= 'f' }

// Entry is a receipt to be kept.
type Entry struct {
	Receipt wire.AuditReceipt
	Outcome Outcome
	// Provider and PlanDigest say, for an apply, whose proposal it was and
	// what it said. They join Evidence as planProvider and planDigest, and
	// Lookup finds an applied or staged entry by them.
	Provider   string
	PlanDigest string
	Evidence   canon.Value // an object, or no value
	Result     canon.Value // the answer that a repeated request gets, or no value

	form canon.Value       // what Form gave
	read wire.AuditReceipt // what it says
}

// Formed gives the entry the form of its Receipt where that was made as part of another
// message, which was decoded strictly: it is not made and checked again.
func (e *Entry) Formed(v canon.Value) { e.form, e.read = v, e.Receipt }

// Form is the receipt as it goes onto the wire, made and checked once: the
// Receipt is not to be changed afterwards. What is written must be what is
// accepted, so that a word outside the schema, our own mistake, fails here and
// does not reach a commit record or the disk.
func (e *Entry) Form() (canon.Value, error) {
	if e.form.Kind() != canon.Invalid {
		return e.form, nil
	}
	v, err := canon.From(e.Receipt)
	if err != nil {
		return v, err
	}
	if err := wire.Decode(v, &e.read); err != nil {
		return canon.Value{}, err
	}
	e.form = v
	return v, nil
}

// Stored is a kept receipt as it lies on disk.
type Stored struct {
	Receipt  wire.AuditReceipt
	Outcome  Outcome
	Previous string      // digest of the predecessor's bytes, "" for the first
	Evidence canon.Value // no value when absent
	Result   canon.Value
	Digest   string // of this entry's bytes
	raw      []byte
	value    canon.Value
}

// Value is the stored form.
func (s *Stored) Value() canon.Value { return s.value }

// Provider returns the plan's provider that the entry was appended with.
func (s *Stored) Provider() string { return text(s.Evidence, "planProvider") }

// Decision is the one that was made: of an evaluation, or inside the result of an
// apply. False where nothing was asked to decide, or the attempt ended before.
func (s *Stored) Decision() (wire.Decision, bool) {
	if d, ok := s.Evidence.Get("decision"); ok && d.Kind() == canon.String {
		return wire.Decision(d.Str()), true
	}
	v := s.Result
	if inner, ok := v.Get("decision"); ok && inner.Kind() == canon.Object {
		v = inner
	}
	d, ok := v.Get("decision")
	if !ok || d.Kind() != canon.String {
		return "", false
	}
	return wire.Decision(d.Str()), true
}

// PlanDigest returns the plan's digest that the entry was appended with.
func (s *Stored) PlanDigest() string { return text(s.Evidence, "planDigest") }

func text(v canon.Value, key string) string {
	if m, ok := v.Get(key); ok {
		return m.Str()
	}
	return ""
}

// MaxStored bounds one stored entry, in bytes.
const MaxStored = 32 << 20

var limits = canon.Limits{Bytes: 2 * MaxStored, Depth: 80}

// seal makes the stored form that follows previous.
func (e *Entry) seal(previous string) (*Stored, error) {
	if !e.Outcome.valid() {
		return nil, fmt.Errorf("outcome %.60q is none", string(e.Outcome))
	}
	if l, ok := laneOfID(e.Receipt.ReceiptID); !ok || l != laneOf(e.Receipt.Kind) {
		return nil, fmt.Errorf("receipt id %.100q is none of ours, or none of a receipt of kind %.60q", e.Receipt.ReceiptID, string(e.Receipt.Kind))
	}
	r, err := e.Form()
	if err != nil {
		return nil, err
	}
	ev := e.Evidence
	if e.Provider != "" || e.PlanDigest != "" {
		var m []canon.Member
		for k, v := range ev.Members() {
			m = append(m, canon.Member{Key: k, Value: v})
		}
		m = append(m, canon.Member{Key: "planProvider", Value: canon.StringOf(e.Provider)},
			canon.Member{Key: "planDigest", Value: canon.StringOf(e.PlanDigest)})
		ev = canon.ObjectOf(m...)
	}
	prev := canon.NullOf()
	if previous != "" {
		if !isDigest(previous) {
			return nil, errors.New("previous is neither null nor a digest")
		}
		prev = canon.StringOf(previous)
	}
	members := []canon.Member{
		{Key: "receipt", Value: r},
		{Key: "outcome", Value: canon.StringOf(string(e.Outcome))},
		{Key: "previous", Value: prev},
	}
	if k := ev.Kind(); k != canon.Invalid && k != canon.Object {
		return nil, errors.New("evidence is no object")
	} else if k == canon.Object {
		members = append(members, canon.Member{Key: "evidence", Value: ev})
	}
	if e.Result.Kind() != canon.Invalid {
		members = append(members, canon.Member{Key: "result", Value: e.Result})
	}
	v := canon.ObjectOf(members...)
	b := v.Bytes()
	if len(b) > MaxStored {
		return nil, fmt.Errorf("entry of %d bytes is over the limit of %d", len(b), MaxStored)
	}
	return &Stored{Receipt: e.read, Outcome: e.Outcome, Previous: previous, Evidence: ev, Result: e.Result, Digest: digestOf(b), raw: b, value: v}, nil
}

// parse reads the stored form strictly: closed object, canonical bytes.
func parse(b []byte) (*Stored, error) {
	v, err := canon.Parse(b, limits)
	if err != nil {
		return nil, err
	}
	if string(v.Bytes()) != string(b) {
		return nil, errors.New("not in canonical form")
	}
	return fromValue(v, b)
}

// fromValue reads the value v whose canonical form is b.
func fromValue(v canon.Value, b []byte) (*Stored, error) {
	if v.Kind() != canon.Object {
		return nil, fmt.Errorf("object expected, not %s", v.Kind())
	}
	s := &Stored{raw: b, value: v, Digest: digestOf(b)}
	need := 3
	for k, m := range v.Members() {
		switch k {
		case "receipt":
			if err := wire.Decode(m, &s.Receipt); err != nil {
				return nil, err
			}
			need--
		case "outcome":
			s.Outcome = Outcome(m.Str())
			if m.Kind() != canon.String || !s.Outcome.valid() {
				return nil, fmt.Errorf("outcome %.60q is none", m.Str())
			}
			need--
		case "previous":
			if m.Kind() != canon.Null && !isDigest(m.Str()) {
				return nil, errors.New("previous is neither null nor a digest")
			}
			s.Previous = m.Str()
			need--
		case "evidence":
			if m.Kind() != canon.Object {
				return nil, errors.New("evidence is no object")
			}
			s.Evidence = m
		case "result":
			s.Result = m
		default:
			return nil, fmt.Errorf("unknown member %.60q", k)
		}
	}
	if need != 0 {
		return nil, errors.New("receipt, outcome or previous is missing")
	}
	if !isID(s.Receipt.ReceiptID) {
		return nil, fmt.Errorf("receipt id %.100q is none of ours", s.Receipt.ReceiptID)
	}
	return s, nil
}

// digestOf names the bytes of an entry in canonical form.
func digestOf(b []byte) string {
	sum := sha256.Sum256(b)
	return "sha256:" + hex.EncodeToString(sum[:])
}

func isDigest(s string) bool {
	h, ok := strings.CutPrefix(s, "sha256:")
	return ok && len(h) == 64 && strings.Trim(h, "0123456789abcdef") == ""
}
