package egress

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestParseRule(t *testing.T) {
	for in, want := range map[string]string{
		"mirror.example.org:443": "https://mirror.example.org:443", "https://A.Example.:8443": "https://a.example:8443", "http://x.y:80": "http://x.y:80",
		"tcp://8.8.8.8:53": "tcp://8.8.8.8:53", "https://[2606:4700::1111]:443": "https://[2606:4700::1111]:443", "[::ffff:8.8.8.8]:443": "https://8.8.8.8:443",
	} {
		if r, err := ParseRule(in); err != nil || r.String() != want {
			t.Errorf("%s: %v, %v", in, r, err)
		}
	}
	for _, in := range []string{"", "x", "x:", "x:0", "x:65536", "x:+1", "x:01", ":443", "ftp://x:21", "*.x:443", "x y:1", "x/..:1", "-x:1", "x..y:1", "2130706433:80", "0x7f.1:80", "127.1:80",
		"127.0.0.1:80", "[::1]:80", "10.0.0.1:80", "169.254.169.254:80", "[fe80::1%25eth0]:80", "[fd00::1]:80", "[::ffff:127.0.0.1]:80", "[64:ff9b::7f00:1]:80", "0.0.0.0:80", "user@x:80"} {
		if r, err := ParseRule(in); err == nil {
			t.Errorf("%q was taken as %v", in, r)
		}
	}
}

func TestPublic(t *testing.T) {
	for _, s := range []string{"8.8.8.8", "1.1.1.1", "2606:4700::1111", "2a00:1450::1", "::ffff:8.8.8.8"} {
		if !Public(netip.MustParseAddr(s)) {
			t.Errorf("%s refused", s)
		}
	}
	for _, s := range []string{"0.0.0.0", "0.1.2.3", "10.1.2.3", "100.64.0.1", "127.0.0.1", "127.255.0.1", "169.254.169.254", "172.16.0.1", "172.31.255.255", "192.168.1.1", "192.0.0.170",
		"192.0.2.1", "198.18.0.1", "198.51.100.1", "203.0.113.1", "224.0.0.1", "240.0.0.1", "255.255.255.255", "::", "::1", "::7f00:1", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "fe80::1",
		"fc00::1", "fd00:ec2::254", "fec0::1", "ff02::1", "64:ff9b::a9fe:a9fe", "2002:7f00:1::1", "2001:0:1::1", "2001:db8::1", "100::1", "fe80::1%eth0", "3fff::1", "5f00::1", "4000::1", "e000::1", "1::1"} {
		if Public(netip.MustParseAddr(s)) {
			t.Errorf("%s let through", s)
		}
	}
	if Public(netip.Addr{}) {
		t.Error("no address let through")
	}
}

// world is a proxy before a server that sends back what it gets, in capitals.
type world struct {
	t      *testing.T
	p      *Proxy
	mu     sync.Mutex
	dialed []string
	said   []byte              // what the server got
	names  map[string][]string // answers, one a question; the last one stays
}

func newWorld(t *testing.T, rules ...string) *world {
	t.Helper()
	server, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, names: map[string][]string{}}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := server.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer c.Close()
				b := make([]byte, 4096)
				for {
					n, err := c.Read(b)
					if n > 0 {
						w.mu.Lock()
						w.said = append(w.said, b[:n]...)
						w.mu.Unlock()
						_, _ = c.Write([]byte(strings.ToUpper(string(b[:n]))))
					}
					if err != nil {
						return
					}
				}
			})
		}
	})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var list []Rule
	for _, s := range rules {
		r, err := ParseRule(s)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, r)
	}
	w.p = newProxy(l, list)
	w.p.resolve = func(_ context.Context, host string) ([]netip.Addr, error) {
		w.mu.Lock()
		defer w.mu.Unlock()
		a := w.names[host]
		if len(a) == 0 {
			return nil, errors.New("no such name")
		}
		if len(a) > 1 {
			w.names[host] = a[1:]
		}
		var out []netip.Addr
		for s := range strings.SplitSeq(a[0], " ") {
			out = append(out, netip.MustParseAddr(s))
		}
		return out, nil
	}
	w.p.dial = func(ctx context.Context, to netip.AddrPort) (net.Conn, error) {
		w.mu.Lock()
		w.dialed = append(w.dialed, to.String())
		w.mu.Unlock()
		return new(net.Dialer).DialContext(ctx, "tcp", server.Addr().String())
	}
	w.p.start()
	t.Cleanup(func() {
		w.p.Close()
		server.Close()
		wg.Wait()
	})
	return w
}

// ask sends a request and returns the first line of the answer, or of what the server said.
func (w *world) ask(request string) (string, *bufio.Reader, net.Conn) {
	w.t.Helper()
	c, err := net.Dial("tcp", w.p.l.Addr().String())
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { c.Close() })
	if _, err := io.WriteString(c, request); err != nil {
		w.t.Fatal(err)
	}
	r := bufio.NewReader(c)
	s, _ := r.ReadString('\n')
	return strings.TrimSpace(s), r, c
}

func TestWhatIsLetThrough(t *testing.T) {
	w := newWorld(t, "a.example:443", "http://a.example:80", "tcp://db.example:5432", "private.example:443", "mixed.example:443", "none.example:443", "8.8.8.8:443")
	w.names = map[string][]string{"a.example": {"8.8.4.4"}, "db.example": {"8.8.4.5"}, "private.example": {"10.0.0.1"}, "mixed.example": {"8.8.8.8 127.0.0.1"}, "evil.example": {"8.8.8.8"}}
	const refused = "HTTP/1.1 403 Forbidden"
	for _, c := range []struct{ name, request, want string }{
		{"listed", "CONNECT a.example:443 HTTP/1.1\r\nHost: a.example:443\r\n\r\n", "HTTP/1.1 200 Connection established"},
		{"another spelling", "CONNECT A.EXAMPLE.:443 HTTP/1.1\r\n\r\n", "HTTP/1.1 200 Connection established"},
		{"listed address", "CONNECT 8.8.8.8:443 HTTP/1.0\r\n\r\n", "HTTP/1.1 200 Connection established"},
		{"tcp", "CONNECT db.example:5432 HTTP/1.1\r\n\r\n", "HTTP/1.1 200 Connection established"},
		{"another port", "CONNECT a.example:22 HTTP/1.1\r\n\r\n", refused},
		{"another host", "CONNECT evil.example:443 HTTP/1.1\r\n\r\n", refused},
		{"a name below", "CONNECT x.a.example:443 HTTP/1.1\r\n\r\n", refused},
		{"another protocol", "CONNECT a.example:80 HTTP/1.1\r\n\r\n", refused},
		{"the address of a listed name", "CONNECT 8.8.4.4:443 HTTP/1.1\r\n\r\n", refused},
		{"loopback", "CONNECT 127.0.0.1:22 HTTP/1.1\r\n\r\n", refused}, {"metadata", "GET http://169.254.169.254/ HTTP/1.1\r\n\r\n", refused},
		{"resolves to a private address", "CONNECT private.example:443 HTTP/1.1\r\n\r\n", refused},
		{"resolves to one of each", "CONNECT mixed.example:443 HTTP/1.1\r\n\r\n", refused},
		{"does not resolve", "CONNECT none.example:443 HTTP/1.1\r\n\r\n", "HTTP/1.1 502 Bad Gateway"},
		{"a number as a name", "CONNECT 2130706433:443 HTTP/1.1\r\n\r\n", "HTTP/1.1 400 Bad Request"},
		{"https by name of a URL", "GET https://a.example/ HTTP/1.1\r\n\r\n", "HTTP/1.1 400 Bad Request"},
		{"a path alone", "GET / HTTP/1.1\r\nHost: a.example\r\n\r\n", "HTTP/1.1 400 Bad Request"},
		{"user in the URL", "GET http://a.example@evil.example/ HTTP/1.1\r\n\r\n", "HTTP/1.1 400 Bad Request"},
		{"bare line end", "CONNECT a.example:443 HTTP/1.1\n\n", "HTTP/1.1 400 Bad Request"},
		{"folded header", "CONNECT a.example:443 HTTP/1.1\r\nX: y\r\n z\r\n\r\n", "HTTP/1.1 400 Bad Request"},
		{"two lengths", "POST http://a.example/ HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", "HTTP/1.1 400 Bad Request"},
		{"endless head", "CONNECT a.example:443 HTTP/1.1\r\n" + strings.Repeat("X: y\r\n", 300) + "\r\n", "HTTP/1.1 400 Bad Request"},
		{"a method that is none", "GE(T http://a.example/ HTTP/1.1\r\n\r\n", "HTTP/1.1 400 Bad Request"},
		{"a field that is none", "GET http://a.example/ HTTP/1.1\r\nX\xe9: y\r\n\r\n", "HTTP/1.1 400 Bad Request"},
		{"a length that is none", "POST http://a.example/ HTTP/1.1\r\nContent-Length: +1\r\n\r\n", "HTTP/1.1 400 Bad Request"},
		{"another encoding", "POST http://a.example/ HTTP/1.1\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", "HTTP/1.1 400 Bad Request"},
		{"chunks of the old version", "POST http://a.example/ HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", "HTTP/1.1 400 Bad Request"},
		{"not http", "\x16\x03\x01\x00\r\n\r\n", "HTTP/1.1 400 Bad Request"},
		{"plain http", "GET http://a.example/p?q HTTP/1.1\r\nHost: other\r\nX: y\r\n\r\n", "GET /P?Q HTTP/1.1"},
	} {
		if got, _, _ := w.ask(c.request); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
	_, r, _ := w.ask("GET http://a.example/ HTTP/1.1\r\nHost: other\r\nConnection: keep-alive\r\n\r\n")
	var lines []string
	for {
		s, err := r.ReadString('\n')
		if lines = append(lines, strings.TrimSpace(s)); err != nil || lines[len(lines)-1] == "" {
			break
		}
	}
	if got := strings.Join(lines, "|"); got != "HOST: A.EXAMPLE|CONNECTION: CLOSE|" {
		t.Errorf("what the server gets: %q", got)
	}
	for _, d := range w.dialed {
		if d != "8.8.4.4:443" && d != "8.8.4.4:80" && d != "8.8.4.5:5432" && d != "8.8.8.8:443" {
			t.Errorf("dialled %s", d)
		}
	}
	log := strings.Join(w.p.Take(), "\n")
	for _, want := range []string{`refused "evil.example:443"`, `connected "https://a.example:443"`, `refused "169.254.169.254:80"`, `malformed "GET /: this is a proxy`, `malformed "the head of the request`} {
		if !strings.Contains(log, want) {
			t.Errorf("not in the log: %s\n%s", want, log)
		}
	}
}

// A name whose answer changes between looking and dialling: there is one answer.
func TestRebinding(t *testing.T) {
	w := newWorld(t, "a.example:443")
	w.names["a.example"] = []string{"8.8.8.8", "127.0.0.1"}
	for _, want := range []string{"HTTP/1.1 200 Connection established", "HTTP/1.1 403 Forbidden", "HTTP/1.1 403 Forbidden"} {
		if got, _, _ := w.ask("CONNECT a.example:443 HTTP/1.1\r\n\r\n"); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if len(w.dialed) != 1 || w.dialed[0] != "8.8.8.8:443" {
		t.Errorf("dialled %v", w.dialed)
	}
}

// An address that an interface of this machine has is its own, also one that it got while the
// proxy runs.
func TestOwnAddresses(t *testing.T) {
	w := newWorld(t, "a.example:443", "8.8.4.4:443")
	w.names["a.example"] = []string{"8.8.8.8"}
	var own []net.Addr
	var broken error
	w.p.own = func() ([]net.Addr, error) { return own, broken }
	for _, c := range []struct {
		own  []net.Addr
		err  error
		want string
	}{
		{nil, nil, " 200 "}, {[]net.Addr{&net.IPNet{IP: net.IPv4(8, 8, 8, 9), Mask: net.CIDRMask(24, 32)}}, nil, " 200 "},
		{[]net.Addr{&net.IPNet{IP: net.IPv4(8, 8, 8, 8), Mask: net.CIDRMask(24, 32)}, &net.IPNet{IP: net.IPv4(8, 8, 4, 4), Mask: net.CIDRMask(32, 32)}}, nil, " 403 "},
		{nil, errors.New("cannot list"), " 403 "},
	} {
		own, broken = c.own, c.err
		for _, host := range []string{"a.example:443", "8.8.4.4:443"} {
			if got, _, _ := w.ask("CONNECT " + host + " HTTP/1.1\r\n\r\n"); !strings.Contains(got+" ", c.want) {
				t.Errorf("%v, %v: %s: %q", c.own, c.err, host, got)
			}
		}
	}
	list, err := net.InterfaceAddrs()
	if err != nil || len(list) == 0 {
		t.Fatalf("%v: %v", list, err)
	}
	p := newProxy(nil, nil)
	defer p.cancel()
	for _, x := range list {
		a := netip.MustParsePrefix(x.String()).Addr()
		if own, err := p.isOwn(a); err != nil || !own {
			t.Errorf("%s: %v, %v", a, own, err)
		}
	}
}

// Of a plain request the server gets the head, the body that it announces, and nothing that
// a client puts behind it.
func TestPlainBody(t *testing.T) {
	for _, c := range []struct{ head, body, want string }{
		{"", "GET /evil HTTP/1.1\r\n\r\n", ""},
		{"Content-Length: 3\r\n", "abcGET /evil HTTP/1.1\r\n\r\n", "abc"},
		{"Content-Length: 0\r\n", "evil", ""},
		{"Transfer-Encoding: Chunked\r\n", "3;x=y\r\nabc\r\n0\r\n\r\nGET /evil HTTP/1.1\r\n\r\n", "3\r\nabc\r\n0\r\n\r\n"},
		{"Transfer-Encoding: chunked\r\n", "03\r\nabc\r\n0\r\nX: evil\r\n\r\n", "3\r\nabc\r\n0\r\n\r\n"},
		// Malformed ones end the connection, and are not said to be complete.
		{"Transfer-Encoding: chunked\r\n", "3\nabc\r\n0\r\n\r\n", ""},
		{"Transfer-Encoding: chunked\r\n", "+3\r\nabc\r\n0\r\n\r\n", ""},
		{"Transfer-Encoding: chunked\r\n", "3\r\nabcevil\r\n0\r\n\r\n", ""},
		{"Transfer-Encoding: chunked\r\n", "\r\nevil", ""},
	} {
		w := newWorld(t, "http://a.example:80")
		w.names["a.example"] = []string{"8.8.8.8"}
		_, r, conn := w.ask("POST http://a.example/p HTTP/1.1\r\n" + c.head + "\r\n" + c.body)
		_ = conn.(*net.TCPConn).CloseWrite()
		_, _ = io.Copy(io.Discard, io.LimitReader(r, int64(len("Host: a.example\r\nConnection: close\r\n\r\n")+len(c.head)+len(c.want))))
		w.p.Close()
		w.mu.Lock()
		got := string(w.said)
		w.mu.Unlock()
		if _, body, _ := strings.Cut(got, "\r\n\r\n"); body != c.want && !(c.want == "" && strings.HasPrefix("3\r\nabc\r\n", body)) {
			t.Errorf("%q %q: the server gets %q, want %q", c.head, c.body, body, c.want)
		}
	}
}

// What is listed has room in the log of its own, and the probe's questions are forgotten.
func TestLog(t *testing.T) {
	w := newWorld(t, "a.example:443")
	w.names["a.example"] = []string{"8.8.8.8"}
	w.p.note(false, "refused", "the probe's")
	w.p.Take()
	for i := range maxLog + 5 {
		w.p.note(false, "refused", fmt.Sprint(i))
	}
	w.ask("CONNECT a.example:443 HTTP/1.1\r\n\r\n")
	log := w.p.Take()
	if len(log) != maxLog+2 || log[maxLog] != "and more" || log[maxLog+1] != `connected "https://a.example:443"` || log[0] != `refused "0"` {
		t.Errorf("%d lines: %q", len(log), log)
	}
}

// Bytes go through unchanged; where TLS is granted nothing else does.
func TestTunnel(t *testing.T) {
	w := newWorld(t, "a.example:443", "tcp://a.example:22")
	w.names["a.example"] = []string{"8.8.8.8"}
	for _, c := range []struct{ port, say, want string }{{"443", "\x16abc", "\x16ABC"}, {"443", "SSH-2.0", ""}, {"443", "GET / HTTP/1.1", ""}, {"22", "ssh-2.0", "SSH-2.0"}} {
		_, r, conn := w.ask("CONNECT a.example:" + c.port + " HTTP/1.1\r\n\r\n")
		if s, _ := r.ReadString('\n'); s != "\r\n" {
			t.Fatalf("head ends with %q", s)
		}
		_, _ = io.WriteString(conn, c.say)
		_ = conn.(*net.TCPConn).CloseWrite()
		b, _ := io.ReadAll(r)
		if string(b) != c.want {
			t.Errorf("port %s, %q: %q, want %q", c.port, c.say, b, c.want)
		}
	}
}

// Close ends what is open, and more connections than there may be are turned away.
func TestBoundsAndEnd(t *testing.T) {
	w := newWorld(t, "tcp://a.example:22")
	w.names["a.example"] = []string{"8.8.8.8"}
	open := 0
	for range maxConns + 5 {
		if s, _, _ := w.ask("CONNECT a.example:22 HTTP/1.1\r\n\r\n"); strings.Contains(s, " 200 ") {
			open++
		}
	}
	if open == 0 || open > maxConns {
		t.Errorf("%d connections at a time", open)
	}
	w.p.Close() // goleak sees what it leaves
	if !w.p.spend(w.p.now, maxBytes) || w.p.spend(w.p.now, 1) {
		t.Error("bytes are not counted")
	}
}

func FuzzHead(f *testing.F) {
	f.Add("CONNECT a.example:443 HTTP/1.1\r\nX: y\r\n\r\n")
	f.Add("GET http://[::1]:80/x HTTP/1.1\r\nHost: y\r\n\r\n")
	f.Fuzz(func(t *testing.T, s string) {
		h, err := readHead(bufio.NewReader(strings.NewReader(s)))
		if err != nil {
			return
		}
		r, first, _, err := h.rule()
		if err != nil {
			return
		}
		if normal(r.Host) != r.Host || r.Port < 1 || r.Port > 65535 {
			t.Errorf("%q: %v", s, r)
		}
		if n := strings.Count(first, "\r\n\r\n"); r.Proto == HTTP && n != 1 {
			t.Errorf("%q: what is sent first has %d ends: %q", s, n, first)
		}
	})
}

// What is let through changes while it serves: what was let through before ends, what was on
// its way is turned back, the record is that of the time between, and bytes are counted anew.
func TestLet(t *testing.T) {
	w := newWorld(t, "tcp://a.example:22")
	w.names["a.example"] = []string{"8.8.8.8"}
	rules := []Rule{{Host: "a.example", Port: 22, Proto: TCP}}
	const ask = "CONNECT a.example:22 HTTP/1.1\r\n\r\n"
	said := func(want string) (*bufio.Reader, net.Conn) {
		t.Helper()
		got, r, c := w.ask(ask)
		if got != "HTTP/1.1 "+want {
			t.Errorf("%q, want %q", got, want)
		}
		return r, c
	}
	record := func(want ...string) {
		t.Helper()
		if got := w.p.Take(); strings.Join(got, "|") != strings.Join(want, "|") {
			t.Errorf("record %q, want %q", got, want)
		}
	}
	r, c := said("200 Connection established")
	_, _ = r.ReadString('\n')
	w.p.spend(w.p.current(), maxBytes)
	waiting, err := net.Dial("tcp", w.p.l.Addr().String()) // has not asked yet
	if err != nil {
		t.Fatal(err)
	}
	defer waiting.Close()
	w.p.Let(nil)
	record(`connected "tcp://a.example:22"`)
	if b, err := io.ReadAll(r); err == nil && len(b) > 0 {
		t.Errorf("what was let through goes on: %q", b)
	}
	c.Close()
	_, _ = io.WriteString(waiting, ask)
	if s, _ := bufio.NewReader(waiting).ReadString('\n'); !strings.Contains(s, " 403 ") {
		t.Errorf("who had not asked is told %q", s)
	}
	said("403 Forbidden")
	record(`refused "a.example:22"`)
	w.p.Let(rules)
	r, c = said("200 Connection established")
	_, _ = r.ReadString('\n')
	_, _ = io.WriteString(c, "x")
	if b, err := r.ReadByte(); err != nil || b != 'X' {
		t.Errorf("the bytes of before are counted: %q, %v", b, err)
	}
	// One that is being dialled when the rules change.
	dialling, go1 := make(chan struct{}), make(chan struct{})
	dial := w.p.dial
	w.p.dial = func(ctx context.Context, to netip.AddrPort) (net.Conn, error) {
		close(dialling)
		<-go1
		return dial(context.WithoutCancel(ctx), to)
	}
	var wg sync.WaitGroup
	wg.Go(func() { said("403 Forbidden") })
	<-dialling
	w.p.Let(nil)
	w.p.Take()
	close(go1)
	wg.Wait()
	record(`refused "tcp://a.example:22: its time is over"`)
	w.p.dial = dial
	for range 3 {
		w.p.Let(rules)
	}
	said("200 Connection established")
	w.p.Close()
	w.p.Let(rules) // lets nothing through any more
	if w.p.current().ctx.Err() == nil {
		t.Error("a proxy that was closed has rules that hold")
	}
}
