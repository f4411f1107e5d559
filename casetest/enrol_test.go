package casetest

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
)

// manifestOf is a manifest of a provider whose program is bin, which it lists
// together with the files of checksums.
func manifestOf(id, bin string, checksums map[string]string) string {
	var list []string
	for path, content := range checksums {
		sum := sha256.Sum256([]byte(content))
		list = append(list, fmt.Sprintf(`{"path":%q,"sha256":%q}`, path, hex.EncodeToString(sum[:])))
	}
	return fmt.Sprintf(`{"manifestVersion":"asp-server/1.0","server":{"id":%q,"name":"Demo","version":"1.2.3"},"protocolVersions":["asp/1.0"],
"capabilities":["check"],"capabilityProfiles":["core-check-provider"],"entrypoint":{"transport":"stdio","bin":%q,"args":[]},
"artifact":{"fingerprint":"sha256:00","checksums":[%s]},"provenance":{"publisher":"me","source":"here","license":"MIT"},
"accessExpectations":{"filesystem":{"read":["**/*"],"write":[]},"network":{"outbound":false,"allowlist":[]},"secrets":{"names":[]},
"environment":{"inherit":false,"variables":[]},"dataClasses":[]}}`, id, bin, strings.Join(list, ","))
}

// beside writes a file beside the workspace and returns its path.
func (w *world) beside(name, data string, perm os.FileMode) string {
	w.t.Helper()
	p := filepath.Join(w.ws, name)
	must(w.t, os.WriteFile(p, []byte(data), perm))
	must(w.t, os.Chmod(p, perm))
	w.own(p)
	return p
}

func (r *result) exits(code int) *result {
	r.t.Helper()
	if r.code != code {
		r.t.Fatalf("%v: exit status %d, want %d", r, r.code, code)
	}
	return r
}

// TestEnrolment goes through the life of an enrolment: it lives in ASP_HOME alone,
// is refused where something is missing, and shows what it amounts to.
func TestEnrolment(t *testing.T) {
	w := newWorld(t, map[string]string{"a.txt": "a\n"})
	bin := w.beside("provider", "#!/bin/sh\n", 0o755)
	w.beside("rules", "r", 0o644)
	file := w.beside("asp-server.json", manifestOf("demo", bin, map[string]string{"provider": "#!/bin/sh\n", "rules": "r"}), 0o644)
	before := w.status()

	w.run("repo", "enable", "demo", "--mode", "gated", "--json").exits(1)
	if r := w.run("server", "add", "--manifest", file, "--json").exits(0); r.str("action") != "add" || r.str("server", "id") != "demo" || r.at("server", "trust", "verified") != true || r.at("server", "authority", "launch") != false {
		t.Errorf("add: %v", r)
	}
	w.run("repo", "enable", "demo", "--mode", "gated").exits(1) // the repository is not enrolled
	if r := w.run("repo", "status", ".", "--json").exits(0); r.at("repo", "enrolled") != false || r.at("repo", "gateReadiness", "ready") != false {
		t.Errorf("status before: %v", r)
	}
	if r := w.run("repo", "add", ".", "--json").exits(0); r.str("repo", "path") != w.root || r.at("repo", "enrolled") != true || r.str("repo", "localMode") != "gated" || r.at("repo", "git", "present") != true {
		t.Errorf("add repo: %v", r)
	}
	r := w.run("repo", "enable", "demo", "--repo", w.root, "--mode", "advisory", "--json").exits(0)
	if got := r.at("repo", "enabledServers"); !reflect.DeepEqual(got, []any{map[string]any{"id": "demo", "mode": "advisory", "state": "installed"}}) {
		t.Errorf("enabled: %v", got)
	}
	w.run("repo", "enable", "nobody", "--mode", "advisory").exits(1)
	w.run("repo", "enable", "../demo", "--mode", "advisory").exits(2)
	w.run("repo", "enable", "demo", "--mode", "isolated").exits(2)
	w.run("server", "reset", "demo").exits(0)

	// What was changed on disk shows at once, and is refused at the next add.
	w.beside("rules", "R", 0o644)
	if r := w.run("server", "status", "demo", "--json").exits(0); r.str("server", "install", "state") != "untrusted" || r.at("server", "authority", "launch") != true {
		t.Errorf("after a change: %v", r)
	}
	if r := w.run("server", "add", "--manifest", file, "--json").exits(1); !strings.Contains(r.errs, "sha256 differs") || r.at("problems") == nil {
		t.Errorf("add of what differs: %v", r)
	}
	w.run("server", "remove", "demo").exits(0)
	w.run("server", "remove", "demo").exits(1)
	w.run("server", "status", "demo").exits(1)
	if r := w.run("repo", "status", ".", "--json").exits(0); !strings.Contains(string(r.out), `"state":"missing"`) {
		t.Errorf("provider gone: %v", r)
	}
	w.run("repo", "disable", "demo").exits(0)
	w.run("repo", "remove", ".").exits(0)
	w.run("repo", "remove", ".").exits(1)
	if got := w.status(); got != before {
		t.Errorf("enrolment touched the repository: %s", got)
	}
}

// TestForeignArtifact: that the files of a provider are not what was added shows before
// anything is started, at the place where it belongs: the manifest is sound, its
// publisher is who it was, and what lies there is not trusted. Put back, all is well.
func TestForeignArtifact(t *testing.T) {
	w := newWorld(t, map[string]string{"a.txt": "a\n"})
	bin := w.beside("provider", "#!/bin/sh\n", 0o755)
	w.beside("rules", "r", 0o644)
	w.run("server", "add", "--manifest", w.beside("asp-server.json", manifestOf("demo", bin, map[string]string{"provider": "#!/bin/sh\n", "rules": "r"}), 0o644)).exits(0)
	w.run("repo", "add", ".").exits(0)
	w.run("repo", "enable", "demo", "--mode", "gated").exits(0)
	w.policy(obj{"id": "demo", "version": "1.2.3", "identity": "me", "integrity": "sha256:00", "conformance": "core-check-provider"})
	for _, c := range []struct {
		name                          string
		harm                          func()
		state, manifest, enrol, cause string
		gate                          bool
		doctor                        int
	}{
		{"as added", func() {}, "installed", "valid", "enrolled", "", true, 0},
		{"changed", func() { w.beside("rules", "R", 0o644) }, "unavailable", "untrusted", "error", "missing-authority", false, 1},
		{"changed, seen before", func() {}, "unavailable", "untrusted", "error", "missing-authority", false, 1},
		{"put back", func() { w.beside("rules", "r", 0o644) }, "installed", "valid", "enrolled", "", true, 0},
		{"gone", func() { must(t, os.Remove(bin)) }, "unavailable", "valid", "error", "unavailable", false, 1},
	} {
		c.harm()
		r := w.run("status", "--json").exits(0)
		s := r.at("servers").([]any)[0].(map[string]any)
		if s["state"] != c.state || s["manifestState"] != c.manifest || s["enrollmentState"] != c.enrol || s["authorityEvidence"].(map[string]any)["identity"] != "me" {
			t.Errorf("%s: %v", c.name, s)
		}
		if r.at("gates", "gate", "available") != c.gate || !strings.Contains(fmt.Sprint(r.at("gates", "gate", "degraded")), "reason:"+c.cause) && c.cause != "" {
			t.Errorf("%s: %v", c.name, r.at("gates", "gate"))
		}
		r = w.run("doctor").exits(c.doctor)
		if says := strings.Contains(string(r.out), "it is not started"); says != (c.cause != "") {
			t.Errorf("%s: %s", c.name, r)
		}
		if r := w.run("status").exits(0); strings.Contains(string(r.out), "gate       available") != c.gate || strings.Contains(string(r.out), "untrusted") != (c.manifest == "untrusted") {
			t.Errorf("%s: %s", c.name, r)
		}
		want := map[string]string{"installed": "installed"}[c.state]
		if want == "" {
			want = "untrusted"
		}
		if r := w.run("repo", "status", ".", "--json").exits(0); !strings.Contains(string(r.out), `"state":"`+want+`"`) {
			t.Errorf("%s: %s", c.name, r)
		}
	}
}

// TestManifestsAreHostile: what a manifest names is never looked up by PATH, never
// becomes a directory outside the registry, and never keeps the command waiting.
func TestManifestsAreHostile(t *testing.T) {
	w := newWorld(t, map[string]string{"a.txt": "a\n"})
	bin := w.beside("provider", "#!/bin/sh\n", 0o755)
	for name, c := range map[string]struct{ manifest, want string }{
		"relative program": {manifestOf("demo", "provider", nil), "not absolute"},
		"no program":       {manifestOf("demo", bin+"2", nil), "install it"},
		"id":               {manifestOf("../../escape", bin, nil), "provider id"},
		"hidden id":        {manifestOf(".demo", bin, nil), "provider id"},
		"device":           {manifestOf("demo", bin, map[string]string{"/dev/zero": ""}), "no regular file"},
		"unknown member":   {strings.Replace(manifestOf("demo", bin, nil), `"args":[]`, `"args":[],"shell":"x"`, 1), "unknown member"},
		"doubled member":   {strings.Replace(manifestOf("demo", bin, nil), `"id":"demo"`, `"id":"demo","id":"other"`, 1), "duplicate key"},
		"too large":        {strings.Repeat(" ", 1<<20) + manifestOf("demo", bin, nil), "longer than"},
		"no JSON":          {"#!/bin/sh", "no JSON value"},
	} {
		t.Run(name, func(t *testing.T) {
			w := w.as(t)
			if r := w.run("server", "add", "--manifest", w.beside("m.json", c.manifest, 0o644)).exits(1); !strings.Contains(r.errs, c.want) {
				t.Errorf("%v, want %q", r, c.want)
			}
		})
	}
	if r := w.run("server", "list", "--json").exits(0); !reflect.DeepEqual(r.at("servers"), []any{}) {
		t.Errorf("something was added: %v", r)
	}
	w.run("server", "add", "--manifest", filepath.Join(w.ws, "nothing.json")).exits(2)
	w.run("server", "add").exits(2)
}

// TestEnrolmentsAtOnce: commands that run at the same time lose none of each
// other's changes.
func TestEnrolmentsAtOnce(t *testing.T) {
	w := newWorld(t, map[string]string{"a.txt": "a\n"})
	const n = 8
	var dirs []string
	for i := range n {
		d := filepath.Join(w.ws, fmt.Sprint("plain", i))
		must(t, os.Mkdir(d, 0o755))
		w.own(d)
		dirs = append(dirs, d)
	}
	var wg sync.WaitGroup
	for _, d := range dirs {
		wait := w.start(w.root, nil, "repo", "add", d)
		wg.Go(func() { wait() })
	}
	wg.Wait()
	b, err := os.ReadFile(filepath.Join(w.asp, "repos.json"))
	must(t, err)
	for _, d := range dirs {
		if !strings.Contains(string(b), `"`+d+`"`) {
			t.Errorf("%s is not enrolled: %s", d, b)
		}
	}
}
