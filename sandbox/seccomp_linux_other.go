//go:build linux && !amd64 && !arm64

package sandbox

// auditArch is unknown: there is no system call table for this architecture, and a
// filter for the wrong one would deny at random.
const auditArch = 0

func archDenials() []denial { return nil }

const compatArch = 0

func compatDenials() []denial { return nil }

const sharedMemory = 0

func archConfined() []denial { return nil }
