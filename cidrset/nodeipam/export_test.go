package nodeipam

import (
	"encoding/binary"
	"hash/crc32"
)

// seal gives a snapshot's body the checksum that it should have.
func seal(body []byte) []byte {
	return binary.LittleEndian.AppendUint32(append([]byte(nil), body...), crc32.Checksum(body, castagnoli))
}
