package schema

import (
	"reflect"

	"github.com/aspengine/asp/seam/wire"
)

// rule is what a type's own Check demands beyond its members: an array of schemas that
// all hold, and the types that they refer to.
type rule struct {
	json string
	uses []reflect.Type
}

const (
	none     = `{"maxLength":0}` // a member that means nothing here may be there, empty
	withHash = `"precondition":{"required":["expectedDigest"]}`
)

func when(member, word, then string) string {
	return `{"if":{"required":["` + member + `"],"properties":{"` + member + `":{"const":` + word + `}}},"then":` + then + `}`
}

func need(member string) string { return `{"required":["` + member + `"]}` }

func rules() map[string]rule {
	changeset := []reflect.Type{reflect.TypeFor[wire.ChangeSet]()}
	return map[string]rule{
		"Change": {json: `[{"properties":{"kind":{"enum":["create","modify","delete","rename"]}}},` +
			when("kind", `"create"`, need("after")) + `,` +
			when("kind", `"modify"`, `{"required":["before","after"]}`) + `,` +
			when("kind", `"delete"`, need("before")) + `,` +
			when("kind", `"rename"`, `{"required":["from","before"],"properties":{"from":{"minLength":1}}}`) + `]`},
		"EditPlan": {json: `[` + when("status", `"complete"`, need("workspaceEdit")) + `,` +
			when("status", `"incomplete"`, need("incomplete")) + `,` +
			when("status", `"unsupported"`, need("unsupported")) + `,` +
			when("status", `"error"`, need("refusal")) + `,` +
			when("status", `"cancelled"`, need("refusal")) + `]`},
		"PlanProvider": {json: `[{"properties":{"capabilityFamily":{"const":"edit"}}}]`},
		"Precondition": {json: `[{"oneOf":[{"required":["expectedDigest"]},{"required":["expectedAbsence"]}]}]`},
		"DocumentChange": {json: `[` +
			when("kind", `"create"`, `{"required":["after"],"not":{"required":["edits"]},"properties":{"precondition":{"required":["expectedAbsence"]},"to":`+none+`}}`) + `,` +
			when("kind", `"modify"`, `{"oneOf":[{"required":["after"]},{"required":["edits"]}],"properties":{`+withHash+`,"to":`+none+`}}`) + `,` +
			when("kind", `"delete"`, `{"not":{"anyOf":[{"required":["edits"]},{"required":["after"]}]},"properties":{`+withHash+`,"to":`+none+`}}`) + `,` +
			when("kind", `"rename"`, `{"required":["to"],"not":{"required":["edits"]},"properties":{`+withHash+`}}`) + `,` +
			when("kind", `"move"`, `{"required":["to"],"not":{"required":["edits"]},"properties":{`+withHash+`}}`) + `]`},
		"TextEdit":     {json: `[{"properties":{"coordinateSystem":{"const":"utf16"}}}]`},
		"AuditReceipt": {json: `[{"properties":{"privateOnly":{"const":true},"experimental":{"const":true},"trustArtifact":{"const":false}}}]`},
		"Verdict": {json: `[{"if":{"properties":{"decision":{"const":"allow"}}},"then":{"properties":{"pass":{"const":true}}},` +
			`"else":{"properties":{"pass":{"const":false}}}}]`},
		"Finding": {json: `[` + when("disposition", `"gating"`, `{"required":["nextStep"],"properties":{"nextStep":{"minLength":1}}}`) + `]`},
		"Fix": {json: `[{"oneOf":[{"required":["editRef"],"properties":{"editRef":{"minLength":1}}},{"required":["actRef"],"properties":{"actRef":{"minLength":1}}},` +
			`{"required":["workspaceEdit"],"not":{"required":["args"]}}]},{"if":{"required":["workspaceEdit"]},"then":{"not":{"required":["args"]}}}]`},
		"ApplyProposalResult": {json: `[{"if":{"properties":{"applied":{"const":true}}},` +
			`"then":{"properties":{"baselineAfter":{"type":"object"}},"not":{"required":["refusal"]}},` +
			`"else":{"properties":{"baselineAfter":{"type":"null"}},"required":["refusal"]}}]`},
		"InspectGraph":     {json: `[{"properties":{"nodes":{"items":{"type":"object"}},"edges":{"items":{"type":"object"}}}}]`},
		"EvaluateParams":   {json: `[{"properties":{"changeset":{"$ref":"#/$defs/ChangeSet"}}}]`, uses: changeset},
		"ImpactParams":     {json: `[{"properties":{"changeset":{"$ref":"#/$defs/ChangeSet"}}}]`, uses: changeset},
		"AssessmentTiming": {json: `[{"anyOf":[{"required":["elapsedMs"]},{"required":["startedAt","endedAt"]}]}]`},
		"InitializedParams": {json: `[{"properties":{"grantedPermissions":{"required":["resourceLimits"],` +
			`"if":{"required":["network"],"properties":{"network":{"const":true}}},"then":{"required":["networkAllowlist"]}}}}]`},
		"SymbolRef": {json: `[{"oneOf":[{"required":["id"],"not":{"anyOf":[{"required":["path"]},{"required":["position"]}]}},` +
			`{"required":["path","position"],"not":{"required":["id"]}}]}]`},
		"GraphResult":    {json: `[{"properties":{"validAsOf":{"required":["blobs"]}}}]`},
		"ImpactResult":   {json: `[{"properties":{"validAsOf":{"required":["blobs"]}}}]`},
		"ProgressParams": {json: `[{"properties":{"token":{"type":["string","integer"]}}}]`},
		"ProgressValue": {json: `[{"properties":{"percentage":{"maximum":100}}},` +
			when("kind", `"report"`, `{"not":{"required":["diagnostics"]}}`) + `,` +
			when("kind", `"diagnostics"`, `{"required":["diagnostics"],"not":{"anyOf":[{"required":["percentage"]},{"required":["message"]}]}}`) + `,` +
			when("kind", `"end"`, `{"not":{"anyOf":[{"required":["percentage"]},{"required":["diagnostics"]}]}}`) + `]`},
		"ServerManifest":         {json: `[{"properties":{"protocolVersions":{"minItems":1}}}]`},
		"Checksum":               {json: `[{"properties":{"sha256":{"pattern":"^[0-9a-fA-F]{64}$"}}}]`},
		"EnvironmentExpectation": {json: `[{"properties":{"inherit":{"const":false}}}]`},
	}
}

// envelope is a line of either seam.
const envelope = `{"type":"object","required":["jsonrpc"],"properties":{"jsonrpc":{"const":"2.0"},"id":{"type":["string","integer","null"]}},"oneOf":[
{"title":"request","required":["id","method"],"additionalProperties":false,"properties":{"jsonrpc":true,"id":{"type":["string","integer"]},"method":{"type":"string","minLength":1},"params":{"type":["object","array"]}}},
{"title":"notification","required":["method"],"additionalProperties":false,"properties":{"jsonrpc":true,"method":{"type":"string","minLength":1},"params":{"type":["object","array"]}}},
{"title":"answer","required":["id","result"],"additionalProperties":false,"properties":{"jsonrpc":true,"id":{"type":["string","integer"]},"result":true}},
{"title":"error","required":["id","error"],"additionalProperties":false,"properties":{"jsonrpc":true,"id":true,"error":{"type":"object","required":["code","message"],
"properties":{"code":{"type":"integer"},"message":{"type":"string"},"data":{"type":"object"}}}}}]}`

func messages() []message {
	list := []message{{"envelope", "one line of either seam: JSON-RPC 2.0, closed", nil}}
	add := func(name, title string, t reflect.Type) { list = append(list, message{name, title, t}) }
	// The outer seam, and what the command line prints and reads.
	add("status-params", "params of host/status, host/capabilities and host/authority/status", reflect.TypeFor[wire.StatusParams]())
	add("status-result", "result of host/status", reflect.TypeFor[wire.StatusResult]())
	add("capabilities-result", "result of host/capabilities", reflect.TypeFor[wire.CapabilitiesResult]())
	add("authority-status-result", "result of host/authority/status", reflect.TypeFor[wire.AuthorityStatusResult]())
	add("evaluate-changeset-params", "params of host/evaluateChangeset", reflect.TypeFor[wire.EvaluateChangesetParams]())
	add("verdict", "result of host/evaluateChangeset: the decision envelope", reflect.TypeFor[wire.Verdict]())
	add("query-inspect-params", "params of host/queryInspect", reflect.TypeFor[wire.QueryInspectParams]())
	add("query-inspect-result", "result of host/queryInspect", reflect.TypeFor[wire.QueryInspectResult]())
	add("request-edit-plan-params", "params of host/requestEditPlan", reflect.TypeFor[wire.RequestEditPlanParams]())
	add("request-edit-plan-result", "result of host/requestEditPlan", reflect.TypeFor[wire.RequestEditPlanResult]())
	add("apply-proposal-params", "params of host/applyProposal", reflect.TypeFor[wire.ApplyProposalParams]())
	add("apply-proposal-result", "result of host/applyProposal, of asp apply, publish and undo", reflect.TypeFor[wire.ApplyProposalResult]())
	add("dry-run-result", "what asp apply --dry-run --json prints", reflect.TypeFor[wire.DryRunResult]())
	add("check-result", "what asp check --json prints", reflect.TypeFor[wire.CheckResult]())
	add("audit-receipt", "the receipt in every answer", reflect.TypeFor[wire.AuditReceipt]())
	add("error", "an error of either seam", reflect.TypeFor[wire.Error]())
	add("error-result", "what --json prints where there is no answer", reflect.TypeFor[wire.ErrorResult]())
	add("policy", "a policy: .asp/asp.json of a repository, and the floor in config.json", reflect.TypeFor[policyFile]())
	add("config", "config.json of the state directory", reflect.TypeFor[configFile]())
	add("plan-bundle", "a plan file with the content that it names", reflect.TypeFor[wire.Bundle]())
	// The inner seam.
	add("initialize-params", "params of initialize", reflect.TypeFor[wire.InitializeParams]())
	add("initialize-result", "result of initialize", reflect.TypeFor[wire.InitializeResult]())
	add("initialized-params", "params of initialized: the grant", reflect.TypeFor[wire.InitializedParams]())
	add("evaluate-params", "params of check/evaluate", reflect.TypeFor[wire.EvaluateParams]())
	add("assessment", "result of check/evaluate", reflect.TypeFor[wire.Assessment]())
	add("propose-params", "params of edit/propose", reflect.TypeFor[wire.ProposeParams]())
	add("propose-result", "result of edit/propose", reflect.TypeFor[wire.ProposeResult]())
	add("edit-plan", "a proposal", reflect.TypeFor[wire.EditPlan]())
	add("workspace-edit", "the operations of a proposal or a fix", reflect.TypeFor[wire.WorkspaceEdit]())
	add("changeset", "a content-addressed change over a baseline", reflect.TypeFor[wire.ChangeSet]())
	add("diagnostic", "one finding", reflect.TypeFor[wire.Diagnostic]())
	add("references-params", "params of inspect/references", reflect.TypeFor[wire.ReferencesParams]())
	add("calls-params", "params of inspect/callers and inspect/callees", reflect.TypeFor[wire.CallsParams]())
	add("symbols-params", "params of inspect/symbols", reflect.TypeFor[wire.SymbolsParams]())
	add("impact-params", "params of inspect/impact", reflect.TypeFor[wire.ImpactParams]())
	add("query-params", "params of inspect/query", reflect.TypeFor[wire.QueryParams]())
	add("graph-result", "result of every inspect verb but impact", reflect.TypeFor[wire.GraphResult]())
	add("impact-result", "result of inspect/impact", reflect.TypeFor[wire.ImpactResult]())
	add("list-tree-params", "params of workspace/listTree", reflect.TypeFor[wire.ListTreeParams]())
	add("list-tree-result", "result of workspace/listTree", reflect.TypeFor[wire.ListTreeResult]())
	add("read-blob-params", "params of workspace/readBlob", reflect.TypeFor[wire.ReadBlobParams]())
	add("read-blob-result", "result of workspace/readBlob", reflect.TypeFor[wire.ReadBlobResult]())
	add("put-blob-params", "params of workspace/putBlob, on both seams", reflect.TypeFor[wire.PutBlobParams]())
	add("put-blob-result", "result of workspace/putBlob", reflect.TypeFor[wire.PutBlobResult]())
	add("baseline-changed-params", "params of workspace/baselineChanged", reflect.TypeFor[wire.BaselineChangedParams]())
	add("log-message-params", "params of window/logMessage", reflect.TypeFor[wire.LogMessageParams]())
	add("publish-diagnostics-params", "params of judge/publishDiagnostics", reflect.TypeFor[wire.PublishDiagnosticsParams]())
	add("progress-params", "params of $/progress", reflect.TypeFor[wire.ProgressParams]())
	add("cancel-params", "params of $/cancelRequest", reflect.TypeFor[wire.CancelParams]())
	add("evaluate-params-0.1", "params of check/evaluate in asp/0.1", reflect.TypeFor[wire.LegacyEvaluateParams]())
	add("server-manifest", "asp-server.json", reflect.TypeFor[wire.ServerManifest]())
	return list
}
