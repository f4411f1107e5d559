package main

import (
	"context"
	"fmt"

	"github.com/aspengine/asp/apply"
	"github.com/aspengine/asp/checks"
	"github.com/aspengine/asp/seam/provider"
	"github.com/aspengine/asp/seam/wire"
	"github.com/spf13/pflag"
)

// keptVerdicts bounds the answers of providers that one command remembers.
const keptVerdicts = 256

// enlist gives an engine the providers of its workspace where a command may ask
// them. They are started when they are asked, and stopped by the function that
// comes back. A command that only looks gets them too: how they stand is told
// without a launch.
func (e *env) enlist(ctx context.Context, fs *pflag.FlagSet, eng *apply.Engine) (stop func(), err error) {
	switch fs.Name() {
	case "status", "doctor":
	case "apply", "publish", "undo":
		site, _ := fs.GetString("call-site")
		kept := fs.Name() == "apply" && fs.NArg() > 0 // its provider may be asked again
		if !eng.AsksProviders(wire.CallSite(site)) && !(kept && eng.HasProviders()) {
			return func() {}, nil // nothing is probed for nobody
		}
	default:
		return func() {}, nil
	}
	o, err := eng.ProviderOptions(ctx)
	if err != nil {
		return nil, err
	}
	if m, _ := fs.GetString("require-assurance"); m == checks.Isolated.String() {
		o.Sandbox.Isolate = true
	}
	trace, err := e.traceFile()
	if err != nil {
		return nil, err
	}
	if trace != nil {
		o.Trace, o.TraceContents = trace, e.traceContents()
	}
	p := provider.New(o)
	eng.UseProviders(p, apply.NewVerdicts(keptVerdicts))
	return func() {
		// Also after a signal: what was started is stopped.
		ctx, cancel := context.WithTimeout(context.Background(), stopTime)
		defer cancel()
		if err := p.Close(ctx); err != nil {
			e.ui.notef("note: %v", err)
		}
		if trace != nil {
			trace.Close()
		}
	}, nil
}

// serverLines are the providers as `asp status` shows them.
func serverLines(all []wire.ServerStatus) []string {
	var out []string
	for _, s := range all {
		line := fmt.Sprintf("%-24s %s", clean(s.ID), s.State)
		switch s.EnrollmentState {
		case "enrolled":
			line += ", " + s.Role
		default:
			line += ", " + s.EnrollmentState
		}
		if s.Detail != "" {
			line += ": " + clean(s.Detail)
		}
		out = append(out, line)
	}
	return out
}

// serverProblems are the providers that need somebody.
func serverProblems(all []wire.ServerStatus) []string {
	var out []string
	for _, s := range all {
		next := ""
		switch s.EnrollmentState {
		case "missing":
			next = "register it with `asp server add`, or take it out of the policy"
		case "quarantined":
			next = "`asp server reset " + s.ID + "` ends it once the cause is gone"
		case "error", "incompatible":
			next = "look at `asp server status " + s.ID + "` and register a manifest that fits"
		default:
			continue
		}
		out = append(out, fmt.Sprintf("provider %q is %s: %s; %s", s.ID, s.EnrollmentState, s.Detail, next))
	}
	return out
}
