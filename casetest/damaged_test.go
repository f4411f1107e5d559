package casetest

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// damages are what becomes of a file of the state directory.
var damages = []struct {
	name string
	do   func(w *world, name string, b []byte) error
}{
	{"emptied", func(_ *world, name string, _ []byte) error { return os.Truncate(name, 0) }},
	{"cut", func(_ *world, name string, b []byte) error { return os.Truncate(name, int64(len(b)/2)) }},
	{"flipped", func(_ *world, name string, b []byte) error {
		b = slices.Clone(b)
		if len(b) > 0 {
			b[len(b)*2/3] ^= 0x20
		}
		return os.WriteFile(name, b, 0o600)
	}},
	{"directory", func(w *world, name string, _ []byte) error {
		if err := os.Remove(name); err != nil {
			return err
		}
		w.mkdir(name)
		return nil
	}},
	{"unreadable", func(_ *world, name string, _ []byte) error { return os.Chmod(name, 0) }},
	{"gone", func(_ *world, name string, _ []byte) error { return os.Remove(name) }},
}

// TestDamagedState damages each file that lies in the state directory after an ordinary
// day, and goes on with it: every command either does what it does with the whole state
// or says that it could not or would not, with the file and a way out where it could not
// tell; no file of the workspace is ever in any other state than the two that belong to
// it, and receipts that are not as they were written do not verify. By default each kind of
// file takes one of the damages and is asked for by what changes the workspace, in the
// long form each file takes all of them.
func TestDamagedState(t *testing.T) {
	w := newWorld(t, map[string]string{"a": "a\n", "b": "b\n", "c": "c\n", "d": "d\n"})
	w.broken = true
	w.config(`{"checks":{"t":{"argv":["true"],"callSites":[]}}}`)
	undone := w.plan().modify("a", "a\n", "A\n").apply().applied().str("receipt", "receiptId")
	staged := w.plan().modify("b", "b\n", "B\n")
	staged.apply("--stage").applied()
	kept := w.beside("d.diff", "--- a/d\n+++ b/d\n@@ -1 +1 @@\n-d\n+D\n", 0o644)
	w.run("check", "--changed").exits(0)
	w.run("repo", "add", w.root).exits(0)
	fresh := w.plan().modify("c", "c\n", "C\n").file()

	steps := []struct {
		args     []string
		file, to string // what it changes, and into what
	}{
		{args: []string{"receipts", "verify"}},
		{args: []string{"status"}},
		{args: []string{"check", "--changed"}},
		{args: []string{"publish", staged.id}, file: "b", to: "B\n"},
		{args: []string{"undo", undone}, file: "a", to: "a\n"},
		{args: []string{"apply", "--plan", fresh}, file: "c", to: "C\n"},
		{args: []string{"apply", "--stage", "--patch", kept}},
		{args: []string{"recover"}},
	}
	var files []string
	must(t, filepath.WalkDir(w.asp, func(p string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			files = append(files, p)
		}
		return err
	}))
	if len(files) < 15 {
		t.Fatalf("the state is %q", files)
	}
	if !longCrash() {
		kinds := map[string]bool{}
		files = slices.DeleteFunc(files, func(p string) bool {
			kind := filepath.Dir(p)
			if _, hash := strings.CutSuffix(p, ".json"); !hash || strings.Count(p[len(w.asp):], "/") < 4 {
				kind = p // one of its own
			}
			defer func() { kinds[kind] = true }()
			return kinds[kind]
		})
	}
	saved := filepath.Join(w.base, "saved")
	copied := func(from, to string) {
		t.Helper()
		must(t, exec.Command("cp", "-a", from, to).Run())
	}
	must(t, os.Mkdir(saved, 0o755))
	copied(w.asp, filepath.Join(saved, "state"))
	copied(w.root, filepath.Join(saved, "repo"))
	before := map[string]string{"a": "A\n", "b": "b\n", "c": "c\n", "d": "d\n"}

	for i, file := range files {
		content, err := os.ReadFile(filepath.Join(saved, "state", file[len(w.asp):]))
		must(t, err)
		// The newest receipt of a lane has a second name, and a receipt is known by its id.
		name := strings.TrimSuffix(filepath.Base(file), ".json")
		for j, d := range damages {
			if !longCrash() && j != i%len(damages) {
				continue
			}
			if d.name == "unreadable" && w.cred == nil && os.Geteuid() == 0 {
				continue
			}
			what := fmt.Sprintf("%s %s", file[len(w.asp):], d.name)
			must(t, os.RemoveAll(w.asp))
			must(t, os.RemoveAll(w.root))
			copied(filepath.Join(saved, "state"), w.asp)
			copied(filepath.Join(saved, "repo"), w.root)
			must(t, d.do(w, file, content))
			now := map[string]string{}
			for k, v := range before {
				now[k] = v
			}
			for _, s := range steps {
				if !longCrash() && s.file == "" && s.args[0] != "receipts" {
					continue
				}
				r := w.run(s.args...)
				if r.code == 0 && s.file != "" {
					now[s.file] = s.to
				}
				for name, want := range now {
					if got := w.read(name); got != want {
						t.Errorf("%s: %s holds %q, want %q: %s", what, name, got, want, r)
					}
				}
				switch {
				case r.code == 0 || r.code == 1:
				case r.code != 3 || strings.Contains(r.errs, "goroutine "):
					t.Errorf("%s: %s", what, r)
				case !strings.Contains(r.errs, name) && !strings.Contains(r.errs, ".next"):
					t.Errorf("%s: the file is not named: %s", what, r)
				case !wayOut(r.errs):
					t.Errorf("%s: no way out: %s", what, r)
				}
				if s.args[0] == "receipts" && strings.Contains(file, "/receipts/") && r.code == 0 {
					t.Errorf("%s: the receipts verify: %s", what, r)
				}
			}
		}
	}
}

// wayOut tells whether an error says what to do with a file.
func wayOut(said string) bool {
	for _, s := range []string{"move it away", "remove it", "remove this one", "move the one or the other away", "mend", "chmod 600", "asp receipts verify"} {
		if strings.Contains(said, s) {
			return true
		}
	}
	return false
}

// TestNoStateDirectory: a state directory that cannot be made or trusted ends every command
// before it begins, and the message says what to set or to change.
func TestNoStateDirectory(t *testing.T) {
	w := newWorld(t, map[string]string{"a": "a\n"})
	w.broken = true
	w.mkdir(filepath.Join(w.base, "open"))
	must(t, os.Chmod(filepath.Join(w.base, "open"), 0o777))
	w.mkdir(filepath.Join(w.base, "shut"))
	must(t, os.Chmod(filepath.Join(w.base, "shut"), 0o555))
	for at, next := range map[string]string{
		"state":                             "must be an absolute path",
		w.path("a"):                         "set ASP_HOME to a directory",
		w.path("a/below"):                   "set ASP_HOME to a directory",
		w.path("inside/deep"):               "set ASP_HOME to a directory outside",
		filepath.Join(w.base, "open"):       "chmod 700 it",
		filepath.Join(w.base, "open/below"): "set ASP_HOME to another directory",
		filepath.Join(w.base, "shut/below"): "set ASP_HOME to a directory",
	} {
		if w.cred == nil && strings.Contains(at, "/shut/") && os.Geteuid() == 0 {
			continue
		}
		w.asp = at
		m := w.list()
		for _, c := range []string{"status", "doctor"} {
			r := w.run(c, "--json")
			if r.code != 3 || !strings.Contains(r.errs, next) || !strings.Contains(r.str("error", "message"), next) {
				t.Errorf("%s: want %q: %s", at, next, r)
			}
		}
		if d := m.diff(w.list(), map[string]bool{"repo": true}); len(d) > 0 { // but for the time of what was made and taken away
			t.Errorf("%s: %q", at, d)
		}
	}
}
