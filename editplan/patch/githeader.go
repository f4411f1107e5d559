package patch

import (
	"fmt"
	"strings"

	"github.com/aspengine/asp/snapshot"
)

// header collects what the extended header lines of a git diff say.
type header struct {
	p                                 *parser
	fp                                *FilePatch
	def                               string // from the first line; maybe ""
	oldSet, newSet                    bool   // by ---, +++, rename or copy lines
	isNew, isDelete, isRename, isCopy bool
}

// gitHeader reads from "diff --git" to the first line that is no header. A first
// line with nothing below it is an error: it may be prose, but it may be a
// change whose description was damaged. (git lets its names leak into the next
// file patch, which then fails as a rule.)
func (p *parser) gitHeader() (*FilePatch, error) {
	startLine := p.line
	h := &header{p: p, fp: &FilePatch{Line: p.line, Git: true}}
	h.def = gitNames(string(p.peek()[len("diff --git "):]), p.strip)
	p.skip()
	for p.pos < len(p.data) {
		line := p.peek()
		if line[len(line)-1] != '\n' {
			break
		}
		more, err := h.read(string(line))
		if err != nil {
			return nil, err
		}
		if !more {
			break
		}
		p.skip()
	}
	if err := h.finish(startLine); err != nil {
		return nil, err
	}
	if p.line == startLine+1 {
		return nil, &ParseError{startLine, "git diff header without a change"}
	}
	return h.fp, nil
}

// read takes one header line; false means that it is none.
func (h *header) read(line string) (bool, error) {
	fp, n := h.fp, h.p.strip
	keyword := func(words ...string) (string, bool) {
		for _, w := range words {
			if rest, ok := strings.CutPrefix(line, w); ok {
				return rest, true
			}
		}
		return "", false
	}
	var err error
	if rest, ok := keyword("--- "); ok {
		err = h.name(rest, &fp.Old, &h.oldSet, h.isNew)
	} else if rest, ok := keyword("+++ "); ok {
		err = h.name(rest, &fp.New, &h.newSet, h.isDelete)
	} else if rest, ok := keyword("old mode "); ok {
		fp.OldMode, err = h.mode(rest)
	} else if rest, ok := keyword("new mode "); ok {
		fp.NewMode, err = h.mode(rest)
	} else if rest, ok := keyword("deleted file mode "); ok {
		h.isDelete = true
		fp.Old, h.oldSet = h.def, h.def != ""
		fp.OldMode, err = h.mode(rest)
	} else if rest, ok := keyword("new file mode "); ok {
		h.isNew = true
		fp.New, h.newSet = h.def, h.def != ""
		fp.NewMode, err = h.mode(rest)
	} else if rest, ok := keyword("copy from "); ok {
		h.isCopy = true
		h.moved(rest, n, &fp.Old, &h.oldSet)
	} else if rest, ok := keyword("copy to "); ok {
		h.isCopy = true
		h.moved(rest, n, &fp.New, &h.newSet)
	} else if rest, ok := keyword("rename from ", "rename old "); ok {
		h.isRename = true
		h.moved(rest, n, &fp.Old, &h.oldSet)
	} else if rest, ok := keyword("rename to ", "rename new "); ok {
		h.isRename = true
		h.moved(rest, n, &fp.New, &h.newSet)
	} else if rest, ok := keyword("index "); ok {
		err = h.index(rest)
	} else if _, ok := keyword("similarity index ", "dissimilarity index "); !ok {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	kinds := 0
	for _, b := range []bool{h.isNew, h.isDelete, h.isRename, h.isCopy} {
		if b {
			kinds++
		}
	}
	if kinds > 1 {
		return false, h.p.fail("inconsistent header lines")
	}
	return true, nil
}

// name reads a --- or +++ line. none says that there must be no file.
func (h *header) name(rest string, name *string, set *bool, none bool) error {
	if *set {
		// After "new file mode" the old name is unset, and the other way round,
		// so what is set here was set by a rename, a copy or the mode line.
		if none {
			return h.p.fail("bad git diff: expected /dev/null, got %s", cut(*name))
		}
		if another := findName(rest, h.p.strip, true); another != *name {
			hint := ""
			if another == "" {
				hint = "; a patch made without prefixes takes --strip 0"
			}
			return h.p.fail("bad git diff: inconsistent names %s and %s%s", cut(*name), cut(another), hint)
		}
		return nil
	}
	if none {
		if !isDevNull(rest) {
			return h.p.fail("bad git diff: expected /dev/null")
		}
		return nil
	}
	*name = findName(rest, h.p.strip, true)
	*set = *name != ""
	return nil
}

// moved reads a name without a prefix; an explicit strip count above one counts
// one less here.
func (h *header) moved(rest string, n int, name *string, set *bool) {
	*name = findName(rest, max(n-1, 0), false)
	*set = *name != ""
}

func (h *header) mode(s string) (snapshot.FileMode, error) {
	v, i := 0, 0
	for ; i < len(s) && isOctal(s[i]) && i < 8; i++ {
		v = v<<3 | int(s[i]-'0')
	}
	if i == 0 || i == len(s) || !isSpace(s[i]) {
		return 0, h.p.fail("invalid mode %s", cut(s))
	}
	return snapshot.FileMode(v), nil
}

// sha1Hex is the length of a full object id.
const sha1Hex = 40

func (h *header) index(s string) error {
	old, rest, ok := strings.Cut(s, "..")
	if !ok || len(old) > sha1Hex {
		return nil
	}
	rest = strings.TrimRight(rest, "\r\n")
	id, mode, hasMode := strings.Cut(rest, " ")
	if len(id) > sha1Hex {
		return nil
	}
	h.fp.OldID, h.fp.NewID = old, id
	if !hasMode {
		return nil
	}
	m, err := h.mode(mode + "\n")
	h.fp.OldMode = m
	return err
}

func (h *header) finish(startLine int) error {
	fp := h.fp
	fail := func(reason string) error { return &ParseError{startLine, reason} }
	if fp.Old == "" && fp.New == "" {
		if h.def == "" {
			return fail(fmt.Sprintf("git diff header lacks file names after removing %d leading components; a patch made without prefixes takes --strip 0", h.p.strip))
		}
		fp.Old, fp.New = h.def, h.def
	}
	switch {
	case h.isNew:
		fp.Kind = Create
	case h.isDelete:
		fp.Kind = Delete
	case h.isRename:
		fp.Kind = Rename
	case h.isCopy:
		fp.Kind = Copy
	default:
		fp.Kind = Modify
	}
	if fp.New == "" && !h.isDelete || fp.Old == "" && !h.isNew {
		return fail("git diff header lacks file names")
	}
	if h.isNew && fp.Old != "" || h.isDelete && fp.New != "" {
		return fail("git diff header names a file where there is none")
	}
	return nil
}
