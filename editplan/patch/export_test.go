package patch

// Quote and Unquote are shown to the tests.
var (
	Quote   = quote
	Unquote = unquote
)

// BinaryPatch writes a binary patch with given data, damaged data too.
func BinaryPatch(old, new []byte, method string, data []byte) string {
	lit := appendLiteral(nil, data)
	lit = append([]byte(method), lit[len("literal"):]...)
	return "diff --git a/f b/f\nindex " + BlobID(old) + ".." + BlobID(new) + " 100644\nGIT binary patch\n" + string(lit) + "\n"
}
