package main

import (
	"context"
	"strings"

	"github.com/aspengine/asp/apply"
	"github.com/aspengine/asp/editplan"
	"github.com/aspengine/asp/editplan/patch"
	"github.com/aspengine/asp/internal/home"
	"github.com/aspengine/asp/internal/refusal"
	"github.com/aspengine/asp/internal/vfs"
	"github.com/aspengine/asp/preconditions"
	"github.com/aspengine/asp/snapshot"
	"github.com/spf13/pflag"
)

// sourceFlags are the ways to name a plan.
func sourceFlags(fs *pflag.FlagSet, withPlan bool) {
	if withPlan {
		fs.String("plan", "", "an EditPlan or plan bundle `F`ile (- reads stdin)")
	}
	fs.String("patch", "", "a unified or git diff `F`ile (- reads stdin)")
	fs.String("workspace-edit", "", "an LSP WorkspaceEdit `F`ile (- reads stdin)")
	fs.Int("strip", -1, "with --patch: leading path components to strip (-1: as git apply finds them)")
	fs.Int("fuzz", 0, "with --patch: context lines that may be ignored; reported when used")
	fs.Bool("unidiff-zero", false, "with --patch: take hunks without context at the lines they state. One that removes lines is taken there without this, too, if they are the same; one that only inserts is not, because it has nothing to compare")
}

// source makes the loader that the flags name.
func (e *env) source(ctx context.Context, fs *pflag.FlagSet, eng *apply.Engine) (apply.Loader, error) {
	var kinds []string
	for _, k := range []string{"plan", "patch", "workspace-edit"} {
		if f := fs.Lookup(k); f != nil && f.Changed {
			kinds = append(kinds, k)
		}
	}
	id := ""
	if fs.Lookup("plan") != nil && fs.NArg() > 0 {
		if fs.NArg() > 1 {
			return nil, usagef("unexpected argument %.100q", fs.Arg(1))
		}
		id = fs.Arg(0)
		kinds = append(kinds, "PROPOSAL-ID")
	} else if err := noArgs(fs); err != nil {
		return nil, err
	}
	if len(kinds) != 1 {
		return nil, usagef("name exactly one plan: --plan, --patch, --workspace-edit or a proposal id; see `asp %s --help`", fs.Name())
	}
	for _, of := range []string{"strip", "fuzz", "unidiff-zero"} {
		if kinds[0] != "patch" && fs.Changed(of) {
			return nil, usagef("--%s tells how a patch is read; it goes with --patch alone", of)
		}
	}
	if id != "" {
		return func(ctx context.Context, _ *apply.View, _ snapshot.Baseline) (editplan.File, refusal.List, error) {
			return eng.LoadProposal(id)
		}, nil
	}
	name, _ := fs.GetString(kinds[0])
	limit := eng.PlanLimits().Bytes
	if limit <= 0 {
		limit = editplan.DefaultPlanBytes
	}
	data, err := e.read(ctx, name, limit)
	if err != nil {
		return nil, err
	}
	switch kinds[0] {
	case "plan":
		return func(context.Context, *apply.View, snapshot.Baseline) (editplan.File, refusal.List, error) {
			f, items := editplan.Decode(data, eng.PlanLimits())
			return f, items, nil
		}, nil
	case "patch":
		return patchLoader(fs, eng, data, limit)
	}
	return editLoader(eng, data), nil
}

func importSource(base snapshot.Baseline, what string) editplan.Source {
	return editplan.Source{Baseline: base, Provider: editplan.Provider{ID: "asp-import", Version: Version}, Rationale: what}
}

// unique gives an imported plan an id of its own. The builder's id is the digest
// of the plan, so a patch that is applied, taken back and applied again would be
// answered with the first outcome; who wants that uses `asp plan` and --plan.
func unique(f editplan.File) editplan.File {
	const short = 12 // digits of the digest; the random part makes it unique
	v, _ := f.Proposal.Get("proposalId")
	id := v.Str()
	if i := strings.IndexByte(id, 0x3a); i > 0 && len(id) > i+1+short {
		id = id[:i+1+short]
	}
	return apply.Named(f, id+"-"+home.Random(4))
}

func patchLoader(fs *pflag.FlagSet, eng *apply.Engine, data []byte, limit int) (apply.Loader, error) {
	var o patch.ImportOptions
	o.Parse.Limits.Bytes = limit // what was read stops there
	strip, _ := fs.GetInt("strip")
	fuzz, _ := fs.GetInt("fuzz")
	zero, _ := fs.GetBool("unidiff-zero")
	if strip < -1 || strip > 64 {
		return nil, usagef("--strip %d: give 0 to 64", strip)
	}
	if fuzz < 0 || fuzz > 100 {
		return nil, usagef("--fuzz %d: give 0 to 100", fuzz)
	}
	switch {
	case strip == 0:
		o.Parse.Strip = patch.StripNone
	case strip > 0:
		o.Parse.Strip = strip
	}
	o.Apply.Fuzz, o.Apply.ZeroContext = fuzz, zero
	return func(ctx context.Context, v *apply.View, base snapshot.Baseline) (editplan.File, refusal.List, error) {
		im, err := patch.Import(patchView{v}, data, o)
		if err != nil {
			return editplan.File{}, nil, err
		}
		if len(im.Refused) > 0 {
			items, err := eng.Explain(ctx, im.Refused)
			return editplan.File{}, items, err
		}
		f, err := im.Plan(importSource(base, "imported from a patch"))
		if err != nil {
			return f, nil, err
		}
		return unique(f), nil, nil
	}, nil
}

func blockedOf(f *preconditions.Fact) *refusal.Item {
	if f == nil {
		return nil
	}
	return f.Blocked
}

// patchView shows the workspace to the patch importer; what may not be looked at
// is refused by the code that the transaction would use.
type patchView struct{ v *apply.View }

func (p patchView) Ahead(paths []snapshot.Path) { p.v.Ahead(paths) }

func (p patchView) Look(path snapshot.Path) (patch.Entry, error) {
	if c, no := editplan.ProtectedPath(path); no {
		it := refusal.New(refusal.PathProtected, path.String(), -1, "component %.60q is reserved for the repository or the engine", c)
		return patch.Entry{Blocked: &it}, nil
	}
	f, err := p.v.Fact(path)
	if err != nil || f.Blocked != nil {
		return patch.Entry{Blocked: blockedOf(f)}, err
	}
	switch f.Stat.Kind {
	case vfs.KindDir:
		return patch.Entry{Exists: true, Dir: true}, nil
	case vfs.KindSymlink:
		return patch.Entry{Exists: true, Mode: snapshot.ModeSymlink, Bytes: []byte(f.Target), Digest: f.Digest}, nil
	case vfs.KindFile:
		// The bytes are those that were hashed, or looking at them fails.
		en := patch.Entry{Exists: true, Mode: snapshot.ModeRegular, Digest: f.Digest}
		if f.Stat.Perm&0o100 != 0 {
			en.Mode = snapshot.ModeExecutable
		}
		en.Bytes, err = p.v.Bytes(path)
		return en, err
	case vfs.KindInvalid:
		return patch.Entry{}, nil
	}
	return patch.Entry{Exists: true}, nil
}

func editLoader(eng *apply.Engine, data []byte) apply.Loader {
	return func(ctx context.Context, v *apply.View, base snapshot.Baseline) (editplan.File, refusal.List, error) {
		info := func(paths []snapshot.Path) ([]snapshot.PathInfo, error) { return eng.PathInfo(ctx, paths) }
		im, err := editplan.ImportWorkspaceEdit(data, editplan.View{Roots: eng.Roots(), Baseline: base, Reader: v, Info: info}, eng.PlanLimits())
		if err != nil {
			return editplan.File{}, nil, err
		}
		if len(im.Refused) > 0 {
			items, err := eng.Explain(ctx, im.Refused)
			return editplan.File{}, items, err
		}
		return unique(im.File), nil, nil
	}
}
