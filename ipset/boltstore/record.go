package boltstore

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"strconv"
	"strings"

	"github.com/ipalloc/ipalloc"
)

// The root of a file has a bucket for each table and one that says what the file is:
//
//	ipalloc/state        one record, "state": see state.append
//	ipalloc/records      the records of the store.Store
//	ipalloc/table/...   one for each [Table]
//
// The value of every record in a table is
//
//	revision            8 bytes, big endian
//	CRC-32              4 bytes, big endian: of the table's name, the length of the key, the key, the revision, the value
//	value
//
// The polynomial is that of IEEE 802.3: its tables are made in a few microseconds, those of Castagnoli's in a fifth of a
// millisecond, which a program feels that runs for one call.
//
// bbolt protects its two meta pages alone by a checksum. The checksum here tells a record that was torn or put elsewhere; a page
// that is missing, or an older version of itself, leaves every checksum right and shows in the count and the sum of all
// checksums in the state, which every commit writes.
const (
	stateBucket   = "ipalloc/state"
	recordsBucket = "ipalloc/records"
	tablePrefix   = "ipalloc/table/"
	stateKey      = "state"

	recordHeader = 8 + 4
)

// recordSum is the checksum of a record.
func recordSum(table string, key []byte, rev uint64, value []byte) uint32 {
	var head [16]byte
	binary.BigEndian.PutUint64(head[:], uint64(len(key)))
	binary.BigEndian.PutUint64(head[8:], rev)
	sum := crc32.Update(0, crc32.IEEETable, []byte(table))
	sum = crc32.Update(sum, crc32.IEEETable, head[:])
	sum = crc32.Update(sum, crc32.IEEETable, key)
	return crc32.Update(sum, crc32.IEEETable, value)
}

// encodeRecord returns what bbolt keeps for a record.
func encodeRecord(table string, key []byte, rev uint64, value string) (raw []byte, sum uint32) {
	raw = make([]byte, recordHeader+len(value))
	copy(raw[recordHeader:], value)
	sum = recordSum(table, key, rev, raw[recordHeader:])
	binary.BigEndian.PutUint64(raw, rev)
	binary.BigEndian.PutUint32(raw[8:], sum)
	return raw, sum
}

// decodeRecord is the inverse. value is a part of raw.
func decodeRecord(table string, key, raw []byte) (rev uint64, sum uint32, value []byte, err error) {
	if len(raw) < recordHeader {
		return 0, 0, nil, fmt.Errorf("record %q of %d bytes", key, len(raw))
	}
	rev, sum, value = binary.BigEndian.Uint64(raw), binary.BigEndian.Uint32(raw[8:]), raw[recordHeader:]
	if recordSum(table, key, rev, value) != sum {
		return 0, 0, nil, fmt.Errorf("record %q: checksum", key)
	}
	return rev, sum, value, nil
}

// state is what a file says of itself.
type state struct {
	rev   uint64 // of the last commit
	count uint64 // of records in all tables
	sum   uint64 // of their checksums
	boot  string // identifies the start of the machine on which the last commit was made; empty if that can't be told
}

// stateMagic begins the state of a file; the version follows in decimal, and a line feed. Whatever comes after it belongs
// to that version.
const (
	stateMagic    = "ipalloc boltstore "
	formatVersion = 1
)

// append encodes a state: magic and version; revision, count and sum, 8 bytes each, big endian; the length of boot in one
// byte, and boot; CRC-32 of all that.
func (s state) append(b []byte) []byte {
	start := len(b)
	b = append(b, stateMagic...)
	b = strconv.AppendUint(b, formatVersion, 10)
	b = append(b, '\n')
	b = binary.BigEndian.AppendUint64(b, s.rev)
	b = binary.BigEndian.AppendUint64(b, s.count)
	b = binary.BigEndian.AppendUint64(b, s.sum)
	b = append(b, byte(len(s.boot)))
	b = append(b, s.boot...)
	return binary.BigEndian.AppendUint32(b, crc32.Checksum(b[start:], crc32.IEEETable))
}

// parseState is the inverse of append. It returns an error that matches ipalloc.ErrVersion for a state of
// another version and some other one for bytes that are none.
func parseState(raw []byte) (state, error) {
	rest, ok := strings.CutPrefix(string(raw), stateMagic)
	version, rest, ok2 := strings.Cut(rest, "\n")
	n, err := strconv.ParseUint(version, 10, 32)
	switch {
	case !ok || !ok2 || err != nil:
		return state{}, fmt.Errorf("the record that says what the file is: unreadable")
	case n != formatVersion:
		return state{}, fmt.Errorf("%w: the file has format %d, this program knows format %d", ipalloc.ErrVersion, n, formatVersion)
	case len(rest) < 3*8+1+4 || len(rest) != 3*8+1+int(rest[24])+4:
		return state{}, fmt.Errorf("the record that says what the file is: length")
	case crc32.Checksum(raw[:len(raw)-4], crc32.IEEETable) != binary.BigEndian.Uint32(raw[len(raw)-4:]):
		return state{}, fmt.Errorf("the record that says what the file is: checksum")
	}
	b := []byte(rest)
	return state{
		rev: binary.BigEndian.Uint64(b), count: binary.BigEndian.Uint64(b[8:]), sum: binary.BigEndian.Uint64(b[16:]),
		boot: rest[25 : len(rest)-4],
	}, nil
}
