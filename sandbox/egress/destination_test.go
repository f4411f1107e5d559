package egress

import "testing"

func TestDestination(t *testing.T) {
	for _, c := range []struct{ said, covers, not string }{
		{"a.example", "https://a.example:443", "https://b.example:443"},
		{"a.example", "tcp://a.example:22", "https://x.a.example:443"},
		{"A.Example.:443", "https://a.example:443", "https://a.example:8443"},
		{"a.example:5432", "tcp://a.example:5432", "tcp://a.example:5433"},
		{"https://a.example", "https://a.example:443", "https://a.example:8443"},
		{"https://a.example/", "https://a.example:443", "http://a.example:443"},
		{"https://a.example:8443/", "https://a.example:8443", "https://a.example:443"},
		{"http://a.example", "http://a.example:80", "https://a.example:443"},
		{"tcp://a.example", "tcp://a.example:22", "https://a.example:443"},
		{"[2606:4700::1111]:443", "https://[2606:4700::1111]:443", "https://8.8.8.8:443"},
		{"[2606:4700::1111]", "tcp://[2606:4700::1111]:53", "tcp://8.8.8.8:53"},
		{"8.8.8.8", "tcp://8.8.8.8:53", "tcp://8.8.4.4:53"},
	} {
		d, err := ParseDestination(c.said)
		if err != nil {
			t.Errorf("%s: %v", c.said, err)
			continue
		}
		yes, yerr := ParseRule(c.covers)
		no, nerr := ParseRule(c.not)
		if yerr != nil || nerr != nil || !d.Covers(yes) || d.Covers(no) {
			t.Errorf("%s: covers %s: %v, %s: %v (%v, %v)", c.said, yes, d.Covers(yes), no, d.Covers(no), yerr, nerr)
		}
	}
	for _, s := range []string{"", "*", "*.example", "://a.example", "ftp://a.example", "https://a.example/v1", "https://user@a.example", "a.example:0", "a.example:01", "a.example:99999", "a b", "tcp://a.example/", "a.example/"} {
		if d, err := ParseDestination(s); err == nil {
			t.Errorf("%q was taken as %v", s, d)
		}
	}
	for _, d := range []Destination{{"a.example", -1, ""}, {"a.example", 65536, ""}, {"a.example", 1, "udp"}, {"", 1, ""}} {
		if _, err := NewDestination(d.Host, d.Port, d.Proto); err == nil {
			t.Errorf("%v was taken", d)
		}
	}
}
