package editplan

import (
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
	files, err := m.files(p)
	switch {
	case err != nil:
		return err
	case len(files) == 0:
		m.refuse(refusal.UnsupportedOperation, p.String(), "an empty directory is there; plans remove files, and directories that become empty by that")
		return nil
	case !op.Options.Recursive:
		m.refuse(refusal.NotEmpty, p.String(), "the directory holds %d files, and recursive is not set", len(files))
		return nil
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
	files, err := m.files(from)
	if err != nil {
		return err
	}
	if len(files) == 0 {
		m.refuse(refusal.UnsupportedOperation, from.String(), "an empty directory is there; plans move files")
		return nil
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
// that are empty are warned of, because no plan can take them along.
func (m *lspImporter) files(dir snapshot.Path) ([]snapshot.Path, error) {
	found := map[snapshot.Path]bool{}
	for p, s := range m.walk.slots {
		if p.Within(dir) && s.state.Kind != Absent {
			found[p] = true
		}
	}
	if err := m.liveFiles(dir, found); err != nil {
		return nil, err
	}
	var out []snapshot.Path
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
	return out, nil
}

func (m *lspImporter) liveFiles(dir snapshot.Path, found map[snapshot.Path]bool) error {
	st, err := m.walk.liveState(dir)
	if err != nil || st.Kind != IsDir {
		return err
	}
	names, err := m.view.Reader.Names(dir)
	if err != nil {
		return err
	}
	slices.Sort(names)
	if len(names) == 0 {
		m.warn("the empty directory %.200q stays where it is", dir)
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
		if st.Kind == IsDir {
			if err := m.liveFiles(p, found); err != nil {
				return err
			}
			continue
		}
		found[p] = true
	}
	return nil
}
