package casetest

import (
	"bufio"
	"context"
	bin "encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/aspengine/asp/internal/need"
	"github.com/aspengine/asp/provider"
)

// reachWord makes the test binary a provider that asks the proxy of its sandbox for what the
// changed file lists, or a machine of its own for the built command, on which one
// address of the internet answers.
const reachWord = "casetest-reach"

const (
	internet = "8.8.8.8" // of that machine; nobody's own address, and routed to it
	service  = internet + ":7777"
)

func reachMain(args []string) int {
	err := errors.New("not understood")
	switch {
	case len(args) > 1 && args[0] == "provide":
		err = reachingProvider(args[1:]).Serve(context.Background(), os.Stdin, os.Stdout)
	case len(args) > 1 && args[0] == "machine":
		err = inMachine(args[1:])
	case len(args) > 1 && args[0] == "on":
		err = onMachine(args[1:])
	}
	return statusOf(err)
}

// inMachine runs a program where there is no network but that of onMachine.
func inMachine(argv []string) error {
	cmd := exec.Command("/proc/self/exe", append([]string{reachWord, "on"}, argv...)...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	id := func(n int) []syscall.SysProcIDMap {
		return []syscall.SysProcIDMap{{ContainerID: n, HostID: n, Size: 1}}
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWUSER | unix.CLONE_NEWNET, UidMappings: id(os.Getuid()), GidMappings: id(os.Getgid()),
		AmbientCaps: []uintptr{unix.CAP_NET_ADMIN}}
	return cmd.Run()
}

// onMachine brings the machine up and runs a program on it.
func onMachine(argv []string) error {
	runtime.LockOSThread()
	if err := bringUp(); err != nil {
		return fmt.Errorf("bring up the network: %w", err)
	}
	l, err := net.Listen("tcp4", ":7777")
	if err != nil {
		return err
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				b := make([]byte, 100)
				n, _ := c.Read(b)
				_, _ = c.Write([]byte("heard " + string(b[:n])))
			}()
		}
	}()
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
		return err
	}
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	return cmd.Run()
}

// bringUp brings up the loopback and routes the address of the internet to it. No interface
// has that address, so it is none of the machine's own.
func bringUp() error {
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(s)
	req, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	req.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	if _, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(s), unix.SIOCSIFFLAGS, uintptr(unsafe.Pointer(req))); e != 0 {
		return e
	}
	n, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer unix.Close(n)
	attribute := func(kind uint16, v []byte) []byte {
		return append(bin.NativeEndian.AppendUint16(bin.NativeEndian.AppendUint16(nil, uint16(4+len(v))), kind), v...)
	}
	body := []byte{unix.AF_INET, 32, 0, 0, unix.RT_TABLE_LOCAL, unix.RTPROT_STATIC, unix.RT_SCOPE_HOST, unix.RTN_LOCAL, 0, 0, 0, 0}
	body = append(body, attribute(unix.RTA_DST, net.ParseIP(internet).To4())...)
	body = append(body, attribute(unix.RTA_OIF, bin.NativeEndian.AppendUint32(nil, 1))...)
	head := bin.NativeEndian.AppendUint32(nil, uint32(16+len(body)))
	head = bin.NativeEndian.AppendUint16(head, unix.RTM_NEWROUTE)
	head = bin.NativeEndian.AppendUint16(head, unix.NLM_F_REQUEST|unix.NLM_F_ACK|unix.NLM_F_CREATE)
	head = append(head, make([]byte, 8)...)
	if err := unix.Sendto(n, append(head, body...), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	answer := make([]byte, 4096)
	got, _, err := unix.Recvfrom(n, answer, 0)
	if err != nil {
		return err
	}
	if got < 20 || bin.NativeEndian.Uint16(answer[4:]) != unix.NLMSG_ERROR {
		return errors.New("netlink said something else")
	}
	if e := int32(bin.NativeEndian.Uint32(answer[16:])); e != 0 {
		return syscall.Errno(-e)
	}
	return nil
}

// reachingProvider expects to reach what it is told, and reports what comes of it.
func reachingProvider(expects []string) *provider.Provider {
	p := &provider.Provider{ID: "reach", Version: "1", Publisher: "casetest", Profiles: []string{"core-check-provider"}, Fingerprint: "sha256:reach"}
	for _, s := range expects {
		if s != "-" {
			p.Network = append(p.Network, s)
		}
	}
	p.Check = &provider.Check{Rules: []string{"reach/said"}, Run: func(ctx context.Context, h *provider.Host, r *provider.CheckRequest) (*provider.Report, error) {
		order, err := h.ReadBlob(ctx, r.Changes[0].After)
		if err != nil {
			return nil, err
		}
		said := fmt.Sprintf("granted %s\n", h.Grant().Network)
		for to := range strings.FieldsSeq(string(order)) {
			said += to + " " + askThrough(to) + "\n"
		}
		if c, err := net.Dial("tcp", service); err == nil {
			c.Close()
			said += "reached around the proxy\n"
		}
		return &provider.Report{Diagnostics: []provider.Diagnostic{{Rule: "reach/said", Severity: provider.SeverityInfo, Message: said, Path: "x"}}}, nil
	}}
	return p
}

func askThrough(to string) string {
	at, ok := strings.CutPrefix(os.Getenv("HTTPS_PROXY"), "http://")
	if !ok {
		return "no proxy"
	}
	c, err := net.Dial("tcp", at)
	if err != nil {
		return err.Error()
	}
	defer c.Close()
	fmt.Fprintf(c, "CONNECT %s HTTP/1.1\r\n\r\n", to)
	r := bufio.NewReader(c)
	line, _ := r.ReadString('\n')
	if _, status, _ := strings.Cut(strings.TrimSpace(line), " "); !strings.HasPrefix(status, "200") {
		return status
	}
	_, _ = r.ReadString('\n')
	_, _ = io.WriteString(c, "hello")
	b, _ := io.ReadAll(r)
	return string(b)
}

// reaching is a world on such a machine, with that provider in it, whose manifest expects
// what is given; "-" is no network.
func reaching(t *testing.T, expects ...string) *world {
	t.Helper()
	need.UserNS(t)
	w := newWorld(t, map[string]string{"x": "x\n"})
	self, err := os.Executable()
	must(t, err)
	copyProgram(t, self, filepath.Join(w.ws, "reach"), 0o755)
	w.own(filepath.Join(w.ws, "reach"))
	w.run("repo", "add", w.root).exits(0)
	w.isolatedPolicy(w.addReaching(expects...))
	w.program = []string{"/proc/self/exe", reachWord, "machine", binary}
	return w
}

// addReaching registers it, anew if need be, and returns the pin that names it.
func (w *world) addReaching(expects ...string) obj {
	w.t.Helper()
	raw, err := reachingProvider(expects).Manifest(filepath.Join(w.ws, "reach"), append([]string{reachWord, "provide"}, expects...))
	must(w.t, err)
	w.run("server", "add", "--manifest", w.beside("reach.json", string(raw), 0o644)).exits(0)
	w.run("repo", "enable", "reach", "--mode", "gated").exits(0)
	var m struct{ Artifact struct{ Fingerprint string } }
	must(w.t, json.Unmarshal(raw, &m))
	return obj{"id": "reach", "version": "1", "identity": "casetest", "integrity": m.Artifact.Fingerprint, "conformance": "core-check-provider"}
}

// network is the record of what the provider asked for, of the receipt of an answer.
func (w *world) network(r *result) []string {
	w.t.Helper()
	show := w.run("receipts", "show", r.str("receipt", "receiptId"), "--json").exits(0)
	all, _ := show.at("evidence", "checks").([]any)
	var out []string
	for _, c := range all {
		lines, _ := c.(map[string]any)["network"].([]any)
		for _, l := range lines {
			out = append(out, fmt.Sprint(l))
		}
	}
	return out
}

// TestProviderReachesWhatIsGranted: an isolated provider reaches what config.json and its manifest
// both name, by the proxy alone; all else is refused at once; both stand in the receipt, and
// what is granted and what is not is shown.
func TestProviderReachesWhatIsGranted(t *testing.T) {
	w := reaching(t, "tcp://"+service, "9.9.9.9")
	w.configure(obj{"providers": obj{"reach": obj{"network": []string{"tcp://" + service, "8.8.4.4:443"}}}})
	r := w.plan().modify("x", "x\n", strings.Join([]string{service, "8.8.8.8:443", "8.8.4.4:443", "9.9.9.9:443", "127.0.0.1:7777", "169.254.169.254:80"}, "\n")).
		apply("--call-site", "gate").applied()
	const shut = " 403 Forbidden\n"
	want := "granted [tcp://" + service + "]\n" + service + " heard hello\n8.8.8.8:443" + shut + "8.8.4.4:443" + shut + "9.9.9.9:443" + shut + "127.0.0.1:7777" + shut + "169.254.169.254:80" + shut + "\n"
	if got := findingsOf(r); got != want {
		t.Errorf("the provider says\n%swant\n%s", got, want)
	}
	if mode := r.str("assurance", "mode"); mode != "isolated" || !strings.Contains(r.str("assurance", "detail"), "of the network only tcp://"+service+" is let through") {
		t.Errorf("mode %s: %s", mode, r.str("assurance", "detail"))
	}
	record := []string{`connected "tcp://` + service + `"`, `refused "8.8.8.8:443"`, `refused "8.8.4.4:443"`, `refused "9.9.9.9:443"`, `refused "127.0.0.1:7777"`, `refused "169.254.169.254:80"`}
	if got := w.network(r); !slices.Equal(got, record) {
		t.Errorf("record %q", got)
	}
	status := w.run("server", "status", "reach", "--json").exits(0)
	if got := fmt.Sprint(status.at("server", "access", "granted")); got != "[tcp://"+service+"]" {
		t.Errorf("server status says %s", got)
	}
	status.says(0, "8.8.4.4:443: config.json lists it, and its manifest does not name it", "9.9.9.9: its manifest names it; to grant it")
	w.run("server", "status", "reach").says(0, "network      tcp://"+service+", while a request is open")
	w.run("repo", "status", w.root).says(0, "network: tcp://"+service)
	w.run("doctor").says(1, "network    provider reach: tcp://"+service, `provider "reach" is not granted 8.8.4.4:443`)
}

// TestProviderReachesNothing: who is not granted anything has no proxy, whoever else would grant it:
// what checks may reach, what another provider may, files of the repository and its
// policy; nor is what config.json lists granted to one whose manifest expects none.
func TestProviderReachesNothing(t *testing.T) {
	w := reaching(t, service)
	lists := obj{"network": []string{"tcp://" + service}}
	own, err := json.Marshal(obj{"providers": obj{"reach": lists}})
	must(t, err)
	for _, p := range []string{"config.json", ".asp/config.json", ".asp/local.json"} {
		w.write(p, string(own), 0o644)
	}
	w.configure(obj{"sandbox": lists, "providers": obj{"other": lists}})
	w.commit()
	nothing := func(r *result) {
		t.Helper()
		if got := findingsOf(r); got != "granted []\n"+service+" no proxy\n\n" {
			t.Errorf("the provider says\n%s", got)
		}
		detail := r.str("assurance", "detail")
		if got := w.network(r); len(got) > 0 || strings.Contains(detail, "let through") || !strings.Contains(detail, "no network,") {
			t.Errorf("record %q, %s", got, detail)
		}
	}
	nothing(w.plan().modify("x", "x\n", service).apply("--call-site", "gate").applied())
	w.addReaching("-")
	w.configure(obj{"providers": obj{"reach": lists}})
	nothing(w.plan().modify("x", service, service+"\n").apply("--call-site", "gate").applied())
	w.addReaching(service)
	w.configure(obj{})
	w.write(".asp/asp.json", strings.Replace(w.read(".asp/asp.json"), `"conformance":`, `"network":["tcp://`+service+`"],"conformance":`, 1), 0o644)
	w.commit()
	w.plan().modify("x", service+"\n", service).apply("--call-site", "gate").refused("check-indeterminate")
	w.run("status", "--json").says(0, `"activation":"rejected"`)
}

// TestProviderReachesOrNothing: where the rest of the network cannot be closed, or the proxy not be set
// up, a provider that is granted some is not started; one whose proxy does not answer is not isolated.
func TestProviderReachesOrNothing(t *testing.T) {
	w := reaching(t, service)
	w.configure(obj{"providers": obj{"reach": obj{"network": []string{"tcp://" + service}}}})
	p := w.plan().modify("x", "x\n", service)
	m := w.mark()
	listen := func(errno unix.Errno) []string { return []string{fmt.Sprintf("%d:1=128:%d", unix.SYS_LISTEN, errno)} }
	for _, row := range []struct {
		without string
		lacks   []string
		said    []string
	}{
		{"a network namespace", []string{fmt.Sprintf("%d:0&%d:%d", unix.SYS_CLONE, unix.CLONE_NEWNET, unix.EPERM), enosys(unix.SYS_CLONE3)},
			[]string{"no network namespace to close the rest", "`asp doctor` says how to get a network namespace"}},
		{"any namespace", noUserNS(), []string{"no network namespace to close the rest", "`asp doctor` says how to get a network namespace"}},
		{"a listener", listen(unix.ENOSYS), []string{"listen for the proxy", "`asp doctor` says how"}},
		{"anybody who listens", listen(0), []string{"the run established gated", "the proxy was not proved to refuse what is not listed"}},
	} {
		t.Run(row.without, func(t *testing.T) {
			w := w.as(t)
			r := w.lacking(row.lacks...)("apply", "--plan", p.file(), "--json", "--call-site", "gate").refused("weak-assurance")
			show := w.run("receipts", "show", r.str("receipt", "receiptId"), "--json").exits(0)
			for _, said := range row.said {
				if !strings.Contains(r.String()+show.String(), said) {
					t.Errorf("does not say %q: %s", said, r)
				}
			}
			m.unchanged()
		})
	}
}
