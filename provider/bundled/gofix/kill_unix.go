//go:build unix

package gofix

import (
	"os/exec"
	"syscall"
)

// killWithChildren makes the end of c's context end everything that c started and
// that stayed in its group.
func killWithChildren(c *exec.Cmd) {
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	c.Cancel = func() error { return syscall.Kill(-c.Process.Pid, syscall.SIGKILL) }
}
