package sandbox

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"
)

// ChildArg is the hidden subcommand by which an executable becomes the child half: it
// is the only argument.
const ChildArg = "__sandbox-child"

// The parent and its child half talk over a socket and a pipe, one frame after the other:
// its length, then the fields in their order. Not JSON, because paths, arguments
// and environment are bytes and need not be UTF-8; not encoding/gob, which costs
// both halves a millisecond of every launch before it says anything. Both halves
// are the same executable, so the form has no version.

// order is what the child is told, on descriptor 3. The socket stays open: its end
// means that the parent is gone or wants the run to end.
type order struct {
	Spec       Spec
	Namespaces bool
	Rules      bool // no namespaces, but Landlock and a filter; see confine
	// PrivateRoot says that the machine can change a root.
	PrivateRoot bool
	Marker      string // name of the probe's file; unguessable
	Pinned      string // where the program of execFD is, without links; "" when there is none
	Probe       *ProbeDirs
	Bait        *bait
	Off         []string // Spec.off
	Groups      int      // descriptors that follow, by which to enter control groups
	Bounded     []string // what these bound
	Thorough    bool     // Spec.thorough
}

// bait is what a launch with a boundary is let loose on before the command.
type bait struct {
	Port     int       // of a listener on the host's loopback
	Abstract string    // name of an abstract socket of the host, without the leading NUL
	Pid      int       // the host's process
	Keyring  int       // its session keyring
	Outside  []outside // isolated launches only
}

// outside is a file or directory that must not be seen.
type outside struct {
	Path string
	ID   string // see identify
}

// go-ahead after the probe.
type goAhead struct{ Run bool }

// stage of a report.
type stage string

const (
	stageCaps  stage = "caps"  // answer to order.Probe
	stageSetup stage = "setup" // mounts or privileges could not be set up; final
	stageProbe stage = "probe" // the probe ran; the child waits for goAhead
	stageStart stage = "start" // the command runs; only Pid, as the child half sees it, is set
	stageExit  stage = "exit"  // the command ended or could not be started; final
)

// report is what the child says, on descriptor 4.
type report struct {
	Stage stage

	Caps  *Caps
	Op    string // setup: what failed
	Errno int

	Probes   []probeAnswer
	Writable []string  // mounts that are writable and not ours
	Shared   []string  // directories of the host in which its sockets and FIFOs can be reached
	Left     []string  // those of Shared that had too many names to be shown one by one
	Reached  []Attempt // at what would act for the command outside; every launch with namespaces
	Ruled    bool      // the rules of a launch without namespaces hold
	ProbeErr string
	Attempts []Attempt

	Pid       int
	Started   bool
	StartErr  string
	ExitCode  int
	Signal    string
	Leftovers []string
}

// probeAnswer is what happened at one protected path, seen from inside.
type probeAnswer struct {
	Path    string
	Mount   string // kind of what is there: "declared" (one of our mounts) or "host"
	Created bool   // the marker was written and renamed to its final name
	Errno   int    // why not
	Missing bool   // the path does not exist inside
	Access  bool   // host only: the path is writable by its permissions and mount
}

// message is a value that can be told. fields names each of its fields to the
// wire, in one order for both directions.
type message interface{ fields(w *wire) }

func (o *order) fields(w *wire) {
	o.Spec.fields(w)
	w.bool(&o.Namespaces)
	w.bool(&o.Rules)
	w.bool(&o.PrivateRoot)
	w.string(&o.Marker)
	w.string(&o.Pinned)
	if optional(w, &o.Probe) {
		w.string(&o.Probe.Lower)
		w.string(&o.Probe.Scratch)
	}
	w.strings(&o.Off)
	number(w, &o.Groups)
	w.strings(&o.Bounded)
	w.bool(&o.Thorough)
	if optional(w, &o.Bait) {
		b := o.Bait
		number(w, &b.Port)
		w.string(&b.Abstract)
		number(w, &b.Pid)
		number(w, &b.Keyring)
		list(w, &b.Outside, func(x *outside) {
			w.string(&x.Path)
			w.string(&x.ID)
		})
	}
}

func (s *Spec) fields(w *wire) {
	w.strings(&s.Argv)
	w.string(&s.Dir)
	w.stringMap(&s.Env)
	list(w, &s.Mounts, func(m *Mount) {
		number(w, &m.Kind)
		for _, p := range []*string{&m.Target, &m.Source, &m.Lower, &m.Upper, &m.Work} {
			w.string(p)
		}
	})
	w.strings(&s.Hide)
	list(w, &s.Protect, func(p *Protect) {
		w.string(&p.Path)
		w.string(&p.Lands)
	})
	number(w, &s.Require)
	w.bool(&s.Network)
	w.bool(&s.Isolate)
	w.strings(&s.Read)
	w.strings(&s.Write)
	l := &s.Limits
	for _, d := range []*time.Duration{&l.Wall, &l.Grace} {
		number(w, d)
	}
	number(w, &l.Output)
	number(w, &l.Files)
	number(w, &l.Processes)
	number(w, &l.CPUPct)
	number(w, &l.FileSize)
	number(w, &l.Memory)
	w.bool(&s.MergeOutput)
	w.strings(&s.Egress)
	w.bool(&s.EgressHeld)
}

func (g *goAhead) fields(w *wire) { w.bool(&g.Run) }

func (r *report) fields(w *wire) {
	w.string((*string)(&r.Stage))
	if optional(w, &r.Caps) {
		c := r.Caps
		for _, x := range []*Cap{&c.UserNS, &c.MountNS, &c.PIDNS, &c.NetNS, &c.ReadOnlyTree, &c.NewMounts, &c.Proc, &c.Overlay, &c.PrivateRoot, &c.Landlock, &c.Seccomp, &c.Groups} {
			number(w, &x.Answer)
			number(w, &x.Errno)
			w.string(&x.Detail)
		}
	}
	w.string(&r.Op)
	number(w, &r.Errno)
	list(w, &r.Probes, func(a *probeAnswer) {
		w.string(&a.Path)
		w.string(&a.Mount)
		w.bool(&a.Created)
		number(w, &a.Errno)
		w.bool(&a.Missing)
		w.bool(&a.Access)
	})
	w.strings(&r.Writable)
	w.strings(&r.Shared)
	w.strings(&r.Left)
	w.bool(&r.Ruled)
	w.string(&r.ProbeErr)
	for _, l := range []*[]Attempt{&r.Reached, &r.Attempts} {
		list(w, l, func(a *Attempt) {
			w.string(&a.Name)
			w.bool(&a.Held)
			w.string(&a.Answer)
		})
	}
	number(w, &r.Pid)
	w.bool(&r.Started)
	w.string(&r.StartErr)
	number(w, &r.ExitCode)
	w.string(&r.Signal)
	w.strings(&r.Leftovers)
}

// wire carries the fields of one message, to or from buf. The first error stays.
type wire struct {
	buf  []byte
	read bool
	err  error
}

// maxMessage bounds a frame: what is longer is no message of ours.
const maxMessage = 64 << 20

var errShort = errors.New("message is cut off")

// tell writes one message as one frame.
func tell(to io.Writer, m message) error {
	w := &wire{buf: make([]byte, 4, 1024)}
	m.fields(w)
	if len(w.buf) > maxMessage {
		return fmt.Errorf("message of %d bytes is too long", len(w.buf))
	}
	binary.LittleEndian.PutUint32(w.buf, uint32(len(w.buf)-4))
	_, err := to.Write(w.buf)
	return err
}

// hear reads one frame into m. It takes no byte behind it.
func hear(from io.Reader, m message) error {
	var head [4]byte
	if _, err := io.ReadFull(from, head[:]); err != nil {
		return err
	}
	n := binary.LittleEndian.Uint32(head[:])
	if n > maxMessage {
		return fmt.Errorf("message of %d bytes is too long", n)
	}
	w := &wire{buf: make([]byte, n), read: true}
	if _, err := io.ReadFull(from, w.buf); err != nil {
		return err
	}
	m.fields(w)
	if w.err == nil && len(w.buf) > 0 {
		w.err = fmt.Errorf("message has %d bytes too many", len(w.buf))
	}
	return w.err
}

// number carries any integer; a zigzag, so that -1 is short.
func number[T ~int | ~int64 | ~uint64 | ~uint8](w *wire, v *T) {
	if !w.read {
		w.buf = binary.AppendVarint(w.buf, int64(*v))
		return
	}
	x, n := binary.Varint(w.buf)
	if n <= 0 || int64(T(x)) != x {
		w.fail()
		return
	}
	*v, w.buf = T(x), w.buf[n:]
}

func (w *wire) fail() {
	if w.err == nil {
		w.err = errShort
	}
	w.buf = nil
}

func (w *wire) bool(v *bool) {
	var n uint8
	if *v {
		n = 1
	}
	number(w, &n)
	*v = n == 1
}

// length carries the number of things that follow, each at least a byte long.
func (w *wire) length(n int) int {
	number(w, &n)
	if n < 0 || w.read && n > len(w.buf) {
		w.fail()
		return 0
	}
	return n
}

func (w *wire) string(v *string) {
	n := w.length(len(*v))
	if !w.read {
		w.buf = append(w.buf, *v...)
		return
	}
	*v, w.buf = string(w.buf[:n]), w.buf[n:]
}

// list carries a slice; an empty one comes back as nil.
func list[T any](w *wire, v *[]T, each func(*T)) {
	n := w.length(len(*v))
	if w.read {
		*v = nil
		if n > 0 {
			*v = make([]T, n)
		}
	}
	for i := range *v {
		each(&(*v)[i])
	}
}

func (w *wire) strings(v *[]string) { list(w, v, w.string) }

func (w *wire) stringMap(v *map[string]string) {
	type pair struct{ k, v string }
	var pairs []pair
	for k, x := range *v {
		pairs = append(pairs, pair{k, x})
	}
	slices.SortFunc(pairs, func(a, b pair) int {
		if a.k < b.k {
			return -1
		}
		return 1
	})
	list(w, &pairs, func(p *pair) {
		w.string(&p.k)
		w.string(&p.v)
	})
	if w.read && len(pairs) > 0 {
		*v = make(map[string]string, len(pairs))
		for _, p := range pairs {
			(*v)[p.k] = p.v
		}
	}
}

// optional carries whether v is there, and tells whether its fields follow.
func optional[T any](w *wire, v **T) bool {
	there := *v != nil
	w.bool(&there)
	if there && w.read {
		*v = new(T)
	}
	return there
}
