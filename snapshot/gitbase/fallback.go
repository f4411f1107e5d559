package gitbase

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// addEntry appends an entry without stat data: never taken for unchanged.
func (x *index) addEntry(path string, mode uint32, id oid, flags uint8) {
	off := uint32(len(x.raw))
	x.raw = append(x.raw, make([]byte, entryFixed)...)
	binary.BigEndian.PutUint32(x.raw[off+oMode:], mode)
	copy(x.raw[off+oID:], id[:])
	// A size that no file has keeps zeroes from ever matching.
	binary.BigEndian.PutUint32(x.raw[off+oSize:], 1<<32-1)
	x.entries = append(x.entries, entry{path: path, off: off, head: -1, flags: flags})
}

// expand replaces the directories of a sparse index by what their trees hold.
func (x *index) expand(o *objects) error {
	// Directories were left out by decode; find them again in the bytes.
	dirs := x.sparse
	var add func(dir string, id oid) error
	add = func(dir string, id oid) error {
		return o.tree(id, func(name string, te treeEntry) error {
			if te.mode == modeTree {
				return add(dir+name+"/", te.id)
			}
			x.addEntry(dir+name, te.mode, te.id, inIndex|skipWT)
			return nil
		})
	}
	for _, d := range dirs {
		if err := add(d.path, x.id(&d)); err != nil {
			return fmt.Errorf("expand sparse index: %w", err)
		}
	}
	sortEntries(x.entries)
	x.tree = cacheTree{entryCount: -1}
	x.partial, x.sparse = "", nil
	return nil
}

// maxListing bounds what the git program may print.
const maxListing = 1 << 30

// indexFromGit has the git program list the entries of an index that is not
// read here. It gets no variable of ours but PATH and HOME-less configuration:
// only the repository's own files are read, and everything in them that names
// a program for reading an index is switched off.
func indexFromGit(ctx context.Context, p Places) (*index, error) {
	bin, err := exec.LookPath("git")
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, bin, "--no-pager", "--no-optional-locks",
		"-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null", "-c", "safe.directory=*", "-c", "core.untrackedCache=false",
		"--git-dir="+p.GitDir, "--work-tree="+p.Root, "ls-files", "-s", "-t", "-z")
	cmd.Dir = p.Root
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "LC_ALL=C", "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null",
		"GIT_OPTIONAL_LOCKS=0", "GIT_NO_LAZY_FETCH=1", "GIT_TERMINAL_PROMPT=0", "GIT_PAGER=cat",
	}
	var out, msg capped
	out.max, msg.max = maxListing, 4<<10
	cmd.Stdout, cmd.Stderr = &out, &msg
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("run git ls-files: %w: %.200q", err, msg.b)
	}
	if out.over {
		return nil, fmt.Errorf("run git ls-files: more than %d bytes", maxListing)
	}
	x := &index{raw: make([]byte, 1), tree: cacheTree{entryCount: -1}} // offset 0 stays unused
	for line := range bytes.SplitSeq(bytes.TrimSuffix(out.b, []byte{0}), []byte{0}) {
		if len(line) == 0 {
			continue
		}
		head, path, ok := strings.Cut(string(line), "\t")
		f := strings.Fields(head)
		if !ok || len(f) != 4 || checkName(path) != nil {
			return nil, fmt.Errorf("read git ls-files: line %.200q", line)
		}
		mode, err := strconv.ParseUint(f[1], 8, 32)
		if err != nil {
			return nil, fmt.Errorf("read git ls-files: line %.200q", line)
		}
		id, err := parseOID(f[2])
		if err != nil {
			return nil, fmt.Errorf("read git ls-files: %w", err)
		}
		flags := inIndex
		if f[3] != "0" {
			flags = unmerged
		}
		if f[0] == "S" {
			flags |= skipWT
		}
		if k := len(x.entries); k > 0 && x.entries[k-1].path == path {
			continue
		}
		x.addEntry(path, uint32(mode), id, flags)
	}
	sortEntries(x.entries)
	return x, nil
}

// capped keeps the first bytes of a stream.
type capped struct {
	b    []byte
	max  int
	over bool
}

func (c *capped) Write(p []byte) (int, error) {
	if k := c.max - len(c.b); len(p) > k {
		c.over = true
		c.b = append(c.b, p[:k]...)
	} else {
		c.b = append(c.b, p...)
	}
	return len(p), nil
}
