//go:build !unix

package main

import "os"

// terminal takes no stream for a terminal, so that no escape sequence goes where
// it is not understood.
func terminal(*os.File) (columns int, ok bool) { return 0, false }

// umask takes no rights away here.
func umask() int { return 0 }
