//go:build !unix

package gitconfig

// noWait is nothing where an open does not wait.
const noWait = 0
