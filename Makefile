# make          build ./bin/asp
# make run      the main job on a bundled real example
# make test     all tests
# make check    what a change has to pass: gofmt, vet, staticcheck, all tests, those of one process with the race detector
# make fuzz     each fuzz target for a fixed number of runs; FUZZ=long for an hour each, FUZZTIME=10m for at least that long
# make corpus   put the best of what fuzzing found into testdata/fuzz, to be committed
# make crash    the long sweeps of kills and power cuts
# make portable the engine as macOS has it, on Linux: what is below the engine built without what only Linux has
# make powercut cut the power of ext4, xfs and btrfs at random moments under load, POWERCUTS times each; needs root and loop devices
# make linear   a checker of linearizability judges OPS operations of many clients and an editor, in rounds of 2,000 plans
# make mutants  take every protection out in turn and see that a test notices
# make bench    measure beside other tools in the same run, rows in bin/bench.json too; BENCH=full for the sizes of docs/performance.md
# make peers    put the tools that bench compares with into bin/peers (npm, Go; half a gigabyte); bench names the absent ones
# make chart    draw docs/bench.svg from docs/bench.json, and put its rows into docs/performance.md

SHELL := /bin/bash
GO ?= go
FUZZ ?= short
FUZZTIME ?= $(if $(filter long,$(FUZZ)),1h)
BENCH ?= short
CRASH ?= long
PEERS = bin/peers
POWERCUTS ?= 2000
OPS ?= 1000000

# Tests make and remove very many small files, and sync them: they live in
# memory where that is possible. The variable TESTDIR chooses another place. A
# TMPDIR with white space is left alone: shell scripts in tests name what is there.
# What the umask does has tests of its own; all others mean the usual one.
TESTDIR ?= $(shell d=$$(mktemp -d /dev/shm/asp-XXXXXX 2>/dev/null) && rmdir $$d && echo /dev/shm || case "$$TMPDIR" in (''|*[[:space:]]*) echo /tmp;; (*) echo "$$TMPDIR";; esac)
INDIR = umask 022 && d=$$(mktemp -d "$(TESTDIR)/asp-test-XXXXXX") && chmod 755 "$$d" && trap 'chmod -R u+rwX "'"$$d"'" 2>/dev/null; rm -rf "'"$$d"'"' EXIT && export TMPDIR="$$d" GOTMPDIR="$$d" &&

.PHONY: build run test check lint race bench fuzz corpus crash portable powercut linear mutants peers chart clean
# Without cgo: nothing here needs libc, and linking it doubles the start-up time.
build:
	CGO_ENABLED=0 $(GO) build -o bin/asp ./cmd/asp

run: build
	$(GO) run ./fixtures/demo/run bin/asp

test:
	$(INDIR) $(GO) test ./...

lint:
	@f=$$(gofmt -l $$(git ls-files -co --exclude-standard '*.go')); [ -z "$$f" ] || { echo "gofmt -w $$f"; exit 1; }
	$(GO) mod tidy -diff
	$(GO) vet ./...
	$(GO) tool staticcheck ./...
	$(GO) test ./internal/archtest

# These rooms are tried through the processes that they start, the built binary or
# their own test binary again. A race detector in those sees nothing of the parent,
# and takes a second or more for every start.
OUTSIDE = /casetest$$|/seam/host/hosttest$$|/seam/conformance$$|/sandbox$$|/checks/command$$|/worktree$$|/archtest/elsewhere$$

# The same of single tests in rooms that are worth the detector otherwise.
LAUNCH = TestAsOrdinaryUser|TestNetworkTakesAll|TestNetworkOfA|TestVerdictsAreRemembered|TestEvaluate|TestRequestEdit|TestWhoseAuthority|TestStatusShowsProviders|TestApplyOfItsOwnPolicy|TestNothingIsLeft|TestQuarantine|TestEndsAfterItsAnswer|TestGT08InheritedVariables|TestKeptPlansAreBounded|TestApplyAsksProviders|TestSB01_IsolatedIsAskedFor|TestWeakAssurance

race:
	$(INDIR) $(GO) test -race -shuffle=on -skip '$(LAUNCH)' $$($(GO) list ./... | grep -vE '$(OUTSIDE)') && \
	  $(GO) test -shuffle=on -run '$(LAUNCH)' ./apply ./seam/provider && \
	  $(GO) test -shuffle=on $$($(GO) list ./... | grep -E '$(OUTSIDE)')

check: lint race

fuzz:
	$(INDIR) GO='$(GO)' .ci/fuzz $(FUZZTIME)

corpus:
	$(INDIR) GO='$(GO)' .ci/corpus

crash: bin/tools/gopls
	$(INDIR) PATH=$(CURDIR)/bin/tools:$$PATH ASP_CRASH=$(CRASH) $(GO) test -timeout 120m $$(grep -rl --include='*_test.go' ASP_CRASH . | xargs -n1 dirname | sort -u)

portable:
	$(INDIR) PATH=$$PATH:/usr/sbin:/sbin $(GO) test -tags portablefs ./internal/vfs/... ./internal/lock ./internal/home ./snapshot/... ./preconditions ./receipt ./apply/...

powercut:
	$(INDIR) PATH=$$PATH:/usr/sbin:/sbin REQUIRE_POWERCUT=1 POWERCUTS=$(POWERCUTS) $(GO) test -count=1 -v -timeout 24h -run 'TestPowerCut$$' ./casetest

linear:
	$(INDIR) LINEAR_OPS=$(OPS) $(GO) test -count=1 -v -timeout 48h -run 'TestLinearizable$$' ./seam/host/hosttest

mutants:
	$(INDIR) $(GO) run ./experiments/mutants

bench:
	@mkdir -p bin
	$(INDIR) CGO_ENABLED=0 $(GO) run ./bench -$(BENCH) -json bin/bench.json

peers: $(PEERS)/gopls
	npm install --prefix $(PEERS) --ignore-scripts --no-audit --no-fund @openai/codex@0.171.0 @ast-grep/cli@0.51.1 @anthropic-ai/sandbox-runtime@0.0.78

GOPLS = golang.org/x/tools/gopls@v0.22.0
$(PEERS)/gopls:
	GOBIN=$(CURDIR)/$(PEERS) $(GO) install $(GOPLS)

# For tests, which do not measure it: not optimised, which takes a quarter less processor
# time to build. The library is left as it is, so that it comes from the cache.
QUICK = -N -l -dwarf=false
bin/tools/gopls:
	GOBIN=$(CURDIR)/bin/tools $(GO) install '-ldflags=-s -w' '-gcflags=golang.org/x/...=$(QUICK)' '-gcflags=honnef.co/...=$(QUICK)' $(GOPLS)

chart:
	$(GO) run ./bench -json docs/bench.json -chart docs/bench.svg -page docs/performance.md

clean:
	rm -rf bin
