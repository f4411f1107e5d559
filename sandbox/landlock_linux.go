package sandbox

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// Landlock, by its three system calls. The library for it restricts every thread of
// the process, and the child half must restrict one: the others kill and report, and
// the thread that starts the command hands its rules down.

// File system rights by what they are for. Which of them the kernel knows depends on
// its ABI; see fsRights.
const (
	fsRead  = unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_READ_DIR
	fsNodes = fsRead | unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_TRUNCATE | unix.LANDLOCK_ACCESS_FS_IOCTL_DEV
	// fsOfFile are the rights that a rule on a single file may name.
	fsOfFile = fsNodes &^ unix.LANDLOCK_ACCESS_FS_READ_DIR
)

// landlockABI is 0 where there is none.
func landlockABI() (int, error) {
	v, _, e := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if e != 0 {
		return 0, e
	}
	return int(v), nil
}

// fsRights are all file system rights of an ABI.
func fsRights(abi int) uint64 {
	r := uint64(1)<<13 - 1
	for _, x := range []struct {
		abi int
		bit uint64
	}{{2, unix.LANDLOCK_ACCESS_FS_REFER}, {3, unix.LANDLOCK_ACCESS_FS_TRUNCATE}, {5, unix.LANDLOCK_ACCESS_FS_IOCTL_DEV}} {
		if abi >= x.abi {
			r |= x.bit
		}
	}
	return r
}

// landlockRule allows access below path.
type landlockRule struct {
	path   string
	access uint64
}

// landlockRules are those of a private root: everything in it may be read, the
// declared writable mounts may be written. The network is not handled: rules name
// ports, not addresses, and would take a command its own loopback; the network
// namespace is what closes it.
func landlockRules(s *Spec) []landlockRule {
	rules := []landlockRule{{"/", fsRead}, {"/dev", fsNodes}, {"/proc", fsNodes}, {"/dev/shm", ^uint64(0)}, {"/dev/pts", fsNodes}}
	for _, m := range s.Mounts {
		if m.Kind != MountBindRO {
			rules = append(rules, landlockRule{m.Target, ^uint64(0)})
		}
	}
	return rules
}

// landlock restricts the calling thread, which has no_new_privs set.
func landlock(rules []landlockRule) error {
	abi, err := landlockABI()
	if err != nil {
		return fail(err, "ask for Landlock")
	}
	attr := unix.LandlockRulesetAttr{Handled_access_fs: fsRights(abi)}
	if abi >= 6 {
		attr.Scoped = unix.LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET | unix.LANDLOCK_SCOPE_SIGNAL
	}
	return enterDomain(attr, abi, rules)
}

// enterDomain restricts it by what attr handles, but for the rules.
func enterDomain(attr unix.LandlockRulesetAttr, abi int, rules []landlockRule) error {
	set, err := newRuleset(attr, abi)
	if err != nil {
		return err
	}
	defer unix.Close(set)
	for _, r := range rules {
		if err := landlockAllow(set, r, attr.Handled_access_fs); err != nil {
			return fail(err, "add Landlock rule for %.200q", r.path)
		}
	}
	if _, _, e := unix.Syscall(unix.SYS_LANDLOCK_RESTRICT_SELF, uintptr(set), 0, 0); e != 0 {
		return fail(e, "enter Landlock domain")
	}
	return nil
}

// signalDomain is a set of rules by which no signal leaves the domain that it makes, -1 where Landlock
// has no such rules: before its sixth version, and what the probe finds of signals says so then.
//
// Who runs by rules alone is put into it for its own: the child half is in the domain around it, by the
// rules that it laid on itself, and without a pid namespace is all that ends what the
// command started. That it cannot be signalled from in there is tried right before the
// command is executed.
func signalDomain() (int, error) {
	abi, err := landlockABI()
	if err != nil || abi < 6 {
		return -1, nil
	}
	return newRuleset(unix.LandlockRulesetAttr{Scoped: unix.LANDLOCK_SCOPE_SIGNAL}, abi)
}

func newRuleset(attr unix.LandlockRulesetAttr, abi int) (int, error) {
	size := unsafe.Sizeof(attr.Handled_access_fs) // what the oldest ABI takes
	if abi >= 6 {
		size = unsafe.Offsetof(attr.Scoped) + unsafe.Sizeof(attr.Scoped)
	}
	set, _, e := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attr)), size, 0)
	if e != 0 {
		return -1, fail(e, "make Landlock rules")
	}
	return int(set), nil
}

func landlockAllow(set int, r landlockRule, all uint64) error {
	fd, err := unix.Open(r.path, unix.O_PATH|unix.O_CLOEXEC, 0)
	switch err {
	case nil:
	case unix.ENOENT, unix.ENOTDIR, unix.EACCES:
		return nil // nothing that could be allowed
	default:
		return err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	beneath := unix.LandlockPathBeneathAttr{Allowed_access: r.access & all, Parent_fd: int32(fd)}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		beneath.Allowed_access &= fsOfFile
	}
	_, _, e := unix.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, uintptr(set), unix.LANDLOCK_RULE_PATH_BENEATH, uintptr(unsafe.Pointer(&beneath)), 0, 0, 0)
	if e != 0 {
		return e
	}
	return nil
}
