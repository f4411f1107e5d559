package gitbase

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/aspengine/asp/snapshot"
)

// ErrNoRevision says that a name means no commit of the repository.
var ErrNoRevision = errors.New("no such revision")

// Revision is a commit, by the tree that it has. The zero Revision is the empty
// tree, as before the first commit.
type Revision struct {
	Commit string
	tree   oid
}

// Rev is the tree as a baseline names it.
func (v Revision) Rev() string {
	if v.Commit == "" {
		return treePrefix + emptyTree
	}
	return treePrefix + v.tree.String()
}

const treePrefix = "git:tree:"

// Revision finds the commit that a name means, in any spelling that git knows:
// HEAD is looked up here, everything else by the git program, which then reads
// nothing but references and commits. ErrNoRevision without one.
func (r *Repo) Revision(ctx context.Context, name string) (Revision, error) {
	commit := ""
	if name == "HEAD" {
		h, err := r.Head()
		if err != nil {
			return Revision{}, err
		}
		if h.Commit == "" {
			return Revision{}, nil
		}
		commit = h.Commit
	} else {
		var err error
		if commit, err = r.askGit(ctx, name); err != nil {
			return Revision{}, err
		}
	}
	tree, err := r.objs.treeOf(commit)
	if err != nil {
		return Revision{}, fmt.Errorf("read revision %.200q: %w", name, err)
	}
	return Revision{commit, tree}, nil
}

// MergeBase is the commit at which HEAD left the history of the commit that a name
// means: the one that `git diff NAME...` compares with. Where there are several,
// it is the one that git takes. ErrNoRevision if the name means none, or the two
// have no commit in common, as in a clone that is too shallow.
func (r *Repo) MergeBase(ctx context.Context, name string) (Revision, error) {
	v, err := r.Revision(ctx, name)
	if err != nil {
		return Revision{}, err
	}
	h, err := r.Head()
	if err != nil {
		return Revision{}, err
	}
	if v.Commit == "" || h.Commit == "" || v.Commit == h.Commit {
		return v, nil
	}
	commit, err := r.gitCommit(ctx, "merge-base", v.Commit, h.Commit)
	if err != nil {
		return Revision{}, fmt.Errorf("where HEAD and %.200q part: %w", name, err)
	}
	tree, err := r.objs.treeOf(commit)
	if err != nil {
		return Revision{}, fmt.Errorf("read revision %.200q: %w", commit, err)
	}
	return Revision{commit, tree}, nil
}

// askGit resolves a name by the git program.
func (r *Repo) askGit(ctx context.Context, name string) (string, error) {
	if name == "" || len(name) > 1000 || strings.ContainsAny(name, "\x00\n") || strings.Contains(name, "..") {
		return "", fmt.Errorf("%.200q: %w", name, ErrNoRevision)
	}
	commit, err := r.gitCommit(ctx, "rev-parse", "--verify", "--quiet", "--end-of-options", name+"^{commit}")
	if err != nil {
		return "", fmt.Errorf("look up revision %.200q: %w", name, err)
	}
	return commit, nil
}

// gitCommit runs the git program, confined as in indexFromGit, for the name of one
// commit. ErrNoRevision when it says that there is none.
func (r *Repo) gitCommit(ctx context.Context, args ...string) (string, error) {
	bin, err := exec.LookPath("git")
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, bin, append([]string{"--no-pager", "--no-optional-locks",
		"-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null", "-c", "safe.directory=*",
		"--git-dir=" + r.GitDir, "--work-tree=" + r.Places.Root}, args...)...)
	cmd.Dir = r.Places.Root
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "LC_ALL=C", "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null",
		"GIT_OPTIONAL_LOCKS=0", "GIT_NO_REPLACE_OBJECTS=1", "GIT_NO_LAZY_FETCH=1", "GIT_TERMINAL_PROMPT=0", "GIT_PAGER=cat",
	}
	var out, msg capped
	out.max, msg.max = 4<<10, 4<<10
	cmd.Stdout, cmd.Stderr = &out, &msg
	err = cmd.Run()
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return "", ctx.Err()
	case errors.As(err, &exit) && len(out.b) == 0:
		return "", ErrNoRevision
	case err != nil:
		return "", fmt.Errorf("%w: %.200q", err, msg.b)
	}
	id, err := parseOID(string(bytes.TrimSpace(out.b)))
	if err != nil {
		return "", err
	}
	return id.String(), nil
}

// Stored is a file as git stores it: not the working bytes where line ends or
// filters differ. The zero Stored is no file.
type Stored struct {
	Mode snapshot.FileMode
	id   oid
}

// IsZero tells whether there is no file.
func (s Stored) IsZero() bool { return s.Mode == 0 }

// Difference is a path at which two states differ, by what git stores.
type Difference struct {
	Path     string // raw bytes of the name
	From, To Stored
}

// FileAt is HeadFile at another revision.
func (r *Repo) FileAt(ctx context.Context, v Revision, p snapshot.Path, limit int64) ([]byte, error) {
	st, err := r.StoredAt(ctx, v, p)
	if err != nil {
		return nil, err
	}
	if st.Mode != snapshot.ModeRegular && st.Mode != snapshot.ModeExecutable {
		return nil, ErrNotInHead
	}
	return r.Content(ctx, st, limit)
}

// StoredAt is what a revision has at a path; the zero Stored for nothing, or for
// a directory.
func (r *Repo) StoredAt(ctx context.Context, v Revision, p snapshot.Path) (Stored, error) {
	if v.Commit == "" {
		return Stored{}, nil
	}
	id := v.tree
	parts := strings.Split(p.String(), "/")
	for i, name := range parts {
		if err := ctx.Err(); err != nil {
			return Stored{}, err
		}
		var at treeEntry
		err := r.objs.tree(id, func(n string, te treeEntry) error {
			if n == name {
				at = te
			}
			return nil
		})
		if err != nil {
			return Stored{}, err
		}
		switch last := i == len(parts)-1; {
		case last && at.mode != modeTree:
			return stored(at), nil
		case last || at.mode != modeTree:
			return Stored{}, nil
		}
		id = at.id
	}
	return Stored{}, nil
}

func stored(te treeEntry) Stored { return Stored{snapshot.FileMode(te.mode), te.id} }

// Content reads a stored file, at most limit bytes.
func (r *Repo) Content(ctx context.Context, s Stored, limit int64) ([]byte, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	var out []byte
	err := r.objs.blob(s.id, func(size int64, rd io.Reader) error {
		if size > limit {
			return fmt.Errorf("%d bytes are more than %d", size, limit)
		}
		var err error
		out, err = io.ReadAll(io.LimitReader(rd, limit+1))
		return err
	})
	return out, err
}

// Digest hashes a stored file without holding it.
func (r *Repo) Digest(ctx context.Context, s Stored) (d snapshot.Digest, size int64, err error) {
	if err := ctx.Err(); err != nil {
		return d, 0, err
	}
	err = r.objs.blob(s.id, func(_ int64, rd io.Reader) error {
		h := sha256.New()
		n, err := io.Copy(h, rd)
		size = n
		h.Sum(d[:0])
		return err
	})
	return d, size, err
}

// DifferencesToHead lists where HEAD's tree differs from a revision's, sorted by
// path. Trees that both have are not read.
func (r *Repo) DifferencesToHead(ctx context.Context, from Revision) ([]Difference, error) {
	head, err := r.Revision(ctx, "HEAD")
	if err != nil {
		return nil, err
	}
	var out []Difference
	if err := r.diffTrees(ctx, "", from.treeID(), head.treeID(), &out); err != nil {
		return nil, fmt.Errorf("compare with revision: %w", err)
	}
	slices.SortFunc(out, func(a, b Difference) int { return strings.Compare(a.Path, b.Path) })
	return out, nil
}

func (v Revision) treeID() oid {
	if v.Commit == "" {
		id, _ := parseOID(emptyTree)
		return id
	}
	return v.tree
}

// diffTrees compares two trees; the zero id is no tree.
func (r *Repo) diffTrees(ctx context.Context, dir string, a, b oid, out *[]Difference) error {
	if a == b {
		return nil
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	type pair struct{ a, b treeEntry }
	m := map[string]pair{}
	read := func(id oid, put func(*pair, treeEntry)) error {
		if id == (oid{}) {
			return nil
		}
		return r.objs.tree(id, func(name string, te treeEntry) error {
			p := m[name]
			put(&p, te)
			m[name] = p
			return nil
		})
	}
	if err := read(a, func(p *pair, te treeEntry) { p.a = te }); err != nil {
		return err
	}
	if err := read(b, func(p *pair, te treeEntry) { p.b = te }); err != nil {
		return err
	}
	for name, p := range m {
		if p.a == p.b {
			continue
		}
		var sub [2]oid
		var file [2]Stored
		for i, te := range []treeEntry{p.a, p.b} {
			if te.mode == modeTree {
				sub[i] = te.id
			} else if te.mode != 0 {
				file[i] = stored(te)
			}
		}
		if file[0] != file[1] {
			*out = append(*out, Difference{dir + name, file[0], file[1]})
		}
		if err := r.diffTrees(ctx, dir+name+"/", sub[0], sub[1], out); err != nil {
			return err
		}
	}
	return nil
}

// DifferencesToIndex lists where the index differs from a revision, sorted by path.
// Unmerged paths are in it with the mode of a submodule, which nothing can
// judge either.
func (r *Repo) DifferencesToIndex(ctx context.Context, from Revision) ([]Difference, error) {
	x, _, err := r.index(ctx)
	if err != nil {
		return nil, fmt.Errorf("compare with index: %w", err)
	}
	m := map[string]Difference{}
	var all []Difference
	if err := r.diffTrees(ctx, "", from.treeID(), oid{}, &all); err != nil {
		return nil, fmt.Errorf("compare with index: %w", err)
	}
	for _, d := range all {
		m[d.Path] = d
	}
	for i := range x.entries {
		e := &x.entries[i]
		if e.flags&(inIndex|unmerged) == 0 || e.flags&intentOnly != 0 {
			continue // git would not commit what it was only told to expect (git add -N)
		}
		d := m[e.path]
		d.Path = e.path
		d.To = Stored{snapshot.FileMode(canonicalMode(x.mode(e))), x.id(e)}
		if e.flags&unmerged != 0 {
			d.To.Mode = snapshot.ModeGitlink
		}
		m[e.path] = d
	}
	var out []Difference
	for _, d := range m {
		if d.From != d.To {
			out = append(out, d)
		}
	}
	slices.SortFunc(out, func(a, b Difference) int { return strings.Compare(a.Path, b.Path) })
	return out, nil
}

// InIndex is what the index has at the paths given; paths that it does not have,
// or only expects (git add -N), are not in the result.
func (r *Repo) InIndex(ctx context.Context, paths []string) (map[string]Stored, error) {
	x, _, err := r.index(ctx)
	if err != nil {
		return nil, fmt.Errorf("read index: %w", err)
	}
	out := map[string]Stored{}
	for _, p := range paths {
		i, ok := slices.BinarySearchFunc(x.entries, p, func(e entry, p string) int { return strings.Compare(e.path, p) })
		if ok && x.entries[i].flags&(inIndex|intentOnly) == inIndex {
			out[p] = Stored{snapshot.FileMode(canonicalMode(x.mode(&x.entries[i]))), x.id(&x.entries[i])}
		}
	}
	return out, nil
}
