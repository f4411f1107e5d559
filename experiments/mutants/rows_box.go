package main

// boxes are what keeps a command from getting others to act for it, the limits that it is
// under, and the words that are said of both.
func boxes() []row {
	const (
		shield = "sandbox/shield_linux.go"
		fork   = "sandbox/fork_linux.go"
		probe  = "sandbox/probe_linux.go"
		here   = "sandbox"
		reach  = "TestNothingActsForTheCommand|TestShownInPieces"
	)
	return []row{
		{id: "box-shield", kind: "box", file: shield, pkg: here, run: reach,
			text: "	shield, err := v.shield(fd, attr)\n", mutant: "	bare := *v\n	bare.bare = true\n	shield, err := bare.shield(fd, attr)\n"},
		{id: "box-second-proc", kind: "box", file: shield, pkg: here, run: reach,
			text: "	case slices.Contains(leftOut, m.fsType):\n", mutant: "	case len(leftOut) == 0:\n"},
		{id: "box-socket-filter", kind: "box", file: "sandbox/child_linux.go", pkg: here, run: "TestLevelIsProven",
			text: "_ = filterSockets() // the probe", mutant: "_ = s // the probe"},
		{id: "box-limits", kind: "box", file: fork, pkg: here, run: "TestLimitsAreOnTheCommand",
			text: "	for i = range f.rlimits {\n", mutant: "	for i = range f.rlimits[:0] {\n"},
		{id: "box-enters-its-groups", kind: "box", file: fork, pkg: here, run: "TestLimits$",
			text: "	for i = range f.under.groups {\n", mutant: "	for i = range f.under.groups[:0] {\n"},
		{id: "box-command-died-before", kind: "claim", file: fork, pkg: here, run: "TestBecame",
			text: "	if f.said.at < stepLimit {\n", mutant: "	if f.said.at < stepLimit && false {\n"},
		{id: "box-limits-of-a-provider", kind: "box", file: "seam/provider/launch.go", pkg: "seam/provider", run: "TestLaunchIsLimited",
			text: "FileSize: mebibytes(limits.FileMb), Processes: uint64(max(limits.Processes, 0)), ", mutant: ""},
		{id: "claim-sandbox-unreached", kind: "probe", file: probe, pkg: here, run: "TestVerdict",
			text: "		if len(r.Reached) == 0 {\n", mutant: "		if false {\n"},
		{id: "claim-sandbox-reached", kind: "probe", file: probe, pkg: here, run: "TestVerdict",
			text: "			if !a.Held {\n", mutant: "			if !a.Held && false {\n"},
		{id: "claim-sandbox-shared", kind: "probe", file: probe, pkg: here, run: "TestVerdict",
			text: "		if len(r.Shared) > 0 {\n", mutant: "		if false {\n"},
		{id: "claim-sandbox-without-lures", kind: "probe", file: probe, pkg: here, run: "TestVerdict",
			text: "doubts = append(doubts, problems...)", mutant: "_ = problems"},
		{id: "claim-sandbox-granted-socket", kind: "probe", file: shield, pkg: here, run: reach,
			text: "		v.shared = append(v.shared, source)\n		return v.bind(fd, source, target, true)", mutant: "		return v.bind(fd, source, target, true)"},
		{id: "claim-sandbox-unshielded", kind: "probe", file: shield, pkg: here, run: "TestSB01_EachMediatedLayerCounts",
			text: "	if err != nil {\n		v.shared = append(v.shared, source)\n", mutant: "	if err != nil {\n",
			survives: "where no shield can be made the lure has none either, and is reached or not tried"},
	}
}
