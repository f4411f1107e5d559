package wire

import (
	"errors"
	"strings"
)

// ServerManifest is asp-server.json: what a provider says of itself before it is
// started. It gives no authority.
type ServerManifest struct {
	Schema             string             `json:"$schema,omitempty"`
	ManifestVersion    string             `json:"manifestVersion" wire:"in=asp-server/1.0|asp-server/0.1"`
	Server             ManifestServer     `json:"server"`
	ProtocolVersions   []string           `json:"protocolVersions" wire:"unique"`
	Roles              []string           `json:"roles,omitzero" wire:"unique"`
	Capabilities       []Family           `json:"capabilities" wire:"unique"`
	CapabilityProfiles []string           `json:"capabilityProfiles,omitzero" wire:"unique"`
	Entrypoint         Entrypoint         `json:"entrypoint"`
	Artifact           Artifact           `json:"artifact"`
	Provenance         ManifestProvenance `json:"provenance"`
	AccessExpectations AccessExpectations `json:"accessExpectations"`
}

// Check demands a protocol version.
func (m ServerManifest) Check() error {
	if len(m.ProtocolVersions) == 0 {
		return errors.New("protocolVersions is empty")
	}
	return nil
}

// ManifestServer names a provider.
type ManifestServer struct {
	ID      string `json:"id" wire:"nonempty"`
	Name    string `json:"name" wire:"nonempty"`
	Version string `json:"version" wire:"nonempty"`
}

// Entrypoint is how a provider is started: a program and its arguments, no
// command line.
type Entrypoint struct {
	Transport string   `json:"transport" wire:"in=stdio"`
	Bin       string   `json:"bin" wire:"nonempty"`
	Args      []string `json:"args"`
}

// Artifact says which files a provider is made of.
type Artifact struct {
	Fingerprint string     `json:"fingerprint" wire:"nonempty"`
	Checksums   []Checksum `json:"checksums,omitzero"`
}

// Checksum is the digest of one file, 64 hexadecimal digits in either case.
type Checksum struct {
	Path   string `json:"path" wire:"nonempty"`
	SHA256 string `json:"sha256"`
}

// Check holds the digest to its form.
func (c Checksum) Check() error {
	if len(c.SHA256) != 64 || !consists(strings.ToLower(c.SHA256), 'f') {
		return errors.New("sha256 must be 64 hexadecimal digits")
	}
	return nil
}

// ManifestProvenance says where a provider comes from.
type ManifestProvenance struct {
	Publisher string `json:"publisher" wire:"nonempty"`
	Source    string `json:"source" wire:"nonempty"`
	License   string `json:"license" wire:"nonempty"`
	Signature string `json:"signature,omitempty"`
}

// AccessExpectations is what a provider hopes to be granted.
type AccessExpectations struct {
	Filesystem  FilesystemExpectation  `json:"filesystem"`
	Network     NetworkExpectation     `json:"network"`
	Secrets     SecretsExpectation     `json:"secrets"`
	Environment EnvironmentExpectation `json:"environment"`
	DataClasses []string               `json:"dataClasses"`
}

// FilesystemExpectation lists globs and words for reading and writing.
type FilesystemExpectation struct {
	Read  []string `json:"read"`
	Write []string `json:"write"`
}

// NetworkExpectation says whether and where to a provider wants to connect.
type NetworkExpectation struct {
	Outbound  bool     `json:"outbound"`
	Allowlist []string `json:"allowlist"`
}

// SecretsExpectation names secrets.
type SecretsExpectation struct {
	Names []string `json:"names"`
}

// EnvironmentExpectation names variables; nothing is ever inherited unnamed.
type EnvironmentExpectation struct {
	Inherit   bool     `json:"inherit"` // false
	Variables []string `json:"variables"`
}

// Check holds the constant.
func (e EnvironmentExpectation) Check() error {
	if e.Inherit {
		return errors.New("inherit must be false")
	}
	return nil
}
