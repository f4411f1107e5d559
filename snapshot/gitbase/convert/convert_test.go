package convert

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/aspengine/asp/snapshot/gitbase/attrs"
	"pgregory.net/rapid"
)

func yes() (bool, error) { return true, nil }

func TestClean(t *testing.T) {
	for _, c := range []struct {
		rule     Rule
		in, want string
		idx      IndexHasCRLF
	}{
		{Rule{}, "a\r\nb", "a\r\nb", nil},
		{Rule{EOL: Text}, "a\r\nb\r\n", "a\nb\n", nil},
		{Rule{EOL: Text}, "a\rb\r\r\n\r", "a\rb\r\n\r", nil},
		{Rule{EOL: Text}, "a\x00\r\n", "a\x00\n", yes},
		{Rule{EOL: Auto}, "a\r\n", "a\n", nil},
		{Rule{EOL: Auto}, "a\r\n", "a\r\n", yes},
		{Rule{EOL: Auto}, "a\x00\r\n", "a\x00\r\n", nil},
		{Rule{EOL: Auto}, "a\rb\r\n", "a\rb\r\n", nil},
		{Rule{EOL: Auto}, "a\r\n\r", "a\r\n\r", nil},
		{Rule{EOL: Auto}, "a\x01\r\n", "a\x01\r\n", nil},
		{Rule{EOL: Auto}, strings.Repeat("a", 128) + "\x01\r\n", strings.Repeat("a", 128) + "\x01\n", nil},
		{Rule{EOL: Auto}, "a\r\n\x1a", "a\n\x1a", nil},
		{Rule{EOL: Auto}, "a\b\t\x1b\f\r\n", "a\b\t\x1b\f\n", nil},
		{Rule{EOL: Auto}, "a\x7f\r\n", "a\x7f\r\n", nil},
		{Rule{Ident: true}, "$Id: x$ $Id$ $Id:$ $Id: y\n$ $Id: z $", "$Id$ $Id$ $Id$ $Id: y\n$ $Id$", nil},
		{Rule{Ident: true}, "$$Id: x$Id: y$ $Ids: x$ $Id:", "$$Id$Id: y$ $Ids: x$ $Id:", nil},
		{Rule{Ident: true, EOL: Text}, "$Id: x\r\n$ $Id: \r y$\r\n", "$Id: x\n$ $Id$\n", nil},
	} {
		got, err := Clean([]byte(c.in), c.rule, c.idx)
		if err != nil || string(got) != c.want {
			t.Errorf("Clean(%q, %+v) = %q, %v; want %q", c.in, c.rule, got, err, c.want)
		}
	}
	if _, err := Clean(nil, Rule{Filtered: true}, nil); !errors.Is(err, ErrFiltered) {
		t.Errorf("filtered: %v", err)
	}
	broken := errors.New("no blob")
	if _, err := Clean([]byte("\r\n"), Rule{EOL: Auto}, func() (bool, error) { return false, broken }); !errors.Is(err, broken) {
		t.Errorf("index error: %v", err)
	}
}

// The index is not looked at without need: that may read a large blob.
func TestIndexIsAskedOnlyForCRLF(t *testing.T) {
	ask := func() (bool, error) { t.Error("asked"); return false, nil }
	for _, c := range []struct {
		in  string
		eol EOL
	}{{"a\n", Auto}, {"\x00\r\n", Auto}, {"a\r\n", Text}, {"a\r\n", Keep}} {
		if _, err := Clean([]byte(c.in), Rule{EOL: c.eol, Ident: true}, ask); err != nil {
			t.Error(err)
		}
	}
}

func TestHasCRLF(t *testing.T) {
	for in, want := range map[string]bool{"": false, "a\n": false, "a\r\n": true, "a\r\n\x00": false, "a\r\n\r": false} {
		got, err := HasCRLF(iotestOneByte{strings.NewReader(in)})
		if got != want || err != nil {
			t.Errorf("HasCRLF(%q) = %v, %v", in, got, err)
		}
	}
}

// iotestOneByte reads one byte at a time, so that every CRLF is torn.
type iotestOneByte struct{ r io.Reader }

func (o iotestOneByte) Read(p []byte) (int, error) { return o.r.Read(p[:min(1, len(p))]) }

var eols = []EOL{Keep, Text, Auto}

// Torn anywhere, a file has the same blob as in one piece, on the way for large
// files, too.
func TestStreamEqualsWhole(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		content := []byte(strings.Join(rapid.SliceOfN(rapid.SampledFrom([]string{"$", "Id", "I", "d", ":", "$Id:", "\r", "\n", "\r\n", "x", " ", "\x00", "\x01", "\x1a", strings.Repeat("y", 150)}), 0, 30).Draw(t, "parts"), ""))
		r := Rule{EOL: rapid.SampledFrom(eols).Draw(t, "eol"), Ident: rapid.Bool().Draw(t, "ident")}
		var idx IndexHasCRLF
		if rapid.Bool().Draw(t, "index has CRLF") {
			idx = yes
		}
		whole, err := Clean(content, r, idx)
		if err != nil {
			t.Fatal(err)
		}
		h := &Hasher{buf: make([]byte, rapid.IntRange(1, 9).Draw(t, "buffer"))}
		src, size := bytes.NewReader(content), int64(len(content))
		id, err := h.Blob(context.Background(), src, size, r, idx)
		if err != nil || id != BlobOf(whole) {
			t.Fatalf("Blob(%q, %+v): %v, want the id of %q", content, r, err, whole)
		}
		id, err = h.large(context.Background(), src, size, r, idx)
		if err != nil || id != BlobOf(whole) {
			t.Fatalf("large(%q, %+v): %v, want the id of %q", content, r, err, whole)
		}
	})
}

// endless is a file of any size made of a repeated piece.
type endless struct {
	piece string
	size  int64
}

func (e endless) ReadAt(p []byte, at int64) (int, error) {
	n := 0
	for n < len(p) && at < e.size {
		c := copy(p[n:min(int64(len(p)), int64(n)+e.size-at)], e.piece[at%int64(len(e.piece)):])
		n, at = n+c, at+int64(c)
	}
	if at >= e.size {
		return n, io.EOF
	}
	return n, nil
}

// A large file is converted in constant memory, even one that is a single
// unclosed $Id: of many megabytes.
func TestLargeFileInLittleMemory(t *testing.T) {
	h := NewHasher()
	const size = 9<<20 + 7
	for _, e := range []endless{{"$Id: x$ line\r\n", size}, {strings.Repeat("x", 100), size}} {
		want := strings.ReplaceAll(strings.ReplaceAll(strings.Repeat(e.piece, size/len(e.piece))+e.piece[:size%len(e.piece)], "$Id: x$", "$Id$"), "\r\n", "\n")
		wantID := BlobOf([]byte(want))
		id, err := h.Blob(context.Background(), e, size, Rule{EOL: Auto, Ident: true}, nil)
		if err != nil || id != wantID {
			t.Errorf("blob of %q…: %v %v, want %v", e.piece, id, err, wantID)
		}
	}
	open := struct{ io.ReaderAt }{io.NewSectionReader(readerAt("$Id:", endless{strings.Repeat("y", 100), size}), 0, size)}
	allocated := testing.AllocsPerRun(1, func() {
		if _, err := h.Blob(context.Background(), open, size, Rule{Ident: true}, nil); err != nil {
			t.Error(err)
		}
	})
	if allocated > 100 {
		t.Errorf("%v allocations for one file", allocated)
	}
}

// readerAt puts a head in front of a file.
func readerAt(head string, e endless) io.ReaderAt {
	return readAtFunc(func(p []byte, at int64) (int, error) {
		if at < int64(len(head)) {
			return copy(p, head[at:]), nil
		}
		return e.ReadAt(p, at-int64(len(head)))
	})
}

type readAtFunc func(p []byte, at int64) (int, error)

func (f readAtFunc) ReadAt(p []byte, at int64) (int, error) { return f(p, at) }

func TestBlobNoticesAnotherSize(t *testing.T) {
	for _, n := range []int64{0, 3, 5, inMemory, 3 * inMemory} {
		for _, said := range []int64{n - 1, n + 1} {
			for _, r := range []Rule{{}, {EOL: Text}, {EOL: Auto, Ident: true}} {
				if said < 0 {
					continue
				}
				_, err := NewHasher().Blob(context.Background(), endless{"ab\r\n", n}, said, r, nil)
				if !errors.Is(err, ErrChanged) {
					t.Errorf("%d bytes instead of %d, %+v: %v", n, said, r, err)
				}
			}
		}
	}
}

// A file that grows a CRLF between counting and hashing has no blob.
func TestBlobNoticesAnotherLengthInTheSecondPass(t *testing.T) {
	passes := 0
	src := readAtFunc(func(p []byte, at int64) (int, error) {
		if at == 0 {
			passes++
		}
		return endless{[]string{"abcd", "ab\r\n"}[passes-1], 2 * inMemory}.ReadAt(p, at)
	})
	_, err := NewHasher().Blob(context.Background(), src, 2*inMemory, Rule{EOL: Text}, nil)
	if !errors.Is(err, ErrChanged) {
		t.Error(err)
	}
}

func TestBlobStops(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := NewHasher().Blob(ctx, endless{"a", 9}, 9, Rule{}, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	if _, err := NewHasher().Blob(context.Background(), endless{"a", 9}, 9, Rule{Filtered: true}, nil); !errors.Is(err, ErrFiltered) {
		t.Errorf("filtered: %v", err)
	}
	broken := errors.New("input/output error")
	src := readAtFunc(func([]byte, int64) (int, error) { return 0, broken })
	if _, err := NewHasher().Blob(context.Background(), src, 9, Rule{}, nil); !errors.Is(err, broken) {
		t.Errorf("broken: %v", err)
	}
	src = func([]byte, int64) (int, error) { return 0, nil }
	if _, err := NewHasher().Blob(context.Background(), src, 9, Rule{}, nil); !errors.Is(err, io.ErrNoProgress) {
		t.Errorf("stuck: %v", err)
	}
}

func TestDecide(t *testing.T) {
	set, unset := attrs.Attr{State: attrs.Set}, attrs.Attr{State: attrs.Unset}
	val := func(s string) attrs.Attr { return attrs.Attr{State: attrs.Value, Text: s} }
	auto := Config{autoCRLF: true, drivers: map[string]bool{"lfs": true, "none": false}}
	for _, c := range []struct {
		a    attrs.Attrs
		want Rule
	}{
		{attrs.Attrs{}, Rule{EOL: Auto}},
		{attrs.Attrs{Text: unset, EOL: val("lf"), CRLF: set}, Rule{}},
		{attrs.Attrs{Text: val("odd"), CRLF: unset}, Rule{}},
		{attrs.Attrs{EOL: val("crlf")}, Rule{EOL: Text}},
		{attrs.Attrs{EOL: val("cr")}, Rule{EOL: Auto}},
		{attrs.Attrs{Text: val("auto"), EOL: val("lf")}, Rule{EOL: Auto}},
		{attrs.Attrs{Text: set, Ident: val("x")}, Rule{EOL: Text}},
		{attrs.Attrs{Text: set, Ident: set}, Rule{EOL: Text, Ident: true}},
		{attrs.Attrs{Text: unset, Filter: val("lfs")}, Rule{Filtered: true, Filter: "lfs"}},
		{attrs.Attrs{Text: unset, Filter: val("none")}, Rule{}},
		{attrs.Attrs{Text: unset, Filter: val("unknown")}, Rule{}},
		{attrs.Attrs{Text: unset, Filter: set}, Rule{}},
		{attrs.Attrs{Text: unset, Encoding: val("UTF-16")}, Rule{Filtered: true, Filter: "working-tree-encoding=UTF-16"}},
		{attrs.Attrs{Text: unset, Encoding: val("Utf-8")}, Rule{}},
		{attrs.Attrs{Text: unset, Encoding: val("")}, Rule{}},
		{attrs.Attrs{Text: unset, Encoding: set}, Rule{Filtered: true, Filter: "working-tree-encoding="}},
	} {
		if got := auto.Decide(c.a); got != c.want {
			t.Errorf("Decide(%+v) = %+v, want %+v", c.a, got, c.want)
		}
	}
}

func FuzzClean(f *testing.F) {
	f.Add([]byte("$Id: x\r\n$\r"), uint8(1), true)
	f.Fuzz(func(t *testing.T, b []byte, eol uint8, id bool) {
		r := Rule{EOL: eols[int(eol)%len(eols)], Ident: id}
		c, err := Clean(bytes.Clone(b), r, nil)
		if err != nil {
			t.Fatal(err)
		}
		h := &Hasher{buf: make([]byte, 1+rand.IntN(5))}
		if got, err := h.large(context.Background(), bytes.NewReader(b), int64(len(b)), r, nil); err != nil || got != BlobOf(c) {
			t.Fatalf("%q %+v: stream and whole differ (%v)", b, r, err)
		}
	})
}
