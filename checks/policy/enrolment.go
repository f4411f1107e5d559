package policy

import (
	"fmt"
	"path/filepath"

	"github.com/aspengine/asp/internal/canon"
	"github.com/aspengine/asp/seam/wire"
)

// Enrolment is repos.json: which repositories a person trusted to bring a
// policy, by canonical root, and which providers take part in each.
type Enrolment map[string]Repo

// Repo is one enrolled repository.
type Repo struct {
	// Mode is the most that any provider may take part as: advisory or gated.
	Mode wire.Mode
	// Servers are the enabled providers, by id.
	Servers map[string]wire.Mode
}

// ParseEnrolment reads repos.json: {"repos":{"<absolute root>":{"mode":
// "advisory" or "gated","servers":{"<id>":{"mode":…}}}}}. The member servers
// may be missing, as it was in the first form of the file.
func ParseEnrolment(file string, b []byte) (Enrolment, error) {
	e := Enrolment{}
	mode := func(r *reader, v canon.Value, path string) (m wire.Mode) {
		member(v, path, "mode", func(v canon.Value, path string) { m = word(r, v, path, wire.Advisory, wire.Gated) })
		return m
	}
	err := parseFile(file, b, func(r *reader, v canon.Value) {
		if !r.object(v, "$", "!repos") {
			return
		}
		member(v, "$", "repos", func(m canon.Value, path string) {
			r.each(m, path, func(root string, m canon.Value, path string) {
				if !cleanRoot(root) {
					r.fail(path, "must be a clean absolute path")
				}
				if !r.object(m, path, "!mode", "servers") {
					return
				}
				repo := Repo{Mode: mode(r, m, path), Servers: map[string]wire.Mode{}}
				member(m, path, "servers", func(m canon.Value, path string) {
					r.each(m, path, func(id string, m canon.Value, path string) {
						if id == "" {
							r.fail(path, "empty provider id")
						}
						if r.object(m, path, "!mode") {
							repo.Servers[id] = mode(r, m, path)
						}
					})
				})
				e[root] = repo
			})
		})
	})
	if err != nil {
		return nil, err
	}
	return e, nil
}

func cleanRoot(root string) bool { return filepath.IsAbs(root) && filepath.Clean(root) == root }

// Bytes writes the file, for enrolment commands.
func (e Enrolment) Bytes() ([]byte, error) {
	type server struct {
		Mode wire.Mode `json:"mode"`
	}
	type repo struct {
		Mode    wire.Mode         `json:"mode"`
		Servers map[string]server `json:"servers"`
	}
	m := map[string]repo{}
	for root, r := range e {
		w := repo{r.Mode, map[string]server{}}
		for id, mode := range r.Servers {
			w.Servers[id] = server{mode}
		}
		m[root] = w
	}
	v, err := canon.From(struct {
		Repos map[string]repo `json:"repos"`
	}{m})
	if err != nil {
		return nil, err
	}
	return append(v.AppendIndented(nil), '\n'), nil
}

// Add enrols a repository, or changes the most that its providers may take
// part as; "" stands for gated. The providers that are enabled stay.
func (e Enrolment) Add(root string, mode wire.Mode) error {
	if mode == "" {
		mode = wire.Gated
	}
	if !cleanRoot(root) {
		return fmt.Errorf("enrol %.200q: no clean absolute path", root)
	}
	if mode != wire.Advisory && mode != wire.Gated {
		return fmt.Errorf("enrol %.200q: mode %.60q is neither advisory nor gated", root, string(mode))
	}
	r := e[root]
	if r.Servers == nil {
		r.Servers = map[string]wire.Mode{}
	}
	r.Mode = mode
	e[root] = r
	return nil
}

// Remove ends the enrolment of a repository and of all providers in it; false
// when there was none.
func (e Enrolment) Remove(root string) bool {
	_, ok := e[root]
	delete(e, root)
	return ok
}

// Enable lets a provider take part in a repository that is enrolled.
func (e Enrolment) Enable(root, id string, mode wire.Mode) error {
	r, ok := e[root]
	switch {
	case !ok:
		return fmt.Errorf("enable %.100q: %.200q is not enrolled; run `asp repo add` first", id, root)
	case id == "":
		return fmt.Errorf("enable a provider: the id is empty")
	case mode != wire.Advisory && mode != wire.Gated:
		return fmt.Errorf("enable %.100q: mode %.60q is neither advisory nor gated", id, string(mode))
	case mode.Rank() > r.Mode.Rank():
		return fmt.Errorf("enable %.100q: %.200q is enrolled for advisory use only; run `asp repo add --mode gated` first", id, root)
	}
	if r.Servers == nil {
		r.Servers = map[string]wire.Mode{}
	}
	r.Servers[id] = mode
	e[root] = r
	return nil
}

// Disable takes a provider out of a repository; false when it took no part.
func (e Enrolment) Disable(root, id string) bool {
	_, ok := e[root].Servers[id]
	delete(e[root].Servers, id)
	return ok
}

// Enabled tells whether a provider takes part in a repository, and as what: its
// own mode, or the repository's where that is less.
func (e Enrolment) Enabled(root, id string) (wire.Mode, bool) {
	r, ok := e[root]
	if !ok {
		return "", false
	}
	mode, ok := r.Servers[id]
	if !ok {
		return "", false
	}
	if r.Mode.Rank() < mode.Rank() {
		mode = r.Mode
	}
	return mode, true
}
