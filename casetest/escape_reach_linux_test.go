package casetest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// reach connects; what has to be waited for was not refused, and counts as reached.
func reach(family, typ int, to unix.Sockaddr) error {
	fd, err := unix.Socket(family, typ|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	_ = unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &unix.Timeval{Sec: 1})
	if err = unix.Connect(fd, to); err == nil && typ == unix.SOCK_DGRAM {
		_, err = unix.Write(fd, []byte("escaped"))
		if err == nil { // a refusal of what was sent comes afterwards
			_, err = unix.Write(fd, []byte("escaped"))
		}
	}
	if err == unix.EAGAIN || err == unix.EINPROGRESS || err == unix.ETIMEDOUT {
		return &strange{err}
	}
	return err
}

func inet(port int, a, b, c, d byte) unix.Sockaddr {
	return &unix.SockaddrInet4{Port: port, Addr: [4]byte{a, b, c, d}}
}

func networkAttempts() []attempt {
	none := []unix.Errno{unix.ENETUNREACH, unix.ECONNREFUSED, unix.EHOSTUNREACH, unix.EPERM, unix.EACCES}
	socket := func(name string, family, typ, proto int) attempt {
		return attempt{name: name, try: func(*bait) error {
			fd, err := unix.Socket(family, typ|unix.SOCK_CLOEXEC, proto)
			if err == nil {
				unix.Close(fd)
			}
			return refusedWith(err, unix.EAFNOSUPPORT, unix.EPERM, unix.EACCES, unix.EPROTONOSUPPORT)
		}}
	}
	return []attempt{
		{name: "host-loopback", open: true, try: func(b *bait) error {
			return refusedWith(reach(unix.AF_INET, unix.SOCK_STREAM, inet(b.Port, 127, 0, 0, 1)), none...)
		}},
		{name: "host-loopback-by-zero", open: true, try: func(b *bait) error {
			return refusedWith(reach(unix.AF_INET, unix.SOCK_STREAM, inet(b.Port, 0, 0, 0, 0)), none...)
		}},
		{name: "host-loopback-mapped", open: true, try: func(b *bait) error {
			to := &unix.SockaddrInet6{Port: b.Port, Addr: [16]byte{10: 0xff, 11: 0xff, 12: 127, 15: 1}}
			return refusedWith(reach(unix.AF_INET6, unix.SOCK_STREAM, to), append(none, unix.EAFNOSUPPORT)...)
		}},
		{name: "host-datagram", open: true, try: func(b *bait) error {
			return refusedWith(reach(unix.AF_INET, unix.SOCK_DGRAM, inet(b.UDP, 127, 0, 0, 1)), none...)
		}},
		{name: "internet", try: func(*bait) error {
			return refusedWith(reach(unix.AF_INET, unix.SOCK_STREAM, inet(443, 192, 0, 2, 1)), none...)
		}},
		{name: "internet-datagram", try: func(*bait) error {
			return refusedWith(reach(unix.AF_INET, unix.SOCK_DGRAM, inet(53, 192, 0, 2, 1)), none...)
		}},
		{name: "internet-6", try: func(*bait) error {
			to := &unix.SockaddrInet6{Port: 443, Addr: [16]byte{0x20, 0x01, 0x0d, 0xb8, 15: 1}}
			return refusedWith(reach(unix.AF_INET6, unix.SOCK_STREAM, to), append(none, unix.EAFNOSUPPORT, unix.EADDRNOTAVAIL)...)
		}},
		{name: "metadata-service", try: func(*bait) error {
			return refusedWith(reach(unix.AF_INET, unix.SOCK_STREAM, inet(80, 169, 254, 169, 254)), none...)
		}},
		{name: "multicast", try: func(*bait) error {
			return refusedWith(reach(unix.AF_INET, unix.SOCK_DGRAM, inet(5353, 224, 0, 0, 251)), none...)
		}},
		{name: "resolve-a-name", try: func(*bait) error {
			ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
			defer cancel()
			_, err := (&net.Resolver{PreferGo: true}).LookupHost(ctx, "name.example.com")
			if ctx.Err() != nil {
				return &strange{errors.New("it had to be waited for")} // what is off has to fail at once
			}
			return err
		}},
		{name: "new-interface-address", try: func(*bait) error {
			ifs, err := net.Interfaces()
			if err != nil {
				return &strange{err}
			}
			for _, i := range ifs {
				if i.Flags&net.FlagLoopback == 0 {
					return nil
				}
			}
			return errors.New("only the loopback")
		}},
		{name: "interface-down", try: func(*bait) error {
			fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
			if err != nil {
				return err
			}
			defer unix.Close(fd)
			ifr, err := unix.NewIfreq("lo")
			if err != nil {
				return &strange{err}
			}
			ifr.SetUint16(unix.IFF_UP | unix.IFF_PROMISC)
			return refusedWith(unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, ifr), unix.EPERM)
		}},
		{name: "low-port", try: func(*bait) error {
			fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
			if err != nil {
				return err
			}
			defer unix.Close(fd)
			return refusedWith(unix.Bind(fd, inet(22, 127, 0, 0, 1)), unix.EACCES, unix.EPERM)
		}},
		socket("raw-socket", unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP),
		socket("packet-socket", unix.AF_PACKET, unix.SOCK_RAW, 0x0300),
		socket("machine-socket", unix.AF_VSOCK, unix.SOCK_STREAM, 0),
		socket("crypto-socket", unix.AF_ALG, unix.SOCK_SEQPACKET, 0),
		socket("bluetooth-socket", unix.AF_BLUETOOTH, unix.SOCK_RAW, 0),
		socket("key-socket", unix.AF_KEY, unix.SOCK_RAW, 2),
		socket("cluster-socket", unix.AF_TIPC, unix.SOCK_DGRAM, 0),
		socket("audit-socket", unix.AF_NETLINK, unix.SOCK_RAW, 15+1+4), // NETLINK_CRYPTO less one
	}
}

func (b *bait) abstract() string { return "\x00" + b.Token }

func unixReach(name string) error {
	return reach(unix.AF_UNIX, unix.SOCK_STREAM, &unix.SockaddrUnix{Name: name})
}

func ipcAttempts() []attempt {
	return []attempt{
		{name: "abstract-socket", open: true, try: func(b *bait) error { return refusedWith(unixReach(b.abstract()), unix.ECONNREFUSED, unix.EPERM) }},
		{name: "socket-outside", open: true, try: func(b *bait) error { return unixReach(b.Outside + "/sock") }},
		{name: "socket-in-the-tree", open: true, try: func(b *bait) error { return unixReach(b.Root + "/sock") }},
		{name: "socket-seen", open: true, try: func(b *bait) error {
			if b.Seen == "" {
				return idle("only root can make it")
			}
			return unixReach(b.seen("sock"))
		}},
		{name: "fifo-seen", open: true, try: func(b *bait) error {
			if b.Seen == "" {
				return idle("only root can make it")
			}
			fd, err := unix.Open(b.seen("fifo"), unix.O_WRONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
			if err == nil {
				_, err = unix.Write(fd, []byte("x"))
				unix.Close(fd)
			}
			return err
		}},
		{name: "system-sockets", try: func(*bait) error {
			return anyOf(func() error { return unixReach("/run/dbus/system_bus_socket") }, func() error { return unixReach("/var/run/docker.sock") }, func() error { return unixReach("/dev/log") }, func() error { return unixReach("/run/systemd/private") })
		}},
		{name: "fifo-outside", open: true, try: func(b *bait) error {
			fd, err := unix.Open(b.Outside+"/fifo", unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
			if err != nil {
				return err
			}
			return unix.Close(fd)
		}},
		{name: "fifo-in-the-tree", open: true, try: func(b *bait) error {
			// The name may be there; the bait's process at the other end may not.
			fd, err := unix.Open(b.Root+"/fifo", unix.O_WRONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
			if err != nil {
				return err
			}
			defer unix.Close(fd)
			_, err = unix.Write(fd, []byte("x"))
			return err
		}},
		{name: "shared-memory", open: true, try: func(b *bait) error {
			m, err := unix.SysvShmAttach(b.Shm, 0, 0)
			if err == nil {
				_ = unix.SysvShmDetach(m)
			}
			return err
		}},
		{name: "semaphore", open: true, try: func(b *bait) error { return call(unix.SYS_SEMCTL, uintptr(b.Sem), 0, 12) }}, // GETVAL
		{name: "message-queue", open: true, try: func(b *bait) error {
			return call(unix.SYS_MSGRCV, uintptr(b.Msg), ptr(make([]byte, 128)), 64, 0, unix.IPC_NOWAIT|0x4000) // MSG_COPY
		}},
		{name: "list-of-shared-memory", open: true, try: func(b *bait) error {
			raw, err := os.ReadFile("/proc/sysvipc/shm")
			if err != nil {
				return err
			}
			if strings.Count(string(raw), "\n") > 1 {
				return nil
			}
			return errors.New("empty")
		}},
		{name: "posix-queue", open: true, try: func(b *bait) error {
			fd, err := mqOpen(b.Token, unix.O_RDONLY)
			if err == nil {
				unix.Close(fd)
			}
			return err
		}},
		{name: "host-dev-shm", open: true, try: func(b *bait) error { return sees("/dev/shm/" + b.Token) }},
	}
}

func mqOpen(name string, flags int) (int, error) {
	p, err := unix.BytePtrFromString(name)
	if err != nil {
		return -1, err
	}
	fd, _, e := unix.Syscall6(unix.SYS_MQ_OPEN, uintptr(unsafe.Pointer(p)), uintptr(flags), 0o600, 0, 0, 0)
	if e != 0 {
		return -1, e
	}
	return int(fd), nil
}

// lay makes what the bait's process has to have. The function that it returns
// takes all of it away and says who came.
func (b *bait) lay() (end func() string, err error) {
	b.Pid = os.Getpid()
	var undo []func()
	var doors []net.Listener
	var names []string
	fail := func(what string, e error) {
		if e != nil {
			err = errors.Join(err, fmt.Errorf("%s: %w", what, e))
		}
	}
	secret, e := os.Open(b.secret())
	fail("open secret", e)
	undo = append(undo, func() { secret.Close() })
	places := map[string][2]string{"tcp": {"tcp", "127.0.0.1:0"}, "abstract": {"unix", "@" + b.Token}, "outside": {"unix", b.Outside + "/sock"}, "tree": {"unix", b.Root + "/sock"}}
	fifos := []string{b.Outside + "/fifo", b.Root + "/fifo"}
	if b.Seen != "" {
		places["seen"] = [2]string{"unix", b.seen("sock")}
		fifos = append(fifos, b.seen("fifo"))
	}
	for name, at := range places {
		l, e := net.Listen(at[0], at[1])
		if fail(name, e); e != nil {
			continue
		}
		if name == "tcp" {
			b.Port = l.Addr().(*net.TCPAddr).Port
		}
		doors, names = append(doors, l), append(names, name)
	}
	dgram, e := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if fail("udp", e); e == nil {
		b.UDP = dgram.LocalAddr().(*net.UDPAddr).Port
	}
	for _, p := range fifos {
		fail("fifo", unix.Mkfifo(p, 0o600))
		fd, e := unix.Open(p, unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
		fail("fifo", e)
		undo = append(undo, func() { unix.Close(fd) })
	}
	b.Shm, e = unix.SysvShmGet(unix.IPC_PRIVATE, 4096, unix.IPC_CREAT|0o600)
	fail("shared memory", e)
	undo = append(undo, func() { _, _ = unix.SysvShmCtl(b.Shm, unix.IPC_RMID, nil) })
	sem, _, n := unix.Syscall(unix.SYS_SEMGET, unix.IPC_PRIVATE, 1, unix.IPC_CREAT|0o600)
	msg, _, n2 := unix.Syscall(unix.SYS_MSGGET, unix.IPC_PRIVATE, unix.IPC_CREAT|0o600, 0)
	if n != 0 || n2 != 0 {
		fail("SysV IPC", errors.Join(n, n2))
	}
	b.Sem, b.Msg = int(sem), int(msg)
	note := []byte("\x01\x00\x00\x00\x00\x00\x00\x00secret")
	fail("message", call(unix.SYS_MSGSND, msg, ptr(note), 6, 0))
	undo = append(undo, func() {
		_ = call(unix.SYS_SEMCTL, sem, 0, unix.IPC_RMID)
		_ = call(unix.SYS_MSGCTL, msg, unix.IPC_RMID)
	})
	mq, e := mqOpen(b.Token, unix.O_RDWR|unix.O_CREAT)
	fail("posix queue", e)
	undo = append(undo, func() {
		unix.Close(mq)
		p, _ := unix.BytePtrFromString(b.Token)
		_ = call(unix.SYS_MQ_UNLINK, uintptr(unsafe.Pointer(p)))
	})
	for _, d := range []string{"/dev/shm", "/tmp", "/var/tmp"} {
		name := filepath.Join(d, b.Token)
		fail(d, os.WriteFile(name, []byte("secret"), 0o600))
		undo = append(undo, func() { _ = os.Remove(name) })
	}
	return func() string {
		var came []string
		for i, l := range doors {
			type deadliner interface{ SetDeadline(time.Time) error }
			_ = l.(deadliner).SetDeadline(time.Now().Add(time.Millisecond))
			if c, err := l.Accept(); err == nil {
				c.Close()
				came = append(came, names[i])
			}
			l.Close()
		}
		_ = dgram.SetReadDeadline(time.Now().Add(time.Millisecond))
		if _, _, err := dgram.ReadFrom(make([]byte, 16)); err == nil {
			came = append(came, "udp")
		}
		for _, u := range undo {
			u()
		}
		return "came: " + strings.Join(came, " ") + "\n"
	}, err
}
