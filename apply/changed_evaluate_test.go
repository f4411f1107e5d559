package apply_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/aspengine/asp/apply"
	"github.com/aspengine/asp/checks"
	"github.com/aspengine/asp/internal/canon"
	"github.com/aspengine/asp/seam/provider"
	"github.com/aspengine/asp/seam/wire"
)

// TestEvaluateWhatIsThere judges a change that lies in the workspace, or in the
// index, against a revision: providers see the revision's tree as the baseline and
// what is there as the after-state.
func TestEvaluateWhatIsThere(t *testing.T) {
	for _, staged := range []bool{false, true} {
		c := &crew{roster: []provider.Standing{standing("p", wire.Gated, wire.Check)}}
		h := newHosted(t, "", pins("p", checkOnly, "gated", wire.Gate), c, map[string]string{"a": "1\n", "b": "2\n", "gone": "g\n"})
		h.write("a", "index\n")
		h.write("new", "n\n")
		if err := os.Remove(filepath.Join(h.root, "gone")); err != nil {
			t.Fatal(err)
		}
		h.git("add", "-A")
		h.write("a", "disk\n")
		want := map[bool]string{false: "disk\n", true: "index\n"}[staged]
		c.check = func(ctx context.Context, id string, s provider.Subject, _ provider.Settings) checks.Result {
			tree, err := s.Content.Tree(ctx)
			if err != nil {
				t.Error(err)
			}
			got := map[string]wire.BlobRef{}
			for _, x := range tree {
				got[x.Path] = x.BlobID
			}
			if got["a"] != blobID("1\n") || got["gone"] != blobID("g\n") || got["b"] != blobID("2\n") || got["new"] != "" {
				t.Errorf("staged %v: the baseline is %v", staged, got)
			}
			for _, content := range []string{"1\n", "g\n", want, "n\n", "2\n"} {
				if b, err := s.Content.Bytes(ctx, blobID(content)); err != nil || string(b) != content {
					t.Errorf("staged %v: %q is %q, %v", staged, content, b, err)
				}
			}
			if paths, err := s.Content.Where(ctx, blobID(map[bool]string{true: "disk\n", false: "index\n"}[staged])); err != nil || len(paths) > 0 {
				t.Errorf("staged %v: what is not judged is at %v, %v", staged, paths, err)
			}
			return c.said(id, checks.Passed)
		}
		e := h.engine()
		ch, err := e.Changed(context.Background(), "HEAD", staged)
		if err != nil {
			t.Fatal(err)
		}
		ev, err := e.Evaluate(context.Background(), apply.EvaluateRequest{CallSite: wire.Gate, Changed: ch})
		if err != nil || ev.Verdict.Decision != wire.Allow || len(c.asked) != 1 {
			t.Fatalf("staged %v: %+v %v", staged, ev, err)
		}
		if ev.Verdict.ChangesetDigest != canon.DigestText(ch.Changeset) || ev.Verdict.Receipt.Baseline.Rev == "" || ev.Verdict.Receipt.Baseline.Dirty != "" {
			t.Errorf("staged %v: %s on %+v", staged, ev.Verdict.ChangesetDigest, ev.Verdict.Receipt.Baseline)
		}
		// Judged by what it is, not by what it was when it was listed.
		h.write("b", "moved\n")
		ev, err = e.Evaluate(context.Background(), apply.EvaluateRequest{CallSite: wire.Gate, Changed: ch})
		if err != nil || ev.Verdict.Decision != wire.Indeterminate || len(c.asked) != 1 {
			t.Errorf("staged %v, moved: %s %v", staged, ev.Verdict.Decision, err)
		}
	}
}

// TestEvaluateByAnotherRevisionsPolicy judges by the policy of the base, as
// protected CI does.
func TestEvaluateByAnotherRevisionsPolicy(t *testing.T) {
	c := &crew{roster: []provider.Standing{standing("p", wire.Gated, wire.Check)}}
	h := newHosted(t, "", pins("p", checkOnly, "gated", wire.Gate), c, map[string]string{"a": "1\n"})
	c.check = func(_ context.Context, id string, _ provider.Subject, _ provider.Settings) checks.Result {
		return c.failed(id, "a")
	}
	h.git("branch", "base")
	h.write(".asp/asp.json", pins("nobody", checkOnly, "gated"))
	h.git("-c", "user.name=t", "-c", "user.email=t@example.org", "commit", "-qam", "weaker")
	change := wire.Change{Path: "a", Kind: wire.KindDelete, Before: blobID("1\n")}
	now, err := h.evaluate(apply.EvaluateRequest{}, change)
	if err != nil {
		t.Fatal(err)
	}
	then, err := h.evaluate(apply.EvaluateRequest{PolicyAt: "base"}, change)
	if err != nil {
		t.Fatal(err)
	}
	if now.Verdict.Decision != wire.Allow || then.Verdict.Decision != wire.Deny || now.Verdict.PolicyDigest == then.Verdict.PolicyDigest {
		t.Errorf("now %s, then %s", now.Verdict.Decision, then.Verdict.Decision)
	}
	if _, err := h.evaluate(apply.EvaluateRequest{PolicyAt: "no-such-branch"}, change); wireErr(t, err).Code != wire.CodeInvalidInput {
		t.Errorf("a revision that is not there: %v", err)
	}
}

// TestEvaluateOutsideGit judges in a plain directory, by the floor: no revision
// and no enrolment is needed for what the organization demands.
func TestEvaluateOutsideGit(t *testing.T) {
	c := &crew{roster: []provider.Standing{standing("p", wire.Gated, wire.Check)}}
	h := newHosted(t, `{"floor":`+pins("p", checkOnly, "gated", wire.Gate)+`}`, "", c, map[string]string{"a": "1\n"})
	if err := os.RemoveAll(filepath.Join(h.root, ".git")); err != nil {
		t.Fatal(err)
	}
	c.check = func(ctx context.Context, id string, s provider.Subject, _ provider.Settings) checks.Result {
		tree, err := s.Content.Tree(ctx)
		if err != nil || len(tree) != 1 || tree[0].BlobID != blobID("1\n") {
			t.Errorf("tree %v, %v", tree, err)
		}
		return c.said(id, checks.Passed)
	}
	ev, err := h.evaluate(apply.EvaluateRequest{Blobs: put("3\n")}, wire.Change{Path: "n", Kind: wire.KindCreate, After: blobID("3\n")})
	if err != nil || ev.Verdict.Decision != wire.Allow {
		t.Fatalf("%+v %v", ev, err)
	}
}
