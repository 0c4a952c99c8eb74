package fuzz

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	"go4.org/netipx"

	"github.com/ipalloc/ipalloc/internal/test/model"
	"github.com/ipalloc/ipalloc/ipset"
	"github.com/ipalloc/ipalloc/ipset/alloc"
)

// share returns one that allows other holders, or none.
func (r *ipamReplay) share(tr *model.Trace) alloc.Share {
	if n := int(tr.Below(6)); n > 2 {
		return alloc.Share{Max: n - 1, Key: fmt.Sprint("k", n/5)}
	}
	return alloc.Share{}
}

// shared returns the address with the most holders of those that are shared under the same key, a if there is none.
func (r *ipamReplay) shared(a netip.Addr, s alloc.Share) netip.Addr {
	most := 0
	for _, b := range r.m.Sorted() {
		for at := b.Prefix.Addr(); b.Prefix.Contains(at); at = at.Next() {
			if hs := b.Holds[at]; len(hs) > most && hs[0].Most > 0 && hs[0].Key == s.Key {
				a, most = at, len(hs)
			}
		}
	}
	return a
}

// reserve replaces the reservations by one prefix, or by none.
func (r *ipamReplay) reserve(e *ipset.Engine, tr *model.Trace) {
	r.m.Reserved = nil
	var list []alloc.Reservation
	if a, bits := r.address(tr), int(tr.Below(5)); bits > 0 {
		p := netip.PrefixFrom(a, a.BitLen()-bits+1).Masked()
		r.m.Reserved = []netip.Prefix{p}
		list = alloc.Reservations(netipx.RangeOfPrefix(p))
	}
	live, err := e.Operator().SetReservations(context.Background(), list)
	if err != nil {
		r.t.Fatal(err)
	}
	want := 0
	for _, b := range r.m.Blocks {
		for a := range b.Holds {
			if b.Held(a) && slices.ContainsFunc(r.m.Reserved, func(p netip.Prefix) bool { return p.Contains(a) }) {
				want++
			}
		}
	}
	if len(live) != want {
		r.t.Fatalf("%d live addresses in the reservation, want %d", len(live), want)
	}
}

// configure sets strictness and the limit of blocks.
func (r *ipamReplay) configure(e *ipset.Engine, strict bool, limit int) {
	cfg := alloc.Config{Strict: strict}
	r.m.Strict, r.m.Limit = strict, 1<<30
	if limit > 0 {
		cfg.MaxBlocksPerHost, r.m.Limit = limit, limit
	}
	if err := e.Operator().SetConfig(context.Background(), cfg); err != nil {
		r.t.Fatal(err)
	}
}
