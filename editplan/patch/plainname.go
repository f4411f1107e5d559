package patch

import (
	"strings"
)

// plainName reads the name of a --- or +++ line that is not git's. It may be
// followed by a date, after a tab or, where somebody's mail program spoiled the
// tab, after spaces.
func plainName(line string, n int) string {
	if strings.HasPrefix(line, `"`) {
		if name, ok := findQuoted(line, n); ok {
			return name
		}
	}
	text, _, _ := strings.Cut(line, "\n")
	if d := dateLength(text); d > 0 {
		return after(text[:len(text)-d], n)
	}
	return findName(line, n, true)
}

// dateLength is how many bytes at the end of s are a date with the white space
// before it: "2010-07-05 19:41:17.62 -0500" and shorter forms. 0 if none.
func dateLength(s string) int {
	end := len(s)
	if end == 0 || !isDigit(s[end-1]) {
		return 0
	}
	if n := tail(s[:end], "_+dddd"); n > 0 {
		end -= n
	} else if n := tail(s[:end], "_+dd:dd"); n > 0 {
		end -= n
	}
	if n := tail(s[:end], "_dd:dd:dd"); n > 0 {
		end -= n
	} else if n := fraction(s[:end]); n > 0 {
		end -= n
	}
	if n := tail(s[:end], "dddd-dd-dd"); n > 0 {
		end -= n
	} else if n := tail(s[:end], "dd-dd-dd"); n > 0 {
		end -= n
	} else {
		return 0
	}
	switch {
	case end == 0:
		return 0
	case s[end-1] == '\t':
		end--
	case s[end-1] == ' ':
		for end > 0 && s[end-1] == ' ' {
			end--
		}
	default:
		return 0
	}
	return len(s) - end
}

// fraction is the length of a time of day with a fraction of a second.
func fraction(s string) int {
	digits := strings.TrimRight(s, "0123456789")
	if len(digits) == len(s) || !strings.HasSuffix(digits, ".") {
		return 0
	}
	if n := tail(digits[:len(digits)-1], "_dd:dd:dd"); n > 0 {
		return n + len(s) - len(digits) + 1
	}
	return 0
}

// tail is the length of form if s ends in it: d is a digit, + a sign, _ a
// space, anything else itself.
func tail(s, form string) int {
	if len(s) < len(form) {
		return 0
	}
	s = s[len(s)-len(form):]
	for i := range len(form) {
		ok := s[i] == form[i]
		switch form[i] {
		case 'd':
			ok = isDigit(s[i])
		case '+':
			ok = s[i] == '+' || s[i] == '-'
		case '_':
			ok = s[i] == ' '
		}
		if !ok {
			return 0
		}
	}
	return len(form)
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

// isEpoch tells whether the date of a header line is the beginning of 1970 in
// some time zone, which is how some tools say that there is no file.
func isEpoch(line string) bool {
	line = strings.TrimSuffix(line, "\n")
	tab := strings.LastIndexByte(line, '\t')
	if tab < 0 {
		return false
	}
	s := line[tab+1:]
	start := 0
	if rest, ok := strings.CutPrefix(s, "1970-01-01 "); ok {
		s = rest
	} else if rest, ok := strings.CutPrefix(s, "1969-12-31 "); ok {
		s, start = rest, 24*60
	} else {
		return false
	}
	if len(s) < len("00:00:00") || tail(s[:8], "dd:dd:dd") == 0 || s[0] > '2' || s[3] > '5' || s[6:8] != "00" {
		return false
	}
	minutes := two(s)*60 + two(s[3:])
	s = s[8:]
	if strings.HasPrefix(s, ".") {
		s = s[1:]
		zeros := len(s) - len(strings.TrimLeft(s, "0"))
		if zeros == 0 {
			return false
		}
		s = s[zeros:]
	}
	if n := tail(s, "_+dddd"); n == 0 || n != len(s) {
		if n = tail(s, "_+dd:dd"); n == 0 || n != len(s) {
			return false
		}
	}
	zone := two(s[2:])*60 + two(s[len(s)-2:])
	if s[1] == '-' {
		zone = -zone
	}
	return minutes-zone == start
}

func two(s string) int { return int(s[0]-'0')*10 + int(s[1]-'0') }
