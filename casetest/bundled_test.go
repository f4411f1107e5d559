package casetest

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/aspengine/asp/internal/canon"
)

// TestBundledProvidersByTheirManifests starts every bundled provider as its
// printed manifest says, from an empty place with an empty environment, and has it
// shake hands.
func TestBundledProvidersByTheirManifests(t *testing.T) {
	list, err := exec.CommandContext(t.Context(), binary, "provider").Output()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for line := range strings.Lines(string(list)) {
		names = append(names, strings.Fields(line)[0])
	}
	if len(names) != 4 {
		t.Fatalf("bundled providers %q", names)
	}
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			b, err := exec.CommandContext(t.Context(), binary, "provider", name, "--print-manifest").Output()
			if err != nil {
				t.Fatal(err)
			}
			m, err := canon.Parse(b, canon.Limits{})
			if err != nil {
				t.Fatal(err)
			}
			at := func(path ...string) canon.Value {
				v := m
				for _, p := range path {
					v, _ = v.Get(p)
				}
				return v
			}
			sums := at("artifact", "checksums")
			if got, want := at("artifact", "fingerprint").Str(), canon.DigestText(sums); got != want {
				t.Errorf("fingerprint %s, want %s", got, want)
			}
			for _, s := range sums.Elements() {
				file, _ := s.Get("path")
				want, _ := s.Get("sha256")
				content, err := os.ReadFile(file.Str())
				if err != nil {
					t.Fatal(err)
				}
				if got := sha256.Sum256(content); hex.EncodeToString(got[:]) != want.Str() {
					t.Errorf("checksum of %s", file.Str())
				}
			}
			var args []string
			for _, a := range at("entrypoint", "args").Elements() {
				args = append(args, a.Str())
			}
			c := exec.CommandContext(t.Context(), at("entrypoint", "bin").Str(), args...)
			c.Dir, c.Env = t.TempDir(), []string{}
			c.Stdin = strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"asp/1.0","host":{"name":"t","version":"1"},"workspace":{"root":"/candidate","baseline":{"rev":"tree:x"}}}}
{"jsonrpc":"2.0","method":"initialized","params":{"grantedPermissions":{"read":["**/*"],"write":false,"network":false,"resourceLimits":{"wallclockMs":60000}},"baseline":{"rev":"tree:x"}}}
{"jsonrpc":"2.0","id":2,"method":"shutdown","params":{}}
{"jsonrpc":"2.0","method":"exit"}
`)
			out, err := c.Output()
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			lines := strings.Split(strings.TrimSpace(string(out)), "\n")
			if len(lines) != 2 || !strings.Contains(lines[0], `"fingerprint":"sha256:`) || lines[1] != `{"id":2,"jsonrpc":"2.0","result":null}` {
				t.Errorf("%s", out)
			}
		})
	}
	for _, args := range [][]string{{"provider", "nobody"}, {"provider", "syntax", "secrets"}, {"provider", "--print-manifest"}, {"provider", "gofix", "--gopls", "gopls"}} {
		if err := exec.CommandContext(t.Context(), binary, args...).Run(); exitOf(err) != 2 {
			t.Errorf("asp %q: %v, want status 2", args, err)
		}
	}
}

func exitOf(err error) int {
	if e, ok := err.(*exec.ExitError); ok {
		return e.ExitCode()
	}
	return 0
}

// TestSchemas: asp schema lists what there is, and prints each as a document that is
// complete in itself.
func TestSchemas(t *testing.T) {
	list, err := exec.CommandContext(t.Context(), binary, "schema").Output()
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for line := range strings.Lines(string(list)) {
		names[strings.Fields(line)[0]] = true
	}
	for _, name := range []string{"policy", "config", "edit-plan", "verdict", "envelope"} {
		if !names[name] {
			t.Errorf("%s is not listed: %s", name, list)
		}
		b, err := exec.CommandContext(t.Context(), binary, "schema", name).Output()
		if err != nil {
			t.Fatal(err)
		}
		v, err := canon.Parse(b, canon.Limits{})
		if id, _ := v.Get("$id"); err != nil || id.Str() != "urn:asp:schema:"+name {
			t.Errorf("%s: %v %.200s", name, err, b)
		}
	}
	for _, args := range [][]string{{"schema", "nothing"}, {"schema", "policy", "config"}} {
		if err := exec.CommandContext(t.Context(), binary, args...).Run(); exitOf(err) != 2 {
			t.Errorf("asp %q: %v, want status 2", args, err)
		}
	}
}
