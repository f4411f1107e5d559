package conformance

import (
	"regexp"
	"strings"
	"sync"

	"github.com/aspengine/asp/internal/canon"
)

// Suite names the shape of the report and the set of requirements.
const Suite = "asp-conformance/1"

// The results of a requirement. Skipped means that the profile was asked for and
// the requirement could not be run; it counts as not passed.
const (
	Pass    = "pass"
	Fail    = "fail"
	Skipped = "skipped"
)

// Report is what a run found: a closed object. With the same seed, host and
// provider it is the same text, but for the members named volatile.
type Report struct {
	Suite        string   `json:"suite"`
	Seed         int64    `json:"seed"`
	Host         string   `json:"host"`
	Provider     string   `json:"provider"`
	Profiles     []string `json:"profiles"`
	Requirements []Result `json:"requirements"`
	Summary      Summary  `json:"summary"`
}

// Result is the judgment on one requirement.
type Result struct {
	ID       string     `json:"id"`
	Title    string     `json:"title"`
	Profile  string     `json:"profile"`
	Result   string     `json:"result" wire:"in=pass|fail|skipped"`
	Problems []string   `json:"problems"` // empty exactly for pass
	Evidence []Evidence `json:"evidence"`
}

// Evidence is one exchange: what was sent, and the part of the answer that the
// judgment rests on. Paths, times and names that differ from run to run are
// replaced by words in capitals; digests over them stand in Volatile.
type Evidence struct {
	Step     string      `json:"step"`
	Request  canon.Value `json:"request,omitzero"`
	Answer   canon.Value `json:"answer,omitzero"`
	Volatile canon.Value `json:"volatile,omitzero"`
}

// Summary counts. Result is pass only if everything passed and something ran.
type Summary struct {
	Result  string `json:"result" wire:"in=pass|fail"`
	Total   int    `json:"total"`
	Passed  int    `json:"passed"`
	Failed  int    `json:"failed"`
	Skipped int    `json:"skipped"`
}

func (r *Report) summarize() {
	s := Summary{Total: len(r.Requirements), Result: Fail}
	for _, q := range r.Requirements {
		switch q.Result {
		case Pass:
			s.Passed++
		case Skipped:
			s.Skipped++
		default:
			s.Failed++
		}
	}
	if s.Total > 0 && s.Passed == s.Total {
		s.Result = Pass
	}
	r.Summary = s
}

// maxEvidence bounds the exchanges kept for one requirement, and longText a
// string in one.
const (
	maxEvidence = 40
	longText    = 600
)

// scrubber takes what differs from run to run out of evidence.
type scrubber struct {
	words    *strings.Replacer
	volatile []canon.Member
}

type pattern struct {
	re *regexp.Regexp
	to string
}

// patterns are what differs from run to run, and what stands for it.
var patterns = sync.OnceValue(func() []pattern {
	return []pattern{
		{regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)`), "TIME"},
		{regexp.MustCompile(`\b\d+(\.\d+)?(ns|µs|ms|s)\b`), "DURATION"},
		{regexp.MustCompile(`\brcpt-[0-9A-Za-z_-]+`), "RECEIPT"},
		{regexp.MustCompile(`\b(pid|process) \d+`), "$1 N"},
	}
})

// volatileKeys hold digests over times, or counts of time itself.
var volatileKeys = map[string]bool{
	"requestDigest": true, "changesetDigest": true, "receiptId": true, "elapsedMs": true, "issuedAt": true,
	"startedAt": true, "endedAt": true, "stampedAt": true, "detail": true, "pid": true,
}

func (s *scrubber) value(v canon.Value, path string) canon.Value {
	switch v.Kind() {
	case canon.String:
		return canon.StringOf(s.text(v.Str()))
	case canon.Array:
		items := each(v)
		for i := range items {
			items[i] = s.value(items[i], path+canon.IndexStep(i))
		}
		return canon.ArrayOf(items...)
	case canon.Object:
		var members []canon.Member
		for k, m := range v.Members() {
			p := path + canon.KeyStep(k)
			if volatileKeys[k] && m.Len() == 0 {
				s.volatile = append(s.volatile, canon.Member{Key: p, Value: canon.StringOf(clip(m.Str(), longText))})
				continue
			}
			members = append(members, canon.Member{Key: k, Value: s.value(m, p)})
		}
		return canon.ObjectOf(members...)
	}
	return v
}

func (s *scrubber) text(t string) string {
	t = s.words.Replace(t)
	for _, p := range patterns() {
		t = p.re.ReplaceAllString(t, p.to)
	}
	if len(t) > longText {
		return clip(t, longText) + " (cut)"
	}
	return t
}
