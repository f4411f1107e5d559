package sandbox

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// A read-only mount keeps nobody from connecting to a socket or writing into a FIFO in it:
// what counts is the permission of the inode, and whoever listens on the host then does
// what is asked of him. So directories of the host are shown through a shield, a read-only
// overlay with nothing on top. Files in it are the host's; a socket or a FIFO is an inode
// of the overlay's own, at which nobody listens, also when it is bound while the command
// runs. Covering the sockets that /proc/net/unix names was rejected: it would miss
// those that come later, and those bound by another name.
//
// The kernel makes no overlay above a directory in which something is mounted that it
// has locked, as it has all mounts of the host. Such a directory is shown in pieces: an
// empty one, with what is in it mounted one by one.

// view collects the mounts by which directories and files of the host are shown.
type view struct {
	mounts  []mountInfo // the host's
	empty   int         // the lower half of every shield, -1 where problem says why there is none
	problem error
	bare    bool     // a test left the shields out, and tells nobody
	cgroups bool     // and namespaces of control groups
	apart   []string // paths that are not to be shown in pieces: something else comes there

	list   []placed
	shared []string // what could not be shielded
	left   []string // those of shared that would have been too many pieces
	made   map[string]bool
	bottom map[string]bool // directories of the private root itself, in which one more costs no mount
}

// maxPieces bounds the mounts of one launch: each takes a descriptor and some ten microseconds,
// and /usr/bin with a file mounted in it must not be too much.
const maxPieces = 4096

// most is maxPieces, or what there are descriptors for.
func most() int {
	var l unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &l); err != nil {
		return 500
	}
	return int(min(maxPieces, max(l.Cur, ownFiles)-ownFiles/2))
}

// noSockets are file systems in which nothing can be bound and no FIFO made: a shield,
// which some of them cannot be put before, would keep nothing out. Images (squashfs, erofs,
// iso9660) are not among them: they may hold FIFOs, which somebody may have open.
var noSockets = []string{"vfat", "msdos", "exfat", "sysfs", "cgroup", "cgroup2", "debugfs", "tracefs", "securityfs",
	"pstore", "efivarfs", "bpf", "configfs", "fusectl", "selinuxfs"}

// leftOut are file systems that are not shown: processes, through which every mount of the
// host's could be reached, and what consists of pipes, queues and terminals.
var leftOut = []string{"proc", "rpc_pipefs", "devpts", "mqueue", "nsfs"}

// newView looks where the host has mounts and makes the lower half of the shields. The
// mount that holds it goes with the host's root. Without one everything is shown as it is.
func newView(bare bool) (*view, error) {
	v := &view{empty: -1, bare: bare, made: map[string]bool{}, bottom: map[string]bool{"/": true}}
	var err error
	if v.mounts, err = readMountInfo(); err != nil {
		return nil, fail(err, "list mounts")
	}
	v.empty, v.problem = emptyDir()
	return v, nil
}

// emptyDir attaches a file system in memory, with an empty directory, one for lures, one to see them in, and
// one for what only parts are shown of.
func emptyDir() (int, error) {
	fd, err := newFS("tmpfs", unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV, "mode", "0755", "size", "64k")
	if err != nil {
		return -1, err
	}
	defer unix.Close(fd)
	// An overlay takes no layer that is not attached somewhere.
	if err := unix.MoveMount(fd, "", unix.AT_FDCWD, "/proc/sys", unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return -1, err
	}
	for _, d := range []string{"empty", "lure", "seen", "etc"} {
		if err := unix.Mkdirat(fd, d, 0o755); err != nil {
			return -1, err
		}
	}
	return unix.Openat(fd, "empty", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
}

// on is the mount that the open file fd lies in, nil where mounts lack it. The kernel is asked:
// by the paths of mounts one could be taken that another covers.
func on(mounts []mountInfo, fd int) (*mountInfo, error) {
	var st unix.Statx_t
	if err := unix.Statx(fd, "", unix.AT_EMPTY_PATH, unix.STATX_MNT_ID, &st); err != nil {
		return nil, err
	}
	if st.Mask&unix.STATX_MNT_ID == 0 {
		return nil, unix.ENOSYS
	}
	for i := range mounts {
		if mounts[i].id == st.Mnt_id {
			return &mounts[i], nil
		}
	}
	return nil, nil
}

// below lists what the host has mounted below dir.
func (v *view) below(dir string) []mountInfo {
	var out []mountInfo
	for _, m := range v.mounts {
		if m.point != dir && inside(m.point, dir) {
			out = append(out, m)
		}
	}
	return out
}

// dead tells an error of a file system that answers nobody any more: its device failed or
// went away (EIO, ENODEV, ENXIO, EUCLEAN), its server did (ESTALE, EHOSTDOWN), or the
// program that serves it (ENOTCONN, ECONNABORTED).
func dead(err error) bool {
	switch unix.Errno(errnoOf(err)) {
	case unix.EIO, unix.ENODEV, unix.ENXIO, unix.EUCLEAN, unix.ESTALE, unix.EHOSTDOWN, unix.ENOTCONN, unix.ECONNABORTED:
		return true
	}
	return false
}

// show adds what it takes to see source, with everything in it, at target. What is not
// there, or not for us, is left out, and so is a socket unless it was named. So is what
// lies on a dead file system, unless it was named: one that somebody else mounted, far
// from anything that matters here, would keep every launch from starting, or from proving
// more than that it is shown as it is.
func (v *view) show(source, target string, named bool) error {
	err := v.lookAndShow(source, target, named)
	if !named && dead(err) {
		return nil
	}
	return err
}

func (v *view) lookAndShow(source, target string, named bool) error {
	fd, err := unix.Open(source, unix.O_PATH|unix.O_CLOEXEC, 0)
	switch err {
	case nil:
	case unix.ENOENT, unix.ENOTDIR, unix.EACCES:
		return nil
	default:
		return fail(err, "open %.200q", source)
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return fail(err, "look at %.200q", source)
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		return v.bind(fd, source, target, true)
	case unix.S_IFDIR:
	default:
		if !named {
			return nil
		}
		v.shared = append(v.shared, source)
		return v.bind(fd, source, target, true)
	}
	// Mounts are known by names without links in them.
	real, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd))
	if err != nil {
		return fail(err, "find %.200q", source)
	}
	m, err := on(v.mounts, fd)
	if err != nil {
		return fail(err, "find the mount of %.200q", source)
	}
	if m == nil {
		m = &mountInfo{} // which came since: any may have sockets
	}
	switch {
	case slices.Contains(leftOut, m.fsType):
		return nil
	case slices.Contains(noSockets, m.fsType), m.fsType == "autofs" && len(v.below(real)) == 0:
		return v.plain(fd, real, target)
	case len(v.below(real)) > 0:
		return v.pieces(real, target)
	case !named && st.Nlink <= 2 && vacant(fd): // a directory in it is a link to it, on most file systems
		v.list = append(v.list, placed{target: target, bare: true}) // costs nothing
		return nil
	}
	attr := unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV | unix.MOUNT_ATTR_RDONLY
	if m.noExec {
		attr |= unix.MOUNT_ATTR_NOEXEC
	}
	shield, err := v.shield(fd, attr)
	if !named && dead(err) {
		return err
	}
	if err != nil {
		v.shared = append(v.shared, source)
		return v.bind(fd, source, target, false)
	}
	v.list = append(v.list, placed{target: target, fd: shield, must: true, label: "shield"})
	return nil
}

// wholeEtc is one shield for all of /etc, attached where it goes with the host's root, -1 where there is none: its parts are
// then shown one by one. To show a part of a shield takes a third of what a shield takes, and less than a
// file alone, since it has the attributes.
func (v *view) wholeEtc() int {
	fd, err := unix.Open("/etc", unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1
	}
	defer unix.Close(fd)
	m, err := on(v.mounts, fd)
	if err != nil || m == nil || v.bare || slices.Contains(noSockets, m.fsType) || slices.Contains(leftOut, m.fsType) || m.fsType == "autofs" || len(v.below("/etc")) > 0 {
		return -1
	}
	attr := unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV | unix.MOUNT_ATTR_RDONLY
	if m.noExec {
		attr |= unix.MOUNT_ATTR_NOEXEC
	}
	etc, err := v.shield(fd, attr)
	if err != nil {
		return -1
	}
	if err := unix.MoveMount(etc, "", unix.AT_FDCWD, "/proc/sys/etc", unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		unix.Close(etc) // older kernels take no parts of what is attached nowhere
		return -1
	}
	return etc
}

// partOf shows name, a file or a directory below the shield that is open as whole, where it lies under dir. It tells
// whether that is settled: what is no file or directory, or lies behind a link, is another's to show, and so is
// everything where whole is -1. What is not there is.
func (v *view) partOf(whole int, dir, name string) bool {
	if whole < 0 {
		return false
	}
	// A link on the way would lead out of the shield.
	fd, err := unix.Openat2(whole, name, &unix.OpenHow{Flags: unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_XDEV})
	if err != nil {
		return err == unix.ENOENT
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFREG && st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return false
	}
	part, err := unix.OpenTree(fd, "", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_EMPTY_PATH)
	if err != nil {
		return false
	}
	v.list = append(v.list, placed{target: dir + "/" + name, fd: part, file: st.Mode&unix.S_IFMT == unix.S_IFREG, must: true, label: "shield"})
	return true
}

// vacant tells whether a directory has nothing in it.
func vacant(dir int) bool {
	fd, err := unix.Openat(dir, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	f := os.NewFile(uintptr(fd), "directory")
	defer f.Close()
	_, err = f.Readdirnames(1)
	return err == io.EOF
}

func (v *view) shield(dir, attr int) (int, error) {
	if v.problem != nil {
		return -1, v.problem
	}
	if v.bare {
		fd, err := unix.OpenTree(dir, "", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_EMPTY_PATH)
		if err == nil {
			err = unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH, &unix.MountAttr{Attr_set: uint64(attr)})
		}
		return fd, err
	}
	return newFS("overlay", attr, "userxattr", "", "lowerdir", fmt.Sprintf("/proc/self/fd/%d:/proc/self/fd/%d", dir, v.empty))
}

// plain shows a directory of a file system without sockets as it is. What is mounted in it
// and may have some is covered.
func (v *view) plain(fd int, source, target string) error {
	if err := v.bind(fd, source, target, false); err != nil {
		return err
	}
	for _, m := range v.below(source) {
		if slices.Contains(noSockets, m.fsType) {
			continue
		}
		var st unix.Stat_t
		if err := unix.Stat(m.point, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFDIR {
			v.shared = append(v.shared, m.point)
			continue
		}
		if err := v.cover(target+strings.TrimPrefix(m.point, source), "hide", false); err != nil {
			return err
		}
	}
	return nil
}

// cover puts an empty read-only directory at target.
func (v *view) cover(target, label string, must bool) error {
	fd, err := newFS("tmpfs", unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV, "mode", "0755", "size", "1m")
	if err != nil {
		return fail(err, "make empty directory")
	}
	v.list = append(v.list, placed{target: target, fd: fd, hide: true, must: must, label: label})
	return nil
}

// bind shows what fd is as it is, with what the host has mounted in it: that is locked to
// it, and must come along.
func (v *view) bind(fd int, source, target string, file bool) error {
	p := placed{target: target, file: file, must: true, label: "bind"}
	var err error
	if p.fd, err = unix.OpenTree(fd, "", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_EMPTY_PATH|unix.AT_RECURSIVE); err == nil {
		attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV | unix.MOUNT_ATTR_RDONLY}
		err = unix.MountSetattr(p.fd, "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE, &attr)
	}
	if err != nil {
		return fail(err, "prepare mount of %.200q", source)
	}
	v.list = append(v.list, p)
	return nil
}

// pieces shows a directory with mounts in it: an empty one, and what is in it one by one.
func (v *view) pieces(source, target string) error {
	names, err := os.ReadDir(source)
	if err != nil && !errors.Is(err, os.ErrPermission) {
		return fail(err, "list %.200q", source)
	}
	if len(v.list)+len(names) > most() && target != "/" {
		return v.whole(source, target)
	}
	switch {
	case target == "/": // the private root is there
	case v.bottom[filepath.Dir(target)]:
		v.bottom[target] = true
		v.list = append(v.list, placed{target: target, bare: true})
	default:
		if err := v.cover(target, "directory", true); err != nil {
			return err
		}
	}
	for _, n := range names {
		from, to := filepath.Join(source, n.Name()), filepath.Join(target, n.Name())
		if slices.Contains(v.apart, to) {
			v.made[to] = n.IsDir()
			continue
		}
		switch {
		case n.IsDir() || n.Type().IsRegular():
			if err := v.show(from, to, false); err != nil {
				return err
			}
		case n.Type()&os.ModeSymlink != 0:
			if l, err := os.Readlink(from); err == nil {
				v.list = append(v.list, placed{target: to, link: l})
			}
		}
	}
	return nil
}

// whole shows a directory as it is that has mounts in it and too many names for pieces: an empty
// one, which was rejected, would take programs away. It counts as shared.
func (v *view) whole(source, target string) error {
	fd, err := unix.Open(source, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return fail(err, "open %.200q", source)
	}
	defer unix.Close(fd)
	v.shared, v.left = append(v.shared, source), append(v.left, source)
	if err := v.bind(fd, source, target, false); err != nil {
		return err
	}
	for _, m := range v.below(source) {
		if !slices.Contains(leftOut, m.fsType) {
			continue
		}
		if err := v.cover(target+strings.TrimPrefix(m.point, source), "hide", false); err != nil {
			return err
		}
	}
	return nil
}

// lure is a socket of either kind and a FIFO that somebody listens at, and the directory
// that they lie in through a shield, which is out of sight where the command is.
type lure struct {
	dir  int   // through the shield
	open []int // to be closed
}

// lay makes the lure, and sees that it answers who comes without a shield.
func (v *view) lay() (l *lure, err error) {
	l = &lure{}
	defer func() {
		if err != nil {
			l.close()
			l = nil
		}
	}()
	keep := func(fd int, err error) (int, error) {
		if err == nil {
			l.open = append(l.open, fd)
		}
		return fd, err
	}
	if v.problem != nil {
		return l, v.problem
	}
	dir, err := keep(unix.Open("/proc/sys/lure", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0))
	if err != nil {
		return l, err
	}
	for name, typ := range lureSockets {
		to := &unix.SockaddrUnix{Name: at(dir, name)}
		fd, err := keep(unix.Socket(unix.AF_UNIX, typ|unix.SOCK_CLOEXEC, 0))
		if err == nil {
			err = unix.Bind(fd, to)
		}
		if err == nil && typ == unix.SOCK_STREAM {
			err = unix.Listen(fd, 8)
		}
		if err == nil {
			err = dial(unix.AF_UNIX, typ, to)
		}
		if err != nil {
			return l, err
		}
	}
	if err := unix.Mkfifoat(dir, lureFIFO, 0o600); err != nil {
		return l, err
	}
	if _, err = keep(unix.Open(at(dir, lureFIFO), unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)); err != nil {
		return l, err
	}
	if l.dir, err = keep(v.shield(dir, unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV|unix.MOUNT_ATTR_RDONLY)); err != nil {
		return l, err
	}
	// It goes with the host's root. Attached nowhere it would have to be taken off by itself when it is
	// closed, and the kernel then waits until no processor can be in it: some milliseconds on a busy machine.
	_ = unix.MoveMount(l.dir, "", unix.AT_FDCWD, "/proc/sys/seen", unix.MOVE_MOUNT_F_EMPTY_PATH)
	return l, nil
}

var lureSockets = map[string]int{"stream": unix.SOCK_STREAM, "datagram": unix.SOCK_DGRAM}

const lureFIFO = "fifo"

func at(dir int, name string) string { return fmt.Sprintf("/proc/self/fd/%d/%s", dir, name) }

func (l *lure) close() {
	if l == nil {
		return
	}
	for _, fd := range l.open {
		unix.Close(fd)
	}
}

// reach tries from inside to get hold of what would act for the command outside: a socket
// or FIFO of a directory of the host's, a port, an abstract socket, the machine that this
// one runs on. Every launch with namespaces is let loose on that.
func (p *prober) reach(r *report, b *bait, l *lure) {
	try := func(name string, err error, want ...unix.Errno) {
		n := unix.Errno(errnoOf(err))
		say := "done"
		if err != nil {
			say = unix.ErrnoName(n)
		}
		r.Reached = append(r.Reached, Attempt{name, err != nil && slices.Contains(want, n), say})
	}
	if l == nil {
		r.Reached = append(r.Reached, Attempt{"connect to a socket by its path", false, "not tried"})
	} else {
		for _, name := range []string{"stream", "datagram"} {
			try("connect to a "+name+" socket by its path", dial(unix.AF_UNIX, lureSockets[name], &unix.SockaddrUnix{Name: at(l.dir, name)}), unix.ECONNREFUSED, unix.EACCES)
		}
		fd, err := unix.Openat(l.dir, lureFIFO, unix.O_WRONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
		if err == nil {
			unix.Close(fd)
		}
		try("write into a FIFO by its path", err, unix.ENXIO, unix.EACCES)
	}
	if b == nil {
		r.Reached = append(r.Reached, Attempt{"connect to the host's loopback", false, "not tried"})
		return
	}
	try("connect to the host's loopback", dial(unix.AF_INET, unix.SOCK_STREAM, &unix.SockaddrInet4{Port: b.Port, Addr: [4]byte{127, 0, 0, 1}}), unix.ECONNREFUSED, unix.ENETUNREACH)
	try("connect to an abstract socket", dial(unix.AF_UNIX, unix.SOCK_STREAM, &unix.SockaddrUnix{Name: "\x00" + b.Abstract}), unix.ECONNREFUSED, unix.EPERM)
	// Arguments that are refused for themselves where there is no filter.
	for _, c := range keyCalls {
		_, _, e := unix.RawSyscall6(c.nr, c.op, 0, 0, 0, 0, 0)
		try(c.name, e, unix.EPERM, unix.ENOSYS)
	}
	fd, err := unix.Socket(unix.AF_VSOCK, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err == nil {
		unix.Close(fd)
	}
	try("open a vsock socket", err, unix.EAFNOSUPPORT, unix.EPERM)
	try("own control groups", ownCgroups(), unix.ENOSPC, unix.EPERM, unix.ENOSYS)
	_, _, e := unix.RawSyscall(unix.SYS_IO_URING_SETUP, 0, 0, 0) // which opens sockets without the call for it
	try("set up io_uring", e, unix.ENOSYS, unix.EPERM)
}

// keyCalls reach the caller's keys, which outlive the command; request_key has the kernel start a program
// of the host's.
var keyCalls = []struct {
	name string
	nr   uintptr
	op   uintptr
}{{"read keys", unix.SYS_KEYCTL, ^uintptr(0)}, {"add a key", unix.SYS_ADD_KEY, 0}, {"request a key", unix.SYS_REQUEST_KEY, 0}}

// ownCgroups tries to have a process in a control group namespace of its own, as anybody may
// who makes a user namespace with it. A process that came to be cannot execute a directory.
func ownCgroups() error {
	if !cgroupNamespaces() {
		return unix.ENOSYS // the clone would ignore the flag
	}
	// Without a copy of this one's memory, which would be the most of it.
	const flags = unix.CLONE_NEWUSER | unix.CLONE_NEWCGROUP | unix.CLONE_VM | unix.CLONE_VFORK
	_, err := syscall.ForkExec("/", []string{"/"}, &syscall.ProcAttr{Sys: &syscall.SysProcAttr{Cloneflags: flags}})
	return err
}
