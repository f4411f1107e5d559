package syntax

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"regexp"
	"strings"
	"sync"

	"github.com/aspengine/asp/provider"
)

// entity finds the names that a document type declares; encoding/xml does not
// read declarations, and would call every use of one an error.
var entity = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`<!ENTITY\s+([A-Za-z_:][A-Za-z0-9_.:-]*)\s`)
})

func parseXML(f *file) {
	b := f.content
	if bytes.HasPrefix(b, []byte("\xff\xfe")) || bytes.HasPrefix(b, []byte("\xfe\xff")) {
		return // UTF-16: not looked at, see docs
	}
	d := xml.NewDecoder(bytes.NewReader(b))
	d.CharsetReader = singleByte
	roots, depth := 0, 0
	for {
		at := d.InputOffset()
		t, err := d.RawToken()
		if err == io.EOF {
			break
		}
		if err != nil {
			f.xmlError(d, err)
			return
		}
		switch t := t.(type) {
		case xml.StartElement:
			if depth++; depth == 1 {
				roots++
			}
			if roots > 1 {
				f.add(RuleXML, provider.SeverityError, int(at), "a second root element")
				return
			}
			if twice := twiceNamed(t.Attr); twice != "" {
				f.add(RuleXML, provider.SeverityError, int(at), "an attribute is there twice")
			}
		case xml.EndElement:
			depth--
		case xml.Directive:
			for _, m := range entity().FindAllSubmatch(t, 1000) {
				if d.Entity == nil {
					d.Entity = map[string]string{}
				}
				d.Entity[string(m[1])] = ""
			}
		}
	}
	// RawToken does not look whether elements are closed; that is a second walk,
	// which knows the entities of the first.
	again := xml.NewDecoder(bytes.NewReader(b))
	again.CharsetReader, again.Entity = singleByte, d.Entity
	for {
		if _, err := again.Token(); err == io.EOF {
			break
		} else if err != nil {
			f.xmlError(again, err)
			return
		}
	}
	if roots == 0 && len(bytes.TrimSpace(b)) > 0 {
		f.add(RuleXML, provider.SeverityError, 0, "no root element")
	}
}

func (f *file) xmlError(d *xml.Decoder, err error) {
	var s *xml.SyntaxError
	message := err.Error()
	if errors.As(err, &s) {
		message = s.Msg
	}
	if errors.Is(err, errCharset) {
		return // an encoding that is not read here
	}
	f.add(RuleXML, provider.SeverityError, max(int(d.InputOffset())-1, 0), strings.ToValidUTF8(message, "\uFFFD"))
}

func twiceNamed(attrs []xml.Attr) string {
	seen := make(map[xml.Name]bool, len(attrs))
	for _, a := range attrs {
		if seen[a.Name] {
			return a.Name.Local
		}
		seen[a.Name] = true
	}
	return ""
}

var errCharset = errors.New("encoding not read here")

// singleByte reads encodings that extend ASCII by one byte a character. Which
// characters those bytes are does not matter to the syntax.
func singleByte(charset string, r io.Reader) (io.Reader, error) {
	c := strings.ToLower(charset)
	if c == "us-ascii" || c == "ascii" || strings.HasPrefix(c, "iso-8859-") || strings.HasPrefix(c, "windows-125") {
		b, err := io.ReadAll(r)
		if err != nil {
			return nil, err
		}
		runes := make([]rune, len(b))
		for i, x := range b {
			runes[i] = rune(x)
		}
		return strings.NewReader(string(runes)), nil
	}
	return nil, errCharset
}
