package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"
)

// interrupts makes the first SIGINT, SIGTERM or SIGHUP cancel the context, which
// every command honours as long as nothing is decided, and then puts back what it
// began. One that comes after that was told, a second later, ends the process at once
// with the status of what could not be done: like a kill, after which recovery puts
// back. Before, it is taken for the same wish: timeout(1) signals a process and then
// its group, so that a program hears it twice. A signal that the process was started to
// ignore (nohup, a job in the background of a script) stays ignored.
// Programs that are started get none of this.
//
// A closed pipe ends no command either: its write fails like any other.
//
// stop ends all that, and waits for it.
func interrupts(stderr *ui) (ctx context.Context, cancel context.CancelFunc, stop func()) {
	ctx, cancel = context.WithCancel(context.Background())
	var heard []os.Signal
	for _, s := range []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
		if !signal.Ignored(s) {
			heard = append(heard, s)
		}
	}
	pipe, sig := make(chan os.Signal, 1), make(chan os.Signal, 2)
	signal.Notify(pipe, syscall.SIGPIPE)
	if len(heard) > 0 { // no list means every signal
		signal.Notify(sig, heard...)
	}
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		select {
		case <-sig:
			cancel()
		case <-done:
			return
		}
		patience := time.NewTimer(time.Second)
		defer patience.Stop()
		for told := false; ; {
			select {
			case <-patience.C:
				told = true
				stderr.errorf("putting back what was begun; interrupt again to end at once and leave that to `asp recover`")
			case <-sig:
				if !told {
					continue
				}
				stderr.errorf("ended at once; `asp recover` puts back what was begun")
				os.Exit(exitError)
			case <-done:
				return
			}
		}
	})
	var once sync.Once
	return ctx, cancel, func() {
		once.Do(func() {
			signal.Stop(sig)
			signal.Stop(pipe)
			close(done)
		})
		wg.Wait()
		cancel()
	}
}

// answerWriter remembers that a part of the answer was lost, and cancels then: what
// was to be seen before a write and could not be shown stops the write. After it,
// nothing is left to cancel.
type answerWriter struct {
	w      io.Writer
	err    error
	cancel context.CancelFunc
}

func (a *answerWriter) Write(p []byte) (int, error) {
	n, err := a.w.Write(p)
	if err != nil && a.err == nil {
		a.err = err
		a.cancel()
	}
	return n, err
}

// readAll is the input to its end, or an error when ctx ends first: a terminal or a
// pipe may never come to an end. The read that waits then ends with the process.
func readAll(ctx context.Context, read func() ([]byte, error)) ([]byte, error) {
	type got struct {
		b   []byte
		err error
	}
	ch := make(chan got, 1)
	go func() {
		b, err := read()
		ch <- got{b, err}
	}()
	select {
	case g := <-ch:
		return g.b, g.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}
