package apply

import (
	"fmt"
	"strings"
)

// undecidedError is ErrAttention right after an attempt: it names the paths and what a
// person does about them, because who sees it has no other list, over the seam least of
// all.
type undecidedError struct {
	paths []string // undecided; none: those of the plan, of which it is not known how they are
	plan  []string
	area  string // of an exchange whose other tree had to stay
	cause error
}

func (u *undecidedError) Error() string {
	var s string
	switch {
	case u.area != "":
		s = fmt.Sprintf("needs attention: the exchange could not be taken back for certain, and the other tree stays in %q; `asp recover` says what became of it", cut(u.area))
	case len(u.paths) > 0:
		s = "needs attention: " + quoted(u.paths) + " could not be put back without losing what somebody wrote there; see what was there with `asp recover --show PATH`, and decide with `asp recover --keep-mine` or `--keep-theirs`"
	default:
		s = "needs attention: the change of " + quoted(u.plan) + " could not be taken back now; `asp recover` does it, or says what is left to decide"
	}
	if u.cause != nil {
		s += ": " + u.cause.Error()
	}
	return s
}

func (u *undecidedError) Unwrap() []error { return []error{ErrAttention, u.cause} }

// quoted names some paths and counts the others.
func quoted(paths []string) string {
	const shown = 5
	var out []string
	for i, p := range paths {
		if i == shown {
			return strings.Join(out, ", ") + fmt.Sprintf(" and %d more", len(paths)-shown)
		}
		out = append(out, fmt.Sprintf("%q", cut(p)))
	}
	return strings.Join(out, ", ")
}

// undecided makes the error of an attempt whose changes could not all be taken back.
func (t *tx) undecided(area string, cause error) error {
	u := &undecidedError{area: area, cause: cause}
	for _, a := range t.answer.Attention {
		u.paths = append(u.paths, a.Path)
	}
	for _, c := range t.changes {
		u.plan = append(u.plan, c.Path.String())
	}
	return u
}
