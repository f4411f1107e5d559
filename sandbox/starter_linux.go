package sandbox

import (
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// starterArg follows ChildArg in the arguments of a starter.
const starterArg = "start"

// starterGroupFD is the first of the descriptors by which a starter enters control
// groups. Those before are execFD and what every child half has.
const starterGroupFD = execFD + 1

// A starter becomes the command after it put itself under the limits that the child
// half must not be under: a limit on processes counts the child half's own threads, and
// its run-time system dies when it cannot have another; a group's memory limit would
// take the process that reports. Setting the limit from outside once the command runs
// was rejected, as the command could be faster. Its cost is another start of this
// executable, so it is only used where there is such a limit.
func starterMain() int {
	if err := closeOnExec(); err != nil {
		return childBroken
	}
	say := os.NewFile(reportFD, "report")
	err := becomeCommand(os.NewFile(orderFD, "order"))
	fmt.Fprint(say, err.Error())
	return childBroken
}

// becomeCommand returns only when it did not.
func becomeCommand(orders io.Reader) error {
	var o startOrder
	if err := hear(orders, &o); err != nil {
		return err
	}
	for fd := starterGroupFD; fd < starterGroupFD+o.Groups; fd++ {
		if _, err := unix.Write(fd, []byte("0")); err != nil {
			return fmt.Errorf("enter control group: %w", err)
		}
	}
	if o.Processes > 0 {
		if err := setLimit(unix.RLIMIT_NPROC, o.Processes); err != nil {
			return fmt.Errorf("limit processes: %w", err)
		}
	}
	return &os.PathError{Op: "exec", Path: o.Exe, Err: syscall.Exec(o.Exe, o.Argv, o.Env)}
}

// startThrough starts the command through a starter and waits until it is the command,
// or cannot be.
func (c *child) startThrough(o *startOrder) (pid int, err error) {
	orderR, orderW, err := os.Pipe()
	if err != nil {
		return 0, err
	}
	defer orderW.Close()
	sayR, sayW, err := os.Pipe()
	if err != nil {
		orderR.Close()
		return 0, err
	}
	defer sayR.Close()
	files := []uintptr{0, 1, 2, orderR.Fd(), sayW.Fd(), ^uintptr(0)}
	if c.order.Pinned != "" {
		files[execFD] = execFD
	}
	for _, fd := range c.groups {
		files = append(files, uintptr(fd))
	}
	pid, err = syscall.ForkExec("/proc/self/exe", []string{"asp", ChildArg, starterArg}, &syscall.ProcAttr{
		Env:   []string{"GOGC=off"},
		Files: files,
		Sys:   &syscall.SysProcAttr{Setsid: true},
	})
	orderR.Close()
	sayW.Close()
	if err != nil {
		return 0, fmt.Errorf("start starter: %w", err)
	}
	err = tell(orderW, o)
	// The end comes when the descriptor is closed by executing the command.
	said, rerr := io.ReadAll(io.LimitReader(sayR, 4096))
	if len(said) > 0 {
		err = errors.New(string(said))
	}
	if err = errors.Join(err, rerr); err != nil {
		waitFor(pid)
		return 0, err
	}
	return pid, nil
}
