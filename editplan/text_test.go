package editplan_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/aspengine/asp/editplan"
	"github.com/aspengine/asp/internal/refusal"
)

// ed makes an edit from line, column, line, column.
func ed(l, c, l2, c2 int, text string) editplan.TextEdit {
	return editplan.TextEdit{Start: editplan.Pos{Line: l, Char: c}, End: editplan.Pos{Line: l2, Char: c2}, NewText: text}
}

type edits = []editplan.TextEdit

// TestApply holds cases TE-01, TE-03, TE-04, TE-05 and TE-08, and the corners
// around them.
func TestApply(t *testing.T) {
	const bom = "\xEF\xBB\xBFone\r\ntwo\r\nthree\nfour\r\n"
	for _, c := range []struct {
		name, in string
		edits    edits
		want     string
		code     refusal.Code
	}{
		{"TE-01 astral", "🟢🔺 é ⏫ ALPHA omega\n", edits{ed(0, 9, 0, 14, "BETA")}, "🟢🔺 é ⏫ BETA omega\n", ""},
		{"TE-01 not corrected", "🟢🔺 é ⏫ ALPHA omega\n", edits{ed(0, 7, 0, 12, "BETA")}, "🟢🔺 é BETAHA omega\n", ""},
		{"TE-01 inside a pair", "🟢🔺\n", edits{ed(0, 1, 0, 2, "x")}, "", refusal.BadRange},
		{"TE-01 end inside a pair", "🟢🔺\n", edits{ed(0, 2, 0, 3, "x")}, "", refusal.BadRange},
		{"TE-01 between pairs", "🟢🔺\n", edits{ed(0, 2, 0, 2, "x")}, "🟢x🔺\n", ""},

		{"TE-03 two inserts and a replacement", "abcdef\n", edits{ed(0, 3, 0, 3, "<2>"), ed(0, 3, 0, 3, "<1>"), ed(0, 3, 0, 5, "Y")}, "abc<2><1>Yf\n", ""},
		{"TE-03 insert listed after the replacement", "abcdef\n", edits{ed(0, 3, 0, 5, "Y"), ed(0, 3, 0, 3, "<1>")}, "", refusal.Overlap},
		{"TE-03 one before, one after", "abcdef\n", edits{ed(0, 3, 0, 3, "<2>"), ed(0, 3, 0, 5, "Y"), ed(0, 3, 0, 3, "<1>")}, "", refusal.Overlap},

		{"TE-04 overlap", "0123456789\n", edits{ed(0, 0, 0, 6, "A"), ed(0, 5, 0, 8, "B")}, "", refusal.Overlap},
		{"TE-04 doubled", "0123456789\n", edits{ed(0, 0, 0, 6, "A"), ed(0, 0, 0, 6, "A")}, "", refusal.Overlap},
		{"TE-04 same start", "0123456789\n", edits{ed(0, 0, 0, 6, "A"), ed(0, 0, 0, 3, "B")}, "", refusal.Overlap},
		{"TE-04 insert inside", "0123456789\n", edits{ed(0, 2, 0, 6, "Z"), ed(0, 4, 0, 4, "x")}, "", refusal.Overlap},
		{"TE-04 far overlap", "0123456789\n", edits{ed(0, 8, 0, 9, "B"), ed(0, 0, 0, 10, "A"), ed(0, 2, 0, 3, "C")}, "", refusal.Overlap},
		{"TE-04 reversed", "0123456789\n", edits{ed(0, 6, 0, 2, "Z")}, "", refusal.BadRange},
		{"TE-04 reversed lines", "a\nb\n", edits{ed(1, 0, 0, 1, "Z")}, "", refusal.BadRange},
		{"TE-04 touching", "0123456789\n", edits{ed(0, 0, 0, 5, "A"), ed(0, 5, 0, 8, "B")}, "AB89\n", ""},
		{"TE-04 insert at the end", "0123456789\n", edits{ed(0, 2, 0, 6, "Z"), ed(0, 6, 0, 6, "in")}, "01Zin6789\n", ""},

		{"TE-05 literal LF", bom, edits{ed(1, 0, 1, 3, "TWO\nplus")}, "\xEF\xBB\xBFone\r\nTWO\nplus\r\nthree\nfour\r\n", ""},
		{"TE-05 last line", bom, edits{ed(3, 4, 3, 4, "!")}, "\xEF\xBB\xBFone\r\ntwo\r\nthree\nfour!\r\n", ""},
		{"TE-05 BOM is a unit", bom, edits{ed(0, 1, 0, 4, "ONE")}, "\xEF\xBB\xBFONE\r\ntwo\r\nthree\nfour\r\n", ""},
		{"TE-05 before the BOM", bom, edits{ed(0, 0, 0, 1, "")}, bom[3:], ""},
		{"TE-05 between CR and LF", bom, edits{ed(0, 5, 0, 5, "x")}, "", refusal.BadRange},
		{"TE-05 at CRLF", bom, edits{ed(0, 4, 1, 0, "")}, "\xEF\xBB\xBFonetwo\r\nthree\nfour\r\n", ""},

		{"TE-08 not text", "const x = 1;\n// caf\xE9 note\n", edits{ed(0, 10, 0, 11, "2")}, "", refusal.NotText},
		{"TE-08 not text, no edit", "\xff", edits{}, "", refusal.NotText},

		{"lone CR", "a\rb\r\rc", edits{ed(1, 0, 1, 1, "B"), ed(3, 1, 3, 1, "!")}, "a\rB\r\rc!", ""},
		{"CR at the end", "a\r", edits{ed(1, 0, 1, 0, "b")}, "a\rb", ""},
		{"LF CR is two line ends", "a\n\rb", edits{ed(1, 0, 1, 0, "x"), ed(2, 0, 2, 0, "y")}, "a\nx\ryb", ""},
		{"other separators are text", "a\u2028b\u0085c\vd\fe\n", edits{ed(0, 9, 0, 9, "!")}, "a\u2028b\u0085c\vd\fe!\n", ""},
		{"past the end of a line", "ab\ncd\n", edits{ed(0, 3, 0, 3, "x")}, "", refusal.BadRange},
		{"past the end of the last line", "ab\ncd", edits{ed(1, 3, 1, 3, "x")}, "", refusal.BadRange},
		{"past the end of the file", "ab\ncd\n", edits{ed(3, 0, 3, 0, "x")}, "", refusal.BadRange},
		{"end of the file", "ab\ncd\n", edits{ed(2, 0, 2, 0, "x")}, "ab\ncd\nx", ""},
		{"end past the file", "ab\n", edits{ed(0, 0, 2, 0, "")}, "", refusal.BadRange},
		{"empty file", "", edits{ed(0, 0, 0, 0, "x\n")}, "x\n", ""},
		{"empty file, line 1", "", edits{ed(1, 0, 1, 0, "x\n")}, "", refusal.BadRange},
		{"negative", "a", edits{ed(0, -1, 0, 0, "x")}, "", refusal.BadRange},
		{"negative line", "a", edits{ed(-1, 0, 0, 0, "x")}, "", refusal.BadRange},
		{"huge", "a", edits{ed(0, 0, 1<<62, 1<<62, "x")}, "", refusal.BadRange},
		{"no edit", "a\r\n", edits{}, "a\r\n", ""},
		{"NUL is text", "a\x00b", edits{ed(0, 1, 0, 2, "")}, "ab", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			in := []byte(c.in)
			got, err := editplan.Apply(in, c.edits)
			if string(in) != c.in {
				t.Error("the basis was changed")
			}
			if c.code != "" {
				if err == nil || err.Code != c.code {
					t.Errorf("got %q, %v, want %s", got, err, c.code)
				}
				return
			}
			if err != nil || string(got) != c.want {
				t.Errorf("got %q, %v, want %q", got, err, c.want)
			}
		})
	}
}

func TestApplyNamesTheEdit(t *testing.T) {
	_, err := editplan.Apply([]byte("0123\n"), edits{ed(0, 0, 0, 1, ""), ed(0, 2, 0, 9, "")})
	if err == nil || err.Edit != 1 || !strings.Contains(err.Detail, "[0,9]") || !strings.Contains(err.Detail, "4 units") {
		t.Errorf("got %v", err)
	}
}

// TestApplyAnyOrder is TE-03 sub-cases 1 and 3.
func TestApplyAnyOrder(t *testing.T) {
	e := edits{ed(0, 11, 0, 16, "G"), ed(0, 0, 0, 5, "longer-alpha"), ed(0, 6, 0, 10, "")}
	for _, o := range [][3]int{{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}} {
		got, err := editplan.Apply([]byte("alpha beta gamma\n"), edits{e[o[0]], e[o[1]], e[o[2]]})
		if err != nil || string(got) != "longer-alpha  G\n" {
			t.Errorf("order %v: %q, %v", o, got, err)
		}
	}
}

// naive applies edits by the letter of the contract: units of the whole text in
// a slice, positions found by counting. It knows nothing of bytes.
func naive(text string, es edits) (string, bool) {
	type unit struct {
		r    rune
		line int
		col  int // -1 for the second half of a pair
	}
	var units []unit
	line, col := 0, 0
	rs := []rune(text)
	for i, r := range rs {
		units = append(units, unit{r, line, col})
		col++
		if r > 0xffff {
			units = append(units, unit{0, line, -1})
			col++
		}
		if r == '\n' || r == '\r' && !(i+1 < len(rs) && rs[i+1] == '\n') {
			line, col = line+1, 0
		}
	}
	find := func(p editplan.Pos) int {
		if p.Line == line && p.Char == col {
			return len(units)
		}
		for i, u := range units {
			if u.line == p.Line && u.col == p.Char {
				if u.r == '\n' && i > 0 && units[i-1].r == '\r' {
					return -1
				}
				return i
			}
		}
		return -1
	}
	// One slot before every unit: the inserts there, and one replacement.
	inserts, repl, to := map[int][]string{}, map[int]string{}, map[int]int{}
	for _, e := range es {
		a, b := find(e.Start), find(e.End)
		if a < 0 || b < 0 || a > b {
			return "", false
		}
		_, replaced := to[a]
		if replaced {
			return "", false
		}
		if a == b {
			inserts[a] = append(inserts[a], e.NewText)
			continue
		}
		repl[a], to[a] = e.NewText, b
	}
	var out strings.Builder
	for i := 0; i <= len(units); {
		for _, s := range inserts[i] {
			out.WriteString(s)
		}
		end, replaced := to[i]
		if !replaced {
			if i < len(units) && units[i].col >= 0 {
				out.WriteRune(units[i].r)
			}
			i++
			continue
		}
		out.WriteString(repl[i])
		for j := i + 1; j < end; j++ {
			if _, ok := to[j]; ok || len(inserts[j]) > 0 {
				return "", false
			}
		}
		i = end
	}
	return out.String(), true
}

// TestApplyAgainstNaive compares with the slow reading of the contract.
func TestApplyAgainstNaive(t *testing.T) {
	alphabet := []rune("ab\n\r\ré🟢\u2028\ufeff")
	rapid.Check(t, func(t *rapid.T) {
		text := string(rapid.SliceOfN(rapid.SampledFrom(alphabet), 0, 24).Draw(t, "text"))
		var es edits
		for i := range rapid.IntRange(0, 4).Draw(t, "edits") {
			pos := func(name string) editplan.Pos {
				return editplan.Pos{Line: rapid.IntRange(0, 4).Draw(t, name), Char: rapid.IntRange(0, 7).Draw(t, name)}
			}
			a, b := pos("start"), pos("end")
			if rapid.Bool().Draw(t, "insert") {
				b = a
			}
			es = append(es, editplan.TextEdit{Start: a, End: b, NewText: fmt.Sprintf("<%d>", i)})
		}
		want, ok := naive(text, es)
		got, err := editplan.Apply([]byte(text), es)
		if (err == nil) != ok || ok && string(got) != want {
			t.Fatalf("text %q edits %v\n got %q, %v\nwant %q, %v", text, es, got, err, want, ok)
		}
	})
}

func FuzzApply(f *testing.F) {
	f.Add([]byte("one\r\ntwo\n"), []byte("one\r\n2\n"), 0, 1, 1, 0)
	f.Add([]byte("\xEF\xBB\xBFa🟢\rb"), []byte("a🔺\r\nb"), 1, 0, 0, 3)
	f.Add([]byte("a\r\nb"), []byte("a\nb"), 0, 0, 9, 9)
	f.Fuzz(func(t *testing.T, old, new []byte, l, c, l2, c2 int) {
		// Any edit at all: no panic, and what is accepted keeps what is outside.
		got, err := editplan.Apply(old, edits{ed(l, c, l2, c2, "NEW"), ed(c, l, c2, l2, "")})
		if err == nil && !bytes.Contains(got, []byte("NEW")) {
			t.Fatalf("edit lost: %q", got)
		}
		es, ok := editplan.Diff(old, new)
		if ok != (utf8.Valid(old) && utf8.Valid(new)) {
			t.Fatalf("Diff says %v", ok)
		}
		if !ok {
			return
		}
		if got, err := editplan.Apply(old, es); err != nil || !bytes.Equal(got, new) {
			t.Fatalf("Apply(Diff(%q, %q)) = %q, %v", old, new, got, err)
		}
		if len(es) > 1 || bytes.Equal(old, new) != (len(es) == 0) {
			t.Fatalf("edits %v", es)
		}
	})
}

// TestApplyManyEdits holds that a thousand edits cost one look at the file,
// by what they would cost otherwise: one line of ten million bytes, looked at
// a thousand times, does not end in the time that a test may take.
func TestApplyManyEdits(t *testing.T) {
	line := bytes.Repeat([]byte("é123456789"), 1<<20)
	var es edits
	for i := range 1000 {
		at := i * 10240
		es = append(es, ed(0, at+1, 0, at+10, "x"))
	}
	got, err := editplan.Apply(line, es)
	if err != nil || len(got) != len(line)-1000*8 {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	if allocs := testing.AllocsPerRun(1, func() { _, _ = editplan.Apply(line, es) }); allocs > 20 {
		t.Errorf("%v allocations for 1000 edits", allocs)
	}
}
