// Command bench measures asp beside its peers and beside the bare operations
// that no correct implementation could do without, all in one run.
//
//	go run ./bench -short          some minutes, small repositories
//	go run ./bench -full           the sizes of docs/performance.md
//	go run ./bench -full -json F   the rows as JSON too
//	go run ./bench -json F -chart S -page P   draw F, put its rows into P
//
// It builds the binary it measures, makes its repositories itself, and needs Go
// and git. Contenders take turns, so that a busy machine slows all of them; what
// is reported are medians, and only ratios of one run mean anything. A missed
// goal is a word in the table and never an exit status.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
)

// allGroups are the groups of rows, in the order in which they are measured.
var allGroups = []string{"apply", "stamp", "growth", "scratch", "sandbox", "bytes", "start", "host", "peers", "memory", "resident"}

// config is what a run was asked for and found.
type config struct {
	runs    int // of each contender, at least 7 in a full run
	sizes   []int
	big     int   // files of the big repository
	medium  int   // files of the middle one
	small   int   // files of the small one
	hosts   []int // files of the repositories that a host serves
	keep    int   // applies in the growth test
	huge    int64
	form    string // short or full
	only    *regexp.Regexp
	asp     string // the binary
	peers   string // where make peers puts programs
	empty   string // a Go program that does nothing
	mem     string // scratch directory, on tmpfs where there is one
	memType string
	out     *report
}

func main() {
	short := flag.Bool("short", false, "small repositories, few runs (the default)")
	full := flag.Bool("full", false, "the sizes that the goals are stated for")
	jsonFile := flag.String("json", "", "also write the rows to `FILE`")
	svg := flag.String("chart", "", "draw the file of -json into the SVG `FILE`, and measure nothing")
	doc := flag.String("page", "", "with -chart: put the rows into this `FILE`, too, between its marks")
	only := flag.String("run", "", "only rows whose group matches `REGEXP`: "+strings.Join(allGroups, ", "))
	peers := flag.String("peers", "bin/peers", "`DIRECTORY` of programs to compare with, made by make peers")
	asp := flag.String("asp", "", "measure the binary at `PATH` instead of building one, to profile it for example")
	spend := flag.Duration("burn", 0, "use so much processor time and end; the check of some rows does")
	runs := flag.Int("n", 0, "runs of each contender (0: 7, or 11 with -full)")
	flag.Parse()
	if flag.NArg() > 0 || *short && *full {
		fmt.Fprintln(os.Stderr, "bench: give -short or -full, and no arguments")
		os.Exit(2)
	}
	if *spend > 0 {
		if err := burn(*spend); err != nil {
			fmt.Fprintln(os.Stderr, "bench:", err)
			os.Exit(1)
		}
		return
	}
	if *svg != "" {
		err := drawChart(*svg, *jsonFile)
		if err == nil && *doc != "" {
			err = writePage(*doc, *jsonFile)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "bench:", err)
			os.Exit(1)
		}
		return
	}
	c := &config{runs: 7, sizes: []int{1, 10, 100}, big: 5000, medium: 2000, small: 500, hosts: []int{200, 2000}, keep: 50, huge: 64 << 20, form: "short", only: regexp.MustCompile("")}
	if *full {
		*c = config{runs: 11, sizes: []int{1, 10, 100, 1000}, big: 50000, medium: 10000, small: 500, hosts: []int{200, 500, 50000}, keep: 1000, huge: 1 << 30, form: "full", only: c.only}
	}
	if *runs > 0 {
		c.runs = *runs
	}
	c.asp, c.peers = *asp, *peers
	if *only != "" {
		re, err := regexp.Compile(*only)
		if err != nil {
			fmt.Fprintln(os.Stderr, "bench:", err)
			os.Exit(2)
		}
		c.only = re
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := c.run(ctx, *jsonFile); err != nil {
		// Still exit 0: a measurement that could not be taken says nothing
		// about the program.
		fmt.Fprintln(os.Stderr, "bench:", err)
	}
}

func (c *config) run(ctx context.Context, jsonFile string) error {
	if err := c.prepare(ctx); err != nil {
		return err
	}
	defer os.RemoveAll(c.mem)
	c.out = newReport(c)
	c.out.header(os.Stdout)
	rows := map[string]func(context.Context) error{
		"apply": c.applyRows, "stamp": c.stampRows, "growth": c.growthRows, "scratch": c.scratchRows, "sandbox": c.sandboxRows,
		"bytes": c.bytesRows, "start": c.startRows, "host": c.hostRows, "peers": c.peerRows, "memory": c.memoryRows, "resident": c.residentRows,
	}
	for _, name := range allGroups {
		if !c.only.MatchString(name) {
			continue
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		fmt.Fprintf(os.Stderr, "measuring %s …\n", name)
		if err := rows[name](ctx); err != nil {
			c.out.note("%s: not measured to the end: %v", name, err)
		}
	}
	c.out.table(os.Stdout)
	if jsonFile == "" {
		return nil
	}
	return c.out.writeJSON(jsonFile)
}

// prepare finds the place, builds the binaries and takes every variable that
// would change git's behaviour out of the environment.
func (c *config) prepare(ctx context.Context) error {
	for _, v := range os.Environ() {
		if k, _, _ := strings.Cut(v, "="); strings.HasPrefix(k, "GIT_") || strings.HasPrefix(k, "ASP_") {
			os.Unsetenv(k)
		}
	}
	os.Setenv("GIT_CONFIG_NOSYSTEM", "1")
	os.Setenv("GIT_CONFIG_GLOBAL", os.DevNull)
	for _, who := range []string{"AUTHOR", "COMMITTER"} {
		os.Setenv("GIT_"+who+"_NAME", "bench")
		os.Setenv("GIT_"+who+"_EMAIL", "bench@example.org")
	}
	base := os.TempDir()
	if fsType("/dev/shm") == "tmpfs" {
		base = "/dev/shm"
	}
	var err error
	if c.mem, err = os.MkdirTemp(base, "asp-bench-"); err != nil {
		return err
	}
	c.memType = fsType(c.mem)
	c.empty = filepath.Join(c.mem, "empty")
	build := func(out, dir, pkg string) error {
		cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags=-s -w", "-o", out, pkg)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "CGO_ENABLED=0") // as make builds it
		if b, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("build %s: %w: %s", pkg, err, b)
		}
		return nil
	}
	root, err := moduleRoot(ctx)
	if err != nil {
		return err
	}
	src := filepath.Join(c.mem, "src")
	for name, text := range map[string]string{"go.mod": "module empty\n", "main.go": "package main\n\nfunc main() {}\n"} {
		if err := writeFile(filepath.Join(src, name), []byte(text)); err != nil {
			return err
		}
	}
	if err := build(c.empty, src, "."); err != nil {
		return err
	}
	if c.asp != "" {
		c.asp, err = program(c.asp)
		return err
	}
	c.asp = filepath.Join(c.mem, "asp")
	return build(c.asp, root, "./cmd/asp")
}

// program is the file behind a name, absolute: contenders run in directories of their
// own, and a manifest takes no other name.
func program(name string) (string, error) {
	name, err := filepath.EvalSymlinks(name)
	if err != nil {
		return "", err
	}
	return filepath.Abs(name)
}

func moduleRoot(ctx context.Context) (string, error) {
	b, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "github.com/aspengine/asp").Output()
	if err != nil {
		return "", fmt.Errorf("find the module (run this from its directory): %w", err)
	}
	return strings.TrimSpace(string(b)), nil
}

// workers is how many goroutines the bare parallel operations use.
func workers() int { return max(2, runtime.GOMAXPROCS(0)) }
