package provider

import (
	"fmt"
	"net"
	"strconv"
	"strings"

	"github.com/aspengine/asp/seam/wire"
)

// access is a destination of Provider.Network as a message has it.
func access(s string) (wire.NetworkAccess, error) {
	var a wire.NetworkAccess
	proto, rest, ok := strings.Cut(s, "://")
	if !ok {
		proto, rest = "", s
	}
	if a.Proto, a.Host = proto, rest; ok && proto != "https" && proto != "http" && proto != "tcp" {
		return a, fmt.Errorf("destination %.100q: protocol %.20q, must be https, http or tcp", s, proto)
	}
	if host, port, err := net.SplitHostPort(rest); err == nil {
		n, err := strconv.ParseUint(port, 10, 16)
		if err != nil || n == 0 {
			return a, fmt.Errorf("destination %.100q: %.20q is no port", s, port)
		}
		number := int(n)
		a.Host, a.Port = host, &number
	} else if host, ok := strings.CutPrefix(rest, "["); ok {
		a.Host = strings.TrimSuffix(host, "]")
	}
	if a.Host == "" || strings.ContainsAny(a.Host, "/*@ ") {
		return a, fmt.Errorf("destination %.100q: %.100q is no name of a host", s, a.Host)
	}
	return a, nil
}

// requests is what the handshake asks to reach; Validate saw that it can be said.
func (p *Provider) requests() (bool, []wire.NetworkAccess) {
	var out []wire.NetworkAccess
	for _, s := range p.Network {
		if a, err := access(s); err == nil {
			out = append(out, a)
		}
	}
	return len(out) > 0, out
}

// destinations are the places of a grant, spelt as Provider.Network spells them.
func destinations(p wire.Permissions) []string {
	if p.Network == nil || !*p.Network {
		return nil
	}
	var out []string
	for _, a := range p.NetworkAllowlist {
		s := a.Host
		if a.Port != nil {
			s = net.JoinHostPort(s, strconv.Itoa(*a.Port))
		}
		if a.Proto != "" {
			s = a.Proto + "://" + s
		}
		out = append(out, s)
	}
	return out
}
