package sandbox_test

import (
	"context"
	"testing"

	"github.com/aspengine/asp/sandbox"
)

func TestSmoke(t *testing.T) {
	d := t.TempDir()
	caps := sandbox.Probe(context.Background(), sandbox.ProbeDirs{Lower: d, Scratch: d})
	for _, r := range caps.Rows() {
		t.Log(r.Name, r.Cap)
	}
	res, err := sandbox.Run(context.Background(), caps, sandbox.Spec{
		Argv: []string{"sh", "-c", "id; ls -la /dev /proc/self/fd; mount | head -50; touch /x; cat /proc/self/status | grep -i cap; echo err >&2"}, Dir: "/", Require: sandbox.Advisory,
		Env:  map[string]string{"PATH": "/usr/bin:/bin"},
		Hide: []string{"/tmp", "/root"}, MergeOutput: true,
	})
	t.Logf("%+v %v\n%s", res, err, res.Stdout)
}
