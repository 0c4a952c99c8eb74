package main

import "net/netip"

// null is the name of the contestant that does nothing.
const null = "null"

// nullSet answers without looking: what is left is the cost of the driver.
type nullSet struct{ p netip.Prefix }

var nullPeer = prefixPeer[netip.Prefix, *nullSet]{
	name: null,
	make: func(pool netip.Prefix, bits int) (*nullSet, error) {
		return &nullSet{netip.PrefixFrom(pool.Addr(), bits)}, nil
	},
	handle: func(p netip.Prefix) netip.Prefix { return p },
	prefix: func(p netip.Prefix) netip.Prefix { return p },
}

func (s *nullSet) AllocateNext() (netip.Prefix, error)  { return s.p, nil }
func (s *nullSet) Occupy(netip.Prefix) (uint64, error)  { return 1, nil }
func (s *nullSet) Release(netip.Prefix) (uint64, error) { return 1, nil }
func (s *nullSet) AllocateN(dst []netip.Prefix) error   { return nil }
