package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/aspengine/asp/editplan"
	"github.com/aspengine/asp/snapshot"
)

// memoryRows reads the highest resident set of the process itself, from the
// kernel while it runs: the number that wait reports would hold this program's
// own pages, from before the exec.
func (c *config) memoryRows(ctx context.Context) error {
	r, err := newRepo(filepath.Join(c.mem, "memory"), c.big)
	if err != nil {
		return err
	}
	defer os.RemoveAll(filepath.Dir(r.dir))
	ch, err := r.change(100)
	if err != nil {
		return err
	}
	const goal = 80 << 20
	for _, m := range []struct {
		what string
		args []string
	}{
		{"status", []string{"status"}},
		{"status without any state yet", []string{"status"}},
		{"apply of 100 changes", []string{"apply", "--patch", ch.patch}},
	} {
		if strings.Contains(m.what, "without") {
			if err := os.RemoveAll(r.home); err != nil {
				return err
			}
		}
		peak, err := peakOf(ctx, r, c.asp, m.args...)
		if err != nil {
			return err
		}
		c.out.most(row{Group: "memory", What: fmt.Sprintf("highest RSS, %s, %d files", m.what, c.big), Where: c.memType, Unit: "B", Ours: float64(peak), Runs: 1}, goal)
	}
	return c.hugeRow(ctx)
}

// hugeRow replaces one file by a small one, first a file of 1 MiB and then a
// huge one: the memory must not follow the size of the pre-image.
func (c *config) hugeRow(ctx context.Context) error {
	var peaks []float64
	for _, size := range []int64{1 << 20, c.huge} {
		r, err := newRepo(filepath.Join(c.mem, "huge"), 10)
		if err != nil {
			return err
		}
		name := filepath.Join(r.dir, "huge.bin")
		if err := fill(name, size); err != nil {
			return err
		}
		d, err := digestOf(name)
		if err != nil {
			return err
		}
		b, err := output(r.dir, "env", "ASP_HOME="+r.home, c.asp, "status", "--json")
		if err != nil {
			return err
		}
		base, err := baselineOf(b)
		if err != nil {
			return err
		}
		f, err := editplan.NewPlan(editplan.Source{Baseline: base, Provider: editplan.Provider{ID: "bench", Version: "1"}},
			[]editplan.Draft{{Kind: editplan.Modify, Path: "huge.bin", Expected: d, Content: []byte("small\n"), HasContent: true}})
		if err != nil {
			return err
		}
		plan, err := f.Encode()
		if err != nil {
			return err
		}
		file := filepath.Join(filepath.Dir(r.dir), "plan.json")
		if err := os.WriteFile(file, plan, 0o644); err != nil {
			return err
		}
		peak, err := peakOf(ctx, r, c.asp, "apply", "--json", "--plan", file)
		if err != nil {
			return err
		}
		if fi, err := os.Stat(name); err != nil || fi.Size() != 6 {
			return fmt.Errorf("the file was not replaced: %v", err)
		}
		peaks = append(peaks, float64(peak))
		if err := os.RemoveAll(filepath.Dir(r.dir)); err != nil {
			return err
		}
	}
	c.out.add(row{Group: "memory", What: fmt.Sprintf("highest RSS, a file of %s replaced", number(float64(c.huge), "B")), Where: c.memType, Unit: "B", Ours: peaks[1], Peer: peaks[0], PeerIs: "1 MiB replaced", Runs: 1}, limit{1.5, "peer"})
	return nil
}

func fill(name string, size int64) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	defer f.Close()
	block := make([]byte, 1<<20)
	for i := range block {
		block[i] = byte(i * 7)
	}
	for n := int64(0); n < size; n += int64(len(block)) {
		if _, err := f.Write(block[:min(int64(len(block)), size-n)]); err != nil {
			return err
		}
	}
	return nil
}

// digestOf reads a file in pieces.
func digestOf(name string) (snapshot.Digest, error) {
	out, err := output("", "sha256sum", name)
	if err != nil {
		return snapshot.Digest{}, err
	}
	return snapshot.ParseBlob(snapshot.BlobPrefix + strings.Fields(strings.TrimPrefix(string(out), `\`))[0])
}

// peakOf runs a command and returns the highest resident set seen.
func peakOf(ctx context.Context, r *repo, program string, args ...string) (int64, error) {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir, cmd.Env = r.dir, append(os.Environ(), r.env()...)
	var errs strings.Builder
	cmd.Stderr = &errs
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	var peak int64
	for {
		if n := highWater(cmd.Process.Pid, filepath.Base(program)); n > peak {
			peak = n
		}
		select {
		case err := <-done:
			if err != nil {
				err = fmt.Errorf("%s %q: %w: %.300s", program, args, err, errs.String())
			}
			return peak, err
		case <-time.After(500 * time.Microsecond):
		}
	}
}

// highWater reads VmHWM, 0 before the exec and after the end.
func highWater(pid int, name string) int64 {
	f, err := os.Open(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		k, v, _ := strings.Cut(s.Text(), ":")
		switch k {
		case "Name":
			if strings.TrimSpace(v) != name {
				return 0
			}
		case "VmHWM":
			n, _ := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(v), " kB"), 10, 64)
			return n << 10
		}
	}
	return 0
}

// baselineOf reads the baseline from the answer of asp status --json.
func baselineOf(b []byte) (snapshot.Baseline, error) {
	var s struct {
		Workspace struct {
			Baseline struct{ Rev, Dirty string }
		}
	}
	err := json.Unmarshal(b, &s)
	return snapshot.Baseline{Rev: s.Workspace.Baseline.Rev, Dirty: s.Workspace.Baseline.Dirty}, err
}
