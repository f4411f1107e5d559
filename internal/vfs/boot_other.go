//go:build !linux && !darwin

package vfs

// Boot is not known on this system.
func Boot() string { return "" }
