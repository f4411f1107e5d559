package sandbox

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// setupCaps are the capabilities that the child half keeps over its own exec to
// set up the namespaces; all are relative to its user namespace. The overlay is
// mounted, and later copies files up, with these: DAC_OVERRIDE and FOWNER let it
// work in directories that the owner made read-only. SYS_RESOURCE is for noControlGroups.
var setupCaps = []uintptr{
	unix.CAP_CHOWN, unix.CAP_DAC_OVERRIDE, unix.CAP_DAC_READ_SEARCH, unix.CAP_FOWNER, unix.CAP_FSETID,
	unix.CAP_SETPCAP, unix.CAP_NET_ADMIN, unix.CAP_SYS_ADMIN, unix.CAP_SYS_RESOURCE,
}

// dropPrivileges removes every capability from the calling thread, for good, and
// forbids to gain any by executing something. The caller has locked its thread
// and starts the command from it.
func dropPrivileges() error {
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil && err != unix.EINVAL {
		return fail(err, "clear ambient capabilities")
	}
	for c := uintptr(0); c < 64; c++ { // a set has 64 bits; the probe looks whether it is empty
		err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0)
		if err == unix.EINVAL {
			break // past the last one that the kernel knows
		}
		if err == unix.EPERM {
			break // without SETPCAP the set cannot be cut; no_new_privs below makes it moot
		}
		if err != nil {
			return fail(err, "drop capability %d", c)
		}
	}
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var none [2]unix.CapUserData
	if err := unix.Capset(&hdr, &none[0]); err != nil {
		return fail(err, "drop capabilities")
	}
	return fail(unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "set no_new_privs")
}

// noControlGroups keeps everybody in this user namespace, and in those made below it, from
// making namespaces of control groups. Who owns one may mount version 1 of them,
// whose files belong to the real root whoever mounts it: root's command would write the
// host's own groups. User namespaces stay, for what sandboxes itself; to forbid them as well was
// weighed and rejected, as it would break browsers and test runners in every mode. proc is a
// mount of /proc that can be written. A failure is seen by the probe.
func noControlGroups(proc int) {
	fd, err := unix.Openat(proc, "sys/user/max_cgroup_namespaces", unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	_, _ = unix.Write(fd, []byte("0"))
}

func setLimit(res int, n uint64) error {
	var cur syscall.Rlimit
	if err := syscall.Getrlimit(res, &cur); err != nil {
		return err
	}
	n = min(n, cur.Max)
	// Through package syscall, so that the runtime does not put its own remembered
	// descriptor limit back when it starts the command.
	return syscall.Setrlimit(res, &syscall.Rlimit{Cur: n, Max: n})
}

const (
	// minFiles is the least number of descriptors that a usual program can do with: a shell
	// keeps its own from 10 on. Fewer are raised to it.
	minFiles = 16
	// ownFiles is what the child half itself may need.
	ownFiles = 256
)

// setLimits sets the limits of this process that the command inherits. The others come
// with the command (forkUnder): under them this process might not live to report.
func setLimits(l Limits) error {
	// One byte, not none: where the kernel hands core files to a program of the host,
	// it starts that whatever the limit is, but for this one.
	if err := setLimit(unix.RLIMIT_CORE, 1); err != nil {
		return fail(err, "limit core files")
	}
	return fail(setLimit(unix.RLIMIT_NOFILE, max(l.Files, ownFiles)), "limit descriptors")
}

// lateLimits are those of memory and file size, which come with isolation only, of
// processes, and of descriptors where few are allowed.
func lateLimits(l Limits, isolate bool) []rlimit {
	var out []rlimit
	if n := l.withDefaults().Files; n < ownFiles {
		out = append(out, rlimit{"descriptors", unix.RLIMIT_NOFILE, max(n, minFiles)})
	}
	if isolate && l.FileSize > 0 {
		out = append(out, rlimit{"file size", unix.RLIMIT_FSIZE, l.FileSize})
	}
	if isolate && l.Memory > 0 {
		// Not the address space: run-time systems reserve far more of it than they
		// ever use.
		out = append(out, rlimit{"memory", unix.RLIMIT_DATA, max(l.Memory, minMemory)})
	}
	if l.Processes > 0 {
		out = append(out, rlimit{"processes", unix.RLIMIT_NPROC, l.Processes})
	}
	return out
}

// loopbackUp brings up the only interface of a fresh network namespace: tests
// commonly talk to themselves.
func loopbackUp() error {
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(s)
	req, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	req.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	return ioctlIfreq(s, unix.SIOCSIFFLAGS, req)
}

func ioctlIfreq(fd int, req uint, v *unix.Ifreq) error {
	_, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), uintptr(req), uintptr(unsafe.Pointer(v)))
	if e != 0 {
		return e
	}
	return nil
}

// closeOnExec marks every descriptor from 3 on, whoever left it open: the
// command inherits 0 to 2.
func closeOnExec() error {
	err := unix.CloseRange(3, ^uint(0)>>1, unix.CLOSE_RANGE_CLOEXEC)
	if err == nil {
		return nil
	}
	fds, err := numericNames("/proc/self/fd")
	if err != nil {
		return fail(err, "list own descriptors")
	}
	for _, fd := range fds {
		if fd > 2 {
			unix.CloseOnExec(fd)
		}
	}
	return nil
}
