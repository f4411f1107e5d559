//go:build !linux || portablefs

package exchange

import "github.com/aspengine/asp/internal/vfs"

func likeDir(_, to vfs.Dir, st vfs.Stat) (string, error) { return "", to.Chmod(st.Perm | 0o700) }

func finishDir(to vfs.Dir, st vfs.Stat, _ bool) (string, error) { return "", to.Chmod(st.Perm) }

func bare(vfs.Dir) error { return nil }

func keepFlags(_, _ vfs.File) (string, error) { return "", nil }
