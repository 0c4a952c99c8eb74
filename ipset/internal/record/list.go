package record

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"sort"
	"strings"

	"github.com/ipalloc/ipalloc/ipset/block"
	"github.com/ipalloc/ipalloc/ipset/internal/wire"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// The blocks of a host are one record, not an index, because a commit that claims a block must verify how many there are. The list is
// searched and changed in its coded form: decoding thousands of prefixes for each claim would cost more than the claim.

// ParseOwnerKey is the inverse of OwnerKey.
func ParseOwnerKey(key string) (block.Owner, bool) {
	if len(key) < 4 || key[len(key)-1] != 0 {
		return block.Owner{}, false
	}
	o, err := block.OwnerOf(key[1 : len(key)-1])
	return o, err == nil && o.Kind != block.Nobody
}

// BlockList is the blocks of an owner in address order: for each its address and its prefix length, 5 bytes for IPv4 and 17 for
// IPv6. It is kept in this form because an owner may have thousands, of which a change moves most.
type BlockList struct{ v4, v6 string }

// listStride4 and listStride6 are the sizes of one block in a list.
const (
	listStride4 = 4 + 1
	listStride6 = 16 + 1
)

// ListOf returns a list of blocks, which ascend.
func ListOf(blocks []netip.Prefix) (l BlockList) {
	for _, p := range blocks {
		l = l.With(p)
	}
	return l
}

func (l BlockList) Len() int { return len(l.v4)/listStride4 + len(l.v6)/listStride6 }

// At returns the i-th block.
func (l BlockList) At(i int) netip.Prefix {
	if n := len(l.v4) / listStride4; i >= n {
		i = (i - n) * listStride6
		return listed(l.v6[i : i+listStride6])
	}
	return listed(l.v4[i*listStride4 : (i+1)*listStride4])
}

// Slice returns the blocks, nil for none.
func (l BlockList) Slice() (blocks []netip.Prefix) {
	for i := range l.Len() {
		blocks = append(blocks, l.At(i))
	}
	return blocks
}

// listed returns the block of an entry of a list.
func listed(s string) netip.Prefix {
	if len(s) == listStride4 {
		return netip.PrefixFrom(netip.AddrFrom4([4]byte([]byte(s[:4]))), int(s[4]))
	}
	return netip.PrefixFrom(netip.AddrFrom16([16]byte([]byte(s[:16]))), int(s[16]))
}

// entry returns the part of a list that has blocks of p's family, the entry of p in it, where that is or would be, and whether
// it is
// there. Entries compare as their blocks do.
func (l *BlockList) entry(p netip.Prefix) (part *string, entry string, at int, found bool) {
	part, stride := &l.v4, listStride4
	if p.Addr().Is6() {
		part, stride = &l.v6, listStride6
	}
	entry = string(append(wire.AppendAddr(nil, p.Addr()), byte(p.Bits())))
	at = stride * sort.Search(len(*part)/stride, func(i int) bool { return (*part)[i*stride:(i+1)*stride] >= entry })
	return part, entry, at, strings.HasPrefix((*part)[at:], entry)
}

// With returns the list with p.
func (l BlockList) With(p netip.Prefix) BlockList {
	if part, entry, at, found := l.entry(p); !found {
		*part = (*part)[:at] + entry + (*part)[at:]
	}
	return l
}

// Without returns the list without p.
func (l BlockList) Without(p netip.Prefix) BlockList {
	if part, entry, at, found := l.entry(p); found {
		*part = (*part)[:at] + (*part)[at+len(entry):]
	}
	return l
}

const ownerVersion = 1

// Append appends the record of an owner's blocks: the version, the numbers of IPv4 and of IPv6 blocks, and the list.
func (l BlockList) Append(dst []byte) []byte {
	dst = binary.AppendUvarint(append(dst, ownerVersion), uint64(len(l.v4)/listStride4))
	dst = binary.AppendUvarint(dst, uint64(len(l.v6)/listStride6))
	return append(append(dst, l.v4...), l.v6...)
}

func (l BlockList) Encode() string { return string(l.Append(nil)) }

// DecodeList reads the record of an owner's blocks; no record is no blocks. The list is a part of its value.
func DecodeList(rec store.Record) (BlockList, error) {
	if rec.Rev == 0 {
		return BlockList{}, nil
	}
	s := rec.Value
	r := wire.Reader{S: s}
	if v := r.Byte(); v != ownerVersion {
		r.Fail("version")
	}
	most := uint64(len(s))
	n4, n6 := min(r.Uvarint(), most), min(r.Uvarint(), most)
	l := BlockList{v4: r.Bytes(n4 * listStride4)}
	if l.v6 = r.Bytes(n6 * listStride6); r.S != "" || n4+n6 == 0 {
		r.Fail("length")
	}
	last := netip.Prefix{}
	if r.Err == nil {
		for i := range l.Len() {
			p := l.At(i)
			if !p.IsValid() || p != p.Masked() || p.Addr().Is4In6() || last.IsValid() && ComparePrefix(last, p) >= 0 {
				r.Fail("block")
			}
			last = p
		}
	}
	if r.Err != nil {
		return BlockList{}, fmt.Errorf("%w: list of blocks", r.Err)
	}
	return l, nil
}

// ComparePrefix orders prefixes as their block keys are ordered.
func ComparePrefix(a, b netip.Prefix) int {
	if c := a.Addr().Compare(b.Addr()); c != 0 {
		return c
	}
	return a.Bits() - b.Bits()
}
