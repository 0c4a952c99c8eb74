package ipset

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

// parseOwnerKey is the inverse of ownerKey.
func parseOwnerKey(key string) (Owner, bool) {
	if len(key) < 4 || key[len(key)-1] != 0 {
		return Owner{}, false
	}
	o, err := block.OwnerOf(key[1 : len(key)-1])
	return o, err == nil && o.Kind != Nobody
}

// blockList is the blocks of an owner in address order: for each its address and its prefix length, 5 bytes for IPv4 and 17 for
// IPv6. It is kept in this form because an owner may have thousands, of which a change moves most.
type blockList struct{ v4, v6 string }

// listStride4 and listStride6 are the sizes of one block in a list.
const (
	listStride4 = 4 + 1
	listStride6 = 16 + 1
)

// listOf returns a list of blocks, which ascend.
func listOf(blocks []netip.Prefix) (l blockList) {
	for _, p := range blocks {
		l = l.with(p)
	}
	return l
}

func (l blockList) len() int { return len(l.v4)/listStride4 + len(l.v6)/listStride6 }

// at returns the i-th block.
func (l blockList) at(i int) netip.Prefix {
	if n := len(l.v4) / listStride4; i >= n {
		i = (i - n) * listStride6
		return listed(l.v6[i : i+listStride6])
	}
	return listed(l.v4[i*listStride4 : (i+1)*listStride4])
}

// slice returns the blocks, nil for none.
func (l blockList) slice() (blocks []netip.Prefix) {
	for i := range l.len() {
		blocks = append(blocks, l.at(i))
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
func (l *blockList) entry(p netip.Prefix) (part *string, entry string, at int, found bool) {
	part, stride := &l.v4, listStride4
	if p.Addr().Is6() {
		part, stride = &l.v6, listStride6
	}
	entry = string(append(wire.AppendAddr(nil, p.Addr()), byte(p.Bits())))
	at = stride * sort.Search(len(*part)/stride, func(i int) bool { return (*part)[i*stride:(i+1)*stride] >= entry })
	return part, entry, at, strings.HasPrefix((*part)[at:], entry)
}

// with returns the list with p.
func (l blockList) with(p netip.Prefix) blockList {
	if part, entry, at, found := l.entry(p); !found {
		*part = (*part)[:at] + entry + (*part)[at:]
	}
	return l
}

// without returns the list without p.
func (l blockList) without(p netip.Prefix) blockList {
	if part, entry, at, found := l.entry(p); found {
		*part = (*part)[:at] + (*part)[at+len(entry):]
	}
	return l
}

const ownerVersion = 1

// append appends the record of an owner's blocks: the version, the numbers of IPv4 and of IPv6 blocks, and the list.
func (l blockList) append(dst []byte) []byte {
	dst = binary.AppendUvarint(append(dst, ownerVersion), uint64(len(l.v4)/listStride4))
	dst = binary.AppendUvarint(dst, uint64(len(l.v6)/listStride6))
	return append(append(dst, l.v4...), l.v6...)
}

func (l blockList) encode() string { return string(l.append(nil)) }

// decodeList reads the record of an owner's blocks; no record is no blocks. The list is a part of its value.
func decodeList(rec store.Record) (blockList, error) {
	if rec.Rev == 0 {
		return blockList{}, nil
	}
	s := rec.Value
	r := wire.Reader{S: s}
	if v := r.Byte(); v != ownerVersion {
		r.Fail("version")
	}
	most := uint64(len(s))
	n4, n6 := min(r.Uvarint(), most), min(r.Uvarint(), most)
	l := blockList{v4: r.Bytes(n4 * listStride4)}
	if l.v6 = r.Bytes(n6 * listStride6); r.S != "" || n4+n6 == 0 {
		r.Fail("length")
	}
	last := netip.Prefix{}
	if r.Err == nil {
		for i := range l.len() {
			p := l.at(i)
			if !p.IsValid() || p != p.Masked() || p.Addr().Is4In6() || last.IsValid() && comparePrefix(last, p) >= 0 {
				r.Fail("block")
			}
			last = p
		}
	}
	if r.Err != nil {
		return blockList{}, fmt.Errorf("%w: list of blocks", r.Err)
	}
	return l, nil
}

// comparePrefix orders prefixes as their block keys are ordered.
func comparePrefix(a, b netip.Prefix) int {
	if c := a.Addr().Compare(b.Addr()); c != 0 {
		return c
	}
	return a.Bits() - b.Bits()
}
