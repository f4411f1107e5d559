package casetest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// call makes a raw system call; the error is nil when it was made.
func call(nr uintptr, args ...uintptr) error {
	var a [6]uintptr
	copy(a[:], args)
	_, _, e := unix.RawSyscall6(nr, a[0], a[1], a[2], a[3], a[4], a[5])
	if e != 0 {
		return e
	}
	return nil
}

func ptr(b []byte) uintptr { return uintptr(unsafe.Pointer(&b[0])) }

func processAttempts() []attempt {
	host := func(f func(pid int) error) func(b *bait) error { return func(b *bait) error { return f(b.Pid) } }
	namespace := func(kind string) attempt {
		return attempt{name: "enter-" + kind + "-namespace-of-init", try: func(*bait) error {
			fd, err := unix.Open("/proc/1/ns/"+kind, unix.O_RDONLY|unix.O_CLOEXEC, 0)
			if err != nil {
				return err
			}
			return filtered(unix.Setns(fd, 0))
		}}
	}
	return []attempt{
		{name: "signal-host", open: true, try: host(func(pid int) error { return unix.Kill(pid, 0) })},
		{name: "look-at-host", open: true, try: host(func(pid int) error { return sees(fmt.Sprintf("/proc/%d/stat", pid)) })},
		{name: "find-host", open: true, try: func(b *bait) error {
			for _, p := range numbers("/proc") {
				if raw, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", p)); strings.Contains(string(raw), b.Token+"-bait") {
					return nil
				}
			}
			return unix.ESRCH
		}},
		{name: "environment-of-host", open: true, try: func(b *bait) error {
			for _, p := range numbers("/proc") {
				if raw, _ := os.ReadFile(fmt.Sprintf("/proc/%d/environ", p)); strings.Contains(string(raw), b.Token) {
					return nil
				}
			}
			return unix.ESRCH
		}},
		{name: "environment-of-init", try: func(*bait) error {
			raw, err := os.ReadFile("/proc/1/environ")
			if err == nil && len(raw) == 0 {
				return errors.New("empty")
			}
			return err
		}},
		{name: "memory-of-init", try: func(*bait) error {
			return anyOf(func() error { return sees("/proc/1/mem") }, func() error { return rewrites("/proc/1/mem") }, func() error { _, err := os.ReadFile("/proc/1/maps"); return err })
		}},
		{name: "memory-of-host", open: true, try: host(func(pid int) error { return sees(fmt.Sprintf("/proc/%d/maps", pid)) })},
		{name: "trace-init", try: func(*bait) error { return filtered(unix.PtraceSeize(1)) }},
		{name: "trace-host", try: host(func(pid int) error { return filtered(unix.PtraceSeize(pid)) })},
		{name: "trace-own-child", open: true, try: func(*bait) error {
			cmd := exec.Command("/usr/bin/sleep", "60")
			if err := cmd.Start(); err != nil {
				return &strange{err}
			}
			defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
			return filtered(unix.PtraceSeize(cmd.Process.Pid))
		}},
		{name: "read-memory-of-init", try: func(*bait) error { return filtered(vmRead(1)) }},
		{name: "write-memory-of-host", try: host(func(pid int) error {
			buf := make([]byte, 8)
			local := []unix.Iovec{{Base: &buf[0], Len: 8}}
			_, err := unix.ProcessVMWritev(pid, local, []unix.RemoteIovec{{Base: 0, Len: 8}}, 0)
			return filtered(err)
		})},
		{name: "descriptor-for-host", open: true, try: host(func(pid int) error {
			fd, err := unix.PidfdOpen(pid, 0)
			if err == nil {
				unix.Close(fd)
			}
			return err
		})},
		{name: "take-descriptor-of-init", try: func(*bait) error {
			fd, err := unix.PidfdOpen(1, 0)
			if err != nil {
				return err
			}
			defer unix.Close(fd)
			_, err = unix.PidfdGetfd(fd, 3, 0)
			return filtered(err)
		}},
		{name: "kill-init", try: func(*bait) error {
			// The kernel drops what process 1 of a namespace does not handle: whoever
			// is alive afterwards did not get it done.
			_ = unix.Kill(1, unix.SIGKILL)
			_ = unix.Kill(1, unix.SIGSTOP)
			return errors.New("it lives")
		}},
		{name: "limits-of-host", open: true, try: host(func(pid int) error { return unix.Prlimit(pid, unix.RLIMIT_NOFILE, nil, new(unix.Rlimit)) })},
		{name: "priority-of-host", open: true, try: host(func(pid int) error { _, err := unix.Getpriority(unix.PRIO_PROCESS, pid); return err })},
		{name: "affinity-of-host", open: true, try: host(func(pid int) error { var s unix.CPUSet; return unix.SchedGetaffinity(pid, &s) })},
		{name: "descriptor-signals-to-host", open: true, try: host(func(pid int) error {
			fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
			if err != nil {
				return &strange{err}
			}
			defer unix.Close(fds[0])
			defer unix.Close(fds[1])
			_, err = unix.FcntlInt(uintptr(fds[0]), unix.F_SETOWN, pid)
			return err
		})},
		{name: "compare-with-init", try: func(*bait) error { return filtered(call(unix.SYS_KCMP, 1, uintptr(os.Getpid()), 0, 0, 0)) }},
		{name: "oom-of-init", try: func(*bait) error { return os.WriteFile("/proc/1/oom_score_adj", []byte("-1000"), 0) }},
		namespace("mnt"), namespace("user"), namespace("net"), namespace("pid"),
	}
}

func vmRead(pid int) error {
	buf := make([]byte, 8)
	local := []unix.Iovec{{Base: &buf[0], Len: 8}}
	_, err := unix.ProcessVMReadv(pid, local, []unix.RemoteIovec{{Base: uintptr(unsafe.Pointer(&buf[0])), Len: 8}}, 0)
	return err
}

func callAttempts() []attempt {
	var out []attempt
	add := func(name string, try func(b *bait) error) {
		out = append(out, attempt{name: name, try: try})
	}
	for _, n := range []struct {
		name string
		flag int
	}{{"user", unix.CLONE_NEWUSER}, {"mount", unix.CLONE_NEWNS}, {"pid", unix.CLONE_NEWPID}, {"net", unix.CLONE_NEWNET}, {"ipc", unix.CLONE_NEWIPC},
		{"uts", unix.CLONE_NEWUTS}, {"cgroup", unix.CLONE_NEWCGROUP}, {"time", unix.CLONE_NEWTIME}} {
		add("unshare-"+n.name, func(*bait) error { return filtered(unix.Unshare(n.flag)) })
	}
	out = append(out, attempt{name: "nested-user-namespace", open: true, try: func(*bait) error {
		cmd := exec.Command("/usr/bin/true")
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWUSER | unix.CLONE_NEWNS, UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}}, GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}}}
		return filtered(cmd.Run())
	}})
	add("clone3", func(*bait) error {
		// Too short to be carried out: where nothing filters it, a copy of this process with
		// one thread of many would be left, waiting for the others and holding the output.
		args := make([]byte, 8)
		args[3] = unix.CLONE_NEWUSER >> 24
		return filtered(call(unix.SYS_CLONE3, ptr(args), 8))
	})
	tmp := []byte("/tmp\x00")
	none := []byte("tmpfs\x00")
	for _, c := range []struct {
		name string
		try  func() error
	}{
		{"mount", func() error { return unix.Mount("none", "/tmp", "tmpfs", 0, "") }},
		{"bind", func() error { return unix.Mount("/usr", "/tmp", "", unix.MS_BIND, "") }},
		{"remount-writable", func() error { return unix.Mount("", "/usr", "", unix.MS_REMOUNT|unix.MS_BIND, "") }},
		{"propagation", func() error { return unix.Mount("", "/", "", unix.MS_SHARED|unix.MS_REC, "") }},
		{"unmount", func() error { return unix.Unmount("/proc", unix.MNT_DETACH) }},
		{"pivot-root", func() error { return unix.PivotRoot("/tmp", "/tmp") }},
		{"chroot", func() error { return unix.Chroot("/usr") }},
		{"open-tree", func() error { return call(unix.SYS_OPEN_TREE, 0, ptr(tmp), unix.OPEN_TREE_CLONE) }},
		{"move-mount", func() error { return call(unix.SYS_MOVE_MOUNT, 0, ptr(tmp), 0, ptr(tmp), 0) }},
		{"fsopen", func() error { return call(unix.SYS_FSOPEN, ptr(none), 0) }},
		{"fspick", func() error { return call(unix.SYS_FSPICK, 0, ptr(tmp), 0) }},
		{"mount-setattr", func() error {
			return unix.MountSetattr(unix.AT_FDCWD, "/usr", 0, &unix.MountAttr{Attr_clr: unix.MOUNT_ATTR_RDONLY})
		}},
		{"io-uring", func() error { return call(unix.SYS_IO_URING_SETUP, 1, ptr(make([]byte, 120))) }},
		{"bpf", func() error { return call(unix.SYS_BPF, 0, ptr(make([]byte, 128)), 128) }},
		{"perf", func() error {
			return call(unix.SYS_PERF_EVENT_OPEN, ptr(make([]byte, 128)), 0, ^uintptr(0), ^uintptr(0), 0)
		}},
		{"userfaultfd", func() error { return call(unix.SYS_USERFAULTFD, unix.O_CLOEXEC|1) }},
		{"kexec", func() error { return call(unix.SYS_KEXEC_LOAD, 0, 1, 0, 0) }},
		{"load-module", func() error { return call(unix.SYS_INIT_MODULE, 0, 0, ptr(tmp)) }},
		{"load-module-file", func() error { return call(unix.SYS_FINIT_MODULE, ^uintptr(0), ptr(tmp), 0) }},
		{"unload-module", func() error { return call(unix.SYS_DELETE_MODULE, ptr(tmp), unix.O_NONBLOCK) }},
		{"swap-on", func() error { return call(unix.SYS_SWAPON, ptr(tmp), 0) }},
		{"accounting", func() error { return call(unix.SYS_ACCT, ptr(tmp)) }},
		{"quota", func() error { return call(unix.SYS_QUOTACTL, 0xffff, ptr(tmp), 0, 0) }},
		{"reboot", func() error { return call(unix.SYS_REBOOT, 0, 0, 0, 0) }},
		{"set-clock", func() error { return call(unix.SYS_CLOCK_SETTIME, 1, ptr(make([]byte, 16))) }},
		{"set-time", func() error { return call(unix.SYS_SETTIMEOFDAY, 0, ptr(make([]byte, 8))) }},
		{"adjust-clock", func() error { return call(unix.SYS_ADJTIMEX, ptr(make([]byte, 256))) }},
		{"set-host-name", func() error { return unix.Sethostname([]byte("escaped")) }},
		{"kernel-log", func() error { _, err := unix.Klogctl(10, nil); return err }},
		{"fanotify", func() error { return call(unix.SYS_FANOTIFY_INIT, 0x200, 0) }},
		{"new-key", func() error {
			_, err := unix.AddKey("user", "escaped", []byte("x"), unix.KEY_SPEC_PROCESS_KEYRING)
			return err
		}},
		{"ask-for-key", func() error { _, err := unix.RequestKey("user", "escaped", "", 0); return err }},
		{"move-pages-of-init", func() error { return call(unix.SYS_MOVE_PAGES, 1, 0, 0, 0, 0, 0) }},
		{"advise-memory-of-init", func() error { return call(unix.SYS_PROCESS_MADVISE, ^uintptr(0), 0, 0, 0, 0) }},
	} {
		add(c.name, func(*bait) error { return filtered(c.try()) })
	}
	add("other-system-call-table", otherTable)
	// Without the table for it in the kernel this ends the process.
	return append(out, attempt{name: "other-architecture", apart: true, try: otherArchitecture})
}

// otherArchitecture calls by the i386 table, whose numbers mean other calls than ours, so a
// filter that looks at the number alone lets them through.
func otherArchitecture(*bait) error {
	if runtime.GOARCH != "amd64" {
		return idle("only tried on amd64")
	}
	page, err := unix.Mmap(-1, 0, 4096, unix.PROT_READ|unix.PROT_WRITE|unix.PROT_EXEC, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return &strange{err}
	}
	// mov eax, 20 (getpid); int 0x80; movsxd rax, eax; ret
	copy(page, []byte{0xb8, 20, 0, 0, 0, 0xcd, 0x80, 0x48, 0x63, 0xc0, 0xc3})
	code := unsafe.Pointer(&page[0])
	entry := unsafe.Pointer(&code)
	got := (*(*func() int)(unsafe.Pointer(&entry)))()
	if got > 0 {
		return nil
	}
	return refusedWith(unix.Errno(-got), unix.ENOSYS, unix.EPERM)
}

// otherTable asks by the numbers of x32.
func otherTable(*bait) error {
	if runtime.GOARCH != "amd64" {
		return idle("only tried on amd64")
	}
	return refusedWith(call(unix.SYS_GETPID|0x40000000), unix.ENOSYS, unix.EPERM)
}

func privilegeAttempts() []attempt {
	var out []attempt
	add := func(name string, try func(b *bait) error) {
		out = append(out, attempt{name: name, try: try})
	}
	add("become-root", func(*bait) error {
		if os.Geteuid() == 0 {
			return unix.Setresuid(1, 1, 1) // to anybody else, then
		}
		return anyOf(func() error { return unix.Setresuid(0, 0, 0) }, func() error { return unix.Setresgid(0, 0, 0) })
	})
	add("change-groups", func(*bait) error { return unix.Setgroups([]int{0}) })
	add("take-capabilities", func(*bait) error {
		hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		return unix.Capset(&hdr, &[]unix.CapUserData{{Effective: 1 << unix.CAP_SYS_ADMIN, Permitted: 1 << unix.CAP_SYS_ADMIN}, {}}[0])
	})
	add("ambient-capability", func(*bait) error {
		return unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_RAISE, unix.CAP_SYS_ADMIN, 0, 0)
	})
	add("capabilities-by-executing", func(*bait) error { return gains("/proc/self/exe") })
	add("bounding-set", func(*bait) error {
		for i := uintptr(0); i <= unix.CAP_LAST_CAP; i++ {
			if n, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, i, 0, 0, 0); err == nil && n == 1 {
				return nil
			}
		}
		return errors.New("empty")
	})
	add("allow-new-privileges", func(*bait) error {
		_ = unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 0, 0, 0, 0)
		if n, err := unix.PrctlRetInt(unix.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0); err != nil || n != 1 {
			return nil
		}
		return unix.EINVAL
	})
	add("drop-the-filter", func(*bait) error {
		_ = unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_DISABLED, 0, 0, 0)
		if n, err := unix.PrctlRetInt(unix.PR_GET_SECCOMP, 0, 0, 0, 0); err != nil || n != unix.SECCOMP_MODE_FILTER {
			return nil
		}
		return unix.EINVAL
	})
	add("raise-limits", func(*bait) error {
		for _, r := range []int{unix.RLIMIT_NOFILE, unix.RLIMIT_CORE} {
			var l unix.Rlimit
			if err := unix.Getrlimit(r, &l); err != nil {
				return &strange{err}
			}
			if l.Max == unix.RLIM_INFINITY {
				return &strange{fmt.Errorf("limit %d is none", r)}
			}
			l.Max++
			l.Cur = l.Max
			if err := unix.Setrlimit(r, &l); err == nil {
				return nil
			} else if err != unix.EPERM {
				return &strange{err}
			}
		}
		return unix.EPERM
	})
	add("leave-a-core", func(b *bait) error {
		var l unix.Rlimit
		if err := unix.Getrlimit(unix.RLIMIT_CORE, &l); err != nil {
			return &strange{err}
		}
		if l.Max > 1 { // one byte is none, and keeps a handler from being started
			return nil
		}
		cmd := exec.Command("/bin/sh", "-c", "kill -QUIT $$")
		cmd.Dir = b.place()
		_ = cmd.Run()
		return anyOf(func() error { return sees(b.place() + "/core") }, func() error { return sees(fmt.Sprintf("%s/core.%d", b.place(), cmd.Process.Pid)) })
	})
	add("real-time-priority", func(*bait) error {
		prio := int32(1)
		return call(unix.SYS_SCHED_SETSCHEDULER, 0, 1, uintptr(unsafe.Pointer(&prio)))
	})
	add("better-priority", func(*bait) error {
		// Whoever runs this may have a bad priority already, and may keep it: first a
		// worse one than that, where there is one, then one better than that.
		raw, err := unix.Getpriority(unix.PRIO_PROCESS, 0)
		if err != nil {
			return &strange{err}
		}
		worse := min(20-raw+1, 19) // the call itself gives 20 minus the nice value
		if err := unix.Setpriority(unix.PRIO_PROCESS, 0, worse); err != nil {
			return &strange{err}
		}
		return unix.Setpriority(unix.PRIO_PROCESS, 0, worse-1)
	})
	add("lock-all-memory", func(*bait) error {
		b, err := unix.Mmap(-1, 0, 64<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_NORESERVE)
		if err != nil {
			return err
		}
		return unix.Mlock(b)
	})
	add("put-into-terminal", func(*bait) error {
		c := byte('x')
		for _, fd := range []uintptr{0, 1, 2} {
			if call(unix.SYS_IOCTL, fd, unix.TIOCSTI, uintptr(unsafe.Pointer(&c))) == nil {
				return nil
			}
		}
		fd, err := unix.Open("/dev/tty", unix.O_RDWR|unix.O_CLOEXEC, 0)
		if err != nil {
			return err
		}
		return call(unix.SYS_IOCTL, uintptr(fd), unix.TIOCSTI, uintptr(unsafe.Pointer(&c)))
	})
	add("controlling-terminal", func(*bait) error { return sees("/dev/tty") })
	add("terminal-among-descriptors", func(*bait) error {
		for _, fd := range []int{0, 1, 2} {
			if _, err := unix.IoctlGetWinsize(fd, unix.TIOCGWINSZ); err == nil {
				return nil
			}
		}
		return unix.ENOTTY
	})
	add("take-a-terminal", func(*bait) error { return unix.IoctlSetInt(0, unix.TIOCSCTTY, 1) })
	add("terminals-of-others", func(*bait) error {
		if n := len(numbers("/dev/pts")); n > 0 {
			return nil
		}
		return unix.ENOENT
	})
	for i := range out {
		out[i].open = out[i].name == "bounding-set" || out[i].name == "allow-new-privileges" || out[i].name == "drop-the-filter"
	}
	return out
}

// systemAttempts write what is in place already, so that nothing changes where
// they succeed.
func systemAttempts() []attempt {
	var out []attempt
	again := func(name, path string) {
		out = append(out, attempt{name: name, try: func(*bait) error {
			raw, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			return os.WriteFile(path, raw, 0)
		}})
	}
	again("core-pattern", "/proc/sys/kernel/core_pattern")
	again("module-helper", "/proc/sys/kernel/modprobe")
	again("host-name", "/proc/sys/kernel/hostname")
	again("binfmt", "/proc/sys/fs/binfmt_misc/status")
	again("protected-links", "/proc/sys/fs/protected_hardlinks")
	again("interrupts", "/proc/irq/default_smp_affinity")
	again("user-map", "/proc/self/uid_map")
	again("group-map", "/proc/self/gid_map")
	again("namespaces-limit", "/proc/sys/user/max_user_namespaces")
	return append(out, []attempt{
		{name: "magic-request", try: func(*bait) error { return rewrites("/proc/sysrq-trigger") }},
		{name: "kernel-memory", try: func(*bait) error {
			return reads("/proc/kcore")
		}},
		{name: "kernel-messages", try: func(*bait) error {
			return anyOf(func() error { return reads("/proc/kmsg") }, func() error { return reads("/dev/kmsg") })
		}},
		{name: "files-of-root-in-proc", try: func(*bait) error {
			// The real root owns them; nobody else may read them.
			es, err := os.ReadDir("/proc")
			if err != nil {
				return &strange{err}
			}
			for _, e := range es {
				var st unix.Stat_t
				p := "/proc/" + e.Name()
				if unix.Lstat(p, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFREG && st.Mode&0o004 == 0 && reads(p) == nil {
					return nil
				}
			}
			return unix.EACCES
		}},
		{name: "better-oom-score", try: func(*bait) error { return os.WriteFile("/proc/self/oom_score_adj", []byte("-1000"), 0) }},
		{name: "sys", open: true, try: func(*bait) error { return sees("/sys/class") }},
		{name: "control-groups", try: func(*bait) error { return sees("/sys/fs/cgroup") }},
		{name: "debug-files", try: func(*bait) error { return sees("/sys/kernel/debug") }},
		{name: "keys-of-the-caller", open: true, try: func(b *bait) error {
			// A session keyring is inherited, and what is in it can be searched.
			_, err := unix.KeyctlSearch(unix.KEY_SPEC_SESSION_KEYRING, "user", b.Token, 0)
			return filtered(err)
		}},
		{name: "names-of-keys", open: true, try: func(b *bait) error {
			raw, err := os.ReadFile("/proc/keys")
			if err != nil {
				return err
			}
			if strings.Contains(string(raw), b.Token) {
				return nil
			}
			return errors.New("not listed")
		}},
		{name: "secrets-in-the-environment", open: true, try: func(b *bait) error {
			for _, kv := range os.Environ() {
				if strings.Contains(kv, b.Token) || strings.HasPrefix(kv, "ASP_") || strings.HasPrefix(kv, "SSH_") || strings.HasPrefix(kv, "LD_") || strings.HasPrefix(kv, "GIT_") {
					return nil
				}
			}
			return errors.New("not there")
		}},
		{name: "home-of-the-user", open: true, try: func(b *bait) error {
			if os.Getenv("HOME") == b.Home {
				return nil
			}
			return errors.New("another one")
		}},
	}...)
}

func mtime(path string) (t time.Time) {
	if st, err := os.Stat(path); err == nil {
		t = st.ModTime()
	}
	return t
}
