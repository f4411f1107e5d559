package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/aspengine/asp/provider/bundled"
	"github.com/aspengine/asp/provider/bundled/gofix"
	"github.com/spf13/pflag"
)

func providerCommand() *command {
	return &command{
		name: "provider", short: "be a bundled provider on stdin and stdout",
		args: "[NAME] [--print-manifest]", noPlace: true,
		long: `
Without a name: lists the bundled providers. With one: serves the inner seam on
stdin and stdout until exit or the end of input, as a host starts it. Bundled
providers are enrolled like any other.

--print-manifest prints an asp-server.json for this very binary: absolute path,
arguments, and the checksums of everything that will run. A binary that is built
again needs a new one.

gofix runs gopls and go. They are looked for on PATH when the manifest is printed,
or named by flags, and are in it by path and checksum; a provider that runs
searches no path.

examples:
  asp provider syntax --print-manifest > /tmp/asp-server.json
  asp server add --manifest /tmp/asp-server.json
  asp repo enable syntax --repo . --mode advisory`,
		flags: func(fs *pflag.FlagSet) {
			fs.Bool("print-manifest", false, "print a manifest that can be enrolled, and end")
			fs.String("gopls", "", "for gofix: the absolute path of gopls")
			fs.String("go", "", "for gofix: the absolute path of go")
		},
		run: runProvider,
	}
}

func runProvider(ctx context.Context, e *env, fs *pflag.FlagSet) error {
	tools := gofix.Tools{ModCache: e.getenv("GOMODCACHE")}
	tools.Gopls, _ = fs.GetString("gopls")
	tools.Go, _ = fs.GetString("go")
	for _, t := range tools.Paths() {
		if !filepath.IsAbs(t) {
			return usagef("%.200q is no absolute path", t)
		}
	}
	manifest, _ := fs.GetBool("print-manifest")
	var missing []string
	if manifest {
		missing, tools = tools.Missing(e.getenv("PATH")), tools.Find(e.getenv("PATH"))
	}
	list := bundled.List(Version, tools)
	switch fs.NArg() {
	case 0:
		if manifest {
			return usagef("--print-manifest needs the name of a provider; `asp provider` lists them")
		}
		for _, b := range list {
			fmt.Fprintf(e.stdout, "%-10s %s\n", b.Provider.ID, b.Short)
		}
		return nil
	case 1:
	default:
		return usagef("one provider at a time")
	}
	for _, b := range list {
		p := b.Provider
		if p.ID != fs.Arg(0) {
			continue
		}
		if manifest {
			return printManifest(e, b, missing)
		}
		p.Log = e.stderr
		return p.Serve(ctx, e.stdin, e.stdout)
	}
	return usagef("no bundled provider %.60q; `asp provider` lists them", fs.Arg(0))
}

func printManifest(e *env, b bundled.Entry, missing []string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	// The link that the program may have been started by can be turned to another
	// build; what is hashed and started is the file.
	if self, err = filepath.EvalSymlinks(self); err != nil {
		return err
	}
	m, err := b.Provider.Manifest(self, append([]string{"provider", b.Provider.ID}, b.Args...), b.Tools...)
	if err != nil {
		return err
	}
	if b.Provider.ID == "gofix" && len(missing) > 0 {
		e.ui.errorf("%s not found on PATH and not named by a flag: this provider will answer everything as unsupported", strings.Join(missing, " and "))
	}
	_, err = e.stdout.Write(m)
	return err
}
