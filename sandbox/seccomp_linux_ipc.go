//go:build linux && (amd64 || arm64)

package sandbox

import "golang.org/x/sys/unix"

// sharedMemory is the call that attaches memory by its number.
const sharedMemory = unix.SYS_SHMAT

// sharedByKey are the calls by which processes share something that has a key and no path.
func sharedByKey() []denial {
	return deny(unix.EPERM, unix.SYS_SHMGET, unix.SYS_SHMAT, unix.SYS_SHMCTL, unix.SYS_SEMGET, unix.SYS_SEMOP, unix.SYS_SEMTIMEDOP, unix.SYS_SEMCTL,
		unix.SYS_MSGGET, unix.SYS_MSGSND, unix.SYS_MSGRCV, unix.SYS_MSGCTL)
}
