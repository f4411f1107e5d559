package conformance

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aspengine/asp/internal/canon"
	"github.com/aspengine/asp/seam/wire"
)

// refusedBy has a provider make a plan and applies it; it has to be refused by one of
// the codes, or be no plan that a host takes, with nothing changed.
func (s *session) refusedBy(t *testing.T, name string, codes []string, uploads []string, changes ...canon.Value) {
	t.Helper()
	_, err := s.baseline(t.Context())
	ok(t, err)
	before, err := s.w.mark()
	ok(t, err)
	params := s.planParams(name, "changes", "", "").Without("scope")
	params = put(put(params, changes, "args", "changes"), uploads, "args", "uploads")
	refused, said := s.t.proposeAndApply(t, s, params)
	if !refused {
		t.Errorf("%s: applied", name)
	}
	if code, _, _ := strings.Cut(said, ":"); said != "" && !slices.Contains(codes, code) {
		t.Errorf("%s: refused with %q, want one of %q", name, said, codes)
	}
	s.t.untouched(s.w, before, name)
}

// TestPA02 has a provider's plans meet symbolic links where files should be.
func TestPA02(t *testing.T) {
	ctx := t.Context()
	tr := newTrial(t, "PA-02")
	ed := editor("ed")
	w, err := tr.world(ctx, setup{providers: []enrolled{ed}, files: map[string]string{"real.md": "hello world\n"}, policy: &policy{needs: []demand{tr.editNeed("edits", tr.pinOf(ed))}}})
	ok(t, err)
	outside := filepath.Join(w.dir, "outside.md")
	ok(t, os.WriteFile(outside, []byte("o\n"), 0o644))
	for name, to := range map[string]string{"link.md": "real.md", "out.md": "../outside.md", "dangling": "nowhere"} {
		ok(t, os.Symlink(to, w.path(name)))
	}
	ok(t, w.commit(ctx))
	s, err := w.serve()
	ok(t, err)
	for path, basis := range map[string]string{"link.md": "hello world\n", "out.md": "o\n"} {
		s.refusedBy(t, "replace "+path, []string{"not-regular"}, []string{"new\n"}, replacement(path, basis, "new\n"))
		s.refusedBy(t, "edit "+path, []string{"not-regular"}, nil, editsOf(path, basis, edit(0, 0, 0, 0, "x")))
	}
	for _, path := range []string{"link.md", "out.md", "dangling"} {
		s.refusedBy(t, "create "+path, []string{"exists"}, []string{"new\n"}, creation(path, "new\n"))
	}
	// To delete or rename a link acts on the link alone, and its content is where it
	// points to, not what is there.
	s.refusedBy(t, "delete by the target", []string{"stale-basis"}, nil, deletion("out.md", "o\n"))
	s.refusedBy(t, "rename by the target", []string{"stale-basis"}, nil, renaming("link.md", "l2.md", "hello world\n"))
	_, err = s.baseline(ctx)
	ok(t, err)
	params := s.planParams("links", "changes", "", "").Without("scope")
	params = put(params, []canon.Value{deletion("out.md", "../outside.md"), renaming("link.md", "l2.md", "real.md")}, "args", "changes")
	if refused, said := tr.proposeAndApply(t, s, params); refused {
		t.Errorf("delete and rename of links: %s", said)
	}
	if _, err := os.Lstat(w.path("out.md")); !os.IsNotExist(err) {
		t.Errorf("out.md: %v", err)
	}
	if to, err := os.Readlink(w.path("l2.md")); err != nil || to != "real.md" {
		t.Errorf("l2.md -> %q, %v", to, err)
	}
	if got := w.read("real.md"); got != "hello world\n" {
		t.Errorf("real.md holds %q", got)
	}
	if b, err := os.ReadFile(outside); err != nil || string(b) != "o\n" {
		t.Errorf("outside the workspace: %q %v", b, err)
	}
}

// TestCC01 has somebody edit a file between the plan of a provider and its apply.
func TestCC01(t *testing.T) {
	const before, other = "alpha\nbeta\n", "other\n"
	ctx := t.Context()
	tr := newTrial(t, "CC-01")
	ed := editor("ed")
	s, err := tr.open(ctx, setup{providers: []enrolled{ed}, files: map[string]string{"n.md": before, "o.md": other}, policy: &policy{needs: []demand{tr.editNeed("edits", tr.pinOf(ed))}}})
	ok(t, err)
	rename := func(content string) error {
		if err := os.WriteFile(s.w.path("ed"), []byte(content), 0o644); err != nil {
			return err
		}
		return os.Rename(s.w.path("ed"), s.w.path("n.md"))
	}
	for name, stranger := range map[string]struct {
		content string
		write   func(content string) error
		same    bool // time
	}{
		"in place":               {"mine\nbeta\n", func(c string) error { return s.w.write("n.md", c) }, false},
		"same size and time":     {"alphx\nbeta\n", func(c string) error { return s.w.write("n.md", c) }, true},
		"by rename":              {"mine\nbeta\n", rename, false},
		"by rename, same time":   {"alphx\nbeta\n", rename, true},
		"touched, content as is": {before, func(c string) error { return s.w.write("n.md", c) }, false},
	} {
		ok(t, s.w.write("n.md", before))
		ok(t, s.w.write("o.md", other))
		_, err := s.baseline(ctx)
		ok(t, err)
		params := s.planParams(name, "changes", "", "").Without("scope")
		params = put(put(params, []canon.Value{editsOf("n.md", before, edit(0, 0, 0, 5, "ALPHA")), replacement("o.md", other, "OTHER\n")}, "args", "changes"), []string{"OTHER\n"}, "args", "uploads")
		a, err := s.do(ctx, "host/requestEditPlan", params)
		ok(t, err)
		if a.err != nil {
			t.Fatalf("%s: %v", name, a.err)
		}
		was, err := os.Stat(s.w.path("n.md"))
		ok(t, err)
		ok(t, stranger.write(stranger.content))
		if stranger.same {
			ok(t, os.Chtimes(s.w.path("n.md"), time.Time{}, was.ModTime()))
		}
		mark, err := s.w.mark()
		ok(t, err)
		r, err := s.apply(ctx, wire.Interactive, name)
		ok(t, err)
		if stranger.content == before {
			if got := s.w.read("n.md"); !r.Applied || got != "ALPHA\nbeta\n" {
				t.Errorf("%s: applied %v, %q", name, r.Applied, got)
			}
			continue
		}
		if r.Applied || r.Refusal == nil {
			t.Errorf("%s: applied over %q", name, stranger.content)
		} else if code, _, _ := strings.Cut(r.Refusal.Detail, ":"); code != "stale-basis" && code != "changed-underneath" {
			t.Errorf("%s: refused with %q", name, r.Refusal.Detail)
		}
		tr.untouched(s.w, mark, name)
	}
}
