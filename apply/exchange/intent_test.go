package exchange

import (
	"errors"
	"maps"
	"testing"

	"github.com/aspengine/asp/internal/home"
	"github.com/aspengine/asp/internal/need"
	"github.com/aspengine/asp/internal/vfs/memfs"
)

// FuzzIntent: whatever bytes a journal has, reading it is an error or an intent
// that reads the same when it is written again.
func FuzzIntent(f *testing.F) {
	for _, s := range []string{
		"", "{", `{"format":1}`, `{"format":2}`,
		`{"evidence":"00","format":1,"newIno":"26","oldIno":"4","postImages":[],"preImages":[{"blob":"blob:sha256:f45fda3f6469939d3fab4a959b105350d1aefd2d8ef6963484d4d987deba0f9a","path":"c"}],"root":"7773","tag":"p","txid":"tx1"}`,
		`{"evidence":"","format":1,"newIno":"-1","oldIno":"4","postImages":[],"preImages":[{"blob":"blob:sha256:00","path":"../c"}],"root":"77","tag":"p","txid":"tx1"}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		need.Bounded(t, len(b), func() {
			d, err := memfs.New(memfs.Options{}).OpenRoot("/")
			if err != nil {
				t.Fatal(err)
			}
			if err := home.WriteFile(d, journalName, b); err != nil {
				t.Fatal(err)
			}
			i, err := readIntent(d, journalName)
			if errors.Is(err, errNoIntent) {
				t.Fatal("a journal that is there counts as none")
			}
			if err != nil {
				return
			}
			if err := errors.Join(d.Unlink(journalName), writeIntent(d, i), publishIntent(d)); err != nil {
				t.Fatal(err)
			}
			j, err := readIntent(d, journalName)
			if err != nil || i.TxID != j.TxID || i.Root != j.Root || i.OldIno != j.OldIno || i.NewIno != j.NewIno || !maps.Equal(i.PreImages, j.PreImages) || !maps.Equal(i.PostImages, j.PostImages) || string(i.Evidence) != string(j.Evidence) {
				t.Fatalf("%+v, read again %+v %v", i, j, err)
			}
		})
	})
}
