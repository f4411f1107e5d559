package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"
)

// row is one line of the table. Values are in Unit; a peer or floor of 0 was
// not measured.
type row struct {
	Group   string  `json:"group"`
	What    string  `json:"what"`
	Where   string  `json:"where"` // file system
	Unit    string  `json:"unit"`
	Ours    float64 `json:"ours"`
	Peer    float64 `json:"peer,omitempty"`
	PeerIs  string  `json:"peerIs,omitempty"`
	Floor   float64 `json:"floor,omitempty"`
	FloorIs string  `json:"floorIs,omitempty"`
	Goal    string  `json:"goal,omitempty"`
	Verdict string  `json:"verdict"` // met, missed, or why neither
	Runs    int     `json:"runs"`
}

// report collects rows.
type report struct {
	c     *config
	Rows  []row    `json:"rows"`
	Notes []string `json:"notes"`
	Host  string   `json:"host"`
	Form  string   `json:"form"` // short or full

	LoadBefore string `json:"loadBefore"`
	LoadAfter  string `json:"loadAfter"`
}

func newReport(c *config) *report {
	git, _ := exec.Command("git", "--version").Output()
	return &report{c: c, Form: c.form, LoadBefore: load(), Host: fmt.Sprintf("%s/%s, %d CPUs, %s, %s, %s, scratch on %s", runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), runtime.Version(), strings.TrimSpace(string(git)), kernel(), c.memType)}
}

func (r *report) header(w io.Writer) {
	fmt.Fprintf(w, "asp bench: %s\nmedians of %d runs taken in turn; load at the start %s\n\n", r.Host, r.c.runs, load())
}

func (r *report) note(format string, a ...any) {
	r.Notes = append(r.Notes, fmt.Sprintf(format, a...))
	fmt.Fprintf(os.Stderr, "  note: "+format+"\n", a...)
}

// limit is a goal on a ratio.
type limit struct {
	most float64
	of   string // "peer" or "floor"
}

// add fills in goal and verdict: every limit has to hold.
func (r *report) add(w row, limits ...limit) {
	var goals, bad []string
	for _, l := range limits {
		base := w.Peer
		if l.of == "floor" {
			base = w.Floor
		}
		goals = append(goals, fmt.Sprintf("≤ %.4g × %s", l.most, l.of))
		switch {
		case base == 0:
			bad = append(bad, "no "+l.of+" measured")
		case w.Ours > l.most*base:
			bad = append(bad, fmt.Sprintf("missed: %.2f × %s", w.Ours/base, l.of))
		}
	}
	if len(limits) > 0 {
		w.Goal, w.Verdict = strings.Join(goals, ", "), "met"
		if len(bad) > 0 {
			w.Verdict = strings.Join(bad, "; ")
		}
	}
	if w.Runs == 0 {
		w.Runs = r.c.runs
	}
	r.Rows = append(r.Rows, w)
	fmt.Fprintf(os.Stderr, "  %-58s %-6s %10s  %s\n", w.What, w.Where, number(w.Ours, w.Unit), w.Verdict)
}

// most adds a row whose goal is a plain number.
func (r *report) most(w row, goal float64) {
	w.Goal, w.Verdict = "≤ "+number(goal, w.Unit), "met"
	if w.Ours > goal {
		w.Verdict = fmt.Sprintf("missed: %.2f × the goal", w.Ours/goal)
	}
	r.add(w)
}

func (r *report) table(w io.Writer) {
	r.rowsTo(w)
	fmt.Fprintf(w, "\n%s. Load at the end %s.\n", r.count(), load())
	for _, n := range r.Notes {
		fmt.Fprintf(w, "Note: %s.\n", n)
	}
}

// rowsTo writes the rows as a table in Markdown.
func (r *report) rowsTo(w io.Writer) {
	head := []string{"operation", "on", "asp", "peer", "ratio", "floor", "ratio", "goal", "verdict"}
	rows := [][]string{head}
	for _, x := range r.Rows {
		line := []string{x.What, x.Where, number(x.Ours, x.Unit), "–", "–", "–", "–", x.Goal, x.Verdict}
		if x.Peer > 0 {
			line[3], line[4] = number(x.Peer, x.Unit)+" "+x.PeerIs, fmt.Sprintf("%.2f", x.Ours/x.Peer)
		}
		if x.Floor > 0 {
			line[5], line[6] = number(x.Floor, x.Unit)+" "+x.FloorIs, fmt.Sprintf("%.2f", x.Ours/x.Floor)
		}
		rows = append(rows, line)
	}
	for i, line := range rows {
		fmt.Fprintf(w, "| %s |\n", strings.Join(line, " | "))
		if i == 0 {
			fmt.Fprintf(w, "|%s\n", strings.Repeat("---|", len(head)))
		}
	}
}

func (r *report) writeJSON(name string) error {
	r.LoadAfter = load()
	b, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(name, append(b, '\n'), 0o644)
}

func number(v float64, unit string) string {
	switch {
	case unit == "B" && v >= 1<<20:
		return fmt.Sprintf("%.1f MiB", v/(1<<20))
	case unit == "B" && v >= 1<<10:
		return fmt.Sprintf("%.1f KiB", v/(1<<10))
	case unit == "ms" && v >= 100:
		return fmt.Sprintf("%.0f ms", v)
	case unit == "ms" && v >= 10:
		return fmt.Sprintf("%.1f ms", v)
	case unit == "ms":
		return fmt.Sprintf("%.2f ms", v)
	}
	return fmt.Sprintf("%.4g %s", v, unit)
}

func ms(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e6 }

func load() string {
	b, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	f := strings.Fields(string(b))
	return f[0]
}
