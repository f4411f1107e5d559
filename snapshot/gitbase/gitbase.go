// Package gitbase reads git work trees: it finds the repository, resolves HEAD,
// decodes the index, applies git's ignore rules and attributes, and says what
// on disk differs from HEAD's tree. It executes nothing that a repository or
// the environment names (hooks, fsmonitor, filters, pagers, credential
// helpers), looks at no GIT_ variable and writes nothing into a repository; a
// stat cache goes to the trusted state directory. One exception is stated and
// bounded: a split index is read by the git program, with a cleaned
// environment and nothing configurable left on.
//
// It is the only importer of go-git, and only of its format packages.
package gitbase

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/aspengine/asp/internal/vfs"
	"github.com/aspengine/asp/snapshot"
	"github.com/aspengine/asp/snapshot/gitbase/convert"
	"github.com/aspengine/asp/snapshot/gitbase/gitconfig"
	"github.com/aspengine/asp/snapshot/scan"
)

// Repo is an opened git work tree. It implements snapshot.Workspace. It sees
// every later change of configuration, HEAD and index, and holds no descriptor
// between calls but those of packs and, if it is resident, of its watches.
type Repo struct {
	Places
	opts    snapshot.Options
	workers int
	depth   int // of nesting in other repositories
	objs    *objects

	mu    sync.Mutex
	cache *snapshot.StatCache
	moved bool
	// Of a resident work tree, the decoded index and which one it is.
	lastIndex *index
	headFile  headFile
	lastID    fileID

	keep *keeper // nil: not resident
}

// maxDepth bounds how deep repositories are followed inside each other.
const maxDepth = 8

// Open opens the workspace that dir lies in: the work tree of the repository
// found at dir or above it, or, without one, dir itself as a plain directory.
func Open(ctx context.Context, dir string, o snapshot.Options) (snapshot.Workspace, error) {
	p, err := Discover(ctx, dir)
	if errors.Is(err, ErrNoRepository) {
		return snapshot.OpenPlain(ctx, dir, o)
	}
	if err != nil {
		return nil, err
	}
	return openRepo(p, o, 0)
}

// OpenRoot opens exactly root: as a work tree when a repository lies there, as
// a plain directory otherwise, whatever lies above.
func OpenRoot(ctx context.Context, root string, o snapshot.Options) (snapshot.Workspace, error) {
	p, err := discover(ctx, root, false)
	if errors.Is(err, ErrNoRepository) {
		return snapshot.OpenPlain(ctx, root, o)
	}
	if err != nil {
		return nil, err
	}
	return openRepo(p, o, 0)
}

// OpenPlaces is OpenRoot of the work tree that Discover found, without finding it
// again.
func OpenPlaces(ctx context.Context, p Places, o snapshot.Options) (snapshot.Workspace, error) {
	if p.moved { // nothing was found at Root itself yet
		return OpenRoot(ctx, p.Root, o)
	}
	return openRepo(p, o, 0)
}

// Discover finds the repository of dir as Open does, without opening it.
// ErrNoRepository, ErrNoWorkTree, ErrGitFile and *UnsupportedError tell why
// there is none.
func Discover(ctx context.Context, dir string) (Places, error) { return discover(ctx, dir, true) }

func discover(ctx context.Context, dir string, up bool) (Places, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return Places{}, fmt.Errorf("open %.200q: %w", dir, err)
	}
	p, err := find(abs, up)
	if err != nil {
		return p, err
	}
	cfg, err := loadConfig(ctx, p, Head{})
	if err != nil {
		return p, fmt.Errorf("open repository %.200q: %w", p.GitDir, err)
	}
	if err := checkFormat(p, cfg); err != nil {
		return p, err
	}
	return moveRoot(p, cfg, abs)
}

// moveRoot follows core.worktree. Only the repository's own files may set it,
// and a linked work tree is where it is, whatever the shared file says.
func moveRoot(p Places, cfg *gitconfig.Config, dir string) (Places, error) {
	tree, bare := "", false
	for _, e := range cfg.Entries() {
		own := e.Origin == filepath.Join(p.GitDir, "config.worktree") || !p.Linked() && e.Origin == filepath.Join(p.Common, "config")
		switch {
		case own && e.Key == "core.worktree":
			tree = e.Value
		case own && e.Key == "core.bare":
			bare = !e.HasValue || slices.Contains([]string{"true", "yes", "on", "1"}, strings.ToLower(e.Value))
		}
	}
	switch {
	case tree == "" && bare:
		return p, fmt.Errorf("open %.200q: bare repository: %w", p.GitDir, ErrNoWorkTree)
	case tree == "":
		return p, nil
	}
	if !filepath.IsAbs(tree) {
		tree = filepath.Join(p.GitDir, tree)
	}
	root, err := filepath.EvalSymlinks(tree)
	if err != nil {
		return p, fmt.Errorf("open repository %.200q: core.worktree: %w", p.GitDir, err)
	}
	at, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return p, err
	}
	// git would work on the distant tree; a tool that writes must not be sent
	// to files that the user did not point at.
	if rel, err := filepath.Rel(root, at); err != nil || rel == ".." || strings.HasPrefix(rel, "../") {
		return p, fmt.Errorf("open %.200q: the repository's core.worktree is %.200q: open that directory", dir, root)
	}
	p.moved = root != p.Root
	p.Root = root
	return p, nil
}

// checkFormat refuses repositories that could be misread.
func checkFormat(p Places, cfg *gitconfig.Config) error {
	version := 0
	if v, ok := cfg.String("core.repositoryformatversion"); ok {
		n, err := strconv.Atoi(strings.TrimSpace(v))
		if err != nil || n < 0 || n > 1 {
			return &UnsupportedError{p.GitDir, fmt.Sprintf("repository format version %.20q", v), "use a repository of format version 0 or 1"}
		}
		version = n
	}
	for _, e := range cfg.Entries() {
		ext, ok := strings.CutPrefix(e.Key, "extensions.")
		if !ok {
			continue
		}
		v := strings.ToLower(e.Value)
		switch ext {
		case "noop", "noop-v1", "preciousobjects", "partialclone", "worktreeconfig", "relativeworktrees":
			continue
		case "objectformat":
			if v != "sha1" {
				return &UnsupportedError{p.GitDir, fmt.Sprintf("object format %.20q", v), nextSHA256}
			}
		case "refstorage":
			if v != "files" {
				return &UnsupportedError{p.GitDir, fmt.Sprintf("reference storage %.20q", v), "run `git refs migrate --ref-format=files`"}
			}
		default:
			if version >= 1 {
				return &UnsupportedError{p.GitDir, fmt.Sprintf("extension %.40q", ext), "use a repository without it"}
			}
		}
	}
	return nil
}

func openRepo(p Places, o snapshot.Options, depth int) (*Repo, error) {
	r := &Repo{Places: p, opts: o, workers: o.Workers, depth: depth, objs: &objects{common: p.Common}}
	if r.workers <= 0 {
		r.workers = scan.Workers()
	}
	r.cache, _ = snapshot.LoadStatCache(o.State, "git "+p.Root+" "+p.GitDir) // an unreadable cache is an empty one
	return r, nil
}

// Root implements snapshot.Workspace.
func (r *Repo) Root() string { return r.Places.Root }

// Git implements snapshot.Workspace.
func (r *Repo) Git() bool { return true }

// LockDir implements snapshot.Workspace: the git directory of this work tree.
func (r *Repo) LockDir() string { return r.GitDir }

// TxDir implements snapshot.Workspace: <git dir>/asp.
func (r *Repo) TxDir() string { return filepath.Join(r.GitDir, "asp") }

// Protected implements snapshot.Workspace: the git directory, the common
// directory and their object directory, as far as they exist.
func (r *Repo) Protected() []vfs.Stat {
	var out []vfs.Stat
	for _, p := range []string{r.GitDir, r.Common, filepath.Join(r.Common, "objects"), filepath.Join(r.Places.Root, gitDirName)} {
		s, err := scan.LstatPath(p)
		if err == nil && !slices.ContainsFunc(out, snapshot.VFSStat(s).SameFile) {
			out = append(out, snapshot.VFSStat(s))
		}
	}
	return out
}

// Close implements snapshot.Workspace.
func (r *Repo) Close() error {
	if r.keep != nil {
		r.keep.close()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	err := r.objs.close()
	if r.moved {
		r.moved = false
		err = errors.Join(err, r.cache.Store(r.opts.State))
	}
	return err
}

// Head returns what HEAD says now.
func (r *Repo) Head() (Head, error) { return readHead(r.Places) }

// env is the state of everything outside the work tree that a stamp depends
// on, read once for each.
type env struct {
	head     Head
	headTree oid
	memo     string
	conv     convert.Config
	fileMode bool // execute bits mean something
	symlinks bool // links are links
	fold     bool // core.ignorecase

	sysAttr, globalAttr, infoAttr []byte
	globalIgnore, infoIgnore      []byte
	// outside lists files of rules that may lie inside the work tree under
	// other names (core.excludesFile, core.attributesFile): relative paths.
	outside   []string
	outsideOf []int // which of ruleFiles
}

// ruleFiles are the places of what is read from outside the tree's own
// .gitignore and .gitattributes files.
func (e *env) ruleFiles() []*[]byte {
	return []*[]byte{&e.sysAttr, &e.globalAttr, &e.infoAttr, &e.globalIgnore, &e.infoIgnore}
}

// systemConfig and systemAttributes are where Linux distributions keep them.
const (
	systemConfig     = "/etc/gitconfig"
	systemAttributes = "/etc/gitattributes"
	maxRules         = 16 << 20 // bytes in one file of rules
)

func loadConfig(ctx context.Context, p Places, h Head) (*gitconfig.Config, error) {
	home, _ := os.UserHomeDir() // none: git goes without, too
	return gitconfig.Load(ctx, gitconfig.Options{
		System: systemConfig, Home: home, XDGConfigHome: os.Getenv("XDG_CONFIG_HOME"),
		GitDir: p.GitDir, CommonDir: p.Common, Branch: strings.TrimPrefix(h.Ref, "refs/heads/"),
	})
}

func (r *Repo) load(ctx context.Context) (*env, error) {
	e := &env{}
	var err error
	if e.head, err = readHead(r.Places); err != nil {
		return nil, err
	}
	cfg, err := loadConfig(ctx, r.Places, e.head)
	if err != nil {
		return nil, err
	}
	if err := checkFormat(r.Places, cfg); err != nil {
		return nil, err
	}
	if e.conv, err = convert.FromConfig(cfg); err != nil {
		return nil, err
	}
	for _, b := range []struct {
		key string
		def bool
		to  *bool
	}{{"core.filemode", true, &e.fileMode}, {"core.symlinks", true, &e.symlinks}, {"core.ignorecase", false, &e.fold}} {
		if *b.to, err = cfg.Bool(b.key, b.def); err != nil {
			return nil, err
		}
	}
	excludes, err := cfg.ExcludesFile()
	if err != nil {
		return nil, err
	}
	attributes, err := cfg.AttributesFile()
	if err != nil {
		return nil, err
	}
	to := e.ruleFiles()
	for i, path := range []string{systemAttributes, attributes, filepath.Join(r.Common, "info", "attributes"),
		excludes, filepath.Join(r.Common, "info", "exclude")} {
		if path == "" {
			continue
		}
		if !filepath.IsAbs(path) {
			path = filepath.Join(r.Places.Root, path) // as git, which runs at the top
		}
		b, err := readSmall(path, maxRules)
		if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrPermission) {
			return nil, err
		}
		*to[i] = b
		rel, err := filepath.Rel(r.Places.Root, path)
		if rel = filepath.ToSlash(rel); err == nil && !strings.HasPrefix(rel, "../") && !strings.HasPrefix(rel, gitDirName+"/") {
			e.outside, e.outsideOf = append(e.outside, rel), append(e.outsideOf, i)
		}
	}
	return e, r.resolveTree(e)
}

// resolveTree finds HEAD's tree: from the memo of the stat cache when HEAD is
// still the same commit, else from the commit.
func (r *Repo) resolveTree(e *env) (err error) {
	if e.head.Commit == "" {
		e.headTree, err = parseOID(emptyTree)
		return err
	}
	r.mu.Lock()
	memo := r.cache.Memo()
	r.mu.Unlock()
	if c, t, ok := strings.Cut(memo, " "); ok && c == e.head.Commit {
		if e.headTree, err = parseOID(t); err == nil {
			e.memo = memo
			return nil
		}
	}
	if e.headTree, err = r.objs.treeOf(e.head.Commit); err != nil {
		return err
	}
	e.memo = e.head.Commit + " " + e.headTree.String()
	return nil
}
