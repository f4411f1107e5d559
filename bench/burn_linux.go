package main

import (
	"syscall"
	"time"
)

// burn uses so much processor time.
func burn(d time.Duration) error {
	for {
		var u syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
			return err
		}
		if time.Duration(u.Utime.Nano()+u.Stime.Nano()) >= d {
			return nil
		}
		for end := time.Now().Add(time.Millisecond); time.Now().Before(end); {
		}
	}
}
