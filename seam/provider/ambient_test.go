package provider

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/aspengine/asp/internal/home"
	"github.com/aspengine/asp/internal/vfs"
	"github.com/aspengine/asp/seam/wire"
)

func batch(uri string, n int, message string) wire.PublishDiagnosticsParams {
	d := wire.PublishDiagnosticsParams{URI: uri}
	for range n {
		d.Diagnostics = append(d.Diagnostics, wire.Diagnostic{Code: "p/x", Severity: wire.SeverityError, Message: message})
	}
	return d
}

// TestAmbientIsBounded: a batch takes the place of the one before, and neither places
// nor texts grow.
func TestAmbientIsBounded(t *testing.T) {
	var p places
	p.put(batch("a", 2, "m"))
	p.put(batch("b", 3, "new\x1b[31m"))
	p.put(batch("a", 1, "again"))
	if a := p.ambient(); a.Findings != 4 || a.Files != 2 || len(a.Shown) != 2 || !strings.Contains(a.Shown[0], "again") || strings.Contains(a.String(), "\x1b") {
		t.Errorf("%+v", a)
	}
	p.put(batch("b", 0, ""))
	if a := p.ambient(); a.Findings != 1 || a.Files != 1 {
		t.Errorf("a batch of nothing: %+v", a)
	}
	for i := range 2 * maxAmbientPlaces {
		p.put(batch(fmt.Sprint(i, strings.Repeat("u", 2000)), 1, strings.Repeat("€", 5000)))
	}
	p.put(batch("a", maxAmbient+1, "m"))
	a := p.ambient()
	if a.Files != maxAmbientPlaces || a.Findings != maxAmbient+maxAmbientPlaces-1 || len(a.Shown) != maxAmbientShown || len(a.String()) > maxAmbientShown*(maxAmbientText+10)+200 || !utf8.ValidString(a.String()) {
		t.Errorf("%d files, %d findings, %d bytes", a.Files, a.Findings, len(a.String()))
	}
}

// TestAmbientIsKept: for other processes, and gone when there is none any more.
func TestAmbientIsKept(t *testing.T) {
	h, err := home.Open(vfs.OS{}, filepath.Join(t.TempDir(), "home"))
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	dir, err := h.Sub("state")
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	b := &board{dir: dir}
	want := Ambient{Findings: 2, Files: 1, Shown: []string{"x"}}
	for _, id := range []string{"p", "q"} {
		if err := b.keep(id, want); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.keep("p", Ambient{}); err != nil {
		t.Fatal(err)
	}
	other := &board{dir: dir}
	if p, q := other.of("p"), other.of("q"); p.Findings != 0 || q.String() != want.String() {
		t.Errorf("%+v, %+v", p, q)
	}
	if err := home.WriteFile(dir, ambientFile, []byte(`{"format":2,"providers":[]}`)); err != nil {
		t.Fatal(err)
	}
	if a := other.of("q"); a.Findings != 0 {
		t.Errorf("of a file of the future: %+v", a)
	}
	if err := other.keep("q", want); err == nil {
		t.Error("a file of the future is written over")
	}
}
