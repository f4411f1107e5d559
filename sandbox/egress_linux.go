package sandbox

import (
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/aspengine/asp/sandbox/egress"
	"golang.org/x/sys/unix"
)

// Some of the network is let through without a bridge into the namespace: the child half
// listens on the namespace's own loopback and hands the listener out, and the host
// accepts on it. A socket stays in the namespace that it was made in, whoever holds it.

// proxyVariables tell programs of a proxy; of a command that has one they are ours.
var proxyVariables = [...]string{"HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "NO_PROXY", "no_proxy"}

// egressRules are what s lets through.
func egressRules(s Spec) ([]egress.Rule, error) {
	var out []egress.Rule
	for _, e := range s.Egress {
		r, err := egress.ParseRule(e)
		if err != nil {
			return nil, fmt.Errorf("start sandbox: destination %.200q: %w", e, err)
		}
		out = append(out, r)
	}
	return out, nil
}

// lendListener listens on the loopback and sends the socket to the host. The child half
// keeps none: the port is gone when the host closes it.
func lendListener() (port int, err error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return 0, err
	}
	defer unix.Close(fd)
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		return 0, err
	}
	if err := unix.Listen(fd, 128); err != nil {
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
	return in.Port, unix.Sendmsg(orderFD, []byte{0}, unix.UnixRights(fd), nil, 0)
}

// serveProxy takes the listener from the child half and serves it.
func serveProxy(socket *os.File, rules []egress.Rule) (*egress.Proxy, error) {
	fds, err := take(int(socket.Fd()), 1)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fds[0]), "proxy")
	defer f.Close()
	l, err := net.FileListener(f)
	if err != nil {
		return nil, err
	}
	return egress.Serve(l, rules), nil
}

// endProxy ends what the run still had open and returns what it asked for.
func (p *Process) endProxy() []string {
	if p.proxy == nil {
		return nil
	}
	p.proxy.Close()
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
	rules, err := egressRules(Spec{Egress: list})
	if granted, gerr := egressRules(p.spec); err == nil && gerr == nil {
		for _, r := range rules {
			if !slices.Contains(granted, r) {
				err = fmt.Errorf("reach %s: this launch was made without it", r)
			}
		}
	}
	if err != nil {
		rules = nil
	}
	p.proxy.Let(rules)
	return err
}

// Withhold lets nothing through from now on, ends all connections, and returns what was
// asked for since it was called last, bounded.
func (p *Process) Withhold() []string {
	if p.proxy == nil {
		return nil
	}
	p.proxy.Let(nil)
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
	c, err := net.DialTimeout("tcp", fmt.Sprintf("127.0.0.1:%d", port), 5*time.Second)
	if err != nil {
		return "", err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(5 * time.Second))
	if _, err := fmt.Fprintf(c, "CONNECT %s HTTP/1.1\r\n\r\n", host); err != nil {
		return "", err
	}
	b := make([]byte, 64)
	n, err := c.Read(b)
	line, _, _ := strings.Cut(string(b[:n]), "\r\n")
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
