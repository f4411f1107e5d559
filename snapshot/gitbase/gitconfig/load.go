package gitconfig

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/aspengine/asp/snapshot/gitbase/ignore/pattern"
)

// loader collects entries over the files of one Load.
type loader struct {
	o     Options
	files int
	all   []Entry
	urls  []string // addresses of remotes, for includeIf hasconfig
	asked bool     // some includeIf hasconfig was met
}

// load reads everything, and once more when an include depends on the
// addresses of remotes: those may stand in any file, later ones too. Files
// included for that reason may not name remotes themselves (git refuses it),
// so twice is enough.
func (l *loader) load(ctx context.Context) error {
	if err := l.sequence(ctx); err != nil || !l.asked {
		return err
	}
	for _, e := range l.all {
		if strings.HasPrefix(e.Key, "remote.") && strings.HasSuffix(e.Key, ".url") && e.HasValue {
			l.urls = append(l.urls, e.Value)
		}
	}
	if len(l.urls) == 0 {
		return nil
	}
	l.all, l.files = nil, 0
	return l.sequence(ctx)
}

func (l *loader) sequence(ctx context.Context) error {
	if l.o.CommonDir == "" {
		l.o.CommonDir = l.o.GitDir
	}
	var paths []string
	if l.o.System != "" {
		paths = append(paths, l.o.System)
	}
	if dir := l.o.xdgDir(); dir != "" {
		paths = append(paths, filepath.Join(dir, "git/config"))
	}
	if l.o.Home != "" {
		paths = append(paths, filepath.Join(l.o.Home, ".gitconfig"))
	}
	for _, p := range paths {
		if err := l.file(ctx, p, 0); err != nil {
			return err
		}
	}
	if l.o.CommonDir == "" {
		return nil
	}
	repo := filepath.Join(l.o.CommonDir, "config")
	if err := l.file(ctx, repo, 0); err != nil {
		return err
	}
	// Git looks for the extension in the repository's own file alone: no
	// include and no user setting can switch it on.
	own := &Config{}
	for _, e := range l.all {
		if e.Origin == repo {
			own.entries = append(own.entries, e)
		}
	}
	own.index()
	on, err := own.Bool("extensions.worktreeConfig", false)
	if err != nil || !on || l.o.GitDir == "" {
		return err
	}
	return l.file(ctx, filepath.Join(l.o.GitDir, "config.worktree"), 0)
}

// xdgDir is the directory that git/config lies in; empty when unknown.
func (o Options) xdgDir() string {
	switch {
	case o.XDGConfigHome != "":
		return o.XDGConfigHome
	case o.Home != "":
		return filepath.Join(o.Home, ".config")
	default:
		return ""
	}
}

// file reads one file with its includes. A missing file has no entries.
func (l *loader) file(ctx context.Context, path string, depth int) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if depth > MaxDepth {
		return fmt.Errorf("read configuration %.200q: %w: includes nested deeper than %d", path, ErrLimit, MaxDepth)
	}
	if l.files++; l.files > MaxFiles {
		return fmt.Errorf("read configuration %.200q: %w: more than %d files", path, ErrLimit, MaxFiles)
	}
	b, err := readFile(path)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read configuration: %w", err)
	}
	entries, err := Parse(b)
	if err != nil {
		return fmt.Errorf("read configuration %.200q: %w", path, err)
	}
	for _, e := range entries {
		e.Origin = path
		l.all = append(l.all, e)
		include, err := l.includes(e.Key, path)
		if err == nil && include {
			err = l.include(ctx, e, path, depth)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// include reads the file that an include.path names.
func (l *loader) include(ctx context.Context, e Entry, from string, depth int) error {
	if !e.HasValue {
		return fmt.Errorf("read configuration %.200q: %w: %.200q without a path", from, ErrValue, e.Key)
	}
	p, err := l.o.expand(e.Value, false)
	if err != nil {
		return fmt.Errorf("read configuration %.200q: include %.200q: %w", from, e.Value, err)
	}
	if !filepath.IsAbs(p) {
		p = filepath.Join(filepath.Dir(from), p)
	}
	return l.file(ctx, p, depth+1)
}

// includes tells whether key is an include whose condition holds. Conditions
// that are not known do not hold, as in git.
func (l *loader) includes(key, from string) (bool, error) {
	if key == "include.path" {
		return true, nil
	}
	cond, ok := strings.CutPrefix(key, "includeif.")
	if !ok {
		return false, nil
	}
	if cond, ok = strings.CutSuffix(cond, ".path"); !ok {
		return false, nil
	}
	if pat, ok := strings.CutPrefix(cond, "gitdir:"); ok {
		return l.gitDirMatches(pat, from, false)
	}
	if pat, ok := strings.CutPrefix(cond, "gitdir/i:"); ok {
		return l.gitDirMatches(pat, from, true)
	}
	if pat, ok := strings.CutPrefix(cond, "onbranch:"); ok && l.o.Branch != "" {
		return pattern.Glob(deepen(pat), l.o.Branch, true, false), nil
	}
	if pat, ok := strings.CutPrefix(cond, "hasconfig:remote.*.url:"); ok {
		l.asked = true
		match := func(url string) bool { return pattern.Glob(pat, url, true, false) }
		return slices.ContainsFunc(l.urls, match), nil
	}
	return false, nil
}

// deepen makes a pattern that ends in a slash match everything below.
func deepen(pat string) string {
	if strings.HasSuffix(pat, "/") {
		return pat + "**"
	}
	return pat
}

// gitDirMatches compares the git directory, first with links resolved, then as
// it was given.
func (l *loader) gitDirMatches(pat, from string, fold bool) (bool, error) {
	if l.o.GitDir == "" {
		return false, nil
	}
	if p, err := l.o.expand(pat, true); err == nil {
		pat = p
	}
	exact := 0 // bytes that are no pattern: the directory of the file, in "./"
	switch {
	case strings.HasPrefix(pat, "./"):
		real, err := filepath.EvalSymlinks(from)
		if err != nil {
			return false, fmt.Errorf("read configuration: %w", err)
		}
		dir := strings.TrimSuffix(filepath.Dir(real), "/")
		pat = dir + pat[1:]
		exact = len(dir) + 1
	case !filepath.IsAbs(pat):
		pat = "**/" + pat
	}
	pat = deepen(pat)
	texts := []string{l.o.GitDir}
	if real, err := filepath.EvalSymlinks(l.o.GitDir); err == nil {
		texts = []string{real, l.o.GitDir}
	}
	for _, text := range texts {
		if len(text) < exact || len(pat) < exact {
			continue
		}
		same := pat[:exact] == text[:exact] || fold && strings.EqualFold(pat[:exact], text[:exact])
		if same && pattern.Glob(pat[exact:], text[exact:], true, fold) {
			return true, nil
		}
	}
	return false, nil
}

// expand replaces a leading ~/ or ~user/. With real set, links in the home
// directory are resolved.
func (o Options) expand(p string, real bool) (string, error) {
	if strings.HasPrefix(p, "%(prefix)/") {
		return "", fmt.Errorf("%w: %%(prefix) depends on where git is installed", ErrValue)
	}
	rest, ok := strings.CutPrefix(p, "~")
	if !ok {
		return p, nil
	}
	name, rest, slash := strings.Cut(rest, "/")
	home := o.Home
	if name != "" {
		u, err := user.Lookup(name)
		if err != nil {
			return "", fmt.Errorf("%w: no home directory of user %.200q", ErrValue, name)
		}
		home = u.HomeDir
	}
	if home == "" {
		return "", fmt.Errorf("%w: ~ without a home directory", ErrValue)
	}
	if real && name == "" {
		if r, err := filepath.EvalSymlinks(home); err == nil {
			home = r
		}
	}
	if slash {
		home = strings.TrimSuffix(home, "/") + "/" + rest
	}
	return home, nil
}

// readFile reads a regular file within the size limit. Links are followed, as
// git does; nothing that could block or never end is opened for reading.
func readFile(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|noWait, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // opened for reading
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !st.Mode().IsRegular() {
		return nil, &fs.PathError{Op: "read", Path: path, Err: errors.New("not a regular file")}
	}
	b, err := io.ReadAll(io.LimitReader(f, MaxFileSize+1))
	if err == nil && len(b) > MaxFileSize {
		err = &fs.PathError{Op: "read", Path: path, Err: ErrLimit}
	}
	return b, err
}
