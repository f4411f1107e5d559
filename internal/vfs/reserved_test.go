package vfs

import "testing"

func TestReservedNames(t *testing.T) {
	for _, n := range []string{
		"CON", "con", "nul.txt", "Aux.tar.gz", "PRN ", "com1", "LPT9.log", "COM¹", "CONIN$", "nul .txt",
		"a:b", "file.txt:stream", "a\\b", "a.", "a ", ".git.", ".git ", "..\\x", "a?b", "a*", "a|b", "a\"b", "a<b", "tab\tx", "\x01",
		"GIT~1", "git~1", "PROGRA~1", "a~2.txt", "GITMOD~1",
	} {
		if !reservedName(n) {
			t.Errorf("%q is let through", n)
		}
	}
	for _, n := range []string{
		"a", ".git", ".gitignore", "console", "com", "com10", "COM0", "lpt", "nul-", "auxiliary.c", "ä b", "a.b.c", "con-1", "a~", "~1", "notes.txt~", "file~1.longext",
		"a-longer-name~1", "x~y",
	} {
		if reservedName(n) {
			t.Errorf("%q is refused", n)
		}
	}
}
