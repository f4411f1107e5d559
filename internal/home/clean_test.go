package home_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/aspengine/asp/internal/home"
	"github.com/aspengine/asp/internal/vfs"
)

// meddler is a directory in which somebody cleans up at a chosen moment.
type meddler struct {
	vfs.Dir
	made, renamed func()
	creates       int
}

func (m *meddler) Create(name string, perm uint32) (vfs.File, error) {
	f, err := m.Dir.Create(name, perm)
	m.creates++
	if m.made != nil {
		m.made()
	}
	return f, err
}

func (m *meddler) Rename(name string, to vfs.Dir, toName string, mode vfs.RenameMode) error {
	if m.renamed != nil {
		m.renamed()
	}
	if x, ok := to.(*meddler); ok {
		to = x.Dir
	}
	return m.Dir.Rename(name, to, toName, mode)
}

// TestCleanTempSparesTheLiving: a file that is being written is no left-over, however
// old it is, and one that is taken before its writer could lock it is written anew.
func TestCleanTempSparesTheLiving(t *testing.T) {
	p := t.TempDir()
	dir, err := vfs.OS{}.OpenRoot(p)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	clean := func() {
		if err := home.CleanTemp(dir); err != nil {
			t.Error(err)
		}
	}
	for _, c := range []struct {
		name    string
		m       meddler
		creates int
	}{
		{"before the rename", meddler{Dir: dir, renamed: clean}, 1},
		{"right after it was made", meddler{Dir: dir}, 2},
	} {
		if c.creates == 2 {
			c.m.made = func() {
				if c.m.creates == 1 {
					clean()
				}
			}
		}
		if err := home.WriteFile(&c.m, "x", []byte(c.name)); err != nil || c.m.creates != c.creates {
			t.Errorf("%s: %v, begun %d times, want %d", c.name, err, c.m.creates, c.creates)
		}
		if b, err := os.ReadFile(filepath.Join(p, "x")); err != nil || string(b) != c.name {
			t.Errorf("%s: %q, %v", c.name, b, err)
		}
	}
	always := meddler{Dir: dir, made: clean}
	if err := home.WriteFile(&always, "y", nil); err == nil {
		t.Error("a file that is taken each time was written")
	}
	// Of the dead, all goes but what was set aside.
	for _, n := range []string{home.TempPrefix + "dead", home.TornPrefix + "kept"} {
		if err := os.WriteFile(filepath.Join(p, n), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	clean()
	_, dead := os.Stat(filepath.Join(p, home.TempPrefix+"dead"))
	if _, err := os.Stat(filepath.Join(p, home.TornPrefix+"kept")); err != nil || !errors.Is(dead, os.ErrNotExist) {
		t.Errorf("the dead one: %v, the one set aside: %v", dead, err)
	}
}
