package patch_test

import (
	"fmt"
	"math/rand"
	"strings"
	"testing"

	"github.com/aspengine/asp/editplan/patch"
	"github.com/aspengine/asp/editplan/patch/linediff"
	"github.com/sergi/go-diff/diffmatchpatch"
)

func bigPair() (string, string) {
	r := rand.New(rand.NewSource(1))
	l := make([]string, 10_000)
	for i := range l {
		l[i] = fmt.Sprintf("line %d of some %d text\n", r.Intn(3000), i%7)
	}
	old := strings.Join(l, "")
	for range 100 {
		l[r.Intn(len(l))] = "changed\n"
	}
	return old, strings.Join(l, "")
}

func BenchmarkDiff10k100(b *testing.B) {
	old, new := bigPair()
	x, y := []byte(old), []byte(new)
	for b.Loop() {
		linediff.Diff(linediff.Lines(x), linediff.Lines(y))
	}
}

func BenchmarkDiff10k100Sergi(b *testing.B) {
	old, new := bigPair()
	d := diffmatchpatch.New()
	d.DiffTimeout = 0
	for b.Loop() {
		x, y, lines := d.DiffLinesToRunes(old, new)
		d.DiffCharsToLines(d.DiffMainRunes(x, y, false), lines)
	}
}

func BenchmarkDiffShuffled(b *testing.B) {
	old, _ := bigPair()
	l := strings.SplitAfter(old, "\n")
	rand.New(rand.NewSource(2)).Shuffle(len(l), func(i, j int) { l[i], l[j] = l[j], l[i] })
	x, y := []byte(old), []byte(strings.Join(l, ""))
	for b.Loop() {
		linediff.Diff(linediff.Lines(x), linediff.Lines(y))
	}
}

func thousand() (string, world) {
	w := world{}
	var changes []patch.Change
	for i := range 1000 {
		name := fmt.Sprintf("dir%d/file%d", i%10, i)
		old := numbered(1, 100)
		w[name] = file{old, plain}
		changes = append(changes, patch.Change{Kind: patch.Modify, Old: name, Before: []byte(old), After: []byte(strings.Replace(old, "line 50\n", "line fifty\n", 1))})
	}
	return string(patch.Render(changes, patch.RenderOptions{})), w
}

func BenchmarkParseApply1000(b *testing.B) {
	p, w := thousand()
	data := []byte(p)
	for b.Loop() {
		files, err := patch.Parse(data, patch.ParseOptions{})
		if err != nil {
			b.Fatal(err)
		}
		for i := range files {
			if out := patch.Apply(&files[i], []byte(w[files[i].Old].content), patch.Options{}); len(out.Failures) > 0 {
				b.Fatal(out.Failures)
			}
		}
	}
}

func BenchmarkImport1000(b *testing.B) {
	p, w := thousand()
	for b.Loop() {
		if im, err := patch.Import(w, []byte(p), patch.ImportOptions{}); err != nil || len(im.Drafts) != 1000 {
			b.Fatal(err, len(im.Drafts))
		}
	}
}
