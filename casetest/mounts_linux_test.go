package casetest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/aspengine/asp/internal/need"
	"golang.org/x/sys/unix"
)

// overlay mounts one.
func overlay(t *testing.T) string {
	base := mountBase(t, "lower", "upper", "work", "all")
	all := filepath.Join(base, "all")
	opts := fmt.Sprintf("lowerdir=%[1]s/lower,upperdir=%[1]s/upper,workdir=%[1]s/work", base)
	if err := unix.Mount("overlay", all, "overlay", 0, opts); err != nil {
		need.Missing(t, "cannot mount an overlay: %v", err)
	}
	t.Cleanup(func() { must(t, unix.Unmount(all, unix.MNT_DETACH)) })
	return all
}

// fuse mounts a file system that a process of this machine serves.
func fuse(t *testing.T) string {
	if _, err := os.Stat("/dev/fuse"); err != nil {
		t.Skipf("this kernel has no FUSE, and nothing that could be installed helps: %v", err)
	}
	bindfs := need.Tool(t, "bindfs")
	base := mountBase(t, "under", "all", "state")
	all := filepath.Join(base, "all")
	if out, err := exec.Command(bindfs, "-o", "allow_other,attr_timeout=0,entry_timeout=0", filepath.Join(base, "under"), all).CombinedOutput(); err != nil {
		need.Missing(t, "cannot mount by FUSE: %v: %s", err, out)
	}
	t.Cleanup(func() { must(t, unix.Unmount(all, unix.MNT_DETACH)) })
	return all
}

func mountBase(t *testing.T, dirs ...string) string {
	need.Root(t)
	base, err := os.MkdirTemp("", "mount-")
	must(t, err)
	t.Cleanup(func() { must(t, os.RemoveAll(base)) })
	for _, d := range dirs {
		must(t, os.Mkdir(filepath.Join(base, d), 0o755))
		must(t, os.Chown(filepath.Join(base, d), ordinary, ordinary))
	}
	must(t, os.Chmod(base, 0o755))
	return base
}

// TestStrangeMount: on an overlay, of which nobody can tell what its syncs are worth, no
// publish mode earns or forecasts more than an attempt, and whoever asks for more is
// refused.
func TestStrangeMount(t *testing.T) {
	all := overlay(t)
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

// TestFUSE: no more than an attempt is forecast on a file system that FUSE serves. This
// one has no rename that cannot overwrite, so every mode that would write there ends in
// an error or a refusal, nothing is changed, and a workspace there can still be staged
// elsewhere.
func TestFUSE(t *testing.T) {
	all := fuse(t)
	w := newWorld(t, map[string]string{"x": "0\n", "gone": "g\n"}, on(all))
	here := w.asp
	w.asp = filepath.Join(filepath.Dir(all), "state")
	p := w.plan().modify("x", "0\n", "1\n").remove("gone", "g\n").create("d/new", "n\n")
	is := func() {
		t.Helper()
		w.is("x", "0\n")
		w.is("gone", "g\n")
		w.gone("d")
		w.clean()
	}
	for _, mode := range []string{"journal", "exchange"} {
		p.apply("--publish", mode, "--require-guarantee", "text_only_transactional").exits(1)
		if r := p.apply("--publish", mode, "--dry-run"); r.str("assurance", "transactionGuarantee") != "rollback_attempted" && r.code != 1 {
			t.Errorf("%s: %s", mode, r)
		}
		r := p.apply("--publish", mode)
		if g := r.str("assurance", "transactionGuarantee"); r.code != 1 && r.code != 3 || g != "" && g != "none" {
			t.Errorf("%s: %s", mode, r)
		}
		is()
	}
	p.apply("--stage").applied()
	is()
	w.asp = here
	r := w.plan().modify("x", "0\n", "2\n").apply("--stage")
	r.failed()
	next := "the file system of the state directory \"" + here + "\" cannot do that; set ASP_HOME to a directory on ext4, xfs, btrfs or tmpfs"
	if !strings.Contains(r.str("error", "message"), next) || !strings.Contains(r.errs, next) {
		t.Errorf("no way out: %s", r)
	}
	if d := w.run("doctor"); d.code != 1 || !strings.Contains(string(d.out), next) {
		t.Errorf("%s", d)
	}
	is()
}
