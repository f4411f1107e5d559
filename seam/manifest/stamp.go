package manifest

import (
	"os"
	"strings"
	"time"

	"github.com/aspengine/asp/internal/canon"
)

// Stamp names the state of the files of m, without reading them, together with the
// manifest itself. Two equal stamps mean the same answer of Verify; "" that there is no
// saying, for a file is missing or was changed a moment ago. It is for telling a person
// how things stand: what is launched is verified.
func (m Manifest) Stamp(now time.Time) string {
	var b strings.Builder
	for _, path := range append(m.Files(), m.Bin) {
		fi, err := os.Stat(path)
		if err != nil {
			return ""
		}
		s, settled := stampOf(fi, now)
		if !settled {
			return ""
		}
		b.WriteString(s + "\n")
	}
	return canon.DigestText(canon.ArrayOf(m.Value, canon.StringOf(b.String())))
}
