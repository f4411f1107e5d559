package commit

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"runtime"
	"strings"
	"syscall"

	"github.com/aspengine/asp/apply/journal"
	"github.com/aspengine/asp/internal/refusal"
	"github.com/aspengine/asp/internal/vfs"
)

// newBesideName makes the name of an area beside targets. It is visible to
// globs while the transaction runs, so it says whose it is, and is unguessable,
// so that nobody has it already.
func newBesideName() string {
	var n [16]byte
	_, _ = rand.Read(n[:]) // never fails
	return besidePrefix + hex.EncodeToString(n[:])
}

// makeAreas makes the transaction's directories and begins the journal. An
// area beside a target is made only after the record of it is durable: nothing
// else would lead recovery to it.
func (t *tx) makeAreas(ctx context.Context) error {
	if err := t.makeTxDir(); err != nil {
		return err
	}
	var err error
	if t.w, err = journal.Create(t.areas[0].dir, journalName, t.id, t.o.Tag, t.o.Several > 1, t.log.Areas); err != nil {
		return err
	}
	if err := t.w.Flush(); err != nil {
		return err
	}
	t.chooseStyle()
	if len(t.areas) == 1 {
		return t.areas[0].inspect()
	}
	if err := t.syncAreas(ctx); err != nil {
		return err
	}
	for i, a := range t.areas[1:] {
		name := t.log.Areas[i+1].Beside
		parent, err := t.dirs.get(a.parent.base, a.parent.dir)
		if err != nil {
			return err
		}
		err = parent.Mkdir(name, 0o700)
		if err == nil {
			a.dir, err = parent.OpenDir(name)
		}
		if err == nil {
			err = ownable(a.dir)
		}
		t.dirs.put(parent)
		if err != nil {
			return err
		}
		t.facts.Beside++
	}
	for _, a := range t.areas {
		if err := a.inspect(); err != nil {
			return err
		}
	}
	return nil
}

// inspect notes what new files in the area are given.
func (a *area) inspect() (err error) {
	if a.st, err = a.dir.Stat(); err == nil {
		a.flags = inodeFlags(a.dir)
	}
	return err
}

// ownable gives the owner of a new directory the rights that a default ACL of
// its parent may have left out; everything else stays as it was inherited.
func ownable(d vfs.Dir) error {
	st, err := d.Stat()
	if err != nil || st.Perm&0o700 == 0o700 {
		return err
	}
	return d.Chmod(st.Perm | 0o700)
}

// stage makes every after-image as a name in its area and completes the steps
// with what only the live tree tells: inodes, and that the before-images look
// as admission saw them.
func (t *tx) stage(ctx context.Context) (refusal.List, error) {
	began := now()
	defer func() { t.facts.Stage = since(began) }()
	found := make([]refusal.Item, len(t.jobs))
	err := each(ctx, len(t.jobs), t.workers(len(t.jobs)), func(i int) error {
		item, err := t.stageOne(i)
		if err != nil {
			return fmt.Errorf("%.200q: %w", t.log.Steps[i].Live.String(), err)
		}
		found[i] = item
		return nil
	})
	if err != nil {
		return nil, err
	}
	var items refusal.List
	for _, it := range found {
		if it.Code != "" {
			items = append(items, it)
		}
	}
	return items, nil
}

// workers is how many goroutines share the work on n names.
func (t *tx) workers(n int) int {
	if n < 8 {
		return 1
	}
	return min(runtime.GOMAXPROCS(0), 4)
}

func refused(code refusal.Code, path, format string, a ...any) (refusal.Item, error) {
	return refusal.New(code, path, -1, format, a...), nil
}

// maxKept is for how many steps at most the old file stays open until it is
// compared, and the new one until it is synced; and no more than a share of what the
// process may have open.
const (
	maxKept   = 1024
	keptShare = 16
)

// stageOne stages step i. Only the goroutine that runs it touches the step.
func (t *tx) stageOne(i int) (refusal.Item, error) {
	s, j := &t.log.Steps[i], &t.jobs[i]
	path := s.Live.String()
	keep := i < t.keep
	var src *source
	if from := t.sourceOf(s, j); from.Path != "" {
		var item refusal.Item
		var err error
		if src, item, err = t.openSource(from, t.expected(s, j)); err != nil || item.Code != "" {
			return item, err
		}
		defer func() {
			// The bytes are compared after the swap, through this very handle.
			if src.f != nil && keep && s.Op == journal.Exchange && j.metaFrom == "" && j.after != nil && j.after.Open != nil {
				j.open = src.f
				return
			}
			src.close()
		}()
		if j.metaFrom == "" {
			j.st, s.Before.Ino, s.Before.Size = src.st, src.st.Ino, src.size
			if s.Op == journal.Move {
				s.After = s.Before
			}
		}
	}
	if s.Op == journal.Take || s.Op == journal.Move {
		return refusal.Item{}, nil
	}
	a := t.areas[s.Area].dir
	j.staged = true // from here the name may exist
	switch s.After.Kind {
	case vfs.KindDir:
		if err := a.Mkdir(s.Name, 0o777); err != nil {
			return refusal.Item{}, err
		}
		st, err := a.Lstat(s.Name)
		s.After.Ino, s.After.Perm = st.Ino, st.Perm
		return refusal.Item{}, err
	case vfs.KindSymlink:
		return refusal.Item{}, t.stageLink(a, s, j, src)
	}
	return t.stageFile(a, s, j, src, path, keep)
}

// sourceOf names the live file that must be looked at to stage a step: the one
// displaced, or the one whose metadata a copying move takes along.
func (t *tx) sourceOf(s *journal.Step, j *job) journal.Place {
	switch {
	case j.metaFrom != "":
		return journal.Place{Base: j.base, Path: j.metaFrom}
	case s.Op == journal.Move:
		return live(s.From)
	case s.Op == journal.Put || s.Before.Kind == vfs.KindDir:
		return journal.Place{}
	}
	return s.Live
}

// expected is the image that the source must be.
func (t *tx) expected(s *journal.Step, j *job) *Image {
	if j.metaFrom != "" {
		// The step of a copying move has no before-image; that of its source does.
		return nil
	}
	return j.before
}

// source is a live file or link as it is before the transaction.
type source struct {
	f      vfs.File // nil for a link
	target string
	st     vfs.Stat
	size   int64
}

func (s *source) close() {
	if s.f != nil {
		_ = s.f.Close() // read only
	}
}

// openSource opens what is at a place and compares it with the image that
// admission saw, by all that costs no reading; the bytes are compared on the
// displaced file.
func (t *tx) openSource(p journal.Place, want *Image) (*source, refusal.Item, error) {
	none := func(code refusal.Code, format string, a ...any) (*source, refusal.Item, error) {
		return nil, refusal.New(code, p.String(), -1, format, a...), nil
	}
	dir, name := split(p.Path)
	d, err := t.dirs.get(p.Base, dir)
	if err != nil {
		if unreachable(err) && !errors.Is(err, errProtected) {
			return none(refusal.ChangedUnderneath, "the directory %.200q is not there any more", dir)
		}
		return nil, refusal.Item{}, err
	}
	defer t.dirs.put(d)
	src := &source{}
	f, err := d.Open(name)
	switch {
	case err == nil:
		src.f = f
		src.st, err = f.Stat()
	case errors.Is(err, syscall.ELOOP) || errors.Is(err, syscall.EINVAL):
		if src.st, err = d.Lstat(name); err == nil && src.st.Kind == vfs.KindSymlink {
			src.target, err = d.Readlink(name)
		}
	}
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return none(refusal.ChangedUnderneath, "it is not there any more")
	}
	if err != nil {
		src.close()
		return nil, refusal.Item{}, err
	}
	src.size = src.st.Size
	if src.st.Kind == vfs.KindSymlink {
		src.size = int64(len(src.target))
	}
	switch {
	case src.st.MntID != d.st.MntID || src.st.Dev != d.st.Dev:
		src.close()
		return none(refusal.CrossDevice, "it is itself a mount point")
	case t.dirs.protected(src.st):
		src.close()
		return none(refusal.PathProtected, "it is a protected file")
	case want != nil && differs(src, want) != "":
		defer src.close()
		return none(refusal.ChangedUnderneath, "%s; look at it and propose again", differs(src, want))
	}
	return src, refusal.Item{}, nil
}

// differs says in words how the file differs from the image, "" if it does not
// as far as stat tells.
func differs(s *source, want *Image) string {
	switch {
	case s.st.Kind != want.Kind:
		return fmt.Sprintf("it is a %s now", word(s.st.Kind))
	case want.Stat.Ino != 0 && s.st.Ino != want.Stat.Ino:
		return "another file has taken its place"
	case s.size != want.Size:
		return fmt.Sprintf("it has %d bytes now, expected were %d", s.size, want.Size)
	case want.Kind == vfs.KindFile && s.st.Perm != want.Perm&0o7777:
		return fmt.Sprintf("its mode is %04o now, expected was %04o", s.st.Perm, want.Perm&0o7777)
	}
	return ""
}

func (t *tx) stageLink(a vfs.Dir, s *journal.Step, j *job, src *source) error {
	target := ""
	switch {
	case j.after.Open != nil:
		r, err := j.after.Open()
		if err != nil {
			return err
		}
		b, err := io.ReadAll(io.LimitReader(r, vfs.MaxTarget))
		if err = errors.Join(err, r.Close()); err != nil {
			return err
		}
		target = string(b)
	case src != nil && src.f == nil:
		target = src.target
	default:
		return errors.New("after-image without bytes")
	}
	d, n, err := sum(strings.NewReader(target))
	if err != nil {
		return err
	}
	if d != j.after.Digest {
		return ErrContent
	}
	if err := a.Symlink(target, s.Name); err != nil {
		return err
	}
	st, err := a.Lstat(s.Name)
	s.After.Ino, s.After.Size, s.After.Perm = st.Ino, n, st.Perm
	return err
}

// stageFile writes one after-image. Its owner, ACL, extended attributes and
// flags are those of the source, if there is one, and it is readable by nobody
// else until they are.
func (t *tx) stageFile(a vfs.Dir, s *journal.Step, j *job, src *source, path string, keep bool) (refusal.Item, error) {
	file := src != nil && src.st.Kind == vfs.KindFile // a link's bits are all set and say nothing
	exact := !j.after.UmaskApplies || file
	perm := j.after.Perm & 0o7777
	if file && (j.after.UmaskApplies || perm == 0 && j.metaFrom != "" && !j.aside) {
		perm = src.st.Perm
	}
	// The area is closed to others, and the name never has more permissions than
	// it ends with: where the umask takes nothing away no chmod is needed.
	// Bits beyond them only come when the owner is right.
	f, err := a.Create(s.Name, perm&0o777)
	if err != nil {
		return refusal.Item{}, err
	}
	item, err := t.fill(f, s, j, src, path, perm, exact)
	if err == nil && item.Code == "" && t.facts.Style == SyncEach {
		_ = f.StartWriteback() // a hint; the sync that counts comes later
		if keep {
			j.made = f
			return item, nil
		}
	}
	if cerr := f.Close(); err == nil && cerr != nil {
		err = cerr
	}
	return item, err
}

func (t *tx) fill(f vfs.File, s *journal.Step, j *job, src *source, path string, perm uint32, exact bool) (refusal.Item, error) {
	var r io.ReadCloser
	var err error
	switch {
	case j.after.Open != nil:
		if r, err = j.after.Open(); err != nil {
			return refusal.Item{}, err
		}
	case src != nil && src.f != nil:
		r = io.NopCloser(src.f)
	default:
		return refusal.Item{}, errors.New("after-image without bytes")
	}
	sc := scratches.Get().(*scratch)
	d, n, err := sc.copy(f, r, -1)
	scratches.Put(sc)
	if err = errors.Join(err, r.Close()); err != nil {
		return refusal.Item{}, err
	}
	if d != j.after.Digest {
		if j.after.Open == nil {
			return refused(refusal.ChangedUnderneath, path, "its bytes are not the expected ones; look at it and propose again")
		}
		return refusal.Item{}, ErrContent
	}
	if src != nil {
		if why, err := t.keepMetadata(f, t.areas[s.Area], src); err != nil || why != "" {
			return refusal.New(refusal.Metadata, path, -1, "%s", why), err
		}
	}
	if src == nil && s.Live.Base != "" && os.Geteuid() == 0 {
		// In the git directory of somebody else root leaves nothing of its own.
		st, err := t.env.Extra[s.Live.Base].Stat()
		if err == nil {
			err = f.Chown(st.UID, st.GID)
		}
		if err != nil {
			return refusal.Item{}, err
		}
	}
	st, err := f.Stat()
	if err != nil {
		return refusal.Item{}, err
	}
	if exact && st.Perm != perm {
		if err := f.Chmod(perm); err != nil {
			if errors.Is(err, fs.ErrPermission) {
				return refused(refusal.Metadata, path, "mode %04o cannot be set", perm)
			}
			return refusal.Item{}, err
		}
		if st, err = f.Stat(); err != nil {
			return refusal.Item{}, err
		}
	}
	if exact && st.Perm != perm || src != nil && (st.UID != src.st.UID || st.GID != src.st.GID) {
		return refused(refusal.Metadata, path, "owner %d:%d and mode %04o cannot be kept", st.UID, st.GID, perm)
	}
	s.After.Ino, s.After.Perm, s.After.Size = st.Ino, st.Perm, n
	return refusal.Item{}, nil
}

// keepMetadata gives f the owner, extended attributes (ACLs among them) and
// inode flags of the source. why is set when something cannot be kept.
func (t *tx) keepMetadata(f vfs.File, a *area, src *source) (why string, err error) {
	if src.f == nil {
		return "", nil
	}
	// A new file has the owner of its area, which was made by the same rules; the
	// last look at the staged file would show if not. The owner comes first:
	// changing it clears setuid bits and capabilities.
	if a.st.UID != src.st.UID || a.st.GID != src.st.GID {
		if err := f.Chown(src.st.UID, src.st.GID); err != nil {
			if refusesMetadata(err) {
				return fmt.Sprintf("owner %d:%d cannot be kept", src.st.UID, src.st.GID), nil
			}
			return "", err
		}
	}
	want, err := src.f.Xattrs()
	if err != nil {
		return "", err
	}
	var have map[string][]byte
	if a.inherits {
		if have, err = f.Xattrs(); err != nil {
			return "", err
		}
	}
	for name := range have {
		if _, ok := want[name]; !ok {
			return fmt.Sprintf("a new file here gets the attribute %.200q, which the old one has not", name), nil
		}
	}
	for name, v := range want {
		if old, ok := have[name]; ok && bytes.Equal(old, v) {
			continue
		}
		if err := f.SetXattr(name, v); err != nil {
			if refusesMetadata(err) {
				return fmt.Sprintf("the attribute %.200q cannot be kept", name), nil
			}
			return "", err
		}
	}
	return keepFlags(f, src.f, a.flags)
}

// refusesMetadata tells an answer of the file system ("not this attribute")
// from a failure.
func refusesMetadata(err error) bool {
	return errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.ENOTSUP) || errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.ENOSYS)
}
