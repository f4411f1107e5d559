package apply

import (
	"os"
	"time"

	"github.com/aspengine/asp/checks/policy"
	"github.com/aspengine/asp/internal/home"
	"github.com/aspengine/asp/seam/manifest"
	"github.com/aspengine/asp/seam/provider"
	"github.com/aspengine/asp/seam/wire"
)

// ProviderOptions is what the trusted configuration and the place of the workspace
// say to a pool of its providers. The pool may outlive other engines, and not this
// one, whose state directory it keeps its quarantine in. Whether a provider is
// enabled, and what it may reach, is looked up each time, in what is enrolled and configured then; what the machine can do, at
// the first launch; how well a launch has to be isolated, each engine says (Demand).
func (e *Engine) ProviderOptions() (provider.Options, error) {
	scratch, err := e.o.Home.Sub(home.ScratchDir)
	if err != nil {
		return provider.Options{}, err
	}
	scratch.Close()
	root, h := e.ws.Root(), e.o.Home
	protect := []string{root, h.Path()}
	if e.git != nil {
		protect = append(protect, e.git.GitDir)
		if e.git.Common != e.git.GitDir {
			protect = append(protect, e.git.Common)
		}
	}
	hide := protect
	if e.o.UserHome != "" {
		hide = append(hide[:len(hide):len(hide)], e.o.UserHome)
	}
	env := map[string]string{}
	for _, name := range e.cfg.Sandbox.Env {
		if v, ok := os.LookupEnv(name); ok {
			env[name] = v
		}
	}
	limits := e.cfg.Sandbox.Limits
	return provider.Options{
		Registry: manifest.OpenRegistry(h),
		Enabled: func(id string) (wire.Mode, bool) {
			_, enrolled, err := policy.Load(h)
			if err != nil {
				return "", false // what cannot be read enables nobody
			}
			return enrolled.Enabled(root, id)
		},
		Network: func(id string) []string {
			cfg, _, err := policy.Load(h)
			if err != nil {
				return nil // nor does it grant anything
			}
			return cfg.Providers[id].Network
		},
		State: e.state.Dir(),
		Sandbox: provider.Launch{
			Probe: e.Caps, Require: e.least(), Isolate: e.wantsIsolated(), Hide: hide, Protect: protect, Read: e.cfg.Sandbox.Read,
			Env: env, Lookup: os.LookupEnv, Scratch: h.Path(home.ScratchDir),
			Limits: provider.Limits{Wall: time.Duration(limits["wallclockMs"]) * time.Millisecond, Files: uint64(limits["fd"]),
				CPUPct: limits["cpuPct"], MemoryMb: limits["memoryMb"], FileMb: limits["fileMb"], Processes: limits["processes"]},
		},
		MessageBytes: e.cfg.Limits.MessageBytes, Callbacks: e.cfg.Limits.Callbacks, Version: e.o.Version, Now: e.now,
	}, nil
}
