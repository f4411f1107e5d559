package sandbox

import (
	"os"
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

// privateRoot replaces everything that the host shows by an empty file system in
// memory, and puts into it what s grants: in an isolated launch system directories and
// s.Read, otherwise all directories of the host, each through a shield. All sources are
// opened before, so nothing is resolved through the new root, and nothing of the old
// one is left to be found beneath it.
func (c *child) privateRoot(s *Spec, pin string) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fail(err, "make mounts private")
	}
	v, err := newView(c.off(layerShield))
	if err != nil {
		return err
	}
	defer unix.Close(v.empty)
	v.cgroups = c.off(layerCgroups)
	if s.Isolate {
		err = v.system(s)
	} else {
		err = v.host(s)
	}
	if err != nil {
		return err
	}
	// What is to be hidden can be seen only where it lies in what is shown.
	shown := *s
	shown.Hide = slices.DeleteFunc(slices.Clone(s.Hide), func(h string) bool {
		return s.Isolate && !SystemPath(h) && !slices.ContainsFunc(s.Read, func(r string) bool { return inside(h, r) }) &&
			!slices.ContainsFunc(s.Mounts, func(m Mount) bool { return h != m.Target && inside(h, m.Target) })
	})
	system := v.list
	v.list = nil
	if err := prepare(&shown, v); err != nil {
		return err
	}
	list := append(system, v.list...)
	if s.Isolate {
		list = slices.DeleteFunc(list, func(p placed) bool { return p.target == "/dev/tty" })
	}
	if pin != "" {
		p, err := preparePinned(pin)
		if err != nil {
			return err
		}
		list = append(list, p)
	}
	c.lure, _ = v.lay() // the probe says that there was none
	c.shared, c.left = v.shared, v.left
	fd, err := newFS("tmpfs", unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV, "mode", "0755", "size", "1m")
	if err != nil {
		return fail(err, "make private root")
	}
	if err := enterRoot(fd); err != nil {
		return err
	}
	sort.SliceStable(list, func(i, j int) bool {
		return strings.Count(list[i].target, "/") < strings.Count(list[j].target, "/")
	})
	defer letGo(list) // they would count against the limit on descriptors
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

// system shows the system directories and s.Read.
func (v *view) system(s *Spec) error {
	add := func(path string, follow bool) error {
		if slices.ContainsFunc(s.Mounts, func(m Mount) bool { return m.Target == path }) {
			return nil // declared otherwise
		}
		if to, err := os.Readlink(path); err == nil && !follow {
			v.list = append(v.list, placed{target: path, link: to})
			return nil
		}
		return v.show(path, path, true)
	}
	for _, d := range systemDirs {
		if err := add(d, false); err != nil {
			return err
		}
	}
	etc := v.wholeEtc()
	for _, f := range systemFiles {
		if slices.ContainsFunc(s.Mounts, func(m Mount) bool { return m.Target == "/etc/"+f }) || v.partOf(etc, "/etc", f) {
			continue
		}
		if err := add("/etc/"+f, false); err != nil {
			return err
		}
	}
	if etc >= 0 {
		unix.Close(etc)
	}
	for _, r := range s.Read {
		if SystemPath(r) || slices.ContainsFunc(s.Mounts, func(m Mount) bool { return inside(r, m.Target) }) {
			continue
		}
		if err := add(r, true); err != nil {
			return err
		}
	}
	t, err := newFS("tmpfs", unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV|unix.MOUNT_ATTR_NOEXEC, "mode", "0755", "size", "4k")
	if err != nil {
		return fail(err, "make trap")
	}
	v.list = append(v.list, placed{target: trap, fd: t, must: true, label: "tmpfs"})
	return nil
}

// host shows everything but where something else comes.
func (v *view) host(s *Spec) error {
	v.apart = []string{"/proc", "/dev"}
	for _, m := range s.Mounts {
		v.apart = append(v.apart, m.Target)
	}
	v.apart = append(v.apart, s.Hide...)
	return v.pieces("/", "/")
}
