package syntax

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/parser"
	"go/scanner"
	"go/token"
	"path"
	"strings"

	"github.com/BurntSushi/toml"
	"github.com/aspengine/asp/internal/canon"
	"github.com/aspengine/asp/provider"
	"go.yaml.in/yaml/v4"
)

// maxDepth bounds nesting where a parser calls itself without a bound of its own:
// a stack that is full ends the process, which no recover contains.
const maxDepth = 1000

var utf8BOM = []byte("\xef\xbb\xbf")

func parseGo(f *file) {
	_, err := parser.ParseFile(token.NewFileSet(), "", f.content, parser.SkipObjectResolution)
	var list scanner.ErrorList
	if !errors.As(err, &list) {
		return
	}
	for _, e := range list {
		f.add(RuleGo, provider.SeverityError, e.Pos.Offset, e.Msg)
	}
}

func parseJSON(f *file) {
	skip := 0
	if bytes.HasPrefix(f.content, utf8BOM) {
		skip = len(utf8BOM)
	}
	b := f.content[skip:]
	if commented(f.path) {
		b = withoutComments(b)
		if len(bytes.TrimSpace(b)) == 0 {
			return
		}
	}
	_, err := canon.Parse(b, canon.Limits{AllowCaseTwins: true, Depth: maxDepth})
	var e *canon.Error
	if !errors.As(err, &e) {
		return
	}
	rule, severity := RuleJSON, provider.SeverityError
	if e.Reason != "invalid UTF-8" && json.Valid(b) { // which does not look at the encoding
		if strings.HasPrefix(e.Reason, "more than") || strings.HasPrefix(e.Reason, "nesting") {
			return // a bound of ours, no fault of the file
		}
		rule, severity = RuleInterop, provider.SeverityWarning
	}
	f.add(rule, severity, skip+e.Offset, e.Reason)
}

// commented tells whether a file is JSON with comments by custom.
func commented(p string) bool {
	base := strings.ToLower(path.Base(p))
	for _, prefix := range []string{"tsconfig", "jsconfig", ".eslintrc", "devcontainer", "api-extractor", "turbo"} {
		if strings.HasPrefix(base, prefix) {
			return true
		}
	}
	return strings.HasSuffix(base, ".jsonc") || path.Base(path.Dir(p)) == ".vscode"
}

// withoutComments blanks comments and trailing commas. Offsets stay.
func withoutComments(in []byte) []byte {
	b := bytes.Clone(in)
	comma := -1 // the last token, if it is a comma
	for i := 0; i < len(b); {
		switch c := b[i]; {
		case c == '"':
			comma = -1
			for i++; i < len(b) && b[i] != '"' && b[i] != '\n'; i++ {
				if b[i] == '\\' {
					i++
				}
			}
			i++
		case c == '/' && i+1 < len(b) && (b[i+1] == '/' || b[i+1] == '*'):
			end := bytes.IndexByte(b[i:], '\n')
			if b[i+1] == '*' {
				if end = bytes.Index(b[i+2:], []byte("*/")); end < 0 {
					return b // it has no end: the parser stumbles over its start
				}
				end += 4
			} else if end < 0 {
				end = len(b) - i
			}
			for j := i; j < i+end; j++ {
				if b[j] != '\n' && b[j] != '\r' {
					b[j] = ' '
				}
			}
			i += end
		case c == ' ' || c == '\t' || c == '\n' || c == '\r':
			i++
		default:
			if (c == '}' || c == ']') && comma >= 0 {
				b[comma] = ' '
			}
			comma = -1
			if c == ',' {
				comma = i
			}
			i++
		}
	}
	return b
}

func parseYAML(f *file) { f.yaml(f.content, 0) }

// yaml reads a stream of documents that begins at a line, counted from 0.
func (f *file) yaml(b []byte, first int) {
	d := yaml.NewDecoder(bytes.NewReader(b))
	for {
		var n yaml.Node
		err := d.Decode(&n)
		var e *yaml.LoadError
		switch {
		case err == nil:
			f.duplicates(&n, first, 0)
			continue
		case errors.As(err, &e):
			if !bytes.Contains(b, []byte("{{")) { // a template is no YAML yet
				f.atLine(first+int(e.Mark.Line), e.Message)
			}
		case err.Error() != "EOF":
			f.atLine(first+1, strings.ToValidUTF8(err.Error(), "\uFFFD"))
		}
		return
	}
}

// duplicates finds keys that a mapping has twice, which the language forbids and
// the parser lets pass.
func (f *file) duplicates(n *yaml.Node, first, depth int) {
	if depth > maxDepth {
		return
	}
	if n.Kind == yaml.MappingNode {
		seen := make(map[string]bool, len(n.Content)/2)
		for i := 0; i+1 < len(n.Content); i += 2 {
			k := n.Content[i]
			if k.Kind != yaml.ScalarNode || k.Value == "<<" {
				continue
			}
			if id := k.ShortTag() + " " + k.Value; seen[id] {
				f.atLine(first+k.Line, fmt.Sprintf("key %.80q is there twice", k.Value))
			} else {
				seen[id] = true
			}
		}
	}
	for _, c := range n.Content {
		f.duplicates(c, first, depth+1)
	}
}

func parseTOML(f *file) {
	skip := 0
	if bytes.HasPrefix(f.content, utf8BOM) {
		skip = len(utf8BOM)
	}
	f.toml(f.content[skip:], skip)
}

func (f *file) toml(b []byte, base int) {
	if deep(b) {
		return
	}
	var into map[string]any
	_, err := toml.Decode(string(b), &into)
	var e toml.ParseError
	switch {
	case errors.As(err, &e):
		message := e.Message
		if message == "" {
			message = "no TOML"
		}
		f.add(f.rule, provider.SeverityError, base+e.Position.Start, strings.ToValidUTF8(message, "\uFFFD"))
	case err != nil:
		f.add(f.rule, provider.SeverityError, base, strings.ToValidUTF8(err.Error(), "\uFFFD"))
	}
}

// deep tells whether brackets are nested beyond what a parser that calls itself
// should be given. Brackets in strings count, which errs to the safe side: such a
// file is taken as it is.
func deep(b []byte) bool {
	depth := 0
	for _, c := range b {
		switch c {
		case '[', '{':
			if depth++; depth > maxDepth {
				return true
			}
		case ']', '}':
			depth = max(depth-1, 0)
		}
	}
	return false
}

// parseFrontMatter reads what stands before a Markdown text between two lines of
// --- (YAML) or +++ (TOML). A first line of --- that no key follows is a ruler.
func parseFrontMatter(f *file) {
	if f.text.Lines() < 3 {
		return
	}
	fence := strings.TrimRight(strings.TrimPrefix(string(f.text.Line(0)), string(utf8BOM)), " \t")
	if fence != "---" && fence != "+++" {
		return
	}
	for i := 1; i < f.text.Lines(); i++ {
		if strings.TrimRight(string(f.text.Line(i)), " \t") != fence {
			continue
		}
		from := f.text.Start(1)
		b := f.content[from:f.text.Start(i)]
		switch {
		case fence == "+++":
			f.toml(b, from)
		case keyed(string(f.text.Line(1))):
			f.yaml(b, 1)
		}
		return
	}
}

// keyed tells whether a line looks like the first of a mapping.
func keyed(line string) bool {
	k, _, ok := strings.Cut(line, ":")
	return ok && k != "" && !strings.ContainsAny(k, "#*[]()|<>.!?`")
}
