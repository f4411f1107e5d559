package exchange

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/aspengine/asp/apply/commit"
	"github.com/aspengine/asp/internal/canon"
	"github.com/aspengine/asp/internal/home"
	"github.com/aspengine/asp/internal/vfs"
	"github.com/aspengine/asp/seam/wire"
	"github.com/aspengine/asp/snapshot"
)

// intent says what an exchange is about to do. It is written whole and synced
// before the exchange; which side of it the disk is on is told by the inode of
// the root alone.
type intent struct {
	TxID, Tag, Root string
	OldIno, NewIno  uint64
	PreImages       map[string]snapshot.Digest
	Evidence        []byte
}

// intentFile is the form on disk, canonical JSON, version 1.
type intentFile struct {
	Format    int        `json:"format"`
	TxID      string     `json:"txid"`
	Tag       string     `json:"tag"`
	Root      string     `json:"root"` // hexadecimal: any bytes
	OldIno    string     `json:"oldIno"`
	NewIno    string     `json:"newIno"`
	PreImages []preImage `json:"preImages"` // sorted by path
	Evidence  string     `json:"evidence"`  // hexadecimal
}

// preImage is what one path held before.
type preImage struct {
	Path string `json:"path"`
	Blob string `json:"blob"`
}

const maxIntent = 256 << 20

func writeIntent(area vfs.Dir, i intent) error {
	f := intentFile{Format: 1, TxID: i.TxID, Tag: i.Tag, Root: hex.EncodeToString([]byte(i.Root)), OldIno: fmt.Sprint(i.OldIno), NewIno: fmt.Sprint(i.NewIno), PreImages: []preImage{}, Evidence: hex.EncodeToString(i.Evidence)}
	for _, p := range slices.Sorted(maps.Keys(i.PreImages)) {
		f.PreImages = append(f.PreImages, preImage{p, i.PreImages[p].Blob()})
	}
	b, err := canon.Marshal(f)
	if err != nil {
		return err
	}
	return home.WriteFile(area, journalName, b)
}

// errNoIntent says that an exchange ended before its intent was complete, so
// nothing was exchanged.
var errNoIntent = errors.New("no complete intent")

func readIntent(area vfs.Dir) (intent, error) {
	var i intent
	b, err := home.ReadFile(area, journalName, maxIntent)
	if errors.Is(err, fs.ErrNotExist) {
		return i, errNoIntent
	}
	if err != nil {
		return i, err
	}
	v, err := canon.Parse(b, canon.Limits{Bytes: maxIntent})
	if err != nil {
		return i, errNoIntent // torn by a power cut before the barrier
	}
	if n, ok := v.Get("format"); ok {
		if k, ok := n.Int(); ok && k > 1 {
			return i, fmt.Errorf("exchange journal has format %d, newer than this program", k)
		}
	}
	var f intentFile
	if err := wire.Decode(v, &f); err != nil {
		return i, fmt.Errorf("exchange journal: %w", err)
	}
	root, err := hex.DecodeString(f.Root)
	if err != nil {
		return i, fmt.Errorf("exchange journal: %w", err)
	}
	i = intent{TxID: f.TxID, Tag: f.Tag, Root: string(root), PreImages: map[string]snapshot.Digest{}}
	if _, err := fmt.Sscan(f.OldIno, &i.OldIno); err != nil {
		return i, fmt.Errorf("exchange journal: %w", err)
	}
	if _, err := fmt.Sscan(f.NewIno, &i.NewIno); err != nil {
		return i, fmt.Errorf("exchange journal: %w", err)
	}
	for _, p := range f.PreImages {
		if _, err := snapshot.ParsePath(p.Path); err != nil {
			return i, fmt.Errorf("exchange journal: %w", err)
		}
		d, err := snapshot.ParseBlob(p.Blob)
		if err != nil {
			return i, fmt.Errorf("exchange journal: %w", err)
		}
		i.PreImages[p.Path] = d
	}
	i.Evidence, err = hex.DecodeString(f.Evidence)
	return i, err
}

// Recover ends the exchanges of the workspace that a crash left: before the
// exchange the new tree is removed, after it the receipt is stored (completed)
// and the old tree removed. Areas of other workspaces in the same parent are
// left alone. Running it twice changes nothing.
func Recover(ctx context.Context, env Env, completed func(ctx context.Context, r commit.Recovered) error) ([]commit.Recovered, error) {
	dir, name := filepath.Split(env.RootPath)
	if name == "" {
		return nil, nil
	}
	parent, err := env.FS.OpenRoot(dir)
	if err != nil {
		return nil, nil // a parent that cannot be read was never written by us
	}
	defer parent.Close()
	es, err := parent.List()
	if err != nil {
		return nil, nil
	}
	slices.SortFunc(es, func(a, b vfs.DirEntry) int { return strings.Compare(a.Name, b.Name) })
	var out []commit.Recovered
	for _, e := range es {
		if !strings.HasPrefix(e.Name, areaPrefix(name)) || ctx.Err() != nil {
			continue
		}
		r, mine, err := recoverOne(ctx, parent, e.Name, name, completed)
		if err != nil {
			return out, fmt.Errorf("recover exchange %.200q: %w", e.Name, err)
		}
		if mine {
			out = append(out, r)
		}
	}
	return out, ctx.Err()
}

func recoverOne(ctx context.Context, parent vfs.Dir, areaName, root string, completed func(context.Context, commit.Recovered) error) (r commit.Recovered, mine bool, err error) {
	st, err := parent.Lstat(areaName)
	if err != nil || st.Kind != vfs.KindDir {
		return r, false, nil
	}
	area, err := parent.OpenDir(areaName)
	if err != nil {
		return r, false, nil
	}
	defer area.Close()
	if ps, err := parent.Stat(); err != nil || st.Perm&0o077 != 0 || st.Dev != ps.Dev {
		return r, false, nil // not made by us: ours are 0700
	}
	i, err := readIntent(area)
	if errors.Is(err, errNoIntent) {
		r = commit.Recovered{TxID: strings.TrimPrefix(areaName, areaPrefix(root)), Outcome: commit.RolledBack}
		return r, true, drop(parent, area, areaName)
	}
	if err != nil {
		return r, false, err
	}
	if i.Root != root {
		return r, false, nil
	}
	now, err := parent.Lstat(root)
	if err != nil {
		return r, false, err
	}
	r = commit.Recovered{TxID: i.TxID, Tag: i.Tag, Outcome: commit.RolledBack}
	for p := range i.PreImages {
		r.Paths = append(r.Paths, p)
	}
	slices.Sort(r.Paths)
	switch now.Ino {
	case i.OldIno:
		return r, true, drop(parent, area, areaName)
	case i.NewIno:
		r.Outcome, r.Evidence = commit.Committed, i.Evidence
		if err := completed(ctx, r); err != nil {
			return r, false, err
		}
		r.Notes, err = clean(parent, area, areaName, root, i.PreImages)
		return r, true, err
	}
	r.Notes = []string{"the workspace directory was replaced by somebody else; the trees of the exchange stay in " + areaName}
	return r, false, nil
}

// drop removes an area whose tree was never published.
func drop(parent, area vfs.Dir, name string) error {
	if err := removeTree(area); err != nil {
		return err
	}
	return parent.Rmdir(name)
}

// removeTree removes everything in d, links as links.
func removeTree(d vfs.Dir) error {
	es, err := d.List()
	if err != nil {
		return err
	}
	for _, e := range es {
		st, err := d.Lstat(e.Name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		if st.Kind != vfs.KindDir {
			if err := d.Unlink(e.Name); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
			continue
		}
		sub, err := d.OpenDir(e.Name)
		if err != nil {
			return err
		}
		if st.Perm&0o700 != 0o700 {
			err = sub.Chmod(0o700) // a copy of a directory that its owner made read-only
		}
		if err == nil {
			err = removeTree(sub)
		}
		sub.Close()
		if err != nil {
			return err
		}
		if err := d.Rmdir(e.Name); err != nil {
			return err
		}
	}
	return nil
}

// clean removes the old tree after an exchange. A file goes only if the
// workspace has another name for it, or it is a pre-image of the plan with
// exactly the recorded bytes; anything else was put there by somebody who still
// had the old directory open, and stays, with a note.
func clean(parent, area vfs.Dir, areaName, root string, pre map[string]snapshot.Digest) (notes []string, err error) {
	old, err := area.OpenDir(treeName)
	if err == nil {
		kept, cerr := cleanDir(old, ".", pre)
		old.Close()
		if cerr != nil {
			return nil, fmt.Errorf("remove the old tree: %w", cerr)
		}
		if len(kept) > 0 {
			return []string{fmt.Sprintf("somebody wrote to the old tree during the exchange; %s stays in %s beside the workspace", strings.Join(kept, ", "), areaName)}, nil
		}
		if err := area.Rmdir(treeName); err != nil {
			return nil, err
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if err := area.Unlink(journalName); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return nil, parent.Rmdir(areaName)
}

func cleanDir(d vfs.Dir, path string, pre map[string]snapshot.Digest) (kept []string, err error) {
	es, err := d.List()
	if err != nil {
		return nil, err
	}
	for _, e := range es {
		p := join(path, e.Name)
		st, err := d.Lstat(e.Name)
		if err != nil {
			return kept, err
		}
		if st.Kind == vfs.KindDir {
			sub, err := d.OpenDir(e.Name)
			if err != nil {
				return kept, err
			}
			if st.Perm&0o700 != 0o700 {
				if err := sub.Chmod(st.Perm | 0o700); err != nil {
					sub.Close()
					return kept, err
				}
			}
			k, err := cleanDir(sub, p, pre)
			sub.Close()
			kept = append(kept, k...)
			if err != nil {
				return kept, err
			}
			if len(k) == 0 {
				if err := d.Rmdir(e.Name); err != nil {
					return kept, err
				}
			}
			continue
		}
		ok := st.Nlink > 1
		if want, is := pre[p]; !ok && is {
			switch st.Kind {
			case vfs.KindFile:
				sum, err := hashAt(d, e.Name)
				if err != nil {
					return kept, err
				}
				ok = sum == want
			case vfs.KindSymlink:
				target, err := d.Readlink(e.Name)
				if err != nil {
					return kept, err
				}
				ok = snapshot.DigestOf([]byte(target)) == want
			}
		}
		if !ok {
			kept = append(kept, fmt.Sprintf("%.200q", p))
			continue
		}
		if err := d.Unlink(e.Name); err != nil {
			return kept, err
		}
	}
	return kept, nil
}
