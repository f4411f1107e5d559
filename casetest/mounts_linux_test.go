package casetest

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/aspengine/asp/internal/need"
	"golang.org/x/sys/unix"
)

// TestStrangeMount: on an overlay, of which nobody can tell what its syncs are worth, no
// publish mode earns or forecasts more than an attempt, and whoever asks for more is
// refused.
func TestStrangeMount(t *testing.T) {
	need.Root(t)
	base, err := os.MkdirTemp("", "overlay-")
	must(t, err)
	t.Cleanup(func() { must(t, os.RemoveAll(base)) })
	for _, d := range []string{"lower", "upper", "work", "all"} {
		must(t, os.Mkdir(filepath.Join(base, d), 0o755))
	}
	must(t, os.Chmod(base, 0o755))
	all := filepath.Join(base, "all")
	opts := fmt.Sprintf("lowerdir=%[1]s/lower,upperdir=%[1]s/upper,workdir=%[1]s/work", base)
	if err := unix.Mount("overlay", all, "overlay", 0, opts); err != nil {
		need.Missing(t, "cannot mount an overlay: %v", err)
	}
	t.Cleanup(func() { must(t, unix.Unmount(all, unix.MNT_DETACH)) })
	w := newWorld(t, map[string]string{"x": "0\n", "gone": "g\n"}, on(all))
	weak := []string{"none", "rollback_attempted"}
	text := "0\n"
	for i, how := range [][]string{{"--publish", "journal"}, {"--publish", "exchange"}, {"--stage"}} {
		next := fmt.Sprintf("%d\n", i+1)
		p := w.plan().modify("x", text, next)
		if i == 0 {
			p.remove("gone", "g\n").create("d/new", "n\n")
		}
		m := w.mark()
		p.apply(append(how, "--require-guarantee", "text_only_transactional")...).refused("weak-guarantee")
		m.unchanged()
		for _, flags := range [][]string{append(how, "--dry-run"), how} {
			r := p.apply(flags...)
			if r.code != 0 || !slices.Contains(weak, r.str("assurance", "transactionGuarantee")) {
				t.Errorf("%q: %s", flags, r)
			}
			t.Logf("%q: %s: %s", flags, r.str("assurance", "transactionGuarantee"), r.str("assurance", "detail"))
		}
		if how[0] != "--stage" {
			text = next
			w.is("x", text)
		}
	}
	w.gone("gone")
	w.is("d/new", "n\n")
	w.clean()
}
