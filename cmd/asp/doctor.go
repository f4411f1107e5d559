package main

import (
	"os"
	"runtime"
	"strings"
	"syscall"

	"github.com/aspengine/asp/sandbox"
)

// machine is what the remedies ask about this machine.
type machine struct {
	system string                   // its GOOS
	read   func(path string) string // the trimmed content of a file, "" without one
	exist  func(path string) bool
}

func thisMachine() machine {
	return machine{
		system: runtime.GOOS,
		read: func(p string) string {
			b, _ := os.ReadFile(p)
			return strings.TrimSpace(string(b))
		},
		exist: func(p string) bool {
			_, err := os.Stat(p)
			return err == nil
		},
	}
}

// linux tells whether the machine has what a sandbox is made of here.
func (m machine) linux() bool { return m.system == "linux" }

// enforcesNothing is what is said of checks and providers on any other system.
func (m machine) enforcesNothing() string {
	return "nothing is enforced on " + m.system + ": asp has no sandbox there, so it starts no check and no provider, and what requires one is not decided; run it on Linux for more"
}

// remedy says how to get an ability that a launch misses, on this machine; "" for one
// that is there. What it rests on is looked up, so that no setting is blamed that is as
// it should be.
func (m machine) remedy(name string, c sandbox.Cap) string {
	if c.Answer == sandbox.Yes || !m.linux() {
		return ""
	}
	if c.Answer == sandbox.Unknown && c.Errno == 0 && c.Detail == "" {
		return "not asked: what it rests on is missing"
	}
	container := m.exist("/.dockerenv") || m.exist("/run/.containerenv") || m.read("/proc/1/environ") != "" && strings.Contains(m.read("/proc/1/environ"), "container=")
	refused := syscall.Errno(c.Errno) == syscall.EPERM || syscall.Errno(c.Errno) == syscall.EACCES
	inContainer := "this is a container whose profile refuses it: start it with --security-opt seccomp=unconfined --security-opt systempaths=unconfined, or run asp outside"
	kernel := func(option, version string) string {
		return "the kernel has to have " + option + ", which needs Linux " + version + " or newer; this is " + m.read("/proc/sys/kernel/osrelease")
	}
	switch name {
	case "user namespace":
		switch {
		case m.read("/proc/sys/user/max_user_namespaces") == "0":
			return "allow them: sysctl user.max_user_namespaces=15000"
		case m.read("/proc/sys/kernel/unprivileged_userns_clone") == "0":
			return "allow them: sysctl kernel.unprivileged_userns_clone=1"
		case m.read("/proc/sys/kernel/apparmor_restrict_unprivileged_userns") == "1":
			return "allow them for asp by an AppArmor profile with `userns,`, or for all: sysctl kernel.apparmor_restrict_unprivileged_userns=0"
		case container:
			return inContainer
		}
		return kernel("CONFIG_USER_NS", "3.8")
	case "mount namespace", "pid namespace", "network namespace":
		if container && refused {
			return inContainer
		}
		return kernel(map[string]string{"m": "CONFIG_NAMESPACES", "p": "CONFIG_PID_NS", "n": "CONFIG_NET_NS"}[name[:1]], "3.8")
	case "recursive read-only mounts", "mount descriptors", "private root":
		if container && refused {
			return inContainer
		}
		return kernel("mount_setattr", "5.12")
	case "own /proc":
		if container {
			return "parts of /proc are covered in this container, and then no new one may be mounted: start it with --security-opt systempaths=unconfined"
		}
		return "parts of /proc are covered by other mounts, and then no new one may be mounted: see `findmnt -R /proc`"
	case "overlay in user namespace":
		if syscall.Errno(c.Errno) == syscall.ENODEV {
			return "load it: modprobe overlay"
		}
		return kernel("overlay in user namespaces", "5.11") + "; the file systems of workspace and state directory have to carry user attributes. Without it trees are copied, which is as safe and slower"
	case "Landlock":
		if lsm := m.read("/sys/kernel/security/lsm"); syscall.Errno(c.Errno) == syscall.EOPNOTSUPP || lsm != "" && !strings.Contains(lsm, "landlock") {
			return "switch it on: add landlock to lsm= on the kernel's command line (now: " + lsm + ")"
		}
		if container && refused {
			return inContainer
		}
		return kernel("CONFIG_SECURITY_LANDLOCK", "5.13")
	case "system call filter":
		if c.Errno == 0 {
			return "there is no table of system calls for this architecture; use amd64 or arm64"
		}
		return kernel("CONFIG_SECCOMP_FILTER", "4.14")
	case "control groups":
		if refused || syscall.Errno(c.Errno) == syscall.EROFS {
			return "have one handed to asp: systemd-run --user --scope -p Delegate=yes asp ...; in a container mount /sys/fs/cgroup writable. Without it runs are killed by their pid namespace and bounded for each process"
		}
		return "mount the unified hierarchy at /sys/fs/cgroup. Without it runs are killed by their pid namespace and bounded for each process"
	}
	return ""
}
