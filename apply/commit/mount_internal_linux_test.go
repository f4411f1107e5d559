//go:build !portablefs

package commit

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// proc makes a tree of files in place of /proc and /sys; the entry of a device is a
// link.
func proc(t *testing.T, files map[string]string) procRoot {
	t.Helper()
	p := procRoot{t.TempDir()}
	for name, text := range files {
		at := p.path(name)
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			t.Fatal(err)
		}
		if filepath.Base(name) == "8:3" {
			if err := os.Symlink(text, at); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if err := os.WriteFile(at, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return p
}

// TestWhatExtIsBelieved: a journal and barriers are claimed only where both are said
// of this very device.
func TestWhatExtIsBelieved(t *testing.T) {
	const (
		link, opts, journal = "/sys/dev/block/8:3", "/proc/fs/ext4/sda3/options", "/proc/fs/jbd2/sda3-8/info"
		dev                 = "../../block/sda/sda3"
	)
	for _, c := range []struct {
		name              string
		files             map[string]string
		ordered, barriers bool
	}{
		{"both", map[string]string{link: dev, opts: "rw\nbarrier\ndata=ordered\n", journal: ""}, true, true},
		{"nobarrier", map[string]string{link: dev, opts: "rw\nnobarrier\n", journal: ""}, true, false},
		{"nothing of barriers", map[string]string{link: dev, opts: "rw\nbarrier_batch\n", journal: ""}, true, false},
		{"a journal of another device", map[string]string{link: dev, opts: "barrier\n", "/proc/fs/jbd2/sda31-8/info": ""}, false, true},
		{"a journal on a device of its own", map[string]string{link: dev, opts: "barrier\n", "/proc/fs/jbd2/sda3-x/info": ""}, false, true},
		{"no journals", map[string]string{link: dev, opts: "barrier\n"}, false, false},
		{"no options", map[string]string{link: dev, journal: ""}, false, false},
		{"no device", map[string]string{opts: "barrier\n", journal: ""}, false, false},
	} {
		m := extFacts(unix.Mkdev(8, 3), proc(t, c.files))
		if m.Ordered != c.ordered || m.Barriers != c.barriers || m.Why == "" {
			t.Errorf("%s: %+v", c.name, m)
		}
	}
}

// TestWhatBtrfsIsBelieved: barriers are claimed only where the line of this very mount
// was found and does not deny them.
func TestWhatBtrfsIsBelieved(t *testing.T) {
	const (
		with    = "31 1 0:20 / /a rw - btrfs /dev/x rw,ssd,subvol=/\n"
		without = "32 1 0:21 / /b rw - btrfs /dev/y rw,nobarrier,ssd\n"
	)
	for _, c := range []struct {
		name, table string
		mnt         uint64
		barriers    bool
	}{
		{"barriers", without + with, 31, true},
		{"none", with + without, 32, false},
		{"another mount", with + without, 3, false},
		{"an empty table", "", 31, false},
	} {
		m := btrfsFacts(c.mnt, proc(t, map[string]string{"/proc/self/mountinfo": c.table}))
		if !m.Ordered || m.Barriers != c.barriers || m.Why == "" {
			t.Errorf("%s: %+v", c.name, m)
		}
	}
	if m := btrfsFacts(31, proc(t, nil)); m.Barriers || m.Why == "" {
		t.Errorf("no table: %+v", m)
	}
}
