package ipset

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/ipalloc/ipalloc"
)

// parseOwnerKey is the inverse of ownerKey.
func parseOwnerKey(key string) (Owner, bool) {
	if len(key) < 4 || key[len(key)-1] != 0 {
		return Owner{}, false
	}
	o, err := ownerOf(key[1 : len(key)-1])
	return o, err == nil && o.Kind != Nobody
}

const ownerVersion = 1

// encodeOwner returns the record of an owner's blocks.
func encodeOwner(blocks []netip.Prefix) string {
	b := make([]byte, 0, 1+18*len(blocks))
	b = append(b, ownerVersion)
	for _, p := range blocks {
		b = appendBlockID(b, p)
	}
	return string(b)
}

func decodeOwner(s string) ([]netip.Prefix, error) {
	if s == "" {
		return nil, nil
	}
	bad := fmt.Errorf("%w: list of blocks", ipalloc.ErrCorrupt)
	if s[0] != ownerVersion {
		return nil, bad
	}
	var blocks []netip.Prefix
	for s = s[1:]; s != ""; {
		n := 18
		if strings.HasPrefix(s, "4") {
			n = 6
		}
		if len(s) < n {
			return nil, bad
		}
		p, ok := parseBlockID(s[:n])
		if !ok || len(blocks) > 0 && comparePrefix(blocks[len(blocks)-1], p) >= 0 {
			return nil, bad
		}
		blocks, s = append(blocks, p), s[n:]
	}
	return blocks, nil
}

// comparePrefix orders prefixes as their block keys are ordered.
func comparePrefix(a, b netip.Prefix) int {
	if c := a.Addr().Compare(b.Addr()); c != 0 {
		return c
	}
	return a.Bits() - b.Bits()
}

// insertBlock returns blocks with p, without changing blocks.
func insertBlock(blocks []netip.Prefix, p netip.Prefix) []netip.Prefix {
	i, found := slices.BinarySearchFunc(blocks, p, comparePrefix)
	if found {
		return blocks
	}
	return slices.Insert(slices.Clone(blocks), i, p)
}

// removeBlock returns blocks without p, without changing blocks.
func removeBlock(blocks []netip.Prefix, p netip.Prefix) []netip.Prefix {
	i, found := slices.BinarySearchFunc(blocks, p, comparePrefix)
	if !found {
		return blocks
	}
	return slices.Delete(slices.Clone(blocks), i, i+1)
}
