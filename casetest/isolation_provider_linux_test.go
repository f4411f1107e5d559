package casetest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/aspengine/asp/internal/need"
)

// TestSB01_ProvidersWithoutLayers: a provider is held to the level as a check is. With a layer less it
// is reported for what its launch proved, and where the policy takes nothing less
// than isolated the gate stays shut and the workspace as it was. There is no config.json.
func TestSB01_ProvidersWithoutLayers(t *testing.T) {
	need.UserNS(t)
	w := newWorld(t, map[string]string{"x.json": "{}\n"})
	w.isolatedPolicy(w.enrol("syntax", "gated"))
	p := w.plan().modify("x.json", "{}\n", "[]\n")
	m := w.mark()
	for _, row := range []struct {
		layer string
		lacks []string
		mode  string // that is established; "" where it is not started
	}{
		{"Landlock", []string{enosys(unix.SYS_LANDLOCK_CREATE_RULESET)}, "mediated-write"},
		{"Landlock, silently", []string{silent("%d::%d", unix.SYS_LANDLOCK_RESTRICT_SELF)}, "mediated-write"},
		{"system call filter", []string{fmt.Sprintf("%d:0=%d:%d", unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.EINVAL)}, ""},
		{"user namespace", noUserNS(), "mediated-write"},
		{"user namespace and Landlock", append(noUserNS(), enosys(unix.SYS_LANDLOCK_CREATE_RULESET)), ""},
	} {
		t.Run(row.layer, func(t *testing.T) {
			w := w.as(t)
			r := w.lacking(row.lacks...)("apply", "--plan", p.file(), "--json", "--call-site", "gate")
			want := "the requirement accepts isolated, the run established " + row.mode + "."
			if row.mode == "" {
				want = "`asp doctor` says how to get one"
			}
			r.refused("weak-assurance")
			said := fmt.Sprint(r.at("decision", "coverage", "degraded"))
			if !strings.Contains(said, "reason:insufficient-assurance") || !strings.Contains(said, want) || strings.Contains(said, "direct-write-risk") {
				t.Errorf("without %s: %s", row.layer, said)
			}
			m.unchanged()
		})
	}
	// With all of them it is allowed.
	if r := p.apply("--call-site", "gate").applied(); r.str("assurance", "mode") != "isolated" {
		t.Errorf("mode %q: %s", r.str("assurance", "mode"), r)
	}
}

// TestSB01_ProviderIsNotStarted: where there is no boundary at all a provider is not started, with no
// configuration as with one that is silent; with one that says none it is.
func TestSB01_ProviderIsNotStarted(t *testing.T) {
	w := newWorld(t, map[string]string{"x": "x\n"})
	ran := filepath.Join(w.tmp, "ran")
	program := "#!/bin/sh\necho > " + ran + "\n"
	bin := w.beside("provider", program, 0o755)
	w.run("server", "add", "--manifest", w.beside("asp-server.json", manifestOf("demo", bin, map[string]string{"provider": program}), 0o644)).exits(0)
	w.run("repo", "add", ".").exits(0)
	w.run("repo", "enable", "demo", "--mode", "gated").exits(0)
	w.policy(obj{"id": "demo", "version": "1.2.3", "identity": "me", "integrity": "sha256:00", "conformance": "core-check-provider"})
	p := w.plan().modify("x", "x\n", "y\n")
	for _, config := range []string{"", `{}`, `{"sandbox":{}}`, `{"sandbox":{"require":"none"}}`} {
		if config != "" {
			w.config(config)
		}
		must(t, os.RemoveAll(ran))
		w.naked("apply", "--plan", p.file(), "--json", "--call-site", "gate").refusedAny([]string{"weak-assurance", "check-indeterminate"})
		_, err := os.Stat(ran)
		if started := err == nil; started != strings.Contains(config, "none") {
			t.Errorf("with the configuration %q: started %v", config, started)
		}
		w.is("x", "x\n")
	}
}
