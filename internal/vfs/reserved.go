package vfs

import "strings"

// reservedName tells whether Windows gives a name another meaning than that of a name
// in a directory: a device, a stream of another file, a spelling of another name
// (trailing dots and spaces, the short form of a long name), or a separator. Such a
// name is never given to that system for something new.
func reservedName(name string) bool { return specialName(name) || shortName(name) }

// specialName is reservedName without short forms.
func specialName(name string) bool {
	if strings.ContainsAny(name, "<>:\"\\|?*") || strings.HasSuffix(name, ".") || strings.HasSuffix(name, " ") {
		return true
	}
	for _, c := range name {
		if c < 0x20 {
			return true
		}
	}
	base, _, _ := strings.Cut(name, ".")
	base = strings.TrimRight(base, " ")
	switch strings.ToUpper(base) {
	case "CON", "PRN", "AUX", "NUL", "CONIN$", "CONOUT$", "CLOCK$":
		return true
	}
	// COM1 to COM9 and LPT1 to LPT9, the superscript digits too.
	if r := []rune(strings.ToUpper(base)); len(r) == 4 && (string(r[:3]) == "COM" || string(r[:3]) == "LPT") && strings.ContainsRune("123456789¹²³", r[3]) {
		return true
	}
	return false
}

// shortName tells names of the form that a long name gets beside its own: GIT~1 is .git.
// It can be a long name of somebody's all the same, which only what is opened by it tells.
func shortName(name string) bool {
	base, ext, _ := strings.Cut(name, ".")
	base = strings.TrimRight(base, " ")
	stem, num, short := strings.Cut(base, "~")
	return short && stem != "" && len(base) <= 8 && len(ext) <= 3 && num != "" && strings.Trim(num, "0123456789") == ""
}
