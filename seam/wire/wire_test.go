package wire_test

import (
	"strings"
	"testing"

	"github.com/aspengine/asp/internal/canon"
	"github.com/aspengine/asp/internal/need"
	"github.com/aspengine/asp/internal/refusal"
	"github.com/aspengine/asp/seam/wire"
)

const plan = `{"proposalId":"p1","provider":{"id":"x","version":"1","capabilityFamily":"edit","capabilityVersion":"edit/1.0","configDigest":"d"},
"status":"complete","baseline":{"rev":"tree:x"},"validAsOf":{"baseline":{"rev":"tree:x"},"blobs":["blob:sha256:aa"]},
"touchedResources":[{"path":"a","kind":"modify","precondition":{"expectedDigest":"blob:sha256:aa"}}],
"workspaceEdit":{"baseline":{"rev":"tree:x"},"documentChanges":[
{"path":"a","kind":"modify","precondition":{"expectedDigest":"blob:sha256:aa"},
"edits":[{"range":{"start":{"line":0,"char":0},"end":{"line":0,"char":1}},"rangeBasis":"blob:sha256:aa","coordinateSystem":"utf16","newText":"b"}]}]},
"confidence":0.5,"annotations":[{"path":"a","message":"m","data":{"k":1}}]}`

func value(t *testing.T, s string) canon.Value {
	t.Helper()
	v, err := canon.Parse([]byte(s), canon.Limits{})
	if err != nil {
		t.Fatalf("%v in %s", err, s)
	}
	return v
}

func TestDecodePlan(t *testing.T) {
	var p wire.EditPlan
	if err := wire.Decode(value(t, plan), &p); err != nil {
		t.Fatal(err)
	}
	got, err := canon.From(p)
	if err != nil {
		t.Fatal(err)
	}
	if !canon.Equal(got, value(t, plan)) {
		t.Errorf("decoded and encoded again:\n%s", got.Bytes())
	}
}

// TestDecodeRefuses changes one thing in a good plan at a time.
func TestDecodeRefuses(t *testing.T) {
	for _, c := range []struct{ old, new, want string }{
		{`"proposalId":"p1"`, `"proposalId":""`, "empty string ($.proposalId)"},
		{`"proposalId":"p1"`, `"ProposalId":"p1"`, "member proposalId is missing ($)"},
		{`"proposalId":"p1"`, `"proposalId":"p1","extra":1`, "unknown member ($.extra)"},
		{`"proposalId":"p1"`, `"proposalId":null`, "string expected, not null"},
		{`"capabilityFamily":"edit"`, `"capabilityFamily":"check"`, "must be edit ($.provider)"},
		{`"line":0,"char":1`, `"line":1.0,"char":1`, "no plain integer"},
		{`"line":0,"char":1`, `"line":1e3,"char":1`, "no plain integer"},
		{`"line":0,"char":1`, `"line":-1,"char":1`, "too small ($.workspaceEdit.documentChanges[0].edits[0].range.end.line)"},
		{`"line":0,"char":1`, `"line":0`, "member char is missing"},
		{`"coordinateSystem":"utf16"`, `"coordinateSystem":"utf8"`, "must be utf16"},
		{`"coordinateSystem":"utf16",`, ``, "coordinateSystem is missing"},
		{`"rangeBasis":"blob:sha256:aa",`, ``, "rangeBasis is missing"},
		{`"rangeBasis":"blob:sha256:aa"`, `"rangeBasis":"sha256:aa"`, "no blob id"},
		{`"status":"complete"`, `"status":"done"`, "is none of"},
		{`"status":"complete"`, `"status":"error"`, "status error needs refusal"},
		{`"confidence":0.5`, `"confidence":1.5`, "outside 0 to 1"},
		{`"data":{"k":1}`, `"data":[1]`, "object expected"},
		{`"blobs":["blob:sha256:aa"]`, `"blobs":["blob:sha256:aa","blob:sha256:aa"]`, "same as element 0"},
		{`"kind":"modify","precondition":{"expectedDigest":"blob:sha256:aa"},`, `"kind":"modify","precondition":{"expectedDigest":"blob:sha256:aa","expectedAbsence":false},`, "true expected"},
		{`"kind":"modify","precondition":{"expectedDigest":"blob:sha256:aa"},`, `"kind":"modify","precondition":{"expectedDigest":"blob:sha256:aa","expectedAbsence":true},`, "a precondition is"},
		{`"kind":"modify","precondition":{"expectedDigest":"blob:sha256:aa"},`, `"kind":"modify","precondition":{},`, "a precondition is"},
		{`"kind":"modify","precondition":{"expectedDigest":"blob:sha256:aa"},`, `"kind":"modify","precondition":{"expectedAbsence":true},`, "modify needs expectedDigest"},
		{`"kind":"modify","precondition":{"expectedDigest":"blob:sha256:aa"},`, `"kind":"create","precondition":{"expectedAbsence":true},`, "create needs after"},
		{`"kind":"modify","precondition":{"expectedDigest":"blob:sha256:aa"},`, `"kind":"modify","precondition":{"expectedDigest":"blob:sha256:aa"},"after":"blob:sha256:bb",`, "either after or edits"},
		{`"kind":"modify","precondition":{"expectedDigest":"blob:sha256:aa"},`, `"kind":"delete","precondition":{"expectedDigest":"blob:sha256:aa"},`, "delete takes neither"},
		{`"kind":"modify","precondition":{"expectedDigest":"blob:sha256:aa"},`, `"kind":"rename","precondition":{"expectedDigest":"blob:sha256:aa"},`, "rename takes no new content"},
		{`"kind":"modify","precondition":{"expectedDigest":"blob:sha256:aa"},`, `"kind":"move","to":"b","precondition":{"expectedDigest":"blob:sha256:aa"},`, "move takes no new content"},
		{`"kind":"modify","precondition":{"expectedDigest":"blob:sha256:aa"},`, `"kind":"chmod","precondition":{"expectedDigest":"blob:sha256:aa"},`, "is none of"},
	} {
		in := strings.ReplaceAll(plan, "\n", "")
		at := strings.LastIndex(in, c.old)
		if at < 0 {
			t.Fatalf("%q is not in the plan", c.old)
		}
		in = in[:at] + c.new + in[at+len(c.old):]
		var p wire.EditPlan
		err := wire.Decode(value(t, in), &p)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("with %s: %v, want %q", c.new, err, c.want)
		}
	}
}

func TestDecodeRenameNeedsDestination(t *testing.T) {
	for in, want := range map[string]string{
		`{"path":"a","kind":"rename","precondition":{"expectedDigest":"blob:sha256:aa"}}`:                                 "rename needs to",
		`{"path":"a","kind":"move","to":"","precondition":{"expectedDigest":"blob:sha256:aa"}}`:                           "",
		`{"path":"a","kind":"move","to":"b","after":"blob:sha256:aa","precondition":{"expectedDigest":"blob:sha256:aa"}}`: "",
		`{"path":"a","kind":"move","to":"b","after":"blob:sha256:bb","precondition":{"expectedDigest":"blob:sha256:aa"}}`: "move takes no new content",
	} {
		var c wire.DocumentChange
		err := wire.Decode(value(t, in), &c)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", in, err, want)
		}
	}
}

func TestDecodeListsEveryProblem(t *testing.T) {
	var c wire.ChangeSet
	err := wire.Decode(value(t, `{"baseline":{},"changes":[{"path":1,"kind":"create"},{"path":"a","kind":"rename","before":"x"}],"z":0}`), &c)
	e, ok := err.(*wire.DecodeError)
	if !ok || len(e.Problems) != 4 {
		t.Fatalf("got %v", err)
	}
	for i, want := range []string{"$.baseline", "$.changes[0].path", "$.changes[1].before", "$.z"} {
		if e.Problems[i].Path != want {
			t.Errorf("problem %d at %s, want %s", i, e.Problems[i].Path, want)
		}
	}
}

func TestScanForbidden(t *testing.T) {
	v := value(t, `{"rationale":"command","data":[{"x":{"command":"rm"}},{"receipt":{"scripts":[]}}],"Pass":1,"verdict":null,"passing":{"policyDigest":0}}`)
	want := []wire.Forbidden{
		{"command", "$.data[0].x.command", refusal.CommandLike},
		{"receipt", "$.data[1].receipt", refusal.HostField},
		{"scripts", "$.data[1].receipt.scripts", refusal.CommandLike},
		{"verdict", "$.verdict", refusal.HostField},
		{"policyDigest", "$.passing.policyDigest", refusal.HostField},
	}
	got := wire.ScanForbidden(v)
	if len(got) != len(want) {
		t.Fatalf("got %v", got)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("got %v, want %v", got[i], want[i])
		}
	}
	for _, k := range strings.Fields("authority assurance decision disposition pass verdict receipt applyReceipt transactionGuarantee policyDigest policyRef policyReference authorityEvidence hostDecision applyAttempt applyResult command commands script scripts") {
		if got := wire.ScanForbidden(value(t, `{"a":[[{"`+k+`":0}]]}`)); len(got) != 1 || got[0].Path != "$.a[0][0]."+k {
			t.Errorf("%s: %v", k, got)
		}
	}
}

func TestBlobDecode(t *testing.T) {
	for _, c := range []struct {
		enc  wire.Encoding
		in   string
		want string
		ok   bool
	}{
		{wire.UTF8, "é\n", "é\n", true}, {wire.Base64, "6QA=", "\xe9\x00", true}, {wire.Base64, "", "", true},
		{wire.Base64, "6QA", "", false}, {wire.Base64, "6QB=", "", false}, {wire.Base64, "6Q\nA=", "", false}, {wire.Base64, "-_==", "", false},
	} {
		got, err := wire.Blob{Encoding: c.enc, Bytes: c.in}.Decode()
		if (err == nil) != c.ok || c.ok && string(got) != c.want {
			t.Errorf("%s %q: %q, %v", c.enc, c.in, got, err)
		}
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(plan))
	f.Add([]byte(`{"baseline":{"rev":"x"},"changes":[]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		need.Bounded(t, len(data), func() {
			v, err := canon.Parse(data, canon.Limits{})
			if err != nil {
				return
			}
			var p wire.EditPlan
			if err := wire.Decode(v, &p); err != nil {
				if len(err.Error()) > 4000 {
					t.Fatalf("error text of %d bytes", len(err.Error()))
				}
				return
			}
			again, err := canon.From(p)
			if err != nil {
				t.Fatal(err)
			}
			var q wire.EditPlan
			if err := wire.Decode(again, &q); err != nil {
				t.Fatalf("own encoding refused: %v\n%s", err, again.Bytes())
			}
		})
	})
}
