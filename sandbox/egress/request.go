package egress

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
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
	if len(f) != 3 || !token(f[0]) || f[1] == "" || f[2] != "HTTP/1.1" && f[2] != "HTTP/1.0" {
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
		if !ok || !token(name) || len(h.lines) > 200 {
			return h, errHead // also a folded line
		}
		h.lines = append(h.lines, s)
	}
}

// token tells whether s is what RFC 9110 takes as a method or the name of a field.
func token(s string) bool {
	for i := range len(s) {
		c := s[i]
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0) {
			return false
		}
	}
	return s != ""
}

// body is what follows the head of a plain request: so many bytes, or chunks.
type body struct {
	length  int64
	chunked bool
}

// of is the body in what follows the head. Chunks are put together anew, so that the server
// sees the ends that were seen here; what stands behind the last one is left out.
func (b body) of(r io.Reader) io.Reader {
	if !b.chunked {
		return io.LimitReader(r, b.length)
	}
	return &chunks{from: bufio.NewReaderSize(r, 4096)}
}

type chunks struct {
	from  *bufio.Reader
	left  uint64 // of the chunk that is being read
	ready bytes.Buffer
	ended bool
}

var errChunk = errors.New("the body of the request is malformed")

// Read gives an error, and not the end, for a body that is cut off or malformed: the server
// must not take a part for the whole.
func (c *chunks) Read(p []byte) (int, error) {
	if c.ready.Len() == 0 {
		if c.ended {
			return 0, io.EOF
		}
		if err := c.more(); err != nil {
			return 0, err
		}
	}
	return c.ready.Read(p)
}

// more reads a part of a chunk and makes a chunk of it.
func (c *chunks) more() error {
	if c.left == 0 {
		line, err := c.from.ReadSlice('\n')
		if err != nil || !bytes.HasSuffix(line, []byte("\r\n")) {
			return errChunk
		}
		size, _, _ := strings.Cut(string(line[:len(line)-2]), ";")
		if c.left, err = strconv.ParseUint(strings.TrimRight(size, " \t"), 16, 62); err != nil || size[0] == '+' {
			return errChunk
		}
		if c.left == 0 {
			c.ended = true
			c.ready.WriteString("0\r\n\r\n")
			return nil
		}
	}
	b := make([]byte, min(c.left, 16<<10))
	n, err := c.from.Read(b)
	if err != nil {
		return errChunk
	}
	fmt.Fprintf(&c.ready, "%x\r\n%s\r\n", n, b[:n])
	if c.left -= uint64(n); c.left == 0 {
		var end [2]byte
		if _, err := io.ReadFull(c.from, end[:]); err != nil || string(end[:]) != "\r\n" {
			return errChunk
		}
	}
	return nil
}

// rule is what is asked for, with what is to be sent first, and what after.
func (h head) rule() (r Rule, first string, body body, err error) {
	if h.method == "CONNECT" {
		r.Proto = HTTPS
		r.Host, r.Port, err = hostPort(h.target, 0)
		return r, "", body, err
	}
	rest, ok := strings.CutPrefix(h.target, "http://")
	if !ok {
		return r, "", body, errors.New("this is a proxy: CONNECT, or a whole http URL")
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
		return r, "", body, err
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
		key, value, _ := strings.Cut(l, ":")
		value = strings.Trim(value, " \t")
		switch strings.ToLower(key) {
		case "host", "connection", "keep-alive", "proxy-connection", "proxy-authorization", "te", "upgrade":
			continue
		case "trailer":
			continue // see body.of
		case "content-length":
			n, err := strconv.ParseUint(value, 10, 63)
			if err != nil || strings.HasPrefix(value, "+") {
				return r, "", body, errors.New("the length of the request is no number")
			}
			body.length = int64(n)
			lengths++
		case "transfer-encoding":
			if !strings.EqualFold(value, "chunked") || h.version != "HTTP/1.1" {
				return r, "", body, errors.New("the encoding of the request is not chunked")
			}
			body.chunked = true
			lengths++
		}
		b.WriteString(l + "\r\n")
	}
	if lengths > 1 {
		return r, "", body, errors.New("the length of the request is said twice")
	}
	return r, b.String() + "\r\n", body, nil
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
