package casetest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// workMain does what a check has to be able to do. A sandbox in which nothing
// works would hold every attempt.
func workMain(b *bait) int {
	d := filepath.Join(b.place(), "work")
	if !b.Provider {
		d = filepath.Join(b.Root, "work")
	}
	if err := os.MkdirAll(d, 0o755); err != nil {
		fmt.Println("FAILED mkdir:", err)
		return 1
	}
	code := 0
	for _, w := range works(d) {
		if err := w.do(); err != nil {
			fmt.Printf("FAILED %s: %v\n", w.name, err)
			code = 1
			continue
		}
		fmt.Println("worked", w.name)
	}
	return code
}

type work struct {
	name string
	do   func() error
}

func works(d string) []work {
	p := func(n string) string { return filepath.Join(d, n) }
	same := func(path, want string) error {
		got, err := os.ReadFile(path)
		if err == nil && string(got) != want {
			err = fmt.Errorf("holds %q", got)
		}
		return err
	}
	listen := func(network, at string) error {
		l, err := net.Listen(network, at)
		if err != nil {
			return err
		}
		defer l.Close()
		go func() {
			if c, err := l.Accept(); err == nil {
				_, _ = io.Copy(c, c)
				c.Close()
			}
		}()
		c, err := net.Dial(network, l.Addr().String())
		if err != nil {
			return err
		}
		defer c.Close()
		if _, err := c.Write([]byte("x")); err != nil {
			return err
		}
		_, err = io.ReadFull(c, make([]byte, 1))
		return err
	}
	return []work{
		{"create", func() error { return errors.Join(os.WriteFile(p("a"), []byte("1"), 0o644), same(p("a"), "1")) }},
		{"append and truncate", func() error { return errors.Join(os.Truncate(p("a"), 3), same(p("a"), "1\x00\x00")) }},
		{"rename", func() error { return os.Rename(p("a"), p("b")) }},
		{"chmod", func() error { return os.Chmod(p("b"), 0o711) }},
		{"symbolic link", func() error { return errors.Join(os.Symlink("b", p("s")), same(p("s"), "1\x00\x00")) }},
		{"hard link", func() error { return os.Link(p("b"), p("h")) }},
		{"times", func() error { return os.Chtimes(p("b"), time.Unix(1, 0), time.Unix(2, 0)) }},
		{"directories", func() error { return errors.Join(os.MkdirAll(p("x/y/z"), 0o755), os.Rename(p("x"), p("w"))) }},
		{"remove", func() error { return errors.Join(os.Remove(p("h")), os.RemoveAll(p("w"))) }},
		{"big file", func() error { return os.WriteFile(p("big"), make([]byte, 8<<20), 0o644) }},
		{"lock of a file", func() error {
			f, err := os.Open(p("b"))
			if err != nil {
				return err
			}
			defer f.Close()
			return unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		}},
		{"shared mapping", func() error {
			f, err := os.OpenFile(p("big"), os.O_RDWR, 0)
			if err != nil {
				return err
			}
			defer f.Close()
			m, err := unix.Mmap(int(f.Fd()), 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
			if err != nil {
				return err
			}
			m[0] = 1
			return errors.Join(unix.Msync(m, unix.MS_SYNC), unix.Munmap(m))
		}},
		{"watch of a directory", func() error {
			fd, err := unix.InotifyInit1(unix.IN_CLOEXEC)
			if err != nil {
				return err
			}
			defer unix.Close(fd)
			if _, err = unix.InotifyAddWatch(fd, d, unix.IN_CREATE); err != nil {
				return err
			}
			if err := os.WriteFile(p("seen"), nil, 0o644); err != nil {
				return err
			}
			_, err = unix.Read(fd, make([]byte, 512))
			return err
		}},
		{"fifo", func() error { return unix.Mkfifo(p("fifo"), 0o600) }},
		{"script", func() error {
			if err := os.WriteFile(p("script"), []byte("#!/bin/sh\necho ran\n"), 0o755); err != nil {
				return err
			}
			out, err := exec.Command(p("script")).Output()
			if err == nil && string(out) != "ran\n" {
				err = fmt.Errorf("said %q", out)
			}
			return err
		}},
		{"own program", func() error {
			out, err := exec.Command("/proc/self/exe", attackerWord, "who").Output()
			if err == nil && !strings.HasPrefix(string(out), "euid") {
				err = fmt.Errorf("said %q", out)
			}
			return err
		}},
		{"pipes", func() error {
			out, err := exec.Command("/bin/sh", "-c", "echo one | cat | tr o 0").Output()
			if err == nil && string(out) != "0ne\n" {
				err = fmt.Errorf("said %q", out)
			}
			return err
		}},
		{"signal to a child", func() error {
			c := exec.Command("/bin/sh", "-c", "trap 'exit 7' TERM; echo; while :; do sleep 0.05; done")
			r, err := c.StdoutPipe()
			if err != nil {
				return err
			}
			if err := c.Start(); err != nil {
				return err
			}
			_, _ = io.ReadFull(r, make([]byte, 1))
			if err := c.Process.Signal(unix.SIGTERM); err != nil {
				return err
			}
			_ = c.Wait()
			if n := c.ProcessState.ExitCode(); n != 7 {
				return fmt.Errorf("exit status %d", n)
			}
			return nil
		}},
		{"process group", func() error {
			c := exec.Command("/usr/bin/true")
			c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
			return c.Run()
		}},
		{"threads", func() error {
			var wg sync.WaitGroup
			ids := make([]int, 8)
			var ready sync.WaitGroup
			ready.Add(len(ids))
			for i := range ids {
				wg.Go(func() {
					runtime.LockOSThread()
					ids[i] = unix.Gettid()
					ready.Done()
					ready.Wait() // all at once, so each has a thread of its own
				})
			}
			wg.Wait()
			seen := map[int]bool{}
			for _, id := range ids {
				seen[id] = true
			}
			if len(seen) != len(ids) {
				return fmt.Errorf("%d threads", len(seen))
			}
			return nil
		}},
		{"server on the loopback", func() error { return listen("tcp", "127.0.0.1:0") }},
		{"socket with a path", func() error { return listen("unix", filepath.Join(os.TempDir(), "sock")) }},
		{"abstract socket", func() error { return listen("unix", "@own") }},
		{"name of this machine", func() error { _, err := net.LookupHost("localhost"); return err }},
		{"shared memory", func() error {
			id, err := unix.SysvShmGet(unix.IPC_PRIVATE, 4096, unix.IPC_CREAT|0o600)
			if err != nil {
				return err
			}
			_, err = unix.SysvShmCtl(id, unix.IPC_RMID, nil)
			return err
		}},
		{"dev shm", func() error { return os.WriteFile("/dev/shm/own", []byte("x"), 0o600) }},
		{"file in memory", func() error {
			fd, err := unix.MemfdCreate("x", unix.MFD_CLOEXEC)
			if err == nil {
				err = unix.Close(fd)
			}
			return err
		}},
		{"devices", func() error {
			f, err := os.Open("/dev/urandom")
			if err != nil {
				return err
			}
			defer f.Close()
			_, err = io.ReadFull(f, make([]byte, 8))
			return errors.Join(err, os.WriteFile("/dev/null", []byte("x"), 0))
		}},
		{"terminal of its own", func() error { return sees("/dev/ptmx") }},
		{"lower limits", func() error { return unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{}) }},
		{"processor affinity", func() error { var s unix.CPUSet; return unix.SchedGetaffinity(0, &s) }},
		{"own process", func() error { _, err := os.ReadFile("/proc/self/status"); return err }},
		{"home and temporary directory", func() error {
			return errors.Join(os.WriteFile(filepath.Join(os.Getenv("HOME"), "f"), nil, 0o600), os.WriteFile(filepath.Join(os.TempDir(), "f"), nil, 0o600))
		}},
	}
}

// exceedMain goes beyond a limit of TestEscapesOverLimits.
func exceedMain(b *bait, what string) int {
	var err error
	limit := map[string]unix.Errno{"memory": unix.ENOMEM, "file": unix.EFBIG, "descriptors": unix.EMFILE, "shared": unix.ENOSPC, "processes": unix.EAGAIN}[what]
	switch what {
	case "memory":
		_, err = unix.Mmap(-1, 0, 300<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_NORESERVE)
	case "file":
		signal.Ignore(unix.SIGXFSZ)
		err = os.WriteFile(b.place()+"/big", make([]byte, 9<<20), 0o644)
	case "descriptors":
		for range 64 {
			if _, err = unix.FcntlInt(0, unix.F_DUPFD_CLOEXEC, 0); err != nil {
				break
			}
		}
	case "shared":
		err = os.WriteFile("/dev/shm/big", bytes.Repeat([]byte("x"), 7<<20), 0o644)
		for i := 0; err == nil && i < 60; i++ {
			err = os.WriteFile(fmt.Sprint("/dev/shm/big", i), bytes.Repeat([]byte("x"), 7<<20), 0o644)
		}
	case "processes":
		for i := 0; err == nil && i < 100; i++ {
			// Not by os/exec, which takes a descriptor for each.
			_, err = syscall.ForkExec("/bin/sleep", []string{"sleep", "60"}, &syscall.ProcAttr{})
		}
	}
	o := outcome{what, held, ""}
	var odd *strange
	if err = refusedWith(err, limit); err == nil || errors.As(err, &odd) {
		o.what = escaped
	}
	o.detail = fmt.Sprint(err)
	fmt.Println(o)
	if what == "processes" { // they are not what is tried here
		_ = unix.Kill(-1, unix.SIGKILL)
	}
	return 1
}

// lingerMain leaves processes behind that do all they can to stay: in sessions of
// their own, children of nobody, deaf to signals, stopped. Each bears the token.
func lingerMain(token string) int {
	for _, script := range []string{
		"exec -a " + token + " sleep 600",
		"trap '' TERM HUP INT; while :; do sleep 600; done",
		"kill -STOP $$",
		"(setsid sh -c 'sleep 600; :' " + token + " &) ; sleep 600; :",
	} {
		c := exec.Command("/bin/bash", "-c", script, token)
		c.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		if err := c.Start(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 3
		}
	}
	return 0
}
