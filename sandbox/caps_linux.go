package sandbox

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// Probe asks this machine what it gives, by doing it in a child that is gone
// when Probe returns. It changes nothing but one directory that it makes and
// removes in dirs.Scratch. It takes a few milliseconds; one answer serves a
// process for all candidates on the same two file systems. It cannot fail:
// what could not be asked is Unknown.
func Probe(ctx context.Context, dirs ProbeDirs) Caps {
	if dirs.Scratch != "" {
		d, err := os.MkdirTemp(dirs.Scratch, "probe-")
		if err != nil {
			dirs = ProbeDirs{}
		} else {
			defer removeProbe(d)
			dirs.Scratch = d
		}
	}
	for _, net := range []bool{true, false} {
		caps, err := probeWith(ctx, dirs, net)
		if err == nil {
			return caps
		}
		if !net {
			return refused(err)
		}
	}
	return Caps{}
}

func probeWith(ctx context.Context, dirs ProbeDirs, net bool) (Caps, error) {
	h, err := spawn(true, net, Stdio{})
	if err != nil {
		return Caps{}, err
	}
	h.listen(defaultOutput)
	stop := context.AfterFunc(ctx, h.kill)
	defer stop()
	defer h.finish()
	if err := h.send(&order{Probe: &dirs}); err != nil {
		return Caps{}, err
	}
	r, err := h.receive()
	if err != nil {
		return Caps{}, err
	}
	if r.Stage != stageCaps || r.Caps == nil {
		return Caps{}, fmt.Errorf("probe child answered %q", r.Stage)
	}
	caps := *r.Caps
	caps.Groups = groupsAnswer(h)
	yes := Cap{Answer: Yes}
	caps.UserNS, caps.MountNS, caps.PIDNS = yes, yes, yes
	if net {
		caps.NetNS = yes
	} else {
		caps.NetNS = Cap{Answer: No, Detail: "the other namespaces work only without it"}
	}
	return caps, nil
}

// refused turns a failed start into an answer. Only errors by which the kernel
// says that it will not are a No.
func refused(err error) Caps {
	c := Cap{Answer: Unknown, Detail: err.Error()}
	var n syscall.Errno
	if errors.As(err, &n) {
		c.Errno = int(n)
		switch n {
		case syscall.EPERM, syscall.EACCES, syscall.EINVAL, syscall.ENOSYS, syscall.ENOSPC, syscall.EUSERS:
			c.Answer = No // ENOSPC, EUSERS: the limit on namespaces is zero or reached
		}
	}
	caps := Caps{UserNS: c, Seccomp: seccompAnswer()}
	caps.Landlock = landlockAnswer() // these need no namespace
	return caps
}

func landlockAnswer() Cap {
	abi, err := landlockABI()
	c := answer(err)
	if err == nil {
		c.Detail = fmt.Sprintf("ABI %d", abi)
	}
	return c
}

func removeProbe(dir string) {
	// Overlay leaves directories without permission bits.
	for _, d := range []string{"work", "work/incompat", "work/incompat/volatile"} {
		_ = os.Chmod(filepath.Join(dir, "work", d), 0o700)
	}
	_ = os.RemoveAll(dir)
}

// probeInside runs in a child with all namespaces.
func probeInside(dirs ProbeDirs) Caps {
	var c Caps
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		c.NewMounts = answer(err)
		return c
	}
	fd, err := newFS("tmpfs", unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV)
	if err == nil {
		err = unix.MoveMount(fd, "", unix.AT_FDCWD, "/proc/sys", unix.MOVE_MOUNT_F_EMPTY_PATH)
		if err == nil {
			err = unix.Unmount("/proc/sys", unix.MNT_DETACH)
		}
	}
	c.NewMounts = answer(err)
	_, err = newFS("proc", unix.MOUNT_ATTR_RDONLY)
	c.Proc = answer(err)
	if dirs.Lower != "" && dirs.Scratch != "" {
		m := Mount{Kind: MountOverlay, Lower: dirs.Lower, Upper: filepath.Join(dirs.Scratch, "upper"), Work: filepath.Join(dirs.Scratch, "work")}
		c.Overlay = answer(probeOverlay(m))
	}
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NODEV | unix.MOUNT_ATTR_NOSUID}
	c.ReadOnlyTree = answer(unix.MountSetattr(unix.AT_FDCWD, "/", unix.AT_RECURSIVE, &attr))
	c.Landlock = landlockAnswer()
	c.Seccomp = seccompAnswer()
	fd, err = newFS("tmpfs", unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV)
	if err == nil {
		err = enterRoot(fd)
	}
	c.PrivateRoot = answer(err)
	return c
}

// probeOverlay mounts one, writes through it and looks into the upper layer.
func probeOverlay(m Mount) error {
	for _, d := range []string{m.Upper, m.Work} {
		if err := os.Mkdir(d, 0o700); err != nil {
			return err
		}
	}
	fd, err := newOverlay(m)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	f, err := unix.Openat(fd, "probe", unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	unix.Close(f)
	_, err = os.Lstat(filepath.Join(m.Upper, "probe"))
	return err
}

func answer(err error) Cap {
	if err == nil {
		return Cap{Answer: Yes}
	}
	c := Cap{Answer: Unknown, Errno: errnoOf(err), Detail: err.Error()}
	switch unix.Errno(c.Errno) {
	case unix.EPERM, unix.EACCES, unix.EINVAL, unix.ENOSYS, unix.ENODEV, unix.EOPNOTSUPP:
		c.Answer = No
	}
	return c
}
