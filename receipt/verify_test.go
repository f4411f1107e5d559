package receipt_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/aspengine/asp/internal/canon"
	"github.com/aspengine/asp/receipt"
)

func edit(t *testing.T, name string, f func([]byte) []byte) {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, f(b), 0o600); err != nil {
		t.Fatal(err)
	}
}

func replace(old, new string) func([]byte) []byte {
	return func(b []byte) []byte { return bytes.Replace(b, []byte(old), []byte(new), 1) }
}

// Each row damages a good chain of six. Verify must name the culprit, and go
// on naming it after a further append: evidence is not tidied away.
func TestVerifyFindsTampering(t *testing.T) {
	for _, c := range []struct {
		name   string
		damage func(p *place, file func(i int) string) error
		want   string // in some problem; %N is the id of receipt N
		healed bool   // a later append may put it right without any loss
	}{
		{"changed in the middle", func(p *place, file func(int) string) error {
			edit(p.t, file(2), replace(`"n":2`, `"n":7`))
			return nil
		}, "%2 does not precede %3", false},
		{"changed, the newest", func(p *place, file func(int) string) error {
			edit(p.t, file(5), replace(`"applied"`, `"refused"`))
			return nil
		}, "%5, the newest, was removed or changed", false},
		{"changed, the first", func(p *place, file func(int) string) error {
			edit(p.t, file(0), replace(`"n":0`, `"n":1`))
			return nil
		}, "%0 does not precede %1", false},
		{"other spelling of the same value", func(p *place, file func(int) string) error {
			edit(p.t, file(1), func(b []byte) []byte { return append(b, '\n') })
			return nil
		}, "%1 was changed", false},
		{"removed in the middle", func(p *place, file func(int) string) error { return os.Remove(file(3)) },
			"%2 does not precede %4", false},
		{"removed, the first", func(p *place, file func(int) string) error { return os.Remove(file(0)) },
			"the predecessor of %1 was removed", false},
		{"removed, the newest", func(p *place, file func(int) string) error { return os.Remove(file(5)) },
			"%5, the newest, was removed", false},
		{"removed, the two newest", func(p *place, file func(int) string) error {
			return errors.Join(os.Remove(file(4)), os.Remove(file(5)))
		}, "%5, the newest, was removed", false},
		{"two swapped", func(p *place, file func(int) string) error {
			return errors.Join(os.Rename(file(1), file(1)+".x"), os.Rename(file(2), file(1)), os.Rename(file(1)+".x", file(2)))
		}, "%1 was changed", false},
		{"a copy under another id", func(p *place, file func(int) string) error {
			return forge(p, file(3), "", true)
		}, "the chain forks", false},
		{"inserted after the newest", func(p *place, file func(int) string) error {
			st, err := p.store(receipt.Options{}).Get(strings.TrimSuffix(filepath.Base(file(5)), ".json"))
			if err != nil {
				return err
			}
			return forge(p, file(5), st.Digest, false)
		}, "is not in the chain", false},
		{"a foreign file", func(p *place, file func(int) string) error {
			return os.WriteFile(p.file("receipts/notes.txt"), nil, 0o600)
		}, `"notes.txt" is no receipt`, false},
		{"a FIFO in place of a receipt", func(p *place, file func(int) string) error {
			return errors.Join(os.Remove(file(2)), syscall.Mkfifo(file(2), 0o600))
		}, "%2 was changed", false},
		{"a link in place of a receipt", func(p *place, file func(int) string) error {
			return errors.Join(os.Rename(file(2), p.file("moved")), os.Symlink(p.file("moved"), file(2)))
		}, "%2 was changed", false},
		{"an endless file", func(p *place, file func(int) string) error {
			return os.Truncate(file(2), 1<<40)
		}, "larger than the limit", false},
		{"deep nesting", func(p *place, file func(int) string) error {
			return os.WriteFile(file(2), bytes.Repeat([]byte("["), 1<<20), 0o600)
		}, "%2 was changed", false},
		{"one head missing", func(p *place, file func(int) string) error { return os.Remove(p.file("receipts.head.a")) },
			"receipts.head.a is missing", false},
		{"one head damaged", func(p *place, file func(int) string) error {
			return os.WriteFile(p.file("receipts.head.a"), []byte("{}"), 0o600)
		}, "receipts.head.a was changed", true},
		{"both heads missing", func(p *place, file func(int) string) error {
			return errors.Join(os.Remove(p.file("receipts.head.a")), os.Remove(p.file("receipts.head.b")))
		}, "the head of the chain is missing", false},
		{"both heads and the newest missing", func(p *place, file func(int) string) error {
			return errors.Join(os.Remove(p.file("receipts.head.a")), os.Remove(p.file("receipts.head.b")), os.Remove(file(5)))
		}, "the head of the chain is missing", false},
		{"the newest and its head", func(p *place, file func(int) string) error {
			return errors.Join(os.Remove(file(5)), os.Remove(p.file("receipts.head.a")), p.unindex("p-5"))
		}, "receipts.head.a is missing", false},
		{"the newest, and a copy of the other head in the place of its own", func(p *place, file func(int) string) error {
			return errors.Join(os.Remove(file(5)), copyFile(p.file("receipts.head.b"), p.file("receipts.head.a")), p.unindex("p-5"))
		}, "does not precede", false},
		{"a copy of the newest head in the place of the other", func(p *place, file func(int) string) error {
			return copyFile(p.file("receipts.head.a"), p.file("receipts.head.b"))
		}, "does not precede", false},
		{"the newest, with both heads as they were before it", func(p *place, file func(int) string) error {
			return errors.Join(os.Remove(file(5)), os.Rename(p.file("head.a.before"), p.file("receipts.head.a")))
		}, "%5 is known to the index of outcomes, and was removed", false},
		{"all receipts, heads and the index", func(p *place, file func(int) string) error {
			var errs []error
			for _, glob := range []string{"receipts/*", "receipts.*", "results/*"} {
				names, err := filepath.Glob(p.file(glob))
				errs = append(errs, err)
				for _, n := range names {
					errs = append(errs, os.Remove(n))
				}
			}
			return errors.Join(errs...)
		}, "every receipt and every head was removed", false},
		{"a newer format", func(p *place, file func(int) string) error {
			edit(p.t, p.file("receipts.head.a"), replace(`"format":2`, `"format":9`))
			return nil
		}, "newer format", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newPlace(t)
			ids := fill(t, p.store(receipt.Options{}), 0, 5)
			if err := copyFile(p.file("receipts.head.a"), p.file("head.a.before")); err != nil {
				t.Fatal(err)
			}
			ids = append(ids, fill(t, p.store(receipt.Options{}), 5, 1)...)
			file := func(i int) string { return p.file("receipts/" + ids[i] + ".json") }
			if err := c.damage(p, file); err != nil {
				t.Fatal(err)
			}
			want := c.want
			for i, id := range ids {
				want = strings.ReplaceAll(want, "%"+string(rune('0'+i)), id)
			}
			s := p.store(receipt.Options{})
			r := verified(t, s)
			all := strings.Join(r.Problems, "\n")
			if r.OK || !strings.Contains(all, want) {
				t.Errorf("problems:\n%s\nwant: %s", all, want)
			}
			if c.name == "a newer format" {
				if _, err := s.Append(ctx, entry(7)); err == nil {
					t.Error("appended to a newer format")
				}
				return
			}
			if _, err := s.Lookup(ctx, "prov", "p-5"); err != nil {
				t.Log(err) // what is damaged is said, and no evidence of it goes
			}
			fill(t, s, 7, 2)
			if r := verified(t, s); r.OK != c.healed {
				t.Errorf("after a further append: ok %v, problems %q", r.OK, r.Problems)
			}
		})
	}
}

func copyFile(from, to string) error {
	b, err := os.ReadFile(from)
	return errors.Join(err, os.WriteFile(to, b, 0o600))
}

// unindex removes what the index says of a proposal.
func (p *place) unindex(proposal string) error {
	sum := sha256.Sum256(canon.ArrayOf(canon.StringOf("prov"), canon.StringOf(proposal)).Bytes())
	return os.Remove(p.file("results/" + hex.EncodeToString(sum[:]) + ".json"))
}

// forge writes a well-formed receipt beside the one in file: with another id,
// and another predecessor unless that is kept.
func forge(p *place, file, previous string, keep bool) error {
	b, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	id := strings.TrimSuffix(filepath.Base(file), ".json")
	other := id[:len(id)-4] + "beef"
	b = bytes.ReplaceAll(b, []byte(id), []byte(other))
	if !keep {
		v, err := canon.Parse(b, canon.Limits{})
		if err != nil {
			return err
		}
		m := v.Without("previous")
		ms := []canon.Member{{Key: "previous", Value: canon.StringOf(previous)}}
		for k, x := range m.Members() {
			ms = append(ms, canon.Member{Key: k, Value: x})
		}
		b = canon.ObjectOf(ms...).Bytes()
	}
	return os.WriteFile(p.file("receipts/"+other+".json"), b, 0o600)
}

func FuzzVerifyNeverAcceptsAChange(f *testing.F) {
	f.Add(0, byte(1))
	f.Add(40, byte(0x20))
	f.Add(700, byte(0xff))
	f.Fuzz(func(t *testing.T, at int, flip byte) {
		if flip == 0 || at < 0 {
			return
		}
		p := newPlace(t)
		s := p.store(receipt.Options{})
		ids := fill(t, s, 0, 3)
		edit(t, p.file("receipts/"+ids[1]+".json"), func(b []byte) []byte { b[at%len(b)] ^= flip; return b })
		if r := verified(t, s); r.OK {
			t.Errorf("a flipped byte at %d passed", at)
		}
	})
}

// The record of a probe has to be the one that the assurance names, byte by byte.
func TestVerifyRecomputesProbes(t *testing.T) {
	attempts := canon.ArrayOf(canon.StringOf(`held: "read /root": "ENOENT"`), canon.StringOf(`held: "unshare": "EPERM"`))
	good := canon.DigestText(attempts)
	for _, c := range []struct{ name, digest, detail, want string }{
		{"as it should be", good, "check x: record of the probe " + good, ""},
		{"another digest beside it", "sha256:00", "record of the probe sha256:00", "and not \"sha256:00\""},
		{"not named by the assurance", good, "record of the probe sha256:00", "is not the one that the assurance rests on"},
	} {
		s := newPlace(t).store(receipt.Options{})
		e := entry(1)
		e.Receipt.Assurance.Detail = c.detail
		e.Evidence = canon.ObjectOf(canon.Member{Key: "probes", Value: canon.ArrayOf(canon.ObjectOf(
			canon.Member{Key: "attempts", Value: attempts}, canon.Member{Key: "digest", Value: canon.StringOf(c.digest)}))})
		if _, err := s.Append(ctx, e); err != nil {
			t.Fatal(err)
		}
		r := verified(t, s)
		if said := strings.Join(r.Problems, "; "); r.OK != (c.want == "") || !strings.Contains(said, c.want) {
			t.Errorf("%s: %q", c.name, said)
		}
	}
}

// A power cut before the first barrier may leave nothing but the torn head of an entry
// that is gone itself. Beside a receipt it is a finding.
func TestTornFirstHead(t *testing.T) {
	p := newPlace(t)
	s := p.store(receipt.Options{})
	if err := os.WriteFile(p.file("receipts.head.b"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if r := verified(t, s); !r.OK {
		t.Errorf("%q", r.Problems)
	}
	fill(t, s, 0, 1)
	if err := os.WriteFile(p.file("receipts.head.b"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if r := verified(t, s); r.OK {
		t.Error("a torn head beside a receipt passes")
	}
}
