package casetest

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/aspengine/asp/internal/home"
	"github.com/aspengine/asp/internal/need"
)

// arena is a world with baits in it.
type arena struct {
	*world
	attacker string // the program, in a directory that may be read
	bait     *bait
	key      bool // the kernel has keys
	stop     func() string
	mounts   string
}

// newArena lays everything out that an attacker would like to reach, each of it
// owned by the user that the built command runs as.
func newArena(t *testing.T, opts ...worldOption) *arena {
	t.Helper()
	need.UserNS(t)
	w := newWorld(t, map[string]string{"x": "x\n", ".gitignore": "setid\nsock\nfifo\n", ".gitattributes": "*.f filter=evil diff=evil\n", "y.f": "y\n"}, opts...)
	a := &arena{world: w}
	token := "asp-escape-" + home.Random(16)
	out, lent := filepath.Join(w.ws, "outside"), filepath.Join(w.base, "lent")
	w.write(filepath.Join(out, "secret"), "secret of "+token+"\n", 0o600)
	w.write(filepath.Join(out, "movable"), "m\n", 0o600)
	w.write(filepath.Join(w.home, ".ssh/id"), "secret\n", 0o600)
	w.mkdir(lent)
	w.mkdir(w.asp)
	must(t, os.Chmod(w.asp, 0o700))
	a.attacker = filepath.Join(lent, "attacker")
	self, err := os.Executable()
	must(t, err)
	copyProgram(t, self, a.attacker, 0o755)
	w.own(a.attacker)
	if os.Geteuid() == 0 { // nobody else can make what would be worth executing
		copyProgram(t, self, filepath.Join(lent, "setid"), 0o6755)
		copyProgram(t, self, w.path("setid"), 0o6755)
		copyProgram(t, self, filepath.Join(lent, "capable"), 0o755)
		must(t, unix.Setxattr(filepath.Join(lent, "capable"), "security.capability", capAll(), 0))
	}
	seen := ""
	if os.Geteuid() == 0 { // a place that is neither one for temporary files nor somebody's home
		seen, err = os.MkdirTemp("/var/lib", "asp-escape-")
		must(t, err)
		t.Cleanup(func() { os.RemoveAll(seen) })
		w.own(seen)
		w.write(filepath.Join(seen, "secret"), "secret of "+token+"\n", 0o600)
	}
	w.link(filepath.Join(out, "secret"), "link")
	w.link(out, "linkdir")
	w.config(`{}`)
	w.commit()
	var st unix.Stat_t
	must(t, unix.Stat(filepath.Join(out, "secret"), &st))
	a.bait = &bait{Root: w.root, Home: w.home, State: w.asp, Outside: out, Lent: lent, Seen: seen, Dev: uint64(st.Dev), Ino: st.Ino, Token: token}
	a.lay()
	raw, err := os.ReadFile("/proc/self/mountinfo")
	must(t, err)
	a.mounts = string(raw)
	return a
}

func copyProgram(t testing.TB, from, to string, mode uint32) {
	t.Helper()
	in, err := os.Open(from)
	must(t, err)
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_EXCL, 0o700)
	must(t, err)
	_, err = io.Copy(out, in)
	must(t, errors.Join(err, out.Close()))
	must(t, unix.Chmod(to, mode))
}

// lay starts the bait's process, which tells what it made.
func (a *arena) lay() {
	a.t.Helper()
	// Nothing in it names the world, whose other processes are counted.
	cmd := a.command("/", "/proc/self/exe", attackerWord, "bait", a.bait.encode(), a.bait.Token+"-bait")
	cmd.Env = []string{"TOKEN=" + a.bait.Token}
	cmd.SysProcAttr.Setsid = true
	in, err := cmd.StdinPipe()
	must(a.t, err)
	out, err := cmd.StdoutPipe()
	must(a.t, err)
	var errs strings.Builder
	cmd.Stderr = &errs
	must(a.t, cmd.Start())
	said := bufio.NewReader(out)
	line, err := said.ReadString('\n')
	if err != nil {
		_ = cmd.Wait()
		a.t.Fatalf("no bait: %v %s", err, errs.String())
	}
	must(a.t, a.bait.decode(strings.TrimSpace(line)))
	once := ""
	a.stop = func() string {
		if once == "" {
			in.Close()
			rest, _ := io.ReadAll(said)
			_ = cmd.Wait()
			once = string(rest)
		}
		return once
	}
	a.t.Cleanup(func() { a.stop() })
}

// env is what the user has in his environment, and a sandbox must not.
func (a *arena) loaded() []string {
	return []string{"CLOUD_SECRET_KEY=" + a.bait.Token, "SSH_AUTH_SOCK=" + a.bait.Outside + "/sock", "LD_LIBRARY_PATH=/nonexistent/" + a.bait.Token, "GIT_ALTERNATE_OBJECT_DIRECTORIES=/nonexistent"}
}

// launch runs a program as a careless shell would: with descriptors left open, a
// terminal as standard input and controlling terminal, secrets in the environment
// and a key in the session keyring.
func (a *arena) launch(name string, args ...string) *result {
	a.t.Helper()
	secret, err := os.Open(a.bait.secret())
	must(a.t, err)
	defer secret.Close()
	dir, err := os.Open(a.bait.Outside)
	must(a.t, err)
	defer dir.Close()
	master, slave := terminal(a.t)
	defer master.Close()
	defer slave.Close()
	cmd := a.command(a.root, name, args...)
	cmd.Env = append(cmd.Env, a.loaded()...)
	cmd.ExtraFiles = []*os.File{secret, dir}
	cmd.Stdin = slave
	cmd.SysProcAttr.Setsid, cmd.SysProcAttr.Setctty = true, true
	var wait func() *result
	done := make(chan struct{})
	// A keyring belongs to a thread, and children have that of the thread which
	// starts them. This one ends with its goroutine.
	go func() {
		defer close(done)
		runtime.LockOSThread()
		a.addKey()
		wait = a.begin(cmd, args)
	}()
	<-done
	if wait == nil {
		a.t.FailNow()
	}
	return wait()
}

// addKey puts a key into a new session keyring of the calling thread.
func (a *arena) addKey() {
	if _, err := unix.KeyctlJoinSessionKeyring(""); err != nil {
		return // a kernel without keys
	}
	id, err := unix.AddKey("user", a.bait.Token, []byte("secret"), unix.KEY_SPEC_SESSION_KEYRING)
	if err == nil && a.cred != nil {
		_, err = unix.KeyctlInt(unix.KEYCTL_CHOWN, id, int(a.cred.Uid), int(a.cred.Gid), 0)
	}
	if err != nil {
		a.t.Errorf("add a key: %v", err)
	}
	a.key = err == nil
}

// terminal makes a pair of pseudo terminals.
func terminal(t testing.TB) (master, slave *os.File) {
	t.Helper()
	m, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		need.Missing(t, "there are no terminals: %v", err)
	}
	must(t, unix.IoctlSetPointerInt(int(m.Fd()), unix.TIOCSPTLCK, 0))
	n, err := unix.IoctlGetInt(int(m.Fd()), unix.TIOCGPTN)
	must(t, err)
	s, err := os.OpenFile(fmt.Sprint("/dev/pts/", n), os.O_RDWR|unix.O_NOCTTY, 0)
	must(t, err)
	return m, s
}

// untouched fails where anything that has to stay as it was did not: bytes and
// modes of the workspace and what lies beside it, home, state, the bait's process,
// and the mounts and processes of this machine.
func (a *arena) untouched(m *before) {
	a.t.Helper()
	m.unchanged()
	a.holdsOnly(a.home, ".ssh")
	if a.bait.Seen != "" {
		a.holdsOnly(a.bait.Seen, "secret", "sock", "fifo")
	}
	a.holdsOnly(filepath.Join(a.base, "lent"), "attacker", "setid", "capable")
	if es, _ := os.ReadDir(filepath.Join(a.asp, "scratch")); len(es) > 0 {
		a.t.Errorf("%d scratch directories are left", len(es))
	}
	a.gone(filepath.Join(a.asp, "escaped"))
	for _, d := range []string{"/", "/usr", "/etc", "/tmp", "/dev/shm"} {
		a.gone(filepath.Join(d, "escaped"))
	}
	if err := unix.Kill(a.bait.Pid, 0); err != nil {
		a.t.Errorf("the bait's process: %v", err)
	}
	raw, err := os.ReadFile("/proc/self/mountinfo")
	must(a.t, err)
	if strings.Contains(string(raw), a.base) && string(raw) != a.mounts {
		a.t.Errorf("mounts of the machine:\n%s", raw)
	}
	must(a.t, filepath.WalkDir(a.base, func(p string, _ os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		var st syscall.Stat_t
		if err := syscall.Lstat(p, &st); err != nil {
			return err
		}
		if st.Mode&syscall.S_IFMT == syscall.S_IFREG && st.Mode&0o6000 != 0 && filepath.Base(p) != "setid" {
			a.t.Errorf("%s is left with mode %o", p, st.Mode)
		}
		return nil
	}))
}

// holdsOnly fails where a directory has other names than these.
func (a *arena) holdsOnly(dir string, names ...string) {
	a.t.Helper()
	es, err := os.ReadDir(dir)
	must(a.t, err)
	for _, e := range es {
		ok := false
		for _, n := range names {
			ok = ok || e.Name() == n
		}
		if !ok {
			a.t.Errorf("%s is in %s", e.Name(), dir)
		}
	}
}
