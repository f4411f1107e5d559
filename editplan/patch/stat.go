package patch

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/aspengine/asp/editplan/patch/linediff"
)

// Stat writes one line for every change and one for the sum, for people: it is
// always safe for a terminal, whatever the names.
//
//	modify src/a.go           | +3 -1
//	rename old.go => new.go   | +0 -0
//	mode   100644 => 100755 run.sh
func Stat(changes []Change, o RenderOptions) []byte {
	if o.Width == 0 {
		o.Width = 80
	}
	type row struct {
		verb, name, count string
		adds, dels        int
		text              bool
	}
	var rows []row
	adds, dels, files, width := 0, 0, 0, 0
	for _, c := range changes {
		c = c.sides()
		name := safe(c.New)
		if c.Old != c.New {
			name = safe(c.Old) + " => " + name
		}
		if modes := c.OldMode != c.NewMode; modes {
			rows = append(rows, row{verb: "mode", name: fmt.Sprintf("%o => %o %s", c.OldMode, c.NewMode, safe(c.New))})
			if c.Kind == Modify && string(c.Before) == string(c.After) {
				files++
				continue
			}
		}
		w := row{verb: c.Kind.String(), name: name}
		switch {
		case c.large():
			w.count = fmt.Sprintf("large, %d => %d bytes", len(c.Before), len(c.After))
		case c.binary():
			w.count = fmt.Sprintf("binary, %d => %d bytes", len(c.Before), len(c.After))
		default:
			w.text = true
			w.dels, w.adds = linediff.Count(c.Before, c.After)
			w.count = fmt.Sprintf("+%d -%d", w.adds, w.dels)
		}
		files++
		adds, dels = adds+w.adds, dels+w.dels
		rows = append(rows, w)
		width = max(width, utf8.RuneCountInString(name))
	}
	const verbWidth, countWidth = 7, 22
	width = max(min(width, o.Width-verbWidth-countWidth), 12)
	var out []byte
	for _, w := range rows {
		if w.count == "" {
			out = fmt.Appendf(out, "%-6s %s\n", w.verb, shorten(w.name, o.Width-verbWidth))
			continue
		}
		out = fmt.Appendf(out, "%-6s %-*s | ", w.verb, width, shorten(w.name, width))
		if w.text && o.Color {
			out = fmt.Appendf(out, "%s+%d%s %s-%d%s\n", styleAdd, w.adds, reset, styleDel, w.dels, reset)
		} else {
			out = fmt.Appendf(out, "%s\n", w.count)
		}
	}
	word := "files"
	if files == 1 {
		word = "file"
	}
	return fmt.Appendf(out, "%d %s changed, +%d -%d\n", files, word, adds, dels)
}

func safe(s string) string {
	return strings.ReplaceAll(string(appendSafe(nil, []byte(s))), "\t", "^I")
}

// shorten takes characters out of the middle: the ends of a path tell most.
func shorten(s string, width int) string {
	n := utf8.RuneCountInString(s)
	if n <= width || width < 5 {
		return s
	}
	r := []rune(s)
	keep := width - 1
	return string(r[:keep/2]) + "…" + string(r[n-(keep-keep/2):])
}
