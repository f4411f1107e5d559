package worktree

import "strings"

// within tells whether p is dir or lies below it; both absolute and clean.
func within(p, dir string) bool {
	return p == dir || dir == "/" || strings.HasPrefix(p, dir+"/")
}

// hidden tells whether p lies in a directory that the check does not see.
func (c *Candidate) hidden(p string) bool {
	for _, h := range c.hide {
		if within(p, h) {
			return true
		}
	}
	return false
}
