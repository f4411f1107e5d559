package editplan

import (
	"fmt"
	"slices"
	"strings"

	"github.com/aspengine/asp/internal/canon"
)

// The shapes of LSP 3.17, as far as an edit is made of them.

type lspWorkspaceEdit struct {
	Changes           canon.Value `json:"changes,omitempty"`
	DocumentChanges   canon.Value `json:"documentChanges,omitempty"`
	ChangeAnnotations canon.Value `json:"changeAnnotations,omitempty"`
}

type lspAnnotation struct {
	Label             string `json:"label"`
	NeedsConfirmation bool   `json:"needsConfirmation,omitempty"`
	Description       string `json:"description,omitempty"`
}

type lspDocumentEdit struct {
	TextDocument struct {
		URI     string      `json:"uri"`
		Version canon.Value `json:"version,omitempty"`
	} `json:"textDocument"`
	Edits []lspTextEdit `json:"edits"`
}

type lspTextEdit struct {
	Range struct {
		Start lspPosition `json:"start"`
		End   lspPosition `json:"end"`
	} `json:"range"`
	NewText          *string     `json:"newText,omitempty"`
	AnnotationID     string      `json:"annotationId,omitempty"`
	Snippet          canon.Value `json:"snippet,omitempty"`
	InsertTextFormat int         `json:"insertTextFormat,omitempty"`
}

type lspPosition struct {
	Line      int `json:"line" wire:"min0"`
	Character int `json:"character" wire:"min0"`
}

type lspFileOperation struct {
	Kind         string `json:"kind" wire:"in=create|rename|delete"`
	URI          string `json:"uri,omitempty"`
	OldURI       string `json:"oldUri,omitempty"`
	NewURI       string `json:"newUri,omitempty"`
	AnnotationID string `json:"annotationId,omitempty"`
	Options      struct {
		Overwrite         bool `json:"overwrite,omitempty"`
		IgnoreIfExists    bool `json:"ignoreIfExists,omitempty"`
		IgnoreIfNotExists bool `json:"ignoreIfNotExists,omitempty"`
		Recursive         bool `json:"recursive,omitempty"`
	} `json:"options,omitempty"`
}

// CheckValue holds that an operation has the members of its kind and no others.
func (o lspFileOperation) CheckValue(v canon.Value) error {
	want := map[string][]string{"create": {"uri"}, "delete": {"uri"}, "rename": {"oldUri", "newUri"}}[o.Kind]
	for _, k := range []string{"uri", "oldUri", "newUri"} {
		_, has := v.Get(k)
		if has != slices.Contains(want, k) {
			return fmt.Errorf("%s takes %s", o.Kind, strings.Join(want, " and "))
		}
	}
	return nil
}

// uriPath gives the path below one of the roots that a file URI names, or says
// why it names none. Escapes are undone once; an escaped slash is refused,
// because readers do not agree whether it separates.
func uriPath(uri string, roots []string) (rest, why string) {
	if len(uri) < 7 || !strings.EqualFold(uri[:7], "file://") {
		return "", "is no file:// URI"
	}
	host, escaped, ok := strings.Cut(uri[7:], "/")
	switch {
	case !ok:
		return "", "has no path"
	case host != "" && !strings.EqualFold(host, "localhost"):
		return "", "names another host"
	case strings.ContainsAny(escaped, "?#"):
		return "", "has a query or a fragment"
	}
	p, why := unescape("/" + escaped)
	if why != "" {
		return "", why
	}
	for _, root := range roots {
		if rest, ok := strings.CutPrefix(p, strings.TrimRight(root, "/")+"/"); ok {
			return rest, ""
		}
	}
	return "", "is outside of the workspace"
}

func unescape(s string) (out, why string) {
	if strings.IndexByte(s, '%') < 0 {
		return s, ""
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '%' {
			b.WriteByte(s[i])
			continue
		}
		if i+2 >= len(s) {
			return "", "has a broken escape"
		}
		hi, lo := hexDigit(s[i+1]), hexDigit(s[i+2])
		if hi < 0 || lo < 0 {
			return "", "has a broken escape"
		}
		c := byte(hi<<4 | lo)
		if c == '/' {
			return "", "has an escaped slash"
		}
		b.WriteByte(c)
		i += 2
	}
	return b.String(), ""
}

func hexDigit(c byte) int {
	switch {
	case c >= '0' && c <= '9':
		return int(c - '0')
	case c|0x20 >= 'a' && c|0x20 <= 'f':
		return int(c|0x20-'a') + 10
	}
	return -1
}
