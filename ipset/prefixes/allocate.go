package prefixes

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// Allocate allocates a prefix. It takes the first part of the smallest free prefix that
// has room for the length, the lowest if there are several.
//
// It fails with ErrInvalid for a malformed request, and with ErrNotFound if Pool is
// neither a root pool nor a holding with Children. It fails with ErrOutOfRange if Pool
// does not allocate that length. It fails with ErrFull if no free prefix of that length
// is left; Reason then names the largest free one. These errors change nothing.
//
// It makes one commit, which writes the holding, its index entry, and at most one page for each 6 bits between
// the pool and the prefix.
//
// also lists operations on your own records for the same commit, both or neither: a
// Guard, or the row of a cluster with its prefix. Their keys begin with an upper-case
// letter other than L and X. If a record is not at the expected revision, the call fails
// with ErrConflict, and store.ConflictKey names the record.
func (a *Allocator) Allocate(ctx context.Context, r Request, also ...store.Op) (Holding, error) {
	return a.allocate(ctx, "allocate", r, false, also)
}

// Assign returns a prefix of the requested length that the owner holds from the pool, the
// lowest if it holds several. If it holds none, Assign allocates one as Allocate does.
// Concurrent calls, also from several processes, return the same prefix. It is
// idempotent: repeat it after an error. If the holding exists, Assign ignores also and
// changes neither the holding's Children nor its Attributes nor its expiry. It fails as
// Allocate does, and with Request.New also with ErrExists for an existing holding, which
// InTheWay names.
func (a *Allocator) Assign(ctx context.Context, r Request, also ...store.Op) (Holding, error) {
	return a.allocate(ctx, "assign", r, true, also)
}

func (a *Allocator) allocate(ctx context.Context, op string, r Request, reuse bool, also []store.Op) (Holding, error) {
	call := ipalloc.Error{Op: op, Owner: r.Owner, Pool: r.Pool, Bits: r.Bits}
	p := &allocation{Request: r, reuse: reuse}
	if err := a.do(ctx, call, r.check("Bits", r.Bits), p, also...); err != nil {
		return Holding{}, err
	}
	return p.got.Holding, nil
}

// allocation is the plan of Allocate and Assign; one value costs less than a closure with
// its captured variables.
type allocation struct {
	Request
	reuse bool
	got   record
}

// Plan implements occ.Plan.
func (r *allocation) Plan(t *txn) error {
	above, err := t.open(r.Pool, r.Bits)
	if err != nil {
		return err
	}
	tr := t.tree(r.Pool)
	at, ok, err := tr.find(r.Bits - r.Pool.Bits())
	if err != nil {
		return err
	}
	if r.reuse { // after the pages, whose revisions exclude an Assign since then
		if r.got, err = t.heldBy(&r.Request); err == nil && r.got.Owner != "" && r.New {
			err = held(&r.got)
		}
		if r.got.Owner != "" || err != nil {
			return err
		}
	}
	if !ok {
		return full(tr)
	}
	if ok, err := tr.put(at); err != nil || !ok {
		return cmp.Or(err, damaged(r.Pool))
	}
	if r.got, err = t.record(&r.Request, at, above); err != nil {
		return err
	}
	return t.give(&r.got)
}

// held returns the error for a prefix that the owner already holds.
func held(r *record) error {
	e := fail(ipalloc.ErrExists, "the owner holds one already")
	e.InTheWay, e.Holder = r.Prefix, r.Owner
	return e
}

// record returns the holding that granting the request with a prefix would create.
func (t *txn) record(r *Request, at netip.Prefix, above string) (record, error) {
	until, err := t.end(r.TTL)
	return record{Holding{at, r.Owner, r.Pool, len(above), r.Children, r.Attributes, until}, above}, err
}

// Occupy allocates the named prefix from r.Pool. If the owner already holds it from that
// pool, Occupy returns the holding unchanged, or ErrExists with Request.New. The argument
// also works as in Allocate, but is ignored if the holding exists.
//
// It fails as Allocate does, except with ErrFull, and with ErrOutOfRange for a prefix
// outside the pool. It fails with ErrOccupied if a part of the prefix is held; InTheWay
// and Holder name that part.
func (a *Allocator) Occupy(ctx context.Context, at netip.Prefix, r Request, also ...store.Op) (Holding, error) {
	call := ipalloc.Error{Op: "occupy", Owner: r.Owner, Pool: r.Pool, Prefix: at}
	bad := cmp.Or(checkPrefix("at", at), checkPrefix("Pool", r.Pool))
	if bad == nil && (at.Bits() < r.Pool.Bits() || !r.Pool.Contains(at.Addr())) {
		bad = fail(ipalloc.ErrOutOfRange, "")
	}
	if bad == nil {
		bad = r.check("at", at.Bits())
	}
	return answer(ctx, a, call, bad, func(t *txn) (none Holding, err error) {
		above, err := t.open(r.Pool, at.Bits())
		if err != nil {
			return none, err
		}
		tr := t.tree(r.Pool)
		if err := t.prefetch(tr, at); err != nil {
			return none, err
		}
		ok, err := tr.take(at)
		if err != nil {
			return none, err
		}
		if ok {
			got, err := t.record(&r, at, above)
			if err == nil {
				err = t.give(&got)
			}
			return got.Holding, err
		}
		got, ok, err := t.holding(at)
		if err == nil && (!ok || got.Owner != r.Owner || got.Pool != r.Pool) {
			err = t.occupied(at, above)
		} else if err == nil && r.New {
			err = held(&got)
		}
		return got.Holding, err
	}, also...)
}

// open returns the lengths of the pools down to the given one, which must allocate
// prefixes of the given length. Expired leases must have been recorded.
func (t *txn) open(pool netip.Prefix, bits int) (above string, err error) {
	if err := t.due(); err != nil {
		return "", err
	}
	above, sizes, err := t.sizes(pool)
	if err == nil {
		err = sizes.refuse(bits)
	}
	return above, err
}

// refuse returns the error for a length that a pool does not allocate.
func (s Sizes) refuse(bits int) error {
	if bits < s.Shortest || bits > s.Longest {
		return fail(ipalloc.ErrOutOfRange, fmt.Sprintf("the pool hands out /%d to /%d", s.Shortest, s.Longest))
	}
	return nil
}

// sizes returns the lengths of the pools down to the given one, and the sizes that this
// pool allocates.
func (t *txn) sizes(pool netip.Prefix) (above string, sizes Sizes, err error) {
	roots, err := t.roots()
	if err != nil {
		return "", sizes, err
	}
	sizes, ok := roots.sizes[pool]
	if !ok {
		r, held, err := t.holding(pool)
		switch {
		case err != nil:
			return "", sizes, err
		case !held:
			return "", sizes, fail(ipalloc.ErrNotFound, "no such pool")
		case r.Children == (Sizes{}):
			err := fail(ipalloc.ErrNotFound, "the prefix is no pool")
			err.Holder = r.Owner
			return "", sizes, err
		}
		above, sizes = r.above, r.Children
	}
	return above + lengths[pool.Bits():pool.Bits()+1], sizes, nil
}

// lengths is the bytes 0 to 128.
var lengths = func() string {
	b := make([]byte, 129)
	for i := range b {
		b[i] = byte(i)
	}
	return string(b)
}()

// ownedPart is the number of an owner's index entries that Assign reads at a time,
// because it needs only the first entry of the length.
const ownedPart = 16

// heldBy returns the owner's lowest holding from the pool with the length of the request;
// the zero record if there is none. The index shows the stored holdings, so heldBy first
// looks at the holdings that the transaction has changed.
func (t *txn) heldBy(r *Request) (best record, err error) {
	look := func(at netip.Prefix) error {
		if at.Bits() != r.Bits || best.Owner != "" && !at.Addr().Less(best.Prefix.Addr()) {
			return nil
		}
		got, ok, err := t.holding(at)
		if err == nil && ok && got.Owner == r.Owner && got.Pool == r.Pool {
			best = got
		}
		return err
	}
	for _, at := range t.given {
		if err := look(at); err != nil {
			return record{}, err
		}
	}
	for rec, err := range t.a.list(t.Ctx, ownerRange(r.Owner, r.Pool), ownedPart) {
		var at netip.Prefix
		var pool int
		if err == nil {
			at, pool, err = parseEntry(rec)
		}
		if err == nil && pool == r.Pool.Bits() {
			err = look(at)
		}
		if err != nil {
			return record{}, err
		}
		if best.Owner != "" && !at.Addr().Less(best.Prefix.Addr()) {
			break
		}
	}
	return best, nil
}

// full returns the error for a pool without a free prefix of the requested length.
func full(tr tree) error {
	free, err := tr.free()
	if err != nil {
		return err
	}
	for n := 1; n <= maxRelative; n++ {
		if free.has(n) {
			return fail(ipalloc.ErrFull, fmt.Sprintf("no free prefix of that length (largest is /%d)", tr.pool.Bits()+n))
		}
	}
	return fail(ipalloc.ErrFull, "no free prefix")
}

// occupied returns the error for a prefix that is held in part. The error names the
// holding that contains the prefix, or the first one in it; above lists the pools around
// it. It names none if the holding is released meanwhile.
func (t *txn) occupied(at netip.Prefix, above string) error {
	e := fail(ipalloc.ErrOccupied, "")
	inside := insideRange(at)
	inside.Limit = 1
	recs, _, err := t.a.store.List(t.Ctx, inside)
	if err == nil && len(recs) == 0 {
		before := insideRange(netip.PrefixFrom(at.Addr(), int(above[len(above)-1])).Masked())
		before.To, before.Limit, before.Reverse = holdingKey(at), 1, true
		recs, _, err = t.a.store.List(t.Ctx, before)
	}
	if err == nil && len(recs) == 0 {
		err = e
	}
	if err != nil {
		return err
	}
	r, err := decodeRecord(recs[0])
	if err != nil {
		return err
	}
	if r.Level > len(above) { // it is held from a holding of the pool
		var ok bool
		if r, ok, err = t.holding(r.poolAt(len(above))); err == nil && !ok {
			err = e
		}
		if err != nil {
			return err
		}
	}
	if r.Prefix.Overlaps(at) {
		e.InTheWay, e.Holder = r.Prefix, r.Owner
	}
	return e
}
