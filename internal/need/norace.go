//go:build !race

package need

// Race tells that the race detector watches; see race.go.
const Race = false
