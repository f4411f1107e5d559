package patch

import (
	"bytes"
	"fmt"
	"strings"
)

// Parse reads every file patch in data: unified and git diffs, in any order and
// with any text before, between and after them (mail headers, commit messages,
// signatures). The error is a *ParseError; there is no partial result.
// Input without any patch is an error.
func Parse(data []byte, o ParseOptions) ([]FilePatch, error) {
	p := &parser{data: data, line: 1, limits: o.Limits.withDefaults(), strip: o.Strip, stripKnown: o.Strip != 0}
	switch {
	case o.Strip == 0:
		p.strip = 1
	case o.Strip < 0:
		p.strip = 0
	}
	if len(data) > p.limits.Bytes {
		return nil, &ParseError{1, fmt.Sprintf("patch of %d bytes is over the limit of %d", len(data), p.limits.Bytes)}
	}
	var out []FilePatch
	for {
		fp, err := p.file()
		if err != nil {
			return nil, err
		}
		if fp == nil {
			break
		}
		if len(out) == p.limits.Files {
			return nil, &ParseError{fp.Line, fmt.Sprintf("more than %d files", p.limits.Files)}
		}
		out = append(out, *fp)
	}
	if len(out) == 0 {
		return nil, &ParseError{p.line, "no patch found"}
	}
	return out, nil
}

// parser walks over the lines of a patch.
type parser struct {
	data       []byte
	pos        int
	line       int // of pos, from 1
	limits     Limits
	hunks      int
	inflated   int64
	strip      int
	stripKnown bool
}

// lineAt returns the line that starts at i, with its LF; nil at the end.
func (p *parser) lineAt(i int) []byte {
	if n := bytes.IndexByte(p.data[i:], '\n'); n >= 0 {
		return p.data[i : i+n+1]
	}
	return p.data[i:]
}

func (p *parser) peek() []byte { return p.lineAt(p.pos) }

func (p *parser) skip() {
	p.pos += len(p.peek())
	p.line++
}

func (p *parser) fail(format string, a ...any) error {
	return &ParseError{p.line, fmt.Sprintf(format, a...)}
}

// file finds the next header and reads the patch below it. nil at the end.
func (p *parser) file() (*FilePatch, error) {
	fp, err := p.findHeader()
	if fp == nil || err != nil {
		return nil, err
	}
	if err := p.textHunks(fp); err != nil {
		return nil, err
	}
	if len(fp.Hunks) == 0 {
		if err := p.binary(fp); err != nil {
			return nil, err
		}
		if fp.Binary == nil && fp.Kind == Modify && (fp.OldMode == 0 || fp.NewMode == 0 || fp.OldMode == fp.NewMode) {
			return nil, p.fail("patch of %s changes nothing", cut(fp.Name()))
		}
	}
	if fp.Kind == Modify && fp.Old != fp.New {
		// Two names and no word about a rename: the content moves all the same.
		fp.Kind = Rename
	}
	return fp, nil
}

// shortHeader is the shortest line that can begin a patch, and the shortest
// that can follow.
const shortHeader = 6

func (p *parser) findHeader() (*FilePatch, error) {
	for ; p.pos < len(p.data); p.skip() {
		line := p.peek()
		if len(line) < shortHeader {
			continue
		}
		if bytes.HasPrefix(line, []byte("@@ -")) {
			// Prose may look like this; a real header without names is a patch
			// that somebody cut in two.
			if _, ok := hunkHeader(line); ok {
				return nil, p.fail("hunk without a file header: %s", cut(string(line)))
			}
			continue
		}
		if len(p.data)-p.pos < len(line)+shortHeader {
			return nil, nil
		}
		if bytes.HasPrefix(line, []byte("diff --git ")) {
			return p.gitHeader()
		}
		if !bytes.HasPrefix(line, []byte("--- ")) {
			continue
		}
		second := p.lineAt(p.pos + len(line))
		third := p.lineAt(p.pos + len(line) + len(second))
		if bytes.HasPrefix(second, []byte("+++ ")) && bytes.HasPrefix(third, []byte("@@ -")) && len(third) >= len("@@ -1 +1 @@") {
			return p.plainHeader(string(line), string(second))
		}
	}
	return nil, nil
}

// plainHeader reads the two lines of a unified diff that is not git's.
func (p *parser) plainHeader(first, second string) (*FilePatch, error) {
	fp := &FilePatch{Line: p.line}
	first, second = first[len("--- "):], second[len("+++ "):]
	if !p.stripKnown {
		a, b := guessStrip(first), guessStrip(second)
		if a < 0 {
			a = b
		}
		if a >= 0 && a == b {
			p.strip, p.stripKnown = a, true
		}
	}
	switch {
	case isDevNull(first):
		fp.Kind, fp.New = Create, plainName(second, p.strip)
	case isDevNull(second):
		fp.Kind, fp.Old = Delete, plainName(first, p.strip)
	default:
		name := plainName(second, p.strip)
		// Of "f" and "f.orig" the shorter one is the file.
		if one := plainName(first, p.strip); one != "" && len(one) < len(name) && strings.HasPrefix(name, one) && !strings.HasPrefix(second, `"`) {
			name = one
		} else if name == "" && !strings.HasPrefix(second, `"`) {
			name = one
		}
		switch {
		case isEpoch(first):
			fp.Kind, fp.New = Create, name
		case isEpoch(second):
			fp.Kind, fp.Old = Delete, name
		default:
			fp.Kind, fp.Guess, fp.Old, fp.New = Modify, true, name, name
		}
	}
	if fp.Name() == "" {
		return nil, p.fail("no file name left after removing %d leading components", p.strip)
	}
	p.skip()
	p.skip()
	return fp, nil
}

// guessStrip says that a name without a slash has no prefix; -1 is no opinion.
func guessStrip(line string) int {
	if isDevNull(line) {
		return -1
	}
	if name := plainName(line, 0); name == "" || strings.Contains(name, "/") {
		return -1
	}
	return 0
}

// textHunks reads hunks until something else comes.
func (p *parser) textHunks(fp *FilePatch) error {
	oldLines, newLines := 0, 0
	for {
		line := p.peek()
		if !bytes.HasPrefix(line, []byte("@@ -")) {
			break
		}
		if p.hunks++; p.hunks > p.limits.Hunks {
			return p.fail("more than %d hunks", p.limits.Hunks)
		}
		h, ok := hunkHeader(line)
		if !ok {
			return p.fail("corrupt hunk header %s", cut(string(line)))
		}
		if err := p.hunkBody(&h); err != nil {
			return err
		}
		oldLines += h.OldLines
		newLines += h.NewLines
		fp.Hunks = append(fp.Hunks, h)
	}
	if oldLines > 0 || len(fp.Hunks) > 1 {
		fp.Guess = false
	}
	if fp.Kind == Create && oldLines > 0 {
		return p.fail("new file %s depends on old contents", cut(fp.New))
	}
	if fp.Kind == Delete && newLines > 0 {
		return p.fail("deleted file %s still has contents", cut(fp.Old))
	}
	return nil
}

// hunkHeader reads "@@ -a[,b] +c[,d] @@"; what follows is a hint for people.
func hunkHeader(line []byte) (Hunk, bool) {
	var h Hunk
	if len(line) == 0 || line[len(line)-1] != '\n' {
		return h, false
	}
	rest, ok := bytes.CutPrefix(line, []byte("@@ -"))
	if !ok {
		return h, false
	}
	if h.OldStart, h.OldLines, rest, ok = lineRange(rest); !ok {
		return h, false
	}
	if rest, ok = bytes.CutPrefix(rest, []byte(" +")); !ok {
		return h, false
	}
	if h.NewStart, h.NewLines, rest, ok = lineRange(rest); !ok {
		return h, false
	}
	return h, bytes.HasPrefix(rest, []byte(" @@"))
}

func lineRange(b []byte) (start, n int, rest []byte, ok bool) {
	if start, b, ok = number(b); !ok {
		return 0, 0, nil, false
	}
	n = 1
	if len(b) > 0 && b[0] == ',' {
		if n, b, ok = number(b[1:]); !ok {
			return 0, 0, nil, false
		}
	}
	return start, n, b, true
}

// maxNumber bounds every number in a patch, so that sums cannot overflow.
const maxNumber = 1 << 40

// number reads decimal digits: no sign, no space before them.
func number(b []byte) (int, []byte, bool) {
	v, i := 0, 0
	for ; i < len(b) && '0' <= b[i] && b[i] <= '9'; i++ {
		if v = v*10 + int(b[i]-'0'); v > maxNumber {
			return 0, nil, false
		}
	}
	return v, b[i:], i > 0
}

// noNewline begins the line that takes the newline off the line before it. What
// follows depends on the language of the tool, and is at least so long.
var noNewline = []byte(`\ `)

const noNewlineLength = 12

// hunkBody checks the lines of a hunk against the counts of its header.
func (p *parser) hunkBody(h *Hunk) error {
	h.Line = p.line
	p.skip()
	start := p.pos
	left, right := h.OldLines, h.NewLines
	changed := false
	for left > 0 || right > 0 {
		line := p.peek()
		if len(line) == 0 || line[len(line)-1] != '\n' {
			return p.fail("corrupt patch: hunk of line %d ends early", h.Line)
		}
		switch line[0] {
		case ' ', '\n':
			// Some tools write an empty context line without its space.
			left--
			right--
			if !changed {
				h.Leading++
			}
			h.Trailing++
		case '-':
			left--
			changed, h.Trailing = true, 0
		case '+':
			right--
			changed, h.Trailing = true, 0
		case '\\':
			if len(line) < noNewlineLength || !bytes.HasPrefix(line, noNewline) {
				return p.fail("corrupt patch: line %s in the hunk of line %d", cut(string(line)), h.Line)
			}
		default:
			return p.fail("corrupt patch: line %s in the hunk of line %d", cut(string(line)), h.Line)
		}
		if left < 0 || right < 0 {
			return p.fail("corrupt patch: hunk of line %d has more lines than it says", h.Line)
		}
		p.skip()
	}
	if !changed {
		return p.fail("corrupt patch: hunk of line %d changes nothing", h.Line)
	}
	if line := p.peek(); bytes.HasPrefix(line, noNewline) && len(p.data)-p.pos > noNewlineLength {
		p.skip()
	}
	h.Body = p.data[start:p.pos]
	return nil
}

// binary reads what stands in place of hunks on a binary change, if it is one.
func (p *parser) binary(fp *FilePatch) error {
	line := p.peek()
	trimmed := bytes.TrimSuffix(bytes.TrimSuffix(line, []byte{'\n'}), []byte{'\r'})
	if string(trimmed) == "GIT binary patch" && len(trimmed) < len(line) {
		p.skip()
		forward, found, err := p.binarySection()
		if err != nil {
			return err
		}
		if !found {
			return p.fail("binary patch without data")
		}
		// The way back is read so that damage shows, and not used.
		if _, _, err := p.binarySection(); err != nil {
			return err
		}
		fp.Binary = forward
		return nil
	}
	if bytes.HasSuffix(line, []byte(" differ\n")) && (bytes.HasPrefix(line, []byte("Binary files ")) || bytes.HasPrefix(line, []byte("Files "))) {
		p.skip()
		fp.Binary = &Binary{Method: NoData}
	}
	return nil
}
