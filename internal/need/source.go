package need

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// Source makes the result of a test depend on every file of the module. A test that
// builds the program and runs it needs that: the go command remembers results by the
// packages that a test imports and the files that the test itself opens, and would
// show a pass that was earned by an earlier program. To be called by a running test:
// what is opened before the first one is not counted.
func Source() error {
	dir, err := os.Getwd()
	if err != nil {
		return err
	}
	for {
		_, err := os.Stat(filepath.Join(dir, "go.mod"))
		if err == nil {
			break
		}
		up := filepath.Dir(dir)
		if !errors.Is(err, fs.ErrNotExist) || up == dir {
			return err
		}
		dir = up
	}
	// A directory that is opened stands for what it holds: names, sizes, times.
	return filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && (d.Name() == ".git" || p == filepath.Join(dir, "bin")) {
			return filepath.SkipDir
		}
		return err
	})
}
