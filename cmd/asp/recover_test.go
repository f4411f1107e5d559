package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	"github.com/aspengine/asp/apply"
	"github.com/aspengine/asp/apply/commit"
)

// TestRecoverNamesEachProposal: where a transaction of several proposals needs attention,
// each is named as it was asked for, as where such a one was completed or rolled back.
func TestRecoverNamesEachProposal(t *testing.T) {
	r := apply.Recovery{Attention: []commit.AttentionPath{
		{TxID: "tx-1", Tag: "\n[\"p\\u0001\",\"q\"]", Path: "a"}, {TxID: "tx-1", Tag: "\n[\"p\\u0001\",\"q\"]", Path: "b"},
		{TxID: "tx-2", Tag: "alone", Path: "c"},
	}}
	var out, errs bytes.Buffer
	e := &env{stdout: &out, stderr: &errs, ui: &ui{err: &errs, width: 80}}
	var end exitStatus
	if err := e.printRecovery(r, nil, 0, true); !errors.As(err, &end) || end != exitAttention {
		t.Errorf("%v", err)
	}
	var got struct{ Recovered []recoveredJSON }
	if err := json.Unmarshal(out.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	want := []recoveredJSON{{"p\x01", "needs-attention", []string{"a", "b"}}, {"q", "needs-attention", []string{"a", "b"}}, {"alone", "needs-attention", []string{"c"}}}
	if fmt.Sprintf("%q", got.Recovered) != fmt.Sprintf("%q", want) {
		t.Errorf("%q, want %q", got.Recovered, want)
	}
}
