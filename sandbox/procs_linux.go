package sandbox

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

type process struct {
	pid, ppid int
	comm      string
	state     byte
}

func (p process) dead() bool { return p.state == 'Z' || p.state == 'X' }

func numericNames(dir string) ([]int, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	names, err := f.Readdirnames(-1)
	var out []int
	for _, n := range names {
		if i, e := strconv.Atoi(n); e == nil {
			out = append(out, i)
		}
	}
	return out, err
}

// processes lists what /proc shows; processes that end meanwhile are left out.
func processes() []process {
	pids, _ := numericNames("/proc")
	var out []process
	for _, pid := range pids {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			continue
		}
		open, end := bytes.IndexByte(b, '('), bytes.LastIndexByte(b, ')')
		if open < 0 || end < open {
			continue
		}
		f := bytes.Fields(b[end+1:])
		if len(f) < 2 {
			continue
		}
		ppid, _ := strconv.Atoi(string(f[1]))
		out = append(out, process{pid, ppid, string(b[open+1 : end]), f[0][0]})
	}
	return out
}

// descendants lists the living processes below the caller. As the caller is
// their reaper, an orphan is its child and cannot leave the tree.
func descendants() []process {
	all := processes()
	below := map[int]bool{os.Getpid(): true}
	var out []process
	for grew := true; grew; {
		grew = false
		for _, p := range all {
			if !below[p.pid] && below[p.ppid] {
				below[p.pid] = true
				grew = true
				if !p.dead() {
					out = append(out, p)
				}
			}
		}
	}
	return out
}

// killDescendants kills until the caller has no descendant. It stops them first,
// so that a process that forks as fast as we kill does not win.
func killDescendants() {
	for !reap() {
		for _, p := range descendants() {
			_ = unix.Kill(p.pid, unix.SIGSTOP)
		}
		for _, p := range descendants() {
			_ = unix.Kill(p.pid, unix.SIGKILL)
		}
		time.Sleep(time.Millisecond)
	}
}
