package gitbase_test

import (
	"bytes"
	"compress/zlib"
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/aspengine/asp/internal/vfs"
	"github.com/aspengine/asp/snapshot"
)

// loosen puts the loose form of another object, whole in itself, under an object's name.
func (r tree) loosen(t *testing.T, id, typ, content string) {
	t.Helper()
	var z bytes.Buffer
	w := zlib.NewWriter(&z)
	fmt.Fprintf(w, "%s %d\x00%s", typ, len(content), content)
	w.Close()
	name := r.path(".git/objects/" + id[:2] + "/" + id[2:])
	if err := os.Remove(name); err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, z.Bytes(), 0o444)); err != nil {
		t.Fatal(err)
	}
}

// confuse has the index of the only pack name each of two objects by the other's place:
// every checksum in the pack holds, and both objects are wrong.
func (r tree) confuse(t *testing.T, a, b string) {
	t.Helper()
	names, err := filepath.Glob(r.path(".git/objects/pack/*.idx"))
	if err != nil || len(names) != 1 {
		t.Fatal(names, err)
	}
	x, err := os.ReadFile(names[0])
	if err != nil {
		t.Fatal(err)
	}
	n := int(binary.BigEndian.Uint32(x[8+255*4:]))
	ids, offsets := x[8+256*4:], x[8+256*4+24*n:]
	at := func(id string) []byte {
		raw, err := hex.DecodeString(id)
		if err != nil {
			t.Fatal(err)
		}
		for i := range n {
			if bytes.Equal(ids[20*i:20*i+20], raw) {
				return offsets[4*i : 4*i+4]
			}
		}
		t.Fatalf("%s is not in the pack", id)
		return nil
	}
	p, q := at(a), at(b)
	was := append([]byte(nil), p...)
	copy(p, q)
	copy(q, was)
	if err := errors.Join(os.Chmod(names[0], 0o644), os.WriteFile(names[0], x, 0o644)); err != nil {
		t.Fatal(err)
	}
}

// put makes a tree in which d/b is new on top of HEAD, as --ref does.
func (r tree) put(t *testing.T) (string, error) {
	t.Helper()
	ctx := context.Background()
	repo := r.repo(t)
	defer repo.Close()
	s, err := repo.Stamp(ctx, snapshot.StampOptions{})
	if err != nil {
		return "", err
	}
	plan, items, err := repo.PlanTree(ctx, s, []snapshot.Effect{bytesEffect(t, "d/b", "new\n", snapshot.ModeRegular)}, true)
	if err != nil || len(items) > 0 {
		t.Fatal(err, items)
	}
	w, err := repo.WriteObjects(ctx, vfs.OS{})
	if err != nil {
		t.Fatal(err)
	}
	id, items, err := plan.Write(ctx, w)
	if len(items) > 0 {
		t.Fatal(items)
	}
	return id, errors.Join(err, w.Sync(), w.Close())
}

// TestDamagedElsewhere: objects of an alternate, and packed ones, are held against their
// names like the repository's own. What is wrong there gives no answer, and is in no
// tree that is made; no commit comes to stand above it.
func TestDamagedElsewhere(t *testing.T) {
	newPair := func(t *testing.T, packed bool) (far, near tree) {
		top := newTree(t)
		far, near = tree{top.path("far")}, tree{top.path("near")}
		top.git(t, "init", "-q", "-b", "main", "far")
		far.write(t, "a", "a\n")
		far.write(t, "c", "c\n")
		far.write(t, "d/x", "x\n")
		far.commit(t)
		far.write(t, "d/b", "new\n") // what the plan will make is there already
		far.git(t, "add", "-A")
		far.git(t, "commit", "-q", "-m", "later")
		if packed {
			far.git(t, "repack", "-adq", "--window=0")
		}
		top.git(t, "clone", "-q", "-s", "far", "near")
		near.git(t, "reset", "-q", "--hard", "HEAD^")
		return far, near
	}
	wrong := func(err error) bool { return err != nil && strings.Contains(err.Error(), "does not hash to its name") }
	head := func(t *testing.T, r tree) (string, error) {
		repo := r.repo(t)
		defer repo.Close()
		b, err := repo.HeadFile(context.Background(), mustPath(t, "a"), 100)
		return string(b), err
	}

	t.Run("loose", func(t *testing.T) {
		far, near := newPair(t, false)
		made := far.git(t, "rev-parse", "main^{tree}")
		for _, id := range []string{made, far.git(t, "rev-parse", "main:d"), far.git(t, "rev-parse", "main:d/b")} {
			far.loosen(t, id, "blob", "old\n")
		}
		if got, err := near.put(t); err != nil || got != made {
			t.Fatalf("tree %s, %v; want %s", got, err, made)
		}
		if got := near.git(t, "cat-file", "blob", made+":d/b"); got != "new" {
			t.Errorf("the blob is %q", got)
		}

		if got, err := head(t, near); err != nil || got != "a\n" {
			t.Fatalf("%q, %v", got, err)
		}
		far.loosen(t, near.git(t, "rev-parse", "HEAD:a"), "blob", "b\n")
		if got, err := head(t, near); !wrong(err) {
			t.Errorf("a blob under another's name: %q, %v", got, err)
		}
		far.loosen(t, near.git(t, "rev-parse", "HEAD:d"), "tree", "")
		if got, err := near.put(t); !wrong(err) {
			t.Errorf("a tree under another's name: %s, %v", got, err)
		}
		// A commit with another tree: the state would seem to be changed, or a change unmade.
		was := near.git(t, "rev-parse", "HEAD")
		far.loosen(t, was, "commit", "tree 4b825dc642cb6eb9a060e54bf8d69288fbee4904\n")
		if got, err := near.put(t); !wrong(err) {
			t.Errorf("a commit under another's name: %s, %v", got, err)
		}
	})

	t.Run("packed", func(t *testing.T) {
		far, near := newPair(t, true)
		a, made := far.git(t, "rev-parse", "main:a"), far.git(t, "rev-parse", "main^{tree}")
		if got, err := near.put(t); err != nil || got != made {
			t.Fatalf("tree %s, %v; want %s", got, err, made)
		}
		far.confuse(t, a, far.git(t, "rev-parse", "main:d/b"))
		if got, err := head(t, near); !wrong(err) {
			t.Errorf("a blob at another's place: %q, %v", got, err)
		}
		if got, err := near.put(t); !wrong(err) {
			t.Errorf("a blob that is there and wrong: tree %s, %v", got, err)
		}
	})

	t.Run("parent", func(t *testing.T) {
		far, near := newPair(t, false)
		near.git(t, "update-ref", "refs/heads/other", "origin/main")
		repo := near.repo(t)
		defer repo.Close()
		if _, it, err := repo.PlanRef("refs/heads/other"); err != nil || len(it) > 0 {
			t.Fatal(it, err)
		}
		far.loosen(t, far.git(t, "rev-parse", "main"), "commit", "tree 4b825dc642cb6eb9a060e54bf8d69288fbee4904\n")
		if _, it, err := repo.PlanRef("refs/heads/other"); !wrong(err) {
			t.Errorf("a parent under another's name: %v, %v", it, err)
		}
	})
}
