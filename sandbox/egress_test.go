//go:build linux

package sandbox_test

import (
	"bufio"
	"errors"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/aspengine/asp/internal/need"
	"github.com/aspengine/asp/sandbox"
	"github.com/aspengine/asp/sandbox/egress"
)

func gate(destinations []string) (sandbox.Gateway, error) { return egress.Open(destinations) }

// Some of the network is let through, and nothing else is: not by the proxy, not
// around it, and not to the host.
func TestEgress(t *testing.T) {
	if _, err := exec.LookPath("bash"); err != nil {
		need.Missing(t, "bash is not installed")
	}
	w := isolated(t)
	host, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer host.Close()
	_, port, _ := net.SplitHostPort(host.Addr().String())
	for _, isolate := range []bool{true, false} {
		w.fresh(t)
		s := w.alone(`ask() { exec 3<>/dev/tcp/127.0.0.1/${HTTPS_PROXY##*:} || return; printf 'CONNECT %s HTTP/1.1\r\n\r\n' $1 >&3; head -1 <&3 | tr -d '\r'; exec 3>&-; }
			ask listed.invalid:443; ask other.invalid:443; ask listed.invalid:22; ask 127.0.0.1:` + port + `; ask 169.254.169.254:80
			(exec 3<>/dev/tcp/192.0.2.1/443) 2>/dev/null && echo reached; (exec 3<>/dev/tcp/127.0.0.1/` + port + `) 2>/dev/null && echo reached
			echo $http_proxy $HTTP_PROXY $https_proxy | tr ' ' '\n' | sort -u | wc -l; echo $NO_PROXY`)
		s.Argv[0], s.Env["HTTP_PROXY"] = "bash", "http://192.0.2.1:1"
		s.Egress, s.Gateway = []string{"listed.invalid:443"}, gate
		want := sandbox.Isolated
		if !isolate {
			s.Require, want = sandbox.MediatedWrite, sandbox.MediatedWrite
		}
		res := run(t, w.caps, s)
		const out = "HTTP/1.1 502 Bad Gateway\nHTTP/1.1 403 Forbidden\nHTTP/1.1 403 Forbidden\nHTTP/1.1 403 Forbidden\nHTTP/1.1 403 Forbidden\n1\nlocalhost,127.0.0.1,::1\n"
		if string(res.Stdout) != out {
			t.Errorf("isolate %v: said\n%s", isolate, res.Stdout)
		}
		b := res.Boundary
		if b.Level != want || !b.NetworkOff || !slices.Equal(b.Egress, s.Egress) || !strings.Contains(b.Evidence, "only listed.invalid:443 is let through") {
			t.Errorf("isolate %v: boundary %s %v %s", isolate, b.Level, b.Egress, b.Evidence)
		}
		asked := 0
		for _, a := range b.Attempts {
			if strings.HasPrefix(a.Name, "ask the proxy") && a.Held {
				asked++
			}
		}
		if asked < 3 {
			t.Errorf("isolate %v: the probe asked %d times: %v", isolate, asked, b.Record())
		}
		if log := strings.Join(res.Egress, " "); strings.Contains(log, "asp-probe.invalid") || !strings.Contains(log, `refused "other.invalid:443"`) || !strings.Contains(log, "listed.invalid:443: the name could not be resolved") {
			t.Errorf("isolate %v: log %q", isolate, log)
		}
	}
}

// Without a namespace to close the rest there is no such launch, and no destination is
// guessed at.
func TestEgressOrNothing(t *testing.T) {
	w := newWorld(t)
	for name, f := range map[string]func(*sandbox.Spec, *sandbox.Caps){
		"whole network": func(s *sandbox.Spec, _ *sandbox.Caps) { s.Network = true },
		"no namespace":  func(_ *sandbox.Spec, c *sandbox.Caps) { c.NetNS.Answer = sandbox.No },
		"nothing whatever": func(s *sandbox.Spec, c *sandbox.Caps) {
			*c = sandbox.Caps{}
			s.Mounts, s.Require = nil, sandbox.Advisory
		},
		"nobody to serve": func(s *sandbox.Spec, _ *sandbox.Caps) { s.Gateway = nil },
		"no port":         func(s *sandbox.Spec, _ *sandbox.Caps) { s.Egress = []string{"a.example"} },
		"the own machine": func(s *sandbox.Spec, _ *sandbox.Caps) { s.Egress = []string{"127.0.0.1:80"} },
	} {
		w.fresh(t)
		s, caps := w.spec("true"), w.caps
		s.Egress, s.Gateway = []string{"a.example:443"}, gate
		f(&s, &caps)
		_, err := sandbox.Run(t.Context(), caps, s)
		if bad := name == "no port" || name == "the own machine" || name == "nobody to serve"; err == nil || errors.Is(err, sandbox.ErrUnsupported) == bad {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// What is held is let through for as long as the host says, and what was asked for is told
// for each of these times.
func TestReach(t *testing.T) {
	if _, err := exec.LookPath("bash"); err != nil {
		need.Missing(t, "bash is not installed")
	}
	w := isolated(t)
	w.fresh(t)
	s := w.alone(`while read -r to; do exec 3<>/dev/tcp/127.0.0.1/${HTTPS_PROXY##*:}; printf 'CONNECT %s HTTP/1.1\r\n\r\n' $to >&3; head -1 <&3 | cut -d' ' -f2; exec 3>&-; done`)
	s.Argv[0], s.Egress, s.EgressHeld, s.Gateway = "bash", []string{"a.invalid:443", "b.invalid:443"}, true, gate
	inR, inW, err := os.Pipe()
	must(t, err)
	defer inR.Close()
	defer inW.Close()
	outR, outW, err := os.Pipe()
	must(t, err)
	defer outR.Close()
	p, err := sandbox.Start(t.Context(), w.caps, s, sandbox.Stdio{In: inR, Out: outW})
	must(t, err)
	outW.Close()
	answers := bufio.NewScanner(outR)
	ask := func(to, want string) {
		t.Helper()
		_, err := inW.WriteString(to + "\n")
		must(t, err)
		if !answers.Scan() || answers.Text() != want {
			t.Errorf("%s: %q, want %s", to, answers.Text(), want)
		}
	}
	said := func(got []string, want ...string) {
		t.Helper()
		if !slices.Equal(got, want) {
			t.Errorf("record %q, want %q", got, want)
		}
	}
	ask("a.invalid:443", "403")
	must(t, p.Reach([]string{"a.invalid:443"}))
	ask("a.invalid:443", "502")
	ask("b.invalid:443", "403")
	said(p.Withhold(), `refused "a.invalid:443"`, `failed "https://a.invalid:443: the name could not be resolved"`, `refused "b.invalid:443"`)
	ask("a.invalid:443", "403")
	if err := p.Reach([]string{"a.invalid:443", "c.invalid:443"}); err == nil {
		t.Error("more is let through than the launch was made for")
	}
	ask("a.invalid:443", "403")
	inW.Close()
	res, err := p.Wait()
	must(t, err)
	said(p.Withhold(), `refused "a.invalid:443"`)
	if res.ExitCode != 0 || p.Boundary().Level != sandbox.Isolated {
		t.Errorf("status %d, %s", res.ExitCode, p.Boundary().Evidence)
	}
}
