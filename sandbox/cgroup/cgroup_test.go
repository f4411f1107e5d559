//go:build linux

package cgroup

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/aspengine/asp/internal/need"
	"golang.org/x/sys/unix"
)

const helperVar = "ASP_CGROUP_TEST_HELPER"

func TestMain(m *testing.M) {
	switch os.Getenv(helperVar) {
	case "":
		os.Exit(m.Run())
	case "own": // make a group with a process in it, say so, and wait to be killed
		t, err := Find()
		check(err)
		g, err := t.New()
		check(err)
		c := exec.Command("sleep", "100000")
		c.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(g.Init().Fd())}
		check(c.Start())
		fmt.Println(g.name, c.Process.Pid)
	case "delegate": // in a group of its own, be told that all are in it, and hand hugetlb down
		t := Tree{unified: os.Getenv("OWN")}
		_, _ = io.ReadFull(os.Stdin, make([]byte, 1))
		err := t.delegate("hugetlb")
		own, _ := os.ReadFile("/proc/self/cgroup")
		fmt.Printf("%v %v\n", err, strings.HasSuffix(strings.TrimSpace(string(own)), filepath.Base(t.unified)))
	}
	_, _ = io.Copy(io.Discard, os.Stdin)
	os.Exit(0)
}

func check(err error) {
	if err != nil {
		fmt.Println(err)
		os.Exit(3)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func group(t *testing.T) (Tree, *Group) {
	t.Helper()
	tree, err := Find()
	must(t, err)
	g, err := tree.New()
	if err != nil {
		if os.Geteuid() != 0 && (errors.Is(err, fs.ErrPermission) || errors.Is(err, fs.ErrNotExist)) {
			t.Skipf("nothing is delegated to this user: %v", err)
		}
		need.Missing(t, "no control group can be made: %v", err)
	}
	t.Cleanup(func() { must(t, g.Close()) })
	return tree, g
}

func TestParse(t *testing.T) {
	const v2 = "30 1 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw\n"
	for _, c := range []struct {
		name, own, mounts string
		unified           string
		v1                string
	}{
		{"unified", "0::/user.slice/a.scope\n", v2, "/sys/fs/cgroup/user.slice/a.scope", "map[]"},
		{"own root", "0::/\n", v2, "/sys/fs/cgroup", "map[]"},
		{"hybrid", "9:name=systemd:/x\n4:memory:/m/1\n2:cpu,cpuacct:/\n0::/\n",
			"1 0 0:1 / /c/mem rw - cgroup cgroup rw,memory\n2 0 0:2 / /c/cpu\\040x rw - cgroup cgroup rw,cpu,cpuacct\n3 0 0:3 / /c/u rw - cgroup2 cgroup2 rw\n",
			"/c/u", "map[cpu:/c/cpu x memory:/c/mem/m/1]"},
		{"a part is mounted", "0::/docker/7/sub\n", "30 1 0:26 /docker/7 /sys/fs/cgroup rw - cgroup2 c rw\n", "/sys/fs/cgroup/sub", "map[]"},
		{"another part is mounted", "0::/docker/77\n", "30 1 0:26 /docker/7 /sys/fs/cgroup rw - cgroup2 c rw\n", "", "map[]"},
		{"outside of the namespace", "0::/../other\n", v2, "", "map[]"},
		{"removed", "0::/gone (deleted)\n", v2, "", "map[]"},
		{"no groups", "", "1 0 0:1 / / rw - ext4 /dev/x rw\n", "", "map[]"},
		{"garbage", "x\n::\n0::\n", "cgroup2\n - cgroup2\n", "", "map[]"},
	} {
		got := parse(c.own, c.mounts)
		if got.unified != c.unified || fmt.Sprint(got.v1) != c.v1 {
			t.Errorf("%s: %q %v", c.name, got.unified, got.v1)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("4:memory:/m/1\n0::/a\n", "1 0 0:1 / /c rw - cgroup2 x rw\n")
	f.Fuzz(func(t *testing.T, own, mounts string) {
		if d := parse(own, mounts).unified; d != "" && strings.Contains(d+"/", "/../") {
			t.Errorf("%q", d)
		}
	})
}

func TestSettings(t *testing.T) {
	for _, c := range []struct {
		c    string
		n    uint64
		v1   bool
		want string
	}{
		{Memory, 1 << 20, false, "[{memory.max 1048576 false} {memory.swap.max 0 true} {memory.oom.group 1 true}]"},
		{Memory, 1 << 20, true, "[{memory.limit_in_bytes 1048576 false} {memory.memsw.limit_in_bytes 1048576 true}]"},
		{Pids, 7, false, "[{pids.max 7 false}]"}, {Pids, 7, true, "[{pids.max 7 false}]"},
		{CPU, 150, false, "[{cpu.max 150000 100000 false}]"}, {CPU, 50, true, "[{cpu.cfs_period_us 100000 false} {cpu.cfs_quota_us 50000 false}]"},
		{CPU, 0, false, "[{cpu.max 1000 100000 false}]"}, // the kernel takes no less
	} {
		if got := fmt.Sprint(settings(c.c, c.n, c.v1)); got != c.want {
			t.Errorf("%s %d: %s, want %s", c.c, c.n, got, c.want)
		}
	}
	d := t.TempDir()
	if err := set(d, settings(Pids, 7, false)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a controller without its file: %v", err)
	}
	must(t, os.WriteFile(filepath.Join(d, "memory.max"), nil, 0o644))
	if err := set(d, settings(Memory, 9, false)); err != nil {
		t.Errorf("optional files: %v", err)
	}
	if b, _ := os.ReadFile(filepath.Join(d, "memory.max")); string(b) != "9" {
		t.Errorf("wrote %q", b)
	}
}

func TestRecord(t *testing.T) {
	name, err := newName()
	must(t, err)
	me, err := self()
	must(t, err)
	if o, ok := parseName(name); !ok || o != me || o.dead(me) {
		t.Errorf("%s: %+v %v", name, o, ok)
	}
	for _, n := range []string{"", "asp-", "asp-1-2-3", "asp-1-2-3-0123", "asp--1-2-3-0123456789abcdef", "asp-0-2-3-0123456789abcdef", "user.slice", "x" + name} {
		if _, ok := parseName(n); ok {
			t.Errorf("%q taken for a record", n)
		}
	}
	for _, c := range []struct {
		o    owner
		dead bool
	}{
		{owner{me.pid, me.start + 1, me.pidns}, true},      // the number was used again
		{owner{me.pid, me.start + 1, me.pidns + 1}, false}, // counted elsewhere: cannot be told
		{owner{1 << 22, me.start, me.pidns}, true},         // beyond what pids can be
		{owner{1, me.start + 1<<40, me.pidns + 1<<9}, false},
	} {
		if c.o.dead(me) != c.dead {
			t.Errorf("%+v: dead %v", c.o, !c.dead)
		}
	}
}

// Close ends all that is in a group, however it detached itself.
func TestCloseKills(t *testing.T) {
	_, g := group(t)
	c := exec.Command("sh", "-c", "setsid sh -c 'trap \"\" TERM HUP; sleep 100000 & echo $!; wait' & wait")
	c.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(g.Init().Fd())}
	out, err := c.StdoutPipe()
	must(t, err)
	must(t, c.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	must(t, err)
	pid, err := strconv.Atoi(strings.TrimSpace(line))
	must(t, err)
	if err := unix.Rmdir(g.part("init")); err != unix.EBUSY {
		t.Errorf("the group is not in use: %v", err)
	}
	must(t, g.Close())
	_ = c.Wait()
	if _, state, err := readStat(pid); err == nil && state != 'Z' && state != 'X' {
		t.Errorf("process %d is in state %c", pid, state)
	}
	if _, err := os.Lstat(g.top); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the group is still there: %v", err)
	}
}

// What a killed owner leaves is ended and removed by the next; what a living one has is
// not touched.
func TestSweepByProofOfDeath(t *testing.T) {
	tree, mine := group(t)
	c := exec.Command("/proc/self/exe")
	c.Env = append(os.Environ(), helperVar+"=own")
	in, err := c.StdinPipe()
	must(t, err)
	defer in.Close()
	out, err := c.StdoutPipe()
	must(t, err)
	must(t, c.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	var name string
	var pid int
	if _, serr := fmt.Sscan(line, &name, &pid); err != nil || serr != nil {
		t.Fatalf("%q: %v, %v", line, err, serr)
	}
	if swept, err := tree.Sweep(); err != nil || slices.Contains(swept, name) || slices.Contains(swept, mine.name) {
		t.Errorf("swept a living owner's: %v, %v", swept, err)
	}
	must(t, c.Process.Kill())
	_ = c.Wait()
	if _, _, err := readStat(pid); err != nil {
		t.Fatalf("the process in the group is gone already: %v", err)
	}
	_, err = tree.Sweep() // another test's sweep may have been first
	must(t, err)
	if _, err := os.Lstat(filepath.Join(tree.unified, name)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a dead owner's group is there: %v", err)
	}
	if _, state, err := readStat(pid); err == nil && state != 'Z' && state != 'X' {
		t.Errorf("process %d is in state %c", pid, state)
	}
	if _, err := os.Lstat(mine.top); err != nil {
		t.Error(err)
	}
}

// The bounds hold for whoever enters, and for all who are in there together.
func TestBoundsHold(t *testing.T) {
	_, g := group(t)
	enter, held, why, err := g.Bound(Limits{MemoryBytes: 64 << 20, Processes: 20, CPUPct: 50})
	must(t, err)
	t.Logf("held %v, missing %v", held, why)
	for _, c := range controllers {
		if held[c] == (why[c] != nil) {
			t.Errorf("%s: held %v, reason %v", c, held[c], why[c])
		}
	}
	run := func(script string) (string, error) {
		var in strings.Builder
		for i := range enter {
			fmt.Fprintf(&in, "echo 0 >&%d; ", 3+i)
		}
		c := exec.Command("sh", "-c", in.String()+script)
		c.ExtraFiles = enter
		b, err := c.CombinedOutput()
		return string(b), err
	}
	if held[Memory] {
		if out, err := run("exec dd if=/dev/zero of=/dev/null bs=200M count=1"); err == nil {
			t.Errorf("200 MiB under a limit of 64: %s", out)
		}
	}
	if out, err := run("dd if=/dev/zero of=/dev/null bs=1M count=10 2>/dev/null; echo in"); err != nil || out != "in\n" {
		t.Errorf("under the limits: %v %s", err, out)
	}
	if held[Pids] {
		if out, err := run("i=0; while [ $i -lt 50 ]; do sleep 100000 >/dev/null 2>&1 & i=$((i+1)); done; echo all"); err == nil || strings.Contains(out, "all") {
			t.Errorf("fifty processes under a limit of 20: %v %s", err, out)
		}
	}
	for _, f := range enter {
		f.Close()
	}
}

// While limits are lowered a second process and more memory are refused; afterwards those of
// Bound hold, and what was not tried is doubted.
func TestLowerAndSettle(t *testing.T) {
	for _, try := range []string{"echo start >&2; true & wait", "true"} {
		_, g := group(t)
		enter, held, _, err := g.Bound(Limits{MemoryBytes: 64 << 20, Processes: 20, CPUPct: 50})
		must(t, err)
		if !held[Pids] {
			need.Missing(t, "processes cannot be bounded")
		}
		run := func(script string) (string, error) {
			in := ""
			for i := range enter {
				in += fmt.Sprintf("echo 0 >&%d; ", 3+i)
			}
			c := exec.Command("sh", "-c", in+script)
			c.ExtraFiles = enter
			b, err := c.CombinedOutput()
			return string(b), err
		}
		must(t, g.Lower(false))
		out, err := run(try)
		forks := try != "true"
		if forks && err == nil {
			t.Errorf("a second process where there may be one: %s", out)
		}
		doubts, err := g.Settle(Pids)
		must(t, err)
		if (doubts[Pids] == nil) != forks || doubts[CPU] != nil {
			t.Errorf("tried with %q: %v", try, doubts)
		}
		if out, err := run("true & true & wait; echo in"); err != nil || out != "in\n" {
			t.Errorf("under the limits: %v %s", err, out)
		}
		for _, f := range enter {
			f.Close()
		}
	}
}

// What the kernel counted and what it says is set, in either version, on files of ours.
func TestSettleReads(t *testing.T) {
	page := uint64(os.Getpagesize())
	n := 100*page + 1
	whole, asked := fmt.Sprint(100*page), fmt.Sprint(n)
	for _, c := range []struct {
		name  string
		b     bound
		files map[string]string
		doubt string
	}{
		{"pids", bound{controller: Pids, n: 20}, map[string]string{"pids.max": "1", "pids.events": "max 1\n"}, ""},
		{"pids, none refused", bound{controller: Pids, n: 20}, map[string]string{"pids.max": "1", "pids.events": "max 0\n"}, "nothing was refused"},
		{"pids, not counted", bound{controller: Pids, n: 20}, map[string]string{"pids.max": "1", "pids.events": "else 1\n"}, "nothing was refused"},
		{"pids, another value", bound{controller: Pids, n: 20}, map[string]string{"pids.max": "1xx", "pids.events": "max 1\n"}, `pids.max is "20x"`},
		{"memory", bound{controller: Memory, n: 100 * page}, map[string]string{"memory.max": "1", "memory.events": "low 7\nhigh 7\nmax 3\noom 0\n", "memory.swap.max": "0"}, ""},
		{"memory, none refused", bound{controller: Memory, n: 100 * page}, map[string]string{"memory.max": "1", "memory.events": "low 7\nhigh 7\nmax 0\noom 7\n"}, "nothing was refused"},
		{"memory, with swap", bound{controller: Memory, n: 100 * page}, map[string]string{"memory.max": "1", "memory.events": "max 3\n", "memory.swap.max": "max"}, `memory.swap.max is "0ax"`},
		{"memory, not whole pages", bound{controller: Memory, n: n}, map[string]string{"memory.max": asked, "memory.events": "max 3\n"}, "memory.max is \"" + asked + "\", not \"" + whole},
		{"memory, version 1", bound{controller: Memory, n: 100 * page, v1: true}, map[string]string{"memory.limit_in_bytes": "1", "memory.failcnt": "9\n"}, ""},
		{"memory, version 1, none refused", bound{controller: Memory, n: 100 * page, v1: true}, map[string]string{"memory.limit_in_bytes": "1", "memory.failcnt": "0\n"}, "nothing was refused"},
		{"cpu", bound{controller: CPU, n: 50}, map[string]string{"cpu.max": "1", "cpu.stat": "nr_periods 7\nnr_throttled 1\n"}, ""},
		{"cpu, none refused", bound{controller: CPU, n: 50}, map[string]string{"cpu.max": "1", "cpu.stat": "nr_periods 7\nnr_throttled 0\n"}, "nothing was refused"},
		{"cpu, another value", bound{controller: CPU, n: 50}, map[string]string{"cpu.max": "50000 100000, of 7", "cpu.stat": "nr_throttled 1\n"}, `cpu.max is "50000 100000, of 7"`},
		{"cpu, version 1", bound{controller: CPU, n: 50, v1: true}, map[string]string{"cpu.cfs_period_us": "1", "cpu.cfs_quota_us": "50000 of 7", "cpu.stat": "nr_throttled 1\n"}, `cpu.cfs_quota_us is "50000 of 7"`},
	} {
		c.b.dir = t.TempDir()
		for f, text := range c.files {
			must(t, os.WriteFile(filepath.Join(c.b.dir, f), []byte(text), 0o644))
		}
		g := &Group{bounds: []bound{c.b}}
		doubts, err := g.Settle(c.b.controller)
		must(t, err)
		if d := doubts[c.b.controller]; (d == nil) != (c.doubt == "") || d != nil && !strings.Contains(d.Error(), c.doubt) {
			t.Errorf("%s: %v, want %q", c.name, d, c.doubt)
		}
	}
}

// A process that is alone in its group moves into a part of it to hand a controller
// down; one that is not moves nobody.
func TestDelegate(t *testing.T) {
	tree, g := group(t)
	if err := enable(tree.unified, "hugetlb"); err != nil {
		t.Skipf("there is no controller to try it with: %v", err)
	}
	if err := enable(g.top, "hugetlb"); err != nil {
		t.Skipf("there is no controller to try it with: %v", err)
	}
	for _, alone := range []bool{true, false} {
		own := g.part(fmt.Sprintf("own-%v", alone))
		must(t, os.Mkdir(own, 0o755))
		dir, err := os.OpenFile(own, unix.O_PATH|unix.O_DIRECTORY, 0)
		must(t, err)
		start := func(name string, arg ...string) (*exec.Cmd, io.WriteCloser, *bufio.Reader) {
			c := exec.Command(name, arg...)
			c.Env = append(os.Environ(), helperVar+"=delegate", "OWN="+own)
			c.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(dir.Fd())}
			in, err := c.StdinPipe()
			must(t, err)
			out, err := c.StdoutPipe()
			must(t, err)
			must(t, c.Start())
			return c, in, bufio.NewReader(out)
		}
		c, in, out := start("/proc/self/exe")
		others := []*exec.Cmd{c}
		if !alone {
			o, _, _ := start("sleep", "100000")
			others = append(others, o)
		}
		_, err = in.Write([]byte{'x'})
		must(t, err)
		line, err := out.ReadString('\n')
		must(t, err)
		want := "<nil> false\n"
		if !alone {
			want = "device or resource busy true\n"
		}
		if !strings.HasSuffix(line, want) {
			t.Errorf("alone %v: %q, want %q", alone, line, want)
		}
		for _, c := range others {
			_ = c.Process.Kill()
			_ = c.Wait()
		}
		dir.Close()
		parts, err := readNames(own)
		must(t, err)
		for _, p := range parts {
			if _, ok := parseName(p); ok {
				must(t, rmdir(filepath.Join(own, p)))
			}
		}
		must(t, rmdir(own))
	}
}
