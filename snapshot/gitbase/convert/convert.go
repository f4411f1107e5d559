// Package convert answers which blob git would store for a working file: line
// ends and $Id$ as the attributes and the configuration say. It never runs a
// filter; a path that needs one is reported as Filtered.
package convert

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

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

// Config is the part of the configuration that conversion depends on. The zero
// value is git's default. Immutable, safe for concurrent use.
type Config struct {
	autoCRLF bool            // true and "input" are the same on the way into a blob
	drivers  map[string]bool // filters that something must be run for
}

// FromConfig reads core.autocrlf and the filter drivers. A bad spelling of a
// truth value is an error, as it is to git.
func FromConfig(c *gitconfig.Config) (Config, error) {
	out := Config{drivers: map[string]bool{}}
	if v, _ := c.String("core.autocrlf"); strings.EqualFold(v, "input") {
		out.autoCRLF = true
	} else {
		var err error
		if out.autoCRLF, err = c.Bool("core.autocrlf", false); err != nil {
			return Config{}, err
		}
	}
	for _, name := range c.Subsections("filter") {
		clean, _ := c.String("filter." + name + ".clean")
		process, hasProcess := c.String("filter." + name + ".process")
		required, err := c.Bool("filter."+name+".required", false)
		if err != nil {
			return Config{}, err
		}
		// A process, even an empty one, replaces clean.
		out.drivers[name] = required || process != "" || !hasProcess && clean != ""
	}
	return out, nil
}

// EOL says what happens to CRLF on the way into a blob.
type EOL uint8

// The treatments.
const (
	Keep EOL = iota // bytes as they are
	Text            // every CRLF becomes LF
	Auto            // as Text, unless the content looks binary or the index blob is text with CRLF
)

// Rule is what to do with the regular file at one path. (The target of a
// symbolic link is never converted: its rule is the zero one.)
type Rule struct {
	EOL      EOL
	Ident    bool   // collapse $Id: …$
	Filtered bool   // the blob cannot be computed here
	Filter   string // why: name of the filter driver, or "working-tree-encoding=<x>"; "" when not Filtered
}

// Raw tells whether the blob is the file's bytes for any content.
func (r Rule) Raw() bool { return r == Rule{} }

// Decide folds attributes and configuration into a rule. A filter attribute
// without a configured driver does nothing, as in git.
func (c Config) Decide(a attrs.Attrs) Rule {
	var r Rule
	r.Ident = a.Ident.State == attrs.Set
	eol, known := textual(a.Text)
	if !known {
		eol, known = textual(a.CRLF)
	}
	named := a.EOL.State == attrs.Value && (a.EOL.Text == "lf" || a.EOL.Text == "crlf")
	switch {
	case known:
		r.EOL = eol
	case named:
		r.EOL = Text
	case c.autoCRLF:
		r.EOL = Auto
	}
	switch {
	case a.Filter.State == attrs.Value && c.drivers[a.Filter.Text]:
		r.Filtered, r.Filter = true, a.Filter.Text
	case encoded(a.Encoding):
		r.Filtered, r.Filter = true, "working-tree-encoding="+a.Encoding.Text
	}
	return r
}

// textual reads the attribute text, or crlf, its old name.
func textual(a attrs.Attr) (e EOL, known bool) {
	switch {
	case a.State == attrs.Set, a.State == attrs.Value && a.Text == "input":
		return Text, true
	case a.State == attrs.Unset:
		return Keep, true
	case a.State == attrs.Value && a.Text == "auto":
		return Auto, true
	default:
		return Keep, false
	}
}

// encoded tells whether the working file is in another encoding than the blob.
// Set and unset are mistakes that git dies of; they must not pass as none.
func encoded(a attrs.Attr) bool {
	switch a.State {
	case attrs.Unspecified:
		return false
	case attrs.Value:
		v := strings.ToLower(a.Text)
		return v != "" && v != "utf-8" && v != "utf8"
	default:
		return true
	}
}

// IndexHasCRLF tells whether the index blob of the path at hand (our side's,
// when there is a conflict) is text with CRLF in it, see HasCRLF; false when
// the path is not in the index. It is called at most once, and only for Auto
// with CRLF in the working file.
type IndexHasCRLF func() (bool, error)

// HasCRLF reads a blob's content for IndexHasCRLF.
func HasCRLF(r io.Reader) (bool, error) {
	var s stats
	buf := make([]byte, 32<<10)
	for {
		n, err := r.Read(buf)
		s.add(buf[:n])
		if err == io.EOF {
			s.end()
			return s.crlf > 0 && !s.binary(), nil
		}
		if err != nil {
			return false, fmt.Errorf("read index blob: %w", err)
		}
	}
}

// Clean returns the bytes that git would store for content; the result may
// share memory with content. ErrFiltered for a filtered rule.
func Clean(content []byte, r Rule, idx IndexHasCRLF) ([]byte, error) {
	if r.Filtered {
		return nil, ErrFiltered
	}
	if r.Raw() {
		return content, nil
	}
	// Most files hold nothing to clean; two fast searches tell.
	lines := r.EOL != Keep && bytes.IndexByte(content, '\r') >= 0
	if r.Ident = r.Ident && bytes.Contains(content, []byte(openIdent)); !lines && !r.Ident {
		return content, nil
	}
	convert := lines && r.EOL == Text
	if lines && r.EOL == Auto {
		var s stats
		s.add(content)
		s.end()
		var err error
		if convert, err = s.convert(idx); err != nil {
			return nil, err
		}
	}
	out := &buffer{b: make([]byte, 0, len(content))}
	p := newPipe(out, convert, r.Ident)
	p.write(content)
	p.end()
	return out.b, nil
}

// convert decides for Auto.
func (s *stats) convert(idx IndexHasCRLF) (bool, error) {
	if s.crlf == 0 || s.binary() {
		return false, nil
	}
	if idx == nil {
		return true, nil
	}
	has, err := idx()
	return !has, err
}

// newPipe chains what the rule asks for in front of a sink.
func newPipe(to sink, convert, id bool) *lineEnds {
	l := &lineEnds{to: to.write, keep: !convert}
	if id {
		l.to = (&ident{to: to}).write
	}
	return l
}
