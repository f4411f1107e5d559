package sandbox

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"
)

// Where the kernel refuses namespaces, a launch is held by rules alone: Landlock for what
// is read and written, a system call filter for what Landlock has no right for. The
// command sees the host's own tree then, so what an isolated one is shown is what it may
// read, and it may write in Spec.Write. It gets no socket at all: a filter cannot tell the
// host's loopback or a socket file from another. Pairs of sockets it gets, but none that
// sends datagrams, of which each can be for another socket's path. It gets no change of
// attributes (chmod, chown, utimes, setxattr), neither by name nor by descriptor: Landlock
// has none of them among its rights, and the command's own user owns the live tree, and much
// of what may be read: the objects that a copy of a repository borrows, directories of PATH.
//
// Such a launch proves MediatedWrite at most: names, processes and sizes of the host
// can still be seen.

// confinedRules is what Landlock lets the command do.
func confinedRules(s *Spec, pinned string) []landlockRule {
	rules := []landlockRule{{"/proc", fsRead}}
	for _, d := range systemDirs {
		rules = append(rules, landlockRule{d, fsRead})
	}
	for _, f := range systemFiles {
		rules = append(rules, landlockRule{"/etc/" + f, fsRead})
	}
	for _, d := range devices {
		if d != "tty" {
			rules = append(rules, landlockRule{"/dev/" + d, fsNodes})
		}
	}
	for _, r := range append(slices.Clone(s.Read), pinned) {
		if r != "" {
			rules = append(rules, landlockRule{r, fsRead})
		}
	}
	for _, w := range s.Write {
		rules = append(rules, landlockRule{w, ^uint64(0)})
	}
	return rules
}

const ioprioWhoProcess = 1 // IOPRIO_WHO_PROCESS

// confine puts the rules on the calling thread, which has no_new_privs set. What it
// cannot do the probe says.
func (c *child) confine() {
	s := &c.order.Spec
	c.unruled = func() error {
		var err error
		if c.cage, err = layCage(s, c.order.Marker); err != nil {
			return err
		}
		abi, err := landlockABI()
		if err != nil {
			return fail(err, "ask for Landlock")
		}
		if !c.off(layerLandlock) {
			if err := landlock(confinedRules(s, c.order.Pinned)); err != nil {
				return err
			}
		}
		if auditArch == 0 {
			return errors.New("no system call table for this architecture")
		}
		if c.off(layerSeccomp) {
			return nil
		}
		return putFilter(assemble(auditArch, confinedCalls(abi, s.Network)))
	}()
}

// cage is a directory of ours that the rules do not let the command into: what is met
// in there tells whether they hold, before anything is tried at what must not be harmed.
type cage struct {
	dir  string
	in   int // the FIFO in it, open for reading
	fd   int // the file in it, open for reading
	mail int // a datagram socket in it
}

func cageDir(s *Spec, marker string) string {
	if len(s.Write) == 0 {
		return ""
	}
	return filepath.Join(filepath.Dir(s.Write[0]), marker)
}

// layCage makes it beside the first of s.Write. The parent removes it: to the child half
// it is closed by then.
func layCage(s *Spec, marker string) (*cage, error) {
	c := &cage{dir: cageDir(s, marker), in: -1, fd: -1, mail: -1}
	if c.dir == "" {
		return nil, errors.New("nothing may be written")
	}
	if err := os.Mkdir(c.dir, 0o700); err != nil {
		return nil, err
	}
	if err := os.WriteFile(c.file(), []byte("x"), 0o600); err != nil {
		return nil, err
	}
	if err := unix.Mkfifo(c.fifo(), 0o600); err != nil {
		return nil, &os.PathError{Op: "make FIFO", Path: c.fifo(), Err: err}
	}
	var err error
	if c.in, err = unix.Open(c.fifo(), unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0); err != nil {
		return nil, err
	}
	if c.fd, err = unix.Open(c.file(), unix.O_RDONLY|unix.O_CLOEXEC, 0); err != nil {
		return nil, err
	}
	if c.mail, err = unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0); err != nil {
		return nil, err
	}
	// By way of the directory's descriptor, as the path may be too long for a socket.
	dir, err := unix.Open(c.dir, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(dir)
	return c, unix.Bind(c.mail, &unix.SockaddrUnix{Name: fmt.Sprintf("/proc/self/fd/%d/mail", dir)})
}

// close is for what was left open to be tried.
func (c *cage) close() {
	for _, fd := range []int{c.in, c.fd, c.mail} {
		unix.Close(fd)
	}
}

func (c *cage) file() string { return filepath.Join(c.dir, "file") }
func (c *cage) fifo() string { return filepath.Join(c.dir, "fifo") }

// caged tries the rules in the cage, and only where all of them hold at what is protected:
// the live tree is never touched to find out whether it could be.
func (p *prober) caged(b *bait, c *cage, unruled error) report {
	r := report{Stage: stageProbe}
	try := func(name string, err error, want ...unix.Errno) bool {
		n := unix.Errno(errnoOf(err))
		say := "done"
		if err != nil {
			say = unix.ErrnoName(n)
		}
		held := err != nil && slices.Contains(want, n)
		r.Reached = append(r.Reached, Attempt{name, held, say})
		return held
	}
	if unruled != nil {
		r.ProbeErr = "the rules could not be put on: " + unruled.Error()
	} else {
		p.ruled = p.closed(c, p.spec.Write[0], try)
		c.close()
	}
	for _, t := range p.spec.Protect {
		a := p.try(t.Path, nil)
		r.Probes = append(r.Probes, a)
		if p.ruled && !a.Missing {
			fd, err := unix.Open(t.Path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
			if err == nil {
				unix.Close(fd)
			}
			try("open "+t.Path, err, unix.EACCES)
			p.changes(a, func(name string, err error, want ...unix.Errno) { try(name, err, want...) })
		}
	}
	if p.ruled {
		p.granted(try)
	}
	r.Ruled = p.ruled
	if p.ruled && b != nil {
		p.outside(b, try)
		privileges(func(name string, held bool, answer string) {
			// Whoever is no root and has no namespace cannot cut the bounding set, and gains nothing of it.
			if name != "have a capability in the bounding set" {
				r.Reached = append(r.Reached, Attempt{name, held, answer})
			}
		})
	}
	return r
}

// granted tries to change the attributes of what may be read although it is protected.
func (p *prober) granted(try func(string, error, ...unix.Errno) bool) {
	for _, path := range append(slices.Clone(p.spec.Read), p.pinned) {
		if !slices.ContainsFunc(p.spec.Protect, func(t Protect) bool { return inside(path, t.Path) }) {
			continue
		}
		var st unix.Stat_t
		fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
		if err == nil {
			if err = unix.Fstat(fd, &st); err == nil {
				err = unix.Fchmod(fd, st.Mode&0o7777)
			}
			unix.Close(fd)
		}
		try("change the attributes of "+path, err, unix.EPERM, unix.EACCES, unix.ENOENT)
	}
}

// closed tries what may not be done in the cage, and tells whether all of it failed.
func (p *prober) closed(c *cage, free string, try func(string, error, ...unix.Errno) bool) bool {
	in, out := c.file(), filepath.Join(free, p.marker)
	held := true
	for _, a := range []struct {
		name string
		do   func() error
		want []unix.Errno
	}{
		{"create where the rules forbid it", func() error { return os.WriteFile(filepath.Join(c.dir, "new"), nil, 0o600) }, []unix.Errno{unix.EACCES}},
		{"read there", func() error { _, err := os.ReadFile(in); return err }, []unix.Errno{unix.EACCES}},
		{"write there", func() error { return os.WriteFile(in, nil, 0o600) }, []unix.Errno{unix.EACCES}},
		{"truncate there", func() error { return unix.Truncate(in, 0) }, []unix.Errno{unix.EACCES, unix.EPERM}},
		{"rename there", func() error { return os.Rename(in, in+"2") }, []unix.Errno{unix.EACCES}},
		{"rename from there", func() error { return os.Rename(in, out) }, []unix.Errno{unix.EACCES, unix.EXDEV}},
		{"link from there", func() error { return os.Link(in, out) }, []unix.Errno{unix.EACCES, unix.EXDEV}},
		{"chmod there", func() error { return unix.Chmod(in, 0o644) }, []unix.Errno{unix.EPERM}},
		{"set an attribute there", func() error { return unix.Setxattr(in, "user.asp", []byte("x"), 0) }, []unix.Errno{unix.EPERM}},
		{"set times there", func() error {
			return unix.UtimesNanoAt(unix.AT_FDCWD, in, []unix.Timespec{{Sec: 1}, {Sec: 1}}, 0)
		}, []unix.Errno{unix.EPERM}},
		{"chmod a descriptor", func() error { return unix.Fchmod(c.fd, 0o644) }, []unix.Errno{unix.EPERM}},
		{"chown a descriptor", func() error { return unix.Fchown(c.fd, os.Getuid(), os.Getgid()) }, []unix.Errno{unix.EPERM}},
		{"set an attribute of a descriptor", func() error { return unix.Fsetxattr(c.fd, "user.asp", []byte("x"), 0) }, []unix.Errno{unix.EPERM}},
		{"set times of a descriptor", func() error { return unix.Futimes(c.fd, []unix.Timeval{{Sec: 1}, {Sec: 1}}) }, []unix.Errno{unix.EPERM}},
		{"set flags of a descriptor", func() error { return unix.IoctlSetPointerInt(c.fd, unix.FS_IOC_SETFLAGS, 0x40 /* FS_NODUMP_FL */) }, []unix.Errno{unix.EPERM}},
		{"send a datagram to a socket by its path", func() error { return c.send(unix.SOCK_DGRAM) }, []unix.Errno{unix.ESOCKTNOSUPPORT}},
		{"send a raw one there", func() error { return c.send(unix.SOCK_RAW) }, []unix.Errno{unix.ESOCKTNOSUPPORT}},
		{"remove there", func() error { return unix.Unlink(in) }, []unix.Errno{unix.EACCES}},
		{"write into a FIFO by its path", func() error {
			fd, err := unix.Open(c.fifo(), unix.O_WRONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
			if err == nil {
				unix.Close(fd)
			}
			return err
		}, []unix.Errno{unix.EACCES}},
	} {
		held = try(a.name, a.do(), a.want...) && held
	}
	_ = os.Remove(out)
	// Else everything above could have failed for another reason.
	err := os.WriteFile(out, nil, 0o600)
	_ = os.Remove(out)
	return held && err == nil
}

// send tries to reach the socket in the cage from a pair that is connected elsewhere.
func (c *cage) send(typ int) error {
	pair, err := unix.Socketpair(unix.AF_UNIX, typ|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(pair[0])
	defer unix.Close(pair[1])
	return unix.Sendto(pair[0], []byte("x"), unix.MSG_DONTWAIT, &unix.SockaddrUnix{Name: filepath.Join(c.dir, "mail")})
}

// outside tries to get hold of what would act for the command, and of the host's processes.
func (p *prober) outside(b *bait, try func(string, error, ...unix.Errno) bool) {
	for _, f := range []struct {
		name        string
		family, typ int
	}{
		{"unix", unix.AF_UNIX, unix.SOCK_STREAM}, {"internet", unix.AF_INET, unix.SOCK_STREAM}, {"datagram", unix.AF_INET6, unix.SOCK_DGRAM},
		{"netlink", unix.AF_NETLINK, unix.SOCK_RAW}, {"packet", unix.AF_PACKET, unix.SOCK_RAW}, {"vsock", unix.AF_VSOCK, unix.SOCK_STREAM},
	} {
		fd, err := unix.Socket(f.family, f.typ|unix.SOCK_CLOEXEC, 0)
		if err == nil {
			unix.Close(fd)
		}
		try("open a "+f.name+" socket", err, unix.EAFNOSUPPORT)
	}
	try("signal the host's process", unix.Kill(b.Pid, 0), unix.EPERM)
	_, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", b.Pid))
	try("read the environment of the host's process", err, unix.EACCES, unix.EPERM)
	_, err = os.ReadDir(fmt.Sprintf("/proc/%d/root/", b.Pid))
	try("enter the root of the host's process", err, unix.EACCES, unix.EPERM)
	try("open the memory of the host's process", os.WriteFile(fmt.Sprintf("/proc/%d/mem", b.Pid), nil, 0), unix.EACCES)
	// Arguments that are refused for themselves where there is no filter.
	for _, c := range append(slices.Clone(keyCalls), []struct {
		name string
		nr   uintptr
		op   uintptr
	}{
		{"trace", unix.SYS_PTRACE, unix.PTRACE_CONT}, {"process_vm_writev", unix.SYS_PROCESS_VM_WRITEV, uintptr(os.Getpid())},
		{"limit another process", unix.SYS_PRLIMIT64, uintptr(b.Pid)}, {"schedule another process", unix.SYS_SCHED_SETSCHEDULER, uintptr(b.Pid)},
		{"set its parameters", unix.SYS_SCHED_SETPARAM, uintptr(b.Pid)}, {"set its attributes", unix.SYS_SCHED_SETATTR, uintptr(b.Pid)},
		{"set its processors", unix.SYS_SCHED_SETAFFINITY, uintptr(b.Pid)},
		{"set the priority of more than a process", unix.SYS_SETPRIORITY, ^uintptr(0)}, {"set the disk priority of more than a process", unix.SYS_IOPRIO_SET, ^uintptr(0)}, {"share memory", sharedMemory, ^uintptr(0)}, {"open a message queue", unix.SYS_MQ_OPEN, 0},
	}...) {
		_, _, e := unix.RawSyscall6(c.nr, c.op, 0, 0, 0, 0, 0)
		try(c.name, e, unix.EPERM)
	}
	// The priority that it has, and a class that there is not.
	raw, err := unix.Getpriority(unix.PRIO_PROCESS, b.Pid)
	if err == nil {
		err = unix.Setpriority(unix.PRIO_PROCESS, b.Pid, 20-raw)
	}
	try("set the priority of the host's process", err, unix.EPERM)
	_, _, e := unix.RawSyscall(unix.SYS_IOPRIO_SET, ioprioWhoProcess, uintptr(b.Pid), 7<<13)
	try("set the disk priority of the host's process", e, unix.EPERM)
	try("own namespaces", ownCgroups(), unix.EPERM, unix.ENOSYS)
	_, _, e = unix.RawSyscall(unix.SYS_IO_URING_SETUP, 0, 0, 0)
	try("set up io_uring", e, unix.ENOSYS)
}
