//go:build linux

package sandbox_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aspengine/asp/internal/need"
	"github.com/aspengine/asp/sandbox"
	"golang.org/x/sys/unix"
)

// reachOut is the command of TestNothingActsForTheCommand: it says of each name whether
// somebody answers there.
func reachOut() int {
	in := bufio.NewScanner(os.Stdin)
	fmt.Println("ready")
	for in.Scan() {
		kind, path, _ := strings.Cut(in.Text(), " ")
		var err error
		switch kind {
		case "stream", "datagram":
			typ := map[string]int{"stream": unix.SOCK_STREAM, "datagram": unix.SOCK_DGRAM}[kind]
			fd, serr := unix.Socket(unix.AF_UNIX, typ, 0)
			if err = serr; err == nil {
				if typ == unix.SOCK_DGRAM {
					err = unix.Sendto(fd, []byte("x"), 0, &unix.SockaddrUnix{Name: path})
				} else {
					err = unix.Connect(fd, &unix.SockaddrUnix{Name: path})
				}
				unix.Close(fd)
			}
		case "fifo":
			fd, oerr := unix.Open(path, unix.O_WRONLY|unix.O_NONBLOCK, 0)
			if err = oerr; err == nil {
				_, err = unix.Write(fd, []byte("x"))
			}
		case "listen": // its own, as tests do
			var l net.Listener
			if l, err = net.Listen("unix", path); err == nil {
				_, err = net.Dial("unix", path)
				l.Close()
			}
		case "read":
			_, err = os.ReadFile(path)
		}
		fmt.Println(err == nil, err)
	}
	return 0
}

// A command that may read a directory of the host's must not get anybody to act for it who
// listens there, at a socket or a FIFO that was there before or comes while it runs.
func TestNothingActsForTheCommand(t *testing.T) {
	w := newWorld(t)
	d, err := os.MkdirTemp("", "r") // names of sockets have to be short
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(d) })
	d, err = filepath.EvalSymlinks(d)
	must(t, err)
	must(t, os.WriteFile(filepath.Join(d, "file"), []byte("x"), 0o644))
	must(t, os.Chmod(d, 0o755))
	lay := func(when string) (names []string) {
		t.Helper()
		l, err := net.Listen("unix", filepath.Join(d, when+".stream"))
		must(t, err)
		t.Cleanup(func() { l.Close() })
		g, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: filepath.Join(d, when+".datagram"), Net: "unixgram"})
		must(t, err)
		t.Cleanup(func() { g.Close() })
		must(t, unix.Mkfifo(filepath.Join(d, when+".fifo"), 0o600))
		f, err := os.OpenFile(filepath.Join(d, when+".fifo"), os.O_RDWR|unix.O_NONBLOCK, 0)
		must(t, err)
		t.Cleanup(func() { f.Close() })
		for _, k := range []string{"stream", "datagram", "fifo"} {
			names = append(names, k+" "+filepath.Join(d, when+"."+k))
		}
		return names
	}
	before := lay("before")
	exe, err := os.Executable()
	must(t, err)
	show := func(s *sandbox.Spec, paths ...string) {
		for _, p := range paths {
			s.Mounts = append(s.Mounts, sandbox.Mount{Kind: sandbox.MountBindRO, Source: p, Target: p})
		}
	}
	for i, c := range []struct {
		name string
		set  func(*sandbox.Spec)
	}{
		{"mediated", func(s *sandbox.Spec) {
			if strings.HasPrefix(d, "/dev/") {
				show(s, d)
			}
			show(s, exe)
		}},
		{"mediated, shown in what is hidden", func(s *sandbox.Spec) {
			s.Hide = []string{filepath.Dir(d)}
			show(s, d, exe)
		}},
		{"isolated, granted", func(s *sandbox.Spec) {
			s.Isolate, s.Require, s.Read = true, sandbox.Isolated, []string{d, exe}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w.fresh(t)
			s := w.spec("")
			s.Argv, s.Env[helperVar] = []string{exe}, "reach"
			c.set(&s)
			var lines []string
			ask := func(in *os.File, out *bufio.Scanner, question string) {
				if !out.Scan() || out.Text() == "" {
					t.Fatalf("no answer before %q: %q", question, out.Text())
				}
				lines = append(lines, out.Text())
				fmt.Fprintln(in, question)
			}
			inR, inW, err := os.Pipe()
			must(t, err)
			outR, outW, err := os.Pipe()
			must(t, err)
			p, err := sandbox.Start(context.Background(), w.caps, s, sandbox.Stdio{In: inR, Out: outW})
			inR.Close()
			outW.Close()
			must(t, err)
			out := bufio.NewScanner(outR)
			later := lay(fmt.Sprint(i))
			questions := slices.Concat(before, later, []string{"read " + filepath.Join(d, "file"), "listen " + filepath.Join(w.live, "own")})
			for _, q := range questions {
				ask(inW, out, q)
			}
			inW.Close()
			for out.Scan() {
				lines = append(lines, out.Text())
			}
			res, err := p.Wait()
			if err != nil || res.ExitCode != 0 || len(lines) != len(questions)+1 {
				t.Fatalf("%v: %+v, %q", err, res, lines)
			}
			for i, q := range questions {
				want := "false "
				if strings.HasPrefix(q, "read ") || strings.HasPrefix(q, "listen ") {
					want = "true "
				}
				if !strings.HasPrefix(lines[i+1], want) {
					t.Errorf("%s: %s", q, lines[i+1])
				}
			}
		})
	}
	// A socket that is granted by its name is, and then nobody claims that all is kept.
	w.fresh(t)
	s := w.spec("true")
	s.Require = sandbox.Isolated
	s.Read = []string{filepath.Join(d, "before.stream")}
	if _, err := sandbox.Run(context.Background(), w.caps, s); !errors.Is(err, sandbox.ErrUnsupported) || !strings.Contains(err.Error(), "can be reached") {
		t.Errorf("a socket granted by its name: %v", err)
	}
}

// With one layer less a launch that is not isolated is Gated at most, and where more is
// required nothing is started.
func TestSB01_EachMediatedLayerCounts(t *testing.T) {
	w := newWorld(t)
	for _, layer := range sandbox.MediatedLayers {
		w.fresh(t)
		s := sandbox.Without(w.spec("echo x > started"), layer)
		if _, err := sandbox.Run(context.Background(), w.caps, s); !errors.Is(err, sandbox.ErrUnsupported) {
			t.Errorf("without %s: %v", layer, err)
		}
		if _, err := os.Lstat(filepath.Join(w.upper, "started")); err == nil {
			t.Errorf("without %s: started though refused", layer)
		}
		w.fresh(t)
		s.Require = sandbox.Gated
		if b := run(t, w.caps, s).Boundary; b.Level != sandbox.Gated || b.DirectWrite {
			t.Errorf("without %s: %s, %s", layer, b.Level, b.Evidence)
		}
	}
	w.fresh(t)
	weak := w.caps
	weak.PrivateRoot = sandbox.Cap{Answer: sandbox.No}
	if _, err := sandbox.Run(context.Background(), weak, w.spec("true")); !errors.Is(err, sandbox.ErrUnsupported) {
		t.Errorf("where the root cannot be changed: %v", err)
	}
}

// Whoever has a control group namespace of his own may mount version 1, whose files are the real
// root's: a check gets none, by whatever user namespace, and user namespaces all the same.
func TestNoControlGroupsOfItsOwn(t *testing.T) {
	w := newWorld(t)
	need.Tool(t, "unshare")
	res := run(t, w.caps, w.spec("unshare -U true && echo user; unshare -UC true && echo control"))
	out := string(res.Stdout)
	if !strings.HasPrefix(out, "user\n") || strings.Contains(out, "control\n") || !strings.Contains(out, "No space left") {
		t.Errorf("%s", out)
	}
	if !slices.ContainsFunc(res.Boundary.Attempts, func(a sandbox.Attempt) bool { return a.Name == "own control groups" && a.Held }) {
		t.Errorf("not tried: %+v", res.Boundary.Attempts)
	}
}

// What a launch that is not isolated shows of the machine: all but what is hidden, also
// where something is mounted in it.
func TestWhatIsShown(t *testing.T) {
	w := newWorld(t)
	res := run(t, w.caps, w.spec("ls -1 /; cat /etc/passwd /sys/kernel/mm/transparent_hugepage/enabled > /dev/null && echo readable"))
	shown := strings.Split(string(res.Stdout), "\n")
	names, err := os.ReadDir("/")
	must(t, err)
	for _, n := range names {
		if n.IsDir() && !slices.Contains(shown, n.Name()) {
			t.Errorf("/%s is not there: %q", n.Name(), shown)
		}
	}
	if !slices.Contains(shown, "readable") {
		t.Errorf("%s", res.Stdout)
	}
}

// Where something is mounted the rest is shown all the same, and of the mounts all but a
// second /proc: through the processes of one the host's own mounts can be reached.
func TestShownInPieces(t *testing.T) {
	newWorld(t)
	for _, tool := range []string{"unshare", "mount"} {
		need.Tool(t, tool)
	}
	d, err := os.MkdirTemp("/var/tmp", "asp-pieces-") // not below a place that a launch has of its own
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(d) })
	must(t, os.Chmod(d, 0o755))
	for _, x := range []string{"proc", "memory", "beside"} {
		must(t, os.Mkdir(filepath.Join(d, x), 0o755))
	}
	must(t, os.WriteFile(filepath.Join(d, "beside", "f"), []byte("beside\n"), 0o644))
	must(t, os.WriteFile(filepath.Join(d, "f"), []byte("file\n"), 0o644))
	must(t, os.Symlink("f", filepath.Join(d, "link")))
	exe, err := os.Executable()
	must(t, err)
	cmd := exec.Command("unshare", "-Urmpf", "sh", "-c", `set -e; cd `+d+`; mount -t proc none proc; mount -t tmpfs none memory; echo memory > memory/f; mount -t proc none /proc; exec `+exe)
	cmd.Env = []string{helperVar + "=shown", "PATH=" + os.Getenv("PATH"), "PROTECT=" + d,
		"SCRIPT=cd " + d + "; cat f link beside/f memory/f; ls proc; echo x > y; echo x > memory/y; echo x > beside/y; true"}
	out, err := cmd.CombinedOutput()
	said := string(out)
	if err != nil || !strings.HasPrefix(said, "file\nfile\nbeside\nmemory\n") || !strings.Contains(said, "mediated-write <nil>") {
		t.Errorf("%v\n%s", err, said)
	}
	if strings.Contains(said, "self\n") || strings.Count(said, "ead-only file system") != 3 {
		t.Errorf("a second /proc is shown, or something was written:\n%s", said)
	}
}

// shutDown ends a file system as the failure of its device does: from now on it answers
// nobody.
func shutDown(at string) error {
	fd, err := unix.Open(at, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	const goingDown = 0x8004587d // XFS_IOC_GOINGDOWN
	return unix.IoctlSetPointerInt(fd, goingDown, 1)
}

// A file system that answers nobody, somewhere on the host, is not shown and takes
// nothing from what a launch proves.
func TestDeadFileSystem(t *testing.T) {
	newWorld(t)
	need.Loop(t)
	for _, tool := range []string{"unshare", "mkfs.xfs"} {
		need.Tool(t, tool)
	}
	d, err := os.MkdirTemp("/var/tmp", "asp-dead-") // not below a place that a launch has of its own
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(d) })
	must(t, os.Chmod(d, 0o755))
	must(t, os.Mkdir(filepath.Join(d, "m"), 0o755))
	must(t, os.WriteFile(filepath.Join(d, "f"), []byte("file\n"), 0o644))
	img := filepath.Join(t.TempDir(), "image")
	must(t, os.WriteFile(img, nil, 0o600))
	must(t, os.Truncate(img, 320<<20))
	if out, err := exec.Command("mkfs.xfs", "-q", img).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	exe, err := os.Executable()
	must(t, err)
	cmd := exec.Command("unshare", "-m", "sh", "-c", `mount -o loop `+img+` `+d+`/m && exec `+exe)
	cmd.Env = []string{helperVar + "=shown", "PATH=" + os.Getenv("PATH"), "PROTECT=" + d, "DEAD=" + filepath.Join(d, "m"), "SCRIPT=cd " + d + "; cat f; ls"}
	out, err := cmd.CombinedOutput()
	if said := string(out); err != nil || !strings.HasPrefix(said, "file\nf\nmediated-write <nil>") {
		t.Errorf("%v\n%s", err, said)
	}
}

// TestFileThatGoes: somebody's temporary files come and go beside a mount, where a launch
// is shown what there is entry by entry. None of it keeps a launch from starting.
func TestFileThatGoes(t *testing.T) {
	newWorld(t)
	for _, tool := range []string{"unshare", "mount"} {
		need.Tool(t, tool)
	}
	d, err := os.MkdirTemp("/var/tmp", "asp-goes-")
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(d) })
	must(t, os.Chmod(d, 0o755))
	must(t, os.Mkdir(filepath.Join(d, "m"), 0o755))
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	for i := range 40 {
		wg.Go(func() {
			name := filepath.Join(d, fmt.Sprint("f", i))
			for ctx.Err() == nil {
				if f, err := os.Create(name); err == nil {
					f.Close()
				}
				time.Sleep(3 * time.Millisecond)
				os.Remove(name)
			}
		})
	}
	exe, err := os.Executable()
	must(t, err)
	for range 4 {
		cmd := exec.Command("unshare", "-Urnm", "sh", "-c", `mount -t tmpfs none `+d+`/m && exec `+exe)
		cmd.Env = []string{helperVar + "=shown", "PATH=" + os.Getenv("PATH"), "PROTECT=" + d, "SCRIPT=echo up"}
		if out, err := cmd.CombinedOutput(); err != nil || !strings.HasPrefix(string(out), "up\nmediated-write <nil>") {
			t.Fatalf("%v\n%s", err, out)
		}
	}
}

// A mount that another one covers says nothing of what is seen at its path.
func TestCoveredMountIsNotTaken(t *testing.T) {
	newWorld(t)
	for _, tool := range []string{"unshare", "mount"} {
		need.Tool(t, tool)
	}
	d, err := os.MkdirTemp("/var/tmp", "asp-c-")
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(d) })
	must(t, os.Chmod(d, 0o755))
	must(t, os.MkdirAll(filepath.Join(d, "a", "b"), 0o755))
	exe, err := os.Executable()
	must(t, err)
	cmd := exec.Command("unshare", "-Urnmpf", "sh", "-c", `set -e; cd `+d+`; mount -t sysfs none a/b; mount -t tmpfs none a; mkdir a/b; mount -t proc none /proc; exec `+exe)
	cmd.Env = []string{helperVar + "=covered", "PATH=" + os.Getenv("PATH"), "PROTECT=" + d, "AT=" + d + "/a/b/s"}
	out, err := cmd.CombinedOutput()
	if said := string(out); err != nil || !strings.HasPrefix(said, d+"/a/b/s\nready\nfalse connection refused\n") || !strings.Contains(said, "mediated-write <nil>") {
		t.Errorf("%v\n%s", err, said)
	}
}

// The caller's keys are out of reach, and the kernel asks nobody for one.
func TestNoKeysOfTheCaller(t *testing.T) {
	w := newWorld(t)
	b := run(t, w.caps, w.spec("true")).Boundary
	for _, name := range []string{"read keys", "add a key", "request a key"} {
		if !slices.ContainsFunc(b.Attempts, func(a sandbox.Attempt) bool { return a.Name == name && a.Held && a.Answer == "EPERM" }) {
			t.Errorf("%s: %+v", name, b.Attempts)
		}
	}
}

// One file mounted among many takes the others not away: up to a bound they are shown one by one,
// beyond it as they are, and then nobody claims more than gated.
func TestMountAmongMany(t *testing.T) {
	newWorld(t)
	for _, tool := range []string{"unshare", "mount"} {
		need.Tool(t, tool)
	}
	exe, err := os.Executable()
	must(t, err)
	for files, want := range map[int]string{1000: "f999\nmediated-write <nil>", 5000: "f4999\ngated <nil>"} {
		d, err := os.MkdirTemp("/var/tmp", "asp-m-")
		must(t, err)
		t.Cleanup(func() { os.RemoveAll(d) })
		must(t, os.Chmod(d, 0o755))
		for i := range files {
			must(t, os.WriteFile(fmt.Sprintf("%s/f%d", d, i), nil, 0o644))
		}
		cmd := exec.Command("unshare", "-Urmpf", "sh", "-c", `set -e; mount --bind /usr/bin/true `+d+`/f0; mount -t proc none /proc; exec `+exe)
		cmd.Env = []string{helperVar + "=shown", "PATH=" + os.Getenv("PATH"), "PROTECT=" + d, fmt.Sprintf("SCRIPT=cd %s; ls | grep -x f%d", d, files-1)}
		out, err := cmd.CombinedOutput()
		if said := string(out); err != nil || !strings.HasPrefix(said, want) || strings.Contains(want, "gated") && !strings.Contains(said, "too many names") {
			t.Errorf("%d files: %v\n%s", files, err, said)
		}
	}
}
