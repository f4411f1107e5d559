package casetest

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/aspengine/asp/provider"
)

// The attacker is this test binary, started again by the built command: once as a
// check, once as a provider. It has a table of things that nobody in a sandbox may
// get done, tries each, and says what became of it. It knows where the baits are,
// which a real one would have to guess. Nothing here is shared with the probe that
// the sandbox makes before each launch: the suite judges that one too.

const attackerWord = "casetest-attacker"

// attempt is one row of the table.
type attempt struct {
	group, name string
	// open says that an ordinary user without any sandbox gets it done. The suite
	// tries that as well: an attempt that never works proves nothing.
	open bool
	// apart: in a process of its own, because it may end whoever tries it.
	apart bool
	// try returns nil when it got what it wanted.
	try func(b *bait) error
}

// idle is the error of an attempt that has nothing to try here.
type idle string

func (i idle) Error() string { return string(i) }

// strange is a failure that no boundary explains. It counts as an escape: the call
// came through to where it failed.
type strange struct{ err error }

func (s *strange) Error() string { return "failed otherwise: " + s.err.Error() }

// refusedWith takes the errors that a boundary gives for failure, and no other.
func refusedWith(err error, want ...unix.Errno) error {
	var n unix.Errno
	if err == nil || errors.As(err, &n) && slices.Contains(want, n) {
		return err
	}
	return &strange{err}
}

// filtered is for calls that a filter has to refuse.
func filtered(err error) error { return refusedWith(err, unix.EPERM, unix.ENOSYS) }

// attempts is the whole table.
func attempts() []attempt {
	var all []attempt
	for _, g := range []struct {
		name string
		list []attempt
	}{{"files", fileAttempts()}, {"changes", changeAttempts()}, {"links", linkAttempts()}, {"processes", processAttempts()}, {"calls", callAttempts()}, {"privileges", privilegeAttempts()},
		{"system", systemAttempts()}, {"network", networkAttempts()}, {"ipc", ipcAttempts()}} {
		for i, a := range g.list {
			// The message of a finding is short.
			a.group = fmt.Sprint(g.name, 1+i/24)
			all = append(all, a)
		}
	}
	return all
}

func groups() []string {
	var out []string
	for _, a := range attempts() {
		if !slices.Contains(out, a.group) {
			out = append(out, a.group)
		}
	}
	return out
}

// outcome is a line of what the attacker says.
type outcome struct{ name, what, detail string }

const (
	held    = "held"
	escaped = "ESCAPED"
	notHere = "idle"
)

func (o outcome) String() string { return fmt.Sprintf("%s %s: %s", o.what, o.name, o.detail) }

// make tries one and says what became of it.
func (a *attempt) make(b *bait) outcome {
	o := outcome{name: a.name, what: held}
	var err error
	if a.apart && !b.Apart {
		err = a.elsewhere(b)
	} else {
		// On a thread of its own, which ends with it: credentials, filters and
		// namespaces belong to threads.
		done := make(chan error)
		go func() {
			runtime.LockOSThread()
			done <- a.try(b)
		}()
		err = <-done
	}
	var not idle
	var odd *strange
	switch {
	case err == nil:
		o.what, o.detail = escaped, "done"
	case errors.As(err, &not):
		o.what = notHere
	case errors.As(err, &odd):
		o.what = escaped
	}
	if err != nil {
		o.detail = err.Error()
		var n unix.Errno
		if errors.As(err, &n) && o.what == held {
			o.detail = unix.ErrnoName(n)
		}
	}
	o.detail = strings.Map(func(r rune) rune {
		if r < ' ' {
			return ' '
		}
		return r
	}, o.detail)
	o.detail = o.detail[:min(len(o.detail), 120)]
	return o
}

// elsewhere has a process of its own try it. One that is ended by a signal did not
// get what it wanted.
func (a *attempt) elsewhere(b *bait) error {
	c := *b
	c.Apart = true
	cmd := exec.Command("/proc/self/exe", attackerWord, "one", a.name, c.encode())
	out, err := cmd.CombinedOutput()
	for _, o := range outcomes(string(out)) {
		switch o.what {
		case held:
			return errors.New(o.detail)
		case notHere:
			return idle(o.detail)
		case escaped:
			if o.detail != "done" {
				return &strange{errors.New(o.detail)}
			}
			return nil
		}
	}
	var ended *exec.ExitError
	if errors.As(err, &ended) && !ended.Exited() {
		return fmt.Errorf("ended by %s", ended.Sys().(interface{ Signal() unix.Signal }).Signal())
	}
	return &strange{fmt.Errorf("%v: %.80s", err, out)}
}

// outcomes finds the lines of an attacker in a text.
func outcomes(text string) []outcome {
	var out []outcome
	for line := range strings.Lines(text) {
		what, rest, ok := strings.Cut(strings.TrimSpace(line), " ")
		name, detail, ok2 := strings.Cut(rest, ": ")
		if ok && ok2 && slices.Contains([]string{held, escaped, notHere}, what) {
			out = append(out, outcome{name, what, detail})
		}
	}
	return out
}

// attackerMain is the attacker's own process.
func attackerMain(args []string) int {
	if len(args) == 0 {
		return 2
	}
	switch args[0] { // those that need no bait
	case "bait":
		return baitMain(args[1:])
	case "who":
		return whoMain()
	case "linger":
		return lingerMain(args[1])
	case "hang":
		if len(args[1]) < 100 { // a check; a provider is given all of the bait
			lingerMain(args[1])
			time.Sleep(time.Hour)
		}
	}
	b := new(bait)
	if err := b.decode(args[len(args)-1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	// What is open before anything else was done is what was inherited.
	b.inherited = openDescriptors()
	switch args[0] {
	case "one":
		for _, a := range attempts() {
			if a.name == args[1] {
				fmt.Println(a.make(b))
			}
		}
		return 0
	case "check":
		// Exit status 1 makes the output a finding. There is no other way in which
		// a check could say something, and a suite that is not heard proves nothing.
		for _, a := range attempts() {
			if a.group == args[1] {
				fmt.Println(a.make(b))
			}
		}
		return 1
	case "provide", "stay", "hang":
		b.Provider = true
		p := attackingProvider(b)
		if args[0] != "provide" {
			p.Check.Run = func(ctx context.Context, _ *provider.Host, _ *provider.CheckRequest) (*provider.Report, error) {
				lingerMain(b.Token)
				if args[0] == "hang" {
					<-ctx.Done()
				}
				return &provider.Report{}, nil
			}
		}
		if err := p.Serve(context.Background(), os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 3
		}
		return 0
	case "work":
		return workMain(b)
	case "exceed":
		return exceedMain(b, args[1])
	}
	return 2
}

// attackingProvider makes each group of attempts a rule, and what became of them a finding.
func attackingProvider(b *bait) *provider.Provider {
	var rules []string
	for _, g := range groups() {
		rules = append(rules, "escape/"+g)
	}
	return &provider.Provider{ID: "escape", Version: "1", Publisher: "casetest", Profiles: []string{"core-check-provider"}, Fingerprint: "sha256:escape",
		Check: &provider.Check{Rules: rules, Run: func(_ context.Context, _ *provider.Host, _ *provider.CheckRequest) (*provider.Report, error) {
			r := &provider.Report{}
			said := map[string]string{}
			for _, a := range attempts() {
				said[a.group] += a.make(b).String() + "\n"
			}
			for _, g := range groups() { // not one each: no more than two hundred are taken
				r.Diagnostics = append(r.Diagnostics, provider.Diagnostic{Rule: "escape/" + g, Severity: provider.SeverityError, Message: said[g], Path: "x"})
			}
			return r, nil
		}}}
}

// bait says where everything is that must not be reached.
type bait struct {
	Provider bool
	Apart    bool
	Root     string // the workspace
	Home     string // the user's
	State    string
	Outside  string // a directory beside the workspace, with "secret" in it
	Lent     string // a directory that may be read
	Seen     string // one that no mode but isolated hides, "" where nobody could make it
	Dev, Ino uint64 // of the secret
	Token    string // in the arguments and the environment of the bait's process
	Pid      int    // of the bait's process
	Port     int    // of its TCP listener on the loopback
	UDP      int
	Shm      int
	Sem      int
	Msg      int

	inherited []int
}

func (b *bait) secret() string { return b.Outside + "/secret" }

// seen is a name in Seen, "" where that is not there.
func (b *bait) seen(name string) string {
	if b.Seen == "" {
		return ""
	}
	return filepath.Join(b.Seen, name)
}

// place is a directory that the attacker may write to.
func (b *bait) place() string { return os.TempDir() }

func (b *bait) encode() string {
	j, _ := json.Marshal(b)
	return base64.StdEncoding.EncodeToString(j)
}

func (b *bait) decode(s string) error {
	j, err := base64.StdEncoding.DecodeString(s)
	if err != nil {
		return err
	}
	return json.Unmarshal(j, b)
}

func openDescriptors() []int {
	var out []int
	for fd := 3; fd < 1024; fd++ {
		var st unix.Stat_t
		if unix.Fstat(fd, &st) == nil && st.Mode&unix.S_IFMT != 0 { // what the run-time system opened has no type
			out = append(out, fd)
		}
	}
	return out
}

// whoMain says with which rights it runs.
func whoMain() int {
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var c [2]unix.CapUserData
	_ = unix.Capget(&hdr, &c[0])
	fmt.Printf("euid %d egid %d caps %x%x\n", os.Geteuid(), os.Getegid(), c[1].Effective, c[0].Effective)
	return 0
}

// who asks another copy of the attacker.
func who(path string) (string, error) {
	out, err := exec.Command(path, attackerWord, "who").Output()
	return string(out), err
}

// gains tells whether executing path gives more than we have.
func gains(path string) error {
	got, err := who(path)
	if err != nil {
		return err
	}
	if want := fmt.Sprintf("euid %d egid %d caps 00\n", os.Geteuid(), os.Getegid()); got != want {
		return nil
	}
	return errors.New("no more than before")
}

// baitMain is the process of the same user outside: it holds the secret open, has
// the token in its memory, and listens where nobody may come. It says where, then
// who came, at the end of its input.
func baitMain(args []string) int {
	runtime.LockOSThread()
	b := new(bait)
	if err := b.decode(args[0]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	end, err := b.lay()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bait:", err)
		return 3
	}
	fmt.Println(b.encode())
	_, _ = bufio.NewReader(os.Stdin).ReadByte()
	_, _ = io.WriteString(os.Stdout, end())
	return 0
}
