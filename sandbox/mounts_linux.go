package sandbox

import (
	"errors"
	"fmt"
	"os"
	"path"
	"sort"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// opError is a system call that failed, with what it was for.
type opError struct {
	op  string
	err error
}

func (e *opError) Error() string { return e.op + ": " + e.err.Error() }
func (e *opError) Unwrap() error { return e.err }

func (e *opError) errno() int {
	var n unix.Errno
	if errors.As(e.err, &n) {
		return int(n)
	}
	return 0
}

func fail(err error, format string, a ...any) error {
	if err == nil {
		return nil
	}
	return &opError{fmt.Sprintf(format, a...), err}
}

// placed is a mount that is made but not attached, or a directory to hide.
type placed struct {
	target string
	fd     int
	file   bool   // the mount is of a single file
	link   string // no mount, but a symbolic link to this
	bare   bool   // no mount, but a directory
	hide   bool   // attach only where target exists, and make it read-only afterwards
	must   bool   // attach even where the target must be made
	label  string
}

// sharedRoot gives the process the view that s describes. Order matters:
//  1. nothing done here may propagate to the host;
//  2. all sources are opened and all mounts made, detached, while everything is
//     still visible and writable (an overlay cannot be made over a read-only
//     mount);
//  3. the whole present tree becomes read-only, without devices and set-id;
//  4. the prepared mounts are attached, shallow ones first, so that what hides a
//     directory never covers what is declared inside it.
//
// Mounts inherited from the host are locked by the kernel: neither the command
// nor a further user namespace of it can detach ours to see what is below.
//
// This is for machines where the root cannot be changed. Sockets of the host can be
// connected to then, and no more than Gated is proved.
func (c *child) sharedRoot(s *Spec, pin string) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fail(err, "make mounts private")
	}
	c.shared = []string{"/"}
	v := &view{cgroups: c.off(layerCgroups)}
	if err := prepare(s, v); err != nil {
		return err
	}
	list := v.list
	if pin != "" {
		p, err := preparePinned(pin)
		if err != nil {
			return err
		}
		list = append(list, p)
	}
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NODEV | unix.MOUNT_ATTR_NOSUID}
	if err := unix.MountSetattr(unix.AT_FDCWD, "/", unix.AT_RECURSIVE, &attr); err != nil {
		return fail(err, "make file system read-only")
	}
	sort.SliceStable(list, func(i, j int) bool {
		return strings.Count(list[i].target, "/") < strings.Count(list[j].target, "/")
	})
	defer letGo(list)
	for _, p := range list {
		if err := attach(p); err != nil {
			return err
		}
	}
	if err := guardProc(); err != nil {
		return err
	}
	ro := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}
	for _, p := range list {
		if p.hide {
			// Through the descriptor of the mount itself: its path may lead to a
			// mount that was put on top of it since.
			if err := unix.MountSetattr(p.fd, "", unix.AT_EMPTY_PATH, &ro); err != nil {
				return fail(err, "make hidden %.200q read-only", p.target)
			}
		}
	}
	return nil
}

// prepare adds to v what every launch has, what is hidden, and the declared mounts.
func prepare(s *Spec, v *view) error {
	proc, err := newFS("proc", unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV|unix.MOUNT_ATTR_NOEXEC)
	if err != nil {
		return fail(err, "make own /proc")
	}
	if !v.cgroups {
		noControlGroups(proc)
	}
	v.list = append(v.list, placed{target: "/proc", fd: proc, must: true, label: "proc"})
	size := memorySize(s)
	dev, err := prepareDev(size)
	if err != nil {
		return err
	}
	v.list = append(v.list, dev...)
	for _, h := range s.Hide {
		if err := v.cover(h, "hide", v.made[h]); err != nil {
			return err
		}
	}
	for _, m := range s.Mounts {
		if m.Kind == MountBindRO && v.mounts != nil {
			if err := v.show(m.Source, m.Target, true); err != nil {
				return err
			}
			continue
		}
		p, err := prepareMount(m, size...)
		if err != nil {
			return err
		}
		v.list = append(v.list, p)
	}
	return nil
}

// memorySize bounds a file system in memory where memory is bounded at all: what is in
// it belongs to no process.
func memorySize(s *Spec) []string {
	if !s.Isolate || s.Limits.Memory == 0 {
		return nil
	}
	return []string{"size", strconv.FormatUint(max(s.Limits.Memory, minMemory), 10)}
}

func prepareMount(m Mount, size ...string) (placed, error) {
	p := placed{target: m.Target, must: true}
	var err error
	switch m.Kind {
	case MountOverlay:
		p.label = "overlay"
		p.fd, err = newOverlay(m)
	case MountBindRO, MountBindRW:
		p.label = "bind"
		flags := uint(unix.OPEN_TREE_CLONE | unix.OPEN_TREE_CLOEXEC)
		if m.Kind == MountBindRO {
			// What the host mounted below is locked to it and must come along.
			flags |= unix.AT_RECURSIVE
		}
		if p.fd, err = unix.OpenTree(unix.AT_FDCWD, m.Source, flags); err != nil {
			break
		}
		var st unix.Stat_t
		if err = unix.Fstat(p.fd, &st); err != nil {
			break
		}
		p.file = st.Mode&unix.S_IFMT != unix.S_IFDIR
		attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV}
		at := uint(unix.AT_EMPTY_PATH)
		if m.Kind == MountBindRO {
			attr.Attr_set |= unix.MOUNT_ATTR_RDONLY
			at |= unix.AT_RECURSIVE
		}
		err = unix.MountSetattr(p.fd, "", at, &attr)
	case MountTmpfs:
		p.label = "tmpfs"
		p.fd, err = newFS("tmpfs", unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV, append([]string{"mode", "0700"}, size...)...)
	default:
		err = unix.EINVAL
	}
	return p, fail(err, "prepare mount at %.200q", m.Target)
}

// preparePinned mounts the program over its own name. The mount is made from the
// name, because a descriptor of the parent belongs to another mount namespace,
// and then is the file that the parent has open, or nothing.
func preparePinned(path string) (placed, error) {
	p := placed{target: path, must: true, file: true, label: "program"}
	var err error
	if p.fd, err = unix.OpenTree(unix.AT_FDCWD, path, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return p, fail(err, "open program %.200q", path)
	}
	var st unix.Stat_t
	if err = unix.Fstat(p.fd, &st); err == nil {
		err = pinned(st)
	}
	if err != nil {
		return p, fail(err, "hold program %.200q", path)
	}
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV}
	return p, fail(unix.MountSetattr(p.fd, "", unix.AT_EMPTY_PATH, &attr), "hold program %.200q", path)
}

// newOverlay makes a detached overlay. The layers are given as descriptors: no
// character in a path can be taken for an option's separator.
func newOverlay(m Mount) (int, error) {
	var opts []string
	for _, l := range []struct{ key, dir string }{{"lowerdir", m.Lower}, {"upperdir", m.Upper}, {"workdir", m.Work}} {
		fd, err := unix.Open(l.dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			return -1, fmt.Errorf("open layer %.200q: %w", l.dir, err)
		}
		defer unix.Close(fd)
		opts = append(opts, l.key, fmt.Sprintf("/proc/self/fd/%d", fd))
	}
	// userxattr: marks in user.* attributes, which need no privilege. volatile:
	// the upper layer is thrown away, so nothing in it need reach a disk.
	for _, extra := range [][]string{{"userxattr", "", "volatile", ""}, {"userxattr", ""}} {
		fd, err := newFS("overlay", unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV, append(extra, opts...)...)
		if err == nil || !errors.Is(err, unix.EINVAL) {
			return fd, err
		}
	}
	return -1, unix.EINVAL
}

// newFS makes a detached mount of a file system; opts are key and value in turn,
// an empty value being a flag.
func newFS(typ string, attr int, opts ...string) (int, error) {
	fs, err := unix.Fsopen(typ, unix.FSOPEN_CLOEXEC)
	if err != nil {
		return -1, err
	}
	defer unix.Close(fs)
	for i := 0; i+1 < len(opts); i += 2 {
		if opts[i+1] == "" {
			err = unix.FsconfigSetFlag(fs, opts[i])
		} else {
			err = unix.FsconfigSetString(fs, opts[i], opts[i+1])
		}
		if err != nil {
			return -1, fmt.Errorf("%s option %s: %w", typ, opts[i], err)
		}
	}
	if err := unix.FsconfigCreate(fs); err != nil {
		return -1, err
	}
	return unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, attr)
}

// devices that a command may have. Everything else of the host's /dev is gone:
// the caller may be root, and then a disk could be opened by its owner without
// any capability.
var devices = [...]string{"null", "zero", "full", "random", "urandom", "tty"}

func prepareDev(size []string) ([]placed, error) {
	dev, err := newFS("tmpfs", unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NOEXEC, "mode", "0755", "size", "1m")
	if err != nil {
		return nil, fail(err, "make own /dev")
	}
	list := []placed{{target: "/dev", fd: dev, hide: true, must: true, label: "dev"}}
	for _, d := range devices {
		fd, err := unix.OpenTree(unix.AT_FDCWD, "/dev/"+d, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
		if err == unix.ENOENT {
			continue
		}
		if err != nil {
			return nil, fail(err, "keep device %s", d)
		}
		// Read-only does not keep anybody from writing to the device, only from
		// changing the host's node.
		attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NOEXEC}
		if err := unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH, &attr); err != nil {
			return nil, fail(err, "make node of device %s read-only", d)
		}
		list = append(list, placed{target: "/dev/" + d, fd: fd, file: true, must: true, label: "device"})
	}
	shm, err := newFS("tmpfs", unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV, append([]string{"mode", "1777"}, size...)...)
	if err != nil {
		return nil, fail(err, "make own /dev/shm")
	}
	list = append(list, placed{target: "/dev/shm", fd: shm, must: true, label: "tmpfs"})
	if pts, err := newFS("devpts", unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NOEXEC, "ptmxmode", "0666", "mode", "0620"); err == nil {
		list = append(list, placed{target: "/dev/pts", fd: pts, must: true, label: "devpts"})
	} // without it a command only misses terminals
	return list, nil
}

// letGo closes the descriptors of mounts that are attached.
func letGo(list []placed) {
	for _, p := range list {
		if p.link == "" && !p.bare {
			unix.Close(p.fd)
		}
	}
}

func attach(p placed) error {
	if p.link != "" {
		err := inParent(p.target, func() error { return os.Symlink(p.link, p.target) })
		if err != nil && !os.IsExist(err) {
			return fail(err, "make link %.200q", p.target)
		}
		return nil
	}
	if p.bare {
		return fail(os.MkdirAll(p.target, 0o755), "make directory %.200q", p.target)
	}
	var st unix.Stat_t
	var err error
	if p.must {
		// What is there already is told before that nothing can be made there.
		if err = makeTarget(p); errors.Is(err, unix.EEXIST) {
			err = nil
		}
	} else {
		err = unix.Stat(p.target, &st)
	}
	if p.hide && !p.must && (err == unix.ENOENT || err == unix.ENOTDIR || err == nil && st.Mode&unix.S_IFMT != unix.S_IFDIR) {
		return nil // nothing there to hide
	}
	if err != nil {
		return fail(err, "find mount point %.200q", p.target)
	}
	err = unix.MoveMount(p.fd, "", unix.AT_FDCWD, p.target, unix.MOVE_MOUNT_F_EMPTY_PATH)
	if err == unix.ENOENT && p.file && p.label == "bind" {
		return nil // the file was removed since it was opened: somebody's temporary one
	}
	if err != nil {
		return fail(err, "attach %s at %.200q", p.label, p.target)
	}
	if p.label == "dev" {
		for _, l := range [][2]string{{"/proc/self/fd", "fd"}, {"/proc/self/fd/0", "stdin"}, {"/proc/self/fd/1", "stdout"}, {"/proc/self/fd/2", "stderr"}, {"pts/ptmx", "ptmx"}} {
			if err := os.Symlink(l[0], "/dev/"+l[1]); err != nil {
				return fail(err, "link /dev/%s", l[1])
			}
		}
	}
	return nil
}

// guardProc makes everything in /proc but the processes read-only. The real root
// owns /proc/sys and its like and writes there without any capability; a core
// pattern is a command that the kernel runs. Nobody else can, and then /proc
// stays whole: a command may make namespaces of its own, which need to write
// their maps, and the kernel lets them mount a /proc only where none is covered.
// What nobody but root may read (page tables, timers and caches of the machine) is
// covered whole: root's command is to see no more than anybody's.
func guardProc() error {
	if os.Geteuid() != 0 {
		return nil
	}
	names, err := os.ReadDir("/proc")
	if err != nil {
		return fail(err, "list own /proc")
	}
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}
	for _, n := range names {
		p := "/proc/" + n.Name()
		var st unix.Stat_t
		if unix.Lstat(p, &st) != nil || n.Name()[0] >= '0' && n.Name()[0] <= '9' {
			continue
		}
		dir := st.Mode&unix.S_IFMT == unix.S_IFDIR
		source := p
		switch {
		case !dir && st.Mode&unix.S_IFMT == unix.S_IFREG && st.Mode&0o004 == 0:
			source = "/dev/null"
		case !dir && (st.Mode&unix.S_IFMT != unix.S_IFREG || st.Mode&0o222 == 0):
			continue
		}
		fd, err := unix.OpenTree(unix.AT_FDCWD, source, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
		if err == nil {
			err = unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH, &attr)
		}
		if err == nil {
			err = unix.MoveMount(fd, "", unix.AT_FDCWD, p, unix.MOVE_MOUNT_F_EMPTY_PATH)
		}
		if err != nil {
			return fail(err, "make %s read-only", p)
		}
		unix.Close(fd)
	}
	return nil
}

// makeTarget makes a mount point and the directories above it. It succeeds only
// inside our own mounts: everything else is read-only by now.
func makeTarget(p placed) error {
	return inParent(p.target, func() error {
		if !p.file {
			return unix.Mkdir(p.target, 0o755)
		}
		fd, err := unix.Open(p.target, unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0o644)
		if err != nil {
			return err
		}
		return unix.Close(fd)
	})
}

// inParent makes something at target, and the directories above it where there are none.
func inParent(target string, create func() error) error {
	err := create()
	if !errors.Is(err, unix.ENOENT) {
		return err
	}
	if err := os.MkdirAll(path.Dir(target), 0o755); err != nil {
		return err
	}
	return create()
}
