package casetest

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/aspengine/asp/internal/need"
)

// TestIsolatedWork is what people have checks for, over an after-state, isolated:
// builds and tests of a real module with its caches read-only, scripts, git. The
// module is one that this one depends on, so it is on the machine.
func TestIsolatedWork(t *testing.T) {
	need.UserNS(t)
	goTool := func(args ...string) string {
		out, err := exec.Command(need.Tool(t, "go"), args...).Output()
		must(t, err)
		return strings.TrimSpace(string(out))
	}
	// The caches belong to whoever runs the tests.
	w := newWorld(t, nil, asRoot)
	cache, mods, root := goTool("env", "GOCACHE"), goTool("env", "GOMODCACHE"), goTool("env", "GOROOT")
	w.copyTree(goTool("list", "-m", "-f", "{{.Dir}}", "github.com/spf13/pflag"), "")
	w.write("go.sum", goSum(t, "github.com/google/go-cmp "), 0o644)
	w.write("go.mod", "module github.com/spf13/pflag\n\ngo 1.21\n\nrequire github.com/google/go-cmp "+goTool("list", "-m", "-f", "{{.Version}}", "github.com/google/go-cmp")+"\n", 0o644)
	w.write(".gitignore", "node_modules/\n", 0o644)
	w.write("node_modules/dep/index.js", "exports.word = 'installed'\n", 0o644)
	w.write("script.py", pythonScript, 0o644)
	w.write("script.js", nodeScript, 0o644)
	w.commit()
	env := obj{"GOCACHE": cache, "GOMODCACHE": mods, "GOROOT": root, "GOPROXY": "off", "GOFLAGS": os.Getenv("GOFLAGS")}
	checks := obj{}
	var flags []string
	add := func(name string, env obj, argv ...string) {
		checks[name] = obj{"argv": argv, "env": env, "timeoutMs": 300000, "callSites": []string{}}
		flags = append(flags, "--check", name)
	}
	bin := filepath.Join(root, "bin/go")
	add("build", env, bin, "build", "./...")
	add("vet", env, bin, "vet", ".")
	add("test", env, bin, "test", "-vet=off", "-run", "TestCompare|TestStringSlice|TestParse", ".")
	add("git", obj{}, "sh", "-ec", `git status --porcelain | grep -q 'compare_test.go' && git diff --quiet HEAD -- flag.go && git log -1 --format=%s && git -c user.name=n -c user.email=e@x stash -qu && test ! -e compare_test.go`)
	add("python", obj{}, pythonHere(t), "script.py")
	if node, err := exec.LookPath("node"); err == nil {
		add("node", obj{}, node, "script.js")
	} else if os.Getenv(need.Require) == "1" {
		t.Error("node is not installed")
	} else {
		t.Log("node is not installed: not tried")
	}
	if gopls, err := exec.LookPath("gopls"); err == nil {
		add("gopls", env, gopls, "check", "flag.go") // CI has it
	} else {
		t.Log("gopls is not installed: not tried")
	}
	w.configure(obj{"checks": checks, "sandbox": obj{"require": "isolated", "read": []string{cache, mods, root}}})
	p := w.plan().create("compare_test.go", compareTest)
	m := w.mark()
	r := w.run(append([]string{"apply", "--plan", p.file(), "--json", "--dry-run"}, flags...)...)
	if r.code != 0 || r.str("assurance", "mode") != "isolated" {
		t.Fatalf("%s\n%s", findingsOf(r), r)
	}
	m.unchanged()
	// One that does not hold is seen.
	p = w.plan().create("broken.go", "package pflag\n\nvar broken int = \"no\"\n")
	r = w.run("apply", "--plan", p.file(), "--json", "--check", "build").refused("check-denied")
	if !strings.Contains(findingsOf(r), "broken.go:3") {
		t.Errorf("what does not compile is not named: %s", findingsOf(r))
	}
	m.unchanged()
}

const compareTest = `package pflag

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestCompare(t *testing.T) {
	f := NewFlagSet("x", ContinueOnError)
	s := f.StringSlice("s", nil, "")
	if err := f.Parse([]string{"--s", "a,b"}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"a", "b"}, *s); diff != "" {
		t.Error(diff)
	}
}
`

const pythonScript = `import json, os, socket, subprocess, tempfile, threading
with tempfile.TemporaryDirectory() as d:
    with open(os.path.join(d, "x"), "w") as f:
        json.dump({"a": 1}, f)
s = socket.create_server(("127.0.0.1", 0))
t = threading.Thread(target=lambda: s.accept()[0].sendall(b"hi"))
t.start()
assert socket.create_connection(s.getsockname()).recv(2) == b"hi"
t.join()
assert subprocess.run(["sh", "-c", "echo out"], capture_output=True, text=True).stdout == "out\n"
assert os.path.exists("compare_test.go")
os.makedirs("build/out")
`

const nodeScript = `const assert = require('assert'), fs = require('fs'), http = require('http'), {execFileSync} = require('child_process'), {Worker} = require('worker_threads')
assert.equal(require('dep').word, 'installed')
assert.equal(execFileSync('sh', ['-c', 'echo out']).toString(), 'out\n')
fs.writeFileSync('built.js', '1')
assert(fs.existsSync('compare_test.go'))
const s = http.createServer((q, a) => a.end('hi')).listen(0, '127.0.0.1', () => http.get({port: s.address().port, host: '127.0.0.1'}, r => {
  r.resume()
  new Worker('require("worker_threads").parentPort.postMessage(1)', {eval: true}).on('message', () => s.close())
}))
`

// copyTree copies a module out of the cache, where it cannot be written to.
func (w *world) copyTree(from, to string) {
	w.t.Helper()
	must(w.t, filepath.WalkDir(from, func(p string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		rel, err := filepath.Rel(from, p)
		if err != nil {
			return err
		}
		b, err := os.ReadFile(p)
		if err == nil {
			w.write(filepath.Join(to, rel), string(b), 0o644)
		}
		return err
	}))
}

// goSum are the lines of this module's own go.sum for a module.
func goSum(t *testing.T, module string) string {
	t.Helper()
	b, err := os.ReadFile("../go.sum")
	must(t, err)
	var out strings.Builder
	for line := range strings.Lines(string(b)) {
		if strings.HasPrefix(line, module) {
			out.WriteString(line)
		}
	}
	return out.String()
}

// pythonHere is a python that needs nothing of anybody's home.
func pythonHere(t *testing.T) string {
	if _, err := os.Stat("/usr/bin/python3"); err == nil {
		return "/usr/bin/python3"
	}
	return need.Tool(t, "python3")
}
