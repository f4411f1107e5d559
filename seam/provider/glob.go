package provider

import (
	"fmt"
	"path"
	"strings"
)

// Bounds of a list of globs; who needs more gets an error.
const (
	maxGlobs      = 1024
	maxGlobBytes  = 4096
	maxBraces     = 64 // alternatives that one glob may stand for
	everythingDir = "**"
)

// globs is a list of path globs: *, ?, [a-z] and \ inside a component, ** for any
// number of components, {a,b} for alternatives, a leading ! to exclude. A path is
// in when one of the others matches it and no exclusion does, in whatever order
// they stand. An exclusion also takes what lies below what it matches, and without a
// slash it matches at every depth: of two readings it takes the one that
// excludes more.
type globs struct {
	in, out []pattern
}

type pattern []string // components

func parseGlobs(list []string) (globs, error) {
	var g globs
	if len(list) > maxGlobs {
		return g, fmt.Errorf("%d globs are over the limit of %d", len(list), maxGlobs)
	}
	for _, text := range list {
		body, exclude := strings.CutPrefix(text, "!")
		if len(body) > maxGlobBytes || body == "" {
			return g, fmt.Errorf("glob %.100q is empty or too long", text)
		}
		alternatives, err := braces(body, maxBraces)
		if err != nil {
			return g, fmt.Errorf("glob %.100q: %w", text, err)
		}
		for _, a := range alternatives {
			p, err := parsePattern(a)
			if err != nil {
				return g, fmt.Errorf("glob %.100q: %w", text, err)
			}
			if exclude {
				g.out = append(g.out, p)
			} else {
				g.in = append(g.in, p)
			}
		}
	}
	return g, nil
}

func parsePattern(s string) (pattern, error) {
	s = strings.TrimPrefix(strings.TrimPrefix(s, "./"), "/")
	if s == "" || s == "." {
		return pattern{everythingDir}, nil
	}
	if strings.HasSuffix(s, "/") {
		s += everythingDir
	}
	p := strings.Split(s, "/")
	for _, c := range p {
		if c == "" || c == "." || c == ".." {
			return nil, fmt.Errorf("component %q", c)
		}
		if _, err := path.Match(c, ""); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// braces spells out the alternatives of the first {…} of s, and so on.
func braces(s string, limit int) ([]string, error) {
	open := -1
	for i := 0; i < len(s) && open < 0; i++ {
		switch s[i] {
		case '\\':
			i++
		case '{':
			open = i
		}
	}
	if open < 0 {
		return []string{s}, nil
	}
	depth, start := 0, open+1
	var parts []string
	end := -1
	for i := open; i < len(s) && end < 0; i++ {
		switch c := s[i]; {
		case c == '\\':
			i++
		case c == '{':
			depth++
		case c == ',' && depth == 1:
			parts, start = append(parts, s[start:i]), i+1
		case c == '}':
			if depth--; depth == 0 {
				parts, end = append(parts, s[start:i]), i
			}
		}
	}
	if end < 0 {
		return nil, path.ErrBadPattern
	}
	var out []string
	for _, p := range parts {
		more, err := braces(s[:open]+p+s[end+1:], limit-len(out))
		if err != nil {
			return nil, err
		}
		if out = append(out, more...); len(out) > limit {
			return nil, fmt.Errorf("more than %d alternatives", maxBraces)
		}
	}
	return out, nil
}

// match tells whether p is in.
func (g globs) match(p string) bool {
	parts := strings.Split(p, "/")
	for _, x := range g.out {
		if x.excludes(parts) {
			return false
		}
	}
	for _, x := range g.in {
		if x.matches(parts) {
			return true
		}
	}
	return false
}

// covers is match for the scope of a plan: what lies below something that
// matches is in too, so that a directory may be named.
func (g globs) covers(p string) bool {
	parts := strings.Split(p, "/")
	for _, x := range g.out {
		if x.excludes(parts) {
			return false
		}
	}
	for _, x := range g.in {
		for n := 1; n <= len(parts); n++ {
			if x.matches(parts[:n]) {
				return true
			}
		}
	}
	return false
}

func (x pattern) excludes(parts []string) bool {
	for n := 1; n <= len(parts); n++ {
		if x.matches(parts[:n]) || len(x) == 1 && x.matches(parts[n-1:n]) {
			return true
		}
	}
	return false
}

// matches compares by rows of the table of prefixes, so that its time is at most
// the product of the two lengths, however many ** there are.
func (x pattern) matches(parts []string) bool {
	row := make([]bool, len(parts)+1) // row[j]: x[:i] matches parts[:j]
	row[0] = true
	for i, c := range x {
		next := make([]bool, len(parts)+1)
		if c == everythingDir {
			// A trailing ** stands for at least one component: src/** is what is in src.
			reach := false
			for j := range next {
				if i == len(x)-1 {
					next[j] = reach
					reach = reach || row[j]
				} else {
					reach = reach || row[j]
					next[j] = reach
				}
			}
		} else {
			for j, name := range parts {
				if row[j] {
					ok, _ := path.Match(c, name)
					next[j+1] = ok
				}
			}
		}
		row = next
	}
	return row[len(parts)]
}

// everything tells whether some glob takes every path and none excludes.
func (g globs) everything() bool {
	if len(g.out) > 0 {
		return false
	}
	for _, x := range g.in {
		if len(x) == 1 && x[0] == everythingDir || len(x) == 2 && x[0] == everythingDir && (x[1] == "*" || x[1] == everythingDir) {
			return true
		}
	}
	return false
}
