package sandbox

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"

	"github.com/aspengine/asp/sandbox/cgroup"
	"golang.org/x/sys/unix"
)

// newGroup makes a control group for a launch. Without one a launch is killed by its pid
// namespace and bounded per process. sweep takes away what dead hosts left beside it; that is not
// needed for this launch, and done while its process comes up.
func newGroup() (g *cgroup.Group, sweep func(), err error) {
	t, err := cgroup.Find()
	if err != nil {
		return nil, nil, err
	}
	if g, err = t.New(); err != nil {
		return nil, nil, err
	}
	return g, func() { _, _ = t.Sweep() }, nil // what cannot be removed now is tried again by the next launch
}

// bound asks the group for the limits of l that it can have, and hands the child half
// the descriptors by which the command enters. It returns what is in force and why the
// rest is not. With lower they are to be tried before settle puts them in force, that of
// processor time with cpu.
func (h *half) bound(l Limits, lower, cpu bool) (enter []*os.File, held []string, why string) {
	want := cgroup.Limits{MemoryBytes: l.Memory, Processes: l.Processes, CPUPct: l.CPUPct}
	if want == (cgroup.Limits{}) {
		return nil, nil, ""
	}
	if l.Memory > 0 {
		want.MemoryBytes = max(l.Memory, minMemory)
	}
	if h.group == nil {
		return nil, nil, "no control group: " + reason(h.groupErr)
	}
	enter, have, missing, err := h.group.Bound(want)
	if err == nil && lower {
		err = h.group.Lower(cpu)
	}
	if err != nil {
		for _, f := range enter {
			f.Close()
		}
		return nil, nil, reason(err)
	}
	var no []string
	for c, err := range missing {
		no = append(no, c+": "+reason(err))
	}
	for c := range have {
		held = append(held, c)
	}
	slices.Sort(no)
	slices.Sort(held)
	return enter, held, strings.Join(no, ", ")
}

// settle puts the limits of the launch in force after they were tried, that of processor time
// with cpu, and answers for each whether the kernel counted the try and says what was set.
func (h *half) settle(held []string, cpu bool) ([]Attempt, error) {
	if len(held) == 0 {
		return nil, nil
	}
	tried := []string{cgroup.Pids, cgroup.Memory}
	if cpu {
		tried = append(tried, cgroup.CPU)
	}
	doubts, err := h.group.Settle(tried...)
	if err != nil {
		return nil, err
	}
	var out []Attempt
	for _, c := range held {
		a := Attempt{"exceed the run's limit of " + c, true, "refused, and read back"}
		if !slices.Contains(tried, c) {
			a = Attempt{"the run's limit of " + c, true, "read back"}
		}
		if d := doubts[c]; d != nil {
			a.Held, a.Answer = false, reason(d)
		}
		out = append(out, a)
	}
	return out, nil
}

// reason is the system's alone where there is one: a group's path has a random part, and
// the same launch must leave the same evidence.
func reason(err error) string {
	var n unix.Errno
	if errors.As(err, &n) {
		return n.Error()
	}
	return err.Error()
}

// pass sends descriptors over the order socket, behind the order.
func pass(socket *os.File, files []*os.File) error {
	if len(files) == 0 {
		return nil
	}
	var fds []int
	for _, f := range files {
		fds = append(fds, int(f.Fd()))
	}
	return unix.Sendmsg(int(socket.Fd()), []byte{0}, unix.UnixRights(fds...), nil, 0)
}

// take receives n descriptors that pass sent.
func take(socket, n int) ([]int, error) {
	if n == 0 {
		return nil, nil
	}
	b, oob := make([]byte, 1), make([]byte, unix.CmsgSpace(4*n))
	k, oobn, flags, _, err := unix.Recvmsg(socket, b, oob, unix.MSG_CMSG_CLOEXEC)
	if err != nil {
		return nil, err
	}
	if k != 1 || flags&unix.MSG_CTRUNC != 0 {
		return nil, errors.New("descriptors did not arrive")
	}
	list, err := unix.ParseSocketControlMessage(oob[:oobn])
	if err != nil || len(list) != 1 {
		return nil, errors.Join(errors.New("descriptors did not arrive"), err)
	}
	fds, err := unix.ParseUnixRights(&list[0])
	if err == nil && len(fds) != n {
		err = fmt.Errorf("%d descriptors arrived instead of %d", len(fds), n)
	}
	return fds, err
}

// groupsAnswer tries what control groups give here.
func groupsAnswer(h *half) Cap {
	if h.group == nil {
		return answer(h.groupErr)
	}
	enter, held, why := h.bound(Limits{Memory: minMemory, Processes: 1000, CPUPct: 100}, false, false)
	for _, f := range enter {
		f.Close()
	}
	c := Cap{Answer: Yes, Detail: "to kill by"}
	if len(held) > 0 {
		c.Detail += ", and to bound " + strings.Join(held, ", ")
	}
	if why != "" {
		c.Detail += "; not " + why
	}
	return c
}

// intoGroup lets the process be started in the group.
func intoGroup(a *syscall.SysProcAttr, g *cgroup.Group) {
	if g != nil {
		a.UseCgroupFD, a.CgroupFD = true, int(g.Init().Fd())
	}
}
