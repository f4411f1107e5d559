package hosttest

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
	if len(os.Args) > 1 && os.Args[1] == "fake" {
		os.Exit(fakeMain(os.Args[2:]))
	}
	need.Signals()
	os.Exit(mainTest(m))
}

// TestSources: a result that go test kept is one of the sources as they are.
func TestSources(t *testing.T) {
	if err := need.Source(); err != nil {
		t.Fatal(err)
	}
}

func mainTest(m *testing.M) int {
	if binary = os.Getenv("ASP_BINARY"); binary != "" {
		return m.Run() // a binary that was built elsewhere
	}
	dir, err := os.MkdirTemp("", "hosttest-bin-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
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
