// Package egress is the only way out of a sandbox that may reach some of the network: a
// proxy that the host runs on a listener which exists in the sandbox's own network
// namespace. The command is told of it by the usual variables (HTTP_PROXY,
// HTTPS_PROXY); a program that does not look at them reaches nothing, at once.
//
// A destination is a host, a port and a protocol of the trusted configuration. The name
// is resolved by the host, the addresses are looked at, and what is dialled is one of
// the very addresses that were looked at: a name that resolves to the machine
// itself (by any address that an interface of it has), to a private, link-local or
// otherwise special address is refused, however often its answer changes. Everything that is not listed is refused at once and recorded.
//
// What is let through can be changed while it serves (Let), which ends what the rules before
// let through: so it serves a program that lives long and may reach something only for the
// time of a request, and what it then asked for is the record of that request (Take).
//
// The proxy changes no content. Of a plain request it lets through the head and the body that
// the head announces, and of everything else whatever follows.
package egress

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Protocols of a Rule.
const (
	HTTPS = "https" // by CONNECT, and what follows begins like TLS
	HTTP  = "http"  // by CONNECT never: requests to the proxy, one a connection and nothing behind it
	TCP   = "tcp"   // by CONNECT, anything
)

// Rule is one destination. Host is a name or an address, in lower case.
type Rule struct {
	Host  string
	Port  int
	Proto string
}

// String is the form that ParseRule reads.
func (r Rule) String() string {
	return r.Proto + "://" + net.JoinHostPort(r.Host, strconv.Itoa(r.Port))
}

// ParseRule reads host:port, which is https, or one of https://, http:// and tcp:// before
// host:port. Wildcards are not known: each would have to be judged by who owns
// the names below it.
func ParseRule(s string) (Rule, error) {
	r := Rule{Proto: HTTPS}
	if proto, rest, ok := strings.Cut(s, "://"); ok {
		r.Proto, s = proto, rest
	}
	if r.Proto != HTTPS && r.Proto != HTTP && r.Proto != TCP {
		return r, fmt.Errorf("protocol %.20q, must be https, http or tcp", r.Proto)
	}
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		return r, fmt.Errorf("%.100q, must be host:port", s)
	}
	if r.Port, err = strconv.Atoi(port); err != nil || r.Port < 1 || r.Port > 65535 || port != strconv.Itoa(r.Port) {
		return r, fmt.Errorf("%.20q is no port", port)
	}
	if r.Host = normal(host); r.Host == "" {
		return r, fmt.Errorf("%.100q is no name of a host", host)
	}
	if a, err := netip.ParseAddr(r.Host); err == nil && !Public(a) {
		return r, fmt.Errorf("%s is an address that is never let through", a)
	}
	return r, nil
}

// normal is the one spelling of a host, "" for what is none.
func normal(host string) string {
	if a, err := netip.ParseAddr(host); err == nil && a.Zone() == "" {
		return a.Unmap().String()
	}
	host = strings.TrimSuffix(strings.ToLower(host), ".")
	if host == "" || len(host) > 253 {
		return ""
	}
	digits := true // of the last label: then it is a number in some spelling, not a name
	for label := range strings.SplitSeq(host, ".") {
		if label == "" || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' {
			return ""
		}
		digits = true
		for i := range len(label) {
			c := label[i]
			if !(c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '-' || c == '_') {
				return ""
			}
			digits = digits && c >= '0' && c <= '9'
		}
		digits = digits || strings.HasPrefix(label, "0x")
	}
	if digits {
		return ""
	}
	return host
}

// global6 is what of version 6 is given out for the internet.
var global6 = netip.MustParsePrefix("2000::/3")

// special are the ranges that Public refuses beyond what package netip tells. Some of
// them carry an address of version 4 inside, which could be any.
var special = func() []netip.Prefix {
	var out []netip.Prefix
	for _, s := range [...]string{
		"0.0.0.0/8", "100.64.0.0/10", "192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "240.0.0.0/4",
		"2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20",
	} {
		out = append(out, netip.MustParsePrefix(s))
	}
	return out
}()

// Public tells whether an address is one of the internet's: not of this machine, of a
// private or shared network, link-local (where clouds keep credentials), multicast,
// reserved, or one that is translated to another.
func Public(a netip.Addr) bool {
	a = a.Unmap()
	if !a.IsValid() || a.Zone() != "" || !a.IsGlobalUnicast() || a.IsPrivate() || a.IsLoopback() || a.IsLinkLocalUnicast() || a.IsMulticast() {
		return false
	}
	if a.Is6() && !global6.Contains(a) {
		return false
	}
	for _, p := range special {
		if p.Contains(a) {
			return false
		}
	}
	return true
}

// Limits bound a proxy.
const (
	maxConns = 64      // at a time; more are refused
	maxBytes = 4 << 30 // both directions, all connections together, under one set of rules
	maxHead  = 64 << 10
	maxLog   = 100 // lines on what is listed, and as many on what is not, until they are taken

	headTime = 10 * time.Second // until a request is complete
	dialTime = 10 * time.Second // to resolve and to connect
	idleTime = 2 * time.Minute
)

// reach is what is let through for the time being. Its connections end with it.
type reach struct {
	rules  map[Rule]bool
	ctx    context.Context
	cancel context.CancelFunc
	bytes  int64 // guarded by the mutex of the proxy
}

// Proxy serves one listener. Everything that it started has ended when Close returns. It is
// safe for concurrent use.
type Proxy struct {
	ctx    context.Context
	cancel context.CancelFunc
	l      net.Listener
	wg     sync.WaitGroup

	// For tests: how to resolve, what to let through, what this machine's addresses are, how
	// to dial.
	resolve func(context.Context, string) ([]netip.Addr, error)
	public  func(netip.Addr) bool
	own     func() ([]net.Addr, error)
	dial    func(context.Context, netip.AddrPort) (net.Conn, error)

	mu    sync.Mutex
	now   *reach
	conns map[net.Conn]*reach // nil for one whose request was not decided on
	log   []string
	said  map[string]bool
	lines map[bool]int // in log, by whether they are about a listed destination
}

// Serve begins to serve l, which belongs to the proxy then.
func Serve(l net.Listener, rules []Rule) *Proxy {
	p := newProxy(l, rules)
	p.start()
	return p
}

func newProxy(l net.Listener, rules []Rule) *Proxy {
	p := &Proxy{l: l, conns: map[net.Conn]*reach{}, said: map[string]bool{}, lines: map[bool]int{}, public: Public, own: net.InterfaceAddrs}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.now = p.reach(rules)
	p.resolve = func(ctx context.Context, host string) ([]netip.Addr, error) {
		return net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	}
	p.dial = func(ctx context.Context, to netip.AddrPort) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", to.String())
	}
	return p
}

func (p *Proxy) start() {
	p.wg.Go(func() {
		for {
			c, err := p.l.Accept()
			if err != nil {
				if p.ctx.Err() != nil || !errors.Is(err, syscallTemporary) {
					return
				}
				continue
			}
			if !p.enter(c) {
				c.Close()
				continue
			}
			p.wg.Go(func() {
				defer p.leave(c)
				p.serve(c)
			})
		}
	})
}

// Close ends all connections and waits for what serves them.
func (p *Proxy) Close() {
	p.cancel()
	p.l.Close()
	p.mu.Lock()
	for c := range p.conns {
		c.Close()
	}
	p.mu.Unlock()
	p.wg.Wait()
}

func (p *Proxy) reach(rules []Rule) *reach {
	r := &reach{rules: map[Rule]bool{}}
	r.ctx, r.cancel = context.WithCancel(p.ctx)
	for _, x := range rules {
		r.rules[x] = true
	}
	return r
}

// Let says what is let through from now on. What the rules before let through is ended,
// in the middle if need be, and its bytes are counted no more; nothing is let through by
// them when Let returns. No rules: nothing.
func (p *Proxy) Let(rules []Rule) {
	p.mu.Lock()
	defer p.mu.Unlock()
	before := p.now
	before.cancel()
	p.now = p.reach(rules)
	for c, r := range p.conns {
		if r == before {
			c.Close()
		}
	}
}

// Take says what was asked for since it was asked last, each destination once and in
// order, bounded.
func (p *Proxy) Take() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	log := p.log
	p.log, p.said, p.lines = nil, map[string]bool{}, map[bool]int{}
	return log
}

// note writes one line. Those on listed destinations have room of their own, so that
// nobody hides one behind a hundred refusals.
func (p *Proxy) note(listed bool, word, what string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.noted(listed, word, what)
}

func (p *Proxy) noted(listed bool, word, what string) {
	line := fmt.Sprintf("%s %.200q", word, what)
	n := p.lines[listed]
	if p.said[line] || n > maxLog {
		return
	}
	if n == maxLog {
		line = "and more"
	}
	p.said[line] = true
	p.lines[listed]++
	p.log = append(p.log, line)
}

func (p *Proxy) enter(c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.conns) >= 2*maxConns || p.ctx.Err() != nil { // each may have one outwards
		return false
	}
	p.conns[c] = nil
	return true
}

// join makes out what c is connected to, and notes it, or says why not. What is noted
// and what is let through are one step: who takes the log after Let has all of it.
func (p *Proxy) join(r *reach, c, out net.Conn, what string) (status, why string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.now != r || r.ctx.Err() != nil:
		p.noted(false, "refused", what+": its time is over")
		return forbidden, notNow
	case len(p.conns) >= 2*maxConns:
		return "503 Service Unavailable", "too many connections"
	}
	p.conns[c], p.conns[out] = r, r
	p.noted(true, "connected", what)
	return "", ""
}

func (p *Proxy) current() *reach {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.now
}

const (
	forbidden = "403 Forbidden"
	notNow    = "the sandbox does not let this destination through any more"
)

func (p *Proxy) leave(c net.Conn) {
	c.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, c)
}

// spend counts n bytes and tells whether there was room for them.
func (p *Proxy) spend(r *reach, n int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	r.bytes += int64(n)
	return r.bytes <= maxBytes
}

func refuse(c net.Conn, status, why string) {
	_ = c.SetWriteDeadline(time.Now().Add(headTime))
	fmt.Fprintf(c, "HTTP/1.1 %s\r\nConnection: close\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n\r\n%s\n", status, len(why)+1, why)
}

// serve answers one request.
func (p *Proxy) serve(c net.Conn) {
	_ = c.SetReadDeadline(time.Now().Add(headTime))
	r := bufio.NewReaderSize(io.LimitReader(c, maxHead), 4096)
	head, err := readHead(r)
	if err != nil {
		p.note(false, "malformed", err.Error())
		refuse(c, "400 Bad Request", "no request: "+err.Error())
		return
	}
	rule, first, body, err := head.rule()
	if err != nil {
		p.note(false, "malformed", head.method+" "+head.target+": "+err.Error())
		refuse(c, "400 Bad Request", err.Error())
		return
	}
	may := p.current()
	if rule.Proto != HTTP && !may.rules[rule] {
		rule.Proto = TCP // which CONNECT may be as well
	}
	if !may.rules[rule] {
		p.note(false, "refused", rule.Host+":"+strconv.Itoa(rule.Port))
		refuse(c, forbidden, "the sandbox does not let this destination through")
		return
	}
	out, status, err := p.connect(may.ctx, rule)
	if err != nil {
		p.note(true, "failed", rule.String()+": "+err.Error())
		refuse(c, status, err.Error())
		return
	}
	defer p.leave(out)
	if status, why := p.join(may, c, out, rule.String()); status != "" {
		refuse(c, status, why)
		return
	}
	_ = c.SetReadDeadline(time.Time{})
	buffered, _ := r.Peek(r.Buffered())
	in := io.MultiReader(strings.NewReader(string(buffered)), c)
	if rule.Proto == HTTP {
		in = io.MultiReader(strings.NewReader(first), body.of(in))
	}
	if rule.Proto != HTTP {
		_ = c.SetWriteDeadline(time.Now().Add(headTime))
		if _, err := io.WriteString(c, "HTTP/1.1 200 Connection established\r\n\r\n"); err != nil {
			return
		}
	}
	if rule.Proto == HTTPS {
		// A record of a TLS handshake, and nothing that another protocol begins with.
		b := make([]byte, 1)
		_ = c.SetReadDeadline(time.Now().Add(idleTime))
		if _, err := io.ReadFull(in, b); may.ctx.Err() != nil {
			return
		} else if err != nil || b[0] != 22 {
			p.note(true, "refused", rule.String()+": what was sent is not TLS")
			return
		}
		in = io.MultiReader(strings.NewReader(string(b)), in)
	}
	p.relay(may, c, out, in, rule.Proto != HTTP)
}

// connect resolves and dials. What is dialled is what was looked at.
func (p *Proxy) connect(ctx context.Context, r Rule) (net.Conn, string, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTime)
	defer cancel()
	addrs := []netip.Addr{}
	if a, err := netip.ParseAddr(r.Host); err == nil {
		addrs = append(addrs, a)
	} else if addrs, err = p.resolve(ctx, r.Host); err != nil {
		return nil, "502 Bad Gateway", errors.New("the name could not be resolved")
	}
	// One special address spoils the answer: who mixes them tries something.
	for _, a := range addrs {
		if !p.public(a) {
			return nil, forbidden, errors.New("the name resolves to an address that is never let through")
		}
	}
	err := errors.New("the name has no address")
	for _, a := range addrs {
		var c net.Conn
		// An address that this machine got meanwhile is its own as well.
		if own, oerr := p.isOwn(a); oerr != nil || own {
			return nil, forbidden, errors.New("the name resolves to an address of this machine, or these cannot be listed")
		}
		if c, err = p.dial(ctx, netip.AddrPortFrom(a.Unmap(), uint16(r.Port))); err == nil {
			return c, "", nil
		}
		err = errors.New("no connection")
	}
	return nil, "502 Bad Gateway", err
}

// isOwn tells whether an interface of this machine has the address now.
func (p *Proxy) isOwn(a netip.Addr) (bool, error) {
	list, err := p.own()
	if err != nil {
		return false, err
	}
	for _, x := range list {
		own, err := netip.ParsePrefix(x.String())
		if err != nil {
			return false, err
		}
		if own.Addr().Unmap().WithZone("") == a.Unmap() {
			return true, nil
		}
	}
	return false, nil
}

// relay copies both ways until one end is done or nothing moves any more. With both, the
// end of what the client sends is told to the server; a plain request has its own.
func (p *Proxy) relay(r *reach, c, out net.Conn, in io.Reader, both bool) {
	copyAll := func(to net.Conn, from io.Reader, conn net.Conn) {
		b := make([]byte, 32<<10)
		for {
			_ = conn.SetReadDeadline(time.Now().Add(idleTime))
			n, err := from.Read(b)
			if n > 0 {
				_ = to.SetWriteDeadline(time.Now().Add(idleTime))
				if !p.spend(r, n) {
					p.note(true, "refused", "more bytes than may be moved")
					err = io.ErrShortBuffer
				} else if _, werr := to.Write(b[:n]); werr != nil {
					err = werr
				}
			}
			if err == io.EOF {
				if !both && conn == c {
					return
				}
				if h, ok := to.(interface{ CloseWrite() error }); ok && h.CloseWrite() == nil {
					return
				}
			}
			if err != nil {
				// Neither direction makes sense without the other.
				c.Close()
				out.Close()
				return
			}
		}
	}
	var wg sync.WaitGroup
	wg.Go(func() { copyAll(c, out, out) })
	copyAll(out, in, c)
	wg.Wait()
}
