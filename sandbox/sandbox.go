// Package sandbox starts one command inside namespaces of its own and kills all
// of it. It knows nothing of plans, repositories or decisions: a Spec is plain
// data, the answer is a Result and the Boundary that this very launch proved.
//
// What a launch with namespaces gives: a user, mount, pid, ipc, uts and (unless
// Spec.Network) network namespace; a private root with the declared mounts and the
// host's directories through shields: read-only, without devices and set-id programs, and
// without anybody who listens at a socket or a FIFO in them; an own /proc and
// /dev; no socket family that namespaces do not cut off; no capability, no_new_privs, no descriptor but 0 to 2, an environment
// that is exactly Spec.Env. The identity inside is the caller's own uid and gid,
// mapped one to one and nothing else mapped: git's ownership check, programs
// that refuse to run as root, and files made in the scratch tree all behave as
// they do outside. (A map to root inside was rejected: it makes an ordinary
// user's tests run as "root", which changes what many of them do.)
//
// What it never does: claim a level from configuration. Before the command runs,
// a probe inside the same sandbox, with the same credentials, tries to write
// where the protected directories are, and to reach somebody who would do it for it
// (sockets by path, name and port, a FIFO); the parent then looks where the marker
// landed and whether anybody came. Only that answer makes MediatedWrite.
//
// With Spec.Isolate the private root holds nothing but system
// directories, Spec.Read and the declared mounts; there are Landlock and a system call filter;
// a session keyring of its own; limits on memory and file size. The probe then tries
// much more (Boundary.Attempts), and only if all of it fails the level is Isolated.
//
// Where the kernel refuses namespaces and the caller requires a boundary, Landlock and a
// system call filter are the whole of it (rules_linux.go): Spec.Write may be written,
// the system directories and Spec.Read may be read, and there is no socket. The probe decides here as
// well, and finds MediatedWrite at most.
//
// Known limits: without Isolate memory is not limited; over a tree owned by somebody
// else even root's command can only read, because it holds no capability.
//
// The child half is the same executable, started again: a program that imports this package
// becomes it, before anything of its own, where ChildArg is its only argument.
package sandbox

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/aspengine/asp/internal/canon"
)

// Level is how well the protected directories were kept from the command.
type Level uint8

// The levels, weakest first.
const (
	LevelInvalid Level = iota
	// Advisory: the command ran with the caller's rights; nothing was prevented.
	Advisory
	// Gated: the namespaces and read-only mounts were set up without an error,
	// but the probe could not establish where a write would land.
	Gated
	// MediatedWrite: a probe from inside this launch proved that writes do not
	// reach the protected directories, and that nobody outside does them for the command.
	MediatedWrite
	// Isolated: MediatedWrite, and in this launch everything that was tried from
	// inside against the rest of the machine failed: reads outside the grant, the
	// network, the host's processes, forbidden system calls, the limits.
	Isolated
)

// String returns the contract's word.
func (l Level) String() string {
	switch l {
	case Advisory:
		return "advisory"
	case Gated:
		return "gated"
	case MediatedWrite:
		return "mediated-write"
	case Isolated:
		return "isolated"
	}
	return "invalid"
}

// ErrUnsupported answers a Spec that asks for more than this machine can give.
// Nothing of the command was started.
var ErrUnsupported = errors.New("sandbox: not available here")

// UnsupportedError says what was missing. It is ErrUnsupported for errors.Is.
type UnsupportedError struct {
	Require Level
	Reason  string
	Err     error // cause, may be nil
	// Network: it could be had, were it not for what is to be let through of the network.
	Network bool
}

func (e *UnsupportedError) Error() string {
	s := fmt.Sprintf("start sandbox with level %s: %s", e.Require, e.Reason)
	if e.Network {
		s = "nothing is started that may reach some of the network where the rest cannot be closed (`asp doctor` says how to get a network namespace; without \"network\" for it in config.json it needs none): " + e.Reason
	} else if e.Require == Gated {
		// What nobody asked for in words is required of every launch. The way out comes first,
		// because reasons can be long.
		s = "nothing is started without a boundary, and there is none here (`asp doctor` says how to get one; \"sandbox\": {\"require\": \"none\"} in config.json does without): " + e.Reason
	}
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// Is makes errors.Is(err, ErrUnsupported) true.
func (e *UnsupportedError) Is(t error) bool { return t == ErrUnsupported }

// Unwrap returns the cause.
func (e *UnsupportedError) Unwrap() error { return e.Err }

// MountKind says what a Mount is.
type MountKind uint8

// The kinds of mounts.
const (
	MountInvalid MountKind = iota
	MountOverlay           // Lower below, Upper and Work private: writes go to Upper
	MountBindRO            // Source with everything mounted in it, read-only
	MountBindRW            // Source alone, writable
	MountTmpfs             // empty, writable, in memory
)

// Mount is one declared mount. All paths are absolute and clean. Target is
// where the command sees it; a missing target is made only inside a hidden
// directory or another declared mount. Sources are opened before anything is
// hidden, so they may lie inside hidden directories.
type Mount struct {
	Kind   MountKind
	Target string
	Source string // bind mounts
	Lower  string // overlay
	Upper  string // overlay; same file system as Work, empty or prepared
	Work   string // overlay; empty. Upper and Work serve one launch: they are mounted volatile
}

// Protect names a live directory that must be out of reach. Inside, its path
// either cannot be written, or is a declared mount whose bytes land in Lands.
type Protect struct {
	Path  string
	Lands string // directory outside where a file made at Path appears; "" when Path must be read-only
}

// Limits bound a run. Zero means the default.
type Limits struct {
	Wall      time.Duration // wall clock of the command; default 10 minutes. At its end everything is killed
	Output    int           // bytes kept of each stream, half head, half tail; default 64 KiB
	Files     uint64        // open descriptors per process; default 4096, at least 16, never above the inherited limit
	Processes uint64        // processes of this run; default none. See Boundary.Bounded
	CPUPct    uint64        // percent of one processor for the whole run, where control groups can; default none
	// FileSize is the greatest size of a file, in bytes, and Memory what one process
	// may have of writable private memory, in bytes, at least 64 MiB. Both only in
	// isolated launches; default none. Where control groups can, Memory also is what
	// the whole run may have, in every launch.
	FileSize, Memory uint64
	Grace            time.Duration // how long processes may outlive the main one before they count as left over; default 2 s
}

const (
	defaultWall   = 10 * time.Minute
	defaultOutput = 64 << 10
	defaultFiles  = 4096
	defaultGrace  = 2 * time.Second
	minMemory     = 64 << 20
)

func (l Limits) withDefaults() Limits {
	if l.Wall <= 0 {
		l.Wall = defaultWall
	}
	if l.Output <= 0 {
		l.Output = defaultOutput
	}
	if l.Files == 0 {
		l.Files = defaultFiles
	}
	if l.Grace <= 0 {
		l.Grace = defaultGrace
	}
	return l
}

// Spec describes one launch. It is plain data and is not kept.
type Spec struct {
	Argv    []string          // Argv[0] is looked up in Env["PATH"] inside the sandbox unless it holds a slash
	Dir     string            // working directory as seen inside
	Env     map[string]string // the whole environment
	Mounts  []Mount           // in any order; mounted shallow first
	Hide    []string          // directories replaced by an empty read-only one; missing ones are ignored
	Protect []Protect
	Require Level // Advisory is the contract's "none"; the zero value is refused
	// Isolate asks for the isolated form where this machine has it, whatever Require
	// says; with Require Isolated it is implied. Not with Network.
	Isolate bool
	// Read lists files and directories that an isolated launch shows read-only beside
	// the mounts and the system directories. Missing ones are ignored.
	Read []string
	// Write lists existing directories that a launch without namespaces may write in, which
	// is what its mounts are to one with them. The probe makes a directory beside the first
	// and removes it. Without any such a launch has no boundary.
	Write   []string
	Network bool // keep the host's network, for no more than Gated; false gives a loopback that is up and nothing else
	// Egress lists what may be reached although the network is off: through a proxy that the
	// host runs, of which HTTP_PROXY and HTTPS_PROXY tell the command. Not with Network, and
	// refused without a network namespace. EgressHeld: nothing of it before Process.Reach says so; the
	// probe asks the proxy while it has the whole list.
	Egress     []string
	EgressHeld bool
	// Gateway opens that proxy; it is needed with Egress, whose form is its own. The room of such a proxy
	// has the whole of package net, which this one, being the child half as well, is better off without.
	Gateway func(egress []string) (Gateway, error)
	Limits  Limits
	// MergeOutput sends both streams to Result.Stdout, in the order written.
	MergeOutput bool
	off         []string // layers left out, for the tests of this room
	// thorough has the limit of processor time tried as well: to be held up takes longer than
	// the rest of the probe.
	thorough bool
	// Spare is a process made ready for this launch, or nil. It only saves time:
	// one that does not fit is left alone.
	Spare *Spare
	// Ends, if not nil, takes down the mounts and the control group after the answer.
	Ends *Ends
}

// Gateway lets some of the network through.
type Gateway interface {
	// Serve begins to serve a listening socket of the command's, which it closes. It is called
	// once, and the other methods only after it succeeded.
	Serve(l *os.File) error
	// Let lets through what list says, of what the gateway was opened with, from now on, and ends
	// what was let through before. The error is that of a list with something else in it, and then
	// nothing is let through.
	Let(list []string) error
	// Take returns what was asked for since it was called last and what came of it, bounded.
	Take() []string
	Close() // ends what is open and waits for it
}

// Boundary is what one launch established.
type Boundary struct {
	Level       Level
	DirectWrite bool   // the command could write to a protected directory
	Namespaces  bool   // own user, mount, pid, ipc and uts namespaces
	Rules       bool   // no namespaces: Landlock and a system call filter alone held
	NetworkOff  bool   // own network namespace
	Evidence    string // one sentence for the receipt
	// Bounded names what a control group bounds for the run as a whole: memory, pids,
	// cpu. What was asked for and is not in here is bounded per process or not at all. In an
	// isolated launch memory and pids were tried at a lower value, cpu in that of Prove, and all were read back.
	Bounded []string
	// Egress is what the proxy lets through; nil where there is none.
	Egress []string
	// Attempts are what was tried from inside before the command: at every protected
	// directory, at what would act for the command, and in an isolated launch against the
	// rest of the machine.
	Attempts []Attempt
}

// Record is the list of the attempts, one line each, in the order in which they were
// made. Its digest (RecordDigest) stands in Evidence.
func (b Boundary) Record() []string {
	var out []string
	for i, a := range b.Attempts {
		if i == maxRecord {
			return append(out, fmt.Sprintf("and %d more", len(b.Attempts)-i))
		}
		word := "held"
		if !a.Held {
			word = "open"
		}
		out = append(out, fmt.Sprintf("%s: %+.200q: %+.100q", word, a.Name, a.Answer))
	}
	return out
}

// maxRecord bounds a record, in lines of at most some hundred bytes.
const maxRecord = 500

// RecordDigest is the digest of the canonical form of a record, as text.
func RecordDigest(record []string) string {
	var lines []canon.Value
	for _, l := range record {
		lines = append(lines, canon.StringOf(l))
	}
	return canon.DigestText(canon.ArrayOf(lines...))
}

// Attempt is one thing that was tried from inside, with the credentials and under the
// restrictions of the command.
type Attempt struct {
	Name   string
	Held   bool   // it failed as it must
	Answer string // what the system said
}

// The layers of a launch that can be left out by a test, to see that the
// probe notices.
const (
	layerRoot        = "private root"
	layerShield      = "shields"
	layerLandlock    = "landlock"
	layerSeccomp     = "seccomp"
	layerNetwork     = "network namespace"
	layerPrivileges  = "privileges"
	layerKeyring     = "session keyring"
	layerLimits      = "limits"
	layerGroupLimits = "limits of the whole run"
	layerCgroups     = "no control group namespaces"
)

// Result is how a run ended. All processes of the run are dead and all output
// is read when it is returned, except as Evidence says for launches without
// namespaces.
type Result struct {
	Started    bool   // the program was executed
	StartError string // why not, when Started is false
	ExitCode   int    // of the main process; -1 when a signal ended it
	Signal     string // the signal's name, "" when it exited
	TimedOut   bool   // Limits.Wall ended it
	Cancelled  bool   // the context ended it
	// Lost says why it is not known how the main process ended, "" where it is: the process that
	// watched it did not live to tell. The command may have brought that about.
	Lost string
	// Leftovers names what still ran after the command had ended, and was killed, or, where
	// who watched was killed and nothing else held the run, that something may run on.
	Leftovers []string
	Stdout    []byte
	Stderr    []byte
	Truncated bool // a stream was longer than Limits.Output
	Elapsed   time.Duration
	// Egress says what the command asked the proxy for and what came of it, bounded; with
	// Process.Reach what was not said yet.
	Egress   []string
	Boundary Boundary
}

// Prove finds out by a launch of nothing much what a launch of like proves here: isolated
// where that can be had, otherwise with less. Of like it takes what bears on the level: what
// is protected, hidden, read and reached, the limits and the PATH. What the machine cannot
// give is said by the level and the evidence; an error means that it could not be tried.
func Prove(ctx context.Context, caps Caps, like Spec) (Boundary, error) {
	if !caps.Namespaces() {
		return proveRules(ctx, caps, like)
	}
	like.Argv, like.Dir, like.Require, like.Isolate, like.Spare = []string{"true"}, "/", Advisory, true, nil
	like.Env = map[string]string{"PATH": "/usr/bin:/bin"}
	like.thorough = true
	res, err := Run(ctx, caps, like)
	if !errors.Is(err, ErrUnsupported) || ctx.Err() != nil {
		return res.Boundary, err
	}
	like.Isolate, like.thorough = false, false
	less, lerr := Run(ctx, caps, like)
	if lerr != nil {
		return less.Boundary, lerr
	}
	less.Boundary.Evidence += "; isolated was tried: " + err.Error()
	return less.Boundary, nil
}

// proveRules is Prove where there are no namespaces.
func proveRules(ctx context.Context, caps Caps, like Spec) (Boundary, error) {
	like.Argv, like.Dir, like.Mounts, like.Spare = []string{"true"}, "/", nil, nil
	like.Egress = nil // who grants some of the network is refused in words
	like.Env = map[string]string{"PATH": "/usr/bin:/bin"}
	like.Require = Gated
	res, err := Run(ctx, caps, like)
	if !errors.Is(err, ErrUnsupported) || ctx.Err() != nil {
		return res.Boundary, err
	}
	like.Require = Advisory
	less, lerr := Run(ctx, caps, like)
	if lerr == nil {
		less.Boundary.Evidence += "; more was tried: " + err.Error()
	}
	return less.Boundary, lerr
}
