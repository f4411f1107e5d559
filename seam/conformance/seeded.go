package conformance

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/aspengine/asp/internal/canon"
	"github.com/aspengine/asp/seam/wire"
)

// Provide plays the provider that the one argument, a Role as JSON, describes,
// until its input ends. It is an attacker by trade: nothing it does is meant to
// be safe outside the throw-away worlds of the suite. The result is its exit
// status.
func Provide(args []string, in io.Reader, out io.Writer) int {
	if len(args) != 1 {
		return 64
	}
	v, err := canon.Parse([]byte(args[0]), canon.Limits{})
	if err != nil {
		return 64
	}
	var role Role
	if err := wire.Decode(v, &role); err != nil {
		return 64
	}
	p := &seeded{role: role, in: bufio.NewReaderSize(in, 64<<10), out: out}
	if role.End == "ignore-term" {
		signal.Ignore(syscall.SIGTERM, syscall.SIGHUP, syscall.SIGINT)
	}
	if role.Initialize == "crash-at-start" {
		return 3
	}
	if role.Initialize == "noise-at-start" {
		p.raw("Ready on port 0\n")
	}
	status := p.serve()
	if role.End == "ignore-eof" || role.End == "ignore-term" {
		time.Sleep(time.Hour)
	}
	return status
}

// seeded is the provider at work. It has one goroutine.
type seeded struct {
	role    Role
	in      *bufio.Reader
	out     io.Writer
	next    int
	queue   []canon.Value // messages that came while an answer was waited for
	base    canon.Value   // the baseline of initialized
	granted canon.Value
}

var errInput = errors.New("input ended")

func (p *seeded) raw(s string) { io.WriteString(p.out, s) }

func (p *seeded) send(v canon.Value) { p.raw(string(v.Bytes()) + "\n") }

func (p *seeded) reply(id, result canon.Value) {
	p.send(object(member("jsonrpc", "2.0"), member("id", id), member("result", result)))
}

func (p *seeded) refuse(id canon.Value, code int, class, message string) {
	e := object(member("code", code), member("message", message))
	if class != "" {
		e = e.With("data", object(member("failClass", class)))
	}
	p.send(object(member("jsonrpc", "2.0"), member("id", id), member("error", e)))
}

// read takes one message off the stream.
func (p *seeded) read() (canon.Value, error) {
	for {
		line, err := readLine(p.in, lineLimit)
		if len(line) > 0 {
			if v, perr := canon.Parse(line, canon.Limits{Bytes: lineLimit}); perr == nil {
				return v, nil
			}
			p.refuse(canon.NullOf(), wire.CodeParse, "", "parse error")
		}
		if err != nil {
			return canon.Value{}, errInput
		}
	}
}

func (p *seeded) serve() int {
	for {
		var m canon.Value
		if len(p.queue) > 0 {
			m, p.queue = p.queue[0], p.queue[1:]
		} else {
			var err error
			if m, err = p.read(); err != nil {
				return 0
			}
		}
		id, params := at(m, "id"), at(m, "params")
		switch method := text(m, "method"); method {
		case "initialize":
			p.initialize(id, params)
		case "initialized":
			p.base, p.granted = at(params, "baseline"), at(params, "grantedPermissions")
		case "check/evaluate", "judge/evaluate":
			p.evaluate(id, params)
		case "edit/propose", "act/propose":
			p.propose(id, params)
		case "shutdown":
			if p.role.End == "ignore-eof" || p.role.End == "ignore-term" {
				continue
			}
			p.reply(id, canon.NullOf())
		case "exit":
			if p.role.End == "ignore-eof" || p.role.End == "ignore-term" {
				continue
			}
			return 0
		default:
			if strings.HasPrefix(method, "sense/") || strings.HasPrefix(method, "inspect/") {
				p.inspect(id, params)
			} else if id.Kind() != canon.Invalid {
				p.refuse(id, wire.CodeMethodNotFound, "contract", "no such method")
			}
		}
	}
}

// call asks the host and waits for its answer; what else comes is kept for later.
func (p *seeded) call(method string, params canon.Value) (canon.Value, *wire.Error, error) {
	p.next++
	id := p.next
	p.send(object(member("jsonrpc", "2.0"), member("id", id), member("method", method), member("params", params)))
	for {
		m, err := p.read()
		if err != nil {
			return canon.Value{}, nil, err
		}
		if text(m, "method") != "" || string(at(m, "id").Bytes()) != strconv.Itoa(id) {
			p.queue = append(p.queue, m)
			continue
		}
		if e, ok := m.Get("error"); ok {
			var we wire.Error
			if err := wire.Decode(e, &we); err != nil {
				return canon.Value{}, nil, err
			}
			return canon.Value{}, &we, nil
		}
		return at(m, "result"), nil, nil
	}
}

// blob reads one content; ok is false where it was refused.
func (p *seeded) blob(id string) (content string, ok bool) {
	v, e, err := p.call("workspace/readBlob", object(member("blobs", []string{id})))
	if e != nil || err != nil {
		return "", false
	}
	for _, b := range each(at(v, "blobs")) {
		if text(b, "id") != id {
			continue
		}
		c, err := wire.Blob{Encoding: wire.Encoding(text(b, "encoding")), Bytes: text(b, "bytes")}.Decode()
		return string(c), err == nil
	}
	return "", false
}

// initializeResult is the good answer.
func (p *seeded) initializeResult() canon.Value {
	reads := p.role.Reads
	if len(reads) == 0 {
		reads = []string{"**/*"}
	}
	caps := object()
	for _, f := range p.role.Families {
		switch f {
		case "check":
			caps = caps.With("check", object(member("capabilityVersion", "check/1.0"), member("diagnosticSources", []string{p.role.ID}),
				member("scopes", []string{"changeset", "workspace"}), member("comparisons", []string{"introduced", "all"}),
				member("partialResults", false), member("incremental", false), member("unsupportedReporting", "assessment-status")))
		case "edit":
			caps = caps.With("edit", object(member("capabilityVersion", "edit/1.0"),
				member("operations", []string{"text-edit", "multi-edit", "replace-resource", "rename"}),
				member("operationSupport", object(member("create", true), member("modify", true), member("delete", true), member("rename", true), member("move", false))),
				member("textEditSupport", true), member("wholeResourceSupport", true), member("renameMoveSupport", true),
				member("preconditionSupport", "required"), member("blobUploadSupport", "workspace/putBlob"), member("partialProposalSemantics", "status")))
		case "inspect":
			caps = caps.With("inspect", object(member("verbs", []string{"references", "symbols"}), member("scopes", []string{"workspace"})))
		}
	}
	return object(
		member("serverInfo", object(member("name", "Seeded "+p.role.ID), member("version", p.role.Version), member("fingerprint", "sha256:"+strings.Repeat("ab", 32)))),
		member("capabilityFamilies", p.role.Families),
		member("capabilities", caps),
		member("requestedPermissions", object(member("read", reads), member("write", false), member("network", false))),
	)
}

// initialize answers the handshake as the role has it.
func (p *seeded) initialize(id, params canon.Value) {
	good := p.initializeResult()
	switch how := p.role.Initialize; how {
	case "", "noise-at-start":
		p.reply(id, good)
	case "refuse-contract":
		p.refuse(id, wire.CodeUnsupportedVersion, "contract", "no version in common")
	case "refuse-input":
		p.refuse(id, wire.CodeInvalidInput, "input", "no version in common")
	case "refuse-health":
		p.refuse(id, wire.CodeNotReady, "health", "warming up")
	case "refuse-untyped":
		p.refuse(id, -32603, "", "no")
	case "not-json":
		p.raw("{\"jsonrpc\":\"2.0\",\"id\":" + string(id.Bytes()) + ",\"result\":{\n")
	case "null":
		p.reply(id, canon.NullOf())
	case "array":
		p.reply(id, canon.ArrayOf())
	case "empty":
		p.reply(id, object())
	case "no-families":
		p.reply(id, good.Without("capabilityFamilies"))
	case "empty-families":
		p.reply(id, put(good, []string{}, "capabilityFamilies"))
	case "unknown-family":
		p.reply(id, put(good, []string{"check", "bless"}, "capabilityFamilies"))
	case "unknown-member":
		p.reply(id, put(good, true, "extra"))
	case "host-field":
		p.reply(id, put(good, object(member("authority", "all")), "provenance"))
	case "number-version":
		p.reply(id, put(good, 1, "serverInfo", "version"))
	case "no-check-block":
		p.reply(id, put(good, object(), "capabilities"))
	case "skewed-server":
		p.reply(id, put(good, "9.9.9", "serverInfo", "version"))
	case "skewed-capability":
		p.reply(id, put(good, "check/9.0", "capabilities", "check", "capabilityVersion"))
	case "asks-write":
		p.reply(id, put(good, true, "requestedPermissions", "write"))
	case "asks-network":
		p.reply(id, put(good, true, "requestedPermissions", "network"))
	case "twice":
		p.reply(id, good)
		p.reply(id, put(good, "9.9.9", "serverInfo", "version"))
	case "crash":
		os.Exit(3)
	case "exit":
		os.Exit(0)
	case "hang":
		time.Sleep(time.Hour)
	default:
		p.refuse(id, -32603, "", fmt.Sprintf("no behaviour %q", how))
	}
}

// order finds what a request tells this provider to do: the part of a file name
// that reads ID=HOW, where several are separated by commas.
func (p *seeded) order(names []string, otherwise string) string {
	for _, n := range names {
		n = n[strings.LastIndexByte(n, '/')+1:]
		for _, o := range strings.Split(strings.TrimSuffix(n, ".txt"), ",") {
			if how, ok := strings.CutPrefix(o, p.role.ID+"="); ok {
				return how
			}
		}
	}
	return otherwise
}

// attack tries what a provider must not be able to do, and says how it went. A
// host that claims mediated-write must have all writes denied; one that claims
// isolated, all of it.
func (p *seeded) attack() []string {
	var out []string
	try := func(what string, err error) {
		r := "denied"
		if err == nil {
			r = "done"
		}
		out = append(out, what+" "+r)
	}
	target := p.role.Target
	try("write-new", os.WriteFile(target+"/stranger.txt", []byte("x"), 0o644))
	try("write-existing", appendTo(target+"/src/a.txt"))
	try("write-git", os.WriteFile(target+"/.git/stranger", []byte("x"), 0o644))
	try("write-parent", os.WriteFile("/proc/"+strconv.Itoa(os.Getppid())+"/cwd/stranger.txt", []byte("x"), 0o644))
	_, err := os.ReadFile(target + "/secret/k.txt")
	try("read-secret", err)
	return out
}

func appendTo(name string) error {
	f, err := os.OpenFile(name, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.WriteString("stranger\n")
	return err
}

// leaks lists what of the host's secrets this process can see.
func (p *seeded) leaks() []string {
	var out []string
	if s := os.Environ(); slices.ContainsFunc(s, func(e string) bool { return strings.Contains(e, canary) }) {
		out = append(out, "environment")
	}
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		for _, f := range []string{"environ", "cmdline"} {
			if b, err := os.ReadFile("/proc/" + e.Name() + "/" + f); err == nil && strings.Contains(string(b), canary) {
				out = append(out, "/proc/N/"+f)
			}
		}
	}
	fds, _ := os.ReadDir("/proc/self/fd")
	for _, e := range fds {
		n, err := strconv.Atoi(e.Name())
		to, lerr := os.Readlink("/proc/self/fd/" + e.Name())
		// What the runtime of the language opens by itself is no inheritance.
		if err == nil && n > 2 && lerr == nil && !strings.HasPrefix(to, "anon_inode:") && !strings.HasSuffix(to, "/fd") && !strings.HasPrefix(to, "/sys/fs/cgroup/") {
			out = append(out, "descriptor "+to)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// leaveChild starts a process that nobody waits for and that holds on to the
// streams.
func (p *seeded) leaveChild() error {
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	r := p.role
	r.Initialize, r.End = "", "ignore-term"
	v, err := canon.From(r)
	if err != nil {
		return err
	}
	c := exec.Command(exe, ProviderWord, string(v.Bytes()))
	c.Stdout, c.Stderr = os.Stdout, os.Stderr
	ownSession(c)
	return c.Start()
}

// inspect answers a query with one node.
func (p *seeded) inspect(id, params canon.Value) {
	rev := text(p.base, "rev")
	if b := at(params, "baseline"); b.Kind() == canon.Object {
		rev = text(b, "rev")
	}
	p.reply(id, object(member("nodes", []canon.Value{object(member("id", "sym:alpha"), member("kind", "function"), member("name", "alpha"),
		member("location", object(member("path", "src/a.txt"))))}), member("validAsOf", object(member("rev", rev), member("blobs", []string{})))))
}
