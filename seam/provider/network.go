package provider

import (
	"errors"
	"slices"

	"github.com/aspengine/asp/sandbox"
	"github.com/aspengine/asp/sandbox/egress"
	"github.com/aspengine/asp/seam/manifest"
	"github.com/aspengine/asp/seam/wire"
)

// Some of the network is granted to a provider in three steps, each of which only narrows:
// the trusted configuration lists destinations, the manifest expects some of them, and
// the handshake asks for some of those. The launch is made for what is left after the first
// two. It is let through while a request is open and at no other time, as callbacks
// are: so all that a provider ever reached stands in the record of a request. Rejected: for
// as long as it lives, because of what it reaches between two requests, or after its last
// answer, no receipt would tell.

// reach is what m may be launched for, sorted; nil for nothing.
func (p *Pool) reach(m manifest.Manifest) []string {
	if p.o.Network == nil || !m.Network {
		return nil
	}
	return m.Reach(p.o.Network(m.ID)).Granted
}

// requested narrows what a launch was made for to what the handshake asks. One that says
// nothing of the network, or wants it and names no destination, means what its
// manifest says; one that wants none gets none.
func requested(reach []string, p *wire.Permissions) ([]string, error) {
	if len(reach) == 0 || p == nil || p.Network == nil && p.NetworkAllowlist == nil {
		return reach, nil
	}
	if p.Network != nil && !*p.Network {
		return nil, nil
	}
	if p.NetworkAllowlist == nil {
		return reach, nil
	}
	var asked []egress.Destination
	for _, a := range p.NetworkAllowlist {
		port := 0
		if a.Port != nil {
			if port = *a.Port; port == 0 {
				return nil, errors.New("0 is no port")
			}
		}
		d, err := egress.NewDestination(a.Host, port, a.Proto)
		if err != nil {
			return nil, err
		}
		asked = append(asked, d)
	}
	var out []string
	for _, s := range reach {
		r, err := egress.ParseRule(s)
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc(asked, func(d egress.Destination) bool { return d.Covers(r) }) {
			out = append(out, s)
		}
	}
	return out, nil
}

// networkGrant is what is let through as it is sent, in both versions of the protocol:
// false without a list, or true with one that names host, port and protocol of each.
func networkGrant(reach []string) (bool, []wire.NetworkAccess) {
	var out []wire.NetworkAccess
	for _, s := range reach {
		if r, err := egress.ParseRule(s); err == nil { // it was made of one
			out = append(out, wire.NetworkAccess{Host: r.Host, Port: &r.Port, Proto: r.Proto})
		}
	}
	return len(out) > 0, out
}

// maxAsked bounds what is told of one turn, in which a provider may be asked several times.
const maxAsked = 500

// withhold ends what the request let through, and keeps what was asked for in its time and,
// in vain, before it.
func (s *session) withhold() {
	said := s.proc.sandbox.Withhold()
	e := s.entry
	e.asked = append(e.asked, said[:min(len(said), maxAsked-len(e.asked))]...)
}

// gateway is the one of every provider, for sandbox.Spec.
func gateway(destinations []string) (sandbox.Gateway, error) { return egress.Open(destinations) }
