//go:build unix

package conformance

import (
	"os/exec"
	"syscall"
)

// ownGroup gives a command that is about to start a process group of its own.
func ownGroup(c *exec.Cmd) { c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// killGroup kills the group that ownGroup gave.
func killGroup(c *exec.Cmd) { syscall.Kill(-c.Process.Pid, syscall.SIGKILL) }

// ownSession lets a command that is about to start leave group and session.
func ownSession(c *exec.Cmd) { c.SysProcAttr = &syscall.SysProcAttr{Setsid: true} }
