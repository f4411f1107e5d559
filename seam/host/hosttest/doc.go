// Package hosttest holds `asp host serve` against the contract, over the built
// binary alone: what a harness sees, what is on the disk afterwards, and what is
// left of the process. It has tests only.
package hosttest
