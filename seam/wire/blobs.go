package wire

// PutBlobParams adds content to a proposal's set; from a harness or, as a
// callback, from an edit provider.
type PutBlobParams struct {
	Blobs []Blob `json:"blobs"`
}

// PutBlobResult names the content in the order that it came in.
type PutBlobResult struct {
	IDs []BlobRef `json:"ids"`
}

// ReadBlobParams asks for content.
type ReadBlobParams struct {
	Blobs []BlobRef `json:"blobs"`
}

// ReadBlobResult gives it.
type ReadBlobResult struct {
	Blobs []NamedBlob `json:"blobs"`
}

// NamedBlob is content with its name.
type NamedBlob struct {
	ID       BlobRef  `json:"id"`
	Encoding Encoding `json:"encoding"`
	Bytes    string   `json:"bytes"`
}

// ListTreeParams asks for entries of the baseline tree.
type ListTreeParams struct {
	Globs    []string  `json:"globs,omitzero"`
	Paths    []string  `json:"paths,omitzero"`
	Baseline *Baseline `json:"baseline,omitempty" wire:"open"`
}

// ListTreeResult gives them; Truncated when a cap was hit.
type ListTreeResult struct {
	Entries   []TreeEntry `json:"entries"`
	Truncated *bool       `json:"truncated,omitempty"`
}

// TreeEntry is one entry of the baseline tree.
type TreeEntry struct {
	Path   string  `json:"path"`
	BlobID BlobRef `json:"blobId"`
	Kind   string  `json:"kind" wire:"in=file|dir|symlink"`
}

// BaselineChangedParams tells a provider that the tree moved.
type BaselineChangedParams struct {
	Baseline Baseline `json:"baseline"`
}
