package gitbase

import (
	"fmt"
	"os"
)

// openRegular opens a file of a git directory for reading. The directory is
// foreign: where a FIFO or a device lies in the place of a file, the open must
// not wait for anybody, and nothing is read from it.
func openRegular(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|noWait, 0)
	if err != nil {
		return nil, err
	}
	st, err := f.Stat()
	if err == nil && !st.Mode().IsRegular() {
		err = fmt.Errorf("%.200q is not a regular file", path)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}
