package lock

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"

	"github.com/aspengine/asp/internal/vfs"
)

// startTime reads field 22 of /proc/PID/stat. The second field, the name, is
// in parentheses and may hold anything, so counting starts after the last one.
func startTime(pid int) (uint64, error) {
	b, err := vfs.ReadProc(fmt.Sprintf("/proc/%d/stat", pid), 1024)
	if err != nil {
		return 0, err
	}
	i := bytes.LastIndexByte(b, ')')
	if i < 0 {
		return 0, errors.New("read process start time: no name field")
	}
	fields := bytes.Fields(b[i+1:]) // starts at field 3
	if len(fields) < 20 {
		return 0, errors.New("read process start time: too few fields")
	}
	return strconv.ParseUint(string(fields[19]), 10, 64)
}
