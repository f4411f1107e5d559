//go:build !linux

package casetest

// What the test binary is for other processes than the tests. None of it exists here,
// and no test asks for it.
const (
	tracerWord   = "casetest-tracer"
	attackerWord = "casetest-attacker"
	withoutWord  = "casetest-without"
	naiveWord    = "casetest-naive"
	reachWord    = "casetest-reach"
)

func tracerMain([]string) int   { return 1 }
func attackerMain([]string) int { return 1 }
func withoutMain([]string) int  { return 1 }
func naiveMain([]string) int    { return 1 }
func reachMain([]string) int    { return 1 }

// naked is for systems whose kernel can be told to lack something.
func (w *world) naked(args ...string) *result { w.t.Skip("needs Linux"); return nil }
