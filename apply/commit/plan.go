package commit

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"syscall"

	"github.com/aspengine/asp/apply/journal"
	"github.com/aspengine/asp/internal/refusal"
	"github.com/aspengine/asp/internal/vfs"
	"github.com/aspengine/asp/snapshot"
)

// The order of the swaps. Directories come before what goes into them, and a
// file takes a directory's place after everything has left it. Exchanges come
// before the rest because they are the ones most often refused, and the undo is
// then short. Within a rank the order is by path, which keeps the handle cache
// small.
const (
	rankDir = iota
	rankExchange
	rankPut
	rankMove
	rankTake
	rankFileOverDir
	rankExtra
)

// planner turns changes into steps. It reads directories and writes nothing.
type planner struct {
	t       *tx
	changes map[string]*Change
	parents map[string]bool // directories above any path of the plan
	leaves  map[string]bool // directories that a path leaves
	homes   map[homeKey]home
	fresh   map[string]bool // directories that the plan makes
	steps   []planned
	items   refusal.List
}

type planned struct {
	journal.Step
	job
	rank int
}

// home is where names of some directory are staged.
type home struct {
	mount int
	area  int
}

// homeKey: names that are new in a directory may need another area than those
// that replace a name there.
type homeKey struct {
	dir string
	new bool
}

// plan fills t.log.Steps, t.jobs, t.areas and t.mounts.
func (t *tx) plan(changes []Change) (items refusal.List, err error) {
	if err = t.findHolder(); err != nil {
		return nil, err
	}
	st, err := t.holder.Stat()
	if err != nil {
		return nil, err
	}
	m, err := t.mountOf(t.holder, st)
	if err != nil {
		return nil, err
	}
	t.areas = []*area{{mount: m, inherits: inherits(t.holder, st)}}
	t.log.TxID, t.log.Tag = t.id, t.o.Tag
	t.log.Areas = []journal.Area{{Dir: "."}}
	p := &planner{
		t: t, changes: map[string]*Change{}, parents: map[string]bool{}, leaves: map[string]bool{},
		homes: map[homeKey]home{}, fresh: map[string]bool{}, steps: make([]planned, 0, len(changes)+len(t.o.Extra)),
	}
	if err := p.index(changes); err != nil {
		return nil, err
	}
	for i := range changes {
		if err := p.add(&changes[i]); err != nil {
			return nil, err
		}
	}
	for i := range t.o.Extra {
		if err := p.addExtra(&t.o.Extra[i]); err != nil {
			return nil, err
		}
	}
	p.finish()
	return p.items, nil
}

// index checks that the changes make sense together.
func (p *planner) index(changes []Change) error {
	if len(changes)+len(p.t.o.Extra) > journal.MaxSteps/2 {
		return fmt.Errorf("%d changes: %w", len(changes), journal.ErrTooLarge)
	}
	for i := range changes {
		c := &changes[i]
		s := c.Path.String()
		if c.Path.IsZero() || p.changes[s] != nil {
			return fmt.Errorf("change of %.200q: no path, or twice in the plan", s)
		}
		if c.Before == nil && c.After == nil {
			return fmt.Errorf("change of %.200q: neither before nor after", s)
		}
		for _, im := range []*Image{c.Before, c.After} {
			if im != nil && (im.Kind != vfs.KindFile && im.Kind != vfs.KindSymlink || im.Digest.IsZero()) {
				return fmt.Errorf("change of %.200q: not the image of a file or link", s)
			}
		}
		p.changes[s] = c
		for _, d := range c.Path.Parents() {
			p.parents[d.String()] = true
		}
	}
	for i := range changes {
		c := &changes[i]
		if c.From.IsZero() {
			continue
		}
		from := p.changes[c.From.String()]
		if from == nil || from.Before == nil || from.After != nil || from.MovedTo != c.Path || c.Before != nil || c.After == nil {
			return fmt.Errorf("change of %.200q: its source is not moved here", c.Path.String())
		}
	}
	return nil
}

// pure tells whether the inode itself moves from c.From.
func (p *planner) pure(c *Change) bool {
	if c.From.IsZero() || c.After.Open != nil || c.After.UmaskApplies {
		return false
	}
	from := p.changes[c.From.String()]
	// Where one path becomes a directory on the way of the other there is no single
	// rename that does it, and where the old name becomes any directory the file is not
	// there any more when it would be moved: directories come first. It is then copied.
	if c.From.Within(c.Path) || c.Path.Within(c.From) || p.parents[c.From.String()] {
		return false
	}
	return c.After.Kind == vfs.KindSymlink || c.After.Perm == from.Before.Perm || c.After.Perm == 0
}

func (p *planner) add(c *Change) error {
	switch {
	case c.After == nil && c.MovedTo.IsZero():
		return p.addTake(c)
	case c.After == nil:
		if to := p.changes[c.MovedTo.String()]; to == nil || to.From != c.Path {
			return fmt.Errorf("change of %.200q: nothing is moved from here", c.Path.String())
		} else if p.pure(to) {
			return nil // done by the step of the destination
		}
		if c.Before.Stat.Nlink > 1 {
			p.refuse(refusal.HardLinked, c.Path.String(), "has %d hard links, and a move after which its old name is a directory makes a new file: that would split it from the others. Make it a file of its own first (cp, mv)", c.Before.Stat.Nlink)
			return nil
		}
		return p.addTake(c)
	case c.Before != nil:
		return p.addExchange(c)
	case p.pure(c):
		return p.addMove(c)
	}
	return p.addPut(c)
}

func (p *planner) refuse(c refusal.Code, path, format string, a ...any) {
	p.items = append(p.items, refusal.New(c, path, -1, format, a...))
}

// parent returns where names of the existing directory of path are staged; ok
// is false if it refused.
func (p *planner) parent(path string) (h home, ok bool, err error) {
	dir, _ := split(path)
	key := homeKey{dir, false}
	if h, ok := p.homes[key]; ok {
		return h, true, nil
	}
	d, err := p.t.dirs.get("", dir)
	if err != nil {
		if unreachable(err) && !errors.Is(err, errProtected) {
			p.refuse(refusal.ChangedUnderneath, path, "the directory %.200q is not there any more", dir)
			return h, false, nil
		}
		return h, false, err
	}
	defer p.t.dirs.put(d)
	h, err = p.homeIn(d, false)
	p.homes[key] = h
	return h, err == nil, err
}

// areaShare of the files that the process may have open may be areas.
const areaShare = 4

// homeIn finds mount and area for names in an existing directory. A new name
// must get from the directory that it is staged in what it would get from its
// own: the group of a setgid directory, a default ACL. So it is staged in an
// area that passes on nothing or, where its directory does, in one beside it.
func (p *planner) homeIn(d *dirHandle, isNew bool) (home, error) {
	t := p.t
	m, err := t.mountOf(d, d.st)
	if err != nil {
		return home{}, err
	}
	passes := isNew && d.key.base == "" && inherits(d.Dir, d.st)
	for i, a := range t.areas {
		switch {
		case a.mount != m:
		case passes && i > 0 && a.parent == d.key, isNew && !passes && !a.inherits, !isNew:
			return home{m, i}, nil
		}
	}
	if d.key.base != "" {
		if isNew && t.areas[0].mount == m {
			return home{m, 0}, nil // the git directory's own group is right there
		}
		return home{}, fmt.Errorf("stage for %.200q: %w", d.key.base, syscall.EXDEV)
	}
	if most := vfs.MayKeep(journal.MaxAreas, areaShare); len(t.areas) >= most {
		return home{}, fmt.Errorf("stage on more than %d mounts and directories that pass on a group or an ACL, each of which stays open (the limit of open files allows no more): %w", most, journal.ErrTooLarge)
	}
	t.areas = append(t.areas, &area{mount: m, parent: d.key, inherits: inherits(d.Dir, d.st)})
	t.log.Areas = append(t.log.Areas, journal.Area{Dir: d.key.dir, Beside: newBesideName()})
	return home{m, len(t.areas) - 1}, nil
}

// inherits tells whether new names in d get more from it than their maker asks.
func inherits(d vfs.Dir, st vfs.Stat) bool { return st.Perm&0o2000 != 0 || hasDefaultACL(d) }

func imageOf(i *Image) journal.Image {
	return journal.Image{Kind: i.Kind, Digest: i.Digest, Size: i.Size, Perm: i.Perm & 0o7777, Ino: i.Stat.Ino}
}

func (p *planner) push(rank int, s journal.Step, j job) {
	p.steps = append(p.steps, planned{s, j, rank})
}

func live(path string) journal.Place { return journal.Place{Path: path} }

func (p *planner) addTake(c *Change) error {
	s := c.Path.String()
	p.left(s)
	if p.parents[s] {
		// The path becomes a directory: the exchange that puts the directory
		// there takes the file away (ensureDir).
		return nil
	}
	h, ok, err := p.parent(s)
	if !ok || err != nil {
		return err
	}
	p.push(rankTake, journal.Step{Op: journal.Take, Live: live(s), Area: h.area, Before: imageOf(c.Before)}, job{before: c.Before})
	return nil
}

// left notes that s leaves its directory, which may be empty then.
func (p *planner) left(s string) {
	if dir, _ := split(s); dir != "." {
		p.leaves[dir] = true
	}
}

func (p *planner) addExchange(c *Change) error {
	s := c.Path.String()
	if c.Before.Kind == c.After.Kind && c.Before.Digest == c.After.Digest && (c.Before.Perm == c.After.Perm || c.Before.Kind == vfs.KindSymlink) {
		return nil // no effect
	}
	h, ok, err := p.parent(s)
	if !ok || err != nil {
		return err
	}
	p.push(rankExchange, journal.Step{Op: journal.Exchange, Live: live(s), Area: h.area, Before: imageOf(c.Before), After: imageOf(c.After)},
		job{before: c.Before, after: c.After})
	return nil
}

func (p *planner) addMove(c *Change) error {
	from, to := c.From.String(), c.Path.String()
	hf, ok, err := p.parent(from)
	if !ok || err != nil {
		return err
	}
	dir, _ := split(to)
	ht, ok, err := p.ensureDir(dir)
	if !ok || err != nil {
		return err
	}
	if hf.mount != ht.mount {
		p.refuse(refusal.CrossDevice, to, "it is on another mount than %.200q; create it there and delete the old one instead", from)
		return nil
	}
	if free, err := p.free(to); !free || err != nil {
		return err
	}
	p.left(from)
	src := p.changes[from].Before
	p.push(rankMove, journal.Step{Op: journal.Move, Live: live(to), From: from, Before: imageOf(src), After: imageOf(src)}, job{before: src})
	return nil
}

func (p *planner) addPut(c *Change) error {
	s := c.Path.String()
	dir, _ := split(s)
	h, ok, err := p.ensureDir(dir)
	if !ok || err != nil {
		return err
	}
	step := journal.Step{Op: journal.Put, Live: live(s), Area: h.area, After: imageOf(c.After)}
	j := job{after: c.After}
	if !c.From.IsZero() {
		j.metaFrom = c.From.String()
	}
	if p.parents[s] {
		// Everything below is leaving; if it is a directory now, the file takes
		// its place.
		if st, err := p.lstat(s); err == nil && st.Kind == vfs.KindDir {
			step.Op = journal.Exchange
			step.Before = journal.Image{Kind: vfs.KindDir, Perm: st.Perm, Ino: st.Ino}
			p.push(rankFileOverDir, step, j)
			return nil
		}
	}
	if free, err := p.free(s); !free || err != nil {
		return err
	}
	p.push(rankPut, step, j)
	return nil
}

// free tells whether nothing is at path now. It is only the early answer; the
// rename without replace is the one that counts.
func (p *planner) free(path string) (bool, error) {
	dir, _ := split(path)
	if p.fresh[dir] {
		return true, nil
	}
	st, err := p.lstat(path)
	if err == nil {
		p.refuse(refusal.Exists, path, "a %s is there", word(st.Kind))
		return false, nil
	}
	if errors.Is(err, fs.ErrNotExist) {
		return true, nil
	}
	return false, err
}

func (p *planner) lstat(path string) (vfs.Stat, error) {
	dir, name := split(path)
	d, err := p.t.dirs.get("", dir)
	if err != nil {
		return vfs.Stat{}, err
	}
	defer p.t.dirs.put(d)
	return d.Lstat(name)
}

// ensureDir plans the directories that have to be made for dir to exist.
func (p *planner) ensureDir(dir string) (h home, ok bool, err error) {
	key := homeKey{dir, true}
	if h, ok := p.homes[key]; ok {
		return h, true, nil
	}
	d, err := p.t.dirs.get("", dir)
	if err == nil {
		defer p.t.dirs.put(d)
		h, err = p.homeIn(d, true)
		p.homes[key] = h
		return h, err == nil, err
	}
	if !unreachable(err) || errors.Is(err, errProtected) {
		return h, false, err
	}
	up, _ := split(dir)
	if h, ok, err = p.ensureDir(up); !ok || err != nil {
		return h, ok, err
	}
	step := journal.Step{Op: journal.Put, Live: live(dir), Area: h.area, After: journal.Image{Kind: vfs.KindDir}}
	j := job{}
	if !p.fresh[up] {
		st, err := p.lstat(dir)
		switch {
		case err == nil:
			c := p.changes[dir]
			if c == nil || c.After != nil || c.Before.Kind != st.Kind {
				p.refuse(refusal.Exists, dir, "a %s is where a directory is needed", word(st.Kind))
				return h, false, nil
			}
			step.Op, step.Before, j.before = journal.Exchange, imageOf(c.Before), c.Before
		case !errors.Is(err, fs.ErrNotExist):
			return h, false, err
		}
	}
	p.push(rankDir, step, j)
	p.homes[key], p.fresh[dir] = h, true
	return h, true, nil
}

func (p *planner) addExtra(x *ExtraFile) error {
	if vfs.CheckName(x.Name) != nil || p.t.env.Extra[x.DirPath] == nil {
		return fmt.Errorf("extra file %.200q in %.200q: not a name in an allowed directory", x.Name, x.DirPath)
	}
	// The journal's reader asks for a path that ParsePath accepts.
	if _, err := snapshot.ParsePath(x.Name); err != nil {
		return err
	}
	d, err := p.t.dirs.get(x.DirPath, ".")
	if err != nil {
		return err
	}
	defer p.t.dirs.put(d)
	h, err := p.homeIn(d, x.Before == nil)
	if err != nil {
		return err
	}
	s := journal.Step{Live: journal.Place{Base: x.DirPath, Path: x.Name}, Area: h.area}
	j := job{before: x.Before, after: x.After}
	switch {
	case x.After == nil:
		return fmt.Errorf("extra file %.200q: no after-image", x.Name)
	case x.Before == nil:
		s.Op, s.After = journal.Put, imageOf(x.After)
	default:
		s.Op, s.Before, s.After = journal.Exchange, imageOf(x.Before), imageOf(x.After)
	}
	p.push(rankExtra, s, j)
	return nil
}

// finish sorts the steps, names them and computes the emptied directories.
func (p *planner) finish() {
	t := p.t
	slices.SortStableFunc(p.steps, func(a, b planned) int {
		return cmp.Or(cmp.Compare(a.rank, b.rank), strings.Compare(a.Live.Path, b.Live.Path))
	})
	t.log.Steps, t.jobs = slices.Grow(t.log.Steps, len(p.steps)), slices.Grow(t.jobs, len(p.steps))
	for i := range p.steps {
		s := &p.steps[i]
		if s.Op == journal.Exchange && t.facts.Mounts[t.areas[s.Area].mount].Aside {
			take, put := inTwo(s)
			t.append(take, put)
			if s.After.Kind != vfs.KindDir {
				t.facts.Replaced++
				continue
			}
		} else {
			t.append(*s)
		}
		t.count(s.Step)
	}
	all := map[string]bool{}
	for dir := range p.leaves {
		for ; dir != "." && !all[dir]; dir, _ = split(dir) {
			all[dir] = true
			if p.changes[dir] == nil {
				t.log.Emptied = append(t.log.Emptied, dir)
			}
		}
	}
	slices.SortFunc(t.log.Emptied, func(a, b string) int {
		return cmp.Or(cmp.Compare(strings.Count(b, "/"), strings.Count(a, "/")), strings.Compare(a, b))
	})
}

// append names steps and appends them.
func (t *tx) append(steps ...planned) {
	for _, s := range steps {
		if s.Op != journal.Move {
			s.Name = fmt.Sprintf("%s-%x", t.nonce, len(t.log.Steps))
		}
		t.log.Steps = append(t.log.Steps, s.Step)
		t.jobs = append(t.jobs, s.job)
	}
}

// inTwo is an exchange where there is none: what is there is taken away, and the new
// put in its place, each by a rename that overwrites nothing. Both undo themselves
// like any step of their kind, in reverse, so a crash between them leaves nothing
// that recovery does not know.
func inTwo(s *planned) (take, put planned) {
	take, put = *s, *s
	take.Op, take.After = journal.Take, journal.Image{}
	take.after, take.metaFrom = nil, ""
	put.Op, put.Before, put.before = journal.Put, journal.Image{}, nil
	if put.metaFrom == "" && s.Before.Kind != vfs.KindDir && s.After.Kind != vfs.KindDir {
		put.metaFrom, put.base, put.aside = s.Live.Path, s.Live.Base, true
	}
	return take, put
}

func (t *tx) count(s journal.Step) {
	switch {
	case s.Op == journal.Exchange && s.After.Kind != vfs.KindDir:
		t.facts.Exchanged++
	case s.After.Kind == vfs.KindDir:
		t.facts.Directories++
	case s.Op == journal.Put:
		t.facts.Created++
	case s.Op == journal.Take:
		t.facts.Deleted++
	case s.Op == journal.Move:
		t.facts.Moved++
	}
}
