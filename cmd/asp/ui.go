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

// errorf prints one error line on stderr.
func (u *ui) errorf(format string, a ...any) {
	u.mu.Lock()
	defer u.mu.Unlock()
	fmt.Fprintf(u.err, "%s %s\n", u.paint(u.errColor, "31;1", "asp:"), clean(fmt.Sprintf(format, a...)))
}

// notef prints one line for people on stderr.
func (u *ui) notef(format string, a ...any) {
	u.mu.Lock()
	defer u.mu.Unlock()
	fmt.Fprintf(u.err, "%s\n", clean(fmt.Sprintf(format, a...)))
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

// clean makes foreign text harmless on a terminal: control characters other
// than newline and tab are shown as escapes.
func clean(s string) string {
	out := make([]rune, 0, len(s))
	for _, r := range s {
		switch {
		case r == '\n' || r == '\t':
			out = append(out, r)
		case r < 0x20 || r == 0x7f || (r >= 0x80 && r < 0xa0) || (r >= 0x202a && r <= 0x202e) || (r >= 0x2066 && r <= 0x2069):
			out = append(out, []rune(fmt.Sprintf("\\u%04x", r))...)
		default:
			out = append(out, r)
		}
	}
	return string(out)
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
