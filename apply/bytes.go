package apply

import "bytes"

type byteReader struct{ *bytes.Reader }

func (byteReader) Close() error { return nil }

func readBytes(b []byte) byteReader { return byteReader{bytes.NewReader(b)} }
