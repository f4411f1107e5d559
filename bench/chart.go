package main

import (
	"encoding/xml"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
)

// Measures of the chart, in units of the drawing.
const (
	chartWidth  = 960
	chartLabels = 410 // where the bars begin
	chartRight  = 180 // room for a value behind the longest bar
	chartRow    = 40
	chartBar    = 13
	chartTop    = 54
	chartFoot   = 46
)

// drawChart writes the chart of a file that -json wrote.
func drawChart(svgFile, jsonFile string) error {
	r, err := readReport(jsonFile)
	if err != nil {
		return err
	}
	svg, err := chart(r)
	if err != nil {
		return fmt.Errorf("draw %s: %w", jsonFile, err)
	}
	return os.WriteFile(svgFile, svg, 0o644)
}

// charted are the rows that are drawn: times of whole operations beside a peer.
// An apply is drawn on one file system, the first of those that were measured.
func charted(rows []row) []row {
	fs := ""
	var out []row
	for _, x := range rows {
		if x.Unit != "ms" || x.Peer <= 0 || x.Ours <= 0 || strings.HasPrefix(x.What, "…") || strings.Contains(x.What, " beside ") && x.Group != "peers" {
			continue
		}
		if x.Group == "apply" {
			if fs == "" {
				fs = x.Where
			}
			if x.Where != fs {
				continue
			}
		}
		out = append(out, x)
	}
	return out
}

// chart draws two bars a row over a logarithmic axis, because the times span
// four powers of ten. The same report gives the same bytes.
func chart(r *report) ([]byte, error) {
	rows := charted(r.Rows)
	if len(rows) == 0 {
		return nil, fmt.Errorf("no row has a peer")
	}
	top, low := 1.0, math.Inf(1)
	for _, x := range rows {
		top, low = max(top, x.Ours, x.Peer), min(low, x.Ours, x.Peer)
	}
	first, last := math.Floor(math.Log10(low)), math.Ceil(math.Log10(top))
	if first == last {
		last++
	}
	at := func(v float64) float64 {
		return chartLabels + (math.Log10(v)-first)/(last-first)*(chartWidth-chartRight-chartLabels)
	}
	height := chartTop + chartRow*len(rows) + chartFoot
	var b strings.Builder
	fmt.Fprintf(&b, "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" font-family=\"system-ui, sans-serif\" font-size=\"12\" role=\"img\">\n", chartWidth, height)
	fmt.Fprintf(&b, "<title>asp beside other tools, medians in milliseconds</title>\n<rect width=\"%d\" height=\"%d\" fill=\"#fff\"/>\n", chartWidth, height)
	line := func(x, y float64, anchor, color, text string) {
		fmt.Fprintf(&b, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=%q fill=%q>%s</text>\n", x, y, anchor, color, escaped(text))
	}
	bar := func(y float64, v float64, color, text string) {
		fmt.Fprintf(&b, "<rect x=\"%d\" y=\"%.1f\" width=\"%.1f\" height=\"%d\" fill=%q/>\n", chartLabels, y, max(1, at(v)-chartLabels), chartBar, color)
		line(at(v)+5, y+chartBar-2, "start", "#444", text)
	}
	line(14, 22, "start", "#111", "Medians in milliseconds, logarithmic; blue is asp, grey the other tool")
	for p := first; p <= last; p++ {
		x := at(math.Pow(10, p))
		fmt.Fprintf(&b, "<line x1=\"%.1f\" x2=\"%.1f\" y1=\"%d\" y2=\"%d\" stroke=\"#ddd\"/>\n", x, x, chartTop-8, height-chartFoot+2)
		line(x, chartTop-12, "middle", "#666", strconv.FormatFloat(math.Pow(10, p), 'f', -1, 64))
	}
	for i, x := range rows {
		y := float64(chartTop + chartRow*i)
		line(14, y+chartBar+4, "start", "#111", x.What+" ("+x.Where+")")
		bar(y, x.Ours, "#1f6feb", number(x.Ours, "ms"))
		bar(y+chartBar+2, x.Peer, "#9aa4af", number(x.Peer, "ms")+" "+x.PeerIs)
	}
	line(14, float64(height-26), "start", "#666", fmt.Sprintf("%s run, %s", r.Form, r.Host))
	line(14, float64(height-10), "start", "#666", fmt.Sprintf("Contenders took turns; load %s at the start and %s at the end. Drawn by bench from docs/bench.json.", r.LoadBefore, r.LoadAfter))
	b.WriteString("</svg>\n")
	return []byte(b.String()), nil
}

func escaped(s string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(s)) // a strings.Builder takes everything
	return b.String()
}
