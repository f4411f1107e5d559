package casetest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// sees is nil when path can be opened.
func sees(path string) error {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	return unix.Close(fd)
}

// reads is nil when something can be read.
func reads(path string) error {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	n, err := unix.Read(fd, make([]byte, 16))
	if err == nil && n == 0 {
		return errors.New("empty")
	}
	return err
}

// writes is nil when a file can be made in dir.
func writes(dir string) error {
	p := filepath.Join(dir, "escaped")
	fd, err := unix.Open(p, unix.O_WRONLY|unix.O_CREAT|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	unix.Close(fd)
	return nil // and it stays, for whoever looks afterwards
}

// rewrites is nil when path can be opened for writing. Nothing is written.
func rewrites(path string) error {
	fd, err := unix.Open(path, unix.O_WRONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	return unix.Close(fd)
}

// anyOf is nil when one of them is.
func anyOf(tries ...func() error) error {
	var last error
	for _, f := range tries {
		if last = f(); last == nil {
			return nil
		}
	}
	return last
}

func numbers(dir string) []int {
	var out []int
	es, _ := os.ReadDir(dir)
	for _, e := range es {
		if n, err := strconv.Atoi(e.Name()); err == nil {
			out = append(out, n)
		}
	}
	return out
}

var ups = strings.Repeat("/..", 40)

func fileAttempts() []attempt {
	return []attempt{
		{name: "read-outside", open: true, try: func(b *bait) error { return sees(b.secret()) }},
		{name: "list-outside", open: true, try: func(b *bait) error { return sees(b.Outside) }},
		{name: "write-outside", open: true, try: func(b *bait) error { return writes(b.Outside) }},
		{name: "rename-outside", open: true, try: func(b *bait) error { return os.Rename(b.Outside+"/movable", b.Outside+"/moved") }},
		{name: "read-home", open: true, try: func(b *bait) error { return sees(b.Home + "/.ssh/id") }},
		{name: "write-home", open: true, try: func(b *bait) error { return writes(b.Home) }},
		{name: "read-state", open: true, try: func(b *bait) error { return sees(b.State + "/config.json") }},
		{name: "write-state", open: true, try: func(b *bait) error { return writes(b.State) }},
		{name: "read-siblings", open: true, try: func(b *bait) error {
			es, err := os.ReadDir(filepath.Dir(b.Root))
			if err == nil && len(es) <= 1 {
				return errors.New("nothing but the workspace") // whose mount point it is
			}
			return err
		}},
		{name: "read-shadow", try: func(*bait) error { return sees("/etc/shadow") }},
		{name: "see-host-places", open: true, try: func(*bait) error {
			return anyOf(func() error { return sees("/var/lib") }, func() error { return sees("/sys/kernel") }, func() error { return sees("/etc/fstab") })
		}},
		{name: "write-usr", try: func(*bait) error { return writes("/usr") }},
		{name: "write-etc", try: func(*bait) error { return writes("/etc") }},
		{name: "write-root", try: func(*bait) error { return writes("/") }},
		{name: "times-of-usr", try: func(*bait) error {
			return unix.UtimesNanoAt(unix.AT_FDCWD, "/usr", []unix.Timespec{{Nsec: unix.UTIME_NOW}, {Nsec: unix.UTIME_OMIT}}, 0)
		}},
		{name: "attribute-of-usr", try: func(*bait) error { return unix.Setxattr("/usr", "user.escaped", []byte("x"), 0) }},
		{name: "chmod-usr", try: func(*bait) error { return os.Chmod("/usr", 0o755) }},
		{name: "chmod-dev-null", try: func(*bait) error { return os.Chmod("/dev/null", 0o666) }},
		{name: "inotify-outside", open: true, try: func(b *bait) error {
			fd, err := unix.InotifyInit1(unix.IN_CLOEXEC)
			if err != nil {
				return err
			}
			defer unix.Close(fd)
			_, err = unix.InotifyAddWatch(fd, b.Outside, unix.IN_ALL_EVENTS)
			return err
		}},
		{name: "flock-outside", open: true, try: func(b *bait) error {
			fd, err := unix.Open(b.secret(), unix.O_RDONLY|unix.O_CLOEXEC, 0)
			if err != nil {
				return err
			}
			defer unix.Close(fd)
			return unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB)
		}},
		{name: "lock-state", open: true, try: func(b *bait) error {
			fd, err := unix.Open(b.State, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
			if err != nil {
				return err
			}
			return unix.Close(fd)
		}},
		{name: "make-block-device", try: func(b *bait) error { return unix.Mknod(b.place()+"/blk", unix.S_IFBLK|0o600, int(unix.Mkdev(1, 1))) }},
		{name: "make-memory-device", try: func(b *bait) error { return unix.Mknod(b.place()+"/mem", unix.S_IFCHR|0o600, int(unix.Mkdev(1, 1))) }},
		{name: "open-memory-device", try: func(*bait) error {
			return anyOf(func() error { return sees("/dev/mem") }, func() error { return sees("/dev/kmem") }, func() error { return sees("/dev/port") })
		}},
		{name: "open-disk", try: func(*bait) error {
			return anyOf(func() error { return sees("/dev/vda") }, func() error { return sees("/dev/sda") }, func() error { return sees("/dev/nvme0n1") }, func() error { return sees("/dev/loop-control") })
		}},
		{name: "open-kvm-or-fuse", try: func(*bait) error {
			return anyOf(func() error { return rewrites("/dev/kvm") }, func() error { return rewrites("/dev/fuse") }, func() error { return rewrites("/dev/net/tun") }, func() error { return rewrites("/dev/uinput") })
		}},
	}
}

// changeAttempts change what lies outside, in ways that leave it as it is.
func changeAttempts() []attempt {
	var out []attempt
	add := func(name string, open bool, try func(b *bait) error) {
		out = append(out, attempt{name: name, open: open, try: try})
	}
	for _, place := range []struct {
		name string
		path func(b *bait) string
	}{{"outside", (*bait).secret}, {"state", func(b *bait) string { return b.State + "/config.json" }}, {"home", func(b *bait) string { return b.Home + "/.ssh/id" }}, {"seen", func(b *bait) string { return b.seen("secret") }}} {
		at := func(f func(path string) error) func(b *bait) error {
			return func(b *bait) error {
				p := place.path(b)
				if p == "" {
					return idle("only root can make it")
				}
				return f(p)
			}
		}
		add("chmod-"+place.name, true, at(func(p string) error { return unix.Chmod(p, 0o600) }))
		add("chown-"+place.name, true, at(func(p string) error { return unix.Chown(p, os.Geteuid(), -1) }))
		add("truncate-"+place.name, true, at(func(p string) error {
			var st unix.Stat_t
			if err := unix.Stat(p, &st); err != nil {
				return err
			}
			return unix.Truncate(p, st.Size)
		}))
		add("append-"+place.name, true, at(rewrites))
		add("times-"+place.name, true, at(func(p string) error {
			return unix.UtimesNanoAt(unix.AT_FDCWD, p, []unix.Timespec{{Nsec: unix.UTIME_NOW}, {Nsec: unix.UTIME_OMIT}}, 0)
		}))
		// Not every file system has them.
		add("attribute-of-"+place.name, false, at(func(p string) error { return unix.Setxattr(p, "user.escaped", []byte("x"), 0) }))
		add("move-"+place.name, true, at(func(p string) error { return unix.Rename(p, p+"-moved") }))
		add("move-back-"+place.name, true, at(func(p string) error { return unix.Rename(p+"-moved", p) }))
		add("link-beside-"+place.name, true, at(func(p string) error { return errors.Join(unix.Link(p, p+"-linked"), unix.Unlink(p+"-linked")) }))
		add("symbolic-link-beside-"+place.name, true, at(func(p string) error { return errors.Join(unix.Symlink("x", p+"-link"), unix.Unlink(p+"-link")) }))
		add("directory-beside-"+place.name, true, at(func(p string) error { return errors.Join(unix.Mkdir(p+"-dir", 0o700), unix.Rmdir(p+"-dir")) }))
		add("fifo-beside-"+place.name, true, at(func(p string) error { return errors.Join(unix.Mkfifo(p+"-fifo", 0o600), unix.Unlink(p+"-fifo")) }))
	}
	return append(out, attempt{name: "host-var-tmp", open: true, try: func(b *bait) error { return sees("/var/tmp/" + b.Token) }},
		attempt{name: "host-tmp", open: true, try: func(b *bait) error { return sees("/tmp/" + b.Token) }},
		attempt{name: "own-control-groups", try: func(*bait) error {
			cmd := exec.Command("/usr/bin/true")
			cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWUSER | unix.CLONE_NEWCGROUP, UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}}}
			return refusedWith(cmd.Run(), unix.EPERM, unix.ENOSYS, unix.ENOSPC)
		}},
		attempt{name: "mount-control-groups", try: func(b *bait) error {
			// Version 1 belongs to the real root, whoever mounts it.
			script := "mount -t cgroup -o pids none " + b.place() + " && ls " + b.place() + "/cgroup.procs"
			if out, err := exec.Command("unshare", "-UrmC", "sh", "-c", script).CombinedOutput(); err != nil {
				return fmt.Errorf("%v: %.60s", err, out)
			}
			return nil
		}})
}

func linkAttempts() []attempt {
	return []attempt{
		{name: "root-of-init", try: func(b *bait) error { return sees("/proc/1/root" + b.secret()) }},
		{name: "cwd-of-init", try: func(b *bait) error { return sees("/proc/1/cwd" + ups + b.secret()) }},
		{name: "exe-of-init", try: func(*bait) error { return rewrites("/proc/1/exe") }},
		{name: "own-root-and-up", open: true, try: func(b *bait) error { return sees("/proc/self/root" + ups + b.secret()) }},
		{name: "own-cwd-and-up", open: true, try: func(b *bait) error { return sees("/proc/self/cwd" + ups + b.secret()) }},
		{name: "thread-root", open: true, try: func(b *bait) error { return sees("/proc/thread-self/root" + b.secret()) }},
		{name: "root-of-host-process", open: true, try: func(b *bait) error { return sees(fmt.Sprintf("/proc/%d/root%s", b.Pid, b.secret())) }},
		{name: "root-of-any-process", open: true, try: func(b *bait) error {
			for _, p := range numbers("/proc") {
				if sees(fmt.Sprintf("/proc/%d/root%s", p, b.secret())) == nil {
					return nil
				}
			}
			return unix.ENOENT
		}},
		{name: "descriptor-of-any-process", open: true, try: func(b *bait) error {
			for _, p := range numbers("/proc") {
				dir := fmt.Sprintf("/proc/%d/fd", p)
				for _, fd := range numbers(dir) {
					var st unix.Stat_t
					if unix.Stat(fmt.Sprintf("%s/%d", dir, fd), &st) == nil && uint64(st.Dev) == b.Dev && st.Ino == b.Ino {
						return nil
					}
				}
			}
			return unix.ENOENT
		}},
		{name: "descriptor-of-init", try: func(*bait) error {
			return anyOf(func() error { return sees("/proc/1/fd/3") }, func() error { return sees("/proc/1/fd/4") }, func() error { return rewrites("/proc/1/fd/3") }, func() error { return sees("/proc/1/fdinfo") })
		}},
		{name: "inherited-descriptor", try: func(b *bait) error {
			if b.Apart || len(b.inherited) == 0 {
				return errors.New("none but 0 to 2")
			}
			return nil
		}},
		{name: "working-directory-outside", open: true, try: func(b *bait) error {
			defer func(d string, err error) { _ = os.Chdir(d) }(os.Getwd())
			return os.Chdir(b.Outside)
		}},
		{name: "link-in-the-tree", try: func(b *bait) error {
			if b.Provider {
				return sees(b.Root)
			}
			return sees(b.Root + "/link")
		}},
		{name: "directory-link-in-the-tree", try: func(b *bait) error {
			if b.Provider {
				return sees(b.Root + "/linkdir/")
			}
			return writes(b.Root + "/linkdir")
		}},
		{name: "made-link", open: true, try: func(b *bait) error {
			l := b.place() + "/made-link"
			_ = os.Remove(l)
			if err := os.Symlink(b.secret(), l); err != nil {
				return &strange{err}
			}
			return sees(l)
		}},
		{name: "made-magic-link", try: func(b *bait) error {
			l := b.place() + "/made-magic"
			_ = os.Remove(l)
			if err := os.Symlink("/proc/1/root", l); err != nil {
				return &strange{err}
			}
			return sees(l + b.secret())
		}},
		{name: "hard-link-outside", open: true, try: func(b *bait) error {
			p := b.Outside + "/second-name"
			if b.Outside == "" {
				p = b.place() + "/second-name"
			}
			return os.Link(b.secret(), p)
		}},
		{name: "hard-link-of-usr", try: func(b *bait) error { return os.Link("/usr/bin/env", b.place()+"/env") }},
		{name: "write-lent", try: func(b *bait) error {
			// A check has it as a throw-away overlay: there it is the host that looks.
			if err := writes(b.Lent); err != nil {
				return err
			}
			if b.Provider {
				return nil
			}
			return errors.New("into its own copy")
		}},
		{name: "file-handle", try: func(b *bait) error {
			_, _, err := unix.NameToHandleAt(unix.AT_FDCWD, "/", 0)
			return filtered(err)
		}},
		{name: "open-by-handle", try: func(*bait) error {
			fd, err := unix.OpenByHandleAt(unix.AT_FDCWD, unix.NewFileHandle(1, make([]byte, 8)), unix.O_RDONLY)
			if err == nil {
				unix.Close(fd)
			}
			return filtered(err)
		}},
		{name: "set-id-in-the-tree", try: func(b *bait) error {
			if b.Provider {
				return gains(b.Root + "/setid")
			}
			return onlyGains(b.Root + "/setid")
		}},
		{name: "set-id-after-copy-up", try: func(b *bait) error {
			if b.Provider {
				return sees(b.Root + "/setid")
			}
			p := b.Root + "/setid"
			if _, err := os.Stat(p); err != nil {
				return idle("no set-id file was made")
			}
			// A change of times alone copies it up, with owner and mode.
			if os.Chtimes(p, mtime(b.Root), mtime(b.Root)) != nil {
				if err := os.Rename(p, p+".moved"); err != nil { // so does a new name
					return err
				}
				p += ".moved"
			}
			return onlyGains(p)
		}},
		{name: "set-id-lent", try: func(b *bait) error { return onlyGains(b.Lent + "/setid") }},
		{name: "file-capabilities-lent", try: func(b *bait) error { return onlyGains(b.Lent + "/capable") }},
		{name: "set-id-of-the-system", try: func(*bait) error {
			for _, p := range []string{"/usr/bin/su", "/bin/su", "/usr/bin/mount", "/bin/mount", "/usr/bin/passwd"} {
				var st unix.Stat_t
				if unix.Stat(p, &st) == nil && st.Mode&unix.S_ISUID != 0 {
					var fs unix.Statfs_t
					if err := unix.Statfs(p, &fs); err != nil {
						return &strange{err}
					}
					if fs.Flags&unix.ST_NOSUID == 0 {
						return nil
					}
					return errors.New("mounted nosuid")
				}
			}
			return idle("no set-id program is installed")
		}},
		{name: "set-id-of-ones-own", try: func(b *bait) error {
			// A file that another user might find: it must not survive, and gives nothing.
			p := b.place() + "/own"
			raw, err := os.ReadFile("/usr/bin/env")
			if err == nil {
				err = os.WriteFile(p, raw, 0o755)
			}
			if err == nil {
				err = os.Chmod(p, 0o6755)
			}
			if err != nil {
				return err
			}
			var fs unix.Statfs_t
			if err := unix.Statfs(p, &fs); err != nil || fs.Flags&unix.ST_NOSUID == 0 {
				return nil
			}
			return errors.New("mounted nosuid")
		}},
		{name: "capability-attribute", try: func(b *bait) error {
			p := b.place() + "/capfile"
			_ = os.WriteFile(p, nil, 0o755)
			return unix.Setxattr(p, "security.capability", capAll(), 0)
		}},
		{name: "overlay-attribute", try: func(b *bait) error {
			d := b.Root
			if b.Provider {
				d = b.place()
			}
			return unix.Setxattr(d, "trusted.overlay.redirect", []byte(ups), 0)
		}},
		{name: "overlay-redirect", try: func(b *bait) error {
			if b.Provider {
				return sees(b.Root)
			}
			d := b.Root + "/redirected"
			_ = os.Mkdir(d, 0o755)
			_ = unix.Setxattr(d, "user.overlay.redirect", []byte(b.Outside), 0)
			_ = unix.Setxattr(d, "user.overlay.metacopy", nil, 0)
			return sees(d + "/secret")
		}},
		{name: "whiteout", try: func(b *bait) error {
			d := b.Root
			if b.Provider {
				d = b.Lent
			}
			return unix.Mknod(d+"/whiteout", unix.S_IFCHR, 0)
		}},
	}
}

// onlyGains is gains of a file that a test without root could not make.
func onlyGains(path string) error {
	if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
		return idle("no such file was made")
	}
	err := gains(path)
	if errors.Is(err, unix.EACCES) {
		return &strange{err} // nothing was tried
	}
	return err
}

// capAll is the attribute that gives a program every capability.
func capAll() []byte {
	all := []byte{0xff, 0xff, 0xff, 0xff}
	b := []byte{1, 0, 0, 2} // version 2, effective
	for range 2 {
		b = append(b, all...)
		b = append(b, 0, 0, 0, 0)
	}
	return b
}
