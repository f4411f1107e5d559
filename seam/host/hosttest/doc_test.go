package hosttest

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/aspengine/asp/internal/need"
)

var update = flag.Bool("update", false, "write what the examples of docs/harness.md print into it")

const harnessDoc = "../../../docs/harness.md"

// block returns where the body of the fenced block behind a mark begins and ends.
func block(t *testing.T, doc, mark string, from int) (begin, end int) {
	t.Helper()
	i := strings.Index(doc[from:], mark)
	if i < 0 {
		t.Fatalf("docs/harness.md has no %s", mark)
	}
	begin = from + i + len(mark)
	begin += strings.Index(doc[begin:], "```")
	begin += strings.Index(doc[begin:], "\n") + 1
	end = begin + strings.Index(doc[begin:], "```\n")
	return begin, end
}

// TestHarnessDoc runs the examples as they stand in the document, and compares what
// they print with what it says.
func TestHarnessDoc(t *testing.T) {
	b, err := os.ReadFile(harnessDoc)
	must(t, err)
	doc := string(b)
	for _, name := range []string{"shell", "python", "go"} {
		t.Run(name, func(t *testing.T) {
			begin, end := block(t, doc, "<!-- example: "+name+" -->", 0)
			source := doc[begin:end]
			w := newWorld(t, "", map[string]string{"greeting.txt": "hello\n"})
			bin := filepath.Join(w.base, "bin")
			must(t, os.Mkdir(bin, 0o755))
			must(t, os.Symlink(binary, filepath.Join(bin, "asp")))
			trace := filepath.Join(w.base, "trace")
			file := filepath.Join(w.base, "main."+map[string]string{"shell": "sh", "python": "py", "go": "go"}[name])
			must(t, os.WriteFile(file, []byte(source), 0o600))
			args := map[string][]string{"shell": {"sh", file}, "python": {"python3", file}, "go": {"go", "run", file}}[name]
			cmd := exec.Command(need.Tool(t, args[0]), args[1:]...)
			cmd.Dir = w.root
			cmd.Env = append(w.env(), "PATH="+bin+":"+os.Getenv("PATH"), "ASP_TRACE="+trace, "GOFLAGS=-mod=mod", "GO111MODULE=off",
				"GOCACHE="+goEnv(t, "GOCACHE"), "CGO_ENABLED=0")
			var errs bytes.Buffer
			cmd.Stderr = &errs
			out, err := cmd.Output()
			if err != nil {
				t.Fatalf("%v: %v\n%s%s", args, err, out, errs.String())
			}
			doc = says(t, doc, "<!-- output -->", end, steady(string(out)))
			if name == "python" {
				doc = says(t, doc, "<!-- trace -->", end, transcript(t, trace))
			}
		})
	}
	if *update {
		must(t, os.WriteFile(harnessDoc, []byte(doc), 0o644))
	}
}

func goEnv(t *testing.T, name string) string {
	t.Helper()
	out, err := exec.Command("go", "env", name).Output()
	must(t, err)
	return strings.TrimSpace(string(out))
}

// says holds a block against what was printed, or puts it there.
func says(t *testing.T, doc, mark string, from int, got string) string {
	t.Helper()
	begin, end := block(t, doc, mark, from)
	if !*update && doc[begin:end] != got {
		t.Errorf("docs/harness.md says\n%s\nand the example prints\n%s\n(-update writes it)", doc[begin:end], got)
	}
	return doc[:begin] + got + doc[end:]
}

// volatile are the parts that are another one in every run, or on every machine.
var volatile = []struct{ is, becomes string }{
	{`rcpt-[0-9TZ]+-[0-9a-f]+(-[a-z]+)?`, "rcpt-…"},
	{`(git:tree|sha256):[0-9a-f]{20,}`, "$1:…"},
	{`\d{4}-\d\d-\d\dT[\d:.]+Z`, "2026-…"},
	// What this machine can do.
	{`"assuranceCapabilities":\[[^]]*\]`, `"assuranceCapabilities":[…]`},
	{`"detail":"[^"]*"`, `"detail":"…"`},
	{`"transactionGuarantee":"[a-z]+_[a-z_]+"`, `"transactionGuarantee":"…"`},
}

func steady(s string) string {
	for _, v := range volatile {
		s = regexp.MustCompile(v.is).ReplaceAllString(s, v.becomes)
	}
	return s
}

// transcript shows a trace for people.
func transcript(t *testing.T, file string) string {
	t.Helper()
	b, err := os.ReadFile(file)
	must(t, err)
	var out strings.Builder
	for l := range bytes.Lines(b) {
		var m struct {
			Dir     string
			Message json.RawMessage
		}
		must(t, json.Unmarshal(l, &m))
		arrow := map[string]string{"in": "→", "out": "←"}[m.Dir]
		text := steady(string(m.Message))
		if r := []rune(text); len(r) > 150 {
			text = string(r[:150]) + " …"
		}
		fmt.Fprintf(&out, "%s %s\n", arrow, text)
	}
	return out.String()
}
