package casetest

import (
	"bytes"
	"crypto/sha256"
	enc "encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// The fixtures are workspaces with their state directories as earlier programs
// left them. They are never made again: a later format gets fixtures of its own.
// WRITE_FIXTURES=DIR writes what this program makes.
//
//	format1/chain     one chain of receipts for everything (heads of format 1)
//	format1/proposal  a kept plan and baselines from before these had a format
//	format1/ref, put  a commit on its way to a reference, before and after its decision, in a git work tree
//	format1/quarantine.json  of a provider that failed three times
//	format1/...       three chains; journal, intent, staged plan, packs, stat cache: 1
//	format2/kept      heads of format 2, kept plan and baselines of format 1
//	format2/group-... three plans that one transaction carries out, killed before and after its
//	                  decision; journal 2 (made by TestWriteGroupFixtures of apply)
const fixtureFormat = "format1"

// TestUpgrade opens what an earlier program left: a state directory with
// receipts, a staged plan and something to take back, and transactions that were
// killed before and after their decision.
func TestUpgrade(t *testing.T) {
	if dir := os.Getenv("WRITE_FIXTURES"); dir != "" {
		writeFixtures(t, dir)
	}
	t.Run("kept", func(t *testing.T) { upgradeKept(t, fixture(t, "kept"), 1) })
	t.Run("one chain", func(t *testing.T) { upgradeKept(t, fixture(t, "chain"), 1) })
	t.Run("heads of format 2", func(t *testing.T) {
		w := fixture(t, "../format2/kept")
		id := strings.TrimSpace(w.read("../proposal-id"))
		kept, err := filepath.Glob(filepath.Join(w.asp, "workspaces/*/proposals/*.json"))
		if err != nil || len(kept) != 1 || !strings.Contains(w.read(kept[0]), `"format":1`) {
			t.Fatalf("it is to have one kept plan of format 1: %q %v", kept, err)
		}
		w.run("apply", id, "--json").applied()
		w.is("made", "made\n")
		upgradeKept(t, w, 2)
		heads, err := filepath.Glob(filepath.Join(w.asp, "workspaces/*/receipts.head.?"))
		if err != nil || len(heads) != 2 {
			t.Fatal(heads, err)
		}
		for _, h := range heads {
			if !strings.Contains(w.read(h), `"format":2`) {
				t.Errorf("heads have another format by now, and no fixture: %.200s", w.read(h))
			}
		}
	})
	// A plan that was kept, and the baseline that it is on, before either had a format.
	t.Run("proposal", func(t *testing.T) {
		w := fixture(t, "proposal")
		w.run("apply", keptProposal, "--json").applied()
		w.is("a", "a new\n")
		p := w.plan().modify("b", "b old\n", "b new\n")
		p.apply().applied()
		files, err := filepath.Glob(filepath.Join(w.base, "state/workspaces/*/baselines"))
		if err != nil || len(files) != 1 {
			t.Fatal(files, err)
		}
		if b, err := os.ReadFile(files[0]); err != nil || !strings.HasPrefix(string(b), "format 1\ntree:") {
			t.Errorf("the baselines are not in the present format: %q %v", b, err)
		}
	})
	for _, c := range []struct{ name, fixture, outcome, a string }{
		{"killed in the swap", "swap", "rolled-back", "a old\n"},
		{"killed after the decision", "decided", "completed", "a new\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := fixture(t, c.fixture)
			r := w.run("recover", "--json")
			if r.code != 0 || !strings.Contains(string(r.out), `"`+c.outcome+`"`) {
				t.Fatal(r)
			}
			w.is("a", c.a)
			w.is("b", "b old\n")
			w.clean()
			w.run("apply", "--plan", w.path("../plan-one.json"), "--json").applied()
		})
	}
	for _, c := range []struct{ fixture, outcome, now string }{
		{"group-swap", "rolled-back", "old"},
		{"group-decided", "completed", "new"},
	} {
		t.Run(c.fixture, func(t *testing.T) {
			w := fixture(t, "../format2/"+c.fixture)
			journals, err := filepath.Glob(w.path(".git/asp/tx-*/journal"))
			if err != nil || len(journals) != 1 || enc.LittleEndian.Uint32([]byte(w.read(journals[0]))[8:]) != 2 {
				t.Fatalf("it is to have a journal of format 2: %q %v", journals, err)
			}
			r := w.run("recover", "--json")
			if r.code != 0 || strings.Count(string(r.out), `"`+c.outcome+`"`) != 3 {
				t.Fatal(r)
			}
			for _, f := range []string{"a", "b", "c"} {
				w.is(f, f+" "+c.now+"\n")
			}
			said := map[any]any{}
			for _, x := range w.receipts() {
				said[x["proposalId"]] = x["outcome"]
			}
			says := map[string]string{"rolled-back": "rolled-back", "completed": "applied"}[c.outcome]
			if len(said) != 3 || said["p0"] != says || said["p1"] != says || said["p2"] != says {
				t.Errorf("the receipts say %v, want %s", said, says)
			}
			w.run("receipts", "verify").exits(0)
			w.clean()
			w.plan().modify("a", "a "+c.now+"\n", "a newer\n").apply().applied()
		})
	}
	for _, c := range []struct{ fixture, outcome, ref string }{
		{"ref", "rolled-back", ""},
		{"put", "completed", "a new\n"},
	} {
		t.Run("a reference, "+c.outcome, func(t *testing.T) {
			w := fixture(t, c.fixture)
			intents, err := filepath.Glob(filepath.Join(w.asp, "workspaces/*/pending-ref.json"))
			if err != nil || len(intents) != 1 || !strings.HasPrefix(w.read(intents[0]), `{"commit":"`) {
				t.Fatalf("it is to have an intent: %q %v", intents, err)
			}
			if r := w.run("recover", "--json"); r.code != 0 || !strings.Contains(string(r.out), `"`+c.outcome+`"`) {
				t.Fatal(r)
			}
			w.gone(".git/refs/heads/side.lock")
			w.gone(intents[0])
			if c.ref == "" {
				w.gone(".git/refs/heads/side")
				w.run("apply", "--plan", w.path("../plan-ref.json"), "--stage", "--ref", "side", "--json").applied()
			}
			if got := w.gitRun("cat-file", "blob", "side:a"); got != "a new\n" {
				t.Errorf("the commit has %q", got)
			}
			w.is("a", "a old\n")
			w.clean()
		})
	}
	t.Run("quarantine", func(t *testing.T) {
		w := newWorld(t, map[string]string{"a": "a\n"})
		w.enrol("syntax", "gated")
		w.baselineNow()
		b, err := os.ReadFile("testdata/format1/quarantine.json")
		must(t, err)
		states, err := filepath.Glob(filepath.Join(w.asp, "workspaces/*"))
		if err != nil || len(states) != 1 {
			t.Fatal(states, err)
		}
		until := regexp.MustCompile(`"until":"[^"]*"`)
		w.write(filepath.Join(states[0], "quarantine.json"), until.ReplaceAllString(string(b), `"until":"2999-01-01T00:00:00Z"`), 0o600)
		held := func() bool {
			return strings.Contains(string(w.run("server", "status", "syntax").exits(0).out), "in quarantine until 2999")
		}
		if !held() {
			t.Error("a quarantine is forgotten")
		}
		w.run("server", "reset", "syntax").exits(0)
		if held() {
			t.Error("a quarantine cannot be ended")
		}
	})
	t.Run("killed after the exchange", func(t *testing.T) {
		w := fixture(t, "exchanged")
		w.newInodes()
		r := w.run("recover", "--json")
		if r.code != 0 || !strings.Contains(string(r.out), `"completed"`) {
			t.Fatal(r)
		}
		w.is("a", "a new\n")
		w.clean()
	})
}

// upgradeKept goes on with a state in which plan one was applied, two staged, and
// three applied and taken back.
func upgradeKept(t *testing.T, w *world, headFormat int) {
	t.Helper()
	for _, h := range []string{"a", "b"} {
		heads, err := filepath.Glob(filepath.Join(w.asp, "workspaces/*/receipts.head."+h))
		if err != nil || len(heads) != 1 {
			t.Fatal(heads, err)
		}
		if b := w.read(heads[0]); !strings.Contains(b, fmt.Sprintf(`"format":%d`, headFormat)) {
			t.Fatalf("the fixture is to have heads of format %d: %.200s", headFormat, b)
		}
	}
	if r := w.run("receipts", "verify", "--json"); r.code != 0 {
		t.Fatal(r)
	}
	if n := len(w.receipts()); n < 4 {
		t.Errorf("%d receipts", n)
	}
	was := w.list()
	again := w.run("apply", "--plan", w.path("../plan-one.json"), "--json").applied()
	if d := was.diff(w.list(), nil); len(d) > 0 {
		t.Errorf("the plan that was applied is applied again: %v", d)
	}
	w.is("a", "a new\n")
	w.run("publish", "two", "--json").applied()
	w.is("b", "b new\n")
	w.run("undo", again.str("receipt", "receiptId"), "--json").applied()
	w.is("a", "a old\n")
	w.clean()
}

// keptProposal is the id of the plan in the fixture.
const keptProposal = "import:2d938019539f-6bd13a8f"

// TestLaterFormat: what a later program wrote is refused by the name of the file
// and left as it is.
func TestLaterFormat(t *testing.T) {
	later := func(b []byte) []byte {
		return bytes.Replace(b, []byte(`"format":1`), []byte(`"format":99`), 1)
	}
	for _, c := range []struct {
		fixture, file string // a pattern below the world's base
		change        func([]byte) []byte
		args          []string
	}{
		{"kept", "state/workspaces/*/workspace.json", later, []string{"apply", "--plan", "../plan-two.json", "--json"}},
		{"kept", "state/workspaces/*/receipts.head.a", later, []string{"apply", "--plan", "../plan-two.json", "--json"}},
		{"kept", "state/workspaces/*/receipts.head.b", later, []string{"apply", "--plan", "../plan-two.json", "--json"}},
		{"kept", "state/workspaces/*/staged/*.json", later, []string{"publish", "two", "--json"}},
		{"proposal", "state/workspaces/*/proposals/*.json", func(b []byte) []byte {
			return slices.Concat([]byte(`{"bundle":`), b, []byte(`,"format":99}`))
		}, []string{"apply", keptProposal, "--json"}},
		{"proposal", "state/workspaces/*/baselines", func(b []byte) []byte { return append([]byte("format 99\n"), b...) }, []string{"apply", keptProposal, "--json"}},
		{"ref", "state/workspaces/*/pending-ref.json", later, []string{"recover", "--json"}},
		{"put", "state/workspaces/*/pending-ref.json", later, []string{"apply", "--plan", "../plan-two.json", "--json"}},
		{"swap", "ws/repo/.asp/tx/*/journal", laterJournal, []string{"recover", "--json"}},
		{"exchanged", "ws/.asp-exchange-*/journal", later, []string{"recover", "--json"}},
	} {
		t.Run(c.file, func(t *testing.T) {
			w := fixture(t, c.fixture)
			w.broken = true
			if strings.HasSuffix(c.file, "/baselines") {
				w.write("b", "moved\n", 0o644) // else nobody asks which were issued
			}
			files, err := filepath.Glob(filepath.Join(w.base, c.file))
			if err != nil || len(files) != 1 {
				t.Fatalf("%v %v", files, err)
			}
			b, err := os.ReadFile(files[0])
			must(t, err)
			changed := c.change(b)
			if bytes.Equal(b, changed) {
				t.Fatalf("it states no format: %.100q", b)
			}
			must(t, os.WriteFile(files[0], changed, 0o600))
			ws := w.list()
			r := w.run(c.args...)
			if r.code != 3 {
				t.Errorf("want an error: %s", r)
			}
			if !regexp.MustCompile("newer|knows|later").MatchString(r.errs) {
				t.Errorf("the message does not say why: %s", r.errs)
			}
			if d := ws.diff(w.list(), nil); len(d) > 0 {
				t.Errorf("the workspace was changed: %v", d)
			}
			if now, err := os.ReadFile(files[0]); err != nil || !bytes.Equal(now, changed) {
				t.Errorf("the file was changed: %v", err)
			}
		})
	}
}

// laterJournal gives a journal a later version, and the checksum of its header.
func laterJournal(b []byte) []byte {
	head := enc.LittleEndian.AppendUint32(bytes.Clone(b[:8]), 99)
	head = enc.LittleEndian.AppendUint32(head, crc32.Checksum(head, crc32.MakeTable(crc32.Castagnoli)))
	return append(head, b[16:]...)
}

// fixture is a world with what a fixture holds in it, at another place than
// where it was made.
func fixture(t *testing.T, name string) *world {
	t.Helper()
	w := newWorld(t, nil, noGit)
	must(t, os.RemoveAll(w.root))
	out, err := exec.Command("tar", "-xzf", filepath.Join("testdata", fixtureFormat, name+".tar.gz"), "-C", w.base).CombinedOutput()
	if err != nil {
		t.Fatalf("tar: %v %s", err, out)
	}
	// The state of a workspace goes by where that is.
	gitDir := ""
	if _, err := os.Stat(w.path(".git")); err == nil {
		gitDir, w.git = w.path(".git"), true
	}
	sum := sha256.Sum256([]byte(w.root + "\x00" + gitDir))
	dirs, err := filepath.Glob(filepath.Join(w.asp, "workspaces", "*"))
	if err != nil || len(dirs) != 1 {
		t.Fatalf("%v %v", dirs, err)
	}
	home := filepath.Join(w.asp, "workspaces", hex.EncodeToString(sum[:]))
	must(t, os.Rename(dirs[0], home))
	// The name is written after the first barrier; who was killed before has none.
	if mark, err := os.ReadFile(filepath.Join(home, "workspace.json")); err == nil {
		var m struct{ Root string }
		must(t, json.Unmarshal(mark, &m))
		must(t, os.WriteFile(filepath.Join(home, "workspace.json"), bytes.ReplaceAll(mark, []byte(m.Root), []byte(w.root)), 0o600))
	}
	must(t, filepath.WalkDir(w.base, func(p string, _ fs.DirEntry, err error) error {
		w.own(p)
		return err
	}))
	return w
}

// newInodes tells the journal of an exchange the inodes that the two trees have
// here: they are what decides.
func (w *world) newInodes() {
	w.t.Helper()
	areas, err := filepath.Glob(filepath.Join(w.ws, ".asp-exchange-*"))
	if err != nil || len(areas) != 1 {
		w.t.Fatalf("%v %v", areas, err)
	}
	file := filepath.Join(areas[0], "journal")
	b, err := os.ReadFile(file)
	must(w.t, err)
	for key, dir := range map[string]string{"newIno": w.root, "oldIno": filepath.Join(areas[0], "tree")} {
		var st syscall.Stat_t
		must(w.t, syscall.Lstat(dir, &st))
		b = regexp.MustCompile(`"`+key+`":"[0-9]+"`).ReplaceAll(b, []byte(`"`+key+`":"`+utoa(st.Ino)+`"`))
	}
	must(w.t, os.WriteFile(file, b, 0o600))
}

func utoa(n uint64) string { b, _ := json.Marshal(n); return string(b) }

// toRef makes the workspace a git work tree, and a plan for a commit of it.
func (w *world) toRef() []string {
	w.git = true
	must(w.t, os.RemoveAll(filepath.Join(w.asp, "workspaces"))) // of the plain directory that it was
	w.gitRun("init", "-q", "-b", "main", "--template=")
	w.gitRun("config", "user.name", "A")
	w.gitRun("config", "user.email", "a@example.org")
	w.commit()
	p := w.plan().modify("a", "a old\n", "a new\n")
	p.id = "ref"
	file := filepath.Join(w.ws, "plan-ref.json")
	must(w.t, os.WriteFile(file, p.bundle(), 0o644))
	return []string{"apply", "--plan", file, "--stage", "--ref", "side", "--json"}
}

// writeFixtures makes the fixtures anew.
func writeFixtures(t *testing.T, dir string) {
	must(t, os.MkdirAll(dir, 0o755))
	for name, prepare := range map[string]func(w *world, one, two string){
		"kept": func(w *world, one, two string) {
			w.run("apply", "--plan", one, "--json").applied()
			w.run("apply", "--plan", two, "--stage", "--json").applied()
			p := w.plan().create("c", "c\n")
			p.id = "three"
			w.run("undo", p.apply().applied().str("receipt", "receiptId"), "--json").applied()
			diff := filepath.Join(w.base, "p.diff")
			must(w.t, os.WriteFile(diff, []byte("--- /dev/null\n+++ b/made\n@@ -0,0 +1 @@\n+made\n"), 0o644))
			id := w.run("plan", "--patch", diff, "--json").str("proposal", "proposalId")
			must(w.t, os.WriteFile(filepath.Join(w.ws, "proposal-id"), []byte(id+"\n"), 0o644))
		},
		"swap": func(w *world, one, two string) {
			p := w.plan().modify("a", "a old\n", "a new\n").modify("b", "b old\n", "b new\n")
			p.id = "both"
			n := 0
			whole := w.keep()
			for i, l := range w.killedAt(0, "apply", "--plan", p.file(), "--json").lines {
				if strings.HasSuffix(l, "/b flags 2") {
					n = i + 1
				}
			}
			whole.restore()
			w.killedAt(n, "apply", "--plan", p.file(), "--json")
			must(w.t, os.RemoveAll(whole.dir))
		},
		"decided": func(w *world, one, two string) {
			w.killedBefore("/swapping", "apply", "--plan", one, "--json")
			w.run("recover", "--json")
			w.killedBefore("unlinkat "+w.path(".asp/tx"), "apply", "--plan", one, "--json")
		},
		"ref": func(w *world, one, two string) { w.killedBefore("/staged/.tmp-", w.toRef()...) },
		"put": func(w *world, one, two string) { w.killedBefore("/side.lock -> ", w.toRef()...) },
		"exchanged": func(w *world, one, two string) {
			w.killedBefore("/out", "apply", "--plan", one, "--json", "--publish", "exchange")
		},
	} {
		t.Run("write "+name, func(t *testing.T) {
			w := newWorld(t, map[string]string{"a": "a old\n", "b": "b old\n"}, noGit)
			w.broken = true
			first, second := w.plan().modify("a", "a old\n", "a new\n"), w.plan().modify("b", "b old\n", "b new\n")
			first.id, second.id = "one", "two"
			for file, p := range map[string]*plan{"plan-one.json": first, "plan-two.json": second} {
				must(t, os.WriteFile(filepath.Join(w.ws, file), p.bundle(), 0o644))
			}
			prepare(w, filepath.Join(w.ws, "plan-one.json"), filepath.Join(w.ws, "plan-two.json"))
			out, err := exec.Command("tar", "-czf", filepath.Join(dir, name+".tar.gz"), "--owner=0", "--group=0", "-C", w.base, "ws", "state").CombinedOutput()
			if err != nil {
				t.Fatalf("tar: %v %s", err, out)
			}
		})
	}
}
