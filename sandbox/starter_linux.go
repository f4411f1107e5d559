package sandbox

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// starterArg follows ChildArg in the arguments of a starter.
const starterArg = "start"

// starterGroupFD is the first of the descriptors by which a starter enters control
// groups. Those before are execFD and what every child half has.
const starterGroupFD = execFD + 1

// A starter becomes the command after it put itself under the limits that the child
// half must not be under: a limit on processes counts the child half's own threads, and
// its run-time system dies when it cannot have another, or no more memory; a group's memory
// limit would take the process that reports. The starter's run-time system could die of
// them as well: so they are the last thing before the program is executed, after
// everything that this takes is made, and it says right before that it is ready. One that
// was not ready when it died is our failure, never the command's. Setting the limit from outside once the command runs
// was rejected, as the command could be faster. Its cost is another start of this
// executable, so it is only used where there is such a limit, and where the command must
// not be of the Landlock domain of who watches it.
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
	if o.Apart {
		if err := keepSignals(); err != nil {
			return err
		}
	}
	return &os.PathError{Op: "exec", Path: o.Exe, Err: execUnder(o.Limits, o.Exe, o.Argv, o.Env)}
}

// keepSignals puts the calling thread, and what it becomes, into a Landlock domain of its own,
// from which no signal leaves. The child half is in the one around it, by the rules that it laid on
// itself, and without a pid namespace is all that ends what the command started. It is tried.
// Before its sixth version Landlock cannot, and what the probe finds of signals says so.
func keepSignals() error {
	abi, err := landlockABI()
	if err != nil || abi < 6 {
		return nil
	}
	if err := enterDomain(unix.LandlockRulesetAttr{Scoped: unix.LANDLOCK_SCOPE_SIGNAL}, abi, nil); err != nil {
		return err
	}
	if err := unix.Kill(unix.Getppid(), 0); err != unix.EPERM {
		return fmt.Errorf("the process that watches could be signalled: %v", err)
	}
	return nil
}

// ready is what a starter says when nothing is left to do but to take the limits upon itself
// and to execute the program. What follows it is an error.
const ready = "r"

// execUnder takes the limits and executes the program. From the first limit on it makes
// system calls alone, and allocates nothing.
func execUnder(limits []rlimit, exe string, argv, env []string) error {
	path, err := unix.BytePtrFromString(exe)
	if err != nil {
		return err
	}
	args, err := syscall.SlicePtrFromStrings(argv)
	if err != nil {
		return err
	}
	vars, err := syscall.SlicePtrFromStrings(env)
	if err != nil {
		return err
	}
	both := make([]unix.Rlimit, len(limits))
	for i, l := range limits {
		if err := unix.Getrlimit(l.Resource, &both[i]); err != nil {
			return fmt.Errorf("limit %s: %w", l.What, err)
		}
		n := min(l.N, both[i].Max)
		both[i] = unix.Rlimit{Cur: n, Max: n}
	}
	if _, err := unix.Write(reportFD, []byte(ready)); err != nil {
		return err
	}
	for i := range limits {
		_, _, e := unix.RawSyscall6(unix.SYS_PRLIMIT64, 0, uintptr(limits[i].Resource), uintptr(unsafe.Pointer(&both[i])), 0, 0, 0)
		if e != 0 {
			return e
		}
	}
	// Not by package syscall, whose way there is longer, and puts back a limit on
	// descriptors that nobody changed here.
	_, _, e := unix.RawSyscall(unix.SYS_EXECVE, uintptr(unsafe.Pointer(path)), uintptr(unsafe.Pointer(&args[0])), uintptr(unsafe.Pointer(&vars[0])))
	runtime.KeepAlive(args)
	runtime.KeepAlive(vars)
	return e
}

var errStarter = errors.New("the process that was to become the command died before")

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
		Env:   halfEnv[:],
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
	text, answer := heard(string(said))
	if answer == nil {
		err = nil // it is the command, or was
	}
	if err = errors.Join(answer, err, rerr); err != nil {
		if ws := waitFor(pid); text == "" && ws.Signaled() {
			err = fmt.Errorf("%w: %s", err, unix.SignalName(ws.Signal()))
		}
		return 0, err
	}
	return pid, nil
}

// heard judges what a starter said before it ended or became the command.
func heard(said string) (text string, err error) {
	text, isReady := strings.CutPrefix(said, ready)
	switch {
	case text != "":
		return text, errors.New(text)
	case !isReady:
		return "", errStarter
	}
	return "", nil
}
