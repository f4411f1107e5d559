package patch_test

import (
	"fmt"
	"math/rand"
	"strings"
	"testing"
)

// onPurpose lists the sequences that we refuse though git takes them, with what
// git makes of them.
var onPurpose = []string{
	"renames a file that the patch changes or takes away before", // git keeps both
	"the patch makes or changes it before",                       // the last one wins
	"renames the file to its own name",                           // nothing
}

// deletesOwn tells whether a patch deletes what an earlier part of it wrote.
// Then the file is gone for us; git deletes first and writes last, so that for
// git it stays.
func deletesOwn(p string) bool {
	written := map[string]bool{}
	for part := range strings.SplitSeq(p, "diff --git ") {
		_, name, _ := strings.Cut(part, " b/")
		name, _, _ = strings.Cut(name, "\n")
		if strings.Contains(part, "deleted file mode") && written[name] {
			return true
		}
		written[name] = true
	}
	return false
}

// TestSequencesAgainstGitApply: several file patches on few names, in any
// order: renames that trade places, copies of what was renamed, files made
// anew. What counts is which state each of them starts from.
func TestSequencesAgainstGitApply(t *testing.T) {
	r := rand.New(rand.NewSource(8))
	names := []string{"a", "b", "c", "d/a"}
	var trials []*trial
	for i := range trialCount(160) {
		w := world{"a": {"one\n", plain}, "b": {"two\n", exec1}}
		var p strings.Builder
		for range 1 + r.Intn(3) {
			x, y := names[r.Intn(len(names))], names[r.Intn(len(names))]
			is := []string{"one", "two", "new"}[r.Intn(3)]
			if f, ok := w[x]; ok && r.Intn(4) > 0 {
				is = strings.TrimSpace(f.content)
			}
			edit := fmt.Sprintf("--- a/%s\n+++ b/%s\n@@ -1 +1 @@\n-%s\n+%s\n", x, y, is, []string{"one", "two", "new"}[r.Intn(3)])
			switch r.Intn(5) {
			case 0:
				fmt.Fprintf(&p, "diff --git a/%s b/%s\nsimilarity index 100%%\nrename from %s\nrename to %s\n", x, y, x, y)
				if r.Intn(3) == 0 {
					p.WriteString(edit)
				}
			case 1:
				fmt.Fprintf(&p, "diff --git a/%s b/%s\nsimilarity index 100%%\ncopy from %s\ncopy to %s\n", x, y, x, y)
				if r.Intn(3) == 0 {
					p.WriteString(edit)
				}
			case 2:
				fmt.Fprintf(&p, "diff --git a/%s b/%s\nnew file mode 100644\n--- /dev/null\n+++ b/%s\n@@ -0,0 +1 @@\n+new\n", x, x, x)
			case 3:
				fmt.Fprintf(&p, "diff --git a/%s b/%s\ndeleted file mode 100644\n--- a/%s\n+++ /dev/null\n@@ -1 +0,0 @@\n-%s\n", x, x, x, is)
			case 4:
				if is != "new" {
					fmt.Fprintf(&p, "diff --git a/%s b/%s\n--- a/%s\n+++ b/%s\n@@ -1 +1 @@\n-%s\n+new\n", x, x, x, x, is)
				} else {
					fmt.Fprintf(&p, "diff --git a/%s b/%s\n--- a/%s\n+++ b/%s\n@@ -1 +1 @@\n-new\n+one\n", x, x, x, x)
				}
			}
		}
		trials = append(trials, &trial{name: fmt.Sprintf("trial %d", i), world: w, patch: p.String()})
	}
	askGit(t, trials)
	taken := 0
trials:
	for _, tr := range trials {
		if deletesOwn(tr.patch) {
			continue
		}
		_, im := tr.ours(t)
		for _, it := range im.Refused {
			for _, why := range onPurpose {
				if strings.Contains(it.Detail, why) {
					continue trials
				}
			}
		}
		if tr.ok {
			taken++
		}
		tr.compare(t)
	}
	if taken < len(trials)/20 {
		t.Errorf("git took %d of %d", taken, len(trials))
	}
}
