package main

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
)

// Marks in the page between which the rows of a run, and those that missed their
// goals, are written; what stands around them is for people to write.
const (
	rowsMark   = "<!-- the rows of bench.json, written by make chart -->\n"
	missedMark = "<!-- what bench.json missed, written by make chart -->\n"
	endMark    = "<!-- end -->\n"
)

// readReport reads a file that -json wrote.
func readReport(jsonFile string) (*report, error) {
	b, err := os.ReadFile(jsonFile)
	if err != nil {
		return nil, err
	}
	var r report
	if err := json.Unmarshal(b, &r); err != nil {
		return nil, fmt.Errorf("read %s: %w", jsonFile, err)
	}
	return &r, nil
}

// writePage puts the rows of a file that -json wrote into a page.
func writePage(pageFile, jsonFile string) error {
	r, err := readReport(jsonFile)
	if err != nil {
		return err
	}
	b, err := os.ReadFile(pageFile)
	if err != nil {
		return err
	}
	text, err := page(string(b), r)
	if err != nil {
		return fmt.Errorf("write %s: %w", pageFile, err)
	}
	return os.WriteFile(pageFile, []byte(text), 0o644)
}

// page is the text with the rows of r in it. The same report gives the same text.
func page(text string, r *report) (string, error) {
	var rows, missed strings.Builder
	fmt.Fprintf(&rows, "A %s run on %s; load %s at the start and %s at the end.\n\n", r.Form, r.Host, r.LoadBefore, r.LoadAfter)
	r.rowsTo(&rows)
	var without []string
	for _, g := range allGroups {
		if !slices.ContainsFunc(r.Rows, func(x row) bool { return x.Group == g }) {
			without = append(without, g)
		}
	}
	fmt.Fprintf(&rows, "\n%s", r.count())
	if len(without) > 0 {
		fmt.Fprintf(&rows, "; nothing was measured of %s", strings.Join(without, ", "))
	}
	rows.WriteString(".\n")
	for _, n := range r.Notes {
		fmt.Fprintf(&rows, "Note: %s.\n", n)
	}
	var groups []string
	by := map[string][]string{}
	for _, x := range r.Rows {
		if bad, ok := strings.CutPrefix(x.Verdict, "missed: "); ok {
			if by[x.Group] == nil {
				groups = append(groups, x.Group)
			}
			by[x.Group] = append(by[x.Group], fmt.Sprintf("%s (%s): %s, goal %s", strings.TrimPrefix(x.What, "… "), x.Where, strings.ReplaceAll(bad, "; missed:", ";"), x.Goal))
		}
	}
	for _, g := range groups {
		fmt.Fprintf(&missed, "- `%s`\n", g)
		for _, l := range by[g] {
			fmt.Fprintf(&missed, "  - %s\n", l)
		}
	}
	if len(groups) == 0 {
		missed.WriteString("Nothing.\n")
	}
	for _, part := range [][2]string{{rowsMark, rows.String()}, {missedMark, missed.String()}} {
		before, rest, ok := strings.Cut(text, part[0])
		_, after, end := strings.Cut(rest, endMark)
		if !ok || !end {
			return "", fmt.Errorf("it has no place for %q", strings.TrimSpace(part[0]))
		}
		text = before + part[0] + part[1] + endMark + after
	}
	return text, nil
}

// count says how many goals were met.
func (r *report) count() string {
	met, missed := 0, 0
	for _, x := range r.Rows {
		switch {
		case x.Verdict == "met":
			met++
		case strings.HasPrefix(x.Verdict, "missed"):
			missed++
		}
	}
	return fmt.Sprintf("%d goals met, %d missed", met, missed)
}
