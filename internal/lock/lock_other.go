//go:build !linux && !darwin

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

func openDirectory(string) (*os.File, error)      { return nil, errUnsupported }
func openToLook(string) (*os.File, error)         { return nil, errUnsupported }
func openQueueFile(string) (*os.File, error)      { return nil, errUnsupported }
func tryLockFile(*os.File) error                  { return errUnsupported }
func shareFile(*os.File) error                    { return errUnsupported }
func unlockFile(*os.File) error                   { return errUnsupported }
func (*queue) tryByte(int64) (bool, error)        { return false, errUnsupported }
func (*queue) unlockByte(int64) error             { return errUnsupported }
func (*queue) heldIn(int64, int64) (int64, error) { return 0, errUnsupported }
func startTime(int) (uint64, error)               { return 0, errUnsupported }
func flockFd(uintptr) error                       { return errUnsupported }
func funlockFd(uintptr) error                     { return errUnsupported }

type queue struct {
	f      *os.File
	ticket int64
}

func newQueue(f *os.File) *queue { return &queue{f: f} }

type waiter struct{}

func newWaiter(string) *waiter                 { return &waiter{} }
func (*waiter) wait(ctx context.Context) error { return sleep(ctx, longWait) }
func (*waiter) close()                         {}
