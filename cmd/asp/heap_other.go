//go:build !linux

package main

func hugeOnWish() bool { return false }

func adviseHuge(int) {}

func adviseNext() {}
