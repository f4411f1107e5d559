//go:build linux

package hosttest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// editor saves files of one group, by rename and in place, and looks at nothing.
type editor struct {
	s     *scene
	group int
	rng   *rand.Rand
	pace  chan struct{} // a plan of the group ended
	stop  chan struct{}
}

// work saves about once for three plans: at any moment, or in the middle of a swap,
// as soon as the first file of a plan was replaced. The others were looked at for
// the last time by then, and what undoes the plan is to come.
func (e *editor) work() error {
	moves, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return err
	}
	defer unix.Close(moves)
	dir := filepath.Dir(filepath.Join(e.s.w.root, pathOf(e.group, 0)))
	if _, err := unix.InotifyAddWatch(moves, dir, unix.IN_MOVED_TO); err != nil {
		return err
	}
	for {
		select {
		case <-e.stop:
			return nil
		case <-e.pace:
		}
		saves := 1
		switch e.rng.IntN(6) {
		case 0:
			time.Sleep(time.Duration(e.rng.IntN(3000)) * time.Microsecond)
		case 1, 2:
			saves = 1 + e.rng.IntN(3)
			moved(moves, 0)
			moved(moves, 20)
		default:
			continue
		}
		for range saves {
			if err := e.s.save(e.group, e.rng.IntN(groupPaths), []string{"rename", "store", "truncate"}[e.rng.IntN(3)]); err != nil {
				return err
			}
		}
	}
}

// moved waits for a file to be moved to its name, for so many milliseconds, and
// forgets what was moved. Whether one was makes no difference to a save.
func moved(fd int, timeout int) {
	_, _ = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, timeout)
	var events [4096]byte
	for {
		if n, err := unix.Read(fd, events[:]); n <= 0 || err != nil {
			return
		}
	}
}

// save puts a new content there as editors do: a new file renamed over the old one,
// or the old one written, as it is or emptied first.
func (s *scene) save(group, i int, how string) error {
	h := happened{who: how, group: group, pre: nothing, post: nothing, out: saved}
	h.post[i] = s.fresh()
	target, text := filepath.Join(s.w.root, pathOf(group, i)), h.post[i].text()
	var err error
	h.call = s.clock.Add(1)
	if how == "rename" {
		beside := filepath.Join(s.w.base, fmt.Sprint("beside", group))
		if err = os.WriteFile(beside, []byte(text), 0o644); err == nil {
			err = os.Rename(beside, target)
		}
	} else {
		flags := os.O_WRONLY | os.O_CREATE
		if how == "truncate" {
			flags |= os.O_TRUNC
		}
		var landed bool
		if landed, err = inPlace(target, flags, text); !landed {
			h.out = unknown
		}
	}
	h.ret = s.clock.Add(1)
	s.record(h)
	return err
}

// inPlace stores text in the file of that name. Landed means that after the store
// the name still had the file that was opened: then the save is in place, and has to
// stay. Otherwise the file was replaced while it was open.
func inPlace(name string, flags int, text string) (landed bool, err error) {
	f, err := os.OpenFile(name, flags, 0o644)
	if err != nil {
		return false, err
	}
	defer f.Close()
	if _, err := f.WriteAt([]byte(text), 0); err != nil {
		return false, err
	}
	mine, err := f.Stat()
	if err != nil {
		return false, err
	}
	there, err := os.Stat(name)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	return err == nil && os.SameFile(mine, there), err
}
