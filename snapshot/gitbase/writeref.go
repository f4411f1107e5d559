package gitbase

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/aspengine/asp/internal/refusal"
	"github.com/aspengine/asp/internal/vfs"
)

const noCommit = "0000000000000000000000000000000000000000"

// RefPlan is a reference as it was read, to be moved by compare-and-swap.
type RefPlan struct {
	r    *Repo
	Name string // full: refs/…
	Old  string // commit it points at, "" where it does not exist
}

// RefName makes the full name of what a user calls a reference: refs/… as it
// is, anything else the branch of that name. The text is the reason why it is no
// name, by the rules of git check-ref-format.
func RefName(s string) (name, why string) {
	if s == "HEAD" || s == "@" {
		return "", "names whatever is checked out; name a branch"
	}
	name = s
	if !strings.HasPrefix(s, "refs/") {
		name = "refs/heads/" + s
	}
	if b, ok := strings.CutPrefix(name, "refs/heads/"); ok && (b == "HEAD" || strings.HasPrefix(b, "-")) {
		return "", "is no name for a branch"
	}
	return name, refFormat(name)
}

func refFormat(name string) string {
	switch {
	case len(name) > 1024:
		return "is longer than 1024 bytes"
	case strings.Contains(name, ".."):
		return "holds two dots in a row"
	case strings.Contains(name, "@{"):
		return "holds @{"
	case strings.HasSuffix(name, "."):
		return "ends with a dot"
	case strings.Count(name, "/") < 2: // refs/stash too: its commits have a form of their own
		return "has no name below refs/<kind>/"
	}
	for i := range len(name) {
		if c := name[i]; c < ' ' || c == 0x7f || strings.IndexByte(` ~^:?*[\`, c) >= 0 {
			return fmt.Sprintf("holds the byte %q", c)
		}
	}
	for c := range strings.SplitSeq(name, "/") {
		switch {
		case c == "":
			return "has an empty component"
		case c[0] == '.':
			return "has a component that starts with a dot"
		case strings.HasSuffix(c, ".lock"):
			return "has a component that ends with .lock"
		}
	}
	return ""
}

// PlanRef reads a reference and finds out whether it can be moved. Refused are
// names that are none, symbolic references, tags that are objects, names that
// collide with another (refs/heads/a and refs/heads/a/b), and branches that some
// work tree has checked out or is rebasing: moving those would make a clean
// work tree look changed.
func (r *Repo) PlanRef(name string) (*RefPlan, refusal.List, error) {
	p, it, err := r.planRef(name)
	if err != nil {
		return nil, nil, fmt.Errorf("look at reference %.200q: %w", name, err)
	}
	if it.Code != "" {
		return nil, refusal.List{it}, nil
	}
	return p, nil, nil
}

func (r *Repo) planRef(given string) (*RefPlan, refusal.Item, error) {
	refuse := func(format string, a ...any) (*RefPlan, refusal.Item, error) {
		return nil, refusal.New(refusal.UnsupportedOperation, "", -1, format, a...), nil
	}
	name, why := RefName(given)
	if why != "" {
		return refuse("the reference %q %s", clip(given), why)
	}
	where, err := r.checkedOut(name)
	if err != nil {
		return nil, refusal.Item{}, err
	}
	if where != "" {
		return refuse("%q is checked out in %q, and moving it would make that work tree look changed; name another branch", clip(name), where)
	}
	p := &RefPlan{r: r, Name: name}
	old, err := p.read()
	if errors.Is(err, errSymbolic) {
		return refuse("%q is a symbolic reference; name what it points at", clip(name))
	}
	if err != nil {
		return nil, refusal.Item{}, err
	}
	p.Old = old
	if old == "" {
		other, err := r.collides(name)
		if err != nil {
			return nil, refusal.Item{}, err
		}
		if other != "" {
			return refuse("%q cannot be made while %q is there", clip(name), clip(other))
		}
		return p, refusal.Item{}, nil
	}
	id, err := parseOID(old)
	if err != nil {
		return nil, refusal.Item{}, err
	}
	typ := ""
	if err := r.objs.with(id, func(t string, _ int64, _ io.Reader) error { typ = t; return nil }); err != nil {
		return nil, refusal.Item{}, err
	}
	if typ != "commit" {
		return refuse("%q points at no commit, so that it cannot be the parent of one", clip(name))
	}
	if err := r.objs.check(id, typ); err != nil {
		return nil, refusal.Item{}, err
	}
	return p, refusal.Item{}, nil
}

func clip(s string) string {
	if len(s) > 200 {
		return s[:200] + "…"
	}
	return s
}

var errSymbolic = errors.New("symbolic reference")

// read returns the value of the reference now, "" when it does not exist.
func (p *RefPlan) read() (string, error) {
	b, err := refBytes(p.r.Places, p.Name)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	b = strings.TrimRight(b, " \t\r\n")
	if strings.HasPrefix(b, "ref:") {
		return "", errSymbolic
	}
	if _, err := parseOID(b); err != nil {
		return "", err
	}
	return strings.ToLower(b), nil
}

// dir is the directory that the reference's file lies below.
func (p *RefPlan) dir() string {
	if perWorkTree(p.Name) {
		return p.r.GitDir
	}
	return p.r.Common
}

// checkedOut tells which work tree has the branch checked out, or is in the
// middle of something that will move it.
func (r *Repo) checkedOut(name string) (string, error) {
	dirs := []string{r.Common}
	list, err := os.ReadDir(filepath.Join(r.Common, "worktrees"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	for _, e := range list {
		dirs = append(dirs, filepath.Join(r.Common, "worktrees", e.Name()))
	}
	for _, d := range dirs {
		// Every step of a chain of symbolic references counts.
		at := "HEAD"
		for range maxSymref {
			b, err := refBytes(Places{GitDir: d, Common: r.Common}, at)
			if err != nil {
				break // unborn, or a work tree that is not whole
			}
			next, ok := strings.CutPrefix(strings.TrimRight(b, " \t\r\n"), "ref:")
			if !ok {
				break
			}
			if at = strings.TrimLeft(next, " \t"); at == name {
				return r.workTreeOf(d), nil
			}
			if !validRef(at) {
				break
			}
		}
		for _, f := range []string{"rebase-merge/head-name", "rebase-apply/head-name", "BISECT_START"} {
			b, err := readLine(filepath.Join(d, f))
			if b = strings.TrimSpace(b); err == nil && (b == name || "refs/heads/"+b == name) {
				return r.workTreeOf(d), nil
			}
		}
	}
	return "", nil
}

func (r *Repo) workTreeOf(gitDir string) string {
	if gitDir == r.GitDir {
		return r.Places.Root
	}
	if b, err := readLine(filepath.Join(gitDir, "gitdir")); err == nil {
		return filepath.Dir(strings.TrimSpace(b))
	}
	return filepath.Dir(gitDir)
}

// collides names an existing reference that is a directory of name, or has name
// as its directory.
func (r *Repo) collides(name string) (string, error) {
	for i := len("refs/"); i < len(name); i++ {
		if name[i] != '/' {
			continue
		}
		up := name[:i]
		if _, err := refBytes(r.Places, up); err == nil {
			return up, nil
		} else if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR) && !isDirectory(filepath.Join(r.Common, up)) {
			return "", err
		}
	}
	packed, err := readSmall(filepath.Join(r.Common, "packed-refs"), maxRefs)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	for line := range strings.SplitSeq(string(packed), "\n") {
		if _, ref, ok := strings.Cut(line, " "); ok && under(ref, name) {
			return ref, nil
		}
	}
	found := ""
	err = filepath.WalkDir(filepath.Join(r.Common, filepath.FromSlash(name)), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || strings.HasSuffix(path, ".lock") {
			return err
		}
		if found, err = filepath.Rel(r.Common, path); err != nil {
			return err
		}
		return fs.SkipAll
	})
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		err = nil
	}
	return found, err
}

func isDirectory(path string) bool {
	fi, err := os.Lstat(path)
	return err == nil && fi.IsDir()
}

// LockedRef is a reference under git's lock, with its next value written and
// durable in the lock file.
type LockedRef struct {
	p      *RefPlan
	dir    vfs.Dir // that holds the file
	base   string
	commit string
}

// Lock takes git's lock on the reference, compares its value with the one that
// was planned on, and writes the next value. The lock file comes into being with
// its content, by a link to a file that is whole: so a crash leaves a lock that
// can be told from anybody else's by what it says. Refused are busy (the lock is
// held) and changed-underneath (the value is another one).
func (p *RefPlan) Lock(w *ObjectWriter, fsys vfs.FS, commit string) (l *LockedRef, items refusal.List, err error) {
	l = &LockedRef{p: p, base: p.Name[strings.LastIndexByte(p.Name, '/')+1:], commit: commit}
	defer func() {
		if err != nil || len(items) > 0 {
			if l.dir != nil {
				_ = l.dir.Close()
			}
			l = nil
			p.removeRefDirs()
		}
		if err != nil {
			err = fmt.Errorf("lock reference %.200q: %w", p.Name, err)
		}
	}()
	if l.dir, err = makeRefDir(fsys, p.dir(), p.Name[:strings.LastIndexByte(p.Name, '/')], w.perm); err != nil {
		return l, nil, err
	}
	tmp := w.r.tempName()
	f, err := w.root.Create(tmp, 0o666)
	if err != nil {
		return l, nil, err
	}
	_, err = f.Write([]byte(commit + "\n"))
	if err == nil {
		err = w.perm.file(f)
	}
	if err == nil {
		err = f.Sync()
	}
	err = errors.Join(err, f.Close())
	if err == nil {
		err = w.root.Link(tmp, l.dir, l.base+".lock")
	}
	held, busy := err == nil, errors.Is(err, fs.ErrExist)
	if busy {
		err = nil
	}
	err = errors.Join(err, w.root.Unlink(tmp))
	if err == nil && held {
		// What is decided next may lie on another file system: a lock that a
		// power cut forgets must not be what recovery looks for.
		err = l.dir.Sync()
	}
	if err != nil && held {
		err = errors.Join(err, l.unlink())
	}
	if err != nil {
		return l, nil, err
	}
	if busy {
		return l, refusal.List{refusal.New(refusal.Busy, "", -1, "%q is there: another git process is at work on this reference; if none is, remove that file", filepath.Join(p.dir(), p.Name+".lock"))}, nil
	}
	now, err := p.read()
	if err == nil && now != p.Old {
		items = refusal.List{refusal.New(refusal.ChangedUnderneath, "", -1, "%q was %s and is %s now; look at it and stage again", clip(p.Name), word(p.Old), word(now))}
	}
	if err == nil && len(items) == 0 {
		// git clears empty directories out of the way of a new file, too.
		err = removeEmptyDirs(l.dir, l.base)
	}
	if err != nil || len(items) > 0 {
		err = errors.Join(err, l.unlink())
	}
	return l, items, err
}

func word(commit string) string {
	if commit == "" {
		return "absent"
	}
	return commit
}

// Publish puts the next value in place and makes that durable. After an error
// the lock is still there and Publish may be tried again.
func (l *LockedRef) Publish() error {
	err := l.dir.Rename(l.base+".lock", l.dir, l.base, vfs.Replace)
	if err == nil {
		err = l.dir.Sync()
	}
	if err != nil {
		return fmt.Errorf("update reference %.200q: %w", l.p.Name, err)
	}
	return nil
}

// Abandon gives the lock back; the reference is as it was. Directories that were
// made for it go with it.
func (l *LockedRef) Abandon() error { return l.unlink() }

func (l *LockedRef) unlink() error {
	err := l.dir.Unlink(l.base + ".lock")
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	l.p.removeRefDirs()
	return err
}

// Close releases the handle.
func (l *LockedRef) Close() error { return l.dir.Close() }

// removeRefDirs removes the directories of the reference that hold nothing, up
// to refs/<kind>. Nobody minds one that is left.
func (p *RefPlan) removeRefDirs() {
	for d := filepath.Dir(p.Name); strings.Count(d, "/") >= 2; d = filepath.Dir(d) {
		if err := syscall.Rmdir(filepath.Join(p.dir(), d)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return
		}
	}
}

// ReopenRef finds the lock that a dead process left on a reference with the
// value it was to get. ok is false when there is none; directories that were
// made for it and hold nothing are removed then.
func (r *Repo) ReopenRef(fsys vfs.FS, name, commit string) (l *LockedRef, ok bool, err error) {
	p := &RefPlan{r: r, Name: name}
	if full, why := RefName(name); why != "" || full != name {
		return nil, false, fmt.Errorf("%.200q is no reference name", name)
	}
	l = &LockedRef{p: p, base: name[strings.LastIndexByte(name, '/')+1:], commit: commit}
	l.dir, err = fsys.OpenRoot(filepath.Join(p.dir(), filepath.Dir(name)))
	if errors.Is(err, fs.ErrNotExist) {
		p.removeRefDirs()
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	b, err := readLine(filepath.Join(p.dir(), name+".lock"))
	if err != nil || b != commit+"\n" {
		if errors.Is(err, fs.ErrNotExist) {
			err = nil
			p.removeRefDirs()
		}
		return nil, false, errors.Join(err, l.dir.Close())
	}
	return l, true, nil
}

// makeRefDir opens the directory rel below base and makes what is missing of it.
func makeRefDir(fsys vfs.FS, base, rel string, perm sharedPerm) (vfs.Dir, error) {
	d, err := fsys.OpenRoot(base)
	if err != nil {
		return nil, err
	}
	for c := range strings.SplitSeq(rel, "/") {
		next, err := d.OpenDir(c)
		if errors.Is(err, fs.ErrNotExist) {
			if err = d.Mkdir(c, 0o777); err == nil || errors.Is(err, fs.ErrExist) {
				if next, err = d.OpenDir(c); err == nil {
					err = errors.Join(perm.dir(next), d.Sync())
				}
			}
		}
		if err != nil {
			_ = d.Close()
			return nil, err
		}
		_ = d.Close()
		d = next
	}
	return d, nil
}

// removeEmptyDirs removes the directory name if there are only directories in it.
func removeEmptyDirs(d vfs.Dir, name string) error {
	st, err := d.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) || err == nil && st.Kind != vfs.KindDir {
		return nil
	}
	if err != nil {
		return err
	}
	sub, err := d.OpenDir(name)
	if err != nil {
		return err
	}
	defer sub.Close()
	names, err := sub.List()
	if err != nil {
		return err
	}
	for _, e := range names {
		if err := removeEmptyDirs(sub, e.Name); err != nil {
			return err
		}
	}
	return d.Rmdir(name)
}

// AppendReflog adds a line to the reference's log where git would: when there is
// a log, or the configuration (or its default) asks for one. A line that is
// there already is not added again. Not synced: nothing depends on it.
func (l *LockedRef) AppendReflog(ctx context.Context, old string, who Identity, at time.Time, message string) error {
	r := l.p.r
	cfg, err := loadConfig(ctx, r.Places, Head{})
	if err != nil {
		return err
	}
	path := filepath.Join(l.p.dir(), "logs", filepath.FromSlash(l.p.Name))
	_, err = os.Lstat(path)
	fresh := errors.Is(err, fs.ErrNotExist)
	if fresh && !wantsReflog(cfg, l.p.Name) {
		return nil
	}
	fi, err := os.Stat(l.p.dir())
	if err != nil {
		return err
	}
	uid, gid, give := giveTo(fi)
	for dir := l.p.dir(); dir != filepath.Dir(path); { // one after the other, so that each is given away
		rest := strings.TrimPrefix(filepath.Dir(path), dir+string(filepath.Separator))
		first, _, _ := strings.Cut(rest, string(filepath.Separator))
		dir = filepath.Join(dir, first)
		err := os.Mkdir(dir, 0o777)
		if err == nil && give {
			err = os.Lchown(dir, uid, gid)
		}
		if err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_APPEND|os.O_CREATE|noFollow, 0o666)
	if err != nil {
		return err
	}
	defer f.Close()
	if give && fresh {
		if err := f.Chown(uid, gid); err != nil {
			return err
		}
	}
	if old == "" {
		old = noCommit
	}
	if fi, err := f.Stat(); err == nil {
		tail := make([]byte, min(fi.Size(), 8<<10))
		if _, err := f.ReadAt(tail, fi.Size()-int64(len(tail))); err == nil {
			lines := strings.Split(strings.TrimSuffix(string(tail), "\n"), "\n")
			if strings.HasPrefix(lines[len(lines)-1], old+" "+l.commit+" ") {
				return nil
			}
		}
	}
	message, _, _ = strings.Cut(message, "\n")
	_, err = fmt.Fprintf(f, "%s %s %s %d %s\t%s\n", old, l.commit, who, at.Unix(), at.Format("-0700"), message)
	return err
}
