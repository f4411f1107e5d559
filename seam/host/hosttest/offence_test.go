package hosttest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/aspengine/asp/sandbox/sandboxtest"
)

// TestAfterItsAnswer: a second answer and a callback after the answer take nothing from
// the first, and are failures of the provider: shown, and after three in a row a
// quarantine that gates feel. So is an assessment whose timing runs backwards, which is
// none.
func TestAfterItsAnswer(t *testing.T) {
	for work, says := range map[string]string{"twice": "after its answer: protocol error: an answer to id", "stray": "after its answer: it called", "backwards": "timing runs backwards"} {
		t.Run(work, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, "", map[string]string{"a.txt": "x\n"})
			w.enrol("p", []string{"check"}, "work="+work)
			c := w.stdio()
			shown := func() string {
				server, _ := c.good("host/status", obj{}).result["servers"].([]any)[0].(obj)
				return fmt.Sprint(server["state"], " ", server["detail"])
			}
			for n := range 3 {
				a := c.verdict(c.changes(c.baseline(), [3]string{"a.txt", "x\n", fmt.Sprintf("BAD %d\n", n)}), "")
				if got, want := a.text("decision"), map[bool]string{true: "indeterminate", false: "deny"}[work == "backwards"]; got != want || (len(a.findings()) == 1) != (want == "deny") {
					t.Errorf("%d: %s, want %s: %s", n, got, want, a.raw)
				}
				sandboxtest.Eventually(t, "its failure is shown", func() bool { return strings.Contains(shown(), says) })
			}
			if s := shown(); !strings.HasPrefix(s, "quarantined ") {
				t.Error(s)
			}
			if a := c.verdict(c.changes(c.baseline(), [3]string{"a.txt", "x\n", "good\n"}), ""); a.text("decision") != "indeterminate" || !strings.Contains(string(a.raw), `"quarantined"`) {
				t.Errorf("%s", a.raw)
			}
			c.exit()
			// Another process: the count is kept.
			w.write("a.txt", "good\n")
			if code, out, errs := w.run("", "check", "--changed", "--call-site", "gate"); code != 1 || !strings.Contains(out+errs, "quarantine") {
				t.Errorf("exit status %d: %s%s", code, out, errs)
			}
		})
	}
}
