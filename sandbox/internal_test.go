//go:build linux

package sandbox

import (
	"bytes"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestParseMountInfo(t *testing.T) {
	got, err := parseMountInfo([]byte("22 1 0:1 / / ro,relatime - ext4 /dev/x rw\n23 22 0:2 / /a\\040b\\134\\011 rw,nosuid,noexec shared:1 - tmpfs t rw\n"))
	if err != nil || len(got) != 2 || got[0] != (mountInfo{id: 22, point: "/", fsType: "ext4", readOnly: true}) || got[1] != (mountInfo{id: 23, point: "/a b\\\t", fsType: "tmpfs", noExec: true}) {
		t.Errorf("got %+v, %v", got, err)
	}
	if _, err := parseMountInfo([]byte("garbage\n")); err == nil {
		t.Error("garbage accepted")
	}
}

// bounded keeps exactly the first and the last half, however writes are cut.
func TestBounded(t *testing.T) {
	for range 200 {
		limit := 2 + 2*rand.IntN(50)
		all := make([]byte, rand.IntN(300))
		for i := range all {
			all[i] = byte('a' + i%26)
		}
		b := newBounded(limit)
		for rest := all; len(rest) > 0; {
			k := 1 + rand.IntN(len(rest))
			if n, err := b.Write(rest[:k]); n != k || err != nil {
				t.Fatalf("write %d: %d, %v", k, n, err)
			}
			rest = rest[k:]
		}
		got, cut := b.bytes()
		if len(all) <= limit {
			if cut || !bytes.Equal(got, all) {
				t.Fatalf("limit %d: got %q of %q", limit, got, all)
			}
			continue
		}
		head, tail := all[:limit/2], all[len(all)-limit/2:]
		if !cut || !bytes.HasPrefix(got, append(append([]byte(nil), head...), '\n')) || !bytes.HasSuffix(got, append([]byte{'\n'}, tail...)) {
			t.Fatalf("limit %d: got %q of %q", limit, got, all)
		}
	}
}

// The words of a proof: every way in which it is incomplete lowers the level.
func TestVerdict(t *testing.T) {
	live, lands := t.TempDir(), t.TempDir()
	s := &Spec{Protect: []Protect{{Path: live}}}
	denied := probeAnswer{Path: live, Errno: 30}
	held := []Attempt{{"connect", true, "ECONNREFUSED"}}
	for _, c := range []struct {
		name  string
		r     report
		ns    bool
		lands string
		want  Level
		write bool
	}{
		{"denied", report{Reached: held, Probes: []probeAnswer{denied}}, true, "", MediatedWrite, false},
		{"not there", report{Reached: held, Probes: []probeAnswer{{Path: live, Missing: true, Errno: 2}}}, true, "", MediatedWrite, false},
		{"not asked", report{}, true, "", Gated, false},
		{"nothing was let loose", report{Probes: []probeAnswer{denied}}, true, "", Gated, false},
		{"somebody answered", report{Reached: []Attempt{held[0], {"connect", false, "done"}}, Probes: []probeAnswer{denied}}, true, "", Gated, false},
		{"shown without a shield", report{Reached: held, Probes: []probeAnswer{denied}, Shared: []string{"/run"}}, true, "", Gated, false},
		{"other error", report{Reached: held, Probes: []probeAnswer{{Path: live, Errno: 5}}}, true, "", Gated, false},
		{"created on the host", report{Reached: held, Probes: []probeAnswer{{Path: live, Created: true, Mount: "host"}}}, true, "", Gated, false},
		{"writable mount elsewhere", report{Reached: held, Probes: []probeAnswer{denied}, Writable: []string{"/mnt"}}, true, "", Gated, false},
		{"probe failed", report{Reached: held, Probes: []probeAnswer{denied}, ProbeErr: "no mountinfo"}, true, "", Gated, false},
		{"marker did not land", report{Reached: held, Probes: []probeAnswer{{Path: live, Created: true, Mount: "declared"}}}, true, lands, Gated, false},
		{"writable", report{Reached: held, Probes: []probeAnswer{{Path: live, Access: true}}}, true, "", Advisory, true},
		{"no namespaces", report{Reached: held, Probes: []probeAnswer{{Path: live, Access: true}}}, false, "", Advisory, true},
		{"no namespaces, no permission", report{Reached: held, Probes: []probeAnswer{{Path: live}}}, false, "", Advisory, false},
	} {
		s.Protect[0].Lands = c.lands
		b := verdict(s, c.r, ".asp-probe-x", c.ns, nil)
		if b.Level != c.want || b.DirectWrite != c.write || b.Evidence == "" {
			t.Errorf("%s: %+v", c.name, b)
		}
	}
	// A directory that the probe is silent about is no attempt that failed.
	s.Protect[0].Lands = ""
	if b := verdict(s, report{Reached: held}, "m", true, nil); b.Level != Gated || b.Attempts[0] != (Attempt{"write at " + live, false, "not tried"}) || !strings.Contains(b.Evidence, "was not tried") {
		t.Errorf("not asked: %+v", b)
	}
	if b := verdict(s, report{Reached: held, Probes: []probeAnswer{denied}}, "m", true, []string{"no lure"}); b.Level != Gated || !strings.Contains(b.Evidence, "no lure") {
		t.Errorf("a lure that could not be laid: %+v", b)
	}
	if b := verdict(&Spec{}, report{}, "m", true, nil); b.Level != Gated || !strings.Contains(b.Evidence, "nothing was named") {
		t.Errorf("nothing to protect: %+v", b)
	}
}

func FuzzParseMountInfo(f *testing.F) {
	f.Add([]byte("22 1 0:1 / /a\\040b ro,relatime - ext4 /dev/x rw\n"))
	f.Add([]byte("\\\\\\0"))
	f.Fuzz(func(t *testing.T, b []byte) {
		_, _ = parseMountInfo(b) // no panic
	})
}

// A part of a shield is never looked for behind a link, which leads out of it.
func TestPartBehindLink(t *testing.T) {
	d := t.TempDir()
	for _, err := range []error{os.Symlink("/usr", filepath.Join(d, "out")), os.Symlink("/usr/bin", filepath.Join(d, "link")), unix.Mkfifo(filepath.Join(d, "fifo"), 0o600)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	fd, err := unix.Open(d, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	v := &view{}
	for name, settled := range map[string]bool{"out/bin": false, "link": false, "fifo": false, "absent": true, "absent/too": true} {
		if got := v.partOf(fd, "/etc", name); got != settled || len(v.list) > 0 {
			t.Errorf("%s: settled %v, shown %v", name, got, v.list)
		}
	}
}
