//go:build linux

package sandbox_test

import (
	"errors"
	"net"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/aspengine/asp/internal/need"
	"github.com/aspengine/asp/sandbox"
)

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
		s.Egress = []string{"listed.invalid:443"}
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
		"no port":         func(s *sandbox.Spec, _ *sandbox.Caps) { s.Egress = []string{"a.example"} },
		"the own machine": func(s *sandbox.Spec, _ *sandbox.Caps) { s.Egress = []string{"127.0.0.1:80"} },
	} {
		w.fresh(t)
		s, caps := w.spec("true"), w.caps
		s.Egress = []string{"a.example:443"}
		f(&s, &caps)
		_, err := sandbox.Run(t.Context(), caps, s)
		if bad := name == "no port" || name == "the own machine"; err == nil || errors.Is(err, sandbox.ErrUnsupported) == bad {
			t.Errorf("%s: %v", name, err)
		}
	}
}
