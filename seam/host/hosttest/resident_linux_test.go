package hosttest

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestVerdictIsOfTheStateItNames: a store into a shared mapping is not heard while the
// mapping lasts. To a file that the change leaves alone, it makes no verdict of providers
// wrong, who were shown nothing of it: the verdict is about the state that it names, and
// says that a watched look called that the present one. One to a file that it touches is
// found, because what is there is not what the baseline has, also where a walk would not
// find it: a page that is written again moves no time stamp.
func TestVerdictIsOfTheStateItNames(t *testing.T) {
	w := newWorld(t, "", map[string]string{"a.txt": "a\n", "b.txt": "b\n", "c.txt": "c\n", "d.txt": "d\n"})
	w.enrol("p", []string{"check"})
	mapped := func(name string) []byte {
		f, err := os.OpenFile(filepath.Join(w.root, name), os.O_RDWR, 0)
		must(t, err)
		m, err := unix.Mmap(int(f.Fd()), 0, 1, unix.PROT_WRITE|unix.PROT_READ, unix.MAP_SHARED)
		must(t, err)
		t.Cleanup(func() { _ = unix.Munmap(m); f.Close() })
		return m
	}
	again := mapped("d.txt")
	again[0] = 'y'
	var st unix.Stat_t
	for must(t, unix.Stat(filepath.Join(w.root, "d.txt"), &st)); time.Since(time.Unix(st.Ctim.Unix())) < 100*time.Millisecond; {
		runtime.Gosched() // until the stamps are old enough for a look to be kept
	}
	c := w.stdio()
	base := c.baseline()
	store := func(name string) {
		mapped(name)[0] = 'z'
		if now := c.baseline(); now["dirty"] != base["dirty"] {
			t.Skip("this kernel tells of it")
		}
	}
	change := func(name, before string) obj { return c.changes(base, [3]string{name, before, "new\n"}) }

	w.untilWatched(func() answer { return c.verdict(change("c.txt", "c\n"), "") })
	again[0] = 'z'
	if a := c.verdict(change("d.txt", "z\n"), ""); a.text("decision") != "indeterminate" || !strings.Contains(string(a.raw), `"reason":"stale-baseline"`) || w.looked(a) != "walked" {
		t.Errorf("stat data say that nothing moved: %s: %s", w.looked(a), a.raw)
	}
	base = c.baseline()
	w.untilWatched(func() answer { return c.verdict(change("c.txt", "c\n"), "") })
	store("b.txt")
	a := c.verdict(change("a.txt", "a\n"), "")
	if a.text("decision") != "allow" || w.looked(a) != "watched" || !strings.Contains(a.text("assurance", "detail"), "watched look") {
		t.Fatalf("%s: %s", w.looked(a), a.raw)
	}
	if served := fmt.Sprint(a.result["validAsOf"]); !strings.Contains(served, digest("new\n")) || strings.Contains(served, digest("z\n")) {
		t.Errorf("served: %s", served)
	}
	if a := c.verdict(change("a.txt", "a\n"), ""); a.text("decision") != "allow" || w.looked(a) != "watched" {
		t.Errorf("again: %s: %s", w.looked(a), a.raw)
	}
	base = c.baseline()
	w.untilWatched(func() answer { return c.verdict(change("a.txt", "a\n"), "") })
	store("c.txt")
	if a := c.verdict(change("c.txt", "z\n"), ""); a.text("decision") != "indeterminate" || !strings.Contains(string(a.raw), `"reason":"stale-baseline"`) || w.looked(a) != "walked" {
		t.Errorf("what the baseline does not have is taken away: %s: %s", w.looked(a), a.raw)
	}
	c.exit()
}
