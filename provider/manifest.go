package provider

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/aspengine/asp/internal/canon"
)

// Manifest makes an asp-server.json that a host can enrol: what is started (an
// absolute executable and its arguments, never a shell line), who published it,
// and the SHA-256 of the executable and of every further file that it runs or
// reads as code. The fingerprint is over the canonical list of these checksums.
// A program that is built again needs a new manifest.
func (p *Provider) Manifest(executable string, args []string, files ...string) ([]byte, error) {
	if err := p.Validate(); err != nil {
		return nil, err
	}
	var sums []canon.Value
	for _, name := range append([]string{executable}, files...) {
		if !filepath.IsAbs(name) {
			return nil, fmt.Errorf("make manifest: %.200q is no absolute path", name)
		}
		sum, err := sumFile(name)
		if err != nil {
			return nil, fmt.Errorf("make manifest: %w", err)
		}
		sums = append(sums, canon.ObjectOf(member("path", canon.StringOf(name)), member("sha256", canon.StringOf(sum))))
	}
	list := canon.ArrayOf(sums...)
	str, strs := canon.StringOf, func(s []string) canon.Value {
		items := make([]canon.Value, len(s))
		for i := range s {
			items[i] = canon.StringOf(s[i])
		}
		return canon.ArrayOf(items...)
	}
	families := make([]string, 0, 3)
	for _, f := range p.families() {
		families = append(families, string(f))
	}
	or := func(s, otherwise string) canon.Value {
		if s == "" {
			s = otherwise
		}
		return str(s)
	}
	m := canon.ObjectOf(
		member("manifestVersion", str("asp-server/1.0")),
		member("server", canon.ObjectOf(member("id", str(p.ID)), member("name", str(p.name())), member("version", str(p.Version)))),
		member("protocolVersions", strs([]string{Protocol})),
		member("capabilities", strs(families)),
		member("capabilityProfiles", strs(p.Profiles)),
		member("entrypoint", canon.ObjectOf(member("transport", str("stdio")), member("bin", str(executable)), member("args", strs(args)))),
		member("artifact", canon.ObjectOf(member("fingerprint", str(canon.DigestText(list))), member("checksums", list))),
		member("provenance", canon.ObjectOf(member("publisher", or(p.Publisher, "unpublished")), member("source", or(p.Source, "unpublished")),
			member("license", or(p.License, "NOASSERTION")))),
		member("accessExpectations", canon.ObjectOf(
			member("filesystem", canon.ObjectOf(member("read", strs([]string{"workspace:snapshot"})), member("write", strs(nil)))),
			member("network", canon.ObjectOf(member("outbound", canon.BoolOf(len(p.Network) > 0)), member("allowlist", strs(p.Network)))),
			member("secrets", canon.ObjectOf(member("names", strs(nil)))),
			member("environment", canon.ObjectOf(member("inherit", canon.BoolOf(false)), member("variables", strs(p.Environment)))),
			member("dataClasses", strs([]string{"source-code"})))),
	)
	return append(m.AppendIndented(nil), '\n'), nil
}

// Main is all that main of a program has to do that is a provider and nothing
// else: it serves stdin and stdout, or with the one argument --print-manifest
// prints the manifest of the program. The result is the exit status: 0 after exit
// or the end of stdin, 2 for other arguments, 3 for what went wrong, which is
// said on stderr.
func Main(p *Provider) int {
	fail := func(err error, status int) int {
		fmt.Fprintf(os.Stderr, "%s: %v\n", filepath.Base(os.Args[0]), err)
		return status
	}
	switch {
	case len(os.Args) == 2 && os.Args[1] == "--print-manifest":
		name, err := os.Executable()
		if err != nil {
			return fail(err, 3)
		}
		b, err := p.Manifest(name, nil)
		if err != nil {
			return fail(err, 3)
		}
		if _, err := os.Stdout.Write(b); err != nil {
			return fail(err, 3)
		}
		return 0
	case len(os.Args) > 1:
		return fail(fmt.Errorf("the one argument is --print-manifest; without it this is a provider on stdin and stdout"), 2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	defer stop()
	if p.Log == nil {
		c := *p
		c.Log = os.Stderr
		p = &c
	}
	if err := p.Serve(ctx, os.Stdin, os.Stdout); err != nil {
		return fail(err, 3)
	}
	return 0
}
