package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"
)

// ui is what people see: messages and progress on stderr, colour only on a
// terminal that wants it.
type ui struct {
	err      io.Writer
	errTTY   bool
	outTTY   bool
	outColor bool
	errColor bool
	width    int
	mu       sync.Mutex
}

func newUI(stderr, stdout *os.File, getenv func(string) string) *ui {
	color := getenv("NO_COLOR") == "" && getenv("TERM") != "dumb"
	u := &ui{err: stderr, width: 80}
	_, u.errTTY = terminal(stderr)
	u.errColor = color && u.errTTY
	columns, out := terminal(stdout)
	u.outTTY = out
	u.outColor = color && out
	if columns > 20 {
		u.width = columns
	}
	return u
}

func (u *ui) paint(on bool, code, s string) string {
	if !on {
		return s
	}
	return "\x1b[" + code + "m" + s + "\x1b[0m"
}

// quoteMark starts the further lines of what has several.
const quoteMark = "     | "

// errorf prints an error on stderr.
func (u *ui) errorf(format string, a ...any) {
	u.mu.Lock()
	defer u.mu.Unlock()
	fmt.Fprintf(u.err, "%s %s\n", u.paint(u.errColor, "31;1", "asp:"), cleanLines(fmt.Sprintf(format, a...), quoteMark))
}

// notef prints something for people on stderr.
func (u *ui) notef(format string, a ...any) {
	u.mu.Lock()
	defer u.mu.Unlock()
	fmt.Fprintf(u.err, "%s\n", cleanLines(fmt.Sprintf(format, a...), quoteMark))
}

// progress says on a terminal what is going on when a step takes longer than a
// second, and nowhere else: a log has the answer. The returned function ends it and
// waits until nothing more is printed.
func (u *ui) progress(what string) func() {
	if !u.errTTY {
		return func() {}
	}
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		start := time.Now()
		t := time.NewTimer(time.Second)
		defer t.Stop()
		for shown := false; ; shown = true {
			select {
			case <-done:
				if shown {
					fmt.Fprint(u.err, "\r\x1b[K")
				}
				return
			case <-t.C:
				u.mu.Lock()
				fmt.Fprintf(u.err, "\r\x1b[K%s … %ds", clean(what), int(time.Since(start).Seconds()))
				u.mu.Unlock()
				t.Reset(time.Second)
			}
		}
	})
	var once sync.Once
	return func() {
		once.Do(func() { close(done) })
		wg.Wait()
	}
}

// clean makes foreign text one harmless line: control characters other than tab, line
// ends of every kind and what turns the direction of writing are shown as escapes. A
// line end that came through would let a name or an id say what only asp may say, a
// guarantee for one. What really has several lines goes through cleanLines.
func clean(s string) string {
	var out strings.Builder
	for _, r := range s {
		switch {
		case r == '\n':
			out.WriteString(`\n`)
		case r == '\r':
			out.WriteString(`\r`)
		case r < 0x20 && r != '\t', r >= 0x7f && r < 0xa0, r == 0x061c, r == 0x200e, r == 0x200f,
			r >= 0x2028 && r <= 0x202e, r >= 0x2066 && r <= 0x2069:
			fmt.Fprintf(&out, "\\u%04x", r)
		default:
			out.WriteRune(r)
		}
	}
	return out.String()
}

// cleanLines is clean for text that may have several lines, as the output of a check or
// the errors that were joined: each line but the first starts with indent, so that
// none can be taken for one of asp's own.
func cleanLines(s, indent string) string {
	lines := strings.Split(strings.TrimRight(s, "\n"), "\n")
	for i, l := range lines {
		lines[i] = clean(strings.TrimSuffix(l, "\r"))
	}
	return strings.Join(lines, "\n"+indent)
}

// wrap breaks text at spaces so that lines of the given width start with indent.
// Quoted parts are shown as they are, with every space, and never broken.
func wrap(s, indent string, width int) string {
	room := max(width-len(indent), 40)
	var b strings.Builder
	n := 0
	for _, w := range words(s) {
		if n > 0 && n+1+len(w) > room {
			b.WriteString("\n" + indent)
			n = 0
		}
		if n > 0 {
			b.WriteByte(' ')
			n++
		}
		b.WriteString(w)
		n += len(w)
	}
	return b.String()
}

// words splits at spaces outside double quotes; a backslash escapes inside them.
func words(s string) []string {
	var out []string
	start, quoted := 0, false
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '\\' && quoted:
			i++
		case c == '"':
			quoted = !quoted
		case c == ' ' && !quoted:
			if i > start {
				out = append(out, s[start:i])
			}
			start = i + 1
		}
	}
	if start < len(s) {
		out = append(out, s[start:])
	}
	return out
}
