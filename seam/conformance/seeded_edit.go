package conformance

import (
	"os"
	"slices"
	"strings"
	"time"

	"github.com/aspengine/asp/internal/canon"
)

// propose answers edit/propose. The arguments of the operation say what to do:
// how names the behaviour, path and text the edit.
func (p *seeded) propose(id, params canon.Value) {
	args := at(params, "args")
	how := text(args, "how")
	if how == "" {
		how = p.role.Edit
	}
	path := text(args, "path")
	if path == "" {
		path = "src/a.txt"
	}
	how, arg, _ := strings.Cut(how, "!")
	switch how {
	case "error":
		p.typedError(id, arg)
		return
	case "crash":
		os.Exit(3)
	case "hang":
		time.Sleep(time.Hour)
	case "slow":
		p.untilCancelled(id)
		return
	case "not-object":
		p.reply(id, canon.StringOf("diff --git a/x b/x"))
		return
	case "null":
		p.reply(id, canon.NullOf())
		return
	case "legacy-result":
		// What a provider of another protocol answers: whole contents, no
		// preconditions.
		p.reply(id, object(member("editResult", object(member("route", "edit/rename"), member("status", "preview"),
			member("changes", []canon.Value{object(member("kind", "replace"), member("path", path), member("content", "x\n"))})))))
		return
	}
	if how == "exit-at-once" {
		os.Exit(0)
	}
	plan, ok := p.plan(id, params, how, arg, path)
	switch {
	case !ok:
	case slices.Contains(streams(), how):
		p.broken(id, object(member("proposal", plan)), how)
	default:
		p.reply(id, object(member("proposal", p.twistedPlan(plan, how, arg))))
	}
}

// plan makes the good plan for a behaviour: an insert at the start of path, or
// what the behaviour names.
func (p *seeded) plan(id, params canon.Value, how, arg, path string) (canon.Value, bool) {
	content := text(at(params, "args"), "text")
	if content == "" {
		content = "inserted\n"
	}
	var served []string
	basis := func(path string) (string, bool) {
		v, e, err := p.call("workspace/listTree", object(member("paths", []string{path})))
		if e != nil || err != nil {
			p.refuse(id, -32603, "health", "cannot list "+path)
			return "", false
		}
		for _, n := range each(at(v, "entries")) {
			if text(n, "path") == path {
				b := text(n, "blobId")
				if _, ok := p.blob(b); ok {
					served = append(served, b)
					return b, true
				}
			}
		}
		p.refuse(id, -32013, "input", "there is no "+path)
		return "", false
	}
	if n, ok := at(params, "args", "size").Int(); ok {
		content = strings.Repeat("é\n", int(n)/3+1)[:n]
		if n%3 == 1 {
			content = content[:n-1] + "\n" // half of a character is none
		}
	}
	upload := func() (string, bool) {
		v, e, err := p.call("workspace/putBlob", object(member("blobs", []canon.Value{object(member("encoding", "utf-8"), member("bytes", content))})))
		ids := stringsOf(at(v, "ids"))
		if e != nil || err != nil || len(ids) != 1 {
			p.refuse(id, -32603, "health", "cannot upload")
			return "", false
		}
		return ids[0], true
	}
	status := "complete"
	var changes []canon.Value
	switch how {
	case "create":
		b, ok := upload()
		if !ok {
			return canon.Value{}, false
		}
		changes = []canon.Value{object(member("path", path), member("kind", "create"), member("precondition", absent()), member("after", b))}
	case "replace":
		old, ok := basis(path)
		if !ok {
			return canon.Value{}, false
		}
		b, ok := upload()
		if !ok {
			return canon.Value{}, false
		}
		changes = []canon.Value{object(member("path", path), member("kind", "modify"), member("precondition", expected(old)), member("after", b))}
	case "delete", "rename":
		old, ok := basis(path)
		if !ok {
			return canon.Value{}, false
		}
		c := object(member("path", path), member("kind", how), member("precondition", expected(old)))
		if how == "rename" {
			c = c.With("to", canon.StringOf(path+".new"))
		}
		changes = []canon.Value{c}
	case "changes":
		for _, c := range stringsOf(at(params, "args", "uploads")) {
			content = c
			if _, ok := upload(); !ok {
				return canon.Value{}, false
			}
		}
		changes = each(at(params, "args", "changes"))
	case "incomplete", "unsupported", "status-error", "cancelled":
		status = strings.TrimPrefix(how, "status-")
	case "escape":
		changes = []canon.Value{object(member("path", arg), member("kind", "create"), member("precondition", absent()), member("after", blobID(content)))}
		if _, ok := upload(); !ok {
			return canon.Value{}, false
		}
	case "missing-blob":
		changes = []canon.Value{object(member("path", "new.txt"), member("kind", "create"), member("precondition", absent()), member("after", blobID("never sent")))}
	default:
		old, ok := basis(path)
		if !ok {
			return canon.Value{}, false
		}
		changes = []canon.Value{insertion(path, old, content)}
	}
	return planOf(text(params, "proposalId"), p.role.ID, p.role.Version, status, at(params, "baseline"), served, changes), true
}

func absent() canon.Value            { return object(member("expectedAbsence", true)) }
func expected(id string) canon.Value { return object(member("expectedDigest", id)) }

// insertion puts text at the start of a file.
func insertion(path, basis, content string) canon.Value {
	zero := object(member("line", 0), member("char", 0))
	return object(member("path", path), member("kind", "modify"), member("precondition", expected(basis)),
		member("edits", []canon.Value{object(member("range", object(member("start", zero), member("end", zero))),
			member("rangeBasis", basis), member("coordinateSystem", "utf16"), member("newText", content))}))
}

// planOf makes an EditPlan whose touched resources mirror its changes.
func planOf(proposal, provider, version, status string, baseline canon.Value, served []string, changes []canon.Value) canon.Value {
	if served == nil {
		served = []string{}
	}
	touched := []canon.Value{}
	for _, c := range changes {
		r := object(member("path", at(c, "path")), member("kind", at(c, "kind")))
		if to := at(c, "to"); to.Kind() != canon.Invalid {
			r = r.With("to", to)
		}
		touched = append(touched, r.With("precondition", at(c, "precondition")))
	}
	plan := object(
		member("proposalId", proposal),
		member("provider", object(member("id", provider), member("version", version), member("capabilityFamily", "edit"),
			member("capabilityVersion", "edit/1.0"), member("configDigest", canon.DigestText(object())))),
		member("status", status),
		member("baseline", baseline),
		member("validAsOf", object(member("baseline", baseline), member("blobs", served))),
		member("touchedResources", touched),
	)
	switch status {
	case "complete":
		return plan.With("workspaceEdit", object(member("baseline", baseline), member("documentChanges", changes)))
	case "incomplete":
		return plan.With("incomplete", object(member("reason", "partial-coverage"), member("detail", "half of it")))
	case "unsupported":
		return plan.With("unsupported", object(member("operation", "text-edit"), member("reason", "operation"), member("detail", "not this one")))
	}
	reason := "provider-error"
	if status == "cancelled" {
		reason = "cancelled"
	}
	return plan.With("refusal", object(member("reason", reason), member("detail", "no")))
}

// twistedPlan puts something wrong into a good plan.
func (p *seeded) twistedPlan(plan canon.Value, how, arg string) canon.Value {
	first := func(f func(c canon.Value) canon.Value) canon.Value {
		c := f(at(plan, "workspaceEdit", "documentChanges").At(0))
		return put(plan, []canon.Value{c}, "workspaceEdit", "documentChanges")
	}
	edit := func(f func(e canon.Value) canon.Value) canon.Value {
		return first(func(c canon.Value) canon.Value { return put(c, []canon.Value{f(at(c, "edits").At(0))}, "edits") })
	}
	switch how {
	case "command-top":
		return put(plan, arg+" --fix", arg)
	case "command-annotation":
		return put(plan, []canon.Value{object(member("path", "src/a.txt"), member("message", "x"), member("data", object(member("deep", object(member(arg, []string{"sh", "-c", "true"}))))))}, "annotations")
	case "host-top":
		return put(plan, "allow", arg)
	case "host-annotation":
		return put(plan, []canon.Value{object(member("path", "src/a.txt"), member("message", "x"), member("data", object(member("deep", object(member(arg, true))))))}, "annotations")
	case "unknown-member":
		return put(plan, true, "extra")
	case "other-proposal":
		return put(plan, "somebody-else", "proposalId")
	case "other-provider":
		return put(plan, "somebody-else", "provider", "id")
	case "no-basis":
		return edit(func(e canon.Value) canon.Value { return drop(e, "rangeBasis") })
	case "no-precondition":
		return first(func(c canon.Value) canon.Value { return drop(c, "precondition") })
	case "absence-on-modify":
		return first(func(c canon.Value) canon.Value { return put(c, absent(), "precondition") })
	case "not-mirrored":
		return put(plan, []canon.Value{}, "touchedResources")
	case "mirrors-other":
		return put(plan, []canon.Value{object(member("path", "src/b.txt"), member("kind", "modify"), member("precondition", expected(blobID(baseFiles["src/b.txt"]))))}, "touchedResources")
	case "other-baseline":
		b := object(member("rev", "git:tree:"+strings.Repeat("0", 40)))
		return put(put(put(plan, b, "baseline"), b, "validAsOf", "baseline"), b, "workspaceEdit", "baseline")
	case "no-edit":
		return drop(plan, "workspaceEdit")
	case "wide-coordinates":
		return edit(func(e canon.Value) canon.Value { return put(e, "utf8", "coordinateSystem") })
	case "negative-range":
		return edit(func(e canon.Value) canon.Value { return put(e, -1, "range", "start", "line") })
	}
	return plan
}
