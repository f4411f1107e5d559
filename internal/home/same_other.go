//go:build !unix

package home

import (
	"os"

	"github.com/aspengine/asp/internal/vfs"
)

func sameFile(vfs.Stat, os.FileInfo) bool { return false }
