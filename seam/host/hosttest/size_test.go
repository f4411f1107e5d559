package hosttest

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
)

// peak is the largest resident size of a process so far, in MiB.
func peak(t *testing.T, pid int) int {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	must(t, err)
	for l := range strings.Lines(string(b)) {
		var kb int
		if n, _ := fmt.Sscanf(l, "VmHWM: %d kB", &kb); n == 1 {
			return kb >> 10
		}
	}
	t.Skip("the kernel does not tell the peak")
	return 0
}

const messageLimit = 16 << 20

// TestRP02LargeMessages: content of every size up to the limit arrives byte for byte;
// over it the limit is named, and the session goes on.
func TestRP02LargeMessages(t *testing.T) {
	w := newWorld(t, "", map[string]string{"a": "a\n"})
	c := w.stdio()
	text := func(n int) string { return strings.Repeat("é\n", n/3+1)[:n/3*3] }
	for i, size := range []int{65535, 65536, 65537, 1 << 20, 8 << 20} {
		content := text(size) + strings.Repeat("x", size%3)
		// As text, not as base64: é and newlines go through JSON.
		var line bytes.Buffer
		fmt.Fprintf(&line, `{"jsonrpc":"2.0","id":"put","method":"workspace/putBlob","params":{"blobs":[{"encoding":"utf-8","bytes":"%s"}]}}`, strings.ReplaceAll(content, "\n", `\n`))
		c.line(line.Bytes())
		if a := c.next(); a.err != nil || !strings.Contains(string(a.raw), digest(content)) {
			t.Fatalf("%d bytes: %.300s", size, a.raw)
		}
		name := fmt.Sprintf("f%d", i)
		a := c.good("host/applyProposal", applyParams(proposal(name, c.baseline(), create(name, content))))
		if a.result["applied"] != true {
			t.Fatalf("%d bytes: %.500s", size, a.raw)
		}
		if got := w.read(name); got != content {
			t.Errorf("%d bytes: the file differs", size)
		}
	}
	before := w.everything()
	// A request of exactly the limit is one; one byte more is none.
	pad := func(n int) []byte {
		head, tail := `{"jsonrpc":"2.0","id":"pad","method":"host/status","params":{"callSite":"gate"`, `}}`
		return []byte(head + strings.Repeat(" ", n-len(head)-len(tail)) + tail)
	}
	c.line(pad(messageLimit))
	if a := c.next(); a.err != nil || a.id != "pad" {
		t.Errorf("a line of the limit: %.300s", a.raw)
	}
	for _, n := range []int{messageLimit + 1, 3 * messageLimit} {
		c.line(pad(n))
		if a := c.next(); a.code() != -32700 || a.id != nil || !strings.Contains(string(a.raw), fmt.Sprint(messageLimit)) {
			t.Errorf("a line of %d bytes: %.300s", n, a.raw)
		}
	}
	c.good("host/status", obj{})
	// A line that never ends costs no memory, and the session ends with the input.
	junk := bytes.Repeat([]byte("x"), 1<<20)
	for range 100 {
		if _, err := c.out.Write(junk); err != nil {
			t.Fatal(err)
		}
	}
	if mib := peak(t, c.cmd.Process.Pid); mib > 200 {
		t.Errorf("the host took %d MiB", mib)
	}
	must(t, c.stdin.Close())
	if a := c.next(); a.code() != -32700 {
		t.Errorf("an endless line: %.300s", a.raw)
	}
	if code := c.status(); code != 0 {
		t.Errorf("exit status %d", code)
	}
	if w.everything() != before {
		t.Error("a message over the limit changed the workspace")
	}
}

// TestManyLargeMessages: a harness that sends faster than it reads is held back.
func TestManyLargeMessages(t *testing.T) {
	w := newWorld(t, "", map[string]string{"a": "a\n"})
	c := w.stdio()
	const n = 24
	line := func(i int) []byte {
		return fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%d,"method":"workspace/putBlob","params":{"blobs":[{"encoding":"utf-8","bytes":"%d%s"}]}}`, i, i, strings.Repeat("x", 15<<20))
	}
	sent := make(chan error)
	go func() {
		for i := range n {
			if _, err := c.out.Write(append(line(i), '\n')); err != nil {
				sent <- err
				return
			}
		}
		sent <- nil
	}()
	full := 0
	for range n {
		if a := c.next(); a.code() == -32012 {
			full++
		} else if a.err != nil {
			t.Errorf("%.300s", a.raw)
		}
	}
	must(t, <-sent)
	if full == 0 || full == n {
		t.Errorf("%d of %d were over the limit of the session", full, n)
	}
	if mib := peak(t, c.cmd.Process.Pid); mib > 300 {
		t.Errorf("the host took %d MiB", mib)
	}
	if code := c.exit(); code != 0 {
		t.Errorf("exit status %d", code)
	}
}

// TestLimitIsConfigured: limits.messageBytes holds for the outer seam.
func TestLimitIsConfigured(t *testing.T) {
	const small = 9 << 20
	w := newWorld(t, fmt.Sprintf(`{"limits":{"messageBytes":%d}}`, small), nil)
	c := w.stdio()
	c.line(bytes.Repeat([]byte(" "), small+1))
	if a := c.next(); a.code() != -32700 || !strings.Contains(string(a.raw), fmt.Sprint(small)) {
		t.Errorf("%.300s", a.raw)
	}
	if code := c.exit(); code != 0 {
		t.Errorf("exit status %d", code)
	}
}

// TestSlowReader: a harness that does not read is waited for, not for ever, and the
// host stays with the others.
func TestOneHarnessDoesNotHoldAnother(t *testing.T) {
	w := newWorld(t, "", map[string]string{"a": "a\n"})
	s := w.serve()
	deaf := s.dial()
	defer deaf.close()
	for range 200 {
		deaf.start("host/status", obj{})
	}
	c := s.dial()
	defer c.close()
	c.good("host/status", obj{})
	rude, err := os.Open("/dev/zero")
	must(t, err)
	defer rude.Close()
	noise := s.dial()
	_, _ = io.CopyN(noise.out, rude, 1<<20)
	noise.close()
	c.good("host/status", obj{})
}
