package replace

import (
	"bytes"
	"context"
	"slices"

	"github.com/aspengine/asp/provider"
)

// spot is a place and what comes there.
type spot struct {
	start, end int
	with       []byte
}

// find lists what the rules want to change, in order. Spots that change nothing
// are kept out; two that overlap are an error.
func find(content []byte, rules []rule, limit int) ([]spot, error) {
	var out []spot
	for _, r := range rules {
		switch {
		case r.literal != nil:
			for at := 0; len(out) <= limit; {
				i := bytes.Index(content[at:], r.literal)
				if i < 0 {
					break
				}
				at += i
				out = append(out, spot{at, at + len(r.literal), []byte(r.with)})
				at += len(r.literal)
			}
		default:
			for _, m := range r.pattern.FindAllSubmatchIndex(content, limit+1) {
				out = append(out, spot{m[0], m[1], r.pattern.Expand(nil, []byte(r.with), content, m)})
			}
		}
	}
	slices.SortStableFunc(out, func(a, b spot) int { return a.start - b.start })
	for i := 1; i < len(out); i++ {
		if out[i].start < out[i-1].end {
			return nil, provider.InputError("two rules want the bytes at %d", out[i].start)
		}
	}
	return slices.DeleteFunc(out, func(s spot) bool { return s.start == s.end || bytes.Equal(content[s.start:s.end], s.with) }), nil
}

// apply makes the new content.
func apply(content []byte, spots []spot) []byte {
	var out []byte
	at := 0
	for _, s := range spots {
		out = append(append(out, content[at:s.start]...), s.with...)
		at = s.end
	}
	return append(out, content[at:]...)
}

// replace plans new content for the files that match.
func (j *job) replace(ctx context.Context) error {
	read, total := 0, 0
	for _, e := range j.files {
		if read == maxFiles || total > maxBytes || j.matches >= maxEdits {
			j.incomplete("budget-exhausted", "stopped after %d files, %d bytes and %d matches", read, total, j.matches)
			return nil
		}
		if !j.h.Grant().Allows(e.Path) {
			continue // the host would not have listed it
		}
		b, err := j.h.ReadBlob(ctx, e.BlobID)
		if provider.Denied(err) {
			j.incomplete("partial-coverage", "%.200q was denied", e.Path)
			continue
		}
		if err != nil {
			return err
		}
		read, total = read+1, total+len(b)
		spots, err := find(b, j.rules, maxEdits)
		if err != nil {
			return err
		}
		if len(spots) == 0 {
			continue
		}
		if len(spots) > maxEdits {
			j.incomplete("budget-exhausted", "%.200q has more than %d matches", e.Path, maxEdits)
			continue
		}
		j.matches += len(spots)
		if err := j.file(ctx, &provider.File{Path: e.Path, ID: e.BlobID, Content: b}, spots); err != nil {
			return err
		}
	}
	return nil
}

// file plans one file: as text edits where the operation and the content allow.
func (j *job) file(ctx context.Context, f *provider.File, spots []spot) error {
	if j.r.Operation != "replace-resource" && editable(f, spots) {
		for _, s := range spots {
			if err := j.plan.Edit(f, s.start, s.end, string(s.with)); err != nil {
				return err
			}
		}
		return nil
	}
	id, err := j.h.PutBlob(ctx, apply(f.Content, spots))
	if err != nil {
		return err
	}
	j.plan.Replace(f.Path, f.ID, id)
	return nil
}

// editable tells whether every spot is a place for a text edit: the content and
// what comes in are UTF-8, and no CRLF or character is cut.
func editable(f *provider.File, spots []spot) bool {
	t := f.Text()
	for _, s := range spots {
		if _, err := t.Range(s.start, s.end); err != nil {
			return false
		}
		if !provider.NewText(s.with).Valid() {
			return false
		}
	}
	return true
}
