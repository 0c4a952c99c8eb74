package prefixes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"time"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/wire"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// Leases expire without a commit. A question about one prefix is answered from its
// record, which has the time of expiry. The pages of a pool contain no times. A call that
// uses them therefore first records expired leases, and returns the result that it would
// return after a Sweep. The record of the root pools shows whether leases exist; without
// any, no call looks for them.

// A plan returns errDue if it found expired leases that are not yet recorded.
var errDue = errors.New("prefixes: leases have ended, and are written first")

// Sweep releases the expired leases, and returns them. Every call already treats them as
// free; Sweep deletes their records, and Changes then reports them. A call that needs the
// space of a lease records its expiry too: Changes reports that lease, and a later Sweep
// does not return it. Sweep makes as many commits as needed; after an error, repeat it to
// continue.
func (a *Allocator) Sweep(ctx context.Context) (ended []Holding, err error) {
	return a.releaseParts(ctx, ipalloc.Error{Op: "sweep"}, nil, (*txn).releaseEnded)
}

// releaseEnded releases expired leases, as many as one commit has room for.
func (t *txn) releaseEnded() (part, error) {
	past, err := t.past()
	if err != nil {
		return part{}, err
	}
	return t.releasePart(dueBy(past), func(rec store.Record) (netip.Prefix, error) {
		_, at, err := parseDueKey(rec.Key)
		return at, err
	}, "")
}

// RenewArgs are the arguments of Renew.
type RenewArgs struct {
	// TTL is the new duration of the lease, from now; 0 makes the holding permanent.
	TTL time.Duration
	// WithinRules renews the holding only if its pool still allocates its length. Set it
	// for leases that are to end after [Allocator.SetSizes] or [Allocator.SetChildren].
	WithinRules bool
}

// Renew extends a lease, which now expires after the TTL. A TTL of 0 makes the holding
// permanent; a TTL above 0 makes a permanent holding a lease. It fails with ErrNotHeld as
// Transfer does, also after the lease has expired. It fails with ErrInvalid for a
// negative TTL, and for a TTL above 0 of a holding with Children. With WithinRules it
// fails with ErrOutOfRange, as Allocate does, if the pool does not allocate that length.
// The lease then expires at its time. also is as in Allocate. Renew is safe to repeat
// after an unknown outcome.
func (a *Allocator) Renew(ctx context.Context, at netip.Prefix, owner string, args RenewArgs, also ...store.Op) (Holding, error) {
	call := ipalloc.Error{Op: "renew", Owner: owner, Prefix: at}
	return a.change(ctx, call, checkTTL("TTL", args.TTL), also, func(t *txn, r *record) (err error) {
		if args.TTL > 0 && r.Children != (Sizes{}) {
			return errLeasedPool("TTL")
		}
		if args.WithinRules {
			_, sizes, err := t.sizes(r.Pool)
			if err == nil {
				err = sizes.refuse(at.Bits())
			}
			if err != nil {
				return err
			}
		}
		r.Until, err = t.end(args.TTL)
		return err
	})
}

func checkTTL(field string, ttl time.Duration) error {
	if ttl < 0 {
		return invalid(field, fmt.Sprintf("%v is negative", ttl))
	}
	return nil
}

// errLeasedPool returns the error for a lease with Children.
func errLeasedPool(field string) error { return invalid(field, "a lease has no children") }

// past returns the latest moment that has passed on the clock of every allocator. It
// reads the clock once in a commit.
func (t *txn) past() (past int64, err error) {
	if t.now == 0 {
		t.now, err = t.a.clock()
	}
	return t.now - t.a.skew, err
}

// clock reads the clock. It refuses a time that no record can hold, which would make no
// lease expire, or all of them.
func (a *Allocator) clock() (int64, error) {
	now := a.now()
	if now.Before(time.Unix(0, 1)) || now.Year() > 2261 {
		return 0, invalid("Options.Now", now.UTC().Format(time.RFC3339Nano)+" is not from 1970 to 2261")
	}
	return wire.Stamp(now), nil
}

// end returns the expiry of a lease that begins now, the zero time if ttl is 0. It also
// marks in the record of the root pools that leases exist.
func (t *txn) end(ttl time.Duration) (until time.Time, err error) {
	if ttl == 0 {
		return until, nil
	}
	roots, err := t.roots()
	if err != nil {
		return until, err
	}
	if _, err = t.past(); err != nil {
		return until, err
	}
	if !roots.leases {
		t.setRoots(roots.pools, true)
	}
	return wire.Unstamp(t.now + min(int64(ttl), math.MaxInt64-t.now)), nil
}

// ended reports whether the holding is a lease that had expired at a moment.
func (r *record) ended(past int64) bool { return !r.Until.IsZero() && wire.Stamp(r.Until) <= past }

// liveRecord returns the holding of a record that was read, and whether it is still held.
func (a *Allocator) liveRecord(rec store.Record) (r record, live bool, err error) {
	if r, err = decodeRecord(rec); err == nil {
		live, err = a.live(&r)
	}
	return r, live, err
}

// live reports whether a holding that was read is still held.
func (a *Allocator) live(r *record) (bool, error) {
	if r.Until.IsZero() {
		return true, nil
	}
	now, err := a.clock()
	return !r.ended(now - a.skew), err
}

// due returns errDue if an expired lease is not yet recorded.
func (t *txn) due() error {
	if ended, err := t.hasEnded(); err != nil || !ended {
		return err
	}
	return errDue
}

// hasEnded reports whether an expired lease is not yet recorded. Leases that the
// transaction has already changed have another expiry.
func (t *txn) hasEnded() (bool, error) {
	roots, err := t.roots()
	if err != nil || !roots.leases {
		return false, err
	}
	past, err := t.past()
	if err != nil {
		return false, err
	}
	for rec, err := range t.a.list(t.Ctx, dueBy(past), ownedPart) {
		var at netip.Prefix
		var r record
		if err == nil {
			_, at, err = parseDueKey(rec.Key)
		}
		if err == nil {
			r, err = t.stored(at)
		}
		if err != nil || r.ended(past) {
			return err == nil, err
		}
	}
	return false, nil
}

// kindDue is the kind of the index of leases by expiry: <end, 8 bytes><prefix>.
const kindDue = kindOf + "d"

func codeDueKey(c *wire.Coder, end *uint64, p *netip.Prefix) {
	c.Literal(kindDue)
	wire.Word(c, end)
	c.Prefix(p)
}

func dueKey(until time.Time, p netip.Prefix) string {
	c, end := wire.Write(nil), uint64(wire.Stamp(until))
	codeDueKey(c, &end, &p)
	return string(c.B)
}

func parseDueKey(key string) (end uint64, p netip.Prefix, err error) {
	c := wire.Read(key)
	if codeDueKey(c, &end, &p); c.End() != nil {
		err = corrupt(netip.Prefix{}, fmt.Sprintf("index entry %q", key))
	}
	return end, p, err
}

// dueBy returns the index entries of the leases that had expired at a moment.
func dueBy(past int64) store.Range {
	c, end := wire.Write([]byte(kindDue)), uint64(max(past, 0)+1)
	wire.Word(c, &end)
	return store.Range{From: kindDue, To: string(c.B)}
}

// entries returns the keys of the index entries of a holding.
func (r *record) entries() []string {
	keys := []string{ownerKey(r.Owner, r.Prefix)}
	if !r.Until.IsZero() {
		keys = append(keys, dueKey(r.Until, r.Prefix))
	}
	return keys
}

// codeUntil encodes or decodes the expiry of a lease.
func (r *record) codeUntil(c *wire.Coder) {
	end := uint64(wire.Stamp(r.Until))
	if wire.Word(c, &end); c.Writes {
		return
	}
	if r.Until = wire.Unstamp(int64(end)); end == 0 || end > math.MaxInt64 || r.Children != (Sizes{}) {
		c.Fail("end of a lease")
	}
}

// checkLease returns the error for a lease that is impossible in any state of the store.
func (r *Request) checkLease() error {
	if r.TTL > 0 && r.Children != (Sizes{}) {
		return errLeasedPool("Children")
	}
	return cmp.Or(checkTTL("TTL", r.TTL), checkAttributes(r.Attributes))
}
