// Package convert answers which blob git would store for a working file: line
// ends and $Id$ as the attributes and the configuration say. It never runs a
// filter; a path that needs one is reported as Filtered.
package convert

import (
	"context"
	"errors"
	"io"

	"github.com/aspengine/asp/snapshot/gitbase/attrs"
	"github.com/aspengine/asp/snapshot/gitbase/gitconfig"
)

// ErrChanged means that the file was longer or shorter than the size given, or
// changed between two readings: look again.
var ErrChanged = errors.New("file changed while it was read")

// ErrFiltered means that the blob cannot be computed without running a filter
// or an encoder.
var ErrFiltered = errors.New("path has a content filter")

// ID is the SHA-1 object id of a blob.
type ID [20]byte

// Config is the part of the configuration that conversion depends on.
// Immutable after FromConfig.
type Config struct {
	autoCRLF bool
	drivers  map[string]bool
}

// FromConfig reads core.autocrlf and the filter drivers.
func FromConfig(c *gitconfig.Config) (Config, error) { return Config{}, nil }

// EOL says what happens to CRLF on the way into a blob.
type EOL uint8

// The treatments.
const (
	Keep EOL = iota // bytes as they are
	Text            // every CRLF becomes LF
	Auto            // as Text, unless the content looks binary or the index blob already has CRLF
)

// Rule is what to do with one path.
type Rule struct {
	EOL      EOL
	Ident    bool   // collapse $Id: …$
	Filter   string // name of the configured filter driver, or "working-tree-encoding=<x>"; "" for none
	Filtered bool   // the blob cannot be computed here
}

// Raw tells whether the blob is the file's bytes for any content.
func (r Rule) Raw() bool { return r == Rule{} }

// Decide folds attributes and configuration into a rule.
func (c Config) Decide(a attrs.Attrs) Rule { return Rule{} }

// IndexHasCRLF tells whether the index blob of the path at hand is text with
// CRLF in it (see HasCRLF); false when the path is not in the index. It is
// called at most once, and only for Auto with CRLF in the working file.
type IndexHasCRLF func() (bool, error)

// HasCRLF reads a blob's content for IndexHasCRLF.
func HasCRLF(r io.Reader) (bool, error) { return false, nil }

// Hasher computes blob ids. It keeps a buffer, so use one per goroutine.
type Hasher struct{}

// NewHasher returns a Hasher.
func NewHasher() *Hasher { return &Hasher{} }

// Blob returns the id of the blob that git would store for the size bytes in
// src. Memory does not grow with size. Errors: ErrFiltered for a filtered
// rule, ErrChanged, the context's error (looked at every few megabytes), and
// those of src and idx. A nil idx stands for "no CRLF in the index".
func (h *Hasher) Blob(ctx context.Context, src io.ReaderAt, size int64, r Rule, idx IndexHasCRLF) (ID, error) {
	return ID{}, nil
}

// Clean returns the bytes that git would store for content; the result may
// share memory with content. ErrFiltered for a filtered rule.
func Clean(content []byte, r Rule, idx IndexHasCRLF) ([]byte, error) { return content, nil }
