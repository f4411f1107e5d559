package archtest

// room is one row of the import table: what a package may import of this module,
// and why it needs that. Rooms are named by their path in the module.
type room struct {
	name    string
	imports []string
	why     string
}

// rooms holds every package. An import that is not here is forbidden; one that is
// here and not used has to go.
var rooms = []room{
	{"internal/refusal", nil, "a refusal is a value without behaviour; everybody may speak of it"},
	{"internal/canon", nil, "JSON in, JSON out"},
	{"internal/crc32c", nil, "a checksum"},
	{"internal/vfs", nil, "the system calls, and nothing that knows what they are for"},
	{"internal/vfs/faultfs", []string{"internal/vfs"}, "wraps any file system"},
	{"internal/vfs/memfs", []string{"internal/vfs"}, "is a file system"},
	{"internal/vfs/vfstest", []string{"internal/vfs"}, "one suite that every file system passes"},
	{"internal/home", []string{"internal/canon", "internal/vfs"}, "the state directory: canonical files through the file-system layer"},
	{"internal/lock", []string{"internal/vfs"}, "locks on handles of the file-system layer"},
	{"internal/need", nil, "what tests need of the machine"},

	{"seam/wire", []string{"internal/canon", "internal/refusal"}, "messages are decoded from values and refused by code"},
	{"seam/schema", []string{"internal/canon", "seam/wire"}, "describes the types of the messages"},
	{"seam/manifest", []string{"internal/canon", "internal/home", "internal/vfs", "sandbox/egress", "seam/wire"}, "manifests in the state directory, the files that they name, and what they expect to reach"},
	{"seam/rpc", []string{"internal/canon", "seam/wire"}, "a connection: lines, envelopes and pairing; the errors in them are messages"},
	{"sandbox", []string{"internal/canon", "sandbox/cgroup"}, "starts children; knows nothing of plans or trees"},
	{"sandbox/egress", nil, "the proxy by which some of the network is let through"},
	{"sandbox/cgroup", nil, "control groups, below the caller's own"},
	{"sandbox/sandboxtest", []string{"internal/need", "sandbox"}, "helps tests to be a sandbox's child"},

	{"snapshot", []string{"internal/canon", "internal/crc32c", "internal/vfs", "snapshot/scan"}, "digests of what a walk sees"},
	{"snapshot/scan", []string{"internal/vfs"}, "a parallel walk; on Windows by the handles of vfs"},
	{"snapshot/watch", nil, "events about directories, and when they tell nothing"},
	{"snapshot/gitbase", []string{"internal/refusal", "internal/vfs", "snapshot", "snapshot/gitbase/attrs", "snapshot/gitbase/convert",
		"snapshot/gitbase/gitconfig", "snapshot/gitbase/ignore", "snapshot/scan", "snapshot/watch"}, "a workspace whose baseline is git's"},
	{"snapshot/gitbase/attrs", []string{"snapshot/gitbase/ignore/pattern"}, "attribute lines start with an ignore pattern"},
	{"snapshot/gitbase/convert", []string{"snapshot/gitbase/attrs", "snapshot/gitbase/gitconfig"}, "line ends depend on attributes and configuration"},
	{"snapshot/gitbase/gitconfig", []string{"snapshot/gitbase/ignore/pattern"}, "conditional includes match by pattern"},
	{"snapshot/gitbase/ignore", []string{"snapshot/gitbase/ignore/pattern"}, "rules are patterns"},
	{"snapshot/gitbase/ignore/pattern", nil, "matches names"},
	{"snapshot/gitbase/internal/gitoracle", nil, "runs the real git for tests"},

	{"editplan", []string{"internal/canon", "internal/refusal", "seam/wire", "snapshot"}, "turns a message into a plan over paths and digests; wire types stop here"},
	{"editplan/merge", []string{"editplan/patch/linediff"}, "three ways by two line diffs"},
	{"editplan/patch", []string{"editplan", "editplan/patch/linediff", "internal/refusal", "snapshot"}, "diffs become plans and changes become diffs"},
	{"editplan/patch/linediff", nil, "which lines differ"},

	{"receipt", []string{"internal/canon", "internal/home", "internal/lock", "internal/vfs", "seam/wire"}, "receipts are messages, kept in the state directory by one writer at a time"},
	{"preconditions", []string{"editplan", "editplan/merge", "internal/refusal", "internal/vfs", "snapshot"}, "holds a plan against the live tree"},

	{"apply/journal", []string{"internal/crc32c", "internal/vfs", "snapshot"}, "records name paths and digests"},
	{"apply/commit", []string{"apply/journal", "internal/refusal", "internal/vfs", "snapshot"}, "the only writer of the live tree: it knows changes and no plans"},
	{"apply/exchange", []string{"apply/commit", "internal/canon", "internal/home", "internal/refusal", "internal/vfs", "seam/wire", "snapshot"},
		"the publish mode that swaps the whole root; answers in the words of commit"},
	{"worktree", []string{"sandbox", "snapshot"}, "the after-state as a tree that a sandbox can show"},
	{"checks", []string{"internal/canon", "seam/wire", "snapshot", "worktree"}, "runs checks over a candidate and watches the base for drift; a provider's answer keeps the words of the protocol"},
	{"checks/command", []string{"checks", "sandbox", "sandbox/egress", "worktree"}, "a check that is a program in a sandbox over a candidate"},
	{"checks/policy", []string{"checks", "internal/canon", "internal/home", "internal/vfs", "sandbox/egress", "seam/wire"}, "decides on results by configuration; runs nothing; keeps the policies that were decided by"},
	{"seam/provider", []string{"checks", "editplan", "internal/canon", "internal/home", "internal/vfs", "sandbox", "sandbox/egress", "seam/manifest", "seam/rpc", "seam/wire",
		"snapshot", "worktree"},
		"provider processes: launched in a sandbox, held against the contract, reported as results of checks"},
	{"apply", []string{"apply/commit", "apply/exchange", "checks", "checks/command", "checks/policy", "editplan", "editplan/merge", "editplan/patch", "editplan/patch/linediff",
		"internal/canon", "internal/home", "internal/lock", "internal/refusal", "internal/vfs", "preconditions", "receipt", "sandbox",
		"seam/manifest", "seam/provider", "seam/wire", "snapshot", "snapshot/gitbase", "worktree"}, "leads one plan through all stages"},
	{"seam/host", []string{"apply", "internal/canon", "internal/lock", "internal/vfs", "seam/rpc", "seam/wire", "snapshot"},
		"the outer seam: decodes, calls apply, encodes; finds content by digest; its socket is one step under a short lock"},
	{"cmd/asp", []string{"apply", "apply/commit", "checks", "checks/policy", "editplan", "editplan/patch", "internal/canon", "internal/home", "internal/refusal",
		"internal/lock", "internal/vfs", "preconditions", "provider/bundled", "provider/bundled/gofix", "receipt", "sandbox", "seam/conformance", "seam/host", "seam/manifest", "seam/provider", "seam/schema", "seam/wire", "snapshot", "snapshot/gitbase", "snapshot/gitbase/gitconfig"}, "reads flags, calls apply, prints the answer; tells whose fault an error is"},
	{"seam/conformance", []string{"internal/canon", "seam/wire"}, "judges hosts and providers from outside, over a connection of its own: a mistake in the host's cannot hide"},

	{"provider", []string{"internal/canon", "seam/wire"}, "what a provider's author builds on: messages and nothing of the host"},
	{"provider/bundled", []string{"provider", "provider/bundled/gofix", "provider/bundled/replace", "provider/bundled/secrets", "provider/bundled/syntax"}, "lists what comes with the program"},
	{"provider/bundled/gofix", []string{"provider"}, "plans by the public package alone"},
	{"provider/bundled/replace", []string{"provider"}, "plans by the public package alone"},
	{"provider/bundled/secrets", []string{"provider"}, "checks by the public package alone"},
	{"provider/bundled/syntax", []string{"internal/canon", "provider"}, "reads JSON by the module's own parser"},
	{"provider/example", []string{"provider"}, "the example of docs/provider.md, built by an author's means"},
	{"provider/providertest", []string{"internal/canon", "provider", "seam/wire"}, "a strict little host for the tests of providers"},

	{"seam/host/hosttest", nil, "tests the binary alone"},
	{"fixtures/demo", nil, "uses the binary alone"},
	{"fixtures/demo/run", []string{"fixtures/demo"}, "shows the example"},
	{"fixtures/seeded", []string{"seam/conformance"}, "the seeded provider as a program of its own"},
	{"casetest", nil, "tests the binary alone"},
	{"bench", []string{"apply", "apply/commit", "editplan", "internal/home", "internal/refusal", "internal/vfs", "receipt", "sandbox",
		"seam/wire", "snapshot", "snapshot/gitbase", "worktree"}, "measures rooms from inside"},
	{"experiments/mutants", nil, "reads source and runs the tests over changed copies of it"},
	{"internal/archtest", nil, "reads source"},
	{"internal/archtest/elsewhere", nil, "reads source as other systems would"},
}

// testOnly may be imported by tests and by each other only.
var testOnly = []string{"internal/need", "internal/vfs/vfstest", "provider/providertest", "sandbox/sandboxtest", "snapshot/gitbase/internal/gitoracle"}

// outside says which packages may import which module; tests included where
// tests is true.
var outside = []struct {
	prefix string
	rooms  []string
	tests  bool
	why    string
}{
	{"github.com/go-git/go-git", []string{"snapshot/gitbase"}, true, "reads objects, never what is on disk and never writes the user's tree"},
	{"github.com/sergi/go-diff", nil, false, "a peer in a benchmark: it converts to runes, so no byte that lands may pass through it, nor a line that is shown, whose words are compared by linediff"},
	{"github.com/sourcegraph/jsonrpc2", []string{"seam/rpc"}, true, "pairs answers with calls; no message passes through it"},
	{"github.com/spf13/pflag", []string{"cmd/asp"}, true, "flags belong to the command line"},
	{"github.com/google/go-cmp", []string{"internal/vfs/vfstest"}, false, "compares in tests; may panic"},
	{"pgregory.net/rapid", []string{"internal/vfs/vfstest"}, false, "property tests"},
	{"github.com/anishathalye/porcupine", nil, false, "judges histories of many clients in tests; the standard library and nothing else below it"},
	{"go.uber.org/goleak", nil, false, "finds goroutines that tests left"},
	{"github.com/santhosh-tekuri/jsonschema", nil, false, "holds our decoders against the public schemas in tests; a schema is no validator at run time"},
	{"go.yaml.in/yaml", []string{"provider/bundled/syntax"}, true, "reads YAML of candidates; nothing of ours is YAML"},
	{"github.com/BurntSushi/toml", []string{"provider/bundled/syntax"}, true, "reads TOML of candidates; nothing of ours is TOML"},
	{"golang.org/x/sys", []string{"apply/commit", "apply/exchange", "bench", "cmd/asp", "internal/lock", "internal/vfs",
		"sandbox", "sandbox/cgroup", "sandbox/sandboxtest", "seam/conformance", "seam/host", "snapshot/gitbase", "snapshot/scan", "snapshot/watch", "worktree"}, false,
		"system calls that the standard library does not have"},
	{"golang.org/x/tools", []string{"internal/archtest/elsewhere"}, true, "loads the source of a whole module for another system"},
}

// writers may change the file system by path, through the os package. All others
// go through internal/vfs, which a test can make fail at every call.
var writers = map[string]string{
	"sandbox":                             "probes and mount points in a directory of its own, and inside the child's namespace",
	"sandbox/cgroup":                      "control groups, which are directories of a file system that holds nothing else",
	"sandbox/sandboxtest":                 "only tests use it",
	"seam/provider":                       "a private working directory where there is no namespace to have one in memory",
	"worktree":                            "scratch trees that are thrown away; nothing there has to survive",
	"internal/lock":                       "tickets of who waits, beside the queue file in the trusted state directory",
	"snapshot/gitbase":                    "reference logs, appended beside git's own writers, in the one file that writes references",
	"snapshot/gitbase/internal/gitoracle": "only tests use it",
	"cmd/asp":                             "the plan that `asp plan -o` was asked to write",
	"seam/conformance":                    "throw-away repositories, and attacks on them by its hostile providers",
	"provider/bundled/gofix":              "a scratch copy of a module for gopls, which is thrown away",
	"fixtures/demo":                       "prepares the example",
	"fixtures/demo/run":                   "removes the example",
	"bench":                               "prepares what is measured",
	"experiments/mutants":                 "overlays for the compiler in a temporary directory",
}

// variables at package level that hold something that changes.
var variables = map[string]string{
	"apply/commit.scratches":    "a pool of buffers; what is in it has no meaning",
	"internal/canon.forDigests": "a pool of buffers; what is in it has no meaning",
}

// long files of code, without tests, may have more than 600 lines.
var long = map[string]string{}
