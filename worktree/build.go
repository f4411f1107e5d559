//go:build linux

package worktree

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/aspengine/asp/sandbox"
	"golang.org/x/sys/unix"
)

// Build makes a candidate. It mounts nothing: an overlay is only prepared, and
// comes into being inside the check's namespaces, which Build starts making beside
// its own work (sandbox.Spare). On an error nothing is left behind. The caller
// closes the candidate.
func Build(ctx context.Context, spec Spec) (*Candidate, error) {
	c, err := build(ctx, spec)
	if err != nil {
		return nil, fmt.Errorf("build candidate: %w", err)
	}
	return c, nil
}

func build(ctx context.Context, spec Spec) (_ *Candidate, err error) {
	if err := supported(); err != nil {
		return nil, err
	}
	if err := canonical(&spec); err != nil {
		return nil, err
	}
	root, err := openLive(spec.Root)
	if err != nil {
		return nil, err
	}
	defer root.close()
	spare := sandbox.NewSpare(spec.Caps)
	defer func() {
		if err != nil {
			spare.Close()
		}
	}()
	lo, err := plan(root, spec.Effects, spec.Perm)
	if err != nil {
		return nil, err
	}
	method, why, err := choose(&spec)
	if err != nil {
		return nil, err
	}
	c := &Candidate{Root: spec.Root, Dir: spec.Root, Method: method, Effects: slices.Clone(spec.Effects), Base: spec.Base, Caps: spec.Caps, spare: spare, ends: &sandbox.Ends{}}
	if why != "" {
		c.Notes = append(c.Notes, "copied, no overlay: "+why)
	}
	if c.Scratch, err = newScratch(spec.ScratchBase); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.Close())
		}
	}()
	c.tmp = filepath.Join(c.Scratch, "tmp")
	if err := os.Mkdir(c.tmp, 0o700); err != nil {
		return nil, err
	}
	if err := os.Chmod(c.tmp, 0o1777); err != nil { // what programs expect of /tmp
		return nil, err
	}
	mounted := spec.Caps.Namespaces()
	if mounted {
		c.mounts = append(c.mounts, sandbox.Mount{Kind: sandbox.MountBindRW, Source: c.tmp, Target: tmpTarget})
		c.tmp = tmpTarget
		if st, err := os.Lstat(longTmp); err == nil && st.IsDir() { // elsewhere there is nothing to mount it at
			dir := filepath.Join(c.Scratch, "vartmp")
			if err := errors.Join(os.Mkdir(dir, 0o700), os.Chmod(dir, 0o1777)); err != nil {
				return nil, err
			}
			c.mounts = append(c.mounts, sandbox.Mount{Kind: sandbox.MountBindRW, Source: dir, Target: longTmp})
		}
		c.hide = hideList(&spec)
	}
	if method == Overlay {
		err = c.overlay(&spec, lo)
	} else {
		err = c.copy(ctx, &spec, lo, mounted)
	}
	if err != nil {
		return nil, err
	}
	if mounted {
		if err := c.readable(&spec); err != nil {
			return nil, err
		}
	} else {
		c.lent = append(c.lent, spec.Read...)
	}
	if method != Copy || !spec.OmitIgnored {
		c.Env = spec.Ignored
	}
	return c, nil
}

// supported asks for the one call without which a scratch directory could be filled and
// not be taken away again. It is asked for before anything is made.
func supported() error {
	fd, err := unix.Openat2(unix.AT_FDCWD, "/", &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS})
	switch err {
	case nil:
		return unix.Close(fd)
	case unix.ENOSYS, unix.EPERM: // the latter from filters that do not know it
		return fmt.Errorf("%w: no path can be kept below a directory without openat2, of Linux 5.6: %w", ErrUnsupported, err)
	}
	return &fs.PathError{Op: "openat2", Path: "/", Err: err}
}

// Probe asks what this machine gives for candidates of the workspace at root with
// scratch below scratchBase. One answer serves a process; see sandbox.Probe.
func Probe(ctx context.Context, root, scratchBase string) sandbox.Caps {
	if err := supported(); err != nil {
		caps := sandbox.Probe(ctx, sandbox.ProbeDirs{})
		caps.Overlay = sandbox.Cap{Answer: sandbox.No, Detail: err.Error()}
		return caps
	}
	// In a directory of ours, so that Sweep finds what a killed probe leaves.
	dir, err := newScratch(scratchBase)
	if err != nil {
		return sandbox.Probe(ctx, sandbox.ProbeDirs{})
	}
	caps := sandbox.Probe(ctx, sandbox.ProbeDirs{Lower: root, Scratch: dir})
	if err := removeTree(scratchBase, filepath.Base(dir)); err != nil {
		caps.Overlay = sandbox.Cap{Detail: err.Error()}
	}
	return caps
}

// Prove is sandbox.Prove, with a directory below scratchBase to write in where that is what
// a launch needs.
func Prove(ctx context.Context, caps sandbox.Caps, like sandbox.Spec, scratchBase string) (sandbox.Boundary, error) {
	if caps.Namespaces() || !caps.CanConfine() {
		return sandbox.Prove(ctx, caps, like)
	}
	if err := supported(); err != nil {
		return sandbox.Boundary{}, fmt.Errorf("%w: %w", sandbox.ErrUnsupported, err)
	}
	dir, err := newScratch(scratchBase)
	if err != nil {
		return sandbox.Boundary{}, err
	}
	like.Write = []string{filepath.Join(dir, "tree")}
	if err = os.Mkdir(like.Write[0], 0o700); err != nil {
		return sandbox.Boundary{}, err
	}
	b, err := sandbox.Prove(ctx, caps, like)
	return b, errors.Join(err, removeTree(scratchBase, filepath.Base(dir)))
}

// tmpTarget is where the private temporary directory is seen. The usual place:
// programs that ignore TMPDIR find it too, and the host's is hidden by it.
const tmpTarget = "/tmp"

// longTmp is the other place that everyday programs write to without asking.
const longTmp = "/var/tmp"

// hideList names what a check does not see: our state, the user's home, and the
// directories where other programs leave files and sockets.
func hideList(spec *Spec) []string {
	out := []string{tmpTarget, longTmp, "/run", spec.StateDir}
	// A home inside the workspace is a part of the workspace.
	if h := spec.Home; h != "" && h != "/" && (h == spec.Root || !within(h, spec.Root)) {
		out = append(out, h)
	}
	return out
}

// canonical resolves the trusted paths once: mounts and comparisons need the one
// true spelling.
func canonical(spec *Spec) error {
	resolve := func(what string, p *string, must bool) error {
		if *p == "" && !must {
			return nil
		}
		if !filepath.IsAbs(*p) {
			return fmt.Errorf("%s %.200q is not absolute", what, *p)
		}
		r, err := filepath.EvalSymlinks(*p)
		if err != nil {
			if !must && errors.Is(err, os.ErrNotExist) {
				*p = filepath.Clean(*p)
				return nil
			}
			return fmt.Errorf("find %s: %w", what, err)
		}
		*p = r
		return nil
	}
	if spec.StateDir == "" {
		spec.StateDir = spec.ScratchBase
	}
	spec.Hide, spec.Read = slices.Clone(spec.Hide), slices.Clone(spec.Read)
	err := errors.Join(
		resolve("workspace", &spec.Root, true), resolve("scratch base", &spec.ScratchBase, true),
		resolve("git directory", &spec.GitDir, false), resolve("common directory", &spec.CommonDir, false),
		resolve("state directory", &spec.StateDir, false), resolve("home directory", &spec.Home, false))
	for i := range spec.Hide {
		err = errors.Join(err, resolve("hidden directory", &spec.Hide[i], false))
	}
	for i := range spec.Read {
		err = errors.Join(err, resolve("read root", &spec.Read[i], false))
	}
	if err == nil && spec.Root == "/" {
		return errors.New("the root directory cannot be a workspace")
	}
	return err
}

// choose picks the method and says why it is not the overlay.
func choose(spec *Spec) (Method, string, error) {
	why := ""
	if !spec.Caps.CanOverlay() {
		why = spec.Caps.Missing()
	}
	points, err := mountPoints()
	if err != nil {
		return MethodInvalid, "", err
	}
	for _, d := range []string{spec.Root, spec.GitDir, spec.CommonDir} {
		// Mounts of the host are locked in a user namespace: an overlay must not
		// look below them, and the kernel refuses a lower layer that holds one.
		if p := mountBelow(points, d); d != "" && p != "" {
			why = fmt.Sprintf("%.200q is a mount inside", p)
		}
	}
	switch {
	case spec.Method == Copy:
		return Copy, "", nil
	case why == "":
		return Overlay, "", nil
	case spec.Method == Overlay:
		return MethodInvalid, "", fmt.Errorf("%w: overlay: %s", sandbox.ErrUnsupported, why)
	}
	return Copy, why, nil
}

func mountPoints() ([]string, error) {
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("list mounts: %w", err)
	}
	var out []string
	unescape := strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)
	for line := range bytes.Lines(b) {
		if f := bytes.Fields(line); len(f) > 4 {
			out = append(out, unescape.Replace(string(f[4])))
		}
	}
	return out, nil
}

func mountBelow(points []string, dir string) string {
	for _, p := range points {
		if p != dir && within(p, dir) {
			return p
		}
	}
	return ""
}

// overlay prepares one layer over the workspace and one over each git directory
// outside of it.
func (c *Candidate) overlay(spec *Spec, lo *layout) (err error) {
	var layers []*layer
	defer func() {
		for _, l := range layers {
			err = errors.Join(err, l.close())
		}
	}()
	find := func(p string) *layer { // the innermost layer that shows p
		var best *layer
		for _, l := range layers {
			if within(p, l.lower) && (best == nil || len(l.lower) > len(best.lower)) {
				best = l
			}
		}
		return best
	}
	lows := map[*layer]*live{}
	for i, d := range []string{spec.Root, spec.CommonDir, spec.GitDir} {
		if d == "" || i > 0 && find(d) != nil {
			continue
		}
		low := lo.live
		if i > 0 {
			if low, err = openLive(d); err != nil {
				return err
			}
			defer low.close()
		}
		l, err := newLayer(c.Scratch, fmt.Sprintf("layer%d", i), low, lo.umask)
		if err != nil {
			return err
		}
		layers, lows[l] = append(layers, l), low
		c.mounts = append(c.mounts, sandbox.Mount{Kind: sandbox.MountOverlay, Target: d, Lower: d, Upper: l.upper, Work: l.work})
	}
	if err := layers[0].lay(lo); err != nil {
		return err
	}
	hide := func(p string, always bool) error {
		l := find(p)
		if l == nil || p == l.lower {
			return nil
		}
		rel, err := filepath.Rel(l.lower, p)
		if err != nil {
			return err
		}
		if err := l.hide(rel, lo, lows[l], always); !errors.Is(err, fs.ErrExist) {
			return err
		}
		return nil // hidden already
	}
	for _, d := range append(gitHidden(spec), spec.Hide...) {
		if err := hide(d, filepath.Base(d) == "asp" && !slices.Contains(spec.Hide, d)); err != nil {
			return err
		}
	}
	for _, d := range []string{spec.Root, spec.GitDir, spec.CommonDir} {
		if d == "" {
			continue
		}
		l := find(d)
		rel, err := filepath.Rel(l.lower, d)
		if err != nil {
			return err
		}
		c.protect = append(c.protect, sandbox.Protect{Path: d, Lands: filepath.Join(l.upper, rel)})
	}
	return nil
}

// gitHidden lists the transaction directories of this and the sibling work trees.
func gitHidden(spec *Spec) []string {
	var out []string
	for _, d := range []string{spec.GitDir, spec.CommonDir} {
		if d != "" {
			out = append(out, filepath.Join(d, "asp"))
		}
	}
	others, _ := filepath.Glob(filepath.Join(globQuote(spec.CommonDir), "worktrees", "*", "asp"))
	if spec.CommonDir != "" {
		out = append(out, others...)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func globQuote(s string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(s)
}

// copy makes the tree in scratch and, with namespaces, has it mounted at the
// workspace's own path.
func (c *Candidate) copy(ctx context.Context, spec *Spec, lo *layout, mounted bool) error {
	tree := filepath.Join(c.Scratch, "tree")
	if err := os.Mkdir(tree, 0o700); err != nil {
		return err
	}
	omit := map[string]bool{}
	for _, p := range append([]string{spec.StateDir, spec.ScratchBase}, spec.Hide...) {
		if within(p, spec.Root) {
			if rel, err := filepath.Rel(spec.Root, p); err == nil {
				omit[rel] = true
			}
		}
	}
	if spec.GitDir != "" {
		omit[".git"] = true
		for _, d := range []string{spec.GitDir, spec.CommonDir} {
			if rel, err := filepath.Rel(spec.Root, d); d != "" && within(d, spec.Root) && err == nil {
				omit[rel] = true
			}
		}
	}
	if spec.OmitIgnored {
		for _, n := range spec.Ignored.Names {
			omit[strings.TrimSuffix(n, "/")] = true
		}
	}
	cp, err := copyTree(ctx, spec.Root, tree, spec.Workers, spec.CopyLimit, func(rel string) bool { return omit[rel] })
	if err != nil {
		return err
	}
	c.Notes = append(c.Notes, cp.notes...)
	if spec.GitDir != "" {
		notes, err := copyGit(ctx, spec, tree, func(store string) string { return c.lend(store, spec.Root) })
		if err != nil {
			return err
		}
		c.Notes = append(c.Notes, notes...)
	}
	if err := layOver(lo, tree); err != nil {
		return err
	}
	if err := cp.finish(); err != nil {
		return err
	}
	var st unix.Stat_t
	if err := unix.Lstat(spec.Root, &st); err != nil {
		return err
	}
	if err := unix.Chmod(tree, st.Mode&0o7777); err != nil {
		return err
	}
	lands := ""
	if mounted {
		c.mounts = append(c.mounts, sandbox.Mount{Kind: sandbox.MountBindRW, Source: tree, Target: spec.Root})
		lands = tree
	} else {
		c.Dir = tree
	}
	c.protect = append(c.protect, sandbox.Protect{Path: spec.Root, Lands: lands})
	dirs := slices.Compact([]string{spec.GitDir, spec.CommonDir})
	for _, d := range dirs {
		switch {
		case d == "":
		case mounted && d == filepath.Join(spec.Root, ".git"):
			c.protect = append(c.protect, sandbox.Protect{Path: d, Lands: filepath.Join(tree, ".git")})
		case mounted && within(d, spec.Root): // covered by the copy, which has no such name
		default:
			c.protect = append(c.protect, sandbox.Protect{Path: d})
		}
	}
	return nil
}

// readable adds what must be seen although it is hidden: the declared read roots
// as throw-away overlays, and borrowed object stores read-only.
func (c *Candidate) readable(spec *Spec) error {
	points, err := mountPoints()
	if err != nil {
		return err
	}
	for i, r := range spec.Read {
		st, err := os.Stat(r)
		if err != nil {
			c.Notes = append(c.Notes, fmt.Sprintf("read root %.200q: not there", r))
			continue
		}
		if within(r, spec.Root) || within(spec.Root, r) || c.isTarget(r) {
			continue // the workspace's own mount decides
		}
		m := sandbox.Mount{Kind: sandbox.MountBindRO, Target: r, Source: r}
		if st.IsDir() && spec.Caps.CanOverlay() && mountBelow(points, r) == "" && localFS(r) {
			low, err := openLive(r)
			if err != nil {
				return err
			}
			l, err := newLayer(c.Scratch, fmt.Sprintf("read%d", i), low, 0)
			low.close()
			if err != nil {
				return err
			}
			if err := l.close(); err != nil {
				return err
			}
			m = sandbox.Mount{Kind: sandbox.MountOverlay, Target: r, Lower: r, Upper: l.upper, Work: l.work}
		} else {
			c.Notes = append(c.Notes, fmt.Sprintf("read root %.200q: read-only, no overlay possible", r))
		}
		c.mounts = append(c.mounts, m)
	}
	common := spec.common()
	if common == "" || c.Method == Copy {
		return nil // a copy names what it borrows itself
	}
	for _, s := range alternates(filepath.Join(common, "objects")) {
		c.show(s)
	}
	return nil
}

// show keeps a hidden directory visible, read-only.
func (c *Candidate) show(dir string) {
	c.lent = append(c.lent, dir)
	if c.hidden(dir) {
		c.mounts = append(c.mounts, sandbox.Mount{Kind: sandbox.MountBindRO, Target: dir, Source: dir})
	}
}

// lend returns where a check sees the object store at dir. A mounted copy covers
// the workspace's path and a store in it; that one is shown in the private
// temporary directory instead.
func (c *Candidate) lend(dir, root string) string {
	if len(c.mounts) == 0 {
		c.lent = append(c.lent, dir)
		return dir
	}
	if !within(dir, root) {
		c.show(dir)
		return dir
	}
	at := fmt.Sprintf("%s/.objects-%d", tmpTarget, len(c.mounts))
	c.mounts = append(c.mounts, sandbox.Mount{Kind: sandbox.MountBindRO, Target: at, Source: dir})
	return at
}

func (c *Candidate) isTarget(p string) bool {
	return slices.ContainsFunc(c.mounts, func(m sandbox.Mount) bool { return m.Target == p })
}

// localFS tells whether an overlay may have dir below it: network and user-space
// file systems are not trusted to keep still.
func localFS(dir string) bool {
	var st unix.Statfs_t
	if unix.Statfs(dir, &st) != nil {
		return false
	}
	switch st.Type {
	case unix.NFS_SUPER_MAGIC, unix.FUSE_SUPER_MAGIC, unix.V9FS_MAGIC, unix.CIFS_SUPER_MAGIC, unix.SMB2_SUPER_MAGIC, unix.SMB_SUPER_MAGIC:
		return false
	}
	return true
}
