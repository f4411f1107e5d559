package egress

import (
	"fmt"
	"net"
	"os"
	"slices"
)

// Gate is a proxy that knows its rules and serves nobody yet. It is for one launch.
type Gate struct {
	rules []Rule
	proxy *Proxy // nil before Serve
}

// Open reads rules, each as ParseRule does.
func Open(rules []string) (*Gate, error) {
	g := &Gate{}
	for _, s := range rules {
		r, err := ParseRule(s)
		if err != nil {
			return nil, fmt.Errorf("destination %.200q: %w", s, err)
		}
		g.rules = append(g.rules, r)
	}
	return g, nil
}

// Serve begins to serve the listening socket l, which it closes. It is called once, and
// the other methods after it.
func (g *Gate) Serve(l *os.File) error {
	defer l.Close()
	listener, err := net.FileListener(l)
	if err == nil {
		g.proxy = Serve(listener, g.rules)
	}
	return err
}

// Let lets through what list says from now on, and ends what was let through before. The error is
// that of a list with something in it that the gate was not opened with; then nothing is let through.
func (g *Gate) Let(list []string) error {
	part, err := Open(list)
	if err == nil {
		for _, r := range part.rules {
			if !slices.Contains(g.rules, r) {
				err = fmt.Errorf("reach %s: this launch was made without it", r)
			}
		}
	}
	if err != nil {
		g.proxy.Let(nil)
		return err
	}
	g.proxy.Let(part.rules)
	return nil
}

// Close ends what is open and waits for it.
func (g *Gate) Close() { g.proxy.Close() }

// Take says what was asked for since it was called last, and what came of it.
func (g *Gate) Take() []string { return g.proxy.Take() }
