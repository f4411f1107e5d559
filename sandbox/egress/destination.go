package egress

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
)

// Destination is where a program says that it wants to connect: less exact than a Rule,
// because it grants nothing. It only narrows a list of rules.
type Destination struct {
	Host  string // as in a Rule
	Port  int    // 0: any
	Proto string // "": any
}

// NewDestination takes a destination in parts; port 0 and an empty protocol stand for any.
func NewDestination(host string, port int, proto string) (Destination, error) {
	d := Destination{Host: normal(host), Port: port, Proto: proto}
	switch {
	case d.Host == "":
		return d, fmt.Errorf("%.100q is no name of a host", host)
	case port < 0 || port > 65535:
		return d, fmt.Errorf("%d is no port", port)
	case proto != "" && proto != HTTPS && proto != HTTP && proto != TCP:
		return d, fmt.Errorf("protocol %.20q, must be https, http or tcp", proto)
	}
	return d, nil
}

// ParseDestination reads host, host:port, or one of these behind https://, http:// or
// tcp://. A URL of the former two without a port has that of its protocol, and may end in
// one slash. A path, a user and a wildcard are not known.
func ParseDestination(s string) (Destination, error) {
	proto, rest, ok := strings.Cut(s, "://")
	if !ok {
		proto, rest = "", s
	} else if proto == "" {
		return Destination{}, errors.New("no protocol before ://")
	} else if proto == HTTPS || proto == HTTP {
		rest = strings.TrimSuffix(rest, "/")
	}
	port := map[string]int{HTTPS: 443, HTTP: 80}[proto]
	host := rest
	if h, p, err := net.SplitHostPort(rest); err == nil {
		if port, err = strconv.Atoi(p); err != nil || port < 1 || p != strconv.Itoa(port) {
			return Destination{}, fmt.Errorf("%.20q is no port", p)
		}
		host = h
	} else if h, ok := strings.CutPrefix(rest, "["); ok && strings.HasSuffix(h, "]") {
		host = strings.TrimSuffix(h, "]")
	}
	return NewDestination(host, port, proto)
}

// Covers tells whether a rule lets through nothing but what the destination is about.
func (d Destination) Covers(r Rule) bool {
	return d.Host == r.Host && (d.Port == 0 || d.Port == r.Port) && (d.Proto == "" || d.Proto == r.Proto)
}
