// Package secrets is the bundled check provider that looks for keys and tokens in
// text files. Its rules are few: formats that their issuers made recognizable,
// private keys, passwords in URLs, and, as warnings, assignments of strings that
// look random to names that promise a secret. It proves nothing: a secret without
// a form goes by, and no token is tried.
//
// The rule sets of others were looked at. The library of gitleaks carries a
// configuration system, terminal output and archive readers into whatever links
// it, and its rules read files by themselves; a provider needs a function over
// bytes.
//
// No message holds any part of what was found.
package secrets

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math"
	"path"
	"slices"
	"strings"

	"github.com/aspengine/asp/provider"
)

// maxPerFile bounds the findings in one file.
const maxPerFile = 200

type settings struct {
	MaxFileBytes int      `json:"maxFileBytes,omitempty"`
	Exclude      []string `json:"exclude,omitzero"` // globs over paths
	Allow        []string `json:"allow,omitzero"`   // fingerprints that someone has looked at
}

// New describes the provider.
func New(version string) *provider.Provider {
	all := rules()
	names := make([]string, len(all))
	for i, r := range all {
		names[i] = "secrets/" + r.name
	}
	a := analyser{all}
	return &provider.Provider{
		ID: "secrets", Name: "Secrets", Version: version,
		Check: &provider.Check{
			Rules: names, Configure: configure,
			Run: provider.PerFile{
				Wants: wants, Analyse: a.analyse,
				FileLimit: func(r *provider.CheckRequest) int { return r.Config.(settings).MaxFileBytes },
			}.Check,
		},
	}
}

func configure(d provider.Data) (any, error) {
	s := settings{MaxFileBytes: 4 << 20, Exclude: []string{}, Allow: []string{}}
	if err := d.Decode(&s); err != nil {
		return nil, err
	}
	if s.MaxFileBytes < 1 || s.MaxFileBytes > 8<<20 {
		return nil, provider.InputError("maxFileBytes is from 1 to %d", 8<<20)
	}
	slices.Sort(s.Exclude) // the order means nothing, so it must not show in configDigest
	slices.Sort(s.Allow)
	return s, nil
}

// binary are endings of names whose content is never text.
var binary = strings.Fields(`.png .jpg .jpeg .gif .webp .ico .bmp .tiff .avif .pdf .zip .gz .tgz .bz2 .xz .zst .7z .rar .jar .war .class .so .dll .exe
	.dylib .a .o .wasm .woff .woff2 .ttf .otf .eot .mp3 .mp4 .mov .avi .mkv .webm .ogg .wav .flac .pyc .nupkg .whl`)

func wants(p string, r *provider.CheckRequest) bool {
	for _, glob := range r.Config.(settings).Exclude {
		if provider.MatchGlob(glob, p) {
			return false
		}
	}
	return !slices.Contains(binary, strings.ToLower(path.Ext(p)))
}

type analyser struct{ rules []rule }

// span is a secret in a file.
type span struct {
	rule       *rule
	start, end int
}

func (a analyser) analyse(_ context.Context, f *provider.File, r *provider.CheckRequest) ([]provider.Diagnostic, error) {
	if slices.Contains(f.Content[:min(len(f.Content), 8000)], 0) {
		return nil, nil // binary, by git's rule of thumb
	}
	lower := strings.ToLower(string(f.Content)) // its offsets are not used
	var found []span
	for i := range a.rules {
		ru := &a.rules[i]
		if !r.Wants("secrets/"+ru.name) || !slices.ContainsFunc(ru.words, func(w string) bool { return strings.Contains(lower, w) }) {
			continue
		}
		// Not all at once: a form takes the character behind a secret too, which may
		// be the one before the next.
		for at := 0; len(found) < maxPerFile; {
			m := ru.form.FindSubmatchIndex(f.Content[at:])
			if m == nil {
				break
			}
			s := span{ru, at + m[2], at + m[3]}
			at = s.end
			if ru.accepts(f.Content[s.start:s.end]) && !slices.ContainsFunc(found, s.overlaps) {
				found = append(found, s)
			}
		}
	}
	slices.SortFunc(found, func(x, y span) int { return x.start - y.start })
	allow := r.Config.(settings).Allow
	t := f.Text()
	var out []provider.Diagnostic
	for _, s := range found {
		d := provider.Diagnostic{
			Rule: "secrets/" + s.rule.name, Severity: s.rule.severity,
			Message: fmt.Sprintf("%s, %d characters (not shown)", s.rule.what, s.end-s.start),
			Range:   t.Span(s.start, s.end), Key: s.key(f.Content, t),
			Help: "Revoke it where it was issued, then take it out; it stays in the history of whoever has this state.",
		}
		if !slices.Contains(allow, d.Fingerprint()) {
			out = append(out, d)
		}
	}
	return out, nil
}

func (s span) overlaps(o span) bool { return s.start < o.end && o.start < s.end }

// key is what makes a secret the same one elsewhere. One that is drawn from a
// space too large to search is named by its digest. A password may be guessed, and
// a digest would tell who guesses right: it is named by its surroundings and one
// byte of the digest, so that another password in its place is, nearly always,
// another finding.
func (s span) key(content []byte, t *provider.Text) string {
	sum := sha256.Sum256(content[s.start:s.end])
	if s.rule.random {
		return hex.EncodeToString(sum[:])
	}
	first, last := t.Position(s.start).Line, t.Position(s.end).Line
	lineStart, lineEnd := t.Start(first), t.Start(last)+len(t.Line(last))
	around := string(content[lineStart:s.start]) + "\n" + string(content[s.end:max(s.end, lineEnd)])
	return strings.Join(strings.Fields(around), " ") + " " + hex.EncodeToString(sum[:1])
}

// entropy is Shannon's, in bits a character.
func entropy(b []byte) float64 {
	var count [256]int
	for _, c := range b {
		count[c]++
	}
	h := 0.0
	for _, n := range count {
		if n > 0 {
			p := float64(n) / float64(len(b))
			h -= p * math.Log2(p)
		}
	}
	return h
}
