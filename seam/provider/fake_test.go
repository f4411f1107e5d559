package provider_test

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/aspengine/asp/internal/canon"
)

// fake is a provider whose behaviour its arguments script: key=value, where the
// key is a step of the session and the value what it does there instead of the
// honest thing. set=PATH=JSON and del=PATH change the result of a request
// before it is sent.
type fake struct {
	in       *bufio.Reader
	how      map[string]string
	edits    []string
	last     int
	baseline canon.Value
	legacy   bool
	served   []string
	requests int
	asides   int              // answers that were not waited for
	batch    *strings.Builder // nil: written at once
}

func fakeMain(args []string) int {
	f := &fake{in: bufio.NewReaderSize(os.Stdin, 64<<10), how: map[string]string{}}
	for _, a := range args {
		k, v, _ := strings.Cut(a, "=")
		if k == "set" || k == "del" {
			f.edits = append(f.edits, a)
			continue
		}
		f.how[k] = v
	}
	f.legacy = f.how["proto"] == "asp/0.1"
	return f.main()
}

func (f *fake) raw(s string) {
	if f.batch != nil {
		f.batch.WriteString(s)
		return
	}
	_, _ = io.WriteString(os.Stdout, s)
}

func (f *fake) send(members ...canon.Member) {
	o := canon.ObjectOf(append([]canon.Member{{Key: "jsonrpc", Value: canon.StringOf("2.0")}}, members...)...)
	f.raw(string(o.Bytes()) + "\n")
}

func (f *fake) answer(id, result canon.Value) {
	f.send(canon.Member{Key: "id", Value: id}, canon.Member{Key: "result", Value: result})
}

func (f *fake) fail(id canon.Value, code int, data string) {
	e := canon.ObjectOf(canon.Member{Key: "code", Value: canon.IntOf(int64(code))}, canon.Member{Key: "message", Value: canon.StringOf("no\x07")})
	if data != "" {
		e = e.With("data", parse(data))
	}
	f.send(canon.Member{Key: "id", Value: id}, canon.Member{Key: "error", Value: e})
}

func (f *fake) read() (canon.Value, bool) {
	line, err := f.in.ReadBytes('\n')
	if err != nil {
		return canon.Value{}, false
	}
	v, err := canon.Parse(bytes.TrimSpace(line), canon.Limits{Bytes: 64 << 20})
	if err != nil {
		fmt.Fprintln(os.Stderr, "bad line from host:", err)
		return canon.Value{}, false
	}
	return v, true
}

// call asks the host. Nothing else may come before the answer.
func (f *fake) call(method, params string) (result, e canon.Value) {
	f.last++
	f.send(canon.Member{Key: "id", Value: canon.IntOf(int64(f.last))}, canon.Member{Key: "method", Value: canon.StringOf(method)}, canon.Member{Key: "params", Value: parse(params)})
	v, ok := f.read()
	for id, _ := v.Get("id"); ok && id.Str() == "aside"; id, _ = v.Get("id") {
		f.aside()
		v, ok = f.read()
	}
	if !ok {
		os.Exit(9)
	}
	if m, there := v.Get("method"); there {
		fmt.Fprintln(os.Stderr, "sent while a callback was open:", m.Str())
		os.Exit(8)
	}
	result, _ = v.Get("result")
	e, _ = v.Get("error")
	return result, e
}

func parse(s string) canon.Value {
	v, err := canon.Parse([]byte(s), canon.Limits{})
	if err != nil {
		panic(s + ": " + err.Error())
	}
	return v
}

// main is the loop of an honest provider.
func (f *fake) main() int {
	switch f.how["start"] {
	case "exit":
		fmt.Fprintln(os.Stderr, "cannot \x1b[31mstart")
		return 3
	case "noise":
		f.raw("Ready on port 0\n")
	case "look":
		f.look()
	case "stderr":
		for range 5000 {
			fmt.Fprintln(os.Stderr, strings.Repeat("x", 100))
		}
	}
	for {
		v, ok := f.read()
		if !ok {
			if f.how["eof"] == "ignore" {
				time.Sleep(time.Hour)
			}
			return 0
		}
		method, _ := v.Get("method")
		id, _ := v.Get("id")
		params, _ := v.Get("params")
		switch m := method.Str(); m {
		case "": // the answer to a callback that nobody waited for
			f.aside()
		case "initialize":
			f.initialize(id, params)
		case "initialized":
			f.baseline, _ = params.Get("baseline")
			switch how, to, _ := strings.Cut(f.how["initialized"], " "); how {
			case "callback":
				f.callAside()
			case "reach":
				f.reach(to)
			}
		case "workspace/baselineChanged":
			if f.how["deaf"] != "" {
				continue
			}
			f.baseline, _ = params.Get("baseline")
			if f.how["told"] == "callback" {
				f.callAside()
			}
		case "shutdown":
			switch {
			case f.how["shutdown"] == "exit":
				return 0
			case f.how["shutdown"] == "hang":
				time.Sleep(time.Hour)
			case f.legacy || f.how["shutdown"] == "unknown":
				f.fail(id, -32601, "")
			default:
				f.answer(id, canon.NullOf())
			}
		case "exit":
			if f.how["eof"] == "ignore" {
				time.Sleep(time.Hour)
			}
			return 0
		case "$/cancelRequest":
		case "check/evaluate", "edit/propose":
			f.requests++
			f.served = nil
			if f.how["remember"] != "" {
				f.reminded(params)
			}
			changeset, _ := params.Get("changeset")
			if b, ok := changeset.Get("baseline"); ok && f.how["deaf"] == "refuse" && !canon.Equal(b, f.baseline) {
				f.fail(id, -32013, `{"failClass":"input","detail":"stale baseline"}`)
				continue
			}
			if code, leave := f.work(m, id, params); leave {
				return code
			}
		default:
			if strings.HasPrefix(m, "sense/") || strings.HasPrefix(m, "inspect/") {
				if f.how["spelling"] != "" && !strings.HasPrefix(m, f.how["spelling"]) {
					f.fail(id, -32601, "")
					continue
				}
				f.served = nil
				if f.how["reach"] != "" {
					f.reach(f.how["reach"])
				}
				f.readAll(`{}`)
				f.answer(id, f.edit(f.graph(m)))
				continue
			}
			f.fail(id, -32601, "")
		}
	}
}

// reminded tells of what it is reminded.
func (f *fake) reminded(params canon.Value) {
	word := map[bool]string{true: "there", false: "absent"}
	_, prior := params.Get("priorDiagnostics")
	_, last := params.Get("priorAssessments")
	fmt.Fprintf(os.Stderr, "prior %s assessments %s\n", word[prior], word[last])
}

// look tells what can be seen from inside.
func (f *fake) look() {
	fmt.Fprintf(os.Stderr, "env %q\n", os.Environ())
	wd, _ := os.Getwd()
	err := os.WriteFile("here", []byte("x"), 0o600)
	fmt.Fprintf(os.Stderr, "wd %s writable %v\n", wd, err == nil)
	fds, _ := os.ReadDir("/proc/self/fd")
	for _, d := range fds {
		if to, err := os.Readlink("/proc/self/fd/" + d.Name()); err == nil && !strings.HasPrefix(to, "anon_inode") && !strings.Contains(to, "/proc/") && !strings.HasPrefix(to, "/sys/fs/cgroup") {
			fmt.Fprintf(os.Stderr, "fd %s\n", d.Name())
		}
	}
	for _, dir := range strings.Split(f.how["dirs"], ",") {
		names, err := os.ReadDir(dir)
		werr := os.WriteFile(dir+"/written", nil, 0o600)
		fmt.Fprintf(os.Stderr, "dir %s: %d names, %v, written %v\n", dir, len(names), err != nil, werr == nil)
	}
}

const checkBlock = `{"capabilityVersion":"check/1.0","diagnosticSources":["fake"],"scopes":["changeset","workspace"],"comparisons":["introduced","all","resolved"],"partialResults":false,"incremental":true,"unsupportedReporting":"assessment-status"}`
const editBlock = `{"capabilityVersion":"edit/1.0","operations":["text-edit"],"operationSupport":{"create":true,"modify":true,"delete":true,"rename":true,"move":true},"textEditSupport":true,"wholeResourceSupport":true,"renameMoveSupport":true,"preconditionSupport":"required","blobUploadSupport":"workspace/putBlob","partialProposalSemantics":"status"}`
const inspectBlock = `{"verbs":["references","impact"],"query":["own"]}`

func (f *fake) initialize(id, params canon.Value) {
	f.baseline, _ = func() (canon.Value, bool) { w, _ := params.Get("workspace"); return w.Get("baseline") }()
	result := parse(`{"serverInfo":{"name":"Fake","version":"1.0.0","fingerprint":"sha256:00"},"capabilityFamilies":["check","edit","inspect"],
		"capabilities":{"check":` + checkBlock + `,"edit":` + editBlock + `,"inspect":` + inspectBlock + `},"requestedPermissions":{"read":["**/*","!secret/**"],"write":false,"network":false},"provenance":{"publisher":"p"}}`)
	if f.legacy {
		result = parse(`{"serverInfo":{"name":"fake","version":"1.0.0","fingerprint":"sha256:00"},"capabilityFamilies":["check","session"],
			"capabilities":{"check":{"diagnosticSources":["fake"],"rules":["a"],"manifest":{"x":1},"scopes":["changeset","paths"],"comparisons":["all"],"fixes":false}},
			"requestedPermissions":{"read":["**/*","!secret/**"],"write":false,"network":false},"provenance":{"publisher":"p","packageName":"n"}}`)
	}
	version, _ := params.Get("protocolVersion")
	want := "asp/1.0"
	if f.legacy {
		want = "asp/0.1"
	}
	if wants := f.how["wants"]; wants != "" {
		result = result.With("requestedPermissions", parse(wants))
	}
	switch how := f.how["init"]; {
	case version.Str() != want:
		f.fail(id, -32014, `{"failClass":"contract"}`)
	case how == "refuse":
		f.fail(id, -32013, `{"failClass":"input"}`)
	case how == "malformed":
		f.answer(id, result.Without("serverInfo"))
	case how == "pass":
		f.answer(id, result.With("pass", canon.BoolOf(true)))
	case how == "skew":
		f.answer(id, result.With("serverInfo", parse(`{"name":"Fake","version":"2.0.0","fingerprint":"sha256:00"}`)))
	case how == "write":
		f.answer(id, result.With("requestedPermissions", parse(`{"write":true}`)))
	case how == "noblock":
		f.answer(id, result.With("capabilities", parse(`{}`)))
	case how == "hang":
		time.Sleep(time.Hour)
	case how == "exit":
		os.Exit(4)
	case how == "callback":
		f.batch = new(strings.Builder)
		f.answer(id, result)
		f.callAside()
		_, _ = io.WriteString(os.Stdout, f.batch.String())
		f.batch = nil
	default:
		f.answer(id, result)
	}
}

// work answers a request that brings a result; leave ends the provider.
func (f *fake) work(method string, id, params canon.Value) (code int, leave bool) {
	result := f.honest(method, params)
	out := f.edit(result)
	if f.how["deaf"] == "echo" {
		out = replace(out, []string{"validAsOf", "baseline"}, f.baseline)
	}
	line := string(canon.ObjectOf(canon.Member{Key: "jsonrpc", Value: canon.StringOf("2.0")}, canon.Member{Key: "id", Value: id}, canon.Member{Key: "result", Value: out}).Bytes())
	how := f.how["work"]
	if n, ok := strings.CutPrefix(how, "first:"); ok { // bad for the first request of a session only
		how = ""
		if f.requests == 1 {
			how = n
		}
	}
	switch how {
	case "half":
		f.raw(line[:len(line)/2])
		return 3, true
	case "noeol":
		f.raw(line)
		return 0, true
	case "exit":
		return 5, true
	case "abort":
		_ = exec.Command("/bin/sh", "-c", "kill -KILL $PPID").Run()
		time.Sleep(time.Hour)
	case "null":
		f.raw("null\n")
	case "array":
		f.raw("[]\n")
	case "object":
		f.raw("{}\n")
	case "unknown-id":
		f.answer(canon.IntOf(99), out)
	case "noise":
		f.raw("progress: 50%\n")
	case "twice":
		f.raw(line + "\n" + strings.Replace(line, "complete", "incomplete", 1) + "\n")
		return 0, false
	case "stray":
		f.raw(line + "\n" + `{"jsonrpc":"2.0","id":77,"method":"workspace/listTree","params":{}}` + "\n")
		return 0, false
	case "noise-after":
		f.raw(line + "\ndone\n")
		return 0, false
	case "complain": // of something that it was told and cannot read
		f.raw(line + "\n" + `{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"no"}}` + "\n")
		return 0, false
	case "endless":
		for chunk := strings.Repeat("x", 1<<16); ; {
			if _, err := io.WriteString(os.Stdout, chunk); err != nil {
				return 7, true
			}
		}
	case "hang":
		f.hang()
		return 0, false
	case "hang-deaf":
		time.Sleep(time.Hour)
	case "fork":
		c := exec.Command("/bin/sh", "-c", "sleep 1000 & sleep 1000")
		_ = c.Start()
		f.hang()
		return 0, false
	case "error":
		f.fail(id, -32010, f.how["data"])
		return 0, false
	case "flood":
		for i := 0; ; i++ {
			f.send(canon.Member{Key: "method", Value: canon.StringOf("window/logMessage")}, canon.Member{Key: "params", Value: parse(`{"level":"info","message":"m"}`)})
		}
	case "exit-after":
		f.raw(line + "\n")
		return 0, true
	case "late": // an answer that comes when nobody waits any more
		f.hang()
		f.raw(line + "\n")
		return 0, false
	case "publish":
		for range 3 {
			f.publish("a")
		}
	}
	f.raw(line + "\n")
	return 0, false
}

// callAside calls back without waiting for the answer.
func (f *fake) callAside() {
	f.send(canon.Member{Key: "id", Value: canon.StringOf("aside")}, canon.Member{Key: "method", Value: canon.StringOf("workspace/listTree")}, canon.Member{Key: "params", Value: parse(`{}`)})
}

func (f *fake) aside() {
	f.asides++
	f.publish(fmt.Sprintf("p%d", f.asides))
}

func (f *fake) publish(uri string) {
	f.send(canon.Member{Key: "method", Value: canon.StringOf("judge/publishDiagnostics")}, canon.Member{Key: "params",
		Value: parse(`{"uri":"` + uri + `","validAsOf":{"rev":"r"},"diagnostics":[{"code":"fake/x","severity":"error","source":"s","message":"m","location":{"path":"a"},"fingerprint":"f"}]}`)})
}

// hang waits until the request is cancelled and then says so.
func (f *fake) hang() {
	for {
		v, ok := f.read()
		if !ok {
			os.Exit(0)
		}
		if m, _ := v.Get("method"); m.Str() == "$/cancelRequest" {
			p, _ := v.Get("params")
			id, _ := p.Get("id")
			f.fail(id, -32016, `{"failClass":"health"}`)
			return
		}
	}
}

// readAll lists what it is given and reads all of it.
func (f *fake) readAll(params string) map[string]string {
	files := map[string]string{}
	tree, e := f.call("workspace/listTree", params)
	if e.Kind() != canon.Invalid {
		fmt.Fprintf(os.Stderr, "listTree: %s\n", e.Bytes())
		os.Exit(6)
	}
	list, _ := tree.Get("entries")
	for _, entry := range list.Elements() {
		path, _ := entry.Get("path")
		blob, _ := entry.Get("blobId")
		files[path.Str()] = f.blob(blob.Str())
	}
	return files
}

func (f *fake) blob(id string) string {
	r, e := f.call("workspace/readBlob", `{"blobs":["`+id+`"]}`)
	if e.Kind() != canon.Invalid {
		fmt.Fprintf(os.Stderr, "refused %s: %s\n", id, e.Bytes())
		return ""
	}
	list, _ := r.Get("blobs")
	enc, _ := list.At(0).Get("encoding")
	text, _ := list.At(0).Get("bytes")
	f.served = append(f.served, id)
	if enc.Str() == "base64" {
		b, _ := base64.StdEncoding.DecodeString(text.Str())
		return string(b)
	}
	return text.Str()
}

func (f *fake) blobList() string {
	seen := map[string]bool{}
	var out []string
	for _, b := range f.served {
		if !seen[b] {
			seen[b] = true
			out = append(out, `"`+b+`"`)
		}
	}
	return "[" + strings.Join(out, ",") + "]"
}

// reach asks the proxy that it was told of for destinations, and says what came of it.
func (f *fake) reach(list string) {
	for to := range strings.SplitSeq(list, ",") {
		said := "no proxy"
		if at, ok := strings.CutPrefix(os.Getenv("HTTPS_PROXY"), "http://"); ok {
			said = askProxy(at, to)
		}
		f.send(canon.Member{Key: "method", Value: canon.StringOf("window/logMessage")}, canon.Member{Key: "params", Value: parse(`{"level":"info","message":"reach ` + to + `: ` + said + `"}`)})
	}
}

func askProxy(at, to string) string {
	c, err := net.Dial("tcp", at)
	if err != nil {
		return "nobody there"
	}
	defer c.Close()
	fmt.Fprintf(c, "CONNECT %s HTTP/1.1\r\n\r\n", to)
	line, _ := bufio.NewReader(c).ReadString('\n')
	return strings.TrimSpace(line)
}

func (f *fake) honest(method string, params canon.Value) canon.Value {
	if f.how["reach"] != "" {
		f.reach(f.how["reach"])
	}
	for c := range strings.SplitSeq(f.how["ask"], ";") {
		if m, p, ok := strings.Cut(c, " "); ok {
			n := 1
			if s, rest, many := strings.Cut(p, " x"); many {
				p = s
				n, _ = strconv.Atoi(rest)
			}
			for range n {
				result, e := f.call(m, p)
				if f.how["tell"] != "" {
					fmt.Fprintf(os.Stderr, "%s -> %s %s\n", c, result.Bytes(), e.Bytes())
				}
			}
		}
	}
	if method == "edit/propose" {
		return f.proposal(params)
	}
	changeset, _ := params.Get("changeset")
	base, _ := changeset.Get("baseline")
	changes, _ := changeset.Get("changes")
	diagnostics := ""
	for _, c := range changes.Elements() {
		after, _ := c.Get("after")
		path, _ := c.Get("path")
		if after.Str() != "" && strings.Contains(f.blob(after.Str()), "BAD") {
			if diagnostics != "" {
				diagnostics += ","
			}
			diagnostics += `{"code":"fake/bad","severity":"error","source":"forged","message":"bad","location":{"path":"` + path.Str() + `"},"fingerprint":"f"}`
		}
	}
	comparison, _ := params.Get("comparison")
	scope, ok := params.Get("scope")
	version := "check/1.0"
	if !ok {
		scope, version = parse(`{"paths":["a.txt"]}`), "check/0.1"
	}
	list := func(k string) string {
		if v, ok := params.Get(k); ok {
			return string(v.Bytes())
		}
		return "[]"
	}
	rules := list("rules")
	if f.legacy {
		rules = list("checks")
	}
	part := fmt.Sprintf(`{"scope":%s,"diagnosticSources":%s,"rules":%s,"comparison":%s}`, scope.Bytes(), list("diagnosticSources"), rules, comparison.Bytes())
	digest := canon.DigestText(changeset)
	timing, cache := `{"elapsedMs":1}`, `{"status":"miss"}`
	if f.legacy {
		timing, cache = `{"durationMs":1.5,"phases":[]}`, `{"status":"disabled"}`
	}
	return parse(fmt.Sprintf(`{"status":"complete","diagnostics":[%s],"coverage":{"requested":%s,"covered":%s,"degraded":[],"unsupported":[],"exhaustive":true,"truncated":false},
		"validAsOf":{"baseline":%s,"changesetDigest":%q,"blobs":%s},"provider":{"id":%q,"version":"1.0.0","configDigest":"sha256:cfg","capabilityVersion":%q},"timing":%s,"cache":%s}`,
		diagnostics, part, part, base.Bytes(), digest, f.blobList(), f.how["id"], version, timing, cache))
}

func (f *fake) proposal(params canon.Value) canon.Value {
	base, _ := params.Get("baseline")
	id, _ := params.Get("proposalId")
	files := f.readAll(`{"paths":["a.txt"]}`)
	_ = files
	basis := f.served[len(f.served)-1]
	put, e := f.call("workspace/putBlob", `{"blobs":[{"encoding":"base64","bytes":"/w=="}]}`)
	if e.Kind() != canon.Invalid {
		os.Exit(6)
	}
	ids, _ := put.Get("ids")
	return parse(fmt.Sprintf(`{"proposal":{"proposalId":%s,"provider":{"id":%q,"version":"1.0.0","capabilityFamily":"edit","capabilityVersion":"edit/1.0","configDigest":"d"},
		"status":"complete","baseline":%s,"validAsOf":{"baseline":%s,"blobs":%s},
		"touchedResources":[{"path":"a.txt","kind":"modify","precondition":{"expectedDigest":%q}},{"path":"n.bin","kind":"create","precondition":{"expectedAbsence":true}}],
		"workspaceEdit":{"baseline":%s,"documentChanges":[
		{"path":"a.txt","kind":"modify","precondition":{"expectedDigest":%q},"edits":[{"range":{"start":{"line":0,"char":0},"end":{"line":0,"char":0}},"rangeBasis":%q,"coordinateSystem":"utf16","newText":"x"}]},
		{"path":"n.bin","kind":"create","precondition":{"expectedAbsence":true},"after":%s}]}}}`,
		id.Bytes(), f.how["id"], base.Bytes(), base.Bytes(), f.blobList(), basis, base.Bytes(), basis, basis, ids.At(0).Bytes()))
}

func (f *fake) graph(method string) canon.Value {
	rev, _ := f.baseline.Get("rev")
	asOf := fmt.Sprintf(`"validAsOf":{"rev":%s,"blobs":%s}`, rev.Bytes(), f.blobList())
	if strings.HasSuffix(method, "/impact") {
		return parse(`{"changedNodes":[],"impactedNodes":[],"impactedFiles":["a.txt"],` + asOf + `}`)
	}
	return parse(`{"nodes":[{"id":"n","kind":"file","name":"a","location":{"path":"a.txt"}}],"edges":[],` + asOf + `}`)
}

// edit applies the set= and del= of the arguments.
func (f *fake) edit(v canon.Value) canon.Value {
	for _, e := range f.edits {
		op, rest, _ := strings.Cut(e, "=")
		path, text, _ := strings.Cut(rest, "=")
		var value canon.Value
		if op == "set" {
			value = parse(text)
		}
		v = replace(v, strings.Split(path, "."), value)
	}
	return v
}

func replace(v canon.Value, path []string, to canon.Value) canon.Value {
	if v.Kind() == canon.Array {
		var items []canon.Value
		for i, e := range v.Elements() {
			if strconv.Itoa(i) == path[0] {
				if len(path) == 1 {
					e = to
				} else {
					e = replace(e, path[1:], to)
				}
			}
			items = append(items, e)
		}
		if path[0] == "+" {
			items = append(items, to)
		}
		return canon.ArrayOf(items...)
	}
	if len(path) == 1 {
		if to.Kind() == canon.Invalid {
			return v.Without(path[0])
		}
		return v.With(path[0], to)
	}
	m, _ := v.Get(path[0])
	return v.With(path[0], replace(m, path[1:], to))
}
