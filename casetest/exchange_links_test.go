package casetest

import (
	"os"
	"testing"
)

// TestExchangeOfKinds: where a plan puts a link in the place of a file, or a file in that
// of a link, every publish mode that touches the workspace does it.
func TestExchangeOfKinds(t *testing.T) {
	for _, mode := range []string{"journal", "exchange"} {
		t.Run(mode, func(t *testing.T) {
			w := newWorld(t, map[string]string{"c": "c\n", "real": "r\n"})
			w.link("real", "ln")
			w.link("real", "other")
			w.commit()
			w.plan().remove("c", "c\n").rename("ln", "c", "real").remove("other", "real").create("other", "file\n").apply("--publish", mode).applied()
			if to, err := os.Readlink(w.path("c")); to != "real" {
				t.Errorf("c: %q, %v", to, err)
			}
			w.gone("ln")
			w.is("other", "file\n")
			w.is("real", "r\n")
			w.clean()
		})
	}
}
