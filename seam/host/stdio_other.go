//go:build !linux

package host

import "os"

// Standard is the transport over standard input and output. Here a read that waits
// ends with the process only.
func Standard(in, out *os.File) (Transport, error) { return plainFiles{in, out}, nil }

type plainFiles struct{ in, out *os.File }

func (p plainFiles) Read(b []byte) (int, error)  { return p.in.Read(b) }
func (p plainFiles) Write(b []byte) (int, error) { return p.out.Write(b) }
func (p plainFiles) CloseRead() error            { return p.in.Close() }
func (p plainFiles) Close() error                { p.in.Close(); return p.out.Close() }
