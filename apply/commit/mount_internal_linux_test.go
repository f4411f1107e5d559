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

// TestWhatOthersAreBelieved: of a network file system, of FUSE, of what is not known and
// of what lives in memory nothing is claimed that more than an attempt would rest on, and
// no rename is taken for one that cannot overwrite without having been tried there.
func TestWhatOthersAreBelieved(t *testing.T) {
	for name, magic := range map[string]uint32{"nfs": unix.NFS_SUPER_MAGIC, "smb": unix.SMB_SUPER_MAGIC, "cifs": unix.CIFS_SUPER_MAGIC, "smb2": unix.SMB2_SUPER_MAGIC,
		"fuse": unix.FUSE_SUPER_MAGIC, "9p": unix.V9FS_MAGIC, "ceph": unix.CEPH_SUPER_MAGIC, "afs": unix.AFS_SUPER_MAGIC, "overlay": unix.OVERLAYFS_SUPER_MAGIC,
		"ramfs": unix.RAMFS_MAGIC, "f2fs": unix.F2FS_SUPER_MAGIC, "nothing known": 0x12345678} {
		m := factsOf(magic)
		f := Facts{Mounts: []MountFacts{m}, Style: SyncEach, Exchange: Proven, NoReplace: Proven, Exchanged: 1, Created: 1,
			Barriers: []Barrier{{What: "data and journal", Calls: 1}, {What: "names", Calls: 1}}}
		if m.Ordered || m.Barriers || m.Renames || m.Why == "" || f.Guarantee() != RollbackAttempted {
			t.Errorf("%s: %+v, %s", name, m, f.Guarantee())
		}
	}
	f := Facts{Mounts: []MountFacts{factsOf(unix.XFS_SUPER_MAGIC)}, Style: SyncEach, Exchange: Proven, NoReplace: Proven, Exchanged: 1,
		Barriers: []Barrier{{What: "data and journal", Calls: 1}, {What: "names", Calls: 1}}}
	if f.Guarantee() != WorkspaceTransactional {
		t.Errorf("the facts of this test are not whole: %s", f.Guarantee())
	}
}
