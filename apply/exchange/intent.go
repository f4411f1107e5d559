package exchange

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"

	"github.com/aspengine/asp/internal/canon"
	"github.com/aspengine/asp/internal/home"
	"github.com/aspengine/asp/internal/vfs"
	"github.com/aspengine/asp/seam/wire"
	"github.com/aspengine/asp/snapshot"
)

// intent says what an exchange is about to do. It is durable before the
// exchange; which side of it the disk is on is told by the inode of the root
// alone. Both inodes live as long as the area does, so that neither number can
// be given to another directory.
type intent struct {
	TxID, Tag, Root       string
	OldIno, NewIno        uint64
	PreImages, PostImages map[string]snapshot.Digest
	Evidence              []byte
}

// intentFile is the form on disk, canonical JSON, version 1.
type intentFile struct {
	Format     int     `json:"format"`
	TxID       string  `json:"txid"`
	Tag        string  `json:"tag"`
	Root       string  `json:"root"` // hexadecimal: any bytes
	OldIno     string  `json:"oldIno"`
	NewIno     string  `json:"newIno"`
	PreImages  []image `json:"preImages"`  // sorted by path
	PostImages []image `json:"postImages"` // sorted by path
	Evidence   string  `json:"evidence"`   // hexadecimal
}

// image is what one path holds.
type image struct {
	Path string `json:"path"`
	Blob string `json:"blob"`
}

const (
	intentVersion = 1
	maxIntent     = 256 << 20
)

// writeIntent writes the journal under a name that means nothing yet. It gets
// its own, by publishIntent, when it and the tree are durable: a journal that
// cannot be read is damage then, and no sign that the exchange had not begun,
// and where there is one the after-images are whole.
func writeIntent(area vfs.Dir, i intent) error {
	file := intentFile{
		Format: intentVersion, TxID: i.TxID, Tag: i.Tag, Root: hex.EncodeToString([]byte(i.Root)), OldIno: fmt.Sprint(i.OldIno), NewIno: fmt.Sprint(i.NewIno),
		PreImages: images(i.PreImages), PostImages: images(i.PostImages), Evidence: hex.EncodeToString(i.Evidence),
	}
	b, err := canon.Marshal(file)
	if err != nil {
		return err
	}
	f, err := area.Create(writingName, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	return errors.Join(err, f.Close())
}

func publishIntent(area vfs.Dir) error {
	if err := area.Rename(writingName, area, journalName, vfs.NoReplace); err != nil {
		return err
	}
	return area.Sync()
}

func images(m map[string]snapshot.Digest) []image {
	out := make([]image, 0, len(m))
	for _, p := range slices.Sorted(maps.Keys(m)) {
		out = append(out, image{p, m[p].Blob()})
	}
	return out
}

// errNoIntent says that there is no journal: the exchange was not begun, or all
// of it is over.
var errNoIntent = errors.New("no journal")

func readIntent(area vfs.Dir, name string) (intent, error) {
	var i intent
	b, err := home.ReadFile(area, name, maxIntent)
	if errors.Is(err, fs.ErrNotExist) {
		return i, errNoIntent
	}
	if err != nil {
		return i, err
	}
	v, err := canon.Parse(b, canon.Limits{Bytes: maxIntent})
	if err != nil {
		return i, fmt.Errorf("read exchange journal: %w", err)
	}
	if n, ok := v.Get("format"); ok {
		if k, ok := n.Int(); ok && k > intentVersion {
			return i, fmt.Errorf("exchange journal has format %d, this program knows %d", k, intentVersion)
		}
	}
	var f intentFile
	if err := wire.Decode(v, &f); err != nil {
		return i, fmt.Errorf("read exchange journal: %w", err)
	}
	if i, err = f.intent(); err != nil {
		return i, fmt.Errorf("read exchange journal: %w", err)
	}
	return i, nil
}

func (f *intentFile) intent() (i intent, err error) {
	root, err := hex.DecodeString(f.Root)
	if err != nil {
		return i, err
	}
	i = intent{TxID: f.TxID, Tag: f.Tag, Root: string(root)}
	if _, err := fmt.Sscan(f.OldIno, &i.OldIno); err != nil {
		return i, err
	}
	if _, err := fmt.Sscan(f.NewIno, &i.NewIno); err != nil {
		return i, err
	}
	if i.PreImages, err = digests(f.PreImages); err != nil {
		return i, err
	}
	if i.PostImages, err = digests(f.PostImages); err != nil {
		return i, err
	}
	i.Evidence, err = hex.DecodeString(f.Evidence)
	return i, err
}

func digests(l []image) (map[string]snapshot.Digest, error) {
	m := make(map[string]snapshot.Digest, len(l))
	for _, p := range l {
		if _, err := snapshot.ParsePath(p.Path); err != nil {
			return nil, err
		}
		d, err := snapshot.ParseBlob(p.Blob)
		if err != nil {
			return nil, err
		}
		m[p.Path] = d
	}
	return m, nil
}
