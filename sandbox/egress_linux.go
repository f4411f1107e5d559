package sandbox

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Some of the network is let through without a bridge into the namespace: the child half
// listens on the namespace's own loopback and hands the listener out, and the host
// accepts on it. A socket stays in the namespace that it was made in, whoever holds it.

// proxyVariables tell programs of a proxy; of a command that has one they are ours.
var proxyVariables = [...]string{"HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "NO_PROXY", "no_proxy"}

// gateway opens what s is let through by, nil for nothing.
func gateway(s Spec) (Gateway, error) {
	if len(s.Egress) == 0 {
		return nil, nil
	}
	if s.Gateway == nil {
		return nil, errors.New("start sandbox: destinations are granted, and nobody would serve them")
	}
	g, err := s.Gateway(s.Egress)
	if err != nil {
		return nil, fmt.Errorf("start sandbox: %w", err)
	}
	return g, nil
}

// lendListener listens on the loopback and sends the socket to the host. The child half
// keeps none: the port is gone when the host closes it. It is another one than taken, at which
// the host listens and the probe tries to reach nobody.
func lendListener(taken int) (port int, err error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return 0, err
	}
	defer unix.Close(fd)
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		return 0, err
	}
	at, err := unix.Getsockname(fd)
	if err != nil {
		return 0, err
	}
	in, ok := at.(*unix.SockaddrInet4)
	if !ok {
		return 0, unix.EAFNOSUPPORT
	}
	if in.Port == taken {
		return lendListener(taken) // while this one is bound, so it is not given again
	}
	if err := unix.Listen(fd, 128); err != nil {
		return 0, err
	}
	return in.Port, unix.Sendmsg(orderFD, []byte{0}, unix.UnixRights(fd), nil, 0)
}

// serveProxy takes the listener from the child half and has it served.
func serveProxy(socket *os.File, g Gateway) error {
	fds, err := take(int(socket.Fd()), 1)
	if err != nil {
		return err
	}
	return g.Serve(os.NewFile(uintptr(fds[0]), "proxy"))
}

// endProxy ends what the run still had open and returns what it asked for; where Withhold
// says that, nothing.
func (p *Process) endProxy() []string {
	if p.proxy == nil {
		return nil
	}
	p.proxy.Close()
	if p.spec.EgressHeld {
		return nil
	}
	return p.proxy.Take()
}

// Reach lets through what list says, of what is in Spec.Egress, from now on, and ends all
// connections that were let through before. The error is that of a list with something
// else in it, and then nothing is let through. Without Spec.Egress nothing ever is.
func (p *Process) Reach(list []string) error {
	if p.proxy == nil {
		if len(list) > 0 {
			return fmt.Errorf("reach %.200q: this launch has no proxy", list)
		}
		return nil
	}
	return p.proxy.Let(list)
}

// Withhold lets nothing through from now on, ends all connections, and returns what was
// asked for since it was called last, bounded; also after the end.
func (p *Process) Withhold() []string {
	if p.proxy == nil {
		return nil
	}
	_ = p.proxy.Let(nil) // of nothing there is no error
	return p.proxy.Take()
}

// askProxy asks from inside for what must never be let through.
func (p *prober) askProxy(r *report, port int, b *bait) {
	ask := func(host, name string) {
		answer, err := askOnce(port, host)
		if err != nil {
			answer = err.Error()
		}
		r.Attempts = append(r.Attempts, Attempt{proxyAttempt + name, strings.HasPrefix(answer, "HTTP/1.1 403 "), answer})
	}
	for _, h := range []string{"169.254.169.254:80", "[::1]:22", "asp-probe.invalid:443"} {
		ask(h, h)
	}
	if b != nil {
		ask(fmt.Sprintf("127.0.0.1:%d", b.Port), "a listener on the host's loopback") // the same launch, the same record
	}
}

const (
	proxyAttempt   = "ask the proxy for "
	listenForProxy = "listen for the proxy"
)

func askOnce(port int, host string) (string, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return "", err
	}
	defer unix.Close(fd)
	for _, opt := range []int{unix.SO_SNDTIMEO, unix.SO_RCVTIMEO} {
		if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, opt, &unix.Timeval{Sec: 5}); err != nil {
			return "", err
		}
	}
	if err := unix.Connect(fd, &unix.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		return "", err
	}
	// Not by package net: it would have to be there before this half can begin.
	if _, err := unix.Write(fd, fmt.Appendf(nil, "CONNECT %s HTTP/1.1\r\n\r\n", host)); err != nil {
		return "", err
	}
	b := make([]byte, 64)
	n, err := unix.Read(fd, b)
	line, _, _ := strings.Cut(string(b[:max(n, 0)]), "\r\n")
	return line, err
}

// egress lowers a level that the proxy does not keep, and says what it lets through.
func (b *Boundary) egress(s *Spec, r report) {
	b.Egress = slices.Clone(s.Egress)
	asked, held := 0, true
	for _, a := range r.Attempts {
		if strings.HasPrefix(a.Name, proxyAttempt) {
			asked++
			held = held && a.Held
		}
	}
	if asked == 0 || !held {
		b.Level = min(b.Level, Gated)
		b.Evidence += "; the proxy was not proved to refuse what is not listed"
		return
	}
	b.Evidence += fmt.Sprintf("; of the network only %s is let through, by a proxy of the host's that refused %d other destinations asked for from inside", strings.Join(s.Egress, ", "), asked)
}
