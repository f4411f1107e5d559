package main

// preconditions are refusals that are left out.
func preconditions() []row {
	const (
		file = "preconditions/preconditions.go"
		live = "preconditions/live.go"
		here = "preconditions"
		run  = "TestPlaces|TestRepositoryAndAttention|TestRenameAcrossMounts|TestNameCollision|TestRecheck|TestAhead"
	)
	return []row{
		{id: "refuse-protected-name", kind: "precondition", file: file, pkg: here, run: "TestProtectedNames",
			text: "if c, yes := editplan.ProtectedPath(p); yes {", mutant: "if c, yes := editplan.ProtectedPath(p); yes && false {"},
		{id: "refuse-attention", kind: "precondition", file: file, pkg: here, run: run,
			text: "if slices.Contains(in.Attention, p.String()) {", mutant: "if false {"},
		{id: "refuse-blocked", kind: "precondition", file: file, pkg: here, run: run,
			text: "			if f.Blocked != nil {\n				it := *f.Blocked\n", mutant: "			if false {\n				it := *f.Blocked\n"},
		{id: "refuse-hard-link", kind: "precondition", file: file, pkg: here, run: run,
			text: "case f.Stat.Nlink > 1:", mutant: "case false:"},
		{id: "refuse-read-only", kind: "precondition", file: file, pkg: "casetest", run: "TestFM01|TestRefusals",
			text: "		case f.Stat.Perm&0o222 == 0:\n", mutant: "		case false:\n"},
		{id: "refuse-other-mount", kind: "precondition", file: file, pkg: here, run: run,
			text: "if from.Stat.MntID != f.Mount {", mutant: "if from.Stat.MntID != f.Mount && false {"},
		{id: "refuse-collision", kind: "precondition", file: file, pkg: here, run: run,
			text: "		if folds {\n", mutant: "		if folds && false {\n"},
		{id: "refuse-submodule", kind: "precondition", file: file, pkg: here, run: run,
			text: "	case i.InSubmodule:\n", mutant: "	case false:\n"},
		{id: "refuse-sparse", kind: "precondition", file: file, pkg: here, run: run,
			text: "case i.SkipWorktree && f != nil", mutant: "case false && f != nil"},
		{id: "refuse-filter", kind: "precondition", file: file, pkg: here, run: run,
			text: "case in.Staging && i.Filter != \"\":", mutant: "case false:"},
		{id: "refuse-link-in-the-path", kind: "no-follow", file: live, pkg: here, run: run,
			text: "		case st.Kind == vfs.KindSymlink:\n", mutant: "		case false:\n"},
		{id: "refuse-protected-directory", kind: "precondition", file: live, pkg: here, run: run,
			text: "if d.stat.SameFile(x) {", mutant: "if d.stat.SameFile(x) && false {"},
		{id: "refuse-nested-repository", kind: "precondition", file: live, pkg: here, run: run,
			text: "if _, err := dir.Lstat(\".git\"); err == nil {", mutant: "if _, err := dir.Lstat(\".git\"); err == nil && false {"},
		{id: "refuse-foreign-baseline", kind: "precondition", file: "apply/transaction.go", pkg: "apply", run: "TestForeignBaseline",
			text: "		if !known {\n", mutant: "		if !known && false {\n"},
		{id: "refuse-id-reuse", kind: "precondition", file: "apply/transaction.go", pkg: "apply", run: "TestRepeatAndReuse",
			text: "			if !same {\n", mutant: "			if !same && false {\n"},
		{id: "refuse-plan-that-poses-as-an-undo", kind: "precondition", file: "apply/transaction.go", pkg: "apply", run: "TestUndoIsNobodyElses",
			text: "if t.plan.Provider == undoProvider && t.r.Undoes == \"\" {", mutant: "if false {"},
		{id: "refuse-id-staged-by-another", kind: "precondition", file: "apply/transaction.go", pkg: "apply", run: "TestStagedByAnother",
			text: "if r := t.stagedByAnother(); r != nil {", mutant: "if r := t.stagedByAnother(); false {"},
		{id: "refuse-beside-a-damaged-journal", kind: "precondition", file: "apply/transaction.go", pkg: "casetest", run: "TestGateBesideADamagedJournal",
			text: "if err := half(t.answer.Attention); err != nil {", mutant: "if err := half(nil); err != nil {"},
		{id: "refuse-to-judge-a-damaged-journal", kind: "precondition", file: "apply/recover.go", pkg: "casetest", run: "TestGateBesideADamagedJournal",
			text: "			err = half(open)\n", mutant: "			err = half(open[:0])\n"},
		{id: "refuse-by-decision", kind: "precondition", file: "apply/transaction.go", pkg: "apply", run: "TestGateWithoutPolicy|TestModeComesFromChecks",
			text: "if d := t.decision; d != nil && d.Decision != wire.Allow {", mutant: "if d := t.decision; d != nil && false {"},
		{id: "refuse-weak-assurance", kind: "precondition", file: "apply/transaction.go", pkg: "apply", run: "TestModeComesFromChecks|TestWeakAssurance|TestSB01",
			text: "if mode := t.mode(); mode < t.r.RequireAssurance {", mutant: "if mode := t.mode(); false {"},
		{id: "refuse-weak-guarantee", kind: "precondition", file: "apply/compile.go", pkg: "apply", run: "TestGuaranteeCeiling",
			text: "if g, why := t.expected(); g < t.r.RequireGuarantee {", mutant: "if g, why := t.expected(); false {"},
		{id: "refuse-open-state", kind: "precondition", file: "internal/home/home.go", pkg: "internal/home", run: "TestOpenRefuses",
			text: "	if st.Perm&0o022 != 0 {\n		return fmt.Errorf(\"%w: mode %04o lets others write; chmod", mutant: "	if false {\n		return fmt.Errorf(\"%w: mode %04o lets others write; chmod"},
		{id: "refuse-state-inside", kind: "precondition", file: "internal/home/home.go", pkg: "internal/home", run: "TestCheckOutside",
			text: "	in, err := inside(h.path, ws)\n", mutant: "	in, err := inside(h.path, ws)\n	in = false\n"},
		{id: "refuse-changed-provider", kind: "precondition", file: "seam/manifest/verify.go", pkg: "seam/manifest", run: "TestVerify|TestExec",
			text: "		case sum != c.SHA256:\n", mutant: "		case sum == \"\":\n"},
	}
}

// names are links that are followed and names that are overwritten.
func names() []row {
	const (
		swap   = "apply/commit/swap.go"
		undo   = "apply/commit/undo.go"
		commit = "apply/commit"
		run    = "TestForeign|TestAttention|TestScenarios|TestOrderCR01|TestPV|TestLateWrite|TestEditDuringUndo"
	)
	return []row{
		{id: "follow-links-beneath", kind: "no-follow", file: "internal/vfs/walk_linux.go", pkg: "internal/vfs", run: "TestOpenDirWalks|TestSwappedForLinks",
			text: "const resolve = unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS", mutant: "const resolve = unix.RESOLVE_BENEATH | unix.RESOLVE_NO_MAGICLINKS"},
		{id: "follow-links-in-walk", kind: "no-follow", file: "internal/vfs/walk_unix.go", pkg: "internal/vfs", run: "TestOpenDirWalks|TestSwappedForLinks",
			text: "dirFlags|unix.O_NOFOLLOW, 0)", mutant: "dirFlags, 0)"},
		{id: "follow-link-in-open", kind: "no-follow", file: "internal/vfs/os_unix.go", pkg: "internal/vfs", run: "TestSwappedForLinks|TestOpen",
			text: "unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK", mutant: "unix.O_RDONLY|unix.O_NONBLOCK"},
		{id: "follow-queue-file", kind: "no-follow", file: "internal/lock/lock_unix.go", pkg: "internal/lock", run: "TestForeignQueueFiles",
			text: "unix.O_CREAT|unix.O_NOFOLLOW|unix.O_NONBLOCK", mutant: "unix.O_CREAT|unix.O_NONBLOCK"},
		{id: "open-a-fifo", kind: "no-follow", file: "internal/vfs/os_unix.go", pkg: "internal/vfs", run: "TestOpenNeverTouchesFIFO",
			text: "	s, err := statAt(fd, name)\n	if err == nil {\n		err = readable(s.Kind)\n	}\n", mutant: "	s, err := statAt(fd, name)\n"},
		{id: "create-over", kind: "no-replace", file: "internal/vfs/os_unix.go", pkg: "internal/vfs/vfstest", run: "TestOS|TestModel",
			text: "unix.O_CREAT|unix.O_EXCL|", mutant: "unix.O_CREAT|"},
		{id: "rename-over", kind: "no-replace", file: "internal/vfs/sys_linux.go", pkg: "internal/vfs/vfstest", run: "TestOS|TestModel",
			text: "		flags = unix.RENAME_NOREPLACE\n", mutant: "		flags = 0\n"},
		{id: "put-over", kind: "no-replace", file: swap, pkg: commit, run: run,
			text: "err = t.areas[s.Area].dir.Rename(s.Name, d.Dir, name, vfs.NoReplace)", mutant: "err = t.areas[s.Area].dir.Rename(s.Name, d.Dir, name, vfs.Replace)"},
		{id: "exchange-is-replace", kind: "no-replace", file: swap, pkg: commit, run: run,
			text: "err = t.areas[s.Area].dir.Rename(s.Name, d.Dir, name, vfs.Exchange)", mutant: "err = t.areas[s.Area].dir.Rename(s.Name, d.Dir, name, vfs.Replace)"},
		{id: "take-over", kind: "no-replace", file: swap, pkg: commit, run: run,
			text: "err = d.Rename(name, t.areas[s.Area].dir, s.Name, vfs.NoReplace)", mutant: "err = d.Rename(name, t.areas[s.Area].dir, s.Name, vfs.Replace)"},
		{id: "move-over", kind: "no-replace", file: swap, pkg: commit, run: run,
			text: "err = from.Rename(fromName, to.Dir, name, vfs.NoReplace)", mutant: "err = from.Rename(fromName, to.Dir, name, vfs.Replace)"},
		{id: "untake-over", kind: "no-replace", file: undo, pkg: commit, run: run,
			text: "err := x.area.Rename(s.Name, x.d.Dir, x.name, vfs.NoReplace)\n	if errors.Is", mutant: "err := x.area.Rename(s.Name, x.d.Dir, x.name, vfs.Replace)\n	if errors.Is"},
		{id: "unmove-over", kind: "no-replace", file: undo, pkg: commit, run: run,
			text: "x.d.Rename(x.name, from.Dir, name, vfs.NoReplace)", mutant: "x.d.Rename(x.name, from.Dir, name, vfs.Replace)"},
		{id: "swap-is-replace", kind: "no-replace", file: "apply/exchange/run.go", pkg: "apply/exchange", run: "TestScenarios|TestOrder",
			text: "w.parent.Rename(w.name, w.area, treeName, vfs.Exchange)", mutant: "w.parent.Rename(w.name, w.area, treeName, vfs.Replace)"},
		{id: "state-file-over", kind: "no-replace", file: "internal/home/file.go", pkg: "internal/home", run: "TestFiles|TestWriters",
			text: "f, err := put(dir, name, data, vfs.NoReplace)", mutant: "f, err := put(dir, name, data, vfs.Replace)"},
	}
}

// claims are words that are said without having been earned.
func claims() []row {
	const (
		facts  = "apply/commit/facts.go"
		mount  = "apply/commit/mount_linux.go"
		commit = "apply/commit"
		run    = "TestEachFactCounts|TestGuaranteeIsEarned|TestFactsOnDisk|TestFailedSync|TestNaiveIsCaught"
	)
	return []row{
		{id: "claim-despite-failed-sync", kind: "claim", file: facts, pkg: commit, run: run,
			text: "	if len(f.Failed) > 0 {\n", mutant: "	if false {\n"},
		{id: "claim-despite-skipped-sync", kind: "claim", file: facts, pkg: commit, run: run,
			text: "	if len(f.Skipped) > 0 || f.Style == SyncNone {\n", mutant: "	if false {\n"},
		{id: "claim-without-barrier", kind: "claim", file: facts, pkg: commit, run: run,
			text: "return b.What == need && b.Calls > 0", mutant: "return b.What == need || true"},
		{id: "claim-on-unordered-mount", kind: "claim", file: facts, pkg: commit, run: run,
			text: "if !m.Ordered || !m.Barriers {", mutant: "if false {"},
		{id: "claim-without-no-replace", kind: "claim", file: facts, pkg: commit, run: run,
			text: "	if f.NoReplace == Absent {\n", mutant: "	if false {\n"},
		{id: "claim-journal-of-ext4", kind: "probe", file: mount, pkg: commit, run: "TestWhatExtIsBelieved",
			text: "m := MountFacts{Type: \"ext4\", Renames: true}", mutant: "m := MountFacts{Type: \"ext4\", Renames: true, Ordered: true}"},
		{id: "claim-barriers-of-ext4", kind: "probe", file: mount, pkg: commit, run: "TestWhatExtIsBelieved",
			text: "m.Barriers = m.Barriers || string(o) == \"barrier\"", mutant: "m.Barriers = m.Barriers || len(o) > 0"},
		{id: "claim-barriers-of-btrfs", kind: "probe", file: mount, pkg: commit, run: "TestWhatBtrfsIsBelieved",
			text: "if string(o) == \"nobarrier\" {", mutant: "if string(o) == \"no such option\" {"},
		{id: "claim-on-overlay", kind: "probe", file: mount, pkg: commit, run: run + "|TestFactsOnStrangeMounts",
			text: "MountFacts{Type: \"overlayfs\", Why:", mutant: "MountFacts{Type: \"overlayfs\", Ordered: true, Barriers: true, Renames: true, Why:"},
		{id: "claim-on-tmpfs", kind: "probe", file: mount, pkg: commit, run: run + "|TestFactsOnStrangeMounts",
			text: "MountFacts{Type: \"tmpfs\", Renames: true, Why:", mutant: "MountFacts{Type: \"tmpfs\", Renames: true, Ordered: true, Barriers: true, Why:"},
		{id: "claim-on-fuse", kind: "probe", file: mount, pkg: commit, run: run + "|TestFactsOnStrangeMounts",
			text: "MountFacts{Type: \"fuse\", Why:", mutant: "MountFacts{Type: \"fuse\", Ordered: true, Barriers: true, Why:"},
		{id: "claim-unprobed-renames", kind: "probe", file: "apply/commit/swap.go", pkg: commit, run: run,
			text: "		if f.Renames {\n", mutant: "		if f.Renames || true {\n"},
		{id: "claim-exchange-unsynced", kind: "claim", file: "apply/exchange/exchange.go", pkg: "apply/exchange", run: "TestGuaranteeIsEarned",
			text: "	case !f.Synced:\n", mutant: "	case false:\n"},
		{id: "claim-exchange-on-unordered-mount", kind: "claim", file: "apply/exchange/exchange.go", pkg: "apply/exchange", run: "TestGuaranteeIsEarned",
			text: "	case !f.Mount.Ordered || !f.Mount.Barriers:\n", mutant: "	case false:\n"},
		{id: "claim-over-the-ceiling", kind: "claim", file: "apply/compile.go", pkg: "apply", run: "TestGuaranteeCeiling",
			text: "e.cfg.Ceiling != \"\" && c < g {", mutant: "false && c < g {"},
		{id: "claim-undecided-commit", kind: "claim", file: "apply/commit/tx.go", pkg: commit, run: "TestFailedSync",
			text: "return Result{Outcome: NeedsAttention}, err\n	}\n	if err != nil || len(items) > 0 {", mutant: "return Result{Outcome: Committed}, nil\n	}\n	if err != nil || len(items) > 0 {"},
		{id: "claim-modes-of-another-place", kind: "probe", file: "apply/answered.go", pkg: "apply", run: "TestStatusRemembersTheMachine",
			text: "a.Here == here && ", mutant: ""},
		{id: "claim-modes-of-long-ago", kind: "probe", file: "apply/answered.go", pkg: "apply", run: "TestStatusRemembersTheMachine",
			text: "up < a.Until && ", mutant: ""},
		{id: "claim-sandbox-marker-on-live-tree", kind: "probe", file: "sandbox/probe_linux.go", pkg: "sandbox", run: "TestVerdict|TestLevelIsProven",
			text: "		case live != nil || tmp != nil:\n", mutant: "		case false && (live != nil || tmp != nil):\n"},
		{id: "claim-sandbox-writable-mount", kind: "probe", file: "sandbox/probe_linux.go", pkg: "sandbox", run: "TestVerdict|TestLevelIsProven",
			text: "	if len(r.Writable) > 0 {\n", mutant: "	if false {\n"},
		{id: "claim-sandbox-unasked", kind: "probe", file: "sandbox/probe_linux.go", pkg: "sandbox", run: "TestVerdict|TestLevelIsProven",
			text: "		case !asked:\n", mutant: "		case !asked && false:\n"},
		{id: "claim-sandbox-inconclusive", kind: "probe", file: "sandbox/probe_linux.go", pkg: "sandbox", run: "TestVerdict|TestLevelIsProven",
			text: "	case len(doubts) > 0:\n", mutant: "	case false:\n"},
	}
}
