package manifest_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/aspengine/asp/internal/canon"
	"github.com/aspengine/asp/internal/home"
	"github.com/aspengine/asp/internal/need"
	"github.com/aspengine/asp/internal/vfs"
	"github.com/aspengine/asp/seam/manifest"
	"github.com/aspengine/asp/seam/wire"
)

const good = `{"manifestVersion":"asp-server/1.0","server":{"id":"demo","name":"Demo","version":"1.2.3"},"protocolVersions":["asp/1.0"],
"capabilities":["check","edit"],"capabilityProfiles":["core-check-provider"],"entrypoint":{"transport":"stdio","bin":"/bin/sh","args":["-c","x"]},
"artifact":{"fingerprint":"sha256:00"},"provenance":{"publisher":"me","source":"here","license":"MIT"},
"accessExpectations":{"filesystem":{"read":["**/*"],"write":[]},"network":{"outbound":true,"allowlist":["h:1"]},"secrets":{"names":[]},
"environment":{"inherit":false,"variables":["LANG"]},"dataClasses":[]}}`

func TestParse(t *testing.T) {
	m, err := manifest.Parse("/d/asp-server.json", []byte(good))
	if err != nil {
		t.Fatal(err)
	}
	if m.ID != "demo" || m.Name != "Demo" || m.Version != "1.2.3" || m.Bin != "/bin/sh" || !slices.Equal(m.Args, []string{"-c", "x"}) ||
		!slices.Equal(m.Families, []wire.Family{wire.Check, wire.Edit}) || !slices.Equal(m.Protocols, []string{"asp/1.0"}) || m.Fingerprint != "sha256:00" ||
		m.Publisher != "me" || m.Source != "here" || m.License != "MIT" || !slices.Equal(m.Profiles, []string{"core-check-provider"}) ||
		!slices.Equal(m.Env, []string{"LANG"}) || !m.Network || !slices.Equal(m.Allowlist, []string{"h:1"}) || !slices.Equal(m.FSRead, []string{"**/*"}) ||
		m.Path != "/d/asp-server.json" || m.Value.Kind() != canon.Object {
		t.Errorf("%+v", m)
	}
	hex64 := strings.Repeat("0a", 32)
	for _, c := range []struct{ old, new, want string }{
		{`/bin/sh`, `sh`, "not absolute"},
		{`/bin/sh`, `/bin/../bin/sh`, "spelt plainly"},
		{`"inherit":false`, `"inherit":true`, "inherit"},
		{`["asp/1.0"]`, `[]`, "protocolVersions"},
		{`asp-server/1.0`, `asp-server/2.0`, "manifestVersion"},
		{`"check","edit"`, `"check","check"`, "same as element"},
		{`"check","edit"`, `"judge"`, "judge"},
		{`"transport":"stdio"`, `"transport":"stdio","env":{}`, "unknown member"},
		{`"x"]`, `"x\u0000"]`, "NUL"},
		{`"x"]`, `"` + strings.Repeat("x", 200<<10) + `"]`, "bytes"},
		{`"LANG"`, `"A=B"`, "no name of a variable"},
		{`"sha256:00"`, `"sha256:00","checksums":[{"path":"a","sha256":"00"}]`, "64 hexadecimal"},
		{`"sha256:00"`, `"sha256:00","checksums":[{"path":"a","sha256":"` + hex64 + `"},{"path":"./a","sha256":"` + strings.Repeat("0", 64) + `"}]`, "two different"},
		{`"publisher":"me",`, ``, "publisher"},
		{`"server":`, `"server":{"id":"a"},"server":`, "duplicate key"},
	} {
		in := strings.Replace(good, c.old, c.new, 1)
		if in == good {
			t.Fatalf("%q is not in the manifest", c.old)
		}
		_, err := manifest.Parse("/d/asp-server.json", []byte(in))
		var e *manifest.Error
		if !errors.As(err, &e) || !strings.Contains(strings.Join(e.Problems, "; "), c.want) || len(err.Error()) > 2000 {
			t.Errorf("%.60q: %v, want %q", c.new, err, c.want)
		}
	}
	if _, err := manifest.Parse("d/asp-server.json", []byte(good)); err == nil {
		t.Error("a relative path of the manifest passes")
	}
}

// Version 0.1 has the same shape and older words.
func TestParseOld(t *testing.T) {
	old := strings.Replace(good, "asp-server/1.0", "asp-server/0.1", 1)
	for _, c := range []struct {
		caps string
		want []wire.Family
	}{
		{`"capabilities":["check","session","judge","edit"]`, []wire.Family{wire.Check, wire.Edit}},
		{`"roles":["sense","act"]`, []wire.Family{wire.Inspect, wire.Edit}},
	} {
		m, err := manifest.Parse("/d/asp-server.json", []byte(strings.Replace(old, `"capabilities":["check","edit"]`, c.caps, 1)))
		if err != nil || !slices.Equal(m.Families, c.want) {
			t.Errorf("%s: %v, %v", c.caps, m.Families, err)
		}
	}
}

// An id becomes the name of a directory.
func TestIDs(t *testing.T) {
	for id, ok := range map[string]bool{"a": true, "example-ast_grep.2": true, "A": true, "": false, ".": false, "..": false, ".hidden": false, "a/b": false,
		"../x": false, "a\x00": false, "a b": false, "ä": false, "a\n": false, strings.Repeat("a", 128): true, strings.Repeat("a", 129): false} {
		if err := manifest.CheckID(id); (err == nil) != ok {
			t.Errorf("%q: %v", id, err)
		}
	}
}

// fixture is a provider's directory with files that its manifest lists.
func fixture(t *testing.T, files map[string]string, checksums ...string) (dir string, m manifest.Manifest) {
	t.Helper()
	dir = t.TempDir()
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	var list []string
	for _, c := range checksums {
		sum := sha256.Sum256([]byte(files[filepath.Base(c)]))
		list = append(list, `{"path":"`+c+`","sha256":"`+strings.ToUpper(hex.EncodeToString(sum[:]))+`"}`)
	}
	in := strings.Replace(good, "/bin/sh", dir+"/bin", 1)
	in = strings.Replace(in, `"sha256:00"`, `"sha256:00","checksums":[`+strings.Join(list, ",")+`]`, 1)
	m, err := manifest.Parse(filepath.Join(dir, manifest.FileName), []byte(in))
	if err != nil {
		t.Fatal(err)
	}
	return dir, m
}

func verify(t *testing.T, m manifest.Manifest) *manifest.Verified {
	t.Helper()
	v, err := m.Verify(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = v.Close() })
	return v
}

func TestVerify(t *testing.T) {
	dir, m := fixture(t, map[string]string{"bin": "program", "rules": "r"}, "bin", "rules")
	if v := verify(t, m); !v.All || v.Exec == nil || len(v.Problems) > 0 {
		t.Fatalf("%+v", v)
	}
	for name, c := range map[string]struct {
		harm func() error
		want string
		exec bool
	}{
		"changed":  {func() error { return os.WriteFile(dir+"/rules", []byte("R"), 0o600) }, "sha256 differs", true},
		"missing":  {func() error { return os.Remove(dir + "/rules") }, "no such file", true},
		"fifo":     {func() error { return errors.Join(os.Remove(dir+"/rules"), syscall.Mkfifo(dir+"/rules", 0o600)) }, "no regular file", true},
		"device":   {func() error { return errors.Join(os.Remove(dir+"/rules"), os.Symlink("/dev/zero", dir+"/rules")) }, "no regular file", true},
		"no bin":   {func() error { return os.Remove(dir + "/bin") }, "install it", false},
		"no x":     {func() error { return os.Chmod(dir+"/bin", 0o644) }, "chmod +x", false},
		"new bin":  {func() error { return os.WriteFile(dir+"/bin", []byte("other"), 0o755) }, "sha256 differs", true},
		"dir, bin": {func() error { return errors.Join(os.Remove(dir+"/bin"), os.Mkdir(dir+"/bin", 0o700)) }, "no regular file", false},
	} {
		t.Run(name, func(t *testing.T) {
			for n, content := range map[string]string{"bin": "program", "rules": "r"} {
				if err := errors.Join(os.RemoveAll(dir+"/"+n), os.WriteFile(dir+"/"+n, []byte(content), 0o755)); err != nil {
					t.Fatal(err)
				}
			}
			if err := c.harm(); err != nil {
				t.Fatal(err)
			}
			if v := verify(t, m); v.All || (v.Exec != nil) != c.exec || !strings.Contains(strings.Join(v.Problems, ";"), c.want) {
				t.Errorf("%+v", v)
			}
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := m.Verify(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

// What is executed is what was hashed, though the path names something else by
// then, and though it was listed under another name.
func TestExecIsTheFileThatWasHashed(t *testing.T) {
	dir, m := fixture(t, map[string]string{"bin": "program", "alias": "program"}, "alias")
	if err := errors.Join(os.Remove(dir+"/alias"), os.Link(dir+"/bin", dir+"/alias")); err != nil {
		t.Fatal(err)
	}
	v := verify(t, m)
	if !v.All {
		t.Fatal(v.Problems)
	}
	if err := errors.Join(os.WriteFile(dir+"/evil", []byte("evil"), 0o755), os.Rename(dir+"/evil", dir+"/bin")); err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(v.Exec); err != nil || string(b) != "program" {
		t.Errorf("the descriptor reads %q, %v", b, err)
	}
}

func openHome(t *testing.T) *home.Home {
	t.Helper()
	h, err := home.Open(vfs.OS{}, filepath.Join(t.TempDir(), "home"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.Close() })
	return h
}

func TestRegistry(t *testing.T) {
	h := openHome(t)
	r := manifest.OpenRegistry(h)
	if l, err := r.List(t.Context()); err != nil || len(l) > 0 {
		t.Fatalf("empty: %v, %v", l, err)
	}
	if _, err := r.Get(t.Context(), "demo"); !errors.Is(err, manifest.ErrUnknown) {
		t.Errorf("unknown: %v", err)
	}
	if err := r.Remove(t.Context(), "demo"); !errors.Is(err, manifest.ErrUnknown) {
		t.Errorf("unknown: %v", err)
	}
	if _, err := r.Get(t.Context(), "../../etc"); err == nil || errors.Is(err, manifest.ErrUnknown) {
		t.Errorf("odd id: %v", err)
	}
	dir, m := fixture(t, map[string]string{"bin": "program"}, "bin")
	for range 2 { // again is an update
		if err := r.Add(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
	got, err := r.Get(t.Context(), "demo")
	if err != nil || got.Path != h.Path("servers", "manifests", "demo", "asp-server.json") || !canon.Equal(got.Value, m.Value) {
		t.Fatalf("%+v, %v", got, err)
	}
	if v := verify(t, got); !v.All {
		t.Errorf("the relative checksum is not relative to where the manifest came from: %v", v.Problems)
	}
	if err := os.WriteFile(dir+"/bin", []byte("other"), 0o755); err != nil {
		t.Fatal(err)
	}
	var e *manifest.Error
	if err := r.Add(t.Context(), m); !errors.As(err, &e) || !strings.Contains(err.Error(), "sha256 differs") {
		t.Errorf("add of what does not match: %v", err)
	}
	if v := verify(t, got); v.All {
		t.Error("changed after it was added, and passes")
	}
	if err := r.Remove(t.Context(), "demo"); err != nil {
		t.Fatal(err)
	}
	if l, err := r.List(t.Context()); err != nil || len(l) > 0 {
		t.Fatalf("after remove: %v, %v", l, err)
	}
}

// What lies in the registry is looked at again each time.
func TestRegistryProblems(t *testing.T) {
	h := openHome(t)
	r := manifest.OpenRegistry(h)
	_, m := fixture(t, map[string]string{"bin": "program"}, "bin")
	if err := r.Add(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	base := h.Path("servers", "manifests")
	write := func(name, content string) {
		t.Helper()
		if err := errors.Join(os.MkdirAll(filepath.Dir(base+"/"+name), 0o700), os.WriteFile(base+"/"+name, []byte(content), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	write("other/asp-server.json", good)
	write("bad/asp-server.json", "{")
	write("big/asp-server.json", strings.Repeat(" ", manifest.MaxFile+1))
	write(".hidden/asp-server.json", good)
	write("stray", "a file")
	if err := os.Mkdir(base+"/empty", 0o700); err != nil {
		t.Fatal(err)
	}
	l, err := r.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	problems := map[string]string{}
	for _, e := range l {
		problems[e.ID] = e.Problem
		if (e.Manifest == nil) != (e.Problem != "") {
			t.Errorf("%+v", e)
		}
	}
	for id, want := range map[string]string{"other": `manifest of "demo"`, "bad": "key expected", "big": "larger", "stray": "not a directory"} {
		if !strings.Contains(problems[id], want) {
			t.Errorf("%s: %q, want %q", id, problems[id], want)
		}
	}
	if len(l) != 5 || problems["demo"] != "" {
		t.Errorf("%v", problems)
	}
	// What was read before is no reason to take other bytes for it.
	kept, err := os.ReadFile(base + "/demo/asp-server.json")
	if err != nil {
		t.Fatal(err)
	}
	write("demo/asp-server.json", strings.Replace(string(kept), "1.2.3", "1.2.4", 1))
	if _, err := r.Get(t.Context(), "demo"); err == nil || !strings.Contains(err.Error(), "another manifest") {
		t.Errorf("manifest of another origin: %v", err)
	}
	write("demo/asp-server.json", string(kept))
	if got, err := r.Get(t.Context(), "demo"); err != nil || !canon.Equal(got.Value, m.Value) {
		t.Errorf("put back: %v", err)
	}
	write("demo/origin.json", `{"directory":"/elsewhere","digest":"sha256:00"}`)
	if _, err := r.Get(t.Context(), "demo"); err == nil || !strings.Contains(err.Error(), "another manifest") {
		t.Errorf("origin of another: %v", err)
	}
	write("demo/origin.json", `{}`)
	if _, err := r.Get(t.Context(), "demo"); err == nil || !strings.Contains(err.Error(), "damaged") {
		t.Errorf("damaged origin: %v", err)
	}
	// A manifest that lies there alone is relative to itself.
	if err := os.Remove(base + "/demo/origin.json"); err != nil {
		t.Fatal(err)
	}
	if got, err := r.Get(t.Context(), "demo"); err != nil || verify(t, got).All {
		t.Errorf("%v", err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(good))
	f.Add([]byte(strings.Replace(good, "1.0", "0.1", 1)))
	f.Fuzz(func(t *testing.T, b []byte) {
		need.Bounded(t, len(b), func() {
			m, err := manifest.Parse("/d/asp-server.json", b)
			if err != nil {
				if len(err.Error()) > 5000 {
					t.Fatalf("error of %d bytes", len(err.Error()))
				}
				return
			}
			if manifest.CheckID(m.ID) != nil || !filepath.IsAbs(m.Bin) || len(m.Protocols) == 0 || m.Fingerprint == "" {
				t.Fatalf("accepted %+v", m)
			}
		})
	})
}
