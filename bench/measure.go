package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"time"
)

// contender is one way to do the same thing. before and after are not timed.
type contender struct {
	before func() error
	run    func() error
	after  func() error
}

// race lets the contenders take turns, each round in another order, after one
// round that is thrown away, and returns their median times in milliseconds.
func race(ctx context.Context, runs int, cs ...contender) ([]float64, error) {
	took := make([][]time.Duration, len(cs))
	for round := range runs + 1 {
		for k := range cs {
			i := (k + round) % len(cs)
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			if cs[i].before != nil {
				if err := cs[i].before(); err != nil {
					return nil, err
				}
			}
			began := time.Now()
			err := cs[i].run()
			d := time.Since(began)
			if err == nil && cs[i].after != nil {
				err = cs[i].after()
			}
			if err != nil {
				return nil, err
			}
			if round > 0 {
				took[i] = append(took[i], d)
			}
		}
	}
	out := make([]float64, len(cs))
	for i, t := range took {
		slices.Sort(t)
		out[i] = ms(t[len(t)/2])
	}
	return out, nil
}

// command runs a program and wants exit status 0. Output is thrown away.
func command(dir string, env []string, argv ...string) func() error {
	return metered(nil, dir, env, argv...)
}

// meter collects the processor time of a program's runs: unlike the time on the
// wall it hardly depends on what else the machine does.
type meter struct{ took []time.Duration }

func (m *meter) median() float64 {
	slices.Sort(m.took)
	return ms(m.took[len(m.took)/2])
}

// metered is command with a meter, which may be nil.
func metered(m *meter, dir string, env []string, argv ...string) func() error {
	return func() error {
		cmd := exec.Command(argv[0], argv[1:]...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), env...)
		var errs bytes.Buffer
		cmd.Stderr = &errs
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("%q: %w: %.300s", argv, err, errs.String())
		}
		if m != nil {
			m.took = append(m.took, cmd.ProcessState.UserTime()+cmd.ProcessState.SystemTime())
		}
		return nil
	}
}

func output(dir string, argv ...string) ([]byte, error) {
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir = dir
	b, err := cmd.Output()
	var ee *exec.ExitError
	if errors.As(err, &ee) {
		return nil, fmt.Errorf("%q: %w: %.300s", argv, err, ee.Stderr)
	}
	return b, err
}

// chain runs several steps.
func chain(fs ...func() error) func() error {
	return func() error {
		for _, f := range fs {
			if err := f(); err != nil {
				return err
			}
		}
		return nil
	}
}
