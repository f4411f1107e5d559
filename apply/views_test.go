package apply

import (
	"fmt"
	"testing"

	"github.com/aspengine/asp/checks"
	"github.com/aspengine/asp/seam/wire"
)

// TestViewsAreBounded: by number and by size, the oldest go first.
func TestViewsAreBounded(t *testing.T) {
	of := func(i, size int) view {
		return view{asker: fmt.Sprint("a", i%2), subject: fmt.Sprint(i), size: size, said: &checks.Accepted{Comparison: wire.CompareAll}}
	}
	sum := func(m views) (n int) {
		for _, v := range m.list {
			n += v.size
		}
		return n
	}
	var m views
	for i := range 3 * maxViews {
		m.add(of(i, 10))
	}
	if len(m.list) != maxViews || m.list[0].subject != fmt.Sprint(2*maxViews) || m.bytes != sum(m) {
		t.Errorf("%d views from %s on, %d bytes of %d", len(m.list), m.list[0].subject, m.bytes, sum(m))
	}
	m.add(of(2*maxViews+5, 20))
	if len(m.list) != maxViews || m.list[maxViews-1].size != 20 || m.bytes != sum(m) {
		t.Error("an answer to the same question does not take the place of the one before")
	}
	m.forget("a0")
	if len(m.list) != maxViews/2 || m.bytes != sum(m) {
		t.Errorf("%d views are left after one of two askers was forgotten", len(m.list))
	}
	before := len(m.list)
	m.add(of(1000, maxViewSize+1))
	if len(m.list) != before {
		t.Error("an answer over the bound is kept")
	}
	for i := range 20 {
		m.add(of(2000+i, maxViewSize))
	}
	if m.bytes > maxViewBytes || m.bytes != sum(m) || len(m.list) != maxViewBytes/maxViewSize {
		t.Errorf("%d bytes in %d views", m.bytes, len(m.list))
	}
}
