package snapshot_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/aspengine/asp/internal/vfs"
	"github.com/aspengine/asp/snapshot"
)

type tb interface {
	Helper()
	Fatalf(format string, args ...any)
}

func write(t tb, dir, p, content string) {
	t.Helper()
	p = filepath.Join(dir, filepath.FromSlash(p))
	if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
		t.Fatalf("%v", err)
	}
	if err := os.WriteFile(p, []byte(content), 0o644); err != nil {
		t.Fatalf("%v", err)
	}
}

func open(t testing.TB, dir string, state vfs.Dir) snapshot.Workspace {
	t.Helper()
	ws, err := snapshot.OpenPlain(context.Background(), dir, snapshot.Options{State: state})
	if err != nil {
		t.Fatal(err)
	}
	return ws
}

func stamp(t tb, ws snapshot.Workspace, content bool) *snapshot.Stamp {
	t.Helper()
	s, err := ws.Stamp(context.Background(), snapshot.StampOptions{Content: content})
	if err != nil {
		t.Fatalf("stamp: %v", err)
	}
	return s
}

func mustPath(t tb, s string) snapshot.Path {
	t.Helper()
	p, err := snapshot.ParsePath(s)
	if err != nil {
		t.Fatalf("%v", err)
	}
	return p
}

// TestTreeKnownAnswer is the contract's known answer for a tree outside git.
func TestTreeKnownAnswer(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "src/dogfood.ts", "export const dogfoodValue: number = 1;\n")
	// The contract gives the second file by digest and size only: both stand in
	// for it here, and the form is checked on what Rev is computed from.
	if got := snapshot.DigestOf([]byte("export const dogfoodValue: number = 1;\n")).Hex(); got != "d4951ddae668b2dcd926c2df95c45f7e22ccafe58493e63b2d2c938752044db7" {
		t.Fatalf("digest %s", got)
	}
	ws := open(t, dir, nil)
	defer ws.Close()
	s := stamp(t, ws, false)
	ts, err := snapshot.ParseBlob("blob:sha256:f8a4738c6ecb52481d9f29eeb26c4f51383bd30e17afa215c65b919b6b3b053a")
	if err != nil {
		t.Fatal(err)
	}
	after, err := ws.After(context.Background(), s, []snapshot.Effect{{Path: mustPath(t, "tsconfig.json"), Digest: ts, Size: 88, Mode: snapshot.ModeRegular}})
	if err != nil {
		t.Fatal(err)
	}
	if want := (snapshot.Baseline{Rev: "tree:sha256:f5425825927b8ae60621322e6005e0abe76dfd1d9eeb3a759f268d3c25ddb2fa"}); after != want {
		t.Errorf("baseline %+v, want %+v", after, want)
	}
}

var names = []string{"a", "b", "d/a", "d/b", "d.x", "d/e/f", "n\xff", "n\xfe", "é", "<&>\u2028"}

type change struct{ kind, path, text string }

func mutate(t *rapid.T, dir string) {
	c := change{
		rapid.SampledFrom([]string{"write", "write", "remove", "exec", "link", "fifo"}).Draw(t, "kind"),
		rapid.SampledFrom(names).Draw(t, "path"), rapid.SampledFrom([]string{"", "1", "22"}).Draw(t, "text"),
	}
	p := filepath.Join(dir, c.path)
	if c.kind == "exec" {
		if fi, err := os.Lstat(p); err == nil && fi.Mode().IsRegular() {
			os.Chmod(p, fi.Mode().Perm()^0o111)
		}
		return
	}
	os.RemoveAll(p)
	if c.kind == "remove" || os.MkdirAll(filepath.Dir(p), 0o755) != nil {
		return
	}
	switch c.kind {
	case "write":
		os.WriteFile(p, []byte(c.text), 0o644)
	case "link":
		os.Symlink("t"+c.text, p)
	case "fifo":
		unix.Mkfifo(p, 0o644)
	}
}

// describe is the state of a tree in a naive form: what two trees must agree
// in to have one baseline.
func describe(dir string) string {
	var out []string
	filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		fi, err := d.Info()
		if err != nil {
			return err
		}
		line := strings.TrimPrefix(p, dir) + "\x00" + fi.Mode().Type().String()
		switch {
		case fi.Mode().IsRegular():
			b, err := os.ReadFile(p)
			if err != nil {
				return err
			}
			line += "\x00" + string(b)
			if fi.Mode()&0o100 != 0 {
				line += "\x00x"
			}
		case fi.Mode()&fs.ModeSymlink != 0:
			to, err := os.Readlink(p)
			if err != nil {
				return err
			}
			line += "\x00" + to
		}
		out = append(out, line)
		return nil
	})
	slices.Sort(out)
	return strings.Join(out, "\x01")
}

// TestPlainBaselineIsTheState: two looks at directories have the same baseline
// exactly when bytes, names, links and execute bits are the same.
func TestPlainBaselineIsTheState(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		seen := map[string]snapshot.Baseline{}
		back := map[snapshot.Baseline]string{}
		for range 2 {
			dir, err := os.MkdirTemp("", "plain")
			if err != nil {
				t.Fatal(err)
			}
			defer os.RemoveAll(dir)
			ws, err := snapshot.OpenPlain(context.Background(), dir, snapshot.Options{Workers: rapid.IntRange(1, 4).Draw(t, "workers")})
			if err != nil {
				t.Fatal(err)
			}
			defer ws.Close()
			for range rapid.IntRange(1, 6).Draw(t, "looks") {
				for range rapid.IntRange(1, 4).Draw(t, "steps") {
					mutate(t, dir)
				}
				s := stamp(t, ws, rapid.Bool().Draw(t, "content"))
				d := describe(dir)
				if b, ok := seen[d]; ok && b != s.Baseline {
					t.Fatalf("one state, two baselines: %q", d)
				}
				if o, ok := back[s.Baseline]; ok && o != d {
					t.Fatalf("two states, one baseline: %q and %q", o, d)
				}
				seen[d], back[s.Baseline] = s.Baseline, d

				name := rapid.SampledFrom([]string{"a", "b", "d/a", "d/e/f"}).Draw(t, "effect")
				text := rapid.SampledFrom([]string{"", "1", "333"}).Draw(t, "bytes")
				p := filepath.Join(dir, name)
				fi, err := os.Lstat(p)
				if pfi, perr := os.Stat(filepath.Dir(p)); perr != nil || !pfi.IsDir() || err == nil && fi.IsDir() {
					continue
				}
				e := snapshot.Effect{Path: mustPath(t, name), Digest: snapshot.DigestOf([]byte(text)), Size: int64(len(text)), Mode: snapshot.ModeRegular}
				if rapid.Bool().Draw(t, "gone") {
					e = snapshot.Effect{Path: e.Path, Gone: true}
				}
				after, err := ws.After(context.Background(), s, []snapshot.Effect{e})
				if err != nil {
					t.Fatal(err)
				}
				os.Remove(p)
				if !e.Gone {
					write(t, dir, name, text)
				}
				if now := stamp(t, ws, false); now.Baseline != after {
					t.Fatalf("After said %+v, it is %+v", after, now.Baseline)
				}
			}
		}
	})
}

func TestPlainSpecials(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, ".asp/asp.json", "{}")
	write(t, dir, "nested/.git/HEAD", "ref: refs/heads/main\n")
	write(t, dir, "nested/f", "1")
	if err := unix.Mkfifo(filepath.Join(dir, "fifo"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/", filepath.Join(dir, "root")); err != nil {
		t.Fatal(err)
	}
	ws := open(t, dir, nil)
	defer ws.Close()
	s := stamp(t, ws, true)
	var got []string
	for _, o := range s.Overlay {
		got = append(got, o.Path+" "+o.Note)
	}
	if want := []string{".asp/asp.json ", "fifo fifo", "nested/f ", "root "}; !slices.Equal(got, want) {
		t.Errorf("overlay %q, want %q", got, want)
	}
	if len(s.Notes) != 1 || !strings.Contains(s.Notes[0], "fifo") {
		t.Errorf("notes %q", s.Notes)
	}
	// An open transaction is no part of the baseline.
	write(t, dir, snapshot.TxName+"/journal", "x")
	if again := stamp(t, ws, false); again.Baseline != s.Baseline {
		t.Error("the transaction directory is in the baseline")
	}
	if len(ws.Protected()) != 1 || ws.TxDir() != filepath.Join(ws.Root(), ".asp", "tx") || ws.LockDir() != ws.Root() {
		t.Errorf("protected %v, tx %s, lock %s", ws.Protected(), ws.TxDir(), ws.LockDir())
	}
	in, err := ws.PathInfo(context.Background(), []snapshot.Path{mustPath(t, "nested/f"), mustPath(t, "x")})
	if err != nil || !in[0].InSubmodule || in[1].InSubmodule {
		t.Errorf("%+v, %v", in, err)
	}
}

// TestUnreadable: what may not be read is noted, and nothing is claimed of it.
func TestUnreadable(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("root may read everything")
	}
	dir := t.TempDir()
	write(t, dir, "f", "1")
	write(t, dir, "d/x", "1")
	os.Chmod(filepath.Join(dir, "f"), 0)
	os.Chmod(filepath.Join(dir, "d"), 0)
	defer os.Chmod(filepath.Join(dir, "d"), 0o755)
	s := stamp(t, open(t, dir, nil), false)
	if len(s.Overlay) != 2 || s.Overlay[0].Note != "unreadable" || s.Overlay[1].Note != "unreadable" || len(s.Notes) != 2 {
		t.Errorf("%+v, %q", s.Overlay, s.Notes)
	}
}

// TestPlainCacheSeesThroughRestoredTimes: the second look reads nothing, and a
// same-size edit with the old mtime is seen.
func TestPlainCacheSeesThroughRestoredTimes(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "a", "alpha")
	write(t, dir, "b/c", "beta")
	time.Sleep(80 * time.Millisecond) // older than the racy margin
	state, err := vfs.OS{}.OpenRoot(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer state.Close()
	look := func() *snapshot.Stamp {
		t.Helper()
		ws := open(t, dir, state)
		s := stamp(t, ws, false)
		if err := ws.Close(); err != nil {
			t.Fatal(err)
		}
		return s
	}
	first := look()
	if s := look(); first.Hashed != 2 || s.Hashed != 0 || s.Baseline != first.Baseline {
		t.Errorf("read %d, then %d files", first.Hashed, s.Hashed)
	}
	p := filepath.Join(dir, "a")
	fi, err := os.Stat(p)
	if err != nil {
		t.Fatal(err)
	}
	write(t, dir, "a", "alphx")
	os.Chtimes(p, fi.ModTime(), fi.ModTime())
	if s := look(); s.Baseline == first.Baseline {
		t.Error("the edit was not seen")
	}
	// Touched, not changed.
	write(t, dir, "a", "alpha")
	os.Chtimes(p, time.Unix(1, 0), time.Unix(1, 0))
	if s := look(); s.Baseline != first.Baseline {
		t.Error("touching changed the baseline")
	}
}

func TestOverlayForm(t *testing.T) {
	d := snapshot.DigestOf(nil)
	entries := []snapshot.OverlayEntry{
		{Path: "a\u2028<", Mode: snapshot.ModeExecutable, Digest: d}, {Path: "b", Gone: true}, {Path: "c\xff", Note: "fifo"},
		{Path: "s", Mode: snapshot.ModeGitlink, Note: "submodule", Ref: "r"},
	}
	want := "[" + `{"blobId":"` + d.Blob() + `","mode":"100755","path":"a` + "\u2028" + `<"},{"gone":true,"path":"b"},{"note":"fifo","pathHex":"63ff"},` +
		`{"mode":"160000","note":"submodule","path":"s","ref":"r"}` + "]"
	if !json.Valid([]byte(want)) {
		t.Fatal("the expected form is no JSON")
	}
	if got := snapshot.DirtyDigest(entries); got != snapshot.DigestOf([]byte(want)).String() {
		t.Errorf("digest %s is not that of %s", got, want)
	}
	if snapshot.DirtyDigest(nil) != "" {
		t.Error("an empty overlay has a digest")
	}
}

func TestLive(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "d/f", "bytes")
	os.Symlink("f", filepath.Join(dir, "d/l"))
	os.Symlink("d", filepath.Join(dir, "dl"))
	unix.Mkfifo(filepath.Join(dir, "fifo"), 0o644)
	root, err := vfs.OS{}.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	l := snapshot.NewLive(root)
	d, st, err := l.Hash(context.Background(), mustPath(t, "d/f"))
	if err != nil || d != snapshot.DigestOf([]byte("bytes")) || st.Size != 5 {
		t.Errorf("%v %+v %v", d, st, err)
	}
	if e, err := l.Entry(mustPath(t, "d/l")); err != nil || e.Target != "f" || e.Stat.Kind != vfs.KindSymlink {
		t.Errorf("%+v %v", e, err)
	}
	if _, err := l.Entry(mustPath(t, "d/none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("missing: %v", err)
	}
	for _, p := range []string{"dl/f", "d/l", "fifo"} {
		if _, _, err := l.Hash(context.Background(), mustPath(t, p)); err == nil {
			t.Errorf("%s was read", p)
		}
	}
	f, err := l.Open(mustPath(t, "d/f"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if b, err := io.ReadAll(f); err != nil || string(b) != "bytes" {
		t.Errorf("%q %v", b, err)
	}
}

// TestMemoryIsBounded: a large file is streamed, whatever its size.
func TestMemoryIsBounded(t *testing.T) {
	dir := t.TempDir()
	f, err := os.Create(filepath.Join(dir, "large"))
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(f.Truncate(256<<20), f.Close()); err != nil {
		t.Fatal(err)
	}
	ws := open(t, dir, nil)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	stamp(t, ws, true)
	runtime.ReadMemStats(&after)
	if got := after.TotalAlloc - before.TotalAlloc; got > 8<<20 {
		t.Errorf("%d bytes were allocated for a file of 256 MiB", got)
	}
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
