//go:build !linux

package casetest

// There is no tracer here, and no test that asks for one.

const tracerWord = "casetest-tracer"

func tracerMain([]string) int { return 1 }
