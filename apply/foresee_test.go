package apply_test

import (
	"testing"

	"github.com/aspengine/asp/apply"
	"github.com/aspengine/asp/apply/commit"
	"github.com/aspengine/asp/seam/wire"
)

// What a publish would earn is looked up before it only where that answers somebody: asked
// for, shown, or before checks run.
func TestForeseesWhereItIsAsked(t *testing.T) {
	for _, c := range []struct {
		name    string
		r       apply.Request
		applied bool
		looks   int // of the forecast and of the publish
	}{
		{"shown", apply.Request{Load: plan("p1", bothFiles), DryRun: true}, false, 1},
		{"too much asked for", apply.Request{Load: plan("p2", bothFiles), RequireGuarantee: commit.StagedSnapshot}, false, 1},
		{"before a check", apply.Request{Load: plan("p3", bothFiles), Checks: []string{"ok"}}, true, 2},
		{"nothing", apply.Request{Load: plan("p4", bothFiles)}, true, 1},
	} {
		config := ""
		if len(c.r.Checks) > 0 {
			config = `{"checks":{"ok":{"argv":["true"]}},"sandbox":{"require":"none"}}`
		}
		e, looks := newBed(t, config, twoFiles).open(), 0
		e.CountDirty(&looks)
		c.r.CallSite, c.r.Intent = wire.Interactive, wire.IntentUser
		a, err := e.Apply(t.Context(), c.r)
		if err != nil || looks != c.looks || c.applied != (a.Result != nil && a.Result.Applied) {
			t.Errorf("%s: %d looks, want %d; %v %s", c.name, looks, c.looks, err, codes(a))
		}
	}
}
