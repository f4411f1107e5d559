package sandbox_test

import (
	"os"
	"testing"

	"github.com/aspengine/asp/sandbox"
)

func TestMain(m *testing.M) {
	sandbox.ChildMain()
	os.Exit(m.Run())
}
