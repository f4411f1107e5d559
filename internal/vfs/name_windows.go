package vfs

// unusable names mean something else on this system.
func unusable(name string) bool { return reservedName(name) }
