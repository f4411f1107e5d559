package main

import (
	"strings"
	"syscall"
	"testing"

	"github.com/aspengine/asp/sandbox"
)

// Each missing layer has a way to get it, and the one that fits the machine.
func TestDoctorRemedies(t *testing.T) {
	no := func(n syscall.Errno) sandbox.Cap {
		return sandbox.Cap{Answer: sandbox.No, Errno: int(n), Detail: n.Error()}
	}
	for _, c := range []struct {
		layer string
		cap   sandbox.Cap
		files map[string]string // what this machine has
		want  string
	}{
		{"user namespace", no(syscall.ENOSPC), map[string]string{"/proc/sys/user/max_user_namespaces": "0"}, "sysctl user.max_user_namespaces="},
		{"user namespace", no(syscall.EPERM), map[string]string{"/proc/sys/user/max_user_namespaces": "100", "/proc/sys/kernel/unprivileged_userns_clone": "0"}, "unprivileged_userns_clone=1"},
		{"user namespace", no(syscall.EACCES), map[string]string{"/proc/sys/kernel/apparmor_restrict_unprivileged_userns": "1"}, "AppArmor profile"},
		{"user namespace", no(syscall.EPERM), map[string]string{"/.dockerenv": ""}, "seccomp=unconfined"},
		{"user namespace", no(syscall.EINVAL), map[string]string{"/proc/sys/kernel/osrelease": "5.4"}, "CONFIG_USER_NS, which needs Linux 3.8 or newer; this is 5.4"},
		{"network namespace", no(syscall.EINVAL), nil, "CONFIG_NET_NS"},
		{"recursive read-only mounts", no(syscall.ENOSYS), map[string]string{"/proc/sys/kernel/osrelease": "5.4"}, "Linux 5.12 or newer; this is 5.4"},
		{"private root", no(syscall.EPERM), map[string]string{"/run/.containerenv": ""}, "seccomp=unconfined"},
		{"own /proc", no(syscall.EPERM), map[string]string{"/.dockerenv": ""}, "systempaths=unconfined"},
		{"own /proc", no(syscall.EPERM), nil, "findmnt -R /proc"},
		{"overlay in user namespace", no(syscall.ENODEV), nil, "modprobe overlay"},
		{"overlay in user namespace", no(syscall.EPERM), nil, "5.11"},
		{"Landlock", no(syscall.EOPNOTSUPP), map[string]string{"/sys/kernel/security/lsm": "capability,yama"}, "now: capability,yama"},
		{"Landlock", no(syscall.ENOSYS), nil, "5.13"},
		{"system call filter", sandbox.Cap{Answer: sandbox.No, Detail: "no system call table for riscv64"}, nil, "amd64 or arm64"},
		{"control groups", no(syscall.EACCES), nil, "systemd-run --user --scope -p Delegate=yes"},
		{"control groups", no(syscall.ENOENT), nil, "mount the unified hierarchy"},
		{"mount namespace", sandbox.Cap{}, nil, "what it rests on"},
	} {
		m := machine{
			system: "linux",
			read:   func(p string) string { return c.files[p] },
			exist:  func(p string) bool { _, ok := c.files[p]; return ok },
		}
		if got := m.remedy(c.layer, c.cap); !strings.Contains(got, c.want) {
			t.Errorf("%s (%v): %q, want %q in it", c.layer, c.cap, got, c.want)
		}
	}
	// No layer is left without a word, and none that is there gets one.
	for _, r := range (sandbox.Caps{}).Rows() {
		m := machine{system: "linux", read: func(string) string { return "" }, exist: func(string) bool { return false }}
		if m.remedy(r.Name, no(syscall.ENOSYS)) == "" {
			t.Errorf("%s has no remedy", r.Name)
		}
		if got := m.remedy(r.Name, sandbox.Cap{Answer: sandbox.Yes}); got != "" {
			t.Errorf("%s is there: %q", r.Name, got)
		}
	}
}

// Elsewhere there is no way to get a layer, and none is told.
func TestDoctorElsewhere(t *testing.T) {
	m := machine{system: "windows", read: func(string) string { return "" }, exist: func(string) bool { return false }}
	for _, r := range (sandbox.Caps{}).Rows() {
		if got := m.remedy(r.Name, sandbox.Cap{Answer: sandbox.No, Detail: "needs Linux"}); got != "" {
			t.Errorf("%s: %q", r.Name, got)
		}
	}
	if got := m.enforcesNothing(); !strings.Contains(got, "nothing is enforced on windows") {
		t.Error(got)
	}
}
