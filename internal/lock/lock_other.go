//go:build !linux && !darwin && !windows

package lock

import (
	"context"
	"errors"
	"os"
)

// Elsewhere the kernel locks that this package stands on (open-file-description
// locks above all) are missing or differ; a lock that is not one would be worse
// than the refusal.
var errUnsupported = errors.New("workspace locks need Linux")

type directory = os.File

func openDirectory(string) (*os.File, error)      { return nil, errUnsupported }
func lockDir(*directory) error                    { return errUnsupported }
func shareDir(*directory) error                   { return errUnsupported }
func unlockDir(*directory) error                  { return errUnsupported }
func lockShort(uintptr) (func() error, error)     { return nil, errUnsupported }
func openQueueFile(string) (*os.File, error)      { return nil, errUnsupported }
func (*queue) tryByte(int64) (bool, error)        { return false, errUnsupported }
func (*queue) unlockByte(int64) error             { return errUnsupported }
func (*queue) heldIn(int64, int64) (int64, error) { return 0, errUnsupported }
func startTime(int) (uint64, error)               { return 0, errUnsupported }

type queue struct {
	f      *os.File
	ticket int64
}

func newQueue(f *os.File) *queue { return &queue{f: f} }

type waiter struct{}

func newWaiter(string) *waiter                 { return &waiter{} }
func (*waiter) wait(ctx context.Context) error { return sleep(ctx, longWait) }
func (*waiter) close()                         {}
