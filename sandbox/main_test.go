//go:build linux

package sandbox_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/aspengine/asp/sandbox"
	"github.com/aspengine/asp/sandbox/sandboxtest"
	"go.uber.org/goleak"
)

// helperVar makes the test binary act as a host of its own, in a process whose
// environment, descriptors and death the test decides.
const helperVar = "ASP_SANDBOX_TEST_HELPER"

func TestMain(m *testing.M) {
	if h := os.Getenv(helperVar); h != "" {
		os.Exit(helper(h))
	}
	goleak.VerifyTestMain(m)
}

func helper(what string) int {
	ctx := context.Background()
	switch what {
	case "reach":
		return reachOut()
	case "filtered":
		return sandbox.AskKernel()
	case "run": // sh -c $SCRIPT in namespaces, or plain
		caps := sandbox.Caps{}
		if os.Getenv("PLAIN") == "" {
			caps = sandbox.Probe(ctx, sandbox.ProbeDirs{})
		}
		res, err := sandbox.Run(ctx, caps, sandbox.Spec{
			Argv: []string{"sh", "-c", os.Getenv("SCRIPT")}, Dir: "/", Require: sandbox.Advisory,
			Env: map[string]string{"PATH": os.Getenv("PATH")}, MergeOutput: true,
		})
		fmt.Printf("%s\nerr=%v\n", res.Stdout, err)
	case "covered": // what a command reaches at $AT, where this process listens
		l, err := net.Listen("unix", os.Getenv("AT"))
		exe, xerr := os.Executable()
		if err = errors.Join(err, xerr); err != nil {
			fmt.Println(err)
			return 1
		}
		defer l.Close()
		res, err := sandbox.Run(ctx, sandbox.Probe(ctx, sandbox.ProbeDirs{}), sandbox.Spec{
			Argv: []string{"sh", "-c", "ls $AT; echo stream $AT | " + exe}, Dir: "/", Require: sandbox.Gated, Protect: []sandbox.Protect{{Path: os.Getenv("PROTECT")}},
			Env: map[string]string{"PATH": os.Getenv("PATH"), helperVar: "reach", "AT": os.Getenv("AT")}, MergeOutput: true,
			Mounts: []sandbox.Mount{{Kind: sandbox.MountBindRO, Source: exe, Target: exe}},
		})
		fmt.Printf("%s%s %v %s\n", res.Stdout, res.Boundary.Level, err, res.Boundary.Evidence)
	case "shown": // sh -c $SCRIPT in a launch that protects $PROTECT, after the file system $DEAD was shut down
		if at := os.Getenv("DEAD"); at != "" {
			if err := shutDown(at); err != nil {
				fmt.Println(err)
				return 1
			}
		}
		res, err := sandbox.Run(ctx, sandbox.Probe(ctx, sandbox.ProbeDirs{}), sandbox.Spec{
			Argv: []string{"sh", "-c", os.Getenv("SCRIPT")}, Dir: "/", Require: sandbox.Gated, Protect: []sandbox.Protect{{Path: os.Getenv("PROTECT")}},
			Env: map[string]string{"PATH": os.Getenv("PATH")}, MergeOutput: true,
		})
		fmt.Printf("%s%s %v %s\n", res.Stdout, res.Boundary.Level, err, res.Boundary.Evidence)
	case "many": // eight launches at a time, until it is killed
		caps := sandbox.Probe(ctx, sandbox.ProbeDirs{})
		if os.Getenv("PLAIN") != "" {
			caps = sandbox.Caps{}
		}
		var first sync.Once
		fmt.Println("up")
		for range 8 {
			go func() {
				for ; ; first.Do(func() { fmt.Println("launched") }) {
					_, _ = sandbox.Run(ctx, caps, sandbox.Spec{
						Argv: []string{"sleep", os.Getenv("WORD")}, Dir: "/", Require: sandbox.Advisory,
						Env: map[string]string{"PATH": os.Getenv("PATH")}, Limits: sandbox.Limits{Wall: 5 * time.Millisecond},
					})
				}
			}()
		}
		select {}
	case "probe-without-user-namespaces":
		if err := os.WriteFile("/proc/sys/user/max_user_namespaces", []byte("0"), 0); err != nil {
			fmt.Println("cannot set up:", err)
			return 3
		}
		caps := sandbox.Probe(ctx, sandbox.ProbeDirs{})
		fmt.Println(caps.UserNS.Answer, caps.UserNS.Errno, caps.Namespaces())
		_, err := sandbox.Run(ctx, caps, sandbox.Spec{Argv: []string{"true"}, Dir: "/", Require: sandbox.MediatedWrite})
		fmt.Println(err)
		// Who expected more is told before anything runs, whatever was required.
		for _, spare := range []*sandbox.Spare{nil, sandbox.NewSpare(sandbox.Expected())} {
			_, err = sandbox.Run(ctx, sandbox.Expected(), sandbox.Spec{Argv: []string{"echo", "it ran"}, Dir: "/", Require: sandbox.Advisory, Spare: spare})
			fmt.Println("expected:", errors.Is(err, sandbox.ErrUnsupported))
			spare.Close()
		}
	}
	return 0
}

func TestAsOrdinaryUser(t *testing.T) { sandboxtest.AsUser(t) }
