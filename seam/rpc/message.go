package rpc

import (
	"fmt"
	"unicode/utf8"

	"github.com/aspengine/asp/internal/canon"
	"github.com/aspengine/asp/seam/wire"
)

type kind uint8

const (
	invalid kind = iota
	request
	notification
	response
)

// message is one line in either direction.
type message struct {
	kind   kind
	id     canon.Value // not in a notification; null in an error answer to nobody
	method string
	params canon.Value // no value when absent
	result canon.Value
	err    *wire.Error // instead of a result
	raw    int64       // bytes of the line it came in
}

// violation is what is wrong with a line that came.
type violation struct {
	code   int
	reason string
	id     canon.Value // of the request that the line is, where that can be told; else null
}

const (
	cancelMethod   = "$/cancelRequest"
	progressMethod = "$/progress"
)

// parse reads the value and the envelope of one line. The value is returned even
// where the envelope is refused.
func parse(line []byte, limit int64) (message, canon.Value, *violation) {
	v, err := canon.Parse(line, canon.Limits{Bytes: int(limit), Values: max(canon.DefaultValues, int(limit/8))})
	if err != nil {
		return message{}, v, &violation{wire.CodeParse, err.Error(), canon.NullOf()}
	}
	m, bad := envelope(v)
	m.raw = int64(len(line))
	return m, v, bad
}

// envelope applies JSON-RPC 2.0 as a closed shape.
func envelope(v canon.Value) (m message, bad *violation) {
	id := canon.NullOf()
	refuse := func(format string, a ...any) (message, *violation) {
		return message{}, &violation{wire.CodeInvalidRequest, fmt.Sprintf(format, a...), id}
	}
	if v.Kind() == canon.Array {
		return refuse("an array is no message; batches are not part of the protocol")
	}
	if v.Kind() != canon.Object {
		return refuse("a message is an object, not %s", v.Kind())
	}
	method, isRequest := v.Get("method")
	given, hasID := v.Get("id")
	if isRequest && hasID && goodID(given) {
		id = given
	}
	if word, ok := v.Get("jsonrpc"); !ok || word.Kind() != canon.String || word.Str() != "2.0" {
		return refuse(`member jsonrpc must be "2.0"`)
	}
	allowed := []string{"jsonrpc", "id", "result", "error"}
	if isRequest {
		allowed = []string{"jsonrpc", "id", "method", "params"}
	}
	for k := range v.Members() {
		if !contains(allowed, k) {
			return refuse("unknown member %s", canon.KeyStep(cut(k, 100)))
		}
	}
	if !isRequest {
		return answerEnvelope(v, given, hasID, refuse)
	}
	m = message{kind: request, method: method.Str(), id: given}
	m.params, _ = v.Get("params")
	switch k := m.params.Kind(); {
	case method.Kind() != canon.String || m.method == "":
		return refuse("method must be a string that is not empty")
	case len(m.method) > maxMethodBytes:
		return refuse("method of %d bytes; at most %d", len(m.method), maxMethodBytes)
	case hasID && !goodID(given):
		return refuse("id must be a string of at most %d bytes or a plain integer", maxIDBytes)
	case k != canon.Invalid && k != canon.Object && k != canon.Array:
		return refuse("params must be an object, not %s; leave them out where there are none", k)
	}
	if !hasID {
		m.kind = notification
	}
	return m, nil
}

func answerEnvelope(v, id canon.Value, hasID bool, refuse func(string, ...any) (message, *violation)) (message, *violation) {
	result, hasResult := v.Get("result")
	e, hasError := v.Get("error")
	switch {
	case hasResult == hasError:
		return refuse("neither a request nor an answer: one of method, result and error is needed")
	case !hasID, !goodID(id) && id.Kind() != canon.Null:
		return refuse("an answer needs the id of its request")
	case hasResult:
		return message{kind: response, id: id, result: result}, nil
	}
	err, reason := foreignError(e)
	if reason != "" {
		return refuse("%s", reason)
	}
	return message{kind: response, id: id, err: err}, nil
}

// foreignError reads an error of the peer. Its code and message have to be
// there; data outside the shape of the protocol counts as class contract
// (contract, section 6) and is kept as text.
func foreignError(v canon.Value) (*wire.Error, string) {
	code, _ := v.Get("code")
	text, _ := v.Get("message")
	n, ok := code.Int()
	if !ok || text.Kind() != canon.String {
		return nil, "an error needs an integer code and a message"
	}
	e := &wire.Error{Code: int(n), Message: cut(text.Str(), maxErrorText)}
	contract := func(why string) (*wire.Error, string) {
		e.Data = &wire.ErrorData{FailClass: wire.FailContract, Detail: cut(why, maxErrorText)}
		return e, ""
	}
	for k := range v.Members() {
		if !contains([]string{"code", "message", "data"}, k) {
			return contract("the error has an unknown member " + canon.KeyStep(cut(k, 100)))
		}
	}
	data, ok := v.Get("data")
	if !ok {
		return contract("the error has no data, so no failClass")
	}
	var d wire.ErrorData
	if err := wire.Decode(data, &d); err != nil {
		return contract(err.Error())
	}
	d.Detail = cut(d.Detail, maxErrorText)
	e.Data = &d
	return e, ""
}

// maxErrorText bounds each text of an error that a peer sent.
const maxErrorText = 4096

func goodID(v canon.Value) bool {
	if v.Kind() == canon.String {
		return len(v.Str()) <= maxIDBytes
	}
	_, ok := v.Int()
	return ok
}

func contains(words []string, w string) bool {
	for _, x := range words {
		if x == w {
			return true
		}
	}
	return false
}

// cut shortens s to at most n bytes, between two characters.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

// value is the message as it goes out.
func (m message) value() canon.Value {
	out := []canon.Member{{Key: "jsonrpc", Value: canon.StringOf("2.0")}}
	if m.kind != notification {
		out = append(out, canon.Member{Key: "id", Value: m.id})
	}
	switch {
	case m.kind != response:
		out = append(out, canon.Member{Key: "method", Value: canon.StringOf(m.method)})
		if m.params.Kind() != canon.Invalid {
			out = append(out, canon.Member{Key: "params", Value: m.params})
		}
	case m.err != nil:
		out = append(out, canon.Member{Key: "error", Value: errorValue(m.err)})
	case m.result.Kind() == canon.Invalid:
		out = append(out, canon.Member{Key: "result", Value: canon.NullOf()})
	default:
		out = append(out, canon.Member{Key: "result", Value: m.result})
	}
	return canon.ObjectOf(out...)
}

func errorValue(e *wire.Error) canon.Value {
	v, err := canon.From(e)
	if err != nil { // text of ours that is not UTF-8, out of somebody's file name
		v, _ = canon.From(wire.NewError(e.Code, wire.FailContract, fmt.Sprintf("%+q", e.Message), ""))
	}
	return v
}
