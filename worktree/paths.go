package worktree

import (
	"os"
	"strings"
)

// within tells whether p is dir or lies below it; both absolute and clean.
func within(p, dir string) bool {
	return p == dir || dir == "/" || strings.HasPrefix(p, dir+"/")
}

// hidden tells whether p lies in a directory that the check does not see, and in
// no mount that shows it again.
func (c *Candidate) hidden(p string) bool {
	hid, shown := -1, -1
	for _, h := range append([]string{"/dev", "/proc"}, c.hide...) { // the sandbox has its own of these two
		if within(p, h) {
			hid = max(hid, len(h))
		}
	}
	for _, m := range c.mounts {
		same := m.Target == m.Source || m.Target == m.Lower || m.Target == c.Root
		if same && within(p, m.Target) {
			shown = max(shown, len(m.Target))
		}
	}
	return hid > shown
}

// common is the directory of what all work trees of the repository share.
func (s *Spec) common() string {
	if s.CommonDir != "" {
		return s.CommonDir
	}
	return s.GitDir
}

func exists(p string) bool {
	_, err := os.Stat(p)
	return err == nil
}
