package need

import (
	"os"
	"os/exec"
	"syscall"
	"testing"
)

// Loop needs loop devices and the right to mount them.
func Loop(t testing.TB) {
	t.Helper()
	Root(t)
	Tool(t, "losetup")
	Tool(t, "mount")
	f, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err != nil {
		Missing(t, "there are no loop devices: %v", err)
	}
	f.Close()
}

// UserNS needs that a process may make user and mount namespaces.
func UserNS(t testing.TB) {
	t.Helper()
	c := exec.Command(Tool(t, "true"))
	c.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}},
	}
	if err := c.Run(); err != nil {
		Missing(t, "user namespaces are not to be had: %v", err)
	}
}
