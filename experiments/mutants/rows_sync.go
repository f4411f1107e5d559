package main

// rows is the table.
func rows() []row {
	var all []row
	for _, some := range [][]row{syncs(), locks(), looks(), preconditions(), names(), claims(), boxes()} {
		all = append(all, some...)
	}
	return all
}

const (
	commitCuts   = "^(TestOrderCR01|TestBarriers|TestFailedSync|TestFailedSyncThenPowerCut|TestReorderings|TestPowerCutSweep|TestPowerCutInRecovery)$/^(CR-01_mixed|directory_becomes_file|directory_emptied)$"
	exchangeCuts = "^(TestOrder|TestRollBackSurvivesPowerCut|TestPowerCutSweep|TestPowerCutInRecovery)$/^(mixed|directories_emptied)$"
)

// syncs are barriers that are left out.
func syncs() []row {
	const (
		tx       = "apply/commit/tx.go"
		sync     = "apply/commit/sync.go"
		commit   = "apply/commit"
		exchange = "apply/exchange"
	)
	return []row{
		{id: "sync-whole-mounts", kind: "sync", file: sync, pkg: commit, run: commitCuts,
			text: "all = append(all, m.dir.SyncFS)", mutant: "all = append(all, func() error { return nil })"},
		{id: "sync-staged-file", kind: "sync", file: sync, pkg: commit, run: commitCuts,
			text: "all = append(all, func() error { return syncFile(a, s.Name) })", mutant: "all = append(all, func() error { return nil })"},
		{id: "sync-staged-file-kept", kind: "sync", file: sync, pkg: commit, run: commitCuts,
			text: "all = append(all, j.syncMade)", mutant: "_ = j"},
		{id: "sync-staged-directory", kind: "sync", file: sync, pkg: commit, run: commitCuts,
			text: "all = append(all, func() error { return syncDir(a, s.Name) })", mutant: "all = append(all, func() error { return nil })"},
		{id: "sync-journal-bytes", kind: "sync", file: sync, pkg: commit, run: commitCuts,
			text: "all := []syncer{t.w.Sync, t.areas[0].dir.Sync,", mutant: "all := []syncer{t.areas[0].dir.Sync,"},
		{id: "sync-journal-name", kind: "sync", file: sync, pkg: commit, run: commitCuts,
			text: "t.w.Sync, t.areas[0].dir.Sync, t.txroot.Sync,", mutant: "t.w.Sync, t.txroot.Sync,"},
		{id: "sync-area-name", kind: "sync", file: sync, pkg: commit, run: commitCuts,
			text: "t.areas[0].dir.Sync, t.txroot.Sync, t.holder.Sync}", mutant: "t.areas[0].dir.Sync, t.holder.Sync}"},
		{id: "sync-area-parent", kind: "sync", file: sync, pkg: commit, run: commitCuts,
			text: "t.txroot.Sync, t.holder.Sync}", mutant: "t.txroot.Sync}"},
		{id: "sync-names-directory", kind: "sync", file: sync, pkg: commit, run: commitCuts,
			text: "all = append(all, func() error { return t.syncKey(k) })", mutant: "all = append(all, func() error { _ = k; return nil })"},
		{id: "sync-names-area", kind: "sync", file: sync, pkg: commit, run: commitCuts,
			text: "			all = append(all, a.dir.Sync)\n", mutant: "			all = append(all, func() error { return nil })\n"},
		{id: "sync-names-moved-tree", kind: "sync", file: sync, pkg: commit, run: commitCuts,
			text: "all = append(all, func() error { return syncTree(a, s.Name) })", mutant: "all = append(all, func() error { return nil })"},
		{id: "sync-names-all", kind: "sync", file: tx, pkg: commit, run: commitCuts,
			text: "err = t.syncNames(ctx, barrierNames)", mutant: "err = ctx.Err()"},
		{id: "sync-data-all", kind: "sync", file: tx, pkg: commit, run: commitCuts,
			text: "if err := t.syncData(ctx); err != nil {", mutant: "if err := ctx.Err(); err != nil {"},
		{id: "sync-commit-record", kind: "sync", file: sync, pkg: commit, run: commitCuts,
			text: "if err := t.w.Sync(); err != nil {\n		t.facts.Failed", mutant: "if err := error(nil); err != nil {\n		t.facts.Failed"},
		{id: "sync-cut-record", kind: "sync", file: tx, pkg: commit, run: "TestFailedSync",
			text: "if cerr := t.w.Cut(size); cerr != nil {", mutant: "if cerr := error(nil); size < 0 && cerr != nil {"},
		{id: "sync-after-cut-record", kind: "sync", file: tx, pkg: commit, run: "TestFailedSync",
			text: "if cerr := t.w.Sync(); cerr != nil {", mutant: "if cerr := error(nil); cerr != nil {"},
		{id: "sync-record-in-recovery", kind: "sync", file: "apply/commit/recover.go", pkg: commit, run: commitCuts,
			text: "errors.Join(syncFile(t.areas[0].dir, journalName), t.areas[0].dir.Sync())", mutant: "errors.Join(nil, t.areas[0].dir.Sync())"},
		{id: "sync-undo", kind: "sync", file: "apply/commit/undo.go", pkg: commit, run: commitCuts,
			text: "if err := t.syncNames(context.Background(), barrierUndo); err != nil {", mutant: "if err := context.Background().Err(); err != nil {"},
		{id: "sync-tidy", kind: "sync", file: "apply/commit/clean.go", pkg: commit, run: commitCuts,
			text: "return t.syncNames(ctx, barrierTidy)", mutant: "return ctx.Err()"},
		{id: "sync-attention-list", kind: "sync", file: "apply/commit/attention.go", pkg: commit, run: "TestAttention|TestSaveFails|TestUnrecovered|TestDamaged",
			text: "if err := own.Sync(); err != nil {", mutant: "if err := error(nil); err != nil {",
			survives: "without the list the next recovery looks at the same places and asks again"},
		{id: "sync-beside-record", kind: "sync", file: "apply/commit/stage.go", pkg: commit, run: "TestFM04OtherMount|TestOrder",
			text: "if err := t.syncAreas(ctx); err != nil {", mutant: "if err := ctx.Err(); err != nil {",
			survives: "targets on a second mount are tried with kills, not with power cuts"},

		{id: "sync-new-tree", kind: "sync", file: "apply/exchange/run.go", pkg: exchange, run: exchangeCuts,
			text: "if err := w.parent.SyncFS(); err != nil {\n		w.facts.Synced = false", mutant: "if err := error(nil); err != nil {\n		w.facts.Synced = false"},
		{id: "sync-intent-name", kind: "sync", file: "apply/exchange/intent.go", pkg: exchange, run: exchangeCuts,
			text: "	return area.Sync()\n", mutant: "	return nil\n"},
		{id: "sync-exchange", kind: "sync", file: "apply/exchange/run.go", pkg: exchange, run: exchangeCuts,
			text: "if err := w.parent.SyncFS(); err != nil {\n		return w.rollBack(", mutant: "if err := error(nil); err != nil {\n		return w.rollBack("},
		{id: "sync-exchange-back", kind: "sync", file: "apply/exchange/run.go", pkg: exchange, run: exchangeCuts,
			text: "if err := w.parent.SyncFS(); err != nil {\n		return open, ", mutant: "if err := error(nil); err != nil {\n		return open, "},
		{id: "sync-exchange-in-recovery", kind: "sync", file: "apply/exchange/recover.go", pkg: exchange, run: exchangeCuts,
			text: "if err := parent.SyncFS(); err != nil {", mutant: "if err := error(nil); err != nil {"},

		{id: "sync-receipt-bytes", kind: "sync", file: "internal/home/batch.go", pkg: "receipt", run: "TestBarrierCoversThoseBefore|TestSweep",
			text: "errs = append(errs, f.Sync())", mutant: "_ = f"},
		{id: "sync-receipt-names", kind: "sync", file: "internal/home/batch.go", pkg: "receipt", run: "TestBarrierCoversThoseBefore|TestSweep",
			text: "for _, d := range dirs {\n			errs = append(errs, d.Sync())", mutant: "for range dirs {\n			errs = append(errs, nil)"},
		{id: "sync-receipt-whole", kind: "sync", file: "internal/home/batch.go", pkg: "receipt", run: "TestBarrierCoversThoseBefore|TestSweep",
			text: "err := dirs[0].SyncFS()", mutant: "err := error(nil)"},
		{id: "sync-receipts-of-others", kind: "sync", file: "receipt/recover.go", pkg: "receipt", run: "TestBarrierCoversThoseBefore",
			text: "		s.batch.Whole()\n", mutant: ""},
		{id: "sync-state-above", kind: "sync", file: "internal/home/workspace.go", pkg: "receipt", run: "TestBarrierCoversThoseBefore|TestSweep",
			text: "b.own(d)", mutant: "_ = d.Close()"},
		{id: "sync-pack-bytes", kind: "sync", file: "snapshot/store.go", pkg: "apply", run: "TestOrder",
			text: "if err := w.f.Sync(); err != nil {", mutant: "if err := error(nil); err != nil {"},
		{id: "sync-pack-name", kind: "sync", file: "snapshot/store.go", pkg: "apply", run: "TestOrder",
			text: "if err := w.s.dir.Sync(); err != nil {", mutant: "if err := error(nil); err != nil {"},
		{id: "sync-staged-plan", kind: "sync", file: "apply/stage.go", pkg: "apply", run: "TestOrder",
			text: "if err := t.e.receipts.Sync(home.WholeFS); err != nil {\n		return false, fmt.Errorf(\"sync staged", mutant: "if err := error(nil); err != nil {\n		return false, fmt.Errorf(\"sync staged"},

		{id: "sync-is-fdatasync", kind: "sync", file: "internal/vfs/sys_linux.go", pkg: commit, run: "TestPowerCutOnDisk",
			text: "return unix.Fdatasync(fd)", mutant: "return nil"},
		{id: "sync-is-fsync", kind: "sync", file: "internal/vfs/sys_linux.go", pkg: "internal/vfs", run: "TestSyncDirectoryAsksTheKernel",
			text: "return unix.Fsync(fd)", mutant: "return nil"},
		{id: "sync-is-syncfs", kind: "sync", file: "internal/vfs/sys_linux.go", pkg: commit, run: "TestPowerCutOnDisk",
			text: "return unix.Syncfs(fd)", mutant: "return nil"},
		{id: "sync-retried-when-interrupted", kind: "sync", file: "internal/vfs/handle_unix.go", pkg: "internal/vfs", run: "TestInterruptedCallsAreRepeated",
			text: "if err := f(); err != unix.EINTR {", mutant: "if err := f(); true {"},
	}
}
