// Package limits bounds the number of addresses that share an attribute, such as the
// quota of a tenant. It also lets services share an address if their ports differ. A
// limit counts the entries of an engine's index and stores no count. The count therefore
// falls whenever an address is released or expires, and no call has to decrement it.
// Calls under one limit run one after the other, on any number of engines, by a record
// whose key begins with Qlimit/. Addresses that are assigned without a limit count too.
// Each call is one commit of [store.Together], under a limit with one record more than
// the engine's own. After [ipalloc.ErrUnknownOutcome] repeat it with Existing or a Request.
package limits

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/prefixes"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// Limits makes calls under limits. Make a Limits with [New].
type Limits struct {
	db store.Store
	o  ipset.Options
}

// New returns the limits of a store, or of a space that [store.Space] returns. Its
// engines have the given options.
func New(db store.Store, o ipset.Options) *Limits { return &Limits{db, o} }

// Limit is the largest number of addresses or prefixes with a common property. Make a
// Limit with [Attribute] or [Prefixes].
type Limit struct {
	name  string
	most  int
	count func(ctx context.Context, tx store.Store, e *ipset.Engine) (int, error)

	key, value string // of Attribute
}

// Attribute limits the addresses whose attributes have a value under a key, in the pools
// whose Index lists the key. A shared address counts once, however many of its holders
// have the attribute. If a pool gets its Index later, [Limits.Set] indexes the addresses
// that it then has.
func Attribute(key, value string, most int) Limit {
	return Limit{key + "=" + value, most, func(ctx context.Context, _ store.Store, e *ipset.Engine) (int, error) {
		held, err := e.IPsByAttribute(ctx, key, value)
		held = slices.CompactFunc(held, func(a, b alloc.Allocation) bool { return a.Address == b.Address }) // in address order
		return len(held), err
	}, key, value}
}

// Prefixes limits the prefixes of package prefixes that an owner holds.
func Prefixes(owner string, most int, o prefixes.Options) Limit {
	return Limit{name: prefixesName + owner, most: most, count: func(ctx context.Context, tx store.Store, _ *ipset.Engine) (int, error) {
		plan, err := prefixes.New(tx, o)
		if err != nil {
			return 0, err
		}
		held, err := plan.Owned(ctx, owner)
		return len(held), err
	}}
}

// Remembered is a limit that a call has set or used.
type Remembered struct {
	Name       string // KEY=VALUE of [Attribute], prefixes/OWNER of [Prefixes]
	Most, Used int
}

// All yields the stored limits, by name, with the use of each. An error is the last value
// that it yields.
func (l *Limits) All(ctx context.Context) iter.Seq2[Remembered, error] {
	return func(yield func(Remembered, error) bool) {
		e, err := ipset.New(l.db, l.o)
		var recs []store.Record
		if err == nil {
			recs, _, err = l.db.List(ctx, store.Range{From: limitKey, To: limitKey + "\xff"})
		}
		if err != nil {
			yield(Remembered{}, err)
			return
		}
		for _, r := range recs {
			limit := Limit{name: r.Key[len(limitKey):]}
			if owner, is := strings.CutPrefix(limit.name, prefixesName); is {
				limit = Prefixes(owner, 0, prefixes.Options{Now: l.o.Now})
			} else if key, value, is := strings.Cut(limit.name, "="); is {
				limit = Attribute(key, value, 0)
			}
			m := Remembered{Name: limit.name}
			if m.Most, err = strconv.Atoi(r.Value); err != nil || limit.count == nil {
				err = &ipalloc.Error{Package: "limits", Op: "list", Name: limit.name, Reason: fmt.Sprintf("the record %q has the value %q", r.Key, r.Value), Err: ipalloc.ErrCorrupt}
			} else {
				m.Used, err = limit.count(ctx, l.db, e)
			}
			if !yield(m, err) || err != nil {
				return
			}
		}
	}
}

// Forget deletes the limit of that name, which [Limits.All] lists. Its addresses or
// prefixes stay held. It fails with [ipalloc.ErrNotFound] if no such limit is stored.
func (l *Limits) Forget(ctx context.Context, name string) error {
	return store.Together(ctx, l.db, func(tx store.Store) error {
		recs, err := tx.Get(ctx, nil, limitKey+name)
		if err == nil && recs[0].Rev == 0 {
			err = &ipalloc.Error{Package: "limits", Op: "forget", Name: name, Err: ipalloc.ErrNotFound}
		}
		if err == nil {
			_, err = tx.Commit(ctx, []store.Op{{Kind: store.Delete, Key: limitKey + name, Expect: recs[0].Rev}})
		}
		return err
	})
}

// limitKey begins the key of a stored limit, prefixesName the name of a limit made by
// Prefixes.
const (
	limitKey     = "Qlimit/"
	prefixesName = "prefixes/"
)

// together commits f's changes at once.
func (l *Limits) together(ctx context.Context, f func(tx store.Store, e *ipset.Engine) error) (err error) {
	for range 8 { // each with the attempts of Together
		err = store.Together(ctx, l.db, func(tx store.Store) error {
			e, err := ipset.New(tx, l.o)
			if err == nil {
				err = f(tx, e)
			}
			return err
		})
		if !errors.Is(err, ipalloc.ErrConflict) {
			break
		}
	}
	return err
}

// turn commits f's changes, and the record of the limit with the value that f returns.
// Calls that write the same record run one after the other.
func (l *Limits) turn(ctx context.Context, limit Limit, f func(tx store.Store, e *ipset.Engine, was string) (string, error)) error {
	key := limitKey + limit.name
	return l.together(ctx, func(tx store.Store, e *ipset.Engine) error {
		recs, err := tx.Get(ctx, nil, key)
		if err != nil {
			return err
		}
		value, err := f(tx, e, recs[0].Value)
		if err == nil {
			_, err = tx.Commit(ctx, []store.Op{{Kind: store.Put, Key: key, Value: value, Expect: recs[0].Rev}})
		}
		return err
	})
}

// Under calls f with a store and an engine on it, and commits f's changes if the limit
// holds afterwards. A call that adds nothing also succeeds at a full limit. f may be
// called several times, and must change nothing but tx. The first call stores the value
// of the limit.
//
// On error nothing changes. Under fails with [ipalloc.ErrLimit] and the name of the
// limit, its value and its use. It fails with [ipalloc.ErrMismatch] if another value is
// stored, with the error of f, and as [store.Together] does.
func (l *Limits) Under(ctx context.Context, limit Limit, f func(tx store.Store, e *ipset.Engine) error) error {
	return l.turn(ctx, limit, func(tx store.Store, e *ipset.Engine, was string) (string, error) {
		refuse := func(err error, format string, args ...any) (string, error) {
			return "", &ipalloc.Error{Package: "limits", Op: "assign", Name: limit.name, Reason: fmt.Sprintf(format, args...), Err: err}
		}
		if is := strconv.Itoa(limit.most); was != "" && was != is {
			return refuse(ipalloc.ErrMismatch, "the limit is %s, not %s", was, is)
		}
		before, err := limit.count(ctx, tx, e)
		if err == nil {
			err = f(tx, e)
		}
		if err != nil {
			return "", err
		}
		after, err := limit.count(ctx, tx, e)
		if err == nil && after > max(limit.most, before) {
			return refuse(ipalloc.ErrLimit, "limit reached: %d of %d in use, and %d more asked for", before, limit.most, after-before)
		}
		return strconv.Itoa(limit.most), err
	})
}

// AutoAssign is [ipset.Engine.AutoAssign] under a limit made by [Attribute]; the limit
// admits all of the addresses or none. It fails with [ipalloc.ErrInvalid], and assigns
// nothing, for an address that the limit does not count: an address without the
// attribute, or of a pool without the index.
func (l *Limits) AutoAssign(ctx context.Context, limit Limit, a alloc.AssignArgs) (got alloc.Assigned, err error) {
	err = l.Under(ctx, limit, func(_ store.Store, e *ipset.Engine) (err error) {
		if got, err = e.AutoAssign(ctx, a); err != nil {
			return err
		}
		held, err := e.IPsByAttribute(ctx, limit.key, limit.value)
		for _, al := range slices.Concat(got.V4, got.V6) {
			if err == nil && !slices.ContainsFunc(held, func(h alloc.Allocation) bool { return h.Address == al.Address && h.Handle == al.Handle }) {
				err = &ipalloc.Error{Package: "limits", Op: "assign", Addr: al.Address, Name: limit.name, Reason: "the address lacks the attribute, or its pool the index", Err: ipalloc.ErrInvalid}
			}
		}
		return err
	})
	if err != nil {
		got.V4, got.V6 = nil, nil
	}
	return got, err
}

// Set changes the value of a limit, and indexes the addresses that the pools already
// hold. Addresses above the new value stay held.
func (l *Limits) Set(ctx context.Context, limit Limit) error {
	return l.turn(ctx, limit, func(_ store.Store, e *ipset.Engine, _ string) (string, error) {
		pools, err := e.Pools(ctx)
		for _, p := range pools {
			if err == nil && len(p.Index) > 0 {
				_, err = e.Operator().Reindex(ctx, p.Name)
			}
		}
		return strconv.Itoa(limit.most), err
	})
}

// Ports assigns a shared address if no other holder uses its ports. The ports are the
// keys of attributes that begin with "port/". If the handle already holds the address,
// its attributes become those in the call, so a service changes its ports in place. Calls
// for one address run one after the other, because each writes the address. The pool's
// Ranges and the reservations do not apply, because the call names the address. A
// disabled pool refuses every address.
//
// It fails as [ipset.Engine.AssignIP] does, and with [ipalloc.ErrOccupied] and the holder
// if a port is taken.
func (l *Limits) Ports(ctx context.Context, a alloc.AssignIPArgs) (al alloc.Allocation, err error) {
	err = l.together(ctx, func(_ store.Store, e *ipset.Engine) error {
		if al, err = e.AssignIP(ctx, a); err != nil {
			return err
		}
		want := a.Attributes.Map()
		for h := range al.Holders() {
			for k := range h.Attributes.All() {
				if _, both := want[k]; both && h.Handle != a.Handle && strings.HasPrefix(k, "port/") {
					return &ipalloc.Error{Package: "limits", Op: "assign", Addr: a.Address, Handle: a.Handle, Holder: h.Handle, Reason: k + " is taken", Err: ipalloc.ErrOccupied}
				}
			}
		}
		if al.Attributes == a.Attributes {
			return nil
		}
		al.Attributes = a.Attributes
		return e.Update(ctx, alloc.UpdateArgs{Address: a.Address, Guard: alloc.Guard{Handle: a.Handle}, Active: &a.Attributes})
	})
	if err != nil {
		return alloc.Allocation{}, err
	}
	return al, nil
}

// ReleaseAll releases every address whose attributes have that value under that key, for
// example at the end of a tenant. Repeat an interrupted call to continue it.
func ReleaseAll(ctx context.Context, e *ipset.Engine, key, value string) (released []netip.Addr, err error) {
	held, err := e.IPsByAttribute(ctx, key, value)
	for _, al := range held {
		results, err := e.ReleaseIPs(ctx, alloc.Release{Address: al.Address, Guard: alloc.Guard{Seq: al.Seq}})
		if err != nil {
			return released, err
		}
		if results[0].Outcome == alloc.Released {
			released = append(released, al.Address)
		}
	}
	return released, err
}
