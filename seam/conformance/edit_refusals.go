package conformance

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/aspengine/asp/internal/canon"
	"github.com/aspengine/asp/seam/wire"
)

func editStale(ctx context.Context, t *trial) error {
	s, err := t.open(ctx, t.oneEditor(editor("ed")))
	if err != nil {
		return err
	}
	if _, err := s.plan(ctx, "overtaken", "insert", "src/a.txt", ""); err != nil {
		return err
	}
	if err := s.w.write("src/a.txt", "somebody was faster\n"); err != nil {
		return err
	}
	before, err := s.w.mark()
	if err != nil {
		return err
	}
	r, err := s.apply(ctx, wire.Gate, "overtaken")
	if err != nil {
		return err
	}
	// The host may ask for the plan again; the provider's next one is on the new
	// state, and then it may be applied, but never over the bytes that nobody saw.
	if r.Applied {
		t.judge(strings.Contains(s.w.read("src/a.txt"), "somebody was faster"), "a stale plan overwrote what it had not seen")
	} else {
		t.judge(r.Refusal.Reason == "conflict" || r.Refusal.Reason == "stale-baseline", "refused as %s", r.Refusal.Reason)
		t.untouched(s.w, before, "after a stale plan")
	}
	if before, err = s.w.mark(); err != nil {
		return err
	}
	content, err := s.upload(ctx, "x\n")
	if err != nil {
		return err
	}
	foreign, err := s.inline(ctx, "foreign", object(member("path", "new.txt"), member("kind", "create"), member("precondition", absent()), member("after", content)))
	if err != nil {
		return err
	}
	rev := "git:tree:" + strings.Repeat("0", 40)
	for _, keys := range [][]string{{"baseline"}, {"validAsOf", "baseline"}, {"workspaceEdit", "baseline"}} {
		foreign = put(foreign, object(member("rev", rev)), keys...)
	}
	if r, err = s.applyInline(ctx, foreign); err != nil {
		return err
	}
	t.refused("a baseline that this host never issued", r, "stale-baseline", "foreign-baseline", "stale-valid-as-of")
	t.untouched(s.w, before, "after a foreign baseline")
	return nil
}

func editCAS(ctx context.Context, t *trial) error {
	s, before, err := t.begin(ctx, t.oneEditor(editor("ed")))
	if err != nil {
		return err
	}
	content, err := s.upload(ctx, "x\n")
	if err != nil {
		return err
	}
	wrong := blobID("other bytes\n")
	for i, c := range []struct {
		name   string
		change canon.Value
		reason wire.RefusalReason
		codes  []string
	}{
		{"other bytes expected", object(member("path", "src/a.txt"), member("kind", "modify"), member("precondition", expected(wrong)), member("after", content)), "conflict", []string{"stale-basis"}},
		{"other bytes expected of what goes", object(member("path", "src/a.txt"), member("kind", "delete"), member("precondition", expected(wrong))), "conflict", []string{"stale-basis"}},
		{"an edit of other bytes", insertion("src/a.txt", wrong, "x"), "conflict", []string{"stale-basis"}},
		{"absence expected of what is there", object(member("path", "src/a.txt"), member("kind", "create"), member("precondition", absent()), member("after", content)), "precondition-failed", []string{"exists"}},
		{"a file that is not there", object(member("path", "src/none.txt"), member("kind", "delete"), member("precondition", expected(wrong))), "precondition-failed", []string{"missing"}},
	} {
		plan, err := s.inline(ctx, fmt.Sprintf("cas-%d", i), c.change)
		if err != nil {
			return err
		}
		// What the plan says it is valid for is not what is being tried.
		plan = put(plan, []string{}, "validAsOf", "blobs")
		r, err := s.applyInline(ctx, plan)
		if err != nil {
			return err
		}
		t.refused(c.name, r, c.reason, c.codes...)
		t.judge(r.Refusal == nil || len(r.Refusal.Conflicts) > 0, "%s: no conflict is listed", c.name)
	}
	t.untouched(s.w, before, "after wrong expectations")
	return nil
}

func editPaths(ctx context.Context, t *trial) error {
	s, err := t.open(ctx, t.oneEditor(editor("ed")))
	if err != nil {
		return err
	}
	if err := os.WriteFile(s.w.dir+"/outside.txt", []byte("o\n"), 0o644); err != nil {
		return err
	}
	before, err := s.w.mark()
	if err != nil {
		return err
	}
	content, err := s.upload(ctx, "x\n")
	if err != nil {
		return err
	}
	for i, c := range []struct {
		path   string
		reason wire.RefusalReason
		code   string
	}{
		{"../outside.txt", "malformed", "path-invalid"}, {"src/../../outside.txt", "malformed", "path-invalid"}, {s.w.dir + "/outside.txt", "malformed", "path-invalid"},
		{"", "malformed", "path-invalid"}, {".", "malformed", "path-invalid"}, {"..", "malformed", "path-invalid"}, {"src//x", "malformed", "path-invalid"},
		{".git/hooks/post-commit", "unsupported", "path-protected"}, {".GIT/config", "unsupported", "path-protected"}, {"sub/.git/config", "unsupported", "path-protected"},
		{".git./config", "unsupported", "path-protected"}, {"git~1/config", "unsupported", "path-protected"}, {".git /config", "unsupported", "path-protected"},
	} {
		plan, err := s.inline(ctx, fmt.Sprintf("path-%d", i), object(member("path", c.path), member("kind", "create"), member("precondition", absent()), member("after", content)))
		if err != nil {
			return err
		}
		r, err := s.applyInline(ctx, plan)
		if err != nil {
			return err
		}
		t.refused(fmt.Sprintf("create %q", clip(c.path, 40)), r, c.reason, c.code)
	}
	t.untouched(s.w, before, "after impossible paths")
	b, err := os.ReadFile(s.w.dir + "/outside.txt")
	t.judge(err == nil && string(b) == "o\n", "a file outside the workspace changed")
	// A provider that names a path outside of what it was asked about.
	for _, how := range []string{"escape!../outside.txt", "escape!.git/hooks/post-commit", "escape!docs/other.md"} {
		if _, err := s.fails(ctx, "a plan that goes elsewhere: "+how, "host/requestEditPlan", s.planParams("elsewhere", how, "src/a.txt", ""), wire.FailContract); err != nil {
			return err
		}
	}
	t.untouched(s.w, before, "after plans that go elsewhere")
	return nil
}

func editUnknown(ctx context.Context, t *trial) error {
	s, before, err := t.begin(ctx, t.oneEditor(editor("ed")))
	if err != nil {
		return err
	}
	r, err := s.apply(ctx, wire.Gate, "never made")
	if err != nil {
		return err
	}
	t.refused("an unknown proposal", r, "stale-baseline", "unknown-proposal")
	// A plan under one id, brought for another, or with another edit beside it.
	content, err := s.upload(ctx, "x\n")
	if err != nil {
		return err
	}
	change := object(member("path", "new.txt"), member("kind", "create"), member("precondition", absent()), member("after", content))
	plan, err := s.inline(ctx, "mine", change)
	if err != nil {
		return err
	}
	if r, err = s.apply(ctx, wire.Gate, "yours", member("proposal", plan)); err != nil {
		return err
	}
	t.refused("a plan under another id", r, "malformed")
	other := put(at(plan, "workspaceEdit"), []canon.Value{put(change, "other.txt", "path")}, "documentChanges")
	if r, err = s.apply(ctx, wire.Gate, "mine", member("proposal", plan), member("edit", other)); err != nil {
		return err
	}
	t.refused("an edit that is not the plan's", r, "malformed")
	gone := put(change, blobID("never sent"), "after")
	if plan, err = s.inline(ctx, "hollow", gone); err != nil {
		return err
	}
	if r, err = s.applyInline(ctx, plan); err != nil {
		return err
	}
	t.refused("content that never came", r, "missing-blob", "missing-blob")
	t.untouched(s.w, before, "after unknown proposals")
	return nil
}
