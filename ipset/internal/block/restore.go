package block

import (
	"net/netip"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/wire"
	"github.com/ipalloc/ipalloc/ipset/alloc"
)

// Restore returns a block with the content that another system has. The addresses in free are handed out in that order.
// Those in busy are held or cooling, the cooling ones in the order of their release; Allocation.Block is ignored. Free, busy
// and reserved addresses together must be all addresses of the prefix.
//
// It returns the errors of [New], and [ipalloc.ErrCorrupt] if the arguments contradict each other.
func Restore(p netip.Prefix, o Options, free []netip.Addr, busy []alloc.Allocation) (*Block, error) {
	b, err := New(p, o)
	if err != nil {
		return nil, err
	}
	bad := func(what string, at netip.Addr) (*Block, error) {
		return nil, failed(ipalloc.Error{Op: "restore", Prefix: p, Addr: at, Reason: what, Err: ipalloc.ErrCorrupt})
	}
	for _, al := range busy {
		x, err := b.Ordinal(al.Address)
		a := Address{Cooling: al.Cooling}
		for h := range al.Holders() {
			holder := Holder{
				Identity: Identity{Host: h.Host, Handle: h.Handle, Active: h.Attributes, Alternate: h.Alternate},
				Seq:      h.Seq, Until: wire.Stamp(h.Until), Borrowed: !h.Cooling && h.Host != b.owner && h.Host.Kind != alloc.Nobody,
			}
			if !h.Since.IsZero() {
				holder.Since = wire.Seconds(wire.Stamp(h.Since))
			}
			if a.Seq == 0 {
				a.Holder = holder
				a.allow(al.Share())
			} else {
				a.add(holder)
			}
		}
		if err == nil {
			_, _, err = DecodeAddress(string(a.Append(nil, p.Bits())))
		}
		if err == nil {
			err = b.Put(x, a)
		}
		if err != nil {
			return bad(err.Error(), al.Address)
		}
	}
	var queue queue
	for _, at := range free {
		x, err := b.Ordinal(at)
		if err != nil || !b.free.remove(x) {
			return bad("the address is not free, or twice", at)
		}
		queue.push(x)
	}
	if !b.free.empty() {
		return bad("an address is in no state", b.Addr(b.free.spans[b.free.head].Lo))
	}
	b.free = queue
	if err := b.Check(); err != nil {
		return bad(err.Error(), netip.Addr{})
	}
	return b, nil
}
