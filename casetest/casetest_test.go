// Package casetest drives the built binary through the cases of the contract,
// each a fault that people met in a tool of this kind. It knows only what the
// command line promises: flags, JSON shapes, refusal codes, exit statuses and
// what is on the disk afterwards. Every test bears the id of its case.
//
// Where the tests run as root, the binary runs as an ordinary user, as it would
// in real life; cases that are about root say so.
package casetest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/aspengine/asp/internal/need"
)

// binary is the built command. It is set once, before any test runs.
var binary string

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == tracerWord {
		os.Exit(tracerMain(os.Args[2:]))
	}
	if len(os.Args) > 1 && os.Args[1] == attackerWord {
		os.Exit(attackerMain(os.Args[2:]))
	}
	if len(os.Args) > 1 && os.Args[1] == withoutWord {
		os.Exit(withoutMain(os.Args[2:]))
	}
	if len(os.Args) > 1 && os.Args[1] == reachWord {
		os.Exit(reachMain(os.Args[2:]))
	}
	if len(os.Args) > 1 && os.Args[1] == naiveWord {
		os.Exit(naiveMain(os.Args[2:]))
	}
	need.Signals()
	os.Exit(mainTest(m))
}

func mainTest(m *testing.M) int {
	if binary = os.Getenv("ASP_BINARY"); binary != "" {
		return m.Run() // a binary that was built elsewhere
	}
	dir, err := os.MkdirTemp("", "casetest-bin-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o755); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	binary = filepath.Join(dir, "asp")
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", "build", "-o", binary, "github.com/aspengine/asp/cmd/asp")
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	if err := cmd.Run(); err != nil {
		fmt.Fprintln(os.Stderr, "build the command:", err)
		return 1
	}
	return m.Run()
}
