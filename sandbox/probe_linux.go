package sandbox

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// markerPrefix starts the names of probe files; the rest is random.
const markerPrefix = ".asp-probe-"

func newMarker() (string, error) {
	var b [16]byte
	if _, err := rand.Read(b[:]); err != nil {
		return "", err
	}
	return markerPrefix + hex.EncodeToString(b[:]), nil
}

// prober runs inside the sandbox, on the thread and with the credentials that
// start the command.
type prober struct {
	marker     string
	spec       *Spec
	namespaces bool
	noLimits   bool     // a test left them out
	groups     []int    // descriptors by which to enter control groups
	bounded    []string // what these bound
	thorough   bool     // processor time is to be tried as well
	pinned     string
	ruled      bool // no namespaces, but rules that were seen to hold
	made       []string
}

func (p *prober) run() report {
	r := report{Stage: stageProbe}
	var mounts []mountInfo
	if p.namespaces {
		var err error
		if mounts, err = readMountInfo(); err != nil {
			r.ProbeErr = err.Error()
			return r
		}
		for _, m := range mounts {
			if !m.readOnly && !p.ours(m.point) {
				r.Writable = append(r.Writable, m.point)
			}
		}
	}
	for _, t := range p.spec.Protect {
		r.Probes = append(r.Probes, p.try(t.Path, mounts))
	}
	return r
}

// ours tells whether a mount point is one of those that this launch made.
func (p *prober) ours(point string) bool {
	if p.spec.Isolate && point == trap || point == "/proc" || point == "/dev/shm" || point == "/dev/pts" {
		return true
	}
	for _, m := range p.spec.Mounts {
		if m.Target == point && m.Kind != MountBindRO {
			return true
		}
	}
	return false
}

// try writes where a protected directory is, except where nothing would stop
// the write: the live tree is never touched to find out whether it could be.
func (p *prober) try(path string, mounts []mountInfo) probeAnswer {
	a := probeAnswer{Path: path, Mount: "host"}
	if _, err := os.Stat(path); err != nil {
		a.Missing = errors.Is(err, os.ErrNotExist)
		a.Errno = errnoOf(err)
		return a
	}
	var m *mountInfo
	if fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0); err == nil {
		m, _ = on(mounts, fd)
		unix.Close(fd)
	}
	if !p.ruled && (m == nil || !m.readOnly && !p.ours(m.point)) {
		a.Access = unix.Access(path, unix.W_OK) == nil
		return a
	}
	if m != nil && p.ours(m.point) {
		a.Mount = "declared"
	}
	name, tmp := filepath.Join(path, p.marker), filepath.Join(path, p.marker+".new")
	err := os.WriteFile(tmp, []byte(p.marker), 0o600)
	if err == nil {
		p.made = append(p.made, tmp)
		err = os.Rename(tmp, name)
	}
	if err == nil {
		p.made = append(p.made, name)
		a.Created = true
	}
	a.Errno = errnoOf(err)
	return a
}

func (p *prober) cleanUp() {
	for _, f := range p.made {
		_ = os.Remove(f)
	}
}

func errnoOf(err error) int {
	var n unix.Errno
	if errors.As(err, &n) {
		return int(n)
	}
	return 0
}

func inside(path, dir string) bool {
	return path == dir || dir == "/" || strings.HasPrefix(path, dir+"/")
}

type mountInfo struct {
	id               uint64
	point, fsType    string
	readOnly, noExec bool
}

func readMountInfo() ([]mountInfo, error) {
	const file = "/proc/self/mountinfo"
	b, err := readAll(file)
	if err != nil {
		return nil, &os.PathError{Op: "read", Path: file, Err: err}
	}
	return parseMountInfo(b)
}

// readAll reads a file of the kernel's: without package os, which would make an event queue for it,
// and by as much as the kernel gives at once.
func readAll(file string) ([]byte, error) {
	fd, err := unix.Open(file, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	b := make([]byte, 0, 16<<10)
	for {
		b = slices.Grow(b, 4<<10)
		n, err := unix.Read(fd, b[len(b):cap(b)])
		if err == unix.EINTR {
			continue
		}
		if n <= 0 || err != nil {
			return b, err
		}
		b = b[:len(b)+n]
	}
}

// parseMountInfo reads mount points and their own (not the file system's) flags.
func parseMountInfo(b []byte) ([]mountInfo, error) {
	var out []mountInfo
	for line := range bytes.Lines(b) {
		f := bytes.Fields(line)
		if len(f) < 6 {
			return nil, fmt.Errorf("read mountinfo: line of %d fields", len(f))
		}
		m := mountInfo{point: unescape(string(f[4]))}
		var err error
		if m.id, err = strconv.ParseUint(string(f[0]), 10, 64); err != nil {
			return nil, fmt.Errorf("read mountinfo: number of a mount: %w", err)
		}
		for o := range strings.SplitSeq(string(f[5]), ",") {
			m.readOnly = m.readOnly || o == "ro"
			m.noExec = m.noExec || o == "noexec"
		}
		if i := slices.IndexFunc(f, func(x []byte) bool { return string(x) == "-" }); i > 0 && i+1 < len(f) {
			m.fsType = string(f[i+1])
		}
		out = append(out, m)
	}
	return out, nil
}

// unescape undoes the kernel's octal escapes for blank, tab, newline and backslash.
func unescape(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if n, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(n))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// verdict is the parent's half of the proof: it looks from outside where the
// markers are. problems are those of its lures.
func verdict(s *Spec, r report, marker string, namespaces bool, problems []string) Boundary {
	b := Boundary{Level: Advisory, Namespaces: namespaces, Rules: r.Ruled}
	answers := map[string]probeAnswer{}
	for _, a := range r.Probes {
		answers[a.Path] = a
	}
	var doubts []string
	landed, denied := 0, 0
	refusal := unix.EROFS
	if r.Ruled {
		refusal = unix.EACCES
	}
	for _, t := range s.Protect {
		a, asked := answers[t.Path]
		say := func(held bool, answer string) {
			b.Attempts = append(b.Attempts, Attempt{"write at " + t.Path, held, answer})
		}
		live, err := os.Lstat(filepath.Join(t.Path, marker))
		tmp, err2 := os.Lstat(filepath.Join(t.Path, marker+".new"))
		switch {
		case live != nil || tmp != nil:
			// The boundary is not there. The marker is ours to take away again.
			_ = os.Remove(filepath.Join(t.Path, marker))
			_ = os.Remove(filepath.Join(t.Path, marker+".new"))
			b.DirectWrite = true
			say(false, "reached it")
		case a.Access:
			b.DirectWrite = true
			say(false, "not tried: nothing is in the way")
		case !errors.Is(err, os.ErrNotExist) || !errors.Is(err2, os.ErrNotExist):
			doubts = append(doubts, fmt.Sprintf("%.200q could not be looked at", t.Path))
			say(false, "could not be looked at")
		case !asked:
			doubts = append(doubts, fmt.Sprintf("%.200q was not tried", t.Path))
			say(false, "not tried")
		case !namespaces && !r.Ruled:
			doubts = append(doubts, fmt.Sprintf("%.200q was only judged by its permissions", t.Path))
			say(false, "not tried: no permission")
		case t.Lands == "" && a.Missing, t.Lands == "" && !a.Created && unix.Errno(a.Errno) == refusal:
			denied++
			say(true, unix.ErrnoName(unix.Errno(a.Errno)))
		case t.Lands == "" && a.Created && a.Mount == "declared":
			landed++ // in a private mount that happens to have the name; the live one was looked at above
			say(true, "landed in scratch")
		case t.Lands != "" && a.Created && holds(filepath.Join(t.Lands, marker), marker):
			landed++
			say(true, "landed in scratch")
		default:
			doubts = append(doubts, fmt.Sprintf("%.200q: errno %d", t.Path, a.Errno))
			say(false, unix.ErrnoName(unix.Errno(a.Errno)))
		}
	}
	b.Attempts = append(append(b.Attempts, r.Reached...), r.Attempts...)
	if namespaces || r.Ruled {
		doubts = append(doubts, problems...)
		if len(r.Reached) == 0 {
			doubts = append(doubts, "what would act outside was not tried")
		}
		for _, a := range r.Reached {
			if !a.Held {
				doubts = append(doubts, fmt.Sprintf("%s: %.60s", a.Name, a.Answer))
			}
		}
		if len(r.Shared) > 0 {
			doubts = append(doubts, fmt.Sprintf("sockets and FIFOs of the host can be reached in %.200q", r.Shared[0]))
		}
	}
	if len(r.Writable) > 0 {
		doubts = append(doubts, fmt.Sprintf("writable mount %.200q", r.Writable[0]))
	}
	if r.ProbeErr != "" {
		doubts = append(doubts, r.ProbeErr)
	}
	if len(s.Protect) == 0 {
		doubts = append(doubts, "nothing was named to protect")
	}
	switch {
	case b.DirectWrite && namespaces:
		b.Evidence = "direct-write-risk: the probe reached a protected directory from inside the namespaces"
	case b.DirectWrite && r.Ruled:
		b.Evidence = "direct-write-risk: the probe reached a protected directory under the rules"
	case b.DirectWrite:
		b.Evidence = "direct-write-risk: no namespaces; the command ran with the caller's rights and could write to the workspace; its process group and all descendants were killed"
	case r.Ruled && len(doubts) > 0:
		b.Level = Gated
		b.Evidence = "no namespaces: Landlock and a system call filter alone hold the command, and it is not proved that nothing gets out: " + strings.Join(doubts[:min(len(doubts), 6)], "; ")
	case r.Ruled:
		b.Level = MediatedWrite
		b.Evidence = fmt.Sprintf("no namespaces: Landlock and a system call filter alone hold the command; a probe with its credentials was denied to read, to write and to change the attributes at %d protected directories, had no socket, no FIFO, no signal and no memory of the host's to get it done by, %d attempts in all; names and processes of the host can be seen", denied, len(r.Reached))
	case !namespaces:
		b.Evidence = "no namespaces: the command ran with the caller's rights; its process group and all descendants were killed"
	case len(doubts) > 0:
		b.Level = Gated
		b.Evidence = "own user, mount and pid namespaces and a read-only file system were set up, but it is not proved that nothing gets out: " + strings.Join(doubts[:min(len(doubts), 6)], "; ")
	default:
		b.Level = MediatedWrite
		b.Evidence = fmt.Sprintf("own user, mount, pid, ipc and uts namespaces; every mount but the declared ones read-only; a probe with the command's credentials wrote at %d protected directories and landed in scratch, was denied at %d, and reached no socket or FIFO of the host", landed, denied)
	}
	if !namespaces && !r.Ruled && (r.ProbeErr != "" || len(r.Reached) > 0) {
		why := r.ProbeErr
		for _, a := range r.Reached {
			if !a.Held && why == "" {
				why = a.Name + ": " + a.Answer
			}
		}
		b.Evidence += "; rules were tried, and do not hold: " + why
	}
	if len(r.Left) > 0 {
		b.Evidence += fmt.Sprintf("; shown as it is, because something is mounted in it beside too many names to show one by one: %.200q", r.Left[0])
	}
	return b
}

func holds(file, want string) bool {
	st, err := os.Lstat(file)
	if err != nil || !st.Mode().IsRegular() {
		return false
	}
	b, err := os.ReadFile(file)
	return err == nil && string(b) == want
}
