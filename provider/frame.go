package provider

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/aspengine/asp/internal/canon"
	"github.com/aspengine/asp/seam/wire"
)

// frames reads lines of bounded length.
type frames struct {
	r     *bufio.Reader
	limit int
}

// errTooLong is a line over the limit, which was skipped to its end.
var errTooLong = errors.New("line too long")

// next returns the next line that is not blank, without its end. The bytes are
// the caller's. io.EOF also when the last line has no end: half a message is
// none.
func (f *frames) next() ([]byte, error) {
	for {
		line, err := f.line()
		if err != nil {
			return nil, err
		}
		line = bytes.TrimSuffix(line, []byte("\r"))
		if len(bytes.TrimLeft(line, " \t\r")) > 0 {
			return line, nil
		}
	}
}

func (f *frames) line() ([]byte, error) {
	var line []byte
	long := false
	for {
		part, err := f.r.ReadSlice('\n')
		if !long && len(line)+len(part) > f.limit+2 {
			line, long = nil, true
		}
		if !long {
			line = append(line, part...)
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case err != nil:
			return nil, err
		case long || len(line) > f.limit+1:
			return nil, errTooLong
		}
		return line[:len(line)-1], nil
	}
}

// envelope is one message of JSON-RPC 2.0.
type envelope struct {
	id             canon.Value // no value for a notification
	method         string      // "" for an answer
	params         canon.Value
	result, failed canon.Value
}

// key names an id in a table. Numbers and strings never collide.
func key(id canon.Value) string { return string(id.Bytes()) }

// open reads the envelope. Everything but the payload is held to its shape here.
func open(v canon.Value) (envelope, error) {
	var e envelope
	if v.Kind() != canon.Object {
		return e, fmt.Errorf("a message is an object, not %s", v.Kind())
	}
	version := ""
	for k, m := range v.Members() {
		switch k {
		case "jsonrpc":
			version = m.Str()
		case "id":
			_, whole := m.Int()
			if m.Kind() != canon.String && !whole && m.Kind() != canon.Null {
				return e, errors.New("an id is a string or a plain integer")
			}
			e.id = m
		case "method":
			if e.method = m.Str(); m.Kind() != canon.String || e.method == "" {
				return e, errors.New("method is no string")
			}
		case "params":
			if m.Kind() != canon.Object {
				return e, errors.New("params is no object")
			}
			e.params = m
		case "result":
			e.result = m
		case "error":
			e.failed = m
		default:
			return e, fmt.Errorf("unknown member %.60q", k)
		}
	}
	answers := 0
	for _, m := range []canon.Value{e.result, e.failed} {
		if m.Kind() != canon.Invalid {
			answers++
		}
	}
	switch {
	case version != "2.0":
		return e, errors.New("jsonrpc is not 2.0")
	case e.method != "" && answers > 0, e.method == "" && answers != 1:
		return e, errors.New("a message has a method, or one of result and error")
	case e.method == "" && (e.id.Kind() == canon.Invalid || e.params.Kind() != canon.Invalid):
		return e, errors.New("an answer has an id and no params")
	case e.method != "" && e.id.Kind() == canon.Null:
		return e, errors.New("the id of a request is not null")
	}
	return e, nil
}

func member(k string, v canon.Value) canon.Member { return canon.Member{Key: k, Value: v} }

var jsonrpc = member("jsonrpc", canon.StringOf("2.0"))

func requestMessage(id canon.Value, method string, params canon.Value) canon.Value {
	m := []canon.Member{jsonrpc}
	if id.Kind() != canon.Invalid {
		m = append(m, member("id", id))
	}
	return canon.ObjectOf(append(m, member("method", canon.StringOf(method)), member("params", params))...)
}

func resultMessage(id, result canon.Value) canon.Value {
	return canon.ObjectOf(jsonrpc, member("id", id), member("result", result))
}

func errorMessage(id canon.Value, e *Error) canon.Value {
	if id.Kind() == canon.Invalid {
		id = canon.NullOf()
	}
	e = bounded(e)
	v, err := canon.From(e)
	if err != nil { // foreign bytes in the text
		v, _ = canon.From(wire.NewError(wire.CodeInternal, wire.FailHealth, "an error whose text is not valid UTF-8", ""))
	}
	return canon.ObjectOf(jsonrpc, member("id", id), member("error", v))
}

// bounded cuts the text of an error and gives it a class.
func bounded(e *Error) *Error {
	out := &Error{Code: e.Code, Message: cut(e.Message, 2000), Data: e.Data}
	if e.Data == nil {
		out.Data = &wire.ErrorData{FailClass: wire.FailContract}
	} else if d := *e.Data; len(d.Detail) > 4000 {
		d.Detail = cut(d.Detail, 4000)
		out.Data = &d
	}
	return out
}

// writeLine sends one message, in one write, if it is within the limit.
func writeLine(w io.Writer, v canon.Value, limit int) error {
	b := v.Bytes()
	if len(b) > limit {
		return errTooLong
	}
	_, err := w.Write(append(b, '\n'))
	return err
}
