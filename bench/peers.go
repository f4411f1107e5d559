package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// peerFiles is how many files the rename touches that the peers compete in.
const peerFiles = 100

// peerRows has a name renamed in many files, by every tool that is here. All of
// them leave the same bytes, which is looked at each time. ast-grep and gopls
// find the places too, which the others are told; only asp checks what it
// displaces, keeps what it needs to go back, syncs, and leaves a receipt.
func (c *config) peerRows(ctx context.Context) error {
	r, ch, err := renameRepo(filepath.Join(c.mem, "peers"), peerFiles)
	if err != nil {
		return err
	}
	defer os.RemoveAll(filepath.Dir(r.dir))
	back := r.restore(ch)
	cs := []contender{
		{run: command(r.dir, r.env(), c.asp, "apply", "--patch", ch.patch), after: back},
		{run: command(r.dir, nil, "git", "apply", ch.patch), after: back},
	}
	names := []string{"asp", "git apply"}
	for _, p := range []struct {
		name string
		run  func(program string) func() error
	}{
		{"codex apply_patch", func(program string) func() error { return codex(r, ch, program) }},
		{"ast-grep", func(program string) func() error {
			return command(r.dir, nil, program, "scan", "--update-all", "--inline-rules",
				`{id: r, language: go, rule: {any: [{kind: identifier, regex: "^Old$"}, {kind: field_identifier, regex: "^Old$"}]}, fix: Fresh}`, ".")
		}},
		{"gopls", func(program string) func() error {
			return command(r.dir, []string{"GOFLAGS=-mod=mod", "GOWORK=off", "GOPROXY=off"}, program, "rename", "-w", "m.go:3:6", "Fresh")
		}},
	} {
		program, err := c.peer(p.name)
		if err != nil {
			c.out.note("%s is not measured: %v", p.name, err)
			continue
		}
		names, cs = append(names, p.name), append(cs, contender{run: p.run(program), after: back})
	}
	t, err := race(ctx, c.runs, cs...)
	if err != nil {
		return err
	}
	for i := 1; i < len(t); i++ {
		c.out.add(row{Group: "peers", What: fmt.Sprintf("a rename in %d files beside %s", len(ch.paths), names[i]), Where: c.memType, Unit: "ms", Ours: t[0], Peer: t[i], PeerIs: names[i]})
	}
	return nil
}

// peer finds a program: where `make peers` puts it, then on PATH.
func (c *config) peer(name string) (string, error) {
	patterns := map[string]string{
		"codex apply_patch": "node_modules/@openai/codex-*/vendor/*/bin/codex",
		"ast-grep":          "node_modules/@ast-grep/cli-*/ast-grep",
		"gopls":             "gopls",
		"srt":               "node_modules/.bin/srt",
	}
	found, err := filepath.Glob(filepath.Join(c.peers, patterns[name]))
	if err != nil {
		return "", err
	}
	if len(found) > 0 {
		return filepath.Abs(found[0])
	}
	program, err := exec.LookPath(strings.Fields(name)[0])
	if err != nil {
		return "", fmt.Errorf("it is neither in %s (make peers puts it there) nor on PATH", c.peers)
	}
	return program, nil
}

// codex is the applier that its agent calls: the program under another name,
// with a patch of its own form on stdin.
func codex(r *repo, ch *change, program string) func() error {
	var b strings.Builder
	b.WriteString("*** Begin Patch\n")
	for i, p := range ch.paths {
		fmt.Fprintf(&b, "*** Update File: %s\n@@\n", p)
		before, after := strings.SplitAfter(string(ch.before[i]), "\n"), strings.SplitAfter(string(ch.after[i]), "\n")
		for j := range before {
			switch {
			case before[j] == "":
			case before[j] == after[j]:
				b.WriteString(" " + before[j])
			default:
				b.WriteString("-" + before[j] + "+" + after[j])
			}
		}
	}
	b.WriteString("*** End Patch\n")
	return func() error {
		cmd := exec.Command(program)
		cmd.Args[0], cmd.Dir = "apply_patch", r.dir
		cmd.Stdin = strings.NewReader(b.String())
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("apply_patch: %w: %.300s", err, out)
		}
		return nil
	}
}

// renameRepo is a Go module in which one function is used in every package.
func renameRepo(dir string, n int) (*repo, *change, error) {
	files := map[string]string{"go.mod": "module example.org/m\n\ngo 1.21\n", "m.go": "package m\n\nfunc Old() int { return 1 }\n"}
	for i := range n - 1 {
		files[fmt.Sprintf("p%03d/p.go", i)] = fmt.Sprintf("package p%03d\n\nimport \"example.org/m\"\n\n// F is %d more.\nfunc F() int {\n\treturn m.Old() + %d\n}\n", i, i, i)
	}
	r, err := newRepoOf(dir, files)
	if err != nil {
		return nil, nil, err
	}
	var paths []string
	for _, p := range r.files {
		if filepath.Ext(p) == ".go" {
			paths = append(paths, p)
		}
	}
	ch, err := r.changeOf("rename", paths, func(_ int, b []byte) []byte { return bytes.ReplaceAll(b, []byte("Old()"), []byte("Fresh()")) })
	return r, ch, err
}
