// Package gitconfig reads git's configuration the way git 2.39 does, for the
// keys that a reader of work trees needs: system, global, repository and
// worktree files with their includes. It reads files and nothing else: no
// value is ever executed, GIT_* variables are not looked at, nothing is
// written.
//
// The parser is our own. The decoder in go-git groups keys by section, so the
// place of an include.path between other keys is lost, and with it which value
// wins; it also takes a key without a value for an empty one (git: true
// against false).
package gitconfig

import (
	"context"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"strconv"
	"strings"
)

// Limits on what is read. Anything beyond is an error, never a silent cut.
const (
	MaxFileSize = 4 << 20 // bytes in one file
	MaxFiles    = 200     // files of one Load; a file included twice counts twice
	MaxDepth    = 10      // nested includes, git's own limit
)

// Errors that callers tell apart with errors.Is.
var (
	ErrSyntax = errors.New("bad configuration line")
	ErrLimit  = errors.New("configuration too large")
	ErrValue  = errors.New("bad configuration value")
)

// Options says where the files are. All paths are absolute; an empty one means
// that there is no such file or directory.
type Options struct {
	System        string // the system file, usually /etc/gitconfig
	Home          string // the user's home directory
	XDGConfigHome string // value of XDG_CONFIG_HOME; empty means Home/.config
	GitDir        string // git directory of this work tree, for config.worktree and includeIf gitdir
	CommonDir     string // common directory, holds config; empty means GitDir
	Branch        string // short name of the checked-out branch, for includeIf onbranch; empty when detached
}

// Entry is one assignment, in the order git sees it.
type Entry struct {
	Key      string // canonical: section and name in lower case, subsection as written
	Value    string
	HasValue bool   // false for "key" without "=", which means true to Bool
	Origin   string // file the entry was read from
}

// Config is the sequence of all assignments. It is immutable and safe for
// concurrent use.
type Config struct {
	entries []Entry
	byKey   map[string][]int
	opts    Options
}

// Load reads all files that o names, in git's order (system, XDG, home,
// repository, worktree), following includes. Missing files are no error; a
// file that cannot be read or parsed is one, as git refuses to go on, too.
func Load(ctx context.Context, o Options) (*Config, error) {
	l := &loader{o: o}
	if err := l.load(ctx); err != nil {
		return nil, err
	}
	c := &Config{entries: l.all, opts: l.o}
	c.index()
	return c, nil
}

func (c *Config) index() {
	c.byKey = make(map[string][]int, len(c.entries))
	for i, e := range c.entries {
		c.byKey[e.Key] = append(c.byKey[e.Key], i)
	}
}

// Entries returns a copy of all assignments in order.
func (c *Config) Entries() []Entry { return append([]Entry(nil), c.entries...) }

// last returns the assignment of key that counts.
func (c *Config) last(key string) (Entry, bool) {
	all := c.byKey[canonical(key)]
	if len(all) == 0 {
		return Entry{}, false
	}
	return c.entries[all[len(all)-1]], true
}

// String returns the last value of key; ok is false when the key is not set.
// A key without a value gives "" and true.
func (c *Config) String(key string) (v string, ok bool) {
	e, ok := c.last(key)
	return e.Value, ok
}

// All returns every value of key in order.
func (c *Config) All(key string) []string {
	var all []string
	for _, i := range c.byKey[canonical(key)] {
		all = append(all, c.entries[i].Value)
	}
	return all
}

// Bool returns the last value of key by git's spellings (true, yes, on, any
// number but 0, or no value at all; false, no, off, 0, empty), and def when the
// key is not set. Another spelling is an error wrapping ErrValue.
func (c *Config) Bool(key string, def bool) (bool, error) {
	e, ok := c.last(key)
	if !ok {
		return def, nil
	}
	if !e.HasValue {
		return true, nil
	}
	b, ok := ParseBool(e.Value)
	if !ok {
		return false, fmt.Errorf("read %q in %.200q: %w %.200q", e.Key, e.Origin, ErrValue, e.Value)
	}
	return b, nil
}

// ParseBool reads one of git's spellings of a truth value.
func ParseBool(v string) (b, ok bool) {
	switch strings.ToLower(v) {
	case "true", "yes", "on":
		return true, true
	case "false", "no", "off", "":
		return false, true
	}
	// A C number: space before it, a sign, octal and hexadecimal, and a unit.
	v = strings.TrimLeft(v, " \t\n\v\f\r")
	unit := int64(1)
	if n := len(v); n > 0 {
		switch lower(v[n-1]) {
		case 'k':
			unit = 1 << 10
		case 'm':
			unit = 1 << 20
		case 'g':
			unit = 1 << 30
		}
		if unit > 1 {
			v = v[:n-1]
		}
	}
	// Go reads more than C does: digit groups, and the prefixes 0b and 0o.
	if digits := strings.TrimLeft(strings.ToLower(v), "+-"); strings.Contains(v, "_") || strings.HasPrefix(digits, "0b") || strings.HasPrefix(digits, "0o") {
		return false, false
	}
	n, err := strconv.ParseInt(v, 0, 64)
	if err != nil || n > math.MaxInt32/unit || n < -math.MaxInt32/unit {
		return false, false
	}
	return n != 0, true
}

// Path returns the last value of key with a leading ~/ or ~user/ expanded;
// ok is false when the key is not set.
func (c *Config) Path(key string) (p string, ok bool, err error) {
	e, ok := c.last(key)
	if !ok {
		return "", false, nil
	}
	if !e.HasValue {
		return "", true, fmt.Errorf("read %q in %.200q: %w: no path", e.Key, e.Origin, ErrValue)
	}
	p, err = c.opts.expand(e.Value, false)
	if err != nil {
		return "", true, fmt.Errorf("read %q in %.200q: %w", e.Key, e.Origin, err)
	}
	return p, true, nil
}

// Subsections returns the distinct subsections of section that any key is set
// in, in order of first appearance: for [filter "lfs"], "lfs" of "filter".
func (c *Config) Subsections(section string) []string {
	section = strings.ToLower(section) + "."
	var all []string
	seen := map[string]bool{}
	for _, e := range c.entries {
		rest, ok := strings.CutPrefix(e.Key, section)
		i := strings.LastIndexByte(rest, '.')
		if !ok || i < 0 || seen[rest[:i]] {
			continue
		}
		seen[rest[:i]] = true
		all = append(all, rest[:i])
	}
	return all
}

// ExcludesFile is core.excludesFile, or its default git/ignore below the XDG
// directory; empty for no file. A relative path is relative to the
// top of the work tree.
func (c *Config) ExcludesFile() (string, error) { return c.userFile("core.excludesFile", "git/ignore") }

// AttributesFile is core.attributesFile, or its default git/attributes below
// the XDG directory; empty for no file. A relative path is relative
// to the top of the work tree.
func (c *Config) AttributesFile() (string, error) {
	return c.userFile("core.attributesFile", "git/attributes")
}

func (c *Config) userFile(key, def string) (string, error) {
	p, ok, err := c.Path(key)
	if ok || err != nil {
		return p, err
	}
	if dir := c.opts.xdgDir(); dir != "" {
		return filepath.Join(dir, def), nil
	}
	return "", nil
}
