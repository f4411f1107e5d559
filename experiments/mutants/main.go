// Mutants takes one protection at a time out of the program and runs the tests
// that are there because of it. A mutant that passes them is a protection that
// nobody would miss, or a test that is missing.
//
// The rows (rows_*.go) name a place by its exact text, so that a row whose place
// was changed says so instead of testing nothing. Nothing is written into the
// source: the compiler is given an overlay, and so are builds that tests start.
//
//	go run ./experiments/mutants             all rows
//	go run ./experiments/mutants -only sync  rows whose id or kind matches
//	go run ./experiments/mutants -check      only that every row still applies
//
// The end is 1 when a row does not apply or does not build, when a row survives
// that the table does not excuse, when an excused one is killed, or when fewer
// than 95 of 100 are killed.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"time"
)

// row is one mutant.
type row struct {
	id   string
	kind string // what is taken out: sync, lock, look, precondition, no-follow, no-replace, probe, claim, re-stamp, box
	file string
	// The text in place of which mutant stands; it occurs once in the file.
	text, mutant string
	pkg, run     string // the tests that have to notice
	// survives is why no test can notice: another protection that stands behind
	// this one. Such a row counts as not killed.
	survives string
}

// wantKilled of 100 rows have to be killed.
const wantKilled = 95

func main() {
	only := flag.String("only", "", "regular expression on id or kind")
	check := flag.Bool("check", false, "only see that every row applies")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *only, *check); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, only string, check bool) error {
	match, err := regexp.Compile(only)
	if err != nil {
		return err
	}
	root, err := moduleRoot(ctx)
	if err != nil {
		return err
	}
	var chosen []row
	for _, r := range rows() {
		if match.MatchString(r.id) || match.MatchString(r.kind) {
			chosen = append(chosen, r)
		}
	}
	if err := applyAll(root, chosen); err != nil || check {
		return err
	}
	dir, err := os.MkdirTemp("", "mutants-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	w := &workshop{root: root, dir: dir, sound: map[string]bool{}}
	return w.report(ctx, chosen)
}

func moduleRoot(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		return "", fmt.Errorf("find the module: %w", err)
	}
	return strings.TrimSpace(string(out)), nil
}

// applyAll sees that every row applies.
func applyAll(root string, rows []row) error {
	var errs []error
	seen := map[string]bool{}
	for _, r := range rows {
		if seen[r.id] {
			errs = append(errs, fmt.Errorf("%s: the id is used twice", r.id))
		}
		seen[r.id] = true
		if _, err := r.source(root); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// source is the file with the mutant in it.
func (r row) source(root string) (string, error) {
	b, err := os.ReadFile(filepath.Join(root, r.file))
	if err != nil {
		return "", fmt.Errorf("%s: %w", r.id, err)
	}
	if n := strings.Count(string(b), r.text); n != 1 {
		return "", fmt.Errorf("%s: its text is %d times in %s; the row has to follow the code", r.id, n, r.file)
	}
	out := strings.Replace(string(b), r.text, r.mutant, 1)
	if _, err := parser.ParseFile(token.NewFileSet(), r.file, out, parser.SkipObjectResolution); err != nil {
		return "", fmt.Errorf("%s: the mutant is no Go: %w", r.id, err)
	}
	return out, nil
}

// workshop makes mutants and tries them.
type workshop struct {
	root, dir string
	sound     map[string]bool // commands that pass without a mutant
}

// baseline runs the tests of a row without the mutant: one that fails anyway
// would kill everything.
func (w *workshop) baseline(ctx context.Context, r row) error {
	k := r.pkg + " " + r.run
	if w.sound[k] {
		return nil
	}
	how, out, err := w.test(ctx, r, "")
	if err == nil && how != survived {
		err = fmt.Errorf("go test -run '%s' ./%s is %s without any mutant:\n%s", r.run, r.pkg, how, tail(out))
	}
	w.sound[k] = err == nil
	return err
}

func (w *workshop) report(ctx context.Context, rows []row) error {
	var errs []error
	dead, excused := 0, 0
	for _, r := range rows {
		if err := w.baseline(ctx, r); err != nil {
			return err
		}
		began := time.Now()
		how, out, err := w.try(ctx, r)
		if err != nil {
			return err
		}
		note := ""
		switch {
		case how == unbuilt:
			errs = append(errs, fmt.Errorf("%s does not build:\n%s", r.id, tail(out)))
		case how == survived && r.survives == "":
			errs = append(errs, fmt.Errorf("%s survives: nothing in ./%s notices", r.id, r.pkg))
		case how == survived:
			excused++
			note = " (" + r.survives + ")"
		case r.survives != "":
			errs = append(errs, fmt.Errorf("%s is killed now: take its excuse away", r.id))
		}
		if how == killed || how == hung {
			dead++
		}
		fmt.Printf("%-9s %-13s %-34s %4.0fs  %s%s\n", how, r.kind, r.id, time.Since(began).Seconds(), firstFailure(out), note)
	}
	fmt.Printf("%d mutants, %d killed, %d survivors with a reason, %d without\n", len(rows), dead, excused, len(rows)-dead-excused)
	if len(rows) > 20 && dead*100 < wantKilled*len(rows) {
		errs = append(errs, fmt.Errorf("%d of %d are killed, which is under %d of 100", dead, len(rows), wantKilled))
	}
	return errors.Join(errs...)
}

// outcome of one mutant.
type outcome string

const (
	killed   outcome = "killed"
	hung     outcome = "hung"
	survived outcome = "survived"
	unbuilt  outcome = "unbuilt"
)

// try runs the tests of a row over its mutant.
func (w *workshop) try(ctx context.Context, r row) (outcome, string, error) {
	src, err := r.source(w.root)
	if err != nil {
		return unbuilt, "", err
	}
	file, overlay := filepath.Join(w.dir, "mutant.go"), filepath.Join(w.dir, "overlay.json")
	b, err := json.Marshal(map[string]map[string]string{"Replace": {filepath.Join(w.root, r.file): file}})
	if err != nil {
		return unbuilt, "", err
	}
	if err := errors.Join(os.WriteFile(file, []byte(src), 0o644), os.WriteFile(overlay, b, 0o644)); err != nil {
		return unbuilt, "", err
	}
	return w.test(ctx, r, overlay)
}

// perMutant is when a mutant counts as one that hangs.
const perMutant = 15 * time.Minute

func (w *workshop) test(ctx context.Context, r row, overlay string) (outcome, string, error) {
	args := []string{"test", "-vet=off", "-failfast", "-timeout", perMutant.String(), "-run", r.run, "./" + r.pkg}
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = w.root
	cmd.Env = os.Environ()
	if overlay != "" {
		// A test of the built program is no other program than before to the cache.
		args = append([]string{"test", "-count=1"}, args[1:]...)
		cmd.Args = append([]string{"go"}, args...)
		// By the environment, so that builds that a test starts have it too.
		cmd.Env = append(cmd.Env, "GOFLAGS="+strings.TrimSpace(os.Getenv("GOFLAGS")+" -overlay="+overlay))
	}
	out, err := cmd.CombinedOutput()
	text := string(out)
	switch {
	case ctx.Err() != nil:
		return unbuilt, text, ctx.Err()
	case strings.Contains(text, "no tests to run"):
		return unbuilt, text, fmt.Errorf("%s: no test of ./%s matches %q", r.id, r.pkg, r.run)
	case err == nil:
		return survived, text, nil
	case strings.Contains(text, "[build failed]"), strings.Contains(text, "[setup failed]"), strings.Contains(text, "build the command:"):
		return unbuilt, text, nil
	case strings.Contains(text, "panic: test timed out"):
		return hung, text, nil
	}
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return unbuilt, text, fmt.Errorf("run go test on %s: %w", runtime.GOOS, err)
	}
	return killed, text, nil
}

var failure = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`(?m)^\s*--- FAIL: (\S+)`) })

// firstFailure names the innermost test that noticed.
func firstFailure(out string) string {
	all := failure().FindAllStringSubmatch(out, -1)
	if len(all) == 0 {
		return ""
	}
	return all[len(all)-1][1]
}

func tail(s string) string {
	const show = 1500
	if len(s) > show {
		return "…" + s[len(s)-show:]
	}
	return s
}
