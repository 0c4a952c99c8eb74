package main

import (
	"net/netip"

	"github.com/ipalloc/ipalloc/cidrset"
)

// ours is the name of this module among the contestants.
const ours = "ours"

// oursPeer drives *cidrset.Set itself: its methods are those of a prefixSet.
var oursPeer = prefixPeer[netip.Prefix, *cidrset.Set]{
	name:   ours,
	make:   func(pool netip.Prefix, bits int) (*cidrset.Set, error) { return cidrset.New(pool, bits) },
	handle: func(p netip.Prefix) netip.Prefix { return p },
	prefix: func(p netip.Prefix) netip.Prefix { return p },
}
