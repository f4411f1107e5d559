package main

import (
	"context"
	"fmt"

	"github.com/aspengine/asp/seam/schema"
	"github.com/spf13/pflag"
)

func schemaCommand() *command {
	return &command{
		name: "schema", looks: true, args: "[NAME]", noPlace: true, short: "print the JSON Schemas of messages and files",
		long: `
Without a name it lists the schemas: one for every message of both seams, for the
files that cross them, for .asp/asp.json (policy) and for config.json (config). Each
is complete in itself (draft 2020-12). asp refuses more than a schema can say: doubled
keys, integers written 1.0, host-owned members.

examples:
  asp schema
  asp schema edit-plan > edit-plan.schema.json
  asp schema policy > asp.schema.json          for an editor, by "$schema" in the file`,
		run: runSchema,
	}
}

func runSchema(_ context.Context, e *env, fs *pflag.FlagSet) error {
	if fs.NArg() == 0 {
		for _, n := range schema.Names() {
			fmt.Fprintf(e.stdout, "%-28s %s\n", n, schema.Title(n))
		}
		return nil
	}
	name, err := oneArg(fs, "name")
	if err != nil {
		return err
	}
	s, ok := schema.Of(name)
	if !ok {
		return usagef("no schema %.60q; `asp schema` lists them", name)
	}
	fmt.Fprintf(e.stdout, "%s\n", s.AppendIndented(nil))
	return nil
}
