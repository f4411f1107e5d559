package conformance

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/aspengine/asp/internal/canon"
	"github.com/aspengine/asp/seam/wire"
)

// guest is a provider with this program as its host.
type guest struct {
	*peer
	t *trial
	x subject

	mu      sync.Mutex
	tree    map[string]string // the baseline
	extra   []string          // content of the after-state
	granted func(path string) bool
	lie     bool // serve bytes that are not what their name says
	stall   chan struct{}
	asked   chan struct{} // closed at the first callback
	once    sync.Once
	served  map[string]bool
	refused int
	base    canon.Value
	dir     string
}

// engage starts the provider in an empty directory, with an empty environment.
func (t *trial) engage(x subject) (*guest, error) {
	t.mu.Lock()
	t.worlds++
	dir := filepath.Join(t.dir, fmt.Sprintf("w%d", t.worlds))
	t.mu.Unlock()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	g := &guest{t: t, x: x, dir: dir, served: map[string]bool{}, asked: make(chan struct{}), granted: func(string) bool { return true },
		tree: map[string]string{"src/a.txt": baseFiles["src/a.txt"], "go.mod": "module sample\n\ngo 1.24\n", "README.md": "# sample\n"}}
	g.base = object(member("rev", "git:tree:"+strings.Repeat("5a", 20)), member("stampedAt", "2024-01-01T00:00:00Z"))
	env := []string{"LANG=C.UTF-8"}
	if len(t.run.o.Provider) > 0 {
		env = append(env, "PATH="+os.Getenv("PATH")) // a script may need its interpreter
	}
	p, err := start(x.argv, env, dir, g.answer)
	if err != nil {
		return nil, err
	}
	g.peer = p
	return g, nil
}

// answer serves the callbacks.
func (g *guest) answer(method string, params canon.Value) (canon.Value, *wire.Error) {
	g.once.Do(func() { close(g.asked) })
	if g.stall != nil {
		<-g.stall
		return canon.Value{}, wire.NewError(wire.CodeCancelled, wire.FailHealth, "cancelled", "")
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	switch method {
	case "workspace/listTree":
		return g.list(params), nil
	case "workspace/readBlob":
		var out []canon.Value
		for _, id := range stringsOf(at(params, "blobs")) {
			content, ok := g.content(id)
			if !ok {
				g.refused++
				return canon.Value{}, wire.NewError(wire.CodeScopeDenied, wire.FailPolicy, "outside of what was granted", "")
			}
			g.served[id] = true
			if g.lie {
				content += "?"
			}
			out = append(out, object(member("id", id), member("encoding", "utf-8"), member("bytes", content)))
		}
		return object(member("blobs", out)), nil
	case "workspace/putBlob":
		var ids []string
		for _, b := range each(at(params, "blobs")) {
			c, err := wire.Blob{Encoding: wire.Encoding(text(b, "encoding")), Bytes: text(b, "bytes")}.Decode()
			if err != nil {
				return canon.Value{}, wire.NewError(wire.CodeInvalidInput, wire.FailInput, "no content", "")
			}
			ids = append(ids, blobID(string(c)))
			g.extra = append(g.extra, string(c))
		}
		return object(member("ids", ids)), nil
	}
	return canon.Value{}, wire.NewError(wire.CodeMethodNotFound, wire.FailContract, "no such method", "")
}

func (g *guest) content(id string) (string, bool) {
	for path, c := range g.tree {
		if blobID(c) == id {
			return c, g.granted(path)
		}
	}
	for _, c := range g.extra {
		if blobID(c) == id {
			return c, g.granted(g.x.path)
		}
	}
	return "", false
}

// list intersects with the grant. Globs are taken for "everything": what is
// wanted beyond is filtered by whoever asked.
func (g *guest) list(params canon.Value) canon.Value {
	var names []string
	for n := range g.tree {
		if only := stringsOf(at(params, "paths")); (len(only) == 0 || slices.Contains(only, n)) && g.granted(n) {
			names = append(names, n)
		}
	}
	slices.Sort(names)
	entries := []canon.Value{}
	for _, n := range names {
		entries = append(entries, object(member("path", n), member("blobId", blobID(g.tree[n])), member("kind", "file")))
	}
	return object(member("entries", entries))
}

func (g *guest) initializeParams(version string) canon.Value {
	return object(member("protocolVersion", version), member("host", object(member("name", "conformance"), member("version", "1"))),
		member("workspace", object(member("root", "/candidate"), member("baseline", g.base))))
}

// handshake initializes, and grants.
func (g *guest) handshake(ctx context.Context) (wire.InitializeResult, error) {
	var r wire.InitializeResult
	a, err := g.call(ctx, "initialize", g.initializeParams("asp/1.0"))
	if err != nil {
		return r, err
	}
	if a.err != nil {
		return r, fmt.Errorf("initialize: error %d: %s", a.err.Code, a.err.Message)
	}
	if err := wire.Decode(a.result, &r); err != nil {
		return r, err
	}
	return r, g.notify("initialized", g.grant("**/*"))
}

func (g *guest) grant(globs ...string) canon.Value {
	return object(member("grantedPermissions", object(member("read", globs), member("write", false), member("network", false),
		member("resourceLimits", object(member("cpuPct", 100), member("memoryMb", 1024), member("wallclockMs", 60000), member("fd", 256))))), member("baseline", g.base))
}

// leave ends the session politely, and judges that the provider ends.
func (g *guest) leave(ctx context.Context) {
	a, err := g.call(ctx, "shutdown", object())
	g.t.judge(err == nil && (a.err == nil || a.err.Code == wire.CodeMethodNotFound), "%s: shutdown: %v %v", g.x.name, err, a.err)
	g.notify("exit", object()) // it may be gone already
	err = g.close(10 * time.Second)
	g.t.judge(err == nil, "%s: did not end with status 0 after exit: %v", g.x.name, err)
	for _, v := range g.violations() {
		g.t.problem("%s broke the protocol: %s", g.x.name, v)
	}
	entries, err := os.ReadDir(g.dir)
	g.t.judge(err == nil && len(entries) == 0, "%s: wrote into its working directory", g.x.name)
}

// family is what the subject is asked for.
func family(r wire.InitializeResult) wire.Family {
	if slices.Contains(r.CapabilityFamilies, wire.Check) {
		return wire.Check
	}
	if slices.Contains(r.CapabilityFamilies, wire.Edit) {
		return wire.Edit
	}
	return wire.Inspect
}

// question is a request of the subject's family, about its sample.
func (g *guest) question(f wire.Family) (method string, params canon.Value) {
	if f == wire.Check {
		g.mu.Lock()
		g.extra = append(g.extra, g.x.bad)
		g.mu.Unlock()
		change := object(member("path", g.x.path), member("kind", "create"), member("after", blobID(g.x.bad)))
		return "check/evaluate", object(member("changeset", object(member("baseline", g.base), member("changes", []canon.Value{change}))),
			member("scope", "changeset"), member("comparison", "introduced"))
	}
	g.mu.Lock()
	g.tree[g.x.path] = g.x.bad
	g.mu.Unlock()
	operation, args := g.x.operation, g.x.args
	if operation == "" {
		operation = "text-edit"
	}
	params = object(member("operation", operation), member("baseline", g.base), member("scope", object(member("paths", []string{g.x.path}))), member("proposalId", "asked-1"))
	if args.Kind() == canon.Object {
		params = params.With("args", args)
	}
	return "edit/propose", params
}

// ask starts a provider, shakes hands and asks the question; change may alter the
// request or the guest first.
func (t *trial) askSubject(ctx context.Context, x subject, change func(g *guest, params canon.Value) canon.Value) (*guest, wire.Family, answer, error) {
	g, err := t.engage(x)
	if err != nil {
		return nil, "", answer{}, err
	}
	r, err := g.handshake(ctx)
	if err != nil {
		g.kill()
		return nil, "", answer{}, err
	}
	f := family(r)
	method, params := g.question(f)
	if change != nil {
		params = change(g, params)
	}
	a, err := g.call(ctx, method, params)
	if err != nil {
		g.kill()
		return nil, "", answer{}, err
	}
	shown := a.result
	if a.err != nil {
		shown = errorValue(a.err)
	}
	t.show(x.name, request(a), shown)
	return g, f, a, nil
}

// typed judges that an error bears a class.
func (t *trial) typed(what string, e *wire.Error) {
	t.judge(e.Data != nil && e.Data.FailClass != "", "%s: error %d without data.failClass", what, e.Code)
}
