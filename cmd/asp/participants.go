package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/aspengine/asp/apply"
	"github.com/aspengine/asp/checks"
	"github.com/aspengine/asp/seam/provider"
	"github.com/aspengine/asp/seam/wire"
	"github.com/spf13/pflag"
)

// rememberedVerdicts bounds the answers of providers that one command keeps.
const rememberedVerdicts = 1024

// stopTime is how long providers may take to end politely.
const stopTime = 3 * time.Second

// participants are the providers of a workspace, which are started when they are
// asked, with what they answered and the transcript that ASP_TRACE asks for.
type participants struct {
	e     *env
	pool  *provider.Pool
	known *apply.Verdicts
	trace *os.File // nil without one
}

// participants makes the pool of the workspace of eng, which has to outlive it.
// isolate asks for isolated launches whatever the policy says. The caller closes them.
func (e *env) participants(eng *apply.Engine, isolate bool) (*participants, error) {
	o, err := eng.ProviderOptions()
	if err != nil {
		return nil, err
	}
	o.Sandbox.Isolate = o.Sandbox.Isolate || isolate
	p := &participants{e: e, known: apply.NewVerdicts(rememberedVerdicts)}
	if p.trace, err = e.traceFile(); err != nil {
		return nil, err
	}
	if p.trace != nil {
		o.Trace, o.TraceContents = p.trace, e.traceContents()
	}
	p.pool = provider.New(o)
	return p, nil
}

// close ends every provider, also after a signal, and the transcript.
func (p *participants) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), stopTime)
	defer cancel()
	err := p.pool.Close(ctx)
	if p.trace != nil {
		err = errors.Join(err, p.trace.Close())
	}
	return err
}

// enlist gives an engine the providers of its workspace where a command may ask
// them. They are stopped by the function that comes back. A command that only looks
// gets them too: how they stand is told without a launch.
func (e *env) enlist(fs *pflag.FlagSet, eng *apply.Engine) (stop func(), err error) {
	switch fs.Name() {
	case "status", "doctor":
	case "apply", "publish", "undo":
		site, _ := fs.GetString("call-site")
		kept := fs.Name() == "apply" && fs.NArg() > 0 // its provider may be asked again
		if !eng.AsksProviders(wire.CallSite(site)) && !(kept && eng.HasProviders()) {
			return func() {}, nil
		}
	default:
		return func() {}, nil
	}
	m, _ := fs.GetString("require-assurance")
	p, err := e.participants(eng, m == checks.Isolated.String())
	if err != nil {
		return nil, err
	}
	eng.UseProviders(p.pool, p.known)
	return func() {
		if err := p.close(); err != nil {
			e.ui.notef("note: %v", err)
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
			// Not the role's own words: "advisory" is a mode of enrolment to people.
			switch s.Role {
			case "required":
				line += ", required at " + joined(s.RequiredFor)
			case "optional":
				line += ", named by the policy and not required"
			case "advisory":
				line += ", not named by the policy"
			default:
				line += ", " + s.Role
			}
		default:
			if line += ", " + s.EnrollmentState; s.ManifestState == "untrusted" {
				line += ", " + s.ManifestState
			}
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
