package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// checkTime is what the check of the rows below takes, of a processor.
const checkTime = 200 * time.Millisecond

// waitingRows let clients apply to one workspace whose every apply has to pass a check:
// one client, and several, whose plans are checked while they wait.
func (c *config) waitingRows(ctx context.Context) error {
	const clients, each = 8, 2
	self, err := os.Executable()
	if err != nil {
		return err
	}
	check := []string{self, "-burn", checkTime.String()}
	var cs []contender
	var used [2]meter // of the host and what it started
	for k, n := range []int{1, clients} {
		r, err := newRepo(filepath.Join(c.mem, fmt.Sprint("waiting-", n)), 1000)
		if err != nil {
			return err
		}
		defer os.RemoveAll(filepath.Dir(r.dir))
		b, err := json.Marshal(obj{
			"checks":  obj{"burn": obj{"argv": check, "required": true, "callSites": []string{"interactive"}}},
			"sandbox": obj{"read": []string{self}},
		})
		if err != nil {
			return err
		}
		if err := os.MkdirAll(r.home, 0o700); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(r.home, "config.json"), b, 0o600); err != nil {
			return err
		}
		socket := filepath.Join(c.mem, fmt.Sprint("waiting-", n, ".sock"))
		h, err := c.serve(ctx, r, "--socket", socket)
		if err != nil {
			return err
		}
		defer h.close()
		hs := make([]*hostClient, n)
		for i := range hs {
			if hs[i], err = dial(ctx, r, socket); err != nil {
				return err
			}
			defer hs[i].conn.Close()
			hs[i].id = i * 1_000_000
			if _, err := hs[i].status(); err != nil {
				return err
			}
		}
		last := time.Duration(0)
		cpu := func() error {
			now := cpuTimeOfAll(h.cmd.Process.Pid)
			used[k].took, last = append(used[k].took, now-last), now
			return nil
		}
		times := clients * each / n
		cs = append(cs, contender{after: cpu, run: func() error {
			return together(n, func(i int) error {
				for range times {
					if err := hs[i].applyOne(r.files[i]); err != nil {
						return err
					}
				}
				return nil
			})
		}})
	}
	var left atomic.Int64
	bare := contender{
		before: func() error { left.Store(clients * each); return nil },
		run: func() error {
			return together(runtime.GOMAXPROCS(0), func(int) error {
				for left.Add(-1) >= 0 {
					if err := exec.CommandContext(ctx, check[0], check[1:]...).Run(); err != nil {
						return err
					}
				}
				return nil
			})
		},
	}
	t, err := race(ctx, min(c.runs, 7), append(cs, bare)...)
	if err != nil {
		return err
	}
	const all = clients * each
	cores := runtime.GOMAXPROCS(0)
	c.out.add(row{Group: "resident", What: fmt.Sprintf("apply of 1 change with a check of %d ms of a processor, 1 client, each", checkTime.Milliseconds()), Where: c.memType, Unit: "ms", Ours: t[0] / all})
	c.out.add(row{Group: "resident", What: fmt.Sprintf("… %d clients, %d processors, each", clients, cores), Where: c.memType, Unit: "ms", Ours: t[1] / all, Peer: t[0] / all, PeerIs: "1 client",
		Floor: t[2] / all, FloorIs: "the checks alone, one on each processor"}, limit{1 / (0.85 * float64(cores)), "peer"})
	c.out.add(row{Group: "resident", What: fmt.Sprintf("… processor time in all, %d clients, each", clients), Where: c.memType, Unit: "ms", Ours: used[1].median() / all, Peer: used[0].median() / all, PeerIs: "1 client"})
	return nil
}

// together runs f for each number below n at once, and returns one of the errors.
func together(n int, f func(i int) error) error {
	errs := make(chan error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { errs <- f(i) })
	}
	wg.Wait()
	for range n {
		if err := <-errs; err != nil {
			return err
		}
	}
	return nil
}
