// Package need says what a test needs of its machine. Without it the test is
// skipped with the reason; where ASP_TEST_REQUIRE=1 is set, as in CI, it fails
// instead, so that no test is left out unseen. Only tests import it.
package need

import (
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"testing"
)

// Require is the variable that makes a missing need a failure.
const Require = "ASP_TEST_REQUIRE"

// Missing ends the test for the reason given: a failure where ASP_TEST_REQUIRE
// is 1, otherwise a skip.
func Missing(t testing.TB, format string, args ...any) {
	t.Helper()
	if os.Getenv(Require) == "1" {
		t.Fatalf(Require+"=1, but "+format, args...)
	}
	t.Skipf(format, args...)
}

// Root needs the rights of uid 0.
func Root(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		notFor(t, "the test needs root")
	}
}

// User needs to be an ordinary user.
func User(t testing.TB) {
	t.Helper()
	if os.Geteuid() == 0 {
		notFor(t, "the test needs an ordinary user")
	}
}

// notFor skips what the other kind of user runs. CI runs the tests as both, so
// this is no failure anywhere.
func notFor(t testing.TB, reason string) {
	t.Helper()
	t.Skip(reason)
}

// Tool needs a program on PATH and returns where it is.
func Tool(t testing.TB, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		Missing(t, "%s is not installed", name)
	}
	return path
}

// Signals makes those that this process was started to ignore (nohup, a job in the
// background of a script) reach the programs that it starts: they would inherit it,
// and a test that signals them would wait for ever. This process itself goes on
// without a word. It is for TestMain; it holds until the process ends.
func Signals() {
	for _, s := range []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
		if signal.Ignored(s) {
			signal.Notify(make(chan os.Signal, 1), s)
		}
	}
}
