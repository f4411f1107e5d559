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
)

// Limits on what is read. Anything beyond is an error, never a silent cut.
const (
	MaxFileSize = 4 << 20 // bytes in one file
	MaxFiles    = 200     // files of one Load, includes counted each time they are read
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
func Load(ctx context.Context, o Options) (*Config, error) { return &Config{opts: o}, nil }

// Parse reads one file's bytes without following includes. Errors wrap
// ErrSyntax and name the line.
func Parse(b []byte) ([]Entry, error) { return nil, nil }

// Entries returns a copy of all assignments in order.
func (c *Config) Entries() []Entry { return append([]Entry(nil), c.entries...) }

// String returns the last value of key; ok is false when the key is not set.
// A key without a value gives "" and true.
func (c *Config) String(key string) (v string, ok bool) { return "", false }

// All returns every value of key in order.
func (c *Config) All(key string) []string { return nil }

// Bool returns the last value of key by git's spellings (true, yes, on, any
// number but 0, or no value at all; false, no, off, 0, empty), and def when the
// key is not set. Another spelling is an error wrapping ErrValue.
func (c *Config) Bool(key string, def bool) (bool, error) { return def, nil }

// Path returns the last value of key with a leading ~/ or ~user/ expanded;
// ok is false when the key is not set.
func (c *Config) Path(key string) (p string, ok bool, err error) { return "", false, nil }

// Subsections returns the distinct subsections of section that any key is set
// in, in order of first appearance: for [filter "lfs"], "lfs" of "filter".
func (c *Config) Subsections(section string) []string { return nil }

// ExcludesFile is core.excludesFile, or its default git/ignore below the XDG
// directory; empty when neither is known.
func (c *Config) ExcludesFile() (string, error) { return "", nil }

// AttributesFile is core.attributesFile, or its default git/attributes below
// the XDG directory; empty when neither is known.
func (c *Config) AttributesFile() (string, error) { return "", nil }
