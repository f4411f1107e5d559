//go:build !linux

package host

import (
	"context"
	"errors"
)

// Listen needs to know who connects, which is asked of Linux only.
func (h *Host) Listen(context.Context, string, func()) error {
	return errors.New("--socket works on Linux only; serve on stdin and stdout")
}
