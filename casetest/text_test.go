package casetest

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// users runs a cheap case as the ordinary user and, where the tests are root,
// as root too.
func users(t *testing.T, run func(t *testing.T, opts ...worldOption)) {
	t.Run("user", func(t *testing.T) { run(t) })
	if os.Geteuid() == 0 {
		t.Run("root", func(t *testing.T) { run(t, asRoot) })
	}
}

func TestTE01(t *testing.T) {
	const before = "🟢🔺 é ⏫ ALPHA omega\n"
	users(t, func(t *testing.T, opts ...worldOption) {
		for _, c := range []struct {
			name     string
			from, to int
			want     string
			size     int
		}{
			{"UTF-16 columns", 9, 14, "🟢🔺 é ⏫ BETA omega\n", 27},
			{"code point columns are taken at their word", 7, 12, "🟢🔺 é BETAHA omega\n", 25},
		} {
			t.Run(c.name, func(t *testing.T) {
				w := newWorld(t, map[string]string{"s.md": before}, opts...)
				w.plan().edits("s.md", before, edit(0, c.from, 0, c.to, "BETA")).apply().applied()
				w.is("s.md", c.want)
				if len(c.want) != c.size {
					t.Errorf("the test is wrong: %d bytes", len(c.want))
				}
				w.clean()
			})
		}
		t.Run("inside a surrogate pair", func(t *testing.T) {
			w := newWorld(t, map[string]string{"s.md": before}, opts...)
			m := w.mark()
			w.plan().edits("s.md", before, edit(0, 1, 0, 2, "x")).apply().refused("bad-range", "s.md")
			m.unchanged()
		})
	})
}

func TestTE03(t *testing.T) {
	const greek = "alpha beta gamma\n"
	three := []obj{edit(0, 11, 0, 16, "G"), edit(0, 0, 0, 5, "longer-alpha"), edit(0, 6, 0, 10, "")}
	for _, o := range [][3]int{{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}} {
		t.Run("any order", func(t *testing.T) {
			w := newWorld(t, map[string]string{"f": greek})
			w.plan().edits("f", greek, three[o[0]], three[o[1]], three[o[2]]).apply().applied()
			w.is("f", "longer-alpha  G\n")
		})
	}
	t.Run("inserts at one place in array order before a replacement", func(t *testing.T) {
		w := newWorld(t, map[string]string{"f": "abcdef\n"})
		w.plan().edits("f", "abcdef\n", edit(0, 3, 0, 3, "<2>"), edit(0, 3, 0, 3, "<1>"), edit(0, 3, 0, 5, "Y")).apply().applied()
		w.is("f", "abc<2><1>Yf\n")
	})
	t.Run("an insert listed after the replacement", func(t *testing.T) {
		w := newWorld(t, map[string]string{"f": "abcdef\n"})
		m := w.mark()
		w.plan().edits("f", "abcdef\n", edit(0, 3, 0, 5, "Y"), edit(0, 3, 0, 3, "<1>")).apply().refused("overlap", "f")
		m.unchanged()
	})
}

func TestTE04(t *testing.T) {
	const digits = "0123456789\n"
	for _, c := range []struct {
		name  string
		edits []obj
		code  string
		want  string
	}{
		{"overlap", []obj{edit(0, 0, 0, 6, "A"), edit(0, 5, 0, 8, "B")}, "overlap", ""},
		{"doubled", []obj{edit(0, 2, 0, 6, "A"), edit(0, 2, 0, 6, "A")}, "overlap", ""},
		{"insert inside a replacement", []obj{edit(0, 2, 0, 6, "Z"), edit(0, 4, 0, 4, "i")}, "overlap", ""},
		{"reversed", []obj{edit(0, 6, 0, 2, "Z")}, "bad-range", ""},
		{"past the line", []obj{edit(0, 10, 0, 11, "Z")}, "bad-range", ""},
		{"past the file", []obj{edit(2, 0, 2, 0, "Z")}, "bad-range", ""},
		{"touching", []obj{edit(0, 0, 0, 5, "A"), edit(0, 5, 0, 8, "B")}, "", "AB89\n"},
		{"insert at the end of a replacement", []obj{edit(0, 2, 0, 6, "Z"), edit(0, 6, 0, 6, "in")}, "", "01Zin6789\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, map[string]string{"d.txt": digits, "e.txt": "keep\n"})
			p := w.plan().edits("d.txt", digits, c.edits...).edits("e.txt", "keep\n", edit(0, 0, 0, 4, "KEEP"))
			m := w.mark()
			if c.code != "" {
				p.apply().refused(c.code, "d.txt")
				m.unchanged()
				return
			}
			p.apply().applied()
			w.is("d.txt", c.want)
			w.is("e.txt", "KEEP\n")
		})
	}
}

func TestTE05(t *testing.T) {
	const mixed = "\xEF\xBB\xBFone\r\ntwo\r\nthree\nfour\r\n"
	t.Run("new text is literal", func(t *testing.T) {
		w := newWorld(t, map[string]string{"m.txt": mixed})
		w.plan().edits("m.txt", mixed, edit(1, 0, 1, 3, "TWO\nplus")).apply().applied()
		w.is("m.txt", "\xEF\xBB\xBFone\r\nTWO\nplus\r\nthree\nfour\r\n")
	})
	t.Run("line ends outside stay", func(t *testing.T) {
		w := newWorld(t, map[string]string{"m.txt": mixed})
		w.plan().edits("m.txt", mixed, edit(3, 4, 3, 4, "!")).apply().applied()
		w.is("m.txt", "\xEF\xBB\xBFone\r\ntwo\r\nthree\nfour!\r\n")
	})
	t.Run("a whole blob is taken as it is", func(t *testing.T) {
		w := newWorld(t, map[string]string{"m.txt": mixed})
		w.plan().modify("m.txt", mixed, "one\n").apply().applied()
		w.is("m.txt", "one\n")
	})
	t.Run("the BOM is one unit of line 0", func(t *testing.T) {
		w := newWorld(t, map[string]string{"m.txt": mixed})
		w.plan().edits("m.txt", mixed, edit(0, 1, 0, 4, "1")).apply().applied()
		w.is("m.txt", "\xEF\xBB\xBF1\r\ntwo\r\nthree\nfour\r\n")
	})
	t.Run("between CR and LF", func(t *testing.T) {
		w := newWorld(t, map[string]string{"m.txt": mixed})
		m := w.mark()
		w.plan().edits("m.txt", mixed, edit(1, 4, 1, 4, "x")).apply().refused("bad-range", "m.txt")
		m.unchanged()
	})
}

func TestTE08(t *testing.T) {
	const latin = "const x = 1;\n// caf\xE9 note\n"
	const after = "const x = 2;\n// caf\xE9 note\n"
	t.Run("no text edit", func(t *testing.T) {
		w := newWorld(t, map[string]string{"l1.js": latin})
		m := w.mark()
		w.plan().edits("l1.js", latin, edit(0, 10, 0, 11, "2")).apply().refused("not-text", "l1.js")
		m.unchanged()
		w.noReplacementCharacter()
	})
	t.Run("a whole blob", func(t *testing.T) {
		w := newWorld(t, map[string]string{"l1.js": latin})
		p := w.plan()
		p.blob("unused, so that the next blob is sent as base64")
		p.blobs = p.blobs[:1]
		p.modify("l1.js", latin, after)
		p.blobs = p.blobs[1:]
		if r := p.apply("--dry-run"); r.code != 0 || bytes.Contains(r.out, []byte("\uFFFD")) {
			t.Errorf("the preview: %s", r)
		}
		r := w.run("apply", "--plan", p.file(), "--dry-run")
		if !bytes.Contains(r.out, []byte("\\351")) && !bytes.Contains(r.out, []byte("\xE9")) && !bytes.Contains(r.out, []byte("\\xe9")) && !bytes.Contains(bytes.ToLower(r.out), []byte("binary")) {
			t.Errorf("the preview shows neither the byte nor that it cannot: %s", r)
		}
		p.apply().applied()
		w.is("l1.js", after)
		w.noReplacementCharacter()
	})
}

// noReplacementCharacter fails if any byte was lost to decoding, in the
// workspace or in what is kept about it.
func (w *world) noReplacementCharacter() {
	w.t.Helper()
	for _, dir := range []string{w.root, w.asp} {
		must(w.t, filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
			if err != nil || !d.Type().IsRegular() {
				return err
			}
			b, err := os.ReadFile(p)
			if strings.Contains(string(b), "\uFFFD") {
				w.t.Errorf("%s holds EF BF BD", p)
			}
			return err
		}))
	}
}
