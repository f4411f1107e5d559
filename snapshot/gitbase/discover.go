package gitbase

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Places is where the parts of a repository lie: absolute paths, links in them
// resolved.
type Places struct {
	Root   string // the work tree
	GitDir string // this work tree's own: HEAD, index
	Common string // shared by all work trees: objects, refs, config

	moved bool // Root is where core.worktree says, and not where .git lies
}

// Linked tells whether the work tree is one of several of its repository.
func (p Places) Linked() bool { return p.GitDir != p.Common }

var (
	// ErrNoRepository says that no repository was found at or above a directory.
	ErrNoRepository = errors.New("no git repository")
	// ErrNoWorkTree says that a directory is (inside) a git directory, or that
	// the repository is bare: there are no files to look at.
	ErrNoWorkTree = errors.New("a git directory, not a work tree")
	// ErrGitFile says that a .git file does not name a git directory.
	ErrGitFile = errors.New("not a valid .git file")
)

// UnsupportedError names a repository format that is not read, and what to do.
type UnsupportedError struct {
	GitDir string
	What   string // "object format sha256"
	Next   string // what the user can do
}

func (e *UnsupportedError) Error() string {
	return fmt.Sprintf("open repository %.200q: %s is not supported; %s", e.GitDir, e.What, e.Next)
}

// Limits on the small files of a git directory: each holds one line.
const (
	maxLine    = 8 << 10
	maxRefs    = 512 << 20
	maxSymref  = 5 // as many as git follows
	gitDirName = ".git"
)

// find looks for a repository at dir and, if up is set, above it, as git does
// without any GIT_ variable. dir is absolute.
func find(dir string, up bool) (Places, error) {
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return Places{}, err
	}
	for {
		p, err := at(dir)
		if err == nil || !errors.Is(err, ErrNoRepository) {
			return p, err
		}
		parent := filepath.Dir(dir)
		if !up || parent == dir {
			return Places{}, fmt.Errorf("find repository at %.200q: %w", dir, ErrNoRepository)
		}
		dir = parent
	}
}

// at looks for a repository whose .git lies in dir.
func at(dir string) (Places, error) {
	g := filepath.Join(dir, gitDirName)
	fi, err := os.Lstat(g)
	if err == nil && fi.Mode()&fs.ModeSymlink != 0 {
		fi, err = os.Stat(g)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission):
	case err != nil:
		return Places{}, err
	case fi.IsDir():
		if common, err := commonOf(g); err == nil {
			return places(dir, g, common)
		}
		// An empty or broken .git directory is no repository, as git sees it.
	case fi.Mode().IsRegular():
		target, err := gitFile(g)
		if err != nil {
			return Places{}, err
		}
		common, err := commonOf(target)
		if err != nil {
			return Places{}, fmt.Errorf("read %.200q: %w: %.200q is no git directory", g, ErrGitFile, target)
		}
		return places(dir, target, common)
	}
	if _, err := commonOf(dir); err == nil {
		return Places{}, fmt.Errorf("open %.200q: %w", dir, ErrNoWorkTree)
	}
	return Places{}, ErrNoRepository
}

func places(root, gitDir, common string) (Places, error) {
	var err error
	p := Places{Root: root}
	if p.GitDir, err = filepath.EvalSymlinks(gitDir); err != nil {
		return p, err
	}
	p.Common, err = filepath.EvalSymlinks(common)
	return p, err
}

// gitFile reads "gitdir: PATH". The target must be a directory: a .git file
// that names another file is not followed, so there are no loops.
func gitFile(path string) (string, error) {
	b, err := readLine(path)
	if err != nil {
		return "", err
	}
	t, ok := strings.CutPrefix(b, "gitdir: ")
	t = strings.TrimRight(t, "\r\n")
	if !ok || t == "" || strings.IndexByte(t, 0) >= 0 {
		return "", fmt.Errorf("read %.200q: %w", path, ErrGitFile)
	}
	if !filepath.IsAbs(t) {
		t = filepath.Join(filepath.Dir(path), t)
	}
	return t, nil
}

// commonOf tells whether dir is a git directory, and which directory it shares
// with its other work trees.
func commonOf(dir string) (string, error) {
	if fi, err := os.Lstat(filepath.Join(dir, "HEAD")); err != nil || fi.IsDir() {
		return "", ErrNoRepository
	}
	common := dir
	if l, err := readLine(filepath.Join(dir, "commondir")); err == nil {
		l = strings.TrimRight(l, "\r\n")
		if l == "" || strings.IndexByte(l, 0) >= 0 {
			return "", ErrNoRepository
		}
		if !filepath.IsAbs(l) {
			l = filepath.Join(dir, l)
		}
		common = l
	}
	for _, sub := range []string{"objects", "refs"} {
		if fi, err := os.Stat(filepath.Join(common, sub)); err != nil || !fi.IsDir() {
			return "", ErrNoRepository
		}
	}
	return common, nil
}

// readLine reads a small file whole. Anything that is not a small regular file
// (a FIFO would block us) is refused unread.
func readLine(path string) (string, error) {
	b, err := readSmall(path, maxLine)
	return string(b), err
}

func readSmall(path string, limit int64) ([]byte, error) {
	fi, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !fi.Mode().IsRegular() || fi.Size() > limit {
		return nil, &fs.PathError{Op: "read", Path: path, Err: fmt.Errorf("no regular file of at most %d bytes", limit)}
	}
	f, err := openRegular(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(b)) > limit {
		err = &fs.PathError{Op: "read", Path: path, Err: fmt.Errorf("more than %d bytes", limit)}
	}
	return b, err
}

// Head is what HEAD says.
type Head struct {
	Ref    string // the branch it names at the end of its chain, "" when detached
	Commit string // 40 hex digits, "" for a branch without a commit yet
}

// readHead resolves HEAD.
func readHead(p Places) (Head, error) {
	h, name := Head{}, "HEAD"
	for range maxSymref + 1 {
		b, err := refBytes(p, name)
		if errors.Is(err, fs.ErrNotExist) && name != "HEAD" {
			return h, nil // unborn
		}
		if err != nil {
			return h, fmt.Errorf("read reference %.200q: %w", name, err)
		}
		b = strings.TrimRight(b, " \t\r\n")
		if t, ok := strings.CutPrefix(b, "ref:"); ok {
			name = strings.TrimLeft(t, " \t")
			if !validRef(name) {
				return h, fmt.Errorf("read reference: %.200q is no reference name", name)
			}
			h.Ref = name
			continue
		}
		if len(b) == 64 {
			return h, &UnsupportedError{p.GitDir, "object format sha256", nextSHA256}
		}
		if _, err := hex.DecodeString(b); err != nil || len(b) != 40 {
			return h, fmt.Errorf("read reference %.200q: no object id in it", name)
		}
		h.Commit = strings.ToLower(b)
		return h, nil
	}
	return h, fmt.Errorf("read reference %.200q: more than %d symbolic references in a row", name, maxSymref)
}

const nextSHA256 = "use a repository with SHA-1 object ids"

// refBytes returns the content of a reference: loose first, then packed.
func refBytes(p Places, name string) (string, error) {
	dir := p.Common
	if perWorkTree(name) {
		dir = p.GitDir
	}
	path := filepath.Join(dir, filepath.FromSlash(name))
	if t, err := os.Readlink(path); err == nil && strings.HasPrefix(t, "refs/") {
		return "ref: " + t, nil // the old way to write a symbolic reference
	}
	b, err := readLine(path)
	if err == nil {
		return b, nil
	}
	if name == "HEAD" {
		return "", err
	}
	// A missing file, or a directory of that name: the reference may be packed.
	packed, perr := readSmall(filepath.Join(p.Common, "packed-refs"), maxRefs)
	if errors.Is(perr, fs.ErrNotExist) {
		return "", fs.ErrNotExist
	}
	if perr != nil {
		return "", perr
	}
	needle := []byte(" " + name + "\n")
	for rest := packed; ; {
		i := bytes.Index(rest, needle)
		if i < 0 {
			return "", fs.ErrNotExist
		}
		if i >= 40 && (i == 40 || rest[i-41] == '\n') {
			return string(rest[i-40 : i]), nil
		}
		if i >= 64 && (i == 64 || rest[i-65] == '\n') {
			return string(rest[i-64 : i]), nil
		}
		rest = rest[i+1:]
	}
}

// perWorkTree tells whether a reference belongs to one work tree alone.
func perWorkTree(name string) bool {
	return !strings.HasPrefix(name, "refs/") || strings.HasPrefix(name, "refs/bisect/") ||
		strings.HasPrefix(name, "refs/worktree/") || strings.HasPrefix(name, "refs/rewritten/")
}

// validRef keeps names from leaving the git directory; it is not all of git's
// rules.
func validRef(name string) bool {
	if !strings.HasPrefix(name, "refs/") || strings.ContainsAny(name, "\x00\n \\") {
		return false
	}
	for c := range strings.SplitSeq(name, "/") {
		if c == "" || c[0] == '.' || strings.Contains(c, "..") {
			return false
		}
	}
	return true
}
