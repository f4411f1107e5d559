package watch

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// Tree watches the directories that were added to it. Safe for concurrent use.
type Tree struct {
	o   Options
	dev uint64

	mu     sync.Mutex
	fd     int    // of the queue
	mounts int    // of the mount table: readable for exceptions when it changed
	root   string // as the mount table spells it
	table  string // its lines that matter to the tree
	byWD   map[int32]string
	byPath map[string]int32
	lost   string // for good
	buf    []byte
}

// What is heard of the names in a directory, and of the directory itself. Reads
// and opens are not asked for: a search through the tree would fill the queue.
const mask = unix.IN_MODIFY | unix.IN_ATTRIB | unix.IN_CLOSE_WRITE | unix.IN_CREATE | unix.IN_DELETE |
	unix.IN_MOVED_FROM | unix.IN_MOVED_TO | unix.IN_DELETE_SELF | unix.IN_MOVE_SELF | unix.IN_ONLYDIR

// local are the file systems on which nothing changes but by this kernel, and by
// the names that it shows.
func local(magic int64) bool {
	switch magic {
	case unix.EXT4_SUPER_MAGIC, unix.XFS_SUPER_MAGIC, unix.BTRFS_SUPER_MAGIC, unix.TMPFS_MAGIC, unix.F2FS_SUPER_MAGIC:
		return true
	}
	return false
}

// New makes a Tree without directories for the tree at root. The caller closes
// it. The errors are ErrUnsupported and those of the system, EMFILE among them:
// a user has few queues.
func New(root string, o Options) (*Tree, error) {
	var fs unix.Statfs_t
	var st unix.Stat_t
	if err := unix.Statfs(root, &fs); err != nil {
		return nil, fmt.Errorf("watch %.200q: %w", root, err)
	}
	if !local(int64(fs.Type)) {
		return nil, fmt.Errorf("watch %.200q: file system %#x: %w", root, fs.Type, ErrUnsupported)
	}
	if err := unix.Stat(root, &st); err != nil {
		return nil, fmt.Errorf("watch %.200q: %w", root, err)
	}
	if o.Limit == 0 {
		o.Limit = limit()
	}
	t := &Tree{o: o, dev: uint64(st.Dev), mounts: -1, byWD: map[int32]string{}, byPath: map[string]int32{}, buf: make([]byte, 64<<10)}
	var err error
	if t.fd, err = unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK); err != nil {
		return nil, fmt.Errorf("watch %.200q: %w", root, err)
	}
	// A file system that is mounted over a directory of the tree raises no event.
	if t.mounts, err = unix.Open(mountTable, unix.O_RDONLY|unix.O_CLOEXEC, 0); err != nil {
		t.Close()
		return nil, fmt.Errorf("watch %.200q: %w: no /proc", root, ErrUnsupported)
	}
	if root, err = filepath.EvalSymlinks(root); err == nil {
		t.root = strings.NewReplacer(" ", `\040`, "\t", `\011`, "\n", `\012`, `\`, `\134`).Replace(root)
		if t.table, err = mountsOf(t.root); err == nil {
			err = noFiles(t.table, t.root)
		}
	}
	if err != nil {
		t.Close()
		return nil, fmt.Errorf("watch %.200q: %w", root, err)
	}
	return t, nil
}

// unescaped gives a path as the mount table spells it back.
var unescaped = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)

const mountTable = "/proc/self/mountinfo"

// mountsOf returns the lines of the mount table about what lies above, at or below
// root. Others come and go on a busy machine.
func mountsOf(root string) (string, error) {
	b, err := os.ReadFile(mountTable)
	if err != nil {
		return "", err
	}
	var out []string
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		if len(f) < 5 {
			return "", errors.New("mount table cannot be read")
		}
		if at := f[4]; within(at, root) || within(root, at) {
			out = append(out, line)
		}
	}
	return strings.Join(out, ""), nil
}

// noFiles refuses a tree in which a file is mounted over a name: what is written to it
// is told where it came from, and not here.
func noFiles(table, root string) error {
	for line := range strings.Lines(table) {
		at := strings.Fields(line)[4]
		if at == root || !within(at, root) {
			continue
		}
		st, err := os.Lstat(unescaped.Replace(at))
		if err != nil || !st.IsDir() {
			return fmt.Errorf("%w: %.200q is mounted in it", ErrUnsupported, at)
		}
	}
	return nil
}

// within tells whether path is dir or lies below it.
func within(path, dir string) bool {
	return path == dir || dir == "/" || strings.HasPrefix(path, dir) && path[len(dir)] == '/'
}

// limit is half of the watches that the user may have, or few if that is not
// told.
func limit() int {
	b, err := os.ReadFile("/proc/sys/fs/inotify/max_user_watches")
	if err == nil {
		if n, err := strconv.Atoi(strings.TrimSpace(string(b))); err == nil {
			return n / 2
		}
	}
	return 4096
}

// Add watches the directory that fd is open on and path names; it is called
// before that directory is listed, so that no change falls between. One that is
// watched already stays so. After an error the tree is lost.
func (t *Tree) Add(fd int, path string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.lost != "" {
		return errors.New(t.lost)
	}
	if _, ok := t.byPath[path]; ok {
		return nil
	}
	if err := t.add(fd, path); err != nil {
		t.lost = fmt.Sprintf("watch %.200q: %v", path, err)
		return errors.New(t.lost)
	}
	return nil
}

func (t *Tree) add(fd int, path string) error {
	if len(t.byPath) >= t.o.Limit {
		return fmt.Errorf("more than %d directories", t.o.Limit)
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if uint64(st.Dev) != t.dev {
		return errors.New("another file system")
	}
	// Through the descriptor: the very directory that will be listed, whatever
	// has its name by now.
	wd, err := unix.InotifyAddWatch(t.fd, "/proc/self/fd/"+strconv.Itoa(fd), mask)
	if err != nil {
		return err
	}
	if at, ok := t.byWD[int32(wd)]; ok {
		// Moved while it was walked, or mounted twice.
		return fmt.Errorf("the same directory as %.200q", at)
	}
	t.byWD[int32(wd)], t.byPath[path] = path, int32(wd)
	return nil
}

// Drop stops watching the directory at path, and only that.
func (t *Tree) Drop(path string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	wd, ok := t.byPath[path]
	if !ok {
		return
	}
	delete(t.byPath, path)
	delete(t.byWD, wd)
	// Fails when the directory is gone, and the watch with it.
	_, _ = unix.InotifyRmWatch(t.fd, uint32(wd))
}

// Changes reads the queue to where it ended when the call began: every change
// that was made before is in what this call or an earlier one returned.
func (t *Tree) Changes() Changes {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := Changes{Dirs: map[string]struct{}{}, Trees: map[string]struct{}{}}
	if t.lost == "" {
		t.lost = t.read(&c)
	}
	c.Lost = t.lost
	return c
}

func (t *Tree) read(c *Changes) (lost string) {
	p := []unix.PollFd{{Fd: int32(t.mounts), Events: unix.POLLPRI}}
	if _, err := again(func() (int, error) { return unix.Poll(p, 0) }); err != nil {
		return "mount table: " + err.Error()
	}
	if p[0].Revents != 0 {
		now, err := mountsOf(t.root)
		if err != nil {
			return "mount table: " + err.Error()
		}
		if now != t.table {
			return "something was mounted or unmounted"
		}
	}
	left, err := unix.IoctlGetInt(t.fd, unix.TIOCINQ)
	for err == nil && left > 0 {
		var n int
		if n, err = again(func() (int, error) { return unix.Read(t.fd, t.buf) }); errors.Is(err, unix.EAGAIN) {
			return ""
		}
		if err != nil {
			break
		}
		left -= n
		if lost = t.parse(t.buf[:n], c); lost != "" {
			return lost
		}
	}
	if err != nil {
		return "read events: " + err.Error()
	}
	return ""
}

// parse reads struct inotify_event: watch, mask, cookie, length of the name (32
// bits each), the name, filled up with zeros.
func (t *Tree) parse(b []byte, c *Changes) (lost string) {
	for len(b) >= unix.SizeofInotifyEvent {
		wd, m := int32(binary.NativeEndian.Uint32(b)), binary.NativeEndian.Uint32(b[4:])
		l := int(binary.NativeEndian.Uint32(b[12:]))
		if b = b[unix.SizeofInotifyEvent:]; l > len(b) {
			return "event cut short"
		}
		name := b[:l]
		if i := bytes.IndexByte(name, 0); i >= 0 {
			name = name[:i]
		}
		b = b[l:]
		if m&unix.IN_Q_OVERFLOW != 0 {
			return "more happened than the queue holds"
		}
		dir, ok := t.byWD[wd]
		if !ok {
			continue // dropped: what is there is being listed anew
		}
		if lost = t.event(c, dir, string(name), m); lost != "" {
			return lost
		}
		if m&unix.IN_IGNORED != 0 {
			delete(t.byWD, wd)
			delete(t.byPath, dir)
		}
	}
	if len(b) > 0 {
		return "event cut short"
	}
	return ""
}

func (t *Tree) event(c *Changes, dir, name string, m uint32) (lost string) {
	path := name
	if dir != "" && name != "" {
		path = dir + "/" + name
	}
	switch {
	case m&unix.IN_UNMOUNT != 0:
		return "unmounted"
	case name == "" && m&(unix.IN_DELETE_SELF|unix.IN_MOVE_SELF|unix.IN_IGNORED) != 0:
		if dir == "" {
			return "the root was moved or removed"
		}
		// The parent hears of it too; but it may have been listed before the
		// event and be watched no more.
		c.Trees[dir] = struct{}{}
		c.Dirs[parent(dir)] = struct{}{}
	case name == "": // its own attributes
		c.Dirs[dir] = struct{}{}
	case t.o.Rules != nil && t.o.Rules(name):
		return fmt.Sprintf("rules changed in %.200q", path)
	default:
		c.Dirs[dir] = struct{}{}
		if m&unix.IN_ISDIR != 0 {
			// Made, removed, renamed, or with other permissions, which may hide or
			// show what is below.
			c.Trees[path] = struct{}{}
		}
	}
	return ""
}

func parent(path string) string {
	if i := strings.LastIndexByte(path, '/'); i >= 0 {
		return path[:i]
	}
	return ""
}

// Close releases everything. A closed tree is lost.
func (t *Tree) Close() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.fd < 0 {
		return nil
	}
	err := unix.Close(t.fd)
	if t.mounts >= 0 {
		err = errors.Join(err, unix.Close(t.mounts))
	}
	t.fd, t.mounts, t.lost = -1, -1, "closed"
	t.byWD, t.byPath = nil, nil
	return err
}

func again(f func() (int, error)) (int, error) {
	for {
		n, err := f()
		if !errors.Is(err, unix.EINTR) {
			return n, err
		}
	}
}
