package provider_test

import (
	"context"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/aspengine/asp/internal/canon"
	"github.com/aspengine/asp/provider"
	"github.com/aspengine/asp/provider/providertest"
	"github.com/aspengine/asp/seam/wire"
)

// A provider that needs the network says so in its manifest and its handshake, and is told
// what it gets; one that needs none asks for none.
func TestNetworkIsAskedFor(t *testing.T) {
	for _, list := range [][]string{nil, {"a.example", "https://b.example:8443", "tcp://[2606:4700::1111]:53"}} {
		p := toy()
		p.Network = list
		got := []string{"not asked"}
		p.Check.Run = func(_ context.Context, h *provider.Host, _ *provider.CheckRequest) (*provider.Report, error) {
			got = h.Grant().Network
			return &provider.Report{}, nil
		}
		raw, err := p.Manifest(os.Args[0], nil)
		if err != nil {
			t.Fatal(err)
		}
		v, err := canon.Parse(raw, canon.Limits{})
		if err != nil {
			t.Fatal(err)
		}
		access, _ := v.Get("accessExpectations")
		network, _ := access.Get("network")
		want, asks := `{"allowlist":[],"outbound":false}`, "false"
		if list != nil {
			want, asks = `{"allowlist":["a.example","https://b.example:8443","tcp://[2606:4700::1111]:53"],"outbound":true}`,
				`true [{"host":"a.example"},{"host":"b.example","port":8443,"proto":"https"},{"host":"2606:4700::1111","port":53,"proto":"tcp"}]`
		}
		if string(network.Bytes()) != want {
			t.Errorf("the manifest expects %s", network.Bytes())
		}
		h := providertest.Start(t, p, map[string]string{"a": "1\n"})
		h.Grant.Network = list[min(len(list), 1):] // host, port and protocol of each
		r := h.Handshake().RequestedPermissions
		said := "false"
		if *r.Network {
			said = "true " + string(h.Value(r.NetworkAllowlist).Bytes())
		}
		if said != asks {
			t.Errorf("the handshake asks %s", said)
		}
		h.Check(h.Changeset(map[string]string{"a": "2\n"}), wire.CompareIntroduced, "changeset", "")
		if !slices.Equal(got, h.Grant.Network) {
			t.Errorf("it is told %q of %q", got, h.Grant.Network)
		}
	}
	for _, bad := range []string{"", "*", "ftp://a.example", "https://a.example/v1", "a.example:0", "a.example:99999", "user@a.example"} {
		p := toy()
		p.Network = []string{bad}
		if err := p.Validate(); err == nil || !strings.Contains(err.Error(), "toy") {
			t.Errorf("%q: %v", bad, err)
		}
	}
}
