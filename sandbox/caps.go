package sandbox

import (
	"fmt"
	"slices"
	"strings"
)

// Answer is what a probe says: three values, because a probe that could not be
// made proves nothing.
type Answer uint8

// The answers.
const (
	Unknown Answer = iota // could not tell
	Yes
	No
)

// String returns yes, no or could-not-tell.
func (a Answer) String() string {
	switch a {
	case Yes:
		return "yes"
	case No:
		return "no"
	}
	return "could-not-tell"
}

// Cap is one probed ability.
type Cap struct {
	Answer Answer
	Errno  int    // the system's reason for No or Unknown, 0 when there is none
	Detail string // for people
}

func (c Cap) String() string {
	if c.Detail == "" {
		return c.Answer.String()
	}
	return fmt.Sprintf("%s (%s)", c.Answer, c.Detail)
}

// Caps is what this machine gave when it was asked. It is a value: tests and
// policies may weaken a copy. The zero value promises nothing.
type Caps struct {
	UserNS       Cap
	MountNS      Cap
	PIDNS        Cap
	NetNS        Cap
	ReadOnlyTree Cap // mount_setattr, recursive
	NewMounts    Cap // fsopen, fsmount, move_mount, open_tree
	Proc         Cap // a /proc of the own pid namespace
	Overlay      Cap // overlay inside the user namespace, on the probed directories

	PrivateRoot Cap // pivot_root into a file system in memory
	Landlock    Cap // Detail names the ABI
	Seccomp     Cap // system call filters, with a table for this architecture

	// Groups are control groups of our own: to kill a run as a whole, and (Detail says
	// which) to bound it as a whole. No launch needs them.
	Groups Cap
}

// Expected is what a common machine gives, unasked. It promises nothing: a launch
// for which it was wrong is ErrUnsupported before anything of the command ran.
// It is for callers who ask Probe then; to ask first takes as long as a launch.
func Expected() Caps {
	yes := Cap{Answer: Yes, Detail: "expected"}
	return Caps{yes, yes, yes, yes, yes, yes, yes, yes, yes, yes, yes, Cap{Detail: "not asked"}}
}

// Namespaces tells whether a launch can have the whole set: without one of them
// the others do not make a boundary.
func (c Caps) Namespaces() bool {
	for _, x := range []Cap{c.UserNS, c.MountNS, c.PIDNS, c.ReadOnlyTree, c.NewMounts, c.Proc} {
		if x.Answer != Yes {
			return false
		}
	}
	return true
}

// CanConfine tells whether a launch without namespaces can be tried that is held by rules.
func (c Caps) CanConfine() bool { return c.Landlock.Answer == Yes && c.Seccomp.Answer == Yes }

// CanOverlay tells whether candidates can be overlays.
func (c Caps) CanOverlay() bool { return c.Namespaces() && c.Overlay.Answer == Yes }

// CanIsolate tells whether a launch can be tried that may prove Isolated.
func (c Caps) CanIsolate() bool {
	for _, x := range []Cap{c.NetNS, c.PrivateRoot, c.Landlock, c.Seccomp} {
		if x.Answer != Yes {
			return false
		}
	}
	return c.Namespaces()
}

// Missing names what keeps Namespaces (or CanOverlay) from being true.
func (c Caps) Missing() string { return missing(c.Rows()[:8]) }

// MissingIsolation names what keeps CanIsolate from being true.
func (c Caps) MissingIsolation() string {
	r := c.Rows()
	return missing(slices.Concat(r[:7], r[8:11]))
}

func missing(rows []Row) string {
	var out []string
	for _, x := range rows {
		if x.Cap.Answer != Yes {
			out = append(out, x.Name+": "+x.Cap.String())
		}
	}
	return strings.Join(out, ", ")
}

// Row is one line of a report on Caps.
type Row struct {
	Name string
	Cap  Cap
}

// Rows returns all abilities in a fixed order, for doctor and receipts.
func (c Caps) Rows() []Row {
	return []Row{
		{"user namespace", c.UserNS}, {"mount namespace", c.MountNS}, {"pid namespace", c.PIDNS},
		{"network namespace", c.NetNS}, {"recursive read-only mounts", c.ReadOnlyTree},
		{"mount descriptors", c.NewMounts}, {"own /proc", c.Proc}, {"overlay in user namespace", c.Overlay},
		{"private root", c.PrivateRoot}, {"Landlock", c.Landlock}, {"system call filter", c.Seccomp},
		{"control groups", c.Groups},
	}
}

// ProbeDirs names the directories that the overlay probe uses: an overlay works
// or not per file system. Both empty skips the overlay probe (Unknown).
type ProbeDirs struct {
	Lower   string // a directory of the workspace's file system; only read
	Scratch string // an existing private directory; the probe makes and removes one directory in it
}
