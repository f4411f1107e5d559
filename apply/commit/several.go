package commit

import (
	"fmt"
	"strings"
)

// shownErrors is how many errors a message spells out where one can come of each
// step of a plan.
const shownErrors = 5

// several are the errors of many steps. Its text names the first few and counts the
// others, so that it stays readable whatever the size of the plan; errors.Is and
// errors.As look at all of them.
type several []error

// join is nil without errors. errors.Join would do but for its text, which has a
// line for each.
func join(errs []error) error {
	if len(errs) == 0 {
		return nil
	}
	return several(errs)
}

// Error names the first few.
func (s several) Error() string {
	var lines []string
	for i, err := range s {
		if i == shownErrors {
			lines = append(lines, fmt.Sprintf("and %d more", len(s)-i))
			break
		}
		lines = append(lines, err.Error())
	}
	return strings.Join(lines, "\n")
}

// Unwrap gives all of them.
func (s several) Unwrap() []error { return s }
