package apply_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/aspengine/asp/internal/vfs"
	"github.com/aspengine/asp/internal/vfs/faultfs"
)

// TestWriteGroupFixtures writes with WRITE_FIXTURES=DIR what a process leaves that is killed
// while it carries out a group, for TestUpgrade of casetest: in the middle of the swaps, and
// with the decision made and no receipt stored.
func TestWriteGroupFixtures(t *testing.T) {
	dir := os.Getenv("WRITE_FIXTURES")
	for name, dies := range map[string]func(e faultfs.Event, swaps int) bool{
		"group-swap":    func(e faultfs.Event, swaps int) bool { return e.Op == faultfs.Exchange && swaps == 2 },
		"group-decided": func(e faultfs.Event, swaps int) bool { return swaps == 3 && strings.Contains(e.Path, "receipts") },
	} {
		t.Run(name, func(t *testing.T) {
			b := gitBed(t, map[string]string{"a": "a old\n", "b": "b old\n", "c": "c old\n"})
			c := newCrowd(b)
			died, swaps := false, 0
			ff := faultfs.New(vfs.OS{}, func(e faultfs.Event) faultfs.Fault {
				if died || !dies(e, swaps) {
					if e.Op == faultfs.Exchange {
						swaps++
					}
					return faultfs.Fault{}
				}
				died = true
				if dir != "" {
					tar := exec.Command("tar", "-czf", filepath.Join(dir, name+".tar.gz"), "--owner=0", "--group=0", "--exclude=*.sample",
						"--transform=s,^"+filepath.Base(b.root)+",ws/repo,;s,^home,state,", "-C", filepath.Dir(b.root), filepath.Base(b.root), "home")
					if out, err := tar.CombinedOutput(); err != nil {
						t.Errorf("tar: %v %s", err, out)
					}
				}
				return faultfs.Fault{Death: faultfs.DiesBefore}
			})
			c.all(ff, "publishing", asks("p0", replace("a", "a old\n", "a new\n")), asks("p1", replace("b", "b old\n", "b new\n")), asks("p2", replace("c", "c old\n", "c new\n")))
			if !died {
				t.Error("it never comes there")
			}
		})
	}
}
