package checks

// ParseIsolation reads the contract's word for a mode.
func ParseIsolation(s string) (Isolation, bool) {
	for i := Advisory; i <= Isolated; i++ {
		if i.String() == s {
			return i, true
		}
	}
	return Advisory, false
}
