//go:build linux

package host

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/aspengine/asp/internal/lock"
	"github.com/aspengine/asp/internal/vfs"
	"golang.org/x/sys/unix"
)

// Listen serves every harness of this user that connects to the socket at path,
// until ctx ends; then it waits for all sessions and removes the socket. The
// same requests mean the same as on a single connection; exit ends the session of
// who sends it and no other.
//
// The socket's directory must be the user's and writable by nobody else. A socket
// that a killed host left is replaced; one that a host serves is not touched:
// ErrLive. ready, if set, is called once connections are accepted.
func (h *Host) Listen(ctx context.Context, path string, ready func()) error {
	l, err := listen(ctx, path)
	if err != nil {
		return fmt.Errorf("listen on %.200q: %w", path, err)
	}
	defer l.remove()
	stop := context.AfterFunc(ctx, func() { l.Close() })
	defer stop()
	if ready != nil {
		ready()
	}
	// Whoever asks why accepting failed asks the context that closed the socket: one
	// that is derived from it may end a moment later.
	asked := ctx
	ctx, cancel := context.WithCancel(ctx)
	var sessions sync.WaitGroup
	defer sessions.Wait()
	defer cancel()
	slots := make(chan struct{}, h.o.Sessions)
	for n := 1; ; n++ {
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			return nil
		}
		c, err := l.AcceptUnix()
		if err != nil {
			if asked.Err() != nil {
				return nil
			}
			if !passing(err) {
				return fmt.Errorf("accept on %.200q: %w", path, err)
			}
			// No descriptor is left for a new session; one that ends gives one back.
			h.log.Warn("cannot accept", "error", err)
			<-slots
			if !pause(ctx) {
				return nil
			}
			continue
		}
		if uid, err := peer(c); err != nil || uid != os.Geteuid() {
			h.log.Warn("a peer was turned away", "uid", uid, "error", err)
			c.Close()
			<-slots
			continue
		}
		name := fmt.Sprintf("harness %d", n)
		sessions.Go(func() {
			defer func() { <-slots }()
			if err := h.Serve(ctx, name, c); err != nil {
				h.log.Info("a session broke off", "error", err)
			}
		})
	}
}

// passing tells whether accepting may go on after an error.
func passing(err error) bool {
	for _, e := range []error{unix.EMFILE, unix.ENFILE, unix.ENOBUFS, unix.ENOMEM, unix.ECONNABORTED} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// peer is the user at the other end, as the kernel saw it when it connected.
func peer(c *net.UnixConn) (uid int, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return -1, err
	}
	var cred *unix.Ucred
	cerr := raw.Control(func(fd uintptr) { cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	if err = errors.Join(cerr, err); err != nil {
		return -1, err
	}
	return int(cred.Uid), nil
}

// listener is a socket with the directory that it lies in.
type listener struct {
	*net.UnixListener
	dir  vfs.Dir
	name string
	at   vfs.Stat
}

// listen makes the socket. All names are resolved below one handle of the
// directory, which also carries a path of any length.
func listen(ctx context.Context, path string) (_ *listener, err error) {
	path, err = filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	dir, err := vfs.OS{}.OpenRoot(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	l := &listener{dir: dir, name: filepath.Base(path)}
	defer func() {
		if err != nil {
			dir.Close()
		}
	}()
	if err := private(dir); err != nil {
		return nil, err
	}
	// Two hosts that start at once must not both take the other's socket for a
	// dead one: looking, removing and binding are one step under this lock. It
	// lies on the directory itself, so that no lock file is left.
	unlock, err := lock.Short(ctx, dir)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if err := l.clear(ctx); err != nil {
		return nil, err
	}
	lc := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		var merr error
		// The mode of an unbound socket is that of its name: it never exists with
		// another one, not even between two calls.
		cerr := c.Control(func(fd uintptr) { merr = unix.Fchmod(int(fd), 0o600) })
		return errors.Join(cerr, merr)
	}}
	any, err := lc.Listen(ctx, "unix", l.address())
	if err != nil {
		return nil, err
	}
	l.UnixListener = any.(*net.UnixListener)
	l.SetUnlinkOnClose(false) // remove has a rule of its own
	if l.at, err = dir.Lstat(l.name); err != nil {
		return nil, errors.Join(fmt.Errorf("look at the new socket: %w", err), l.Close())
	}
	return l, nil
}

func (l *listener) address() string {
	return fmt.Sprintf("/proc/self/fd/%d/%s", l.dir.(vfs.Descriptor).Fd(), l.name)
}

// private demands a directory in which nobody else can swap the socket.
func private(dir vfs.Dir) error {
	st, err := dir.Stat()
	if err != nil {
		return err
	}
	if int(st.UID) != os.Geteuid() {
		return fmt.Errorf("the directory belongs to user %d; choose one of your own, such as $XDG_RUNTIME_DIR", st.UID)
	}
	if st.Perm&0o022 != 0 {
		return fmt.Errorf("others may write in the directory (mode %04o); choose a private one, such as $XDG_RUNTIME_DIR, or chmod go-w it", st.Perm)
	}
	return nil
}

// clear removes a socket that nobody serves. Anything else that has the name stays.
func (l *listener) clear(ctx context.Context) error {
	st, err := l.dir.Lstat(l.name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if st.Kind != vfs.KindOther {
		return errors.New("something that is no socket has the name; it is left alone")
	}
	var d net.Dialer
	c, err := d.DialContext(ctx, "unix", l.address())
	if err == nil {
		c.Close()
		return ErrLive
	}
	if !errors.Is(err, unix.ECONNREFUSED) {
		// A full backlog (EAGAIN) is a live host, too; so is whatever cannot be asked.
		return fmt.Errorf("%w, or cannot be asked: %w", ErrLive, err)
	}
	// A FIFO or a device refuses connections with the same words as a dead socket.
	var raw unix.Stat_t
	if err := unix.Fstatat(int(l.dir.(vfs.Descriptor).Fd()), l.name, &raw, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return err
	}
	if raw.Mode&unix.S_IFMT != unix.S_IFSOCK {
		return errors.New("something that is no socket has the name; it is left alone")
	}
	return l.dir.Unlink(l.name)
}

// remove ends the listener and removes the socket if it is still this one.
func (l *listener) remove() {
	l.Close()
	defer l.dir.Close()
	if st, err := l.dir.Lstat(l.name); err == nil && st.SameFile(l.at) {
		_ = l.dir.Unlink(l.name) // what cannot be removed is replaced by the next host
	}
}

// pause lets time pass before the next try; false when ctx ended.
func pause(ctx context.Context) bool {
	t := time.NewTimer(100 * time.Millisecond)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
