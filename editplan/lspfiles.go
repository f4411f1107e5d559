package editplan

import (
	"fmt"
	"slices"

	"github.com/aspengine/asp/internal/refusal"
	"github.com/aspengine/asp/snapshot"
)

// create makes an empty file. Where something is, overwrite wins over
// ignoreIfExists.
func (m *lspImporter) create(op lspFileOperation, label string) error {
	p, ok := m.path(op.URI)
	if !ok {
		return nil
	}
	st, err := m.walk.now(p)
	switch {
	case err != nil:
		return err
	case st.Kind == Absent || !op.Options.Overwrite && !op.Options.IgnoreIfExists:
		return m.do(Draft{Kind: Create, Path: p.String(), HasContent: true, Message: label})
	case op.Options.Overwrite && st.Kind == IsFile:
		return m.do(Draft{Kind: Modify, Path: p.String(), Expected: st.Digest, HasContent: true, Message: label})
	case op.Options.Overwrite:
		m.refuse(refusal.Exists, p.String(), "%s is there; only a regular file can be overwritten", st.Kind)
	}
	return nil
}

// delete removes a file, or with recursive every file of a directory.
func (m *lspImporter) delete(op lspFileOperation, label string) error {
	p, ok := m.path(op.URI)
	if !ok {
		return nil
	}
	st, err := m.walk.now(p)
	switch {
	case err != nil:
		return err
	case st.Kind == Absent && op.Options.IgnoreIfNotExists:
		return nil
	case st.Kind != IsDir:
		return m.do(Draft{Kind: Delete, Path: p.String(), Expected: st.Digest, Message: label})
	}
	files, ok, err := m.files(p)
	switch {
	case err != nil:
		return err
	case len(files) == 0 && !ok:
		return nil
	case len(files) == 0:
		m.refuse(refusal.UnsupportedOperation, p.String(), "an empty directory is there; plans remove files, and directories that become empty by that")
		return nil
	case !op.Options.Recursive:
		m.refuse(refusal.NotEmpty, p.String(), "the directory holds %d files, and recursive is not set", len(files))
		return nil
	}
	if err := m.noteIgnored(p, files, "deleted"); err != nil {
		return err
	}
	for _, f := range files {
		st, err := m.walk.now(f)
		if err != nil {
			return err
		}
		if err := m.do(Draft{Kind: Delete, Path: f.String(), Expected: st.Digest, Message: label}); err != nil {
			return err
		}
	}
	return nil
}

// rename moves a file, or every file of a directory.
func (m *lspImporter) rename(op lspFileOperation, label string) error {
	from, ok := m.path(op.OldURI)
	to, ok2 := m.path(op.NewURI)
	if !ok || !ok2 {
		return nil
	}
	if from == to {
		m.warn("rename of %.200q to itself is left out", from)
		return nil
	}
	st, err := m.walk.now(from)
	if err != nil {
		return err
	}
	target, err := m.walk.now(to)
	if err != nil {
		return err
	}
	if st.Kind != Absent && target.Kind != Absent {
		switch {
		case op.Options.Overwrite && target.Kind == IsFile && st.Kind == IsFile:
			if err := m.do(Draft{Kind: Delete, Path: to.String(), Expected: target.Digest, Message: label}); err != nil {
				return err
			}
		case op.Options.Overwrite:
			m.refuse(refusal.Exists, to.String(), "%s is there; only a regular file can be overwritten, by a regular file", target.Kind)
			return nil
		case op.Options.IgnoreIfExists:
			return nil
		}
	}
	if st.Kind != IsDir {
		if to.Within(from) && st.Kind == IsFile {
			m.refuse(refusal.PathInvalid, to.String(), "lies inside the file %.200q that would move there", from)
			return nil
		}
		return m.do(Draft{Kind: Rename, Path: from.String(), To: to.String(), Expected: st.Digest, Message: label})
	}
	return m.renameDir(from, to, target, label)
}

func (m *lspImporter) renameDir(from, to snapshot.Path, target State, label string) error {
	if to.Within(from) {
		m.refuse(refusal.PathInvalid, to.String(), "lies inside the directory %.200q that would move there", from)
		return nil
	}
	if target.Kind != Absent {
		m.refuse(refusal.Exists, to.String(), "%s is there", target.Kind)
		return nil
	}
	files, ok, err := m.files(from)
	if err != nil {
		return err
	}
	if len(files) == 0 && !ok {
		return nil
	}
	if len(files) == 0 {
		m.refuse(refusal.UnsupportedOperation, from.String(), "an empty directory is there; plans move files")
		return nil
	}
	if err := m.noteIgnored(from, files, "moved"); err != nil {
		return err
	}
	for _, f := range files {
		st, err := m.walk.now(f)
		if err != nil {
			return err
		}
		d := Draft{Kind: Rename, Path: f.String(), To: to.String() + f.String()[len(from.String()):], Expected: st.Digest, Message: label}
		if err := m.do(d); err != nil {
			return err
		}
	}
	return nil
}

// files lists what is in a directory now, at any depth, sorted; directories
// that are empty are warned of, because no plan can take them along. ok is false
// if something in it was refused, so that the directory cannot go as a whole.
func (m *lspImporter) files(dir snapshot.Path) (out []snapshot.Path, ok bool, err error) {
	found := map[snapshot.Path]bool{}
	before := len(m.refused)
	for p, s := range m.walk.slots {
		if p.Within(dir) && s.state.Kind != Absent {
			found[p] = true
		}
	}
	// What a sparse checkout leaves out is in the directory and not on disk: the change
	// would do a part of it, and nobody would see which.
	info, err := m.info([]snapshot.Path{dir})
	if err != nil {
		return nil, false, err
	}
	if left := info[0].LeftOut; left != "" {
		m.refuse(refusal.NotCheckedOut, dir.String(), "holds %.200q, which the sparse checkout leaves out; add it with `git sparse-checkout add` first, so that the directory goes as a whole", left)
	}
	var empty []snapshot.Path
	if err := m.liveFiles(dir, found, &empty); err != nil {
		return nil, false, err
	}
	if err := m.stay(empty); err != nil {
		return nil, false, err
	}
	for p := range found {
		out = append(out, p)
	}
	slices.SortFunc(out, func(a, b snapshot.Path) int {
		switch {
		case a.String() < b.String():
			return -1
		case a.String() > b.String():
			return 1
		}
		return 0
	})
	return out, len(m.refused) == before, nil
}

// stay warns of empty directories, but one in which a submodule belongs, which was
// never fetched, is the submodule's.
func (m *lspImporter) stay(empty []snapshot.Path) error {
	info, err := m.info(empty)
	if err != nil {
		return err
	}
	for i, p := range empty {
		if info[i].InSubmodule {
			m.refuse(refusal.OtherRepository, p.String(), "is a submodule, which no plan can take along; move or remove it with git")
			continue
		}
		m.warn("the empty directory %.200q stays where it is", p)
	}
	return nil
}

// info is what the repository says of paths; nothing, where nobody can be asked.
func (m *lspImporter) info(paths []snapshot.Path) ([]snapshot.PathInfo, error) {
	if m.view.Info == nil || len(paths) == 0 {
		return make([]snapshot.PathInfo, len(paths)), nil
	}
	return m.view.Info(paths)
}

// ignoredShown is how many ignored files a warning names.
const ignoredShown = 3

// noteIgnored warns of ignored files that go with their directory: no commit has
// them, and whoever asks for a directory of sources to go may not think of them.
func (m *lspImporter) noteIgnored(dir snapshot.Path, files []snapshot.Path, how string) error {
	info, err := m.info(files)
	if err != nil {
		return err
	}
	n, names := 0, ""
	for i, p := range files {
		if !info[i].Ignored {
			continue
		}
		if n++; n <= ignoredShown {
			names += fmt.Sprintf(", %.200q", p)
		}
	}
	if n > ignoredShown {
		names += ", …"
	}
	if n > 0 {
		m.warn("ignored files, which no commit has, are %s with the directory %.200q: %d (%s)", how, dir, n, names[2:])
	}
	return nil
}

func (m *lspImporter) liveFiles(dir snapshot.Path, found map[snapshot.Path]bool, empty *[]snapshot.Path) error {
	st, err := m.walk.liveState(dir)
	if err != nil || st.Kind != IsDir {
		return err
	}
	names, barred, err := m.view.Reader.Names(dir)
	if err != nil {
		return err
	}
	if barred != nil {
		m.bar(dir, barred)
		return nil
	}
	slices.Sort(names)
	if len(names) == 0 {
		*empty = append(*empty, dir)
	}
	for _, n := range names {
		p, err := snapshot.ParsePath(dir.String() + "/" + n)
		if err != nil {
			m.refuse(refusal.PathInvalid, dir.String(), "the directory holds %.200q, which no plan can name", n)
			continue
		}
		if _, bad := ProtectedPath(p); bad {
			m.refuse(refusal.PathProtected, p.String(), "the directory holds a protected name")
			continue
		}
		if m.walk.slots[p] != nil {
			continue // the plan touched it: in found if it is still there
		}
		st, err := m.walk.liveState(p)
		if err != nil {
			return err
		}
		switch st.Kind {
		case IsDir:
			if err := m.liveFiles(p, found, empty); err != nil {
				return err
			}
			continue
		case Absent:
			// Listed and yet nothing: it must not be looked at. A directory says why;
			// for anything else the walk refuses the operation.
			_, barred, err := m.view.Reader.Names(p)
			if err != nil {
				return err
			}
			if barred != nil {
				m.bar(p, barred)
				continue
			}
		}
		found[p] = true
	}
	return nil
}

// bar refuses the change because of a directory that must not be looked into: what
// is in it would stay, and the change be half done.
func (m *lspImporter) bar(p snapshot.Path, why *refusal.Item) {
	it := *why
	it.Op, it.Path = m.at, p.String()
	m.refused = append(m.refused, it)
}
