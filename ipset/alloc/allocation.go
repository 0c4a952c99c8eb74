package alloc

import (
	"iter"
	"net/netip"
	"time"

	"github.com/ipalloc/ipalloc/internal/wire"
	"github.com/ipalloc/ipalloc/ipset/internal/holder"
)

// Allocation is one address that is held or cooling. An address with several holders has
// an allocation for each. Queries by address return the allocation of the first holder;
// queries by handle or host return that handle's or host's.
type Allocation struct {
	Address netip.Addr
	// Block is the prefix of the block that contains the address.
	Block netip.Prefix
	// Host is the host that the address is held for. If the host is not the owner of the
	// block, the address is borrowed. It is the zero Owner if an import named none.
	Host   Owner
	Handle string
	// Attributes belong to the active owner, Alternate to the owner that may take over.
	Attributes Attributes
	Alternate  Attributes
	// Seq is the sequence number of the allocation; no other allocation of this address ever has it.
	Seq uint64
	// Since is when the holder got the address, or when a cooling address began to cool.
	// It is exact to the second. It is zero if unknown, for example after an import
	// without it.
	Since time.Time
	// Until is the expiry of the lease, zero without a lease. A cooling address can be
	// assigned again from that time on.
	Until   time.Time
	Cooling bool
	// MovedFrom is the former host, in the result of a call that moved the address from
	// another host.
	MovedFrom Owner
	shared    string // coded Share and all holders, this one among them; "" for an address that allows no others
}

// Share returns the Share of the first holder, the zero Share if that allows no others.
func (a Allocation) Share() (s Share) {
	s.Max, s.Key, _ = holder.Share(a.shared)
	return s
}

// Holders yields the allocation of every holder of the address, the first one first. For an address that is not shared it yields this
// allocation alone.
func (a Allocation) Holders() iter.Seq[Allocation] {
	return func(yield func(Allocation) bool) {
		_, _, rest := holder.Share(a.shared)
		if rest == "" {
			yield(a)
			return
		}
		for c := wire.Read(rest); c.S != ""; {
			if !a.hold(c) || !yield(a) {
				return
			}
		}
	}
}

// hold sets the allocation to the next holder in c.
func (a *Allocation) hold(c *wire.Coder) bool {
	var (
		until    int64
		since    uint32
		borrowed bool
		indexed  uint64
	)
	a.Host, a.Handle, a.Attributes, a.Alternate, a.Seq = Owner{}, "", Attributes{}, Attributes{}, 0
	h := holder.Parts{
		Kind: (*uint8)(&a.Host.Kind), Host: &a.Host.Name, Handle: &a.Handle, Active: (*holder.Attributes)(&a.Attributes), Alternate: (*holder.Attributes)(&a.Alternate),
		Seq: &a.Seq, Until: &until, Borrowed: &borrowed, Indexed: &indexed, Since: &since,
	}
	h.CodeFurther(c)
	a.Since, a.Until = wire.UnstampSeconds(since), wire.Unstamp(until)
	return c.Err == nil && h.Active.Valid() && h.Alternate.Valid()
}

func init() {
	holder.SetShared = func(allocation any, code string) { allocation.(*Allocation).shared = code }
}

// Holder returns the handle, or the host if there is no handle.
func (a Allocation) Holder() string {
	if a.Handle != "" || a.Host.Kind == Nobody {
		return a.Handle
	}
	return a.Host.String()
}

// Prefix returns the address with its block's prefix length, unmasked. Use it to
// configure an interface only if each block is a subnet. In a pool that is one subnet use
// the pool's prefix length, and for a routed address the full length, 32 or 128.
func (a Allocation) Prefix() netip.Prefix { return netip.PrefixFrom(a.Address, a.Block.Bits()) }

// Declined returns the handle that declined the address and its reason. The handle is ""
// for a holder without one, and ok is false for an address that was not declined. A
// declined address is cooling, and even its former holder cannot get it before its time.
func (a Allocation) Declined() (handle, reason string, ok bool) {
	if !a.Cooling || a.Handle != "" {
		return "", "", false
	}
	for k, v := range a.Attributes.All() {
		switch k {
		case holder.AttrReason:
			reason, ok = v, true
		case holder.AttrBy:
			handle = v
		}
	}
	return handle, reason, ok
}
