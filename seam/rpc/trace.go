package rpc

import (
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/aspengine/asp/internal/canon"
)

// tracer writes the transcript. A nil one writes nothing.
type tracer struct {
	mu       sync.Mutex
	w        io.Writer // nil after an error
	name     string
	contents bool
}

func newTracer(o Options) *tracer {
	if o.Trace == nil {
		return nil
	}
	return &tracer{w: o.Trace, name: o.TraceName, contents: o.TraceContents}
}

// message records a message, dir being in or out.
func (t *tracer) message(dir string, size int, v canon.Value) {
	if t == nil {
		return
	}
	if !t.contents {
		v = withoutContents(v)
	}
	t.write(dir, size, canon.Member{Key: "message", Value: v})
}

// text records a line that is no message, its start quoted.
func (t *tracer) text(dir string, line []byte, problem string) {
	if t == nil {
		return
	}
	t.write(dir, len(line), canon.Member{Key: "text", Value: canon.StringOf(fmt.Sprintf("%+q", line[:min(len(line), 200)]))},
		canon.Member{Key: "problem", Value: canon.StringOf(problem)})
}

func (t *tracer) write(dir string, size int, what ...canon.Member) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.w == nil {
		return
	}
	m := append([]canon.Member{
		{Key: "t", Value: canon.StringOf(time.Now().UTC().Format(time.RFC3339Nano))},
		{Key: "conn", Value: canon.StringOf(t.name)},
		{Key: "dir", Value: canon.StringOf(dir)},
		{Key: "bytes", Value: canon.IntOf(int64(size))},
	}, what...)
	// A transcript that cannot be written must not disturb what it describes.
	if _, err := t.w.Write(append(canon.ObjectOf(m...).Append(nil), '\n')); err != nil {
		t.w = nil
	}
}

// withoutContents returns v with the bytes of every blob in it ({encoding,
// bytes}) replaced by their length.
func withoutContents(v canon.Value) canon.Value {
	switch v.Kind() {
	case canon.Array:
		items := make([]canon.Value, 0, v.Len())
		for _, e := range v.Elements() {
			items = append(items, withoutContents(e))
		}
		return canon.ArrayOf(items...)
	case canon.Object:
		_, isBlob := v.Get("encoding")
		members := make([]canon.Member, 0, v.Len())
		for k, e := range v.Members() {
			if isBlob && k == "bytes" && e.Kind() == canon.String {
				e = canon.StringOf(fmt.Sprintf("(%d bytes left out)", len(e.Str())))
			}
			members = append(members, canon.Member{Key: k, Value: withoutContents(e)})
		}
		return canon.ObjectOf(members...)
	}
	return v
}
