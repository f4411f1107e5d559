package apply_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/aspengine/asp/apply"
	"github.com/aspengine/asp/internal/need"
	"github.com/aspengine/asp/seam/wire"
)

// What the machine answered is taken from the file of the last process for as long as it
// is believed and holds for this one, and asked for anew otherwise.
func TestStatusRemembersTheMachine(t *testing.T) {
	need.UserNS(t)
	b := newBed(t, "", twoFiles)
	status := func() []wire.Mode {
		t.Helper()
		s, err := b.open().Status(context.Background(), apply.SurfaceRequest{})
		if err != nil {
			t.Fatal(err)
		}
		return s.Result.AssuranceCapabilities
	}
	all := status()
	if len(all) < 3 {
		t.Fatalf("this machine gives namespaces, and status says %v", all)
	}
	found, err := filepath.Glob(b.home.Path("workspaces", "*", "assurance.json"))
	if err != nil || len(found) != 1 {
		t.Fatal(found, err)
	}
	was, err := os.ReadFile(found[0])
	if err != nil {
		t.Fatal(err)
	}
	here := regexp.MustCompile(`"here":"[^"]*"`)
	modes := regexp.MustCompile(`"modes":\[[^]]*\]`)
	// Less than the machine gives, so that who is believed shows.
	little := modes.ReplaceAllString(string(was), `"modes":["advisory"]`)
	until := regexp.MustCompile(`"until":(\d+)`)
	var at int64
	if _, err := fmt.Sscan(until.FindStringSubmatch(little)[1], &at); err != nil {
		t.Fatal(err)
	}
	ends := func(ms int64) string { return until.ReplaceAllString(little, fmt.Sprintf(`"until":%d`, ms)) }
	for name, c := range map[string]struct {
		file     string
		believed bool
	}{
		"as it was":       {little, true},
		"over":            {ends(at - 301_000), false}, // the uptime is past it
		"longer than any": {ends(at + 301_000), false},
		"elsewhere":       {regexp.MustCompile(`"here":"sha256:.`).ReplaceAllString(little, `"here":"sha256:x`), false},
		"another format":  {strings.Replace(little, `"format":1`, `"format":2`, 1), false},
		"torn":            {little[:len(little)/2], false},
		"empty":           {"", false},
		"unknown modes":   {modes.ReplaceAllString(little, `"modes":["isolated"]`), false},
		"no modes":        {modes.ReplaceAllString(little, `"modes":[]`), false},
	} {
		if c.file == string(was) {
			t.Fatalf("%s: nothing was changed in %s", name, was)
		}
		if err := os.WriteFile(found[0], []byte(c.file), 0o600); err != nil {
			t.Fatal(err)
		}
		planted := []wire.Mode{wire.Advisory}
		got := status()
		// Others on this machine mount and unmount, which is another machine to it: then
		// the answer is of that one, and is tried again.
		for c.believed && !slices.Equal(got, planted) {
			now, err := os.ReadFile(found[0])
			if err != nil {
				t.Fatal(err)
			}
			if here.FindString(string(now)) == here.FindString(c.file) {
				break
			}
			c.file = modes.ReplaceAllString(string(now), `"modes":["advisory"]`)
			if err := os.WriteFile(found[0], []byte(c.file), 0o600); err != nil {
				t.Fatal(err)
			}
			got = status()
		}
		if slices.Equal(got, planted) != c.believed {
			now, _ := os.ReadFile(found[0])
			t.Errorf("%s: %v, believed %v: %s", name, got, c.believed, now)
		}
		if now, err := os.ReadFile(found[0]); err != nil || !c.believed && string(now) == c.file {
			t.Errorf("%s: the new answer was not kept: %v", name, err)
		}
	}
	// A process that has an answer of its own believes that.
	e := b.open()
	if _, err := e.Caps(context.Background()); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(found[0], []byte(little), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := e.Status(context.Background(), apply.SurfaceRequest{})
	if err != nil || len(s.Result.AssuranceCapabilities) < 2 {
		t.Errorf("%v, %v", err, s.Result.AssuranceCapabilities)
	}
}
