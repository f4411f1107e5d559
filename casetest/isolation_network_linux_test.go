package casetest

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/aspengine/asp/internal/need"
)

// TestSomeOfTheNetwork: a check reaches what the configuration lists by the proxy alone, and what it
// was refused is in the record. Where the rest cannot be closed it is not started, and
// a proxy that does not answer lowers the mode.
func TestSomeOfTheNetwork(t *testing.T) {
	need.UserNS(t)
	w := newWorld(t, map[string]string{"x": "x\n"})
	ran := filepath.Join(w.tmp, "ran")
	script := `ask() { exec 3<>/dev/tcp/127.0.0.1/${HTTPS_PROXY##*:}; printf 'CONNECT %s HTTP/1.1\r\n\r\n' $1 >&3; head -1 <&3; exec 3>&-; }
		for to in other.invalid:443 listed.invalid:22 169.254.169.254:80; do ask $to | grep -q ' 403 ' || exit 1; done
		! (exec 3<>/dev/tcp/192.0.2.1/443) 2>/dev/null`
	w.configure(obj{"sandbox": obj{"network": []string{"listed.invalid:443"}}, "checks": obj{
		"ask":  obj{"argv": []string{need.Tool(t, "bash"), "-c", script}, "callSites": []string{}},
		"mark": obj{"argv": []string{"sh", "-c", "echo > " + ran + ""}, "callSites": []string{}}}})
	p := w.plan().modify("x", "x\n", "y\n")
	m := w.mark()
	noNetwork := []string{fmt.Sprintf("%d:0&%d:%d", unix.SYS_CLONE, unix.CLONE_NEWNET, unix.EPERM), enosys(unix.SYS_CLONE3)}
	deaf := func(errno unix.Errno) []string { return []string{fmt.Sprintf("%d:1=128:%d", unix.SYS_LISTEN, errno)} } // the proxy's alone
	for _, row := range []struct {
		without string
		lacks   []string
		mode    string // "" where it is not started
		said    string
	}{
		{"a network namespace", noNetwork, "", "no network namespace to close the rest"},
		{"any namespace", noUserNS(), "", "no network namespace to close the rest"},
		{"a listener", deaf(unix.ENOSYS), "", "proxy"},
		{"anybody who listens", deaf(0), "gated", "the proxy was not proved to refuse what is not listed"},
	} {
		t.Run(row.without, func(t *testing.T) {
			w := w.as(t)
			r := w.lacking(row.lacks...)("doctor", "--json")
			if row.mode == "" {
				r = w.lacking(row.lacks...)("apply", "--plan", p.file(), "--json", "--check", "mark").refused("check-indeterminate")
			} else if r.str("mode", "can") != row.mode {
				t.Errorf("doctor says %q", r.str("mode", "can"))
			}
			if !strings.Contains(r.String(), row.said) {
				t.Errorf("does not say %q: %s", row.said, r)
			}
			w.lacking(row.lacks...)("apply", "--plan", p.file(), "--json", "--check", "mark", "--require-assurance", "isolated").refusedAny([]string{"weak-assurance", "check-indeterminate"})
			w.gone(ran)
			m.unchanged()
		})
	}
	r := p.apply("--check", "ask", "--require-assurance", "isolated").applied()
	show := w.run("receipts", "show", r.str("receipt", "receiptId"), "--json").exits(0)
	for _, said := range []string{`refused \"other.invalid:443\"`, `refused \"listed.invalid:22\"`, "only listed.invalid:443 is let through"} {
		if !strings.Contains(string(show.out), said) {
			t.Errorf("the receipt does not say %s: %s", said, show)
		}
	}
}
