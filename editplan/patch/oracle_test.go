package patch_test

import (
	"fmt"
	"maps"
	"math/rand"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/aspengine/asp/editplan/patch"
	"github.com/aspengine/asp/internal/need"
	"github.com/aspengine/asp/snapshot"
)

// trial is one patch on one world.
type trial struct {
	name  string
	world world
	patch string
	args  []string // of git apply
	o     patch.ImportOptions
	// filled by git
	ok    bool
	after world
	msg   string
}

// shell runs a script with git in a neutral environment.
func shell(t testing.TB, dir, script string) {
	t.Helper()
	cmd := exec.Command("sh", "-s")
	cmd.Dir, cmd.Stdin = dir, strings.NewReader(script)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "GIT_CONFIG_NOSYSTEM=1", "LC_ALL=C", "GIT_CEILING_DIRECTORIES=" + dir, "TMPDIR=" + dir}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("run git: %v: %s", err, out)
	}
}

func needGit(t testing.TB) {
	t.Helper()
	if _, err := exec.LookPath("git"); err != nil {
		need.Missing(t, "there is no git to compare with")
	}
}

// askGit lets git apply decide all trials, with one process to start them all.
func askGit(t testing.TB, trials []*trial) {
	t.Helper()
	needGit(t)
	dir := t.TempDir()
	var s strings.Builder
	for i, tr := range trials {
		d := filepath.Join(dir, fmt.Sprint(i))
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
		tr.world.write(t, d)
		if err := os.WriteFile(d+".patch", []byte(tr.patch), 0o644); err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&s, "(cd %d; git apply --whitespace=nowarn %s ../%d.patch >../%d.out 2>&1; echo $? >../%d.rc)\n", i, strings.Join(tr.args, " "), i, i, i)
	}
	shell(t, dir, s.String())
	for i, tr := range trials {
		d := filepath.Join(dir, fmt.Sprint(i))
		rc, err := os.ReadFile(d + ".rc")
		if err != nil {
			t.Fatal(err)
		}
		msg, err := os.ReadFile(d + ".out")
		if err != nil {
			t.Fatal(err)
		}
		tr.ok, tr.msg, tr.after = string(rc) == "0\n", string(msg), read(t, d)
	}
}

// ours imports the patch and runs the result.
func (tr *trial) ours(t testing.TB) (after world, im patch.Imported) {
	t.Helper()
	im, err := patch.Import(tr.world, []byte(tr.patch), tr.o)
	if err != nil {
		t.Fatalf("%s: import: %v", tr.name, err)
	}
	if len(im.Refused) > 0 {
		return nil, im
	}
	after, err = tr.world.run(im.Drafts)
	if err != nil {
		t.Fatalf("%s: drafts do not run: %v\n%s%s", tr.name, err, tr.world, tr.patch)
	}
	return after, im
}

// compare holds our answer against git's.
func (tr *trial) compare(t testing.TB) {
	t.Helper()
	after, im := tr.ours(t)
	switch {
	case (len(im.Refused) == 0) != tr.ok:
		t.Errorf("%s: git says %v (%s), we say %v\nworld:\n%spatch:\n%s", tr.name, tr.ok, tr.msg, im.Refused, tr.world, tr.patch)
	case tr.ok && after.String() != tr.after.String():
		t.Errorf("%s: git made\n%swe made\n%sworld:\n%spatch:\n%s", tr.name, tr.after, after, tr.world, tr.patch)
	}
}

var lineStock = []string{"alpha", "beta", "}", "", "  return x", "gamma\r", "käse 🟢", "x = 1", "\tdeep", "-- ", "+plus", "-minus", "@@ -1 +1 @@", "\\ back", "diff --git a/x b/x", "latin \xe9", "nul"}

func lines(r *rand.Rand, n int, stock []string) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = stock[r.Intn(len(stock))] + "\n"
		if r.Intn(3) == 0 {
			out[i] = fmt.Sprintf("line %d\n", r.Intn(30))
		}
	}
	return out
}

// mutate makes a few changes by lines.
func mutate(r *rand.Rand, s string) string {
	l := strings.SplitAfter(s, "\n")
	for range 1 + r.Intn(3) {
		i := r.Intn(len(l))
		switch r.Intn(4) {
		case 0:
			l[i] = lines(r, 1, lineStock)[0] + l[i]
		case 1:
			l[i] = ""
		case 2:
			l[i] = lines(r, 1, lineStock)[0]
		case 3:
			if r.Intn(3) == 0 {
				l[len(l)-1] = "no newline here"
			} else {
				l[i] += "more\n"
			}
		}
	}
	return strings.Join(l, "")
}

var nameStock = []string{"a", "b.txt", "dir/c", "dir/with space", "dir/sub/ümlaut", "q\"uote", "back\\slash", "tab\there", "new\nline", "-dash", "sp ace/x y", "a b/a b", "trailing ", "dev/null"}

func randomWorld(r *rand.Rand) world {
	w := world{}
	for range r.Intn(6) {
		mode := snapshot.ModeRegular
		if r.Intn(4) == 0 {
			mode = snapshot.ModeExecutable
		}
		content := strings.Join(lines(r, r.Intn(25), lineStock), "")
		switch r.Intn(8) {
		case 0:
			content = strings.TrimSuffix(content, "\n")
		case 1:
			content += "\x00\x01\xff"
		case 2:
			content = ""
		}
		w[nameStock[r.Intn(len(nameStock))]] = file{content, mode}
	}
	delete(w, "a b/a b/x")
	return w
}

// change makes the next state of a world.
func change(r *rand.Rand, w world) world {
	after := maps.Clone(w)
	for _, name := range slices.Sorted(maps.Keys(w)) {
		f := w[name]
		switch r.Intn(7) {
		case 0:
			delete(after, name)
		case 1, 2:
			f.content = mutate(r, f.content)
			after[name] = f
		case 3:
			f.mode ^= 0o111
			after[name] = f
		case 4:
			delete(after, name)
			if r.Intn(2) == 0 {
				f.content = mutate(r, f.content)
			}
			after["moved to/"+name] = f
		}
	}
	if r.Intn(3) == 0 {
		after[fmt.Sprintf("fresh %d", r.Intn(3))] = file{strings.Join(lines(r, r.Intn(5), lineStock), ""), snapshot.ModeRegular}
	}
	return after
}

// gitDiffs lets git write the difference of every pair, with the options that
// its number selects.
func gitDiffs(t testing.TB, pairs [][2]world, options []string) []string {
	t.Helper()
	needGit(t)
	dir := t.TempDir()
	var stream, s strings.Builder
	for i, p := range pairs {
		for k, side := range []string{"a", "b"} {
			fmt.Fprintf(&stream, "commit refs/heads/%d%s\ncommitter x <x> 0 +0000\ndata 0\ndeleteall\n", i, side)
			for name, f := range p[k] {
				fmt.Fprintf(&stream, "M %o inline %s\ndata %d\n%s\n", f.mode, patch.Quote(name), len(f.content), f.content)
			}
		}
		fmt.Fprintf(&s, "git diff %s %da %db -- >%d.diff\n", options[i%len(options)], i, i, i)
	}
	if err := os.WriteFile(filepath.Join(dir, "stream"), []byte(stream.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	shell(t, dir, "set -e\ngit init -q .\ngit fast-import --quiet <stream\n"+s.String())
	out := make([]string, len(pairs))
	for i := range out {
		b, err := os.ReadFile(filepath.Join(dir, fmt.Sprintf("%d.diff", i)))
		if err != nil {
			t.Fatal(err)
		}
		out[i] = string(b)
	}
	return out
}

func trialCount(n int) int {
	if testing.Short() {
		return n / 4
	}
	return n
}

// TestImportGitDiff: what git diff writes leads exactly to the state that it
// was made from.
func TestImportGitDiff(t *testing.T) {
	r := rand.New(rand.NewSource(1))
	options := []string{"--binary --full-index", "--binary -M -C --full-index", "--binary -U0 --full-index", "--binary -U1 -M10% --full-index", "--binary -M -C --find-copies-harder --full-index -B"}
	pairs := make([][2]world, trialCount(120))
	for i := range pairs {
		w := randomWorld(r)
		pairs[i] = [2]world{w, change(r, w)}
	}
	for i, d := range gitDiffs(t, pairs, options) {
		if d == "" {
			continue
		}
		tr := &trial{name: fmt.Sprintf("pair %d (%s)", i, options[i%len(options)]), world: pairs[i][0], patch: d}
		tr.o.Apply.ZeroContext = strings.Contains(options[i%len(options)], "-U0")
		after, im := tr.ours(t)
		if len(im.Refused) > 0 || after.String() != pairs[i][1].String() {
			t.Errorf("%s: refused %v, got\n%swant\n%spatch:\n%s", tr.name, im.Refused, after, pairs[i][1], d)
		}
	}
}

// TestImportAgainstGitApply: patches on files that moved on are taken and
// refused as git does, with the same result.
func TestImportAgainstGitApply(t *testing.T) {
	r := rand.New(rand.NewSource(2))
	options := []string{"--binary --full-index", "--binary -M -C --full-index", "--binary -U1 --full-index", "-U2"}
	pairs := make([][2]world, trialCount(160))
	for i := range pairs {
		w := randomWorld(r)
		pairs[i] = [2]world{w, change(r, w)}
	}
	var trials []*trial
	for i, d := range gitDiffs(t, pairs, options) {
		w := maps.Clone(pairs[i][0])
		for name, f := range w {
			if r.Intn(2) == 0 && !strings.Contains(f.content, "\x00") {
				f.content = mutate(r, f.content)
				w[name] = f
			}
		}
		if r.Intn(10) == 0 {
			w["fresh 1"] = file{"here\n", snapshot.ModeRegular}
		}
		trials = append(trials, &trial{name: fmt.Sprintf("trial %d", i), world: w, patch: d})
	}
	askGit(t, trials)
	taken := 0
	for _, tr := range trials {
		if tr.ok {
			taken++
		}
		tr.compare(t)
	}
	if taken < len(trials)/10 || taken > len(trials)*9/10 {
		t.Errorf("git took %d of %d: the generator does not test both answers", taken, len(trials))
	}
}

// TestRenderAgainstGitApply: what we write git apply takes, and so do we.
func TestRenderAgainstGitApply(t *testing.T) {
	r := rand.New(rand.NewSource(3))
	var trials []*trial
	var want []world
	for i := range trialCount(120) {
		w := randomWorld(r)
		after := change(r, w)
		o := patch.RenderOptions{Context: []int{0, 1, patch.NoContext, 5}[i%4]}
		tr := &trial{name: fmt.Sprintf("trial %d", i), world: w, patch: string(patch.Render(changes(w, after), o))}
		if o.Context == patch.NoContext {
			tr.args = []string{"--unidiff-zero"}
			tr.o.Apply.ZeroContext = true
		}
		if tr.patch == "" {
			continue
		}
		trials, want = append(trials, tr), append(want, after)
	}
	askGit(t, trials)
	for i, tr := range trials {
		if !tr.ok || tr.after.String() != want[i].String() {
			t.Errorf("%s: git apply: %v %s\ngot\n%swant\n%spatch:\n%s", tr.name, tr.ok, tr.msg, tr.after, want[i], tr.patch)
		}
		tr.compare(t)
	}
}

// changes is the difference of two worlds, with renames where the names say so.
func changes(w, after world) []patch.Change {
	var out []patch.Change
	moved := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(after)) {
		f := after[name]
		old, existed := w[name]
		from := strings.TrimPrefix(name, "moved to/")
		c := patch.Change{Old: name, New: name, OldMode: old.mode, NewMode: f.mode, Before: []byte(old.content), After: []byte(f.content)}
		switch {
		case existed:
			c.Kind = patch.Modify
		case from != name:
			c.Kind, c.Old, c.OldMode, c.Before = patch.Rename, from, w[from].mode, []byte(w[from].content)
			moved[from] = true
		default:
			c.Kind = patch.Create
		}
		out = append(out, c)
	}
	for _, name := range slices.Sorted(maps.Keys(w)) {
		if _, ok := after[name]; !ok && !moved[name] {
			out = append(out, patch.Change{Kind: patch.Delete, Old: name, OldMode: w[name].mode, Before: []byte(w[name].content)})
		}
	}
	return out
}

// damage changes a patch as a careless hand or a hostile one would.
func damage(r *rand.Rand, p string) string {
	l := strings.SplitAfter(p, "\n")
	for range 1 + r.Intn(2) {
		i := r.Intn(len(l))
		switch r.Intn(7) {
		case 0:
			l[i] = ""
		case 1:
			l[i] += l[i]
		case 2:
			j := r.Intn(len(l))
			l[i], l[j] = l[j], l[i]
		case 3:
			if len(l[i]) > 1 {
				b := []byte(l[i])
				b[r.Intn(len(b)-1)] = "@+- 0123456789ab/\\\t\""[r.Intn(20)]
				l[i] = string(b)
			}
		case 4:
			l[i] = strings.Replace(l[i], "1", "2", 1)
		case 5:
			l = append(l[:i:i], append([]string{"some prose\n"}, l[i:]...)...)
		case 6:
			l = l[:i+1]
		}
	}
	return strings.Join(l, "")
}

// strictSide lists why we may refuse what git takes.
func strictSide(im patch.Imported) string {
	for _, it := range im.Refused {
		for _, why := range []string{"corrupt binary patch", "binary patch without data", "binary size", "header without a change", "makes or changes it before", "about an object of mode"} {
			if strings.Contains(it.Detail, why) {
				return why
			}
		}
	}
	return ""
}

// TestDamagedAgainstGitApply: damaged patches too are taken and refused as git
// does.
func TestDamagedAgainstGitApply(t *testing.T) {
	r := rand.New(rand.NewSource(4))
	options := []string{"--full-index --binary", "-M -C", "-U1"}
	pairs := make([][2]world, trialCount(200))
	for i := range pairs {
		w := randomWorld(r)
		pairs[i] = [2]world{w, change(r, w)}
	}
	var trials []*trial
	for i, d := range gitDiffs(t, pairs, options) {
		trials = append(trials, &trial{name: fmt.Sprintf("trial %d", i), world: pairs[i][0], patch: damage(r, d)})
	}
	askGit(t, trials)
	for _, tr := range trials {
		if _, im := tr.ours(t); tr.ok && strictSide(im) != "" {
			continue
		}
		tr.compare(t)
	}
}
