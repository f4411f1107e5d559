package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestElsewhere tries the answers on a system for which the engine has no form: what
// would touch a workspace or the state directory ends with a status, a reason and a
// next step, and what needs neither works.
func TestElsewhere(t *testing.T) {
	dir := t.TempDir()
	call := func(args ...string) (int, string, string) {
		var out, errs bytes.Buffer
		e := &env{stdin: strings.NewReader(""), stdout: &out, stderr: &errs, dir: dir, now: time.Now, ui: &ui{err: &errs, width: 80},
			platform: &platformError{"plan9/amd64"},
			getenv: func(k string) string {
				if k == "HOME" {
					return dir
				}
				return ""
			}}
		return dispatch(t.Context(), e, args), out.String(), errs.String()
	}
	for _, args := range [][]string{
		{"apply", "--patch", "-"}, {"plan", "--patch", "-"}, {"publish", "x"}, {"undo", "rcpt-x"}, {"status"}, {"doctor"}, {"recover"},
		{"receipts", "list"}, {"check", "--changed"}, {"ci", "verify", "--changed-from", "HEAD"}, {"policy", "show"}, {"server", "list"}, {"repo", "add", "."},
	} {
		code, out, errs := call(args...)
		if code != exitError || out != "" || !strings.Contains(errs, "plan9/amd64") || !strings.Contains(errs, "run it on Linux") {
			t.Errorf("%v: exit %d, %q, %q", args, code, out, errs)
		}
		code, out, _ = call(append(args, "--json")...)
		var a struct {
			Error struct {
				Code int
				Data struct{ Retryable *bool }
			}
		}
		if err := json.Unmarshal([]byte(out), &a); err != nil || code != exitError || a.Error.Code != -32010 || a.Error.Data.Retryable == nil || *a.Error.Data.Retryable {
			t.Errorf("%v --json: exit %d, %s", args, code, out)
		}
	}
	if names, err := os.ReadDir(dir); err != nil || len(names) > 0 {
		t.Errorf("something was made in %s: %v, %v", filepath.Base(dir), names, err)
	}
	for _, args := range [][]string{{"--help"}, {"apply", "--help"}, {"--version"}, {"schema"}, {"schema", "edit-plan"}, {"provider"}} {
		if code, out, errs := call(args...); code != exitOK || out == "" {
			t.Errorf("%v: exit %d, %s", args, code, errs)
		}
	}
}
