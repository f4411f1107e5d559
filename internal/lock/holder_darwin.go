package lock

import "golang.org/x/sys/unix"

// startTime is when the process began, in microseconds since the epoch.
func startTime(pid int) (uint64, error) {
	p, err := unix.SysctlKinfoProc("kern.proc.pid", pid)
	if err != nil {
		return 0, err
	}
	t := p.Proc.P_starttime
	return uint64(t.Sec)*1e6 + uint64(t.Usec), nil
}
