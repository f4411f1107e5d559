package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
)

// obj is a JSON object that is being built.
type obj = map[string]any

// talk is a conversation of JSON lines with a program that was started here: a
// host, or a provider directly. One goroutine uses it.
type talk struct {
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  *bufio.Reader
	errs strings.Builder
	n    int
	// serve answers what the other side asks; nil: it has nothing to ask.
	serve func(method string, params json.RawMessage) (any, error)
}

// talkTo starts a program. The caller ends it with end.
func talkTo(dir string, env []string, argv ...string) (*talk, error) {
	t := &talk{cmd: exec.Command(argv[0], argv[1:]...)}
	t.cmd.Dir, t.cmd.Env, t.cmd.Stderr = dir, append(os.Environ(), env...), &t.errs
	in, err := t.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := t.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	t.in, t.out = in, bufio.NewReaderSize(out, 64<<10)
	return t, t.cmd.Start()
}

// end ends its input and waits for it.
func (t *talk) end() error {
	t.in.Close()
	_, _ = io.Copy(io.Discard, t.out)
	if err := t.cmd.Wait(); err != nil {
		return fmt.Errorf("%q: %w: %.300s", t.cmd.Args, err, t.errs.String())
	}
	return nil
}

func (t *talk) send(m obj) error {
	m["jsonrpc"] = "2.0"
	b, err := json.Marshal(m)
	if err != nil {
		return err
	}
	_, err = t.in.Write(append(b, '\n'))
	return err
}

func (t *talk) notify(method string, params any) error {
	return t.send(obj{"method": method, "params": params})
}

// call asks, and serves the other side until the answer is there.
func (t *talk) call(method string, params any) (json.RawMessage, error) {
	t.n++
	if err := t.send(obj{"id": t.n, "method": method, "params": params}); err != nil {
		return nil, fmt.Errorf("%s: %w", method, err)
	}
	for {
		line, err := t.out.ReadBytes('\n')
		if err != nil {
			return nil, fmt.Errorf("%s: %w: %.300s", method, err, t.errs.String())
		}
		var m struct {
			ID             json.RawMessage
			Method         string
			Params, Result json.RawMessage
			Error          json.RawMessage
		}
		if err := json.Unmarshal(line, &m); err != nil {
			return nil, fmt.Errorf("%s: %w", method, err)
		}
		switch {
		case m.Method != "" && m.ID != nil:
			if t.serve == nil {
				return nil, fmt.Errorf("%s: asked for %s in return", method, m.Method)
			}
			r, err := t.serve(m.Method, m.Params)
			if err != nil {
				return nil, fmt.Errorf("%s: %s: %w", method, m.Method, err)
			}
			if err := t.send(obj{"id": m.ID, "result": r}); err != nil {
				return nil, err
			}
		case m.Method != "": // a notification
		case m.Error != nil:
			return nil, fmt.Errorf("%s: %.500s", method, m.Error)
		default:
			return m.Result, nil
		}
	}
}

// pick reads one member of an answer by its way.
func pick(answer json.RawMessage, way ...string) (json.RawMessage, error) {
	for _, k := range way {
		var m map[string]json.RawMessage
		if err := json.Unmarshal(answer, &m); err != nil {
			return nil, err
		}
		if answer = m[k]; answer == nil {
			return nil, errors.New("an answer without " + strings.Join(way, "."))
		}
	}
	return answer, nil
}

// is holds one member of an answer against what it has to be.
func is(answer json.RawMessage, want string, way ...string) error {
	got, err := pick(answer, way...)
	if err == nil && string(got) != want {
		err = fmt.Errorf("%s is %.200s, not %s: %.600s", strings.Join(way, "."), got, want, answer)
	}
	return err
}
