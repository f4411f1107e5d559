// Package manifest reads asp-server.json, keeps the providers that a person
// added, and looks at a provider's files right before it is started.
//
// A manifest is somebody else's text. It names a program that is started only
// because it was added to the trusted state; nothing in it grants anything. Its id
// becomes the name of a directory, so it may only hold letters, digits, dot, dash and
// underscore, and not start with a dot: another id is refused, since mapping it to a
// safe name would give two spellings of one provider.
package manifest

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/aspengine/asp/internal/canon"
	"github.com/aspengine/asp/seam/wire"
)

// MaxFile is the most that a manifest may be, in bytes.
const MaxFile = 1 << 20

// Bounds of what a manifest may list. An argument has to pass through execve.
const (
	maxID        = 128
	maxText      = 4096
	maxArgs      = 256
	maxArgBytes  = 100 << 10
	maxList      = 1024
	maxChecksums = 4096
)

// FileName is the name of a manifest, in the registry and elsewhere.
const FileName = "asp-server.json"

// Manifest is a manifest that was accepted.
type Manifest struct {
	ID, Name, Version          string
	Protocols                  []string // protocol versions, as they stand there
	Families                   []wire.Family
	Bin                        string // absolute and clean
	Args                       []string
	Fingerprint                string
	Checksums                  []Checksum
	Publisher, Source, License string
	Profiles                   []string
	Env                        []string // names of variables that it would like to have
	Network                    bool
	Allowlist                  []string
	FSRead, FSWrite            []string
	Value                      canon.Value // the whole file
	Path                       string      // the file that it was read from

	raw []byte
	dir string // what relative paths in it are relative to
}

// Checksum is one file that a provider is made of.
type Checksum struct {
	Path   string // as it stands in the manifest
	SHA256 string // 64 hexadecimal digits, lower case
}

// Error lists what is wrong with a manifest, or with the files that it names.
type Error struct {
	File     string
	Problems []string // bounded
}

func (e *Error) Error() string {
	s := fmt.Sprintf("manifest %.200q: %s", e.File, e.Problems[0])
	if n := len(e.Problems) - 1; n > 0 {
		s += fmt.Sprintf(" (and %d more)", n)
	}
	return s
}

// Parse reads a manifest of version asp-server/1.0 or asp-server/0.1. file is the
// absolute path that b was read from; relative checksum paths are relative to
// its directory. What the file system holds is not looked at. The error is an
// *Error.
func Parse(file string, b []byte) (Manifest, error) {
	refuse := func(problems ...string) (Manifest, error) { return Manifest{}, &Error{file, problems} }
	if !filepath.IsAbs(file) {
		return refuse("the path of the manifest is not absolute")
	}
	v, err := canon.Parse(b, canon.Limits{Bytes: MaxFile})
	if err != nil {
		return refuse(err.Error())
	}
	read, note := v, ""
	if version, _ := v.Get("manifestVersion"); version.Str() == "asp-server/0.1" {
		read, note = fromOld(v), " (read as asp-server/0.1)"
	}
	var w wire.ServerManifest
	if err := wire.Decode(read, &w); err != nil {
		var d *wire.DecodeError
		if !errors.As(err, &d) {
			return refuse(err.Error())
		}
		var problems []string
		for _, p := range d.Problems {
			problems = append(problems, p.String()+note)
		}
		return refuse(problems...)
	}
	if problems := judge(w); len(problems) > 0 {
		return refuse(problems...)
	}
	m := Manifest{
		ID: w.Server.ID, Name: w.Server.Name, Version: w.Server.Version,
		Protocols: w.ProtocolVersions, Families: w.Capabilities,
		Bin: w.Entrypoint.Bin, Args: w.Entrypoint.Args, Fingerprint: w.Artifact.Fingerprint,
		Publisher: w.Provenance.Publisher, Source: w.Provenance.Source, License: w.Provenance.License,
		Profiles: w.CapabilityProfiles, Env: w.AccessExpectations.Environment.Variables,
		Network: w.AccessExpectations.Network.Outbound, Allowlist: w.AccessExpectations.Network.Allowlist,
		FSRead: w.AccessExpectations.Filesystem.Read, FSWrite: w.AccessExpectations.Filesystem.Write,
		Value: v, Path: file, raw: slices.Clone(b), dir: filepath.Dir(file),
	}
	for _, c := range w.Artifact.Checksums {
		m.Checksums = append(m.Checksums, Checksum{c.Path, strings.ToLower(c.SHA256)})
	}
	return m, nil
}

// fromOld gives a manifest of version 0.1 the families of 1.0. That version had
// the words sense, judge and act, as roles or among its capabilities, and words
// for what is no family of this protocol (session), which are left out.
func fromOld(v canon.Value) canon.Value {
	words, ok := v.Get("capabilities")
	if !ok {
		words, _ = v.Get("roles")
	}
	if words.Kind() != canon.Array {
		return v
	}
	families := map[string]wire.Family{"sense": wire.Inspect, "judge": wire.Check, "act": wire.Edit,
		"inspect": wire.Inspect, "check": wire.Check, "edit": wire.Edit}
	var out []canon.Value
	seen := map[wire.Family]bool{}
	for _, w := range words.Elements() {
		f := families[w.Str()]
		if f != "" && !seen[f] {
			seen[f] = true
			out = append(out, canon.StringOf(string(f)))
		}
	}
	return v.With("capabilities", canon.ArrayOf(out...))
}

// judge applies what the shape of a manifest does not say.
func judge(w wire.ServerManifest) (problems []string) {
	add := func(format string, a ...any) {
		if len(problems) < 20 {
			problems = append(problems, fmt.Sprintf(format, a...))
		}
	}
	if err := CheckID(w.Server.ID); err != nil {
		add("%v ($.server.id)", err)
	}
	text := func(path string, words ...string) {
		for _, s := range words {
			if len(s) > maxText || strings.ContainsRune(s, 0) {
				add("%.40q… holds NUL or is longer than %d bytes (%s)", s, maxText, path)
			}
		}
	}
	list := func(path string, words []string, most int) {
		if len(words) > most {
			add("%d entries; at most %d (%s)", len(words), most, path)
			return
		}
		text(path, words...)
	}
	text("$.server", w.Server.Name, w.Server.Version)
	text("$.provenance", w.Provenance.Publisher, w.Provenance.Source, w.Provenance.License, w.Provenance.Signature)
	text("$.artifact.fingerprint", w.Artifact.Fingerprint)
	list("$.protocolVersions", w.ProtocolVersions, maxList)
	list("$.roles", w.Roles, maxList)
	list("$.capabilityProfiles", w.CapabilityProfiles, maxList)
	a := w.AccessExpectations
	for path, words := range map[string][]string{"filesystem.read": a.Filesystem.Read, "filesystem.write": a.Filesystem.Write,
		"network.allowlist": a.Network.Allowlist, "secrets.names": a.Secrets.Names, "dataClasses": a.DataClasses, "environment.variables": a.Environment.Variables} {
		list("$.accessExpectations."+path, words, maxList)
	}
	for _, name := range a.Environment.Variables {
		if !variableName(name) {
			add("%.60q is no name of a variable ($.accessExpectations.environment.variables)", name)
		}
	}
	judgeFiles(w, add, text)
	return problems
}

func judgeFiles(w wire.ServerManifest, add func(string, ...any), text func(string, ...string)) {
	bin := w.Entrypoint.Bin
	text("$.entrypoint.bin", bin)
	switch {
	case !filepath.IsAbs(bin):
		add("bin %.200q is not absolute: it would be another program in another directory or under another PATH; write its full path into the manifest ($.entrypoint.bin)", bin)
	case filepath.Clean(bin) != bin:
		add("bin %.200q is not spelt plainly; write %.200q ($.entrypoint.bin)", bin, filepath.Clean(bin))
	}
	if len(w.Entrypoint.Args) > maxArgs {
		add("%d arguments; at most %d ($.entrypoint.args)", len(w.Entrypoint.Args), maxArgs)
	}
	total := 0
	for _, s := range w.Entrypoint.Args {
		total += len(s)
		if strings.ContainsRune(s, 0) {
			add("an argument holds NUL ($.entrypoint.args)")
		}
	}
	if total > maxArgBytes {
		add("arguments of %d bytes; at most %d ($.entrypoint.args)", total, maxArgBytes)
	}
	sums := w.Artifact.Checksums
	if len(sums) > maxChecksums {
		add("%d checksums; at most %d ($.artifact.checksums)", len(sums), maxChecksums)
		return
	}
	seen := map[string]string{}
	for _, c := range sums {
		text("$.artifact.checksums", c.Path)
		p := filepath.Clean(c.Path)
		if other, twice := seen[p]; twice && !strings.EqualFold(other, c.SHA256) {
			add("%.200q has two different checksums ($.artifact.checksums)", c.Path)
		}
		seen[p] = c.SHA256
	}
}

// CheckID tells whether id may name a provider: one to 128 of the characters
// A-Z a-z 0-9 . _ - and no dot in front.
func CheckID(id string) error {
	ok := id != "" && len(id) <= maxID && id[0] != '.'
	for i := 0; ok && i < len(id); i++ {
		c := id[i]
		ok = c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '.' || c == '_' || c == '-'
	}
	if !ok {
		return fmt.Errorf("provider id %.150q: one to %d letters, digits, dots, dashes and underscores, no dot in front", id, maxID)
	}
	return nil
}

func variableName(s string) bool {
	for i := range len(s) {
		c := s[i]
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_' || i > 0 && c >= '0' && c <= '9') {
			return false
		}
	}
	return s != ""
}
