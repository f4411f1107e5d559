package conformance

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aspengine/asp/internal/canon"
)

// setup describes a world.
type setup struct {
	files     map[string]string // beside baseFiles
	providers []enrolled
	policy    *policy     // nil: none is committed
	config    canon.Value // config.json, where it is an object
	stranger  bool        // the repository is not enrolled
	noSandbox bool        // the host runs where the kernel gives it no sandbox
}

// baseFiles are in every repository.
var baseFiles = map[string]string{
	"src/a.txt":    "alpha\nbeta\ngamma\n",
	"src/b.txt":    "one\ntwo\nthree\n",
	"docs/c.md":    "# c\n",
	"secret/k.txt": "not granted to those who ask for src alone\n",
}

// world is one throw-away repository with a state directory of its own.
type world struct {
	t     *trial
	dir   string // holds everything
	root  string // the workspace
	state string // ASP_HOME
	env   []string
	argv  []string // the host's command
	token string
	n     int // for names that are used once
}

// canary is what the environment of the host holds and no provider may see.
const canary = "canary-7f3a-do-not-leak"

// world builds one, through the commands of the contract alone.
func (t *trial) world(ctx context.Context, s setup) (*world, error) {
	t.worlds++
	w := &world{t: t, dir: filepath.Join(t.dir, "w"+strconv.Itoa(t.worlds)), argv: t.run.o.Host}
	w.root, w.state = filepath.Join(w.dir, "repo"), filepath.Join(w.dir, "state")
	w.token = t.run.token + "-" + t.q.id + "-" + strconv.Itoa(t.worlds)
	if s.noSandbox {
		w.argv = append(append(append([]string(nil), t.run.self...), DenyWord), w.argv...)
	}
	for _, d := range []string{w.root, filepath.Join(w.dir, "home"), filepath.Join(w.dir, "tmp")} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return nil, err
		}
	}
	if err := os.Mkdir(w.state, 0o700); err != nil {
		return nil, err
	}
	w.env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + filepath.Join(w.dir, "home"), "TMPDIR=" + filepath.Join(w.dir, "tmp"),
		"ASP_HOME=" + w.state, "LANG=C.UTF-8", "GIT_CONFIG_NOSYSTEM=1", "API_TOKEN=" + canary}
	for _, files := range []map[string]string{baseFiles, s.files} {
		for name, content := range files {
			if err := w.write(name, content); err != nil {
				return nil, err
			}
		}
	}
	if s.policy != nil {
		if err := w.write(".asp/asp.json", string(s.policy.value().AppendIndented(nil))+"\n"); err != nil {
			return nil, err
		}
	}
	if s.config.Kind() == canon.Object {
		if err := os.WriteFile(filepath.Join(w.state, "config.json"), s.config.Bytes(), 0o600); err != nil {
			return nil, err
		}
	}
	if err := w.git(ctx, "init", "-q", "-b", "main", "--template="); err != nil {
		return nil, err
	}
	if err := w.commit(ctx); err != nil {
		return nil, err
	}
	return w, w.enrol(ctx, s)
}

func (w *world) enrol(ctx context.Context, s setup) error {
	if !s.stranger {
		if err := w.must(ctx, "repo", "add", w.root); err != nil {
			return err
		}
	}
	for _, p := range s.providers {
		role := p.Role
		role.Token = w.token
		if role.Target != "" {
			role.Target = w.root
		}
		m, err := w.t.manifest(p, role)
		if err != nil {
			return err
		}
		file := filepath.Join(w.dir, p.ID+".json")
		if err := os.WriteFile(file, m.Bytes(), 0o644); err != nil {
			return err
		}
		if err := w.must(ctx, "server", "add", "--manifest", file); err != nil {
			return err
		}
		if p.mode == "added" || s.stranger {
			continue
		}
		if err := w.must(ctx, "repo", "enable", p.ID, "--repo", w.root, "--mode", p.mode); err != nil {
			return err
		}
	}
	return nil
}

func (w *world) path(name string) string { return filepath.Join(w.root, filepath.FromSlash(name)) }

func (w *world) write(name, content string) error {
	if err := os.MkdirAll(filepath.Dir(w.path(name)), 0o755); err != nil {
		return err
	}
	return os.WriteFile(w.path(name), []byte(content), 0o644)
}

func (w *world) read(name string) string {
	b, err := os.ReadFile(w.path(name))
	if err != nil {
		return "unreadable: " + err.Error()
	}
	return string(b)
}

func (w *world) git(ctx context.Context, args ...string) error {
	_, err := w.exec(ctx, append([]string{"git", "-c", "user.name=c", "-c", "user.email=c@localhost", "-c", "core.hooksPath=/dev/null"}, args...))
	return err
}

// commit records everything on disk, at a fixed time so that names repeat.
func (w *world) commit(ctx context.Context) error {
	if err := w.git(ctx, "add", "-A"); err != nil {
		return err
	}
	return w.git(ctx, "commit", "-q", "-m", "state")
}

// exec runs a command in the workspace and returns its output; an error names
// what it said.
func (w *world) exec(ctx context.Context, argv []string) ([]byte, error) {
	out, said, err := w.try(ctx, argv)
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %s", clip(strings.Join(argv, " "), 200), err, clip(said+string(out), 500))
	}
	return out, nil
}

func (w *world) try(ctx context.Context, argv []string) (stdout []byte, stderr string, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr, cmd.Dir = &out, &said, w.root
	cmd.Env = append(slices.Clone(w.env), "GIT_AUTHOR_DATE=2024-01-01T00:00:00Z", "GIT_COMMITTER_DATE=2024-01-01T00:00:00Z")
	err = cmd.Run()
	return out.Bytes(), said.String(), err
}

// must runs a subcommand of the host that has to succeed.
func (w *world) must(ctx context.Context, args ...string) error {
	_, err := w.exec(ctx, append(slices.Clone(w.argv), args...))
	return err
}

// json runs a subcommand of the host with --json; the status is its exit status.
func (w *world) json(ctx context.Context, args ...string) (v canon.Value, status int, err error) {
	argv := append(append(slices.Clone(w.argv), args...), "--json")
	out, said, err := w.try(ctx, argv)
	if e, ok := err.(*exec.ExitError); ok {
		status, err = e.ExitCode(), nil
	}
	if err == nil {
		if v, err = canon.Parse(out, canon.Limits{}); err != nil {
			err = fmt.Errorf("%w: %.200q %.200q", err, out, said)
		}
	}
	if err != nil {
		return v, status, fmt.Errorf("asp %s: %w", strings.Join(args, " "), err)
	}
	return v, status, nil
}

// mark is everything in the workspace, its git directory included, by name:
// type, rights, time of change and content.
func (w *world) mark() (map[string]string, error) {
	m := map[string]string{}
	err := filepath.WalkDir(w.root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(w.root, path)
		info, err := d.Info()
		if err != nil {
			return err
		}
		s := info.Mode().String()
		switch {
		case info.Mode().IsRegular():
			b, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			sum := sha256.Sum256(b)
			s += " " + info.ModTime().UTC().Format(time.RFC3339Nano) + " " + hex.EncodeToString(sum[:])
		case info.Mode()&fs.ModeSymlink != 0:
			to, _ := os.Readlink(path)
			s += " -> " + to
		}
		m[rel] = s
		return nil
	})
	return m, err
}

// changedSince lists what differs from a mark.
func (w *world) changedSince(before map[string]string) ([]string, error) {
	after, err := w.mark()
	if err != nil {
		return nil, err
	}
	var out []string
	for k, v := range before {
		if after[k] != v {
			out = append(out, k)
		}
	}
	for k := range after {
		if _, ok := before[k]; !ok {
			out = append(out, k)
		}
	}
	slices.Sort(out)
	return out, nil
}

// leftovers lists the processes that still bear the world's token.
func (w *world) leftovers() []string { return processesWith(w.token) }

// processesWith finds processes whose arguments hold a word.
func processesWith(word string) []string {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var out []string
	for _, e := range entries {
		if _, err := strconv.Atoi(e.Name()); err != nil {
			continue
		}
		b, err := os.ReadFile("/proc/" + e.Name() + "/cmdline")
		if err == nil && bytes.Contains(b, []byte(word)) {
			out = append(out, e.Name()+": "+clip(strings.ReplaceAll(string(b), "\x00", " "), 120))
		}
	}
	return out
}

// once gives a name that this world did not use before.
func (w *world) once() string {
	w.n++
	return "n" + strconv.Itoa(w.n)
}
