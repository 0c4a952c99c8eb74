package record

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"net/netip"

	"github.com/ipalloc/ipalloc/internal/wire"
)

// A caller that repeats a request after an unknown outcome needs the first answer, and a sticky handle needs its last addresses.
// Both are memos, with one coder, one index by age, and one sweep that forgets them.

// Memo is the record of what was given under a request key, or to a sticky handle. It has no end of its own: a record
// t<kind><time><key> beside each, written in the same commit, lists memos by age, so that forgetting the old ones costs what there is
// to forget.
type Memo struct {
	Key    string // of the record, "" for no memo
	At     int64  // when it was written, 0 if it is not there
	Digest string // of the request's arguments, "" without
	// What was given: addresses, each with the prefix length of its block, and their sequence numbers.
	Ids  []netip.Prefix
	Seqs []uint64
}

const memoVersion = 1

func (m *Memo) Encode() string {
	b := binary.AppendVarint([]byte{memoVersion}, m.At)
	b = wire.AppendString(b, m.Digest)
	b = binary.AppendUvarint(b, uint64(len(m.Ids)))
	for i, id := range m.Ids {
		b = binary.AppendUvarint(AppendBlockID(b, id), m.Seqs[i])
	}
	return string(b)
}

// DecodeMemo reads the record of a key, if there is one.
func DecodeMemo(key, value string, ok bool) (Memo, error) {
	m := Memo{Key: key}
	if !ok {
		return m, nil
	}
	r := &wire.Reader{S: value}
	r.Version(memoVersion)
	m.At, m.Digest = r.Varint(), r.Bytes(r.Uvarint())
	for n := r.Uvarint(); n > 0 && r.Err == nil; n-- {
		size := uint64(18)
		if r.S != "" && r.S[0] == '4' {
			size = 6
		}
		id, ok := ParseID(r.Bytes(size))
		if !ok {
			r.Fail("address")
		}
		m.Ids, m.Seqs = append(m.Ids, id), append(m.Seqs, r.Uvarint())
	}
	if err := r.End(); err != nil {
		return Memo{}, fmt.Errorf("%w: what was given under a request key or to a sticky handle", err)
	}
	return m, nil
}

// DigestOf returns what tells requests with different arguments apart: a digest of the text of each. The strings of lists and maps
// are quoted, because what joins them may be part of one.
func DigestOf(args ...any) string {
	h := sha256.New()
	for _, a := range args {
		format := "%v"
		switch a.(type) {
		case []string, map[string]string:
			format = "%q"
		}
		s := fmt.Sprintf(format, a)
		fmt.Fprintf(h, "%d:%s", len(s), s)
	}
	return string(h.Sum(nil)[:16])
}
