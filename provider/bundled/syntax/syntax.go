// Package syntax is the bundled check provider that reads files as the languages
// they are in: Go, JSON, YAML, TOML, XML, the front matter of Markdown, and, in
// every text file, the marks that git leaves in a conflict. It says whether a
// parser takes a file, and nothing about what the file means.
//
// Which language a file is in is decided by its name. Parsers are Go's own for Go
// and XML, this module's strict one for JSON, go.yaml.in/yaml for YAML and
// BurntSushi/toml for TOML. JSON that the grammar allows but readers disagree on
// (duplicate keys, lone surrogates, numbers out of range) is a warning. Files by
// names that carry comments by custom (tsconfig.json, .jsonc, ...) may have
// comments and trailing commas.
package syntax

import (
	"context"
	"path"
	"slices"
	"strings"

	"github.com/aspengine/asp/provider"
)

// The rules. Each is the code of its findings.
const (
	RuleGo       = "syntax/go"
	RuleJSON     = "syntax/json"
	RuleInterop  = "syntax/json-interop"
	RuleYAML     = "syntax/yaml"
	RuleTOML     = "syntax/toml"
	RuleXML      = "syntax/xml"
	RuleFront    = "syntax/front-matter"
	RuleConflict = "syntax/conflict-marker"
)

// maxPerFile bounds the findings of one rule in one file.
const maxPerFile = 50

// settings are what config.json may say under configuration.
type settings struct {
	MaxFileBytes int      `json:"maxFileBytes,omitempty"`
	Exclude      []string `json:"exclude,omitzero"` // globs over paths
}

// New describes the provider.
func New(version string) *provider.Provider {
	return &provider.Provider{
		ID: "syntax", Name: "Syntax", Version: version,
		Check: &provider.Check{
			Rules:     []string{RuleGo, RuleJSON, RuleInterop, RuleYAML, RuleTOML, RuleXML, RuleFront, RuleConflict},
			Configure: configure,
			Run: provider.PerFile{
				Wants: wants, Analyse: analyse,
				FileLimit: func(r *provider.CheckRequest) int { return r.Config.(settings).MaxFileBytes },
			}.Check,
		},
	}
}

func configure(d provider.Data) (any, error) {
	s := settings{MaxFileBytes: 4 << 20, Exclude: []string{}}
	if err := d.Decode(&s); err != nil {
		return nil, err
	}
	if s.MaxFileBytes < 1 || s.MaxFileBytes > 8<<20 {
		return nil, provider.InputError("maxFileBytes is from 1 to %d", 8<<20)
	}
	slices.Sort(s.Exclude) // the order means nothing, so it must not show in configDigest
	return s, nil
}

// language is one way to read a file.
type language struct {
	rules []string // the first is the one of a finding without another
	parse func(f *file)
}

// languageOf decides by the name; nil for other text.
func languageOf(p string) *language {
	base := strings.ToLower(path.Base(p))
	switch path.Ext(base) {
	case ".go":
		return &language{[]string{RuleGo}, parseGo}
	case ".json", ".jsonc", ".webmanifest", ".geojson", ".har":
		return &language{[]string{RuleJSON, RuleInterop}, parseJSON}
	case ".yaml", ".yml":
		return &language{[]string{RuleYAML}, parseYAML}
	case ".toml":
		return &language{[]string{RuleTOML}, parseTOML}
	case ".xml", ".xsd", ".xsl", ".xslt", ".svg", ".plist", ".csproj", ".xhtml", ".rss", ".atom", ".wsdl":
		return &language{[]string{RuleXML}, parseXML}
	case ".md", ".markdown", ".mdx":
		return &language{[]string{RuleFront}, parseFrontMatter}
	}
	return nil
}

// binary are endings of names whose content is never text, so that it need not be
// read to know.
var binary = strings.Fields(`.png .jpg .jpeg .gif .webp .ico .bmp .tiff .avif .pdf .zip .gz .tgz .bz2 .xz .zst .7z .rar .jar .war .class .so .dll .exe
	.dylib .a .o .wasm .woff .woff2 .ttf .otf .eot .mp3 .mp4 .mov .avi .mkv .webm .ogg .wav .flac .bin .dat .db .sqlite .pyc .nupkg .whl`)

func wants(p string, r *provider.CheckRequest) bool {
	for _, glob := range r.Config.(settings).Exclude {
		if provider.MatchGlob(glob, p) {
			return false
		}
	}
	if l := languageOf(p); l != nil && slices.ContainsFunc(l.rules, r.Wants) {
		return true
	}
	return r.Wants(RuleConflict) && !slices.Contains(binary, strings.ToLower(path.Ext(p)))
}

// file is a file while it is looked at.
type file struct {
	path    string
	content []byte
	text    *provider.Text
	rule    string // of findings that name none
	found   []provider.Diagnostic
}

func analyse(_ context.Context, f *provider.File, r *provider.CheckRequest) ([]provider.Diagnostic, error) {
	s := &file{path: f.Path, content: f.Content, text: f.Text()}
	l := languageOf(f.Path)
	if r.Wants(RuleConflict) && !isBinary(f.Content) {
		s.conflicts()
	}
	// A parser would only stumble over the marks again, in its own words.
	if l != nil && len(s.found) == 0 {
		s.rule = l.rules[0]
		l.parse(s)
	}
	return slices.DeleteFunc(s.found, func(d provider.Diagnostic) bool { return !r.Wants(d.Rule) }), nil
}

// isBinary is git's own rule of thumb.
func isBinary(b []byte) bool { return slices.Contains(b[:min(len(b), 8000)], 0) }

// add reports a finding at a byte offset. The line there is its key: it stays the
// same wherever the line moves.
func (s *file) add(rule string, severity provider.Severity, offset int, message string) {
	n := 0
	for _, d := range s.found {
		if d.Rule == rule {
			n++
		}
	}
	if n >= maxPerFile {
		return
	}
	at := s.text.Position(offset)
	line := s.text.Line(at.Line)
	end := at
	if text := strings.TrimRight(string(line), " \t"); text != "" {
		end = s.text.Position(s.text.Start(at.Line) + len(text))
	}
	if end.Char < at.Char {
		end = at
	}
	s.found = append(s.found, provider.Diagnostic{
		Rule: rule, Severity: severity, Message: message, Range: &provider.Range{Start: at, End: end},
		Key:  rule + "\n" + strings.Join(strings.Fields(string(line)), " ") + "\n" + message,
		Help: "Mend the place that is named; the parser says nothing about what comes after it.",
	})
}

// atLine is add for parsers that only know the line, counted from 1.
func (s *file) atLine(line int, message string) {
	line = min(max(line, 1), s.text.Lines())
	start := s.text.Start(line - 1)
	text := s.text.Line(line - 1)
	s.add(s.rule, provider.SeverityError, start+len(text)-len(strings.TrimLeft(string(text), " \t")), message)
}
