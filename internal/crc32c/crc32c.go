// Package crc32c is the CRC-32C of journal and stat cache. The standard library's
// is many times faster and takes a quarter of a millisecond to fill its tables
// before the first byte, which is more than a whole transaction of one file hashes.
package crc32c

import "hash/crc32"

// small is the length from which the standard library's tables are worth filling.
const small = 32 << 10

// Checksum is the CRC-32C of b.
func Checksum(b []byte) uint32 { return Update(0, b) }

// Update adds b to the checksum of what came before it.
func Update(crc uint32, b []byte) uint32 {
	if len(b) >= small {
		return crc32.Update(crc, crc32.MakeTable(crc32.Castagnoli), b)
	}
	// Four bits at a time: the remainders of the sixteen values that go out.
	table := [16]uint32{
		0x00000000, 0x105ec76f, 0x20bd8ede, 0x30e349b1, 0x417b1dbc, 0x5125dad3, 0x61c69362, 0x7198540d,
		0x82f63b78, 0x92a8fc17, 0xa24bb5a6, 0xb21572c9, 0xc38d26c4, 0xd3d3e1ab, 0xe330a81a, 0xf36e6f75,
	}
	crc = ^crc
	for _, c := range b {
		crc ^= uint32(c)
		crc = table[crc&15] ^ crc>>4
		crc = table[crc&15] ^ crc>>4
	}
	return ^crc
}
