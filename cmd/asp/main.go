// Command asp checks an edit plan against a content-addressed look at a
// workspace, runs required checks over the after-state, and publishes all of
// it or nothing, with a receipt that says which guarantee was earned.
//
// stdout is the answer, stderr is for people. Exit status: 0 done or allowed,
// 1 refused or not allowed, 2 usage, 3 could not tell or could not do, 4 needs
// attention.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/pflag"
)

// Version is what `asp --version` prints and receipts name.
const Version = "0.1.0"

// env is everything a command may touch, so that no command reaches for a
// global.
type env struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	getenv         func(string) string
	dir            string // working directory
	ui             *ui
	platform       error // why no workspace can be opened on this system; nil where one can
	now            func() time.Time
	heap           *heap
}

// command is one subcommand.
type command struct {
	name    string
	args    string // usage after the name
	short   string
	long    string // with examples
	run     func(ctx context.Context, e *env, fs *pflag.FlagSet) error
	flags   func(fs *pflag.FlagSet)
	hasJSON bool
	noPlace bool // it looks at no workspace; --repo is taken and not shown
	looks   bool // nothing is other than before when it ends, whether or not anybody read its answer
}

func commands() []*command {
	return []*command{
		applyCommand(), planCommand(), publishCommand(), undoCommand(),
		policyCommand(),
		statusCommand(), doctorCommand(), recoverCommand(), receiptsCommand(),
		hostCommand(), checkCommand(), ciCommand(), fixCommand(), serverCommand(), repoCommand(),
		conformanceCommand(), schemaCommand(),
		providerCommand(),
	}
}

func main() {
	os.Exit(run(os.Args[1:]))
}

func run(args []string) int {
	if len(args) == 1 && isVersion(args[0]) {
		// Asked for by every script that looks what is installed; it needs
		// neither signals nor a terminal.
		if _, err := fmt.Println(versionLine); err != nil {
			return exitError
		}
		return exitOK
	}
	if status, ok := seeded(args); ok {
		return status
	}
	heap := newHeap()
	screen := newUI(os.Stderr, os.Stdout, os.Getenv)
	ctx, cancel, stop := interrupts(screen)
	defer stop()
	out := &answerWriter{w: os.Stdout, cancel: cancel}
	e := &env{stdin: os.Stdin, stdout: out, stderr: os.Stderr, getenv: os.Getenv, platform: platform(), now: time.Now, ui: screen, heap: heap}
	var err error
	if e.dir, err = os.Getwd(); err != nil {
		return e.finish(fmt.Errorf("cannot tell the working directory, which may be removed; enter one that exists: %w", err), jsonWanted(args))
	}
	if mask := umask(); mask&0o700 != 0 {
		return e.finish(usagef("the umask %04o takes rights from the owner of new files; use one like 0022 or 0077", mask), jsonWanted(args))
	}
	code := dispatch(ctx, e, args)
	switch {
	case out.err == nil:
	case looks(args) && errors.Is(out.err, syscall.EPIPE):
		return exitPipe // `asp receipts list | head` has shown what was wanted
	case code == exitOK:
		e.ui.errorf("done, but the answer could not be written: %v", out.err)
		return exitError
	default:
		e.ui.errorf("the answer could not be written: %v", out.err)
	}
	return code
}

// dispatch runs one command line and returns its exit status.
func dispatch(ctx context.Context, e *env, args []string) int {
	if len(args) == 0 {
		fmt.Fprint(e.stderr, usage())
		return exitUsage
	}
	if isVersion(args[0]) {
		fmt.Fprintln(e.stdout, versionLine)
		return exitOK
	}
	switch args[0] {
	case "--help", "-h", "help":
		if len(args) > 1 {
			if c := find(args[1]); c != nil {
				fmt.Fprint(e.stdout, helpOf(c))
				return exitOK
			}
			fmt.Fprintf(e.stderr, "asp: no command %q; `asp --help` lists them\n", args[1])
			return exitUsage
		}
		fmt.Fprint(e.stdout, usage())
		return exitOK
	}
	c := find(args[0])
	if c == nil {
		return e.finish(usageError{fmt.Sprintf("no command %.60q; `asp --help` lists them", args[0])}, jsonWanted(args[1:]))
	}
	fs := flagSet(c)
	fs.SetOutput(io.Discard)
	err := fs.Parse(args[1:])
	if errors.Is(err, pflag.ErrHelp) {
		fmt.Fprint(e.stdout, helpOf(c))
		return exitOK
	}
	if err != nil {
		err = usageError{err.Error() + "; see `asp " + c.name + " --help`"}
	} else {
		err = c.run(ctx, e, fs)
	}
	return e.finish(err, jsonWanted(args[1:]))
}

const versionLine = "asp " + Version

// looks tells whether a command line asks for nothing but to be shown something.
func looks(args []string) bool {
	if len(args) == 0 || isVersion(args[0]) || slices.Contains(args, "--help") || slices.Contains(args, "-h") {
		return true
	}
	c := find(args[0])
	return args[0] == "help" || c != nil && c.looks
}

func isVersion(arg string) bool { return arg == "--version" || arg == "-V" || arg == "version" }

// jsonWanted looks for --json itself, so that a usage error found while
// parsing is still answered in the form that was asked for.
func jsonWanted(args []string) bool {
	for _, a := range args {
		if a == "--" {
			return false
		}
		if a == "--json" || a == "--json=true" {
			return true
		}
	}
	return false
}

func find(name string) *command {
	for _, c := range commands() {
		if c.name == name {
			return c
		}
	}
	return nil
}

func flagSet(c *command) *pflag.FlagSet {
	fs := pflag.NewFlagSet(c.name, pflag.ContinueOnError)
	fs.SortFlags = false
	fs.Usage = func() {}
	fs.String("repo", ".", "the workspace `D`irectory")
	if c.noPlace {
		_ = fs.MarkHidden("repo") // it is there
	}
	if c.flags != nil {
		c.flags(fs)
	}
	if c.hasJSON {
		fs.Bool("json", false, "print one JSON object instead of text")
	}
	return fs
}

func helpOf(c *command) string {
	var b strings.Builder
	fmt.Fprintf(&b, "asp %s — %s\n\nusage: asp %s %s\n\n%s\n", c.name, c.short, c.name, c.args, strings.TrimSpace(c.long))
	if flags := flagUsage(flagSet(c)); flags != "" {
		b.WriteString("\nflags:\n" + flags)
	}
	return b.String()
}

// flagUsage is the library's list without the note that a switch takes a value,
// which nobody needs.
func flagUsage(fs *pflag.FlagSet) string {
	const note = "[=true|false]"
	return strings.ReplaceAll(fs.FlagUsages(), note, strings.Repeat(" ", len(note)))
}

func usage() string {
	var b strings.Builder
	b.WriteString(`asp — apply an edit plan to a workspace, all or nothing, with a receipt

usage: asp COMMAND [flags]

`)
	for _, c := range commands() {
		fmt.Fprintf(&b, "  %-11s %s\n", c.name, c.short)
	}
	b.WriteString(`  version     print the version, as --version does
  help        print this, or the help of a COMMAND

examples:
  asp apply --patch fix.diff --dry-run     see what would change, and the guarantee it would earn
  asp apply --patch fix.diff --check vet   apply it if the command check "vet" passes over the after-state
  asp undo rcpt-…                          take an applied change back

asp COMMAND --help tells more. Exit status: 0 done or allowed, 1 refused or not allowed,
2 usage, 3 could not tell or do, 4 needs attention.
`)
	return b.String()
}
