// Package bundled lists the providers that come with the program. They are
// enrolled, launched and judged like any other: no part of a host knows them.
package bundled

import (
	"github.com/aspengine/asp/provider"
	"github.com/aspengine/asp/provider/bundled/gofix"
	"github.com/aspengine/asp/provider/bundled/replace"
	"github.com/aspengine/asp/provider/bundled/secrets"
	"github.com/aspengine/asp/provider/bundled/syntax"
)

// Entry is one bundled provider.
type Entry struct {
	Provider *provider.Provider
	Short    string   // what it does, for a list
	Tools    []string // absolute paths of other programs that it runs
	Args     []string // arguments that name them
}

// List describes all of them, as one version. tools are where gofix finds other
// programs; the zero Tools leaves it without any.
func List(version string, tools gofix.Tools) []Entry {
	list := []Entry{
		{Provider: syntax.New(version), Short: "check: do files parse (Go, JSON, YAML, TOML, XML, front matter); conflict marks"},
		{Provider: secrets.New(version), Short: "check: keys and tokens in text"},
		{Provider: replace.New(version), Short: "edit: text-edit, multi-edit, replace-resource, move"},
		{Provider: gofix.New(version, tools), Short: "edit, inspect: Go by gopls: rename, organize-imports, references", Tools: tools.Paths(), Args: tools.Args()},
	}
	for _, e := range list {
		p := e.Provider
		p.Publisher, p.Source, p.License = "asp", "https://github.com/aspengine/asp", "Apache-2.0"
		if p.Check != nil {
			p.Profiles = append(p.Profiles, "core-check-provider")
		}
		if p.Edit != nil {
			p.Profiles = append(p.Profiles, "core-edit-provider")
		}
		if p.Inspect != nil {
			p.Profiles = append(p.Profiles, "core-inspect-provider")
		}
	}
	return list
}
