//go:build unix

package home

import (
	"os"
	"syscall"

	"github.com/aspengine/asp/internal/vfs"
)

func sameFile(st vfs.Stat, fi os.FileInfo) bool {
	s, ok := fi.Sys().(*syscall.Stat_t)
	return ok && uint64(s.Dev) == st.Dev && s.Ino == st.Ino
}
