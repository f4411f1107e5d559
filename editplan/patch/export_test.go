package patch

// Quote and Unquote are shown to the tests.
var (
	Quote   = quote
	Unquote = unquote
)
