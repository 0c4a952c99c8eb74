package nodeipam

import (
	"net/netip"
	"slices"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/addr"
	"github.com/ipalloc/ipalloc/internal/wire"
)

// The body of a snapshot, version 1, in the frame of internal/wire:
//
//	byte    1 for slots, 2 for labels
//	slots:  list of: byte child length, bool IPv4, list of pools: prefix, bool draining, cursor
//	labels: list of families: string
//	        list of entries, ascending by name:
//	          string name
//	          list of terms: list of label requirements, list of field requirements,
//	            each: string key, string operator, list of string values
//	          prefix IPv4, prefix IPv6
//	          uvarint host bits, IPv4 mask, IPv6 mask
//	          bool terminating
//	          cursor for each family that the entry has
//	list of reservations, IPv4 first, ascending: prefix
//	list of nodes, ascending by name: string name, string UID, string entry, bool
//	  terminating, list of prefixes
//
// A cursor is two uvarints, the high and low half of the distance from the pool's
// address. The taken prefixes follow from the rest and are not stored. Options are not
// stored either; pass them to Restore.
const (
	snapshotMagic   = "nodeipam"
	snapshotVersion = 1

	bySlots  = 1
	byLabels = 2

	// The smallest number of bytes that a prefix, a node, a pool and an entry take.
	minPrefix, minOwner, minPool, minEntry = 3, 7, 8, 10
)

// MarshalBinary returns a snapshot of the allocator, versioned and checksummed: the
// configuration, the pools or entries with their cursors, the reservations, and the nodes
// with their prefixes. Equal states give equal bytes. O(n log n). It holds the
// allocator's lock. The error is always nil.
//
// A follower that applies changes older than its own snapshot catches up only when it has
// applied all changes up to the snapshot. Until then [Allocator.Check] may fail. A new
// snapshot of the follower would lack the terminating entries that have no nodes at that
// moment. Later changes do not restore these entries, although nodes that get prefixes of
// them still hold those. Keep the first snapshot until the follower has caught up.
func (a *Allocator) MarshalBinary() ([]byte, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	w := wire.Frame(nil, snapshotMagic, snapshotVersion)
	a.policy.save(w)
	reserved, owners := a.reserved(), a.sorted()
	wire.List(w, &reserved, minPrefix, wire.AnyPrefix)
	n := len(owners)
	w.Count(&n, minOwner)
	for _, o := range owners {
		codeOwner(w, o)
	}
	return w.Finish()
}

// Restore returns the allocator whose snapshot is data, with the given options.
//
// Restore accepts any bytes. It returns an allocator that passes [Allocator.Check], or
// fails with [ipalloc.ErrCorrupt]. It fails with [ipalloc.ErrVersion] if a newer program
// wrote data, and with [ipalloc.ErrInvalid] for a bad option. Time and memory are linear
// in the length of data, up to a logarithmic factor.
func Restore(data []byte, opts ...Option) (*Allocator, error) {
	a, bad := newAllocator(opts)
	if bad != nil {
		return nil, opError("restore", bad)
	}
	r := wire.Open(data, snapshotMagic, snapshotVersion)
	switch kind := r.Byte(); {
	case r.Err != nil:
	case kind == bySlots:
		a.policy = restoreSlots(a, r)
	case kind == byLabels:
		a.policy = restoreLabels(a, r)
	default:
		r.Fail("policy %d", kind)
	}
	var last netip.Prefix
	n := 0
	for r.Count(&n, minPrefix); n > 0; n-- {
		var p netip.Prefix
		wire.AnyPrefix(r, &p)
		if err := addr.Check(p); err != nil {
			r.Fail("%v: %v", p, err)
		}
		if last.IsValid() && comparePrefix(last, p) >= 0 {
			r.Fail("reservations out of order")
		}
		if last = p; r.Err != nil {
			break
		}
		a.reserve(p)
	}
	r.Count(&n, minOwner)
	var in owner
	for i := range n {
		name := in.name
		in = owner{}
		if codeOwner(r, &in); i > 0 && in.name <= name {
			r.Fail("nodes out of order")
		}
		if r.Err != nil {
			break
		}
		a.restoreOwner(r, &in)
	}
	if l, ok := a.policy.(*labels); ok && r.Err == nil {
		l.entries = slices.DeleteFunc(l.entries, func(e *entry) bool { // of a snapshot that was made amid a replay
			return e.terminating && l.nodes[e.spec.Name] == 0
		})
	}
	if err := r.End(); err != nil {
		return nil, opError("restore", &ipalloc.Error{Err: err})
	}
	return a, nil
}

// codeOwner encodes the prefixes of a node, or decodes them into a zero owner.
func codeOwner(c *wire.Coder, o *owner) {
	wire.String(c, &o.name)
	wire.String(c, &o.uid)
	wire.String(c, &o.entry)
	wire.Bool(c, &o.terminating)
	wire.List(c, &o.prefixes, minPrefix, wire.AnyPrefix)
}

// restoreOwner adds a node read from a snapshot.
func (a *Allocator) restoreOwner(r *wire.Coder, in *owner) {
	if reason := badPrefixes(in.prefixes); reason != "" { // as after an error of r
		r.Fail("node %q: %s", in.name, reason)
		return
	}
	o := a.newOwner(in.name)
	o.uid = in.uid
	a.setTerminating(o, in.terminating)
	a.hold(o, in.entry, in.prefixes)
}

func (pl *pool) codeCursor(c *wire.Coder) {
	d := pl.cursor.Xor(pl.block.Key)
	wire.Uint(c, &d.Hi)
	if wire.Uint(c, &d.Lo); c.Writes {
		return
	}
	pl.cursor = pl.block.Key.Xor(d)
	if c.Err == nil && !pl.block.Starts(pl.cursor, pl.size) {
		c.Fail("the cursor of %v is no child", pl.prefix)
	}
}
