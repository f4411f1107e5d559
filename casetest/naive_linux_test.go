package casetest

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// A sweep that finds nothing says something only if it would have found
// something. So both sweeps also go over a program that applies a plan as one
// would without having thought about it, and there they have to find torn states.

const naiveWord = "casetest-naive"

// The two ways to be naive.
const (
	inPlaceAnyhow = "in-place" // writes in place, ignores errors, says applied
	byRenameStops = "rename"   // writes beside and renames, stops at the first error
)

// naiveMain takes the arguments of the binary, as far as the sweeps give them.
func naiveMain(args []string) int {
	style, args := args[0], args[1:]
	switch {
	case args[0] == "recover":
		fmt.Println(`{"recovered":[]}`) // it has nothing to recover by
		return 0
	case args[0] != "apply" || len(args) < 3:
		return 2
	}
	err := naiveApply(args[2], style)
	if err != nil && style == byRenameStops {
		fmt.Fprintln(os.Stderr, err)
		fmt.Println(`{"applied":false}`)
		return 3
	}
	fmt.Println(`{"applied":true}`)
	return 0
}

func naiveApply(file, style string) error {
	b, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var plan struct {
		Blobs    []struct{ Encoding, Bytes string }
		Proposal struct {
			WorkspaceEdit struct {
				DocumentChanges []struct{ Kind, Path, To, After string }
			}
		}
	}
	if err := json.Unmarshal(b, &plan); err != nil {
		return err
	}
	blobs := map[string]string{}
	for _, x := range plan.Blobs {
		data := x.Bytes
		if x.Encoding == "base64" {
			raw, err := base64.StdEncoding.DecodeString(data)
			if err != nil {
				return err
			}
			data = string(raw)
		}
		blobs[digest(data)] = data
	}
	var all error
	for _, op := range plan.Proposal.WorkspaceEdit.DocumentChanges {
		var err error
		switch op.Kind {
		case "delete":
			err = os.Remove(op.Path)
		case "rename":
			if err = naiveParent(op.To); err == nil {
				err = os.Rename(op.Path, op.To)
			}
		default:
			if err = naiveParent(op.Path); err == nil {
				err = naiveWrite(op.Path, blobs[op.After], style)
			}
		}
		if err != nil && style == byRenameStops {
			return err
		}
		all = errors.Join(all, err)
	}
	return all
}

func naiveParent(path string) error { return os.MkdirAll(filepath.Dir(path), 0o755) }

func naiveWrite(path, data, style string) error {
	if style == inPlaceAnyhow {
		return os.WriteFile(path, []byte(data), 0o644)
	}
	mode := os.FileMode(0o644)
	if st, err := os.Stat(path); err == nil {
		mode = st.Mode().Perm()
	}
	// Outside of the workspace, so that what is torn there is the workspace itself.
	beside := filepath.Join(os.TempDir(), strings.ReplaceAll(path, "/", "-"))
	if err := os.WriteFile(beside, []byte(data), mode); err != nil {
		return err
	}
	return os.Rename(beside, path)
}

// TestSweepsCatchNaive: the kill sweep and the error sweep, with the judges that
// the binary has, over the naive ways of applying the same plan.
func TestSweepsCatchNaive(t *testing.T) {
	const (
		half  = "is neither old nor new"
		mix   = "a mix was left"
		early = "the answer says applied, and the workspace is"
		undid = "the answer says not applied, and the workspace is"
	)
	for _, c := range []struct {
		style          string
		killed, failed []string // what is found, each at least once
		whole          bool     // no file is ever half written
	}{
		{inPlaceAnyhow, []string{half, mix}, []string{early}, false},
		// Its files are whole, so what the sweep finds is that the tree is not.
		{byRenameStops, []string{mix}, []string{undid, mix}, true},
	} {
		t.Run(c.style, func(t *testing.T) {
			t.Parallel()
			m := crashModes()[0]
			m.prepare = func(w *world, _ string) { // the plan is made by the binary
				self, err := os.Executable()
				must(w.t, err)
				w.program, w.broken = []string{self, naiveWord, c.style}, true
			}
			w, keep, args := m.world(t, asRoot)
			whole := w.killedAt(0, args...)
			if now := w.things(); whole.code != 0 || !now.equal(m.new) {
				t.Fatalf("undisturbed it does not even apply the plan: %s: %v", whole.result, now)
			}
			killed, failed := finds{}, finds{}
			killSweep(w, m, keep, args, whole, 3, killed.judge(w))
			failSweep(w, m, keep, args, whole, 0, failed.judge(w))
			for _, want := range c.killed {
				if killed.count(want) == 0 {
					t.Errorf("the kill sweep does not find that %s: %q", want, killed)
				}
			}
			for _, want := range c.failed {
				if failed.count(want) == 0 {
					t.Errorf("the error sweep does not find that %s: %q", want, failed)
				}
			}
			if n := killed.count(half); c.whole && n > 0 {
				t.Errorf("the kill sweep finds at %d points what cannot be: %q", n, killed)
			}
			t.Logf("points with something torn: %d of %d by kills, %d of %d by errors",
				killed.count(half, mix), len(killed), failed.count(half, mix, early, undid), len(failed))
		})
	}
}

// finds are the points of a sweep, with what was found wrong at each.
type finds map[string][]string

// judge takes notes where the test of the binary would fail.
func (f finds) judge(w *world) judged {
	return func(point, _ string, check func(w *world)) {
		n := &notes{TB: w.t}
		done := make(chan struct{})
		go func() { // a fatal finding ends the goroutine of the test that has it
			defer close(done)
			check(w.as(n))
		}()
		<-done
		f[point] = n.found
	}
}

// count is at how many points one of these was found.
func (f finds) count(what ...string) int {
	n := 0
	for _, found := range f {
		for _, x := range what {
			if strings.Contains(strings.Join(found, "\n"), x) {
				n++
				break
			}
		}
	}
	return n
}

// notes is a test that fails on paper only.
type notes struct {
	testing.TB
	found []string
}

func (n *notes) Helper()                      {}
func (n *notes) Failed() bool                 { return len(n.found) > 0 }
func (n *notes) Error(args ...any)            { n.found = append(n.found, fmt.Sprint(args...)) }
func (n *notes) Errorf(f string, args ...any) { n.Error(fmt.Sprintf(f, args...)) }
func (n *notes) Fatal(args ...any)            { n.Error(args...); runtime.Goexit() }
func (n *notes) Fatalf(f string, args ...any) { n.Fatal(fmt.Sprintf(f, args...)) }
