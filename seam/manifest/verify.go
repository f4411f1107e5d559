package manifest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// maxArtifact bounds what one verification reads, over all files.
const maxArtifact = 4 << 30

// Verified is a look at the files of a provider.
type Verified struct {
	// Exec is the program, open for reading and executing; nil when it cannot be
	// opened. Who starts the provider executes this descriptor and not the
	// path: where the manifest lists the program, it is the one that was hashed,
	// whatever the path names by now.
	Exec *os.File
	// All is true when the program can be executed and every checksum matches.
	// Of a manifest without checksums nothing but the program is known.
	All      bool
	Problems []string // what keeps All from being true, each with what to do
}

// Close releases Exec.
func (v *Verified) Close() error {
	if v.Exec == nil {
		return nil
	}
	return v.Exec.Close()
}

// Verify opens the program and reads every file with a checksum, each through
// one descriptor. Links are followed: a manifest may name /usr/bin/python3. A file
// that is missing or different is a problem; the error means that the look could
// not be finished. The caller closes the result.
func (m Manifest) Verify(ctx context.Context) (_ *Verified, err error) {
	v := &Verified{}
	defer func() {
		if err != nil {
			_ = v.Close()
		}
	}()
	add := func(format string, a ...any) {
		if len(v.Problems) < 100 {
			v.Problems = append(v.Problems, fmt.Sprintf(format, a...))
		}
	}
	var program os.FileInfo
	f, st, err := openRegular(m.Bin)
	switch {
	case err != nil:
		add("program %.200q: %v; install it, or correct $.entrypoint.bin", m.Bin, cause(err))
	case st.Mode().Perm()&0o111 == 0:
		add("program %.200q may not be executed by anybody; chmod +x it", m.Bin)
		_ = f.Close()
	default:
		v.Exec, program = f, st
	}
	left := int64(maxArtifact)
	for _, c := range m.Checksums {
		path := m.file(c)
		sum, n, err := digest(ctx, path, v.Exec, program, left)
		left -= n
		switch {
		case ctx.Err() != nil:
			return nil, fmt.Errorf("verify provider %.150q: %w", m.ID, ctx.Err())
		case errors.Is(err, errArtifact):
			add("the files with checksums are larger than %d bytes together", int64(maxArtifact))
			return v, nil
		case err != nil:
			add("%.200q: %v; restore it, or add the provider again from the manifest of what is installed", path, cause(err))
		case sum != c.SHA256:
			add("%.200q is not what the manifest describes (sha256 differs); if it was updated, add the provider again from the new manifest", path)
		}
	}
	v.All = len(v.Problems) == 0
	return v, nil
}

// file is the absolute path of a file with a checksum.
func (m Manifest) file(c Checksum) string {
	if filepath.IsAbs(c.Path) {
		return filepath.Clean(c.Path)
	}
	return filepath.Join(m.dir, c.Path)
}

// Files are the absolute paths of the files with a checksum.
func (m Manifest) Files() []string {
	out := make([]string, len(m.Checksums))
	for i, c := range m.Checksums {
		out[i] = m.file(c)
	}
	return out
}

var errArtifact = errors.New("too large")

// digest hashes the file at path: through exec where that is the same file.
func digest(ctx context.Context, path string, exec *os.File, program os.FileInfo, most int64) (string, int64, error) {
	f, st, err := openRegular(path)
	if err != nil {
		return "", 0, err
	}
	defer f.Close()
	from := f
	if program != nil && os.SameFile(program, st) {
		from = exec
	}
	h, buf := sha256.New(), make([]byte, 256<<10)
	var n int64
	for {
		if err := ctx.Err(); err != nil {
			return "", n, err
		}
		k, err := from.ReadAt(buf, n)
		h.Write(buf[:k])
		n += int64(k)
		switch {
		case n > most:
			return "", n, errArtifact
		case errors.Is(err, io.EOF):
			return hex.EncodeToString(h.Sum(nil)), n, nil
		case err != nil:
			return "", n, err
		}
	}
}

// openRegular opens a regular file. A name of anything else is refused before
// it is opened for reading, and opening a FIFO that was put there in between
// does not wait.
func openRegular(path string) (*os.File, os.FileInfo, error) {
	if st, err := os.Stat(path); err != nil {
		return nil, nil, err
	} else if !st.Mode().IsRegular() {
		return nil, nil, errors.New("no regular file")
	}
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, err
	}
	st, err := f.Stat()
	if err == nil && !st.Mode().IsRegular() {
		err = errors.New("no regular file")
	}
	if err != nil {
		return nil, nil, errors.Join(err, f.Close())
	}
	return f, st, nil
}

// cause is an error without the path, which the caller has named.
func cause(err error) error {
	var p *fs.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	return err
}
