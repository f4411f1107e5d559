package provider_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/aspengine/asp/seam/provider"
)

// TestLooksAreRemembered: files that did not change since somebody looked are not read
// again, by another pool neither; whatever may have changed is.
func TestLooksAreRemembered(t *testing.T) {
	w := newWorld(t, nil)
	bin := filepath.Join(w.dir, "bin")
	must(t, os.WriteFile(bin, []byte("#!/bin/sh\n"), 0o755))
	w.addProgram("demo", bin, []string{"x"}, `"read":[],"write":[]`)
	look := func() provider.Artifact {
		t.Helper()
		all, err := w.pool.Roster(t.Context())
		must(t, err)
		return w.pool.Look(t.Context(), all)[0].Artifact
	}
	file := filepath.Join(w.dir, "home", "state", "artifacts.json")
	w.clock = time.Now()
	if a := look(); a.Problem != "" {
		t.Errorf("%+v", a)
	}
	if b, err := os.ReadFile(file); err == nil {
		t.Errorf("a look at what was written this moment is remembered: %s", b)
	}
	w.clock = time.Now().Add(time.Hour)
	// What is remembered here could not be found by looking, so it shows who looked.
	remembered := provider.Artifact{Problem: "remembered", Foreign: true}
	plant := func() {
		t.Helper()
		if err := os.Remove(file); err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		look()
		b, err := os.ReadFile(file)
		must(t, err)
		must(t, os.WriteFile(file, []byte(strings.Replace(string(b), `"id":"demo"`, `"foreign":true,"id":"demo","problem":"remembered"`, 1)), 0o600))
		if a := look(); a != remembered {
			t.Fatalf("%+v", a)
		}
	}
	plant()
	w.open()
	if a := look(); a != remembered {
		t.Errorf("%+v", a)
	}
	for name, harm := range map[string]func() error{
		"another mode":     func() error { return os.Chmod(bin, 0o700) },
		"another content":  func() error { return os.WriteFile(bin, []byte("#!/bin/ls\n"), 0o700) },
		"no memory":        func() error { return os.WriteFile(file, []byte("{"), 0o600) },
		"another manifest": func() error { w.addProgram("demo", bin, []string{"y"}, `"read":[],"write":[]`); return nil },
	} {
		plant()
		must(t, harm())
		if a := look(); a.Problem != "" {
			t.Errorf("%s: %+v", name, a)
		}
	}
	must(t, os.Remove(bin))
	if a := look(); a.Foreign || !strings.Contains(a.Problem, "install it") {
		t.Errorf("%+v", a)
	}
}
