package wire_test

// One message of each kind with every member that it can have.
const (
	fullDiagnostic = `{"code":"s/r","severity":"error","source":"x","message":"m","location":{"path":"a","range":{"start":{"line":0,"char":0},"end":{"line":0,"char":1}}},
"fingerprint":"f","introduced":true,"help":"h","codeDescription":{"href":"u"},"fix":{"editRef":"s/fix","args":{"k":[1,null,{"x":true}]}}}`
	fullValidAsOf = `{"baseline":{"rev":"tree:x","dirty":"sha256:00","stampedAt":"2026-01-02T03:04:05Z"},"changesetDigest":"sha256:0","blobs":["blob:sha256:aa","blob:sha256:bb"]}`
	fullProvider  = `{"id":"x","version":"1","configDigest":"d","capabilityVersion":"check/1.0","buildDigest":"b","artifactDigest":"a","capabilityFamily":"check"}`
	fullPart      = `{"scope":{"paths":["a"]},"diagnosticSources":["s"],"rules":["s/r"],"comparison":"introduced"}`
	fullChangeset = `{"baseline":{"rev":"tree:x"},"changes":[{"path":"a","kind":"modify","before":"blob:sha256:aa","after":"blob:sha256:bb"}]}`

	assessment = `{"status":"incomplete","diagnostics":[` + fullDiagnostic + `],
"evidence":[{"kind":"trace","id":"i","digest":"d","uri":"u","message":"m","data":{"k":{"l":[1,{"m":null}]}}}],
"coverage":{"requested":` + fullPart + `,"covered":{"scope":"changeset","diagnosticSources":[],"rules":[],"comparison":"all"},
"degraded":[{"source":"x","reason":"incomplete","detail":"d","requirement":"r","capability":"check","providerState":"active"}],"unsupported":[],"exhaustive":false,"truncated":true},
"validAsOf":` + fullValidAsOf + `,"provider":` + fullProvider + `,
"timing":{"startedAt":"2026-01-02T03:04:05Z","endedAt":"2026-01-02T03:04:06Z","elapsedMs":914},
"cache":{"status":"hit","key":"k","digest":"d","refreshedAt":"2026-01-02T03:04:05Z"}}`

	evaluateParams = `{"changeset":` + fullChangeset + `,"scope":"workspace","comparison":"resolved","configuration":{"a":{"b":1}},"diagnosticSources":["s"],"rules":["s/r"],
"priorDiagnostics":[{"diagnostic":` + fullDiagnostic + `,"validAsOf":` + fullValidAsOf + `}],
"priorAssessments":[{"assessmentId":"i","validAsOf":` + fullValidAsOf + `,"provider":` + fullProvider + `,"digest":"d"}]}`

	initializeParams = `{"protocolVersion":"asp/1.0","host":{"name":"h","version":"1"},"hostCapabilities":{"a":true},
"workspace":{"root":"/candidate","baseline":{"rev":"tree:x","dirty":"sha256:00","stampedAt":"2026-01-02T03:04:05Z"}},"assuranceMode":"gated","authorityMode":"advisory","trustTier":"untrusted"}`

	initializeResult = `{"serverInfo":{"name":"n","version":"1","fingerprint":"f"},"capabilityFamilies":["inspect","check","edit"],"roles":["sense","judge","act"],
"capabilities":{"inspect":{"verbs":["references","impact"],"query":["q"],"scopes":["changeset"],"partialResults":true,"graph":{"nodeKinds":["a"],"edgeKinds":["b"]}},
"check":{"capabilityVersion":"check/1.0","diagnosticSources":["s"],"scopes":["changeset","workspace"],"comparisons":["introduced","all"],"partialResults":false,"incremental":true,"unsupportedReporting":"assessment-status","fixes":true},
"edit":{"capabilityVersion":"edit/1.0","operations":["rename","text-edit"],"operationSupport":{"create":true,"modify":true,"delete":false,"rename":true,"move":true},
"textEditSupport":true,"wholeResourceSupport":true,"renameMoveSupport":true,"preconditionSupport":"required","blobUploadSupport":"workspace/putBlob","partialProposalSemantics":"status","scopes":["workspace"]},
"watch":{"push":true},"transport":["stdio"]},
"requestedPermissions":{"read":["**/*","!x"],"write":false,"network":true,"networkAllowlist":[{"host":"h","port":443,"proto":"https"}],"resourceLimits":{"cpuPct":50,"memoryMb":512,"wallclockMs":30000,"fd":256}},
"provenance":{"publisher":"p","signature":"s"}}`

	initializedParams = `{"grantedPermissions":{"read":["**/*"],"write":false,"network":true,"networkAllowlist":[{"host":"h"}],"resourceLimits":{"cpuPct":50,"memoryMb":512,"wallclockMs":30000,"fd":256}},"baseline":{"rev":"tree:x"}}`

	proposeParams = `{"operation":"rename","baseline":{"rev":"tree:x"},"scope":{"paths":["a","b"],"operationProfile":"p"},"proposalId":"p1","idempotencyKey":"k","args":{"a":[{"b":1}]},"priorContext":{"c":null}}`

	referencesParams = `{"symbol":{"id":"i"},"scope":{"paths":["a"]},"baseline":{"rev":"tree:x"}}`
	callersParams    = `{"symbol":{"path":"a","position":{"line":1,"char":2}},"depth":2,"baseline":{"rev":"tree:x"}}`
	symbolsParams    = `{"query":"q","kinds":["file","test"],"baseline":{"rev":"tree:x"}}`
	impactParams     = `{"changeset":` + fullChangeset + `,"depth":1,"scope":"changeset","baseline":{"rev":"tree:x"}}`
	queryParams      = `{"verb":"v","args":{"a":1},"baseline":{"rev":"tree:x"}}`
	graphResult      = `{"nodes":[{"id":"i","kind":"file","name":"n","location":{"path":"a"},"exported":true,"test":false}],
"edges":[{"kind":"calls","from":"a","to":"b","location":{"path":"a","range":{"start":{"line":0,"char":0},"end":{"line":0,"char":1}}}}],"data":{"x":1},"validAsOf":{"rev":"tree:x","blobs":["blob:sha256:aa"]}}`
	impactResult   = `{"changedNodes":[],"impactedNodes":[{"id":"i","kind":"test","name":"n","location":{"path":"a"}}],"impactedFiles":["a"],"edges":[],"truncated":false,"validAsOf":{"rev":"tree:x","blobs":[]}}`
	listTreeParams = `{"globs":["a/**"],"paths":["b"],"baseline":{"rev":"tree:x","stampedAt":"2026-01-02T03:04:05Z"}}`
	publishParams  = `{"uri":"u","validAsOf":{"rev":"tree:x","blobs":["b"]},"diagnostics":[` + fullDiagnostic + `]}`
)
