//go:build !unix

package commit

// spareFiles is none where it cannot be asked.
func spareFiles() int { return 0 }
