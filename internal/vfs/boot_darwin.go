package vfs

import "golang.org/x/sys/unix"

// Boot names the present boot of the machine, "" where the kernel does not tell.
func Boot() string {
	s, err := unix.Sysctl("kern.bootsessionuuid")
	if err != nil {
		return ""
	}
	return s
}
