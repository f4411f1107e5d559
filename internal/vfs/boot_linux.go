package vfs

import (
	"os"
	"strings"
)

// Boot names the present boot of the machine, "" where the kernel does not tell.
func Boot() string {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}
