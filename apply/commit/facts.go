package commit

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Guarantee is the word of the contract, weakest first. It is computed from
// Facts, never set.
type Guarantee uint8

// The guarantees.
const (
	GuaranteeNone Guarantee = iota
	RollbackAttempted
	TextOnlyTransactional
	WorkspaceTransactional
	StagedSnapshot
)

var guaranteeWords = [...]string{"none", "rollback_attempted", "text_only_transactional", "workspace_transactional", "staged_snapshot"}

// String is the wire form.
func (g Guarantee) String() string {
	if int(g) < len(guaranteeWords) {
		return guaranteeWords[g]
	}
	return "none"
}

// ParseGuarantee reads the wire form.
func ParseGuarantee(s string) (Guarantee, bool) {
	i := slices.Index(guaranteeWords[:], s)
	return Guarantee(max(i, 0)), i >= 0
}

// MountFacts is what one mount can promise, as far as the kernel tells.
type MountFacts struct {
	MntID uint64
	Dev   uint64
	Type  string // "ext4", "xfs", "tmpfs", "0x…" for one without a name here
	// Ordered: metadata changes reach the disk in order and whole, by a journal
	// or by copy on write, so that a rename is old or new after a power cut.
	Ordered bool
	// Barriers: a sync that returned reached the device.
	Barriers bool
	// Renames: the file system is known to have exchange and no-replace; false
	// makes Run probe them before the first write.
	Renames bool
	// Aside: two names cannot be exchanged here at all. A file that is replaced is
	// taken away first, so that its path is absent until the new one is put there.
	Aside bool
	// Why says in some words what Ordered or Barriers rest on or lack.
	Why string
}

// Words are the type and what is known of it, which mostly begins with the type itself.
func (m MountFacts) Words() string {
	if strings.HasPrefix(m.Why, m.Type+" ") {
		return m.Why
	}
	return m.Type + ": " + m.Why
}

// Barrier is one group of syncs that had to be done before the next step.
type Barrier struct {
	What  string // "data and journal", "names", "commit record", "areas", "undo"
	Style SyncStyle
	Calls int // syncs issued
	Took  time.Duration
}

// Primitive tells how a rename primitive showed itself in this run.
type Primitive uint8

// The answers.
const (
	Unproven Primitive = iota // not needed, not tried
	Proven                    // a probe, or every use, succeeded
	Absent                    // the file system refused it
)

// Facts is the evidence of one transaction: what was found and what was done.
type Facts struct {
	Mounts    []MountFacts // one per mount that was written, the transaction area's first
	Style     SyncStyle    // of the data and name barriers
	Dirty     int64        // bytes of unwritten data on the host when the style was chosen; -1 unknown
	Barriers  []Barrier
	Skipped   []string // barriers that were left out
	Failed    []string // barriers that failed
	Exchange  Primitive
	NoReplace Primitive
	// Counts of live paths. Replaced are those that were taken away and put anew,
	// where Exchanged was not to be had.
	Exchanged, Created, Deleted, Moved, Directories, Replaced int
	// Beside counts the staging directories made beside targets on other mounts.
	Beside int
	// Times of the stages.
	Stage, Swap time.Duration
	// Forecast marks facts that were not earned but expected (dry run).
	Forecast bool
}

// Syncs counts every sync issued.
func (f Facts) Syncs() int {
	n := 0
	for _, b := range f.Barriers {
		n += b.Calls
	}
	return n
}

func (f Facts) writes() int {
	return f.Exchanged + f.Created + f.Deleted + f.Moved + f.Directories + f.Replaced
}

// Guarantee computes the word that the facts carry.
func (f Facts) Guarantee() Guarantee {
	g, _ := f.judge()
	return g
}

// Detail is one sentence on what was established and what remains open.
func (f Facts) Detail() string {
	g, why := f.judge()
	var b strings.Builder
	if f.Forecast {
		b.WriteString("expected, not earned yet: ")
	}
	if g == GuaranteeNone {
		b.WriteString(why)
		return b.String()
	}
	types := make([]string, len(f.Mounts))
	for i, m := range f.Mounts {
		types[i] = m.Type
	}
	fmt.Fprintf(&b, "journal mode on %s, %s", strings.Join(slices.Compact(types), " and "), f.syncWords())
	var prim []string
	if f.Exchanged > 0 {
		prim = append(prim, fmt.Sprintf("%d exchanged with the displaced bytes compared", f.Exchanged))
	}
	if n := f.Created + f.Deleted + f.Moved + f.Directories; n > 0 {
		prim = append(prim, fmt.Sprintf("%d renamed without replace", n))
	}
	if f.Replaced > 0 {
		prim = append(prim, fmt.Sprintf("%d taken away, compared, and then put anew", f.Replaced))
	}
	if len(prim) > 0 {
		b.WriteString("; " + strings.Join(prim, ", "))
	}
	b.WriteString("; a concurrent reader can see some paths old and some new for the length of the swap, " +
		"and a writer that holds a replaced file open can still write to the old bytes after they were compared")
	if why != "" {
		b.WriteString("; " + why)
	}
	return b.String()
}

func (f Facts) syncWords() string {
	if f.Forecast {
		return f.Style.String() + " barriers"
	}
	// The sentence is sealed in the commit record, so it cannot count what makes that
	// and the receipt durable; asked for later it says the same.
	before := Facts{Barriers: f.Barriers}
	if i := slices.IndexFunc(f.Barriers, func(b Barrier) bool { return b.What == barrierCommit }); i >= 0 {
		before.Barriers = f.Barriers[:i]
	}
	return fmt.Sprintf("%d barriers by %s before the commit record (%d syncs)", len(before.Barriers), f.Style, before.Syncs())
}

// judge gives the word, and what keeps it from being a higher one.
func (f Facts) judge() (Guarantee, string) {
	if f.writes() == 0 {
		return GuaranteeNone, "nothing was written"
	}
	if f.Exchange == Absent && f.Replaced == 0 && !slices.ContainsFunc(f.Mounts, func(m MountFacts) bool { return m.Aside }) {
		return GuaranteeNone, "the file system cannot exchange two names"
	}
	if len(f.Failed) > 0 {
		return RollbackAttempted, "the sync of " + strings.Join(f.Failed, ", ") + " failed"
	}
	if len(f.Skipped) > 0 || f.Style == SyncNone {
		return RollbackAttempted, "no sync was made for " + strings.Join(f.Skipped, ", ")
	}
	if !f.Forecast {
		// Each of these must have happened for an outcome to survive a power cut.
		// The commit record is synced after the facts are sealed; it is not listed
		// because without it there is no outcome to report.
		for _, need := range []string{barrierData, barrierNames} {
			if !slices.ContainsFunc(f.Barriers, func(b Barrier) bool { return b.What == need && b.Calls > 0 }) {
				return RollbackAttempted, "no sync was made for " + need
			}
		}
	}
	if len(f.Mounts) == 0 {
		return RollbackAttempted, "the file system is unknown"
	}
	for _, m := range f.Mounts {
		if !m.Ordered || !m.Barriers {
			return RollbackAttempted, "durability or atomicity cannot be established: " + m.Why
		}
	}
	if f.Replaced > 0 {
		return RollbackAttempted, "two names cannot be exchanged here: each replaced path was absent for a moment, and would be after a crash until recovery"
	}
	if f.NoReplace == Absent {
		return TextOnlyTransactional, "the file system has no rename without replace"
	}
	return WorkspaceTransactional, ""
}

// The barriers by name.
const (
	barrierAreas  = "areas"
	barrierData   = "data and journal"
	barrierNames  = "names"
	barrierCommit = "commit record"
	barrierUndo   = "undo"
	barrierTidy   = "removed directories"
)
