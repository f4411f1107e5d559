package editplan_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/aspengine/asp/editplan"
)

// BenchmarkPlan takes a plan of 100 files with 1,000 text edits each, about
// 25 MiB of JSON, from its bytes to net changes.
func BenchmarkPlan(b *testing.B) {
	const files, lines = 100, 1000
	d := disk{}
	var ops drafts
	content := strings.Repeat("var name = 1 // é\n", lines)
	for i := range files {
		p := fmt.Sprintf("dir/file%d.go", i)
		d[p] = content
		var es edits
		for l := range lines {
			es = append(es, ed(l, 4, l, 8, "other"))
		}
		ops = append(ops, edit(p, content, es...))
	}
	data, err := build(b, ops...).Encode()
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	for b.Loop() {
		f, refused := editplan.Decode(data, editplan.Limits{})
		if len(refused) > 0 {
			b.Fatal(refused)
		}
		p, refused, err := editplan.Compile(f, editplan.Limits{}, nil)
		if err != nil || len(refused) > 0 {
			b.Fatal(refused, err)
		}
		nets, refused, err := editplan.Resolve(p, d)
		if err != nil || len(refused) > 0 || len(nets) != files {
			b.Fatal(refused, err)
		}
	}
}
