package sandbox

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unsafe"

	"github.com/aspengine/asp/sandbox/cgroup"
	"golang.org/x/sys/unix"
)

// attempt tries from inside what an isolated command must not be able to do. It runs
// on the thread, with the credentials and under the filter that the command gets.
// Nothing that is tried would do harm if it succeeded: what is only to be refused is
// asked with arguments that the kernel refuses otherwise, by another error.
func (p *prober) attempt(r *report, b *bait, ring int) {
	if b == nil {
		return
	}
	add := func(name string, held bool, answer string) {
		r.Attempts = append(r.Attempts, Attempt{name, held, answer})
	}
	is := func(name string, err error, want ...unix.Errno) {
		n := unix.Errno(errnoOf(err))
		say := "done"
		if err != nil {
			say = unix.ErrnoName(n)
		}
		add(name, err != nil && slices.Contains(want, n), say)
	}
	for _, o := range b.Outside {
		held, say := unseen(o)
		add("read "+o.Path, held, say)
	}
	for _, a := range r.Probes {
		p.changes(a, is)
	}
	is("write where Landlock alone forbids it", os.WriteFile(trap+"/"+p.marker, nil, 0o600), unix.EACCES)
	is("write into the root", os.Mkdir("/"+p.marker, 0o700), unix.EROFS, unix.EACCES)

	is("connect to 169.254.169.254", dial(unix.AF_INET, unix.SOCK_STREAM, &unix.SockaddrInet4{Port: 80, Addr: [4]byte{169, 254, 169, 254}}), unix.ENETUNREACH)
	is("connect to an address of the internet", dial(unix.AF_INET, unix.SOCK_STREAM, &unix.SockaddrInet4{Port: 443, Addr: [4]byte{192, 0, 2, 1}}), unix.ENETUNREACH)
	for _, f := range []struct {
		name            string
		family, typ, pr int
	}{{"packet", unix.AF_PACKET, unix.SOCK_RAW, 0}, {"raw", unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP}} {
		fd, err := unix.Socket(f.family, f.typ|unix.SOCK_CLOEXEC, f.pr)
		if err == nil {
			unix.Close(fd)
		}
		is("open a "+f.name+" socket", err, unix.EAFNOSUPPORT, unix.EPERM)
	}
	tryProcesses(b, add, is)
	tryCalls(is)
	privileges(add)
	add("share the session keyring", ring != 0 && ring != b.Keyring, fmt.Sprint(ring == b.Keyring))
	p.limits(is)
	p.exceed(add, is)
}

// unseen tells whether a file of the host is out of sight. A directory of the name
// that is ours is not that one.
func unseen(o outside) (bool, string) {
	id, err := identify(o.Path)
	switch err {
	case nil:
	case unix.ENOENT, unix.EACCES, unix.ENOTDIR:
		return true, unix.ErrnoName(err.(unix.Errno))
	default:
		return false, err.Error()
	}
	if id == o.ID {
		return false, "seen"
	}
	return true, "another file"
}

// changes tries at a protected directory what creating and renaming did not show.
// Where it is writable that is a scratch copy: then the marker is changed, and the
// parent looks that nothing of it came out in the live one.
func (p *prober) changes(a probeAnswer, is func(string, error, ...unix.Errno)) {
	if a.Missing {
		return
	}
	f := filepath.Join(a.Path, p.marker)
	if a.Created {
		if os.Link(f, f+".new") == nil {
			p.made = append(p.made, f+".new")
		}
		_ = unix.Chmod(f, 0o640)
		_ = unix.Setxattr(f, "user.asp", []byte("x"), 0)
		return
	}
	var st unix.Stat_t
	if err := unix.Stat(a.Path, &st); err != nil {
		is("look at "+a.Path, err, unix.EACCES)
		return
	}
	is("chmod "+a.Path, unix.Chmod(a.Path, st.Mode&0o7777), unix.EROFS, unix.EPERM)
	is("set an attribute of "+a.Path, unix.Setxattr(a.Path, "user.asp", []byte("x"), unix.XATTR_REPLACE), unix.EROFS, unix.EACCES, unix.EPERM)
	is("set the times of "+a.Path, unix.UtimesNanoAt(unix.AT_FDCWD, a.Path, []unix.Timespec{{Nsec: unix.UTIME_OMIT}, st.Mtim}, 0), unix.EROFS, unix.EPERM, unix.EACCES)
}

func dial(family, typ int, to unix.Sockaddr) error {
	fd, err := unix.Socket(family, typ|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	// Refusals come at once; where an answer has to be waited for, nothing refused.
	_ = unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &unix.Timeval{Sec: 1})
	return unix.Connect(fd, to)
}

func tryProcesses(b *bait, add func(string, bool, string), is func(string, error, ...unix.Errno)) {
	pids, err := numericNames("/proc")
	add("see other processes", err == nil && len(pids) == 1 && pids[0] == os.Getpid(), fmt.Sprintf("%d seen", len(pids)))
	if b.Pid > 1 {
		is("signal the host's process", unix.Kill(b.Pid, 0), unix.ESRCH, unix.EPERM)
		_, err := os.Stat(fmt.Sprintf("/proc/%d", b.Pid))
		is("look at the host's process", err, unix.ENOENT)
	}
}

// tryCalls asks for what the filter has to refuse. Unfiltered each of these gives
// another error, or is harmless.
func tryCalls(is func(string, error, ...unix.Errno)) {
	for _, c := range []struct {
		name string
		nr   uintptr
		args [4]uintptr
		want unix.Errno
	}{
		{"ptrace", unix.SYS_PTRACE, [4]uintptr{unix.PTRACE_CONT, 0}, unix.EPERM},
		{"process_vm_readv", unix.SYS_PROCESS_VM_READV, [4]uintptr{uintptr(os.Getpid())}, unix.EPERM},
		{"unshare", unix.SYS_UNSHARE, [4]uintptr{1}, unix.EPERM},
		{"setns", unix.SYS_SETNS, [4]uintptr{^uintptr(0)}, unix.EPERM},
		{"clone with a user namespace", unix.SYS_CLONE, [4]uintptr{unix.CLONE_NEWUSER | unix.CLONE_FS | unix.CLONE_THREAD}, unix.EPERM},
		{"clone3", unix.SYS_CLONE3, [4]uintptr{0, 0}, unix.ENOSYS},
		{"io_setup", unix.SYS_IO_SETUP, [4]uintptr{1, 0}, unix.ENOSYS},
		{"keyctl", unix.SYS_KEYCTL, [4]uintptr{^uintptr(0)}, unix.EPERM},
		{"userfaultfd", unix.SYS_USERFAULTFD, [4]uintptr{1 << 30}, unix.EPERM},
		{"fsopen", unix.SYS_FSOPEN, [4]uintptr{0, 1 << 30}, unix.EPERM},
		{"open_tree_attr", unix.SYS_OPEN_TREE_ATTR, [4]uintptr{^uintptr(0), 0, 1 << 30}, unix.EPERM},
		{"name_to_handle_at", unix.SYS_NAME_TO_HANDLE_AT, [4]uintptr{^uintptr(0)}, unix.EPERM},
		{"ioctl TIOCSTI", unix.SYS_IOCTL, [4]uintptr{^uintptr(0), unix.TIOCSTI}, unix.EPERM},
	} {
		_, _, e := unix.RawSyscall6(c.nr, c.args[0], c.args[1], c.args[2], c.args[3], 0, 0)
		var err error
		if e != 0 {
			err = e
		}
		is(c.name, err, c.want)
	}
}

// privileges looks that the thread has none and can get none.
func privileges(add func(string, bool, string)) {
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var c [2]unix.CapUserData
	err := unix.Capget(&hdr, &c[0])
	add("have a capability", err == nil && c == [2]unix.CapUserData{}, fmt.Sprintf("%x", c[0].Effective))
	bound := 0
	for i := uintptr(0); i < 64; i++ {
		if n, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, i, 0, 0, 0); err == nil {
			bound += n
		}
	}
	add("have a capability in the bounding set", bound == 0, fmt.Sprint(bound))
	n, err := unix.PrctlRetInt(unix.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0)
	add("gain privileges by executing", err == nil && n == 1, fmt.Sprint(n))
	n, err = unix.PrctlRetInt(unix.PR_GET_SECCOMP, 0, 0, 0, 0)
	add("run without a filter", err == nil && n == unix.SECCOMP_MODE_FILTER, fmt.Sprint(n))
	n, err = unix.PrctlRetInt(unix.PR_GET_DUMPABLE, 0, 0, 0, 0)
	add("be dumped", err == nil && n == 0, fmt.Sprint(n))
}

// limits tries to exceed each limit that can be tried at little cost. Some are not on us,
// but the command takes them upon itself or is not started; here they are for a moment, to
// see that the kernel keeps them. Those of processes and of what a control group bounds are
// tried by exceed; time is not.
func (p *prober) limits(is func(string, error, ...unix.Errno)) {
	l := p.spec.Limits.withDefaults()
	if l.Files >= ownFiles {
		is("open too many descriptors", tooMany(l.Files), unix.EINVAL, unix.EMFILE)
	}
	for _, x := range lateLimits(l, true) {
		switch x.Resource {
		case unix.RLIMIT_NOFILE:
			is("open too many descriptors", p.under(x, tooMany), unix.EINVAL, unix.EMFILE)
		case unix.RLIMIT_FSIZE:
			is("make a file too big", p.under(x, tooBig), unix.EFBIG)
		case unix.RLIMIT_DATA:
			is("take too much memory", p.under(x, tooMuch), unix.ENOMEM)
		}
	}
}

// under tries what is beyond a limit while it is in force for this process.
func (p *prober) under(l rlimit, try func(n uint64) error) error {
	if p.noLimits {
		return try(l.N)
	}
	var old unix.Rlimit
	if err := unix.Getrlimit(l.Resource, &old); err != nil {
		return err
	}
	low := unix.Rlimit{Cur: min(l.N, old.Max), Max: old.Max}
	put := func(to *unix.Rlimit) unix.Errno {
		_, _, e := unix.RawSyscall6(unix.SYS_PRLIMIT64, 0, uintptr(l.Resource), uintptr(unsafe.Pointer(to)), 0, 0, 0)
		return e
	}
	if e := put(&low); e != 0 {
		return e
	}
	err := try(low.Cur)
	if e := put(&old); e != 0 {
		return e
	}
	return err
}

// tooMany makes a descriptor beyond n.
func tooMany(n uint64) error {
	fd, err := unix.FcntlInt(0, unix.F_DUPFD_CLOEXEC, int(min(n, 1<<30)))
	if err == nil {
		unix.Close(fd)
	}
	return err
}

// tooMuch asks for n bytes of memory beside what there is, by the system call alone: what
// allocates in between could be refused as well.
func tooMuch(n uint64) error {
	n = min(n, 1<<46)
	addr, _, e := unix.RawSyscall6(unix.SYS_MMAP, 0, uintptr(n), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_NORESERVE, ^uintptr(0), 0)
	if e != 0 {
		return e
	}
	_, _, _ = unix.RawSyscall(unix.SYS_MUNMAP, addr, uintptr(n), 0)
	return nil
}

// tooBig grows a file in memory beyond n bytes.
func tooBig(n uint64) error {
	if n >= 1<<62 {
		return unix.EFBIG // no file system has such files
	}
	fd, err := unix.MemfdCreate("asp", unix.MFD_CLOEXEC)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	// The error comes with a signal, which ends the process where nobody ignores it.
	var old disposition
	if e := sigaction(uintptr(unix.SIGXFSZ), &disposition{sigIgn}, &old); e != 0 {
		return e
	}
	defer sigaction(uintptr(unix.SIGXFSZ), &old, nil)
	return unix.Ftruncate(fd, int64(n)+1)
}

// lures are the parent's side of the bait.
type lures struct {
	bait           bait
	loop, abstract int // listening sockets, -1 when there is none
	problem        error
}

// foreign are places of a usual system that are never granted; those that are not
// there or lie in what is granted are left out.
var foreign = [...]string{"/root", "/home", "/var", "/srv", "/mnt", "/boot", "/sys", "/run", "/etc/shadow", "/etc/hostname", "/etc/machine-id"}

// layLures opens the sockets and, for an isolated launch, names the files.
func layLures(s *Spec, marker string) *lures {
	l := &lures{loop: -1, abstract: -1}
	l.bait = bait{Abstract: "asp" + marker, Pid: os.Getpid(), Keyring: sessionKeyring()}
	l.problem = l.listen()
	if !s.Isolate {
		return l
	}
	paths := slices.Clone(foreign[:])
	if exe, err := os.Executable(); err == nil {
		paths = append(paths, exe)
	}
	for _, t := range s.Protect {
		paths = append(paths, t.Path)
	}
	paths = slices.DeleteFunc(paths, func(p string) bool { return granted(s, p) })
	// What is to be hidden is looked for wherever it lies.
	paths = append(paths, s.Hide...)
	slices.Sort(paths)
	for _, p := range slices.Compact(paths) {
		if id, err := identify(p); err == nil {
			l.bait.Outside = append(l.bait.Outside, outside{Path: p, ID: id})
		}
	}
	return l
}

// identify names the file at path so that it is recognized through a shield, too, which
// has numbers of its own: by the time when it came to be, or where nobody keeps that,
// when it was changed.
func identify(path string) (string, error) {
	var st unix.Statx_t
	if err := unix.Statx(unix.AT_FDCWD, path, unix.AT_STATX_SYNC_AS_STAT, unix.STATX_BASIC_STATS|unix.STATX_BTIME, &st); err != nil {
		return "", err
	}
	if st.Mask&unix.STATX_BTIME != 0 {
		return fmt.Sprintf("born %d.%09d", st.Btime.Sec, st.Btime.Nsec), nil
	}
	return fmt.Sprintf("changed %d.%09d", st.Ctime.Sec, st.Ctime.Nsec), nil
}

// granted tells whether a launch may show path.
func granted(s *Spec, path string) bool {
	if SystemPath(path) {
		return true
	}
	for _, r := range s.Read {
		if inside(path, r) {
			return true
		}
	}
	for _, m := range s.Mounts {
		switch {
		case m.Kind == MountOverlay && m.Lower == m.Target && inside(path, m.Target), m.Kind != MountTmpfs && m.Source == m.Target && inside(path, m.Target),
			m.Kind == MountBindRO && path == m.Target:
			return true
		}
	}
	return len(s.Argv) > 0 && s.Argv[0] == path // a pinned program is shown
}

func (l *lures) listen() (err error) {
	open := func(fd *int, family int, at unix.Sockaddr) {
		if err != nil {
			return
		}
		if *fd, err = unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0); err != nil {
			*fd = -1
			return
		}
		if err = unix.Bind(*fd, at); err == nil {
			err = unix.Listen(*fd, 8)
		}
	}
	open(&l.loop, unix.AF_INET, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}})
	open(&l.abstract, unix.AF_UNIX, &unix.SockaddrUnix{Name: "\x00" + l.bait.Abstract})
	if err != nil {
		return err
	}
	at, err := unix.Getsockname(l.loop)
	if in, ok := at.(*unix.SockaddrInet4); ok {
		l.bait.Port = in.Port
	} else if err == nil {
		err = errors.New("the loopback has no address")
	}
	return err
}

// problems are what keeps the lures from proving anything, or that they were taken.
func (l *lures) problems() []string {
	switch {
	case l.problem != nil:
		return []string{"no listener to try: " + l.problem.Error()}
	case l.visited():
		return []string{"a socket of the host was reached"}
	}
	return nil
}

// visited tells whether somebody connected to one of ours.
func (l *lures) visited() bool {
	for _, fd := range []int{l.loop, l.abstract} {
		c, _, err := unix.Accept4(fd, unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK)
		if err == nil {
			unix.Close(c)
			return true
		}
		if err != unix.EAGAIN {
			return true // could not be asked
		}
	}
	return false
}

func (l *lures) close() {
	for _, fd := range []int{l.loop, l.abstract} {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
}

// attemptsMade is the least number of attempts of a whole probe: fewer prove nothing.
const attemptsMade = 30

// isolated raises a proven MediatedWrite to Isolated where everything that was tried
// failed, or says why not.
func (b *Boundary) isolated(s *Spec, r report, places int, bounded []string, thorough bool) {
	var broken []string
	for _, a := range r.Attempts {
		if !a.Held {
			broken = append(broken, fmt.Sprintf("%.100q: %.60s", a.Name, a.Answer))
		}
	}
	if len(r.Attempts) < attemptsMade || places == 0 {
		broken = append(broken, fmt.Sprintf("only %d attempts were made", len(r.Attempts)))
	}
	if s.Network {
		broken = append(broken, "no network namespace")
	}
	l := s.Limits
	if l.Processes > 0 && os.Geteuid() == 0 && !slices.Contains(bounded, cgroup.Pids) {
		// The kernel exempts the real root from the resource limit, whatever its
		// namespace, and nobody from that of a group.
		broken = append(broken, "nothing limits the processes of root")
	}
	switch {
	case b.Level < MediatedWrite:
	case len(broken) > 0:
		b.Evidence += "; not isolated: " + strings.Join(broken[:min(len(broken), 4)], ", ")
	default:
		b.Level = Isolated
		network := "no network"
		if len(s.Egress) > 0 {
			network = "no network but through a proxy"
		}
		b.Evidence += fmt.Sprintf("; private root, Landlock, system call filter, %s, no capability; %d attempts from inside to read %d places outside, to reach the host's sockets, processes and addresses, and to make forbidden system calls all failed", network, len(r.Reached)+len(r.Attempts), places)
		b.Evidence += "; limits " + limitsSaid(l, bounded, thorough, os.Geteuid() == 0)
	}
}

// limitsSaid tells the limits whose excess was tried and failed, those that were lowered for the
// try and then set and read back, and those that are only set. bounded are those of the control group;
// that of processor time was tried where thorough says so.
func limitsSaid(l Limits, bounded []string, thorough, root bool) string {
	in := func(c string) bool { return slices.Contains(bounded, c) }
	var tried, lowered, back, set []string
	for _, x := range []struct {
		on   bool
		to   *[]string
		name string
	}{
		{true, &tried, "descriptors"}, {l.FileSize > 0, &tried, "file size"}, {l.Memory > 0, &tried, "memory of a process"},
		{in(cgroup.Memory), &lowered, "memory of the run"}, {l.Processes > 0 && (in(cgroup.Pids) || !root), &lowered, "processes"},
		{in(cgroup.CPU) && thorough, &lowered, "processor time"}, {in(cgroup.CPU) && !thorough, &back, "processor time"},
		{true, &set, "wall clock"},
	} {
		if x.on {
			*x.to = append(*x.to, x.name)
		}
	}
	var out []string
	for _, x := range []struct {
		how   string
		names []string
	}{{"tried to exceed", tried}, {"tried to exceed lower ones, then set and read back", lowered}, {"set and read back, not tried", back}, {"set, not tried", set}} {
		if len(x.names) > 0 {
			out = append(out, x.how+": "+strings.Join(x.names, ", "))
		}
	}
	return strings.Join(out, "; ")
}
