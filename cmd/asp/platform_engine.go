//go:build linux || darwin || windows

package main

// platform is why the engine cannot work on this system; nil here.
func platform() error { return nil }
