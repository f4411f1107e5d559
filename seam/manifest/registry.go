package manifest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/aspengine/asp/internal/canon"
	"github.com/aspengine/asp/internal/home"
	"github.com/aspengine/asp/internal/vfs"
)

// originFile lies beside the copy of a manifest.
const originFile = "origin.json"

const manifestsDir = "manifests"

// ErrUnknown is the cause when no provider has the id.
var ErrUnknown = errors.New("no such provider; `asp server list` shows the ones that were added")

// Registry are the providers that were added, under
// ASP_HOME/servers/manifests/<id>/: the manifest byte for byte in asp-server.json,
// and in origin.json the directory that it came from, which relative
// checksum paths are relative to. Without origin.json that is the directory of the
// copy. Being in it lets a provider be started where a repository enables it, and
// nothing else.
//
// Its methods are safe for concurrent use, by several processes too: files are
// replaced whole. Between the replacement of the two files of one provider that
// provider has a problem, and is not started.
type Registry struct {
	h *home.Home

	mu   sync.Mutex
	read map[string]reading // the last of each provider
}

// reading is what two files were made into. The files are read each time; a host asks
// several times for every request, and they seldom change.
type reading struct {
	raw, origin string
	m           Manifest
}

// OpenRegistry gives the registry of a state directory, which stays the caller's
// to close.
func OpenRegistry(h *home.Home) *Registry { return &Registry{h: h, read: map[string]reading{}} }

// Entry is one provider of the registry. Manifest is nil where Problem says why
// it cannot be used.
type Entry struct {
	ID       string
	Manifest *Manifest
	Problem  string
}

// origin is the content of origin.json. Digest is that of the manifest's
// canonical form, so that a copy of one and an origin of another are seen.
type origin struct {
	Directory string `json:"directory"`
	Digest    string `json:"digest"`
}

// Add verifies the files of a provider and keeps its manifest, in place of one
// with the same id. It is durable when Add returns. A provider whose files are not what
// its manifest says is refused with an *Error.
func (r *Registry) Add(ctx context.Context, m Manifest) (err error) {
	v, err := m.Verify(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, v.Close()) }()
	if !v.All {
		return &Error{m.Path, v.Problems}
	}
	note, err := canon.From(origin{m.dir, canon.DigestText(m.Value)})
	if err != nil {
		return fmt.Errorf("add provider %.150q: the directory of its manifest: %w", m.ID, err)
	}
	var b home.Batch
	dir, err := r.sub(&b, m.ID)
	if err != nil {
		return err
	}
	defer dir.Close()
	// The origin first: a new origin with the old manifest is seen by the
	// digest, as is the other way round.
	if err := errors.Join(b.WriteFile(dir, originFile, append(note.Bytes(), '\n')), b.WriteFile(dir, FileName, m.raw)); err != nil {
		b.Drop()
		return fmt.Errorf("add provider %.150q: %w", m.ID, err)
	}
	return b.Sync(home.EachFile)
}

// sub opens the directory of a provider, making it and owing its durability to b.
func (r *Registry) sub(b *home.Batch, id string) (vfs.Dir, error) {
	root, err := r.h.Sub(home.ServersDir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	all, err := r.h.Sub(home.ServersDir, manifestsDir)
	if err != nil {
		return nil, err
	}
	defer all.Close()
	dir, err := r.h.Sub(home.ServersDir, manifestsDir, id)
	if err != nil {
		return nil, err
	}
	// The names above are synced at once: it happens once per provider.
	if err := errors.Join(r.h.Dir().Sync(), root.Sync(), all.Sync()); err != nil {
		return nil, errors.Join(fmt.Errorf("sync the state directory: %w", err), dir.Close())
	}
	b.Touch(dir)
	return dir, nil
}

// open opens the directory of one provider without making it.
func (r *Registry) open(id string) (vfs.Dir, error) {
	if err := CheckID(id); err != nil {
		return nil, err
	}
	d, err := r.h.Dir().OpenDir(home.ServersDir + "/" + manifestsDir + "/" + id)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("provider %q: %w", id, ErrUnknown)
	}
	return d, err
}

// Get reads the manifest of one provider. ErrUnknown where there is none, an
// *Error where it is no good. Nobody changes what it returns: others may hold it.
func (r *Registry) Get(ctx context.Context, id string) (Manifest, error) {
	if err := ctx.Err(); err != nil {
		return Manifest{}, err
	}
	d, err := r.open(id)
	if err != nil {
		return Manifest{}, err
	}
	defer d.Close()
	path := r.h.Path(home.ServersDir, manifestsDir, id, FileName)
	bad := func(format string, a ...any) (Manifest, error) {
		return Manifest{}, &Error{path, []string{fmt.Sprintf(format, a...)}}
	}
	b, err := home.ReadFile(d, FileName, MaxFile)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return Manifest{}, fmt.Errorf("provider %q: %w", id, ErrUnknown)
	case errors.Is(err, home.ErrTooLarge):
		return bad("%v", err)
	case err != nil:
		return Manifest{}, err
	}
	from, err := home.ReadFile(d, originFile, MaxFile)
	alone := errors.Is(err, fs.ErrNotExist)
	if err != nil && !alone {
		return Manifest{}, err
	}
	r.mu.Lock()
	last, ok := r.read[id]
	r.mu.Unlock()
	if ok && !alone && last.raw == string(b) && last.origin == string(from) {
		return last.m, nil
	}
	m, err := Parse(path, b)
	if err != nil {
		return Manifest{}, err
	}
	if m.ID != id {
		return bad("lies in the directory of %q but is the manifest of %q", id, m.ID)
	}
	if alone {
		return m, nil
	}
	o, err := canon.Parse(from, canon.Limits{Bytes: MaxFile})
	directory, _ := o.Get("directory")
	of, _ := o.Get("digest")
	switch {
	case err != nil || o.Len() != 2 || directory.Kind() != canon.String || !filepath.IsAbs(directory.Str()):
		return bad("%s beside it is damaged; add the provider again", originFile)
	case of.Str() != canon.DigestText(m.Value):
		return bad("%s beside it belongs to another manifest; add the provider again", originFile)
	}
	m.dir = directory.Str()
	r.mu.Lock()
	r.read[id] = reading{string(b), string(from), m}
	r.mu.Unlock()
	return m, nil
}

// List reads all manifests, by id. What is no good is an entry with a problem.
func (r *Registry) List(ctx context.Context) ([]Entry, error) {
	d, err := r.h.Dir().OpenDir(home.ServersDir + "/" + manifestsDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("list providers: %w", err)
	}
	defer d.Close()
	names, err := d.List()
	if err != nil {
		return nil, fmt.Errorf("list providers: %w", err)
	}
	slices.SortFunc(names, func(a, b vfs.DirEntry) int { return strings.Compare(a.Name, b.Name) })
	var out []Entry
	for _, n := range names {
		if CheckID(n.Name) != nil {
			continue // nothing that Add made
		}
		m, err := r.Get(ctx, n.Name)
		switch {
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case errors.Is(err, ErrUnknown): // empty: half removed, or removed just now
		case err != nil:
			out = append(out, Entry{n.Name, nil, err.Error()})
		default:
			out = append(out, Entry{n.Name, &m, ""})
		}
	}
	return out, nil
}

// Remove forgets a provider. ErrUnknown where there is none. It is durable when
// Remove returns.
func (r *Registry) Remove(ctx context.Context, id string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	d, err := r.open(id)
	if err != nil {
		return err
	}
	defer d.Close()
	// The manifest first: without it there is no provider.
	err = d.Unlink(FileName)
	gone := errors.Is(err, fs.ErrNotExist)
	for _, name := range []string{originFile} {
		if e := d.Unlink(name); e != nil && !errors.Is(e, fs.ErrNotExist) {
			err = errors.Join(err, e)
		}
	}
	if e := home.CleanTemp(d); e != nil {
		err = errors.Join(err, e)
	}
	all, e := r.h.Sub(home.ServersDir, manifestsDir)
	if e != nil {
		return errors.Join(err, e)
	}
	defer all.Close()
	if e := errors.Join(d.Sync(), all.Rmdir(id), all.Sync()); e != nil {
		return fmt.Errorf("remove provider %q: %w", id, errors.Join(err, e))
	}
	if gone {
		return fmt.Errorf("provider %q: %w", id, ErrUnknown)
	}
	return err
}
