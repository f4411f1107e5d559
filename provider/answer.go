package provider

import (
	"context"
	"errors"
	"fmt"

	"github.com/aspengine/asp/internal/canon"
	"github.com/aspengine/asp/seam/wire"
)

// own turns an answer of ours into a value and holds it to the rule that every
// host applies to it, so that a mistake shows here and by name.
func own(answer any, scan func(canon.Value) []wire.Forbidden) (canon.Value, error) {
	v, err := canon.From(answer)
	if err != nil {
		return canon.Value{}, err
	}
	if bad := scan(v); len(bad) > 0 {
		return canon.Value{}, fmt.Errorf("the answer holds %.60q at %.200s, which belongs to the host", bad[0].Key, bad[0].Path)
	}
	return v, nil
}

func asUnsupported(err error, into **Unsupported) bool { return errors.As(err, into) }

// asInput makes an error of class input of any error that has no class.
func asInput(err error) error {
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	return InputError("%v", err)
}

// route finds who serves a method, under its present or its older name.
func (s *session) route(method string) (handler, wire.Family) {
	switch method {
	case wire.MethodEvaluate, "judge/evaluate":
		if s.p.Check != nil {
			return s.check, wire.Check
		}
	case wire.MethodPropose, "act/propose":
		if s.p.Edit != nil {
			return s.propose, wire.Edit
		}
	}
	if verb, ok := s.p.verb(method); ok {
		return func(h *Host, params canon.Value) (func(context.Context) (canon.Value, error), func(wire.Status, string) (canon.Value, bool), error) {
			return s.inspect(h, verb, params)
		}, wire.Inspect
	}
	return nil, ""
}
