package sandbox

// ChildArg is the hidden subcommand by which an executable runs ChildMain: it
// is the only argument.
const ChildArg = "__sandbox-child"

// The parent and its child half talk over two pipes, one gob value after the
// other: not JSON, because paths, arguments and environment are bytes and need
// not be UTF-8. Both halves are the same executable, so the form has no version.

// order is what the child is told, on descriptor 3. The pipe stays open: its end
// means that the parent is gone or wants the run to end.
type order struct {
	Spec       Spec
	Namespaces bool
	Marker     string // name of the probe's file; unguessable
	Probe      *ProbeDirs
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
	Writable []string // mounts that are writable and not ours
	ProbeErr string

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
