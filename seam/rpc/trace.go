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

// text records a line that is no message: its start and what is wrong with it, or
// only its length where contents are to stay out, since both quote the line.
func (t *tracer) text(dir string, line []byte, problem string) {
	if t == nil {
		return
	}
	text, why := leftOut(len(line)), "no message"
	if t.contents {
		text, why = fmt.Sprintf("%+q", line[:min(len(line), 200)]), problem
	}
	t.write(dir, len(line), canon.Member{Key: "text", Value: canon.StringOf(text)}, canon.Member{Key: "problem", Value: canon.StringOf(why)})
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

// plain are the members whose strings name things: methods, paths, digests and the
// words of the protocol. Every other string may hold a piece of a file, a
// message about one included, so it is a list of what is shown and not of what is
// hidden.
var plain = map[string]bool{
	"jsonrpc": true, "id": true, "ids": true, "method": true, "name": true, "version": true, "code": true, "failClass": true,
	"path": true, "paths": true, "from": true, "to": true, "kind": true, "globs": true, "read": true, "scope": true, "root": true,
	"rev": true, "dirty": true, "stampedAt": true, "issuedAt": true, "blobs": true, "blobId": true, "before": true, "after": true,
	"expectedDigest": true, "rangeBasis": true, "fingerprint": true, "changesetDigest": true, "requestDigest": true, "policyDigest": true,
	"configDigest": true, "basePolicyDigest": true, "buildDigest": true, "artifactDigest": true, "integrity": true,
	"callSite": true, "intent": true, "operation": true, "proposalId": true, "receiptId": true, "comparison": true, "status": true,
	"state": true, "lifecycleState": true, "reason": true, "requirement": true, "decision": true, "disposition": true, "severity": true,
	"mode": true, "transactionGuarantee": true, "encoding": true, "provider": true, "providerIds": true, "source": true,
	"protocolVersion": true, "protocolVersions": true, "capabilityFamily": true, "capabilityFamilies": true, "capabilityVersion": true,
	"required": true, "enrolled": true, "ran": true, "diagnosticSources": true, "rules": true, "checks": true, "uri": true,
	"assuranceCapabilities": true, "capability": true, "role": true, "providerState": true, "legacyAliases": true,
}

// foreign are the members whose value has a shape of its own.
var foreign = map[string]bool{"args": true, "configuration": true, "data": true, "evidence": true, "edits": true, "newText": true, "value": true}

const maxPlain = 4096

func leftOut(n int) string { return fmt.Sprintf("(%d bytes left out)", n) }

// withoutContents returns a message with everything replaced by its length that
// could be a piece of a file.
func withoutContents(v canon.Value) canon.Value { return masked("", v) }

// masked is v, the value of the member key, or an element of it.
func masked(key string, v canon.Value) canon.Value {
	if foreign[key] && (v.Kind() == canon.Object || v.Kind() == canon.Array) {
		return canon.StringOf(leftOut(len(v.Bytes())))
	}
	switch v.Kind() {
	case canon.String:
		if n := len(v.Str()); !plain[key] || n > maxPlain {
			return canon.StringOf(leftOut(n))
		}
	case canon.Array:
		items := make([]canon.Value, 0, v.Len())
		for _, e := range v.Elements() {
			items = append(items, masked(key, e))
		}
		return canon.ArrayOf(items...)
	case canon.Object:
		members := make([]canon.Member, 0, v.Len())
		for k, e := range v.Members() {
			shown := k
			if len(k) > 64 { // no member of ours; two of one length are told apart by their place
				shown = fmt.Sprintf("%d: %s", len(members), leftOut(len(k)))
			}
			inner := k
			if key == "error" && k == "data" {
				inner = "" // the protocol's own: it holds failClass
			}
			members = append(members, canon.Member{Key: shown, Value: masked(inner, e)})
		}
		return canon.ObjectOf(members...)
	}
	return v
}
