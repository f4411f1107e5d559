//go:build !portablefs

package commit

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/aspengine/asp/internal/vfs"
)

// ProbeMount asks the kernel what the mount under d can promise. It claims
// Ordered and Barriers only where it found what they rest on; an unknown file
// system, a network one, FUSE, an overlay and ext4 without a journal get
// neither.
func ProbeMount(d vfs.Dir) (MountFacts, error) {
	s, err := statfs(d)
	if err != nil {
		return MountFacts{}, err
	}
	if s == nil {
		return MountFacts{Type: "unknown", Why: "a handle without a descriptor"}, nil
	}
	switch uint32(s.Type) {
	case unix.EXT4_SUPER_MAGIC: // ext2, ext3 and ext4 share it
		st, err := d.Stat()
		if err != nil {
			return MountFacts{}, err
		}
		return extFacts(st.Dev, procRoot{}), nil
	case unix.BTRFS_SUPER_MAGIC:
		st, err := d.Stat()
		if err != nil {
			return MountFacts{}, err
		}
		return btrfsFacts(st.MntID, procRoot{}), nil
	}
	return factsOf(uint32(s.Type)), nil
}

// factsOf is what the type of a file system alone tells.
func factsOf(magic uint32) MountFacts {
	switch magic {
	case unix.XFS_SUPER_MAGIC:
		return MountFacts{Type: "xfs", Ordered: true, Barriers: true, Renames: true, Why: "xfs has a metadata log and always uses barriers"}
	case unix.TMPFS_MAGIC:
		return MountFacts{Type: "tmpfs", Renames: true, Why: "tmpfs lives in memory and loses everything with the power"}
	case unix.RAMFS_MAGIC:
		return MountFacts{Type: "ramfs", Why: "ramfs lives in memory and loses everything with the power"}
	case unix.OVERLAYFS_SUPER_MAGIC:
		return MountFacts{Type: "overlayfs", Why: "an overlay's promises are those of layers that cannot be seen from here"}
	case unix.NFS_SUPER_MAGIC:
		return MountFacts{Type: "nfs", Why: "a network file system keeps its promises elsewhere"}
	case unix.SMB2_SUPER_MAGIC, unix.CIFS_SUPER_MAGIC, unix.SMB_SUPER_MAGIC:
		return MountFacts{Type: "smb", Why: "a network file system keeps its promises elsewhere"}
	case unix.FUSE_SUPER_MAGIC:
		return MountFacts{Type: "fuse", Why: "a FUSE file system promises what its server does, which is unknown"}
	}
	return MountFacts{Type: fmt.Sprintf("%#x", magic), Why: "the file system is not one whose promises are known here"}
}

// procRoot is where /proc and /sys are; tests put their own there.
type procRoot struct{ dir string }

func (p procRoot) path(s string) string { return p.dir + s }

// extFacts looks for the journal thread's entry and the effective options of
// the device. The mount table does not tell whether there is a journal.
func extFacts(dev uint64, p procRoot) MountFacts {
	m := MountFacts{Type: "ext4", Renames: true}
	link, err := os.Readlink(p.path(fmt.Sprintf("/sys/dev/block/%d:%d", unix.Major(dev), unix.Minor(dev))))
	if err != nil {
		m.Why = "the device of the ext file system cannot be found, so neither can its journal"
		return m
	}
	name := filepath.Base(link)
	opts, err := os.ReadFile(p.path("/proc/fs/ext4/" + name + "/options"))
	if err != nil {
		m.Why = "the options of ext4 on " + name + " cannot be read"
		return m
	}
	journals, err := os.ReadDir(p.path("/proc/fs/jbd2"))
	if err != nil {
		m.Why = "no journal was found for ext4 on " + name
		return m
	}
	for _, j := range journals {
		// The entry is <device>-<inode of the journal>, or the journal's own
		// device when that is an external one, which then is not recognised.
		rest, ok := strings.CutPrefix(j.Name(), name+"-")
		if _, err := strconv.ParseUint(rest, 10, 64); ok && err == nil {
			m.Ordered = true
		}
	}
	for o := range bytes.FieldsSeq(opts) {
		m.Barriers = m.Barriers || string(o) == "barrier"
	}
	switch {
	case !m.Ordered:
		m.Why = "ext4 on " + name + " has no journal"
	case !m.Barriers:
		m.Why = "ext4 on " + name + " is mounted without barriers"
	default:
		m.Why = "ext4 on " + name + " has a journal and barriers"
	}
	return m
}

// btrfsFacts looks for nobarrier in the mount table.
func btrfsFacts(mnt uint64, p procRoot) MountFacts {
	m := MountFacts{Type: "btrfs", Renames: true, Ordered: true}
	table, err := os.ReadFile(p.path("/proc/self/mountinfo"))
	if err != nil {
		m.Why = "the mount table cannot be read, so barriers are not established"
		return m
	}
	id := []byte(strconv.FormatUint(mnt, 10))
	for line := range bytes.Lines(table) {
		f := bytes.Fields(line)
		if len(f) == 0 || !bytes.Equal(f[0], id) {
			continue
		}
		for o := range bytes.SplitSeq(f[len(f)-1], []byte{','}) {
			if string(o) == "nobarrier" {
				m.Why = "btrfs is mounted without barriers"
				return m
			}
		}
		m.Barriers, m.Why = true, "btrfs copies on write and uses barriers"
		return m
	}
	m.Why = "the mount is not in the mount table, so barriers are not established"
	return m
}

// hostDirty reads how much unwritten data a syncfs might have to wait for.
func hostDirty() (int64, error) {
	b, err := vfs.ReadProc("/proc/meminfo", 4096)
	if err != nil {
		return 0, err
	}
	var kib int64
	for line := range bytes.Lines(b) {
		f := bytes.Fields(line)
		if len(f) >= 2 && (string(f[0]) == "Dirty:" || string(f[0]) == "Writeback:") {
			n, err := strconv.ParseInt(string(f[1]), 10, 64)
			if err != nil {
				return 0, err
			}
			kib += n
		}
	}
	return kib << 10, nil
}
