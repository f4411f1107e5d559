//go:build !linux && !darwin && !windows

package main

import (
	"fmt"
	"runtime"
)

// platform is why the engine cannot work on this system.
func platform() error { return &platformError{fmt.Sprintf("%s/%s", runtime.GOOS, runtime.GOARCH)} }
