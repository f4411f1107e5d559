package gofix

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/aspengine/asp/provider"
)

// module is a copy of one module in a scratch directory.
type module struct {
	g       *gofix
	scratch string // all of it; dir, caches and home lie inside
	dir     string // the root of the tree, of which the module may be a part
	root    string // of the module, a slash path in the tree; "." for the top
	files   map[string]*provider.File
	partial string // why files are missing
}

// open copies the module that a file belongs to.
func (g *gofix) open(ctx context.Context, h *provider.Host, file string) (*module, error) {
	if !provider.ValidPath(file) || !strings.HasSuffix(file, ".go") {
		return nil, &provider.Unsupported{Reason: "language", Detail: fmt.Sprintf("%.200q is no Go file", file)}
	}
	t, err := h.ListTree(ctx, nil, nil)
	if err != nil {
		return nil, err
	}
	roots := map[string]bool{}
	for _, e := range t.Entries {
		if e.Kind == "file" && path.Base(e.Path) == "go.mod" {
			roots[path.Dir(e.Path)] = true
		}
	}
	root := rootOf(roots, file)
	if root == "" {
		return nil, &provider.Unsupported{Reason: "scope", Detail: fmt.Sprintf("no go.mod is above %.200q, or it is not granted", file)}
	}
	m := &module{g: g, root: root, files: map[string]*provider.File{}}
	if t.Truncated {
		m.partial = "the host left entries out of the tree"
	}
	if m.scratch, err = os.MkdirTemp("", "asp-gofix-"); err != nil {
		return nil, err
	}
	m.dir = filepath.Join(m.scratch, "src")
	if err := m.fill(ctx, h, t.Entries, roots); err != nil {
		m.close()
		return nil, err
	}
	if m.files[file] == nil {
		m.close()
		return nil, provider.InputError("%.200q is not there, or not granted", file)
	}
	return m, nil
}

func (m *module) close() {
	// A module cache is written read-only; what cannot be removed is left to
	// whoever gave the temporary directory.
	_ = filepath.WalkDir(m.scratch, func(p string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			_ = os.Chmod(p, 0o700)
		}
		return nil
	})
	_ = os.RemoveAll(m.scratch)
}

// rootOf is the nearest directory above a file that holds a go.mod.
func rootOf(roots map[string]bool, file string) string {
	for d := path.Dir(file); ; d = path.Dir(d) {
		if roots[d] {
			return d
		}
		if d == "." {
			return ""
		}
	}
}

// fill reads what the go command needs of the module.
func (m *module) fill(ctx context.Context, h *provider.Host, entries []provider.TreeEntry, roots map[string]bool) error {
	total := 0
	for _, e := range entries {
		base := path.Base(e.Path)
		if e.Kind != "file" || rootOf(roots, e.Path) != m.root ||
			!strings.HasSuffix(base, ".go") && base != "go.mod" && base != "go.sum" && !strings.HasSuffix(e.Path, "vendor/modules.txt") {
			continue
		}
		if len(m.files) == maxFiles || total > maxBytes {
			return provider.InputError("the module is larger than %d files or %d bytes", maxFiles, maxBytes)
		}
		b, err := h.ReadBlob(ctx, e.BlobID)
		if provider.Denied(err) {
			m.partial = "parts of the module are not granted"
			continue
		}
		if err != nil {
			return err
		}
		total += len(b)
		name := filepath.Join(m.dir, filepath.FromSlash(e.Path))
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			return err
		}
		if err := os.WriteFile(name, b, 0o600); err != nil {
			return err
		}
		m.files[e.Path] = &provider.File{Path: e.Path, ID: e.BlobID, Content: b}
	}
	return nil
}

// place is a position in the form that gopls takes: a byte offset.
func (m *module) place(file string, p provider.Position) (string, error) {
	f := m.files[file]
	if f == nil {
		return "", provider.InputError("%.200q is not there, or not granted", file)
	}
	at, ok := f.Text().Offset(p)
	if !ok {
		return "", provider.InputError("%.200q has no line %d, unit %d", file, p.Line, p.Char)
	}
	return fmt.Sprintf("%s:#%d", filepath.Join(m.dir, filepath.FromSlash(file)), at), nil
}

// limited keeps the beginning of what is written to it.
type limited struct {
	bytes.Buffer
	limit int
}

func (l *limited) Write(b []byte) (int, error) {
	if room := l.limit - l.Len(); room > 0 {
		l.Buffer.Write(b[:min(room, len(b))])
	}
	return len(b), nil
}

// gopls runs one command of it, in a process group that ends with ctx. It sees
// the copy, the toolchain, and no network.
func (m *module) gopls(ctx context.Context, args ...string) (string, error) {
	c := exec.CommandContext(ctx, m.g.tools.Gopls, args...)
	out, said := &limited{limit: 8 << 20}, &limited{limit: 64 << 10}
	c.Stdout, c.Stderr = out, said
	c.Dir = filepath.Join(m.dir, filepath.FromSlash(m.root))
	in := func(name string) string { return filepath.Join(m.scratch, name) }
	modcache := m.g.tools.ModCache
	if modcache == "" {
		modcache = in("mod")
	}
	c.Env = []string{"PATH=" + filepath.Dir(m.g.tools.Go), "HOME=" + in("home"), "TMPDIR=" + in("tmp"), "XDG_CONFIG_HOME=" + in("home"), "XDG_CACHE_HOME=" + in("cache"),
		"GOCACHE=" + in("cache"), "GOPATH=" + in("gopath"), "GOMODCACHE=" + modcache, "GOFLAGS=", "GOENV=off", "GOPROXY=off", "GOSUMDB=off", "GOVCS=*:off",
		"GOTOOLCHAIN=local", "GOTELEMETRY=off", "GOWORK=off", "CGO_ENABLED=0"}
	for _, d := range []string{"home", "tmp", "cache"} {
		if err := os.MkdirAll(in(d), 0o700); err != nil {
			return "", err
		}
	}
	killWithChildren(c)
	c.WaitDelay = 2 * time.Second
	err := c.Run()
	if cause := context.Cause(ctx); cause != nil {
		return "", cause
	}
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		return "", provider.InputError("gopls %s: %s", args[0], strings.TrimSpace(strings.ReplaceAll(said.String(), m.dir+string(filepath.Separator), "")))
	case err != nil:
		return "", provider.HealthError("gopls cannot be run: %v", err)
	}
	return out.String(), nil
}

// plan turns what gopls wrote into the copy into edits.
func (m *module) plan(r *provider.EditRequest) (*provider.Plan, error) {
	p := &provider.Plan{Incomplete: m.partial, Reason: "partial-coverage"}
	seen := 0
	err := filepath.WalkDir(m.dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rel, err := filepath.Rel(m.dir, name)
		if err != nil {
			return err
		}
		f := m.files[filepath.ToSlash(rel)]
		if f == nil {
			return &provider.Unsupported{Reason: "resource-kind", Detail: "this change makes or moves files"}
		}
		seen++
		b, err := os.ReadFile(name)
		if err != nil || bytes.Equal(b, f.Content) {
			return err
		}
		if !r.Touches(f.Path) {
			p.Incomplete = fmt.Sprintf("%.200q would have to change too, and is out of the requested scope", f.Path)
			return nil
		}
		for _, c := range changes(f.Content, b) {
			if err := p.Edit(f, c.start, c.end, c.with); err != nil {
				return err
			}
		}
		return nil
	})
	switch {
	case err != nil:
		return nil, err
	case seen != len(m.files):
		return nil, &provider.Unsupported{Reason: "resource-kind", Detail: "this change moves or removes files"}
	case p.Len() == 0 && p.Incomplete == "":
		p.Incomplete, p.Reason = "there is nothing to change", "unresolved-reference"
	}
	return p, nil
}

// change is one place and what comes there.
type change struct {
	start, end int
	with       string
}

// changes lists what differs. Where both sides have as many lines, as after a
// rename, they are compared line by line; otherwise what the two ends share is
// left, and the middle is one run of lines.
func changes(old, new []byte) []change {
	a, b := bytes.SplitAfter(old, []byte("\n")), bytes.SplitAfter(new, []byte("\n"))
	var out []change
	if len(a) == len(b) {
		at := 0
		for i := range a {
			if !bytes.Equal(a[i], b[i]) {
				out = append(out, narrow(at, a[i], b[i]))
			}
			at += len(a[i])
		}
		return out
	}
	head := 0
	for head < min(len(a), len(b)) && bytes.Equal(a[head], b[head]) {
		head++
	}
	tail := 0
	for tail < min(len(a), len(b))-head && bytes.Equal(a[len(a)-1-tail], b[len(b)-1-tail]) {
		tail++
	}
	size := func(lines [][]byte) int {
		n := 0
		for _, l := range lines {
			n += len(l)
		}
		return n
	}
	start := size(a[:head])
	return []change{{start, start + size(a[head:len(a)-tail]), string(bytes.Join(b[head:len(b)-tail], nil))}}
}

// narrow leaves out what an old and a new line share at both ends, at places where
// an edit may begin and end.
func narrow(at int, old, new []byte) change {
	n := min(len(old), len(new))
	head := 0
	for head < n && old[head] == new[head] {
		head++
	}
	for head > 0 && (!edge(old, head) || !edge(new, head)) {
		head--
	}
	tail := 0
	for tail < n-head && old[len(old)-1-tail] == new[len(new)-1-tail] {
		tail++
	}
	for tail > 0 && (!edge(old, len(old)-tail) || !edge(new, len(new)-tail)) {
		tail--
	}
	return change{at + head, at + len(old) - tail, string(new[head : len(new)-tail])}
}

// edge tells whether i is no place inside a character or a CRLF.
func edge(b []byte, i int) bool {
	return i == len(b) || utf8.RuneStart(b[i]) && !(i > 0 && b[i-1] == '\r' && b[i] == '\n')
}

// spot is how gopls prints a place: file:line:column-column, or with a line at the
// end too; lines and columns count from 1, columns in bytes.
var spot = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^(.+):(\d+):(\d+)-(?:(\d+):)?(\d+)$`)
})

// location reads a line of output.
func (m *module) location(line string) (provider.Location, bool) {
	x := spot().FindStringSubmatch(strings.TrimSpace(line))
	if x == nil {
		return provider.Location{}, false
	}
	rel, err := filepath.Rel(m.dir, x[1])
	f := m.files[filepath.ToSlash(rel)]
	if err != nil || f == nil {
		return provider.Location{}, false
	}
	n := make([]int, 4)
	for i, s := range []string{x[2], x[3], x[4], x[5]} {
		if s == "" {
			s = x[2]
		}
		if n[i], err = strconv.Atoi(s); err != nil {
			return provider.Location{}, false
		}
	}
	t := f.Text()
	if n[0] < 1 || n[2] < 1 || max(n[0], n[2]) > t.Lines() {
		return provider.Location{}, false
	}
	return provider.Location{Path: f.Path, Range: t.Span(t.Start(n[0]-1)+n[1]-1, t.Start(n[2]-1)+n[3]-1)}, true
}
