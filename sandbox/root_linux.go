package sandbox

import (
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"

	"golang.org/x/sys/unix"
)

// systemDirs are what every command of an isolated launch may read and execute:
// programs and libraries. Where the system has a link of such a name, so has the
// private root. /opt and the rest are for Spec.Read.
var systemDirs = [...]string{"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"}

// systemFiles are what programs and libraries look up in /etc: names, certificates,
// library paths, time zones. No keys, no hashes of passwords, no configuration of
// services.
var systemFiles = [...]string{
	"alternatives", "ca-certificates", "crypto-policies", "group", "host.conf", "hosts", "ld.so.cache", "ld.so.conf", "ld.so.conf.d",
	"localtime", "mime.types", "nsswitch.conf", "os-release", "passwd", "pki/ca-trust", "pki/tls/certs", "protocols", "services",
	"ssl/certs", "ssl/openssl.cnf", "timezone",
}

// trap is a directory that the mounts leave writable and Landlock does not: what a
// write there meets tells whether Landlock holds.
const trap = "/.asp"

// SystemPath tells whether an isolated launch shows path without being told to.
func SystemPath(path string) bool {
	return slices.ContainsFunc(systemDirs[:], func(d string) bool { return inside(path, d) })
}

// link is a symbolic link of the private root.
type link struct{ at, to string }

// privateRoot replaces everything that the host shows by an empty file system in
// memory, and puts into it what s grants. All sources are opened before, so nothing
// is resolved through the new root, and nothing of the old one is left to be found
// beneath it.
func privateRoot(s *Spec, pin string) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fail(err, "make mounts private")
	}
	system, links, err := prepareSystem(s)
	if err != nil {
		return err
	}
	// A hidden directory can be seen at all only where it lies in a mount.
	shown := *s
	shown.Hide = slices.DeleteFunc(slices.Clone(s.Hide), func(h string) bool {
		return !slices.ContainsFunc(s.Mounts, func(m Mount) bool { return h != m.Target && inside(h, m.Target) })
	})
	list, err := prepare(&shown)
	if err != nil {
		return err
	}
	list = append(system, slices.DeleteFunc(list, func(p placed) bool { return p.target == "/dev/tty" })...)
	if pin != "" {
		p, err := preparePinned(pin)
		if err != nil {
			return err
		}
		list = append(list, p)
	}
	fd, err := newFS("tmpfs", unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV, "mode", "0755", "size", "1m")
	if err != nil {
		return fail(err, "make private root")
	}
	if err := enterRoot(fd); err != nil {
		return err
	}
	for _, l := range links {
		if err := os.MkdirAll(filepath.Dir(l.at), 0o755); err != nil {
			return fail(err, "make directory of link %.200q", l.at)
		}
		if err := os.Symlink(l.to, l.at); err != nil && !os.IsExist(err) {
			return fail(err, "make link %.200q", l.at)
		}
	}
	sort.SliceStable(list, func(i, j int) bool {
		return strings.Count(list[i].target, "/") < strings.Count(list[j].target, "/")
	})
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
			if err := unix.MountSetattr(p.fd, "", unix.AT_EMPTY_PATH, &ro); err != nil {
				return fail(err, "make hidden %.200q read-only", p.target)
			}
		}
	}
	return fail(unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH, &ro), "make private root read-only")
}

// enterRoot makes the mount of fd the root and lets go of the old one.
func enterRoot(fd int) error {
	// Any directory will do to attach it at; nobody else is in this mount namespace.
	if err := unix.MoveMount(fd, "", unix.AT_FDCWD, "/proc", unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return fail(err, "attach private root")
	}
	if err := unix.Fchdir(fd); err != nil {
		return fail(err, "enter private root")
	}
	// The old root is stacked upon the new one, and taken off again.
	if err := unix.PivotRoot(".", "."); err != nil {
		return fail(err, "change root")
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return fail(err, "let go of the host's root")
	}
	return fail(unix.Chdir("/"), "enter private root")
}

// prepareSystem makes the read-only mounts and links of the system directories and of
// s.Read.
func prepareSystem(s *Spec) (list []placed, links []link, err error) {
	add := func(path string, follow bool) error {
		if slices.ContainsFunc(s.Mounts, func(m Mount) bool { return m.Target == path }) {
			return nil // declared otherwise
		}
		if to, err := os.Readlink(path); err == nil && !follow {
			links = append(links, link{path, to})
			return nil
		}
		p, err := prepareMount(Mount{Kind: MountBindRO, Target: path, Source: path})
		switch errnoOf(err) {
		case int(unix.ENOENT), int(unix.ENOTDIR), int(unix.EACCES):
			return nil // not there, or not for us
		}
		if err == nil {
			list = append(list, p)
		}
		return err
	}
	for _, d := range systemDirs {
		if err := add(d, false); err != nil {
			return nil, nil, err
		}
	}
	for _, f := range systemFiles {
		if err := add("/etc/"+f, false); err != nil {
			return nil, nil, err
		}
	}
	for _, r := range s.Read {
		if SystemPath(r) || slices.ContainsFunc(s.Mounts, func(m Mount) bool { return inside(r, m.Target) }) {
			continue
		}
		if err := add(r, true); err != nil {
			return nil, nil, err
		}
	}
	t, err := newFS("tmpfs", unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV|unix.MOUNT_ATTR_NOEXEC, "mode", "0755", "size", "4k")
	if err != nil {
		return nil, nil, fail(err, "make trap")
	}
	return append(list, placed{target: trap, fd: t, must: true, label: "tmpfs"}), links, nil
}
