//go:build !linux || portablefs

package commit

import "errors"

// hostDirty cannot be told, nor is there a sync of a whole file system that the
// answer would be for.
func hostDirty() (int64, error) { return 0, errors.ErrUnsupported }
