package egress

import (
	"bufio"
	"errors"
	"net"
	"strconv"
	"strings"
	"syscall"
)

// syscallTemporary is what Accept may fail with and go on: a connection that was given
// up before it was taken.
const syscallTemporary = syscall.ECONNABORTED

// head is the head of a request to a proxy. Only what decides is read; package net/http
// was rejected because it is lenient where being of one mind with the server counts.
type head struct {
	method, target, version string
	lines                   []string // header lines, without their ends
}

var errHead = errors.New("the head of the request is malformed or too long")

func readHead(r *bufio.Reader) (head, error) {
	line := func() (string, error) {
		s, err := r.ReadString('\n')
		if err != nil || !strings.HasSuffix(s, "\r\n") || len(s) > 16<<10 {
			return "", errHead
		}
		s = s[:len(s)-2]
		for i := range len(s) {
			if s[i] < ' ' && s[i] != '\t' || s[i] == 0x7f {
				return "", errHead
			}
		}
		return s, nil
	}
	first, err := line()
	if err != nil {
		return head{}, err
	}
	f := strings.Split(first, " ")
	if len(f) != 3 || f[0] == "" || f[1] == "" || f[2] != "HTTP/1.1" && f[2] != "HTTP/1.0" {
		return head{}, errHead
	}
	h := head{method: f[0], target: f[1], version: f[2]}
	for {
		s, err := line()
		if err != nil {
			return h, err
		}
		if s == "" {
			return h, nil
		}
		name, _, ok := strings.Cut(s, ":")
		if !ok || name == "" || strings.ContainsAny(name, " \t") || len(h.lines) > 200 {
			return h, errHead // also a folded line
		}
		h.lines = append(h.lines, s)
	}
}

// rule is what is asked for, with what is to be sent first.
func (h head) rule() (r Rule, first string, err error) {
	if h.method == "CONNECT" {
		r.Proto = HTTPS
		r.Host, r.Port, err = hostPort(h.target, 0)
		return r, "", err
	}
	rest, ok := strings.CutPrefix(h.target, "http://")
	if !ok {
		return r, "", errors.New("this is a proxy: CONNECT, or a whole http URL")
	}
	at, path := rest, "/"
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		at, path = rest[:i], rest[i:]
	}
	if path[0] != '/' {
		path = "/" + path
	}
	r.Proto = HTTP
	if r.Host, r.Port, err = hostPort(at, 80); err != nil {
		return r, "", err
	}
	// One request a connection: the next one would have to be judged again. The host is
	// the one that was judged, whatever the header said.
	name := r.Host
	if strings.Contains(name, ":") {
		name = "[" + name + "]"
	}
	if r.Port != 80 {
		name = net.JoinHostPort(r.Host, strconv.Itoa(r.Port))
	}
	var b strings.Builder
	b.WriteString(h.method + " " + path + " HTTP/1.1\r\nHost: " + name + "\r\nConnection: close\r\n")
	lengths := 0
	for _, l := range h.lines {
		key, _, _ := strings.Cut(l, ":")
		switch strings.ToLower(key) {
		case "host", "connection", "keep-alive", "proxy-connection", "proxy-authorization", "te", "upgrade":
			continue
		case "content-length", "transfer-encoding":
			lengths++
		}
		b.WriteString(l + "\r\n")
	}
	if lengths > 1 {
		return r, "", errors.New("the length of the request is said twice")
	}
	return r, b.String() + "\r\n", nil
}

func hostPort(s string, def int) (string, int, error) {
	host, port := s, strconv.Itoa(def)
	if h, p, err := net.SplitHostPort(s); err == nil {
		host, port = h, p
	} else if def == 0 {
		return "", 0, errors.New("no host and port")
	} else {
		host = strings.TrimSuffix(strings.TrimPrefix(s, "["), "]")
	}
	n, err := strconv.Atoi(port)
	if err != nil || n < 1 || n > 65535 {
		return "", 0, errors.New("no port")
	}
	if host = normal(host); host == "" {
		return "", 0, errors.New("no name of a host")
	}
	return host, n, nil
}
