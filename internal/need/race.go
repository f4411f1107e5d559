//go:build race

package need

// Race tells that the race detector watches. Sweeps that do one thing after
// another, over and over, show it nothing new each time and run ten times as
// long: they take fewer points then. The same points are all taken without it.
const Race = true
