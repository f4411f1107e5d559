package need_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/aspengine/asp/internal/need"
)

// TestMissing runs this binary once more with a test that misses something.
func TestMissing(t *testing.T) {
	if os.Getenv("NEED_CHILD") == "1" {
		need.Tool(t, "no-such-program")
		return
	}
	for _, c := range []struct{ require, want string }{{"", "--- SKIP"}, {"1", "--- FAIL"}} {
		cmd := exec.Command(os.Args[0], "-test.run=^TestMissing$", "-test.v")
		cmd.Env = append(os.Environ(), "NEED_CHILD=1", need.Require+"="+c.require)
		out, err := cmd.CombinedOutput()
		if !strings.Contains(string(out), c.want) || (err != nil) != (c.require == "1") {
			t.Errorf("%s=%q: %v, want %s in:\n%s", need.Require, c.require, err, c.want, out)
		}
		if !strings.Contains(string(out), "no-such-program is not installed") {
			t.Errorf("%s=%q gives no reason:\n%s", need.Require, c.require, out)
		}
	}
}
