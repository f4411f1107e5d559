package policy

import (
	"path/filepath"

	"github.com/aspengine/asp/internal/canon"
	"github.com/aspengine/asp/seam/wire"
)

// Enrolment is repos.json: which repositories a person trusted to bring a
// policy, by canonical root, and up to which mode their providers take part.
type Enrolment map[string]wire.Mode

// ParseEnrolment reads repos.json: {"repos":{"<absolute root>":{"mode":
// "advisory" or "gated"}}}.
func ParseEnrolment(file string, b []byte) (Enrolment, error) {
	e := Enrolment{}
	err := parseFile(file, b, func(r *reader, v canon.Value) {
		if !r.object(v, "$", "!repos") {
			return
		}
		member(v, "$", "repos", func(m canon.Value, path string) {
			r.each(m, path, func(root string, m canon.Value, path string) {
				if !filepath.IsAbs(root) || filepath.Clean(root) != root {
					r.fail(path, "must be a clean absolute path")
				}
				if !r.object(m, path, "!mode") {
					return
				}
				member(m, path, "mode", func(m canon.Value, path string) {
					e[root] = word(r, m, path, wire.Advisory, wire.Gated)
				})
			})
		})
	})
	if err != nil {
		return nil, err
	}
	return e, nil
}

// Bytes writes the file, for enrolment commands.
func (e Enrolment) Bytes() ([]byte, error) {
	type repo struct {
		Mode wire.Mode `json:"mode"`
	}
	m := map[string]repo{}
	for root, mode := range e {
		m[root] = repo{mode}
	}
	v, err := canon.From(struct {
		Repos map[string]repo `json:"repos"`
	}{m})
	if err != nil {
		return nil, err
	}
	return append(v.AppendIndented(nil), '\n'), nil
}
