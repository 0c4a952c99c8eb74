package servicealloc

import (
	"runtime"
	"slices"
	"sync/atomic"
	"time"

	"github.com/ipalloc/ipalloc"
)

// Tx is a change of what one owner holds, between the moment in which everything that
// the new record needs is taken and the moment in which the record is known to be
// written, or not. Until it ends, the owner holds both the old and the new, and no
// other owner gets either. End each transaction with [Tx.Commit] or [Tx.Rollback].
type Tx struct {
	r *Registry
	p *pending
}

// pending is an open transaction, as the registry keeps it.
type pending struct {
	rec      *record
	grant    Grant // what the owner holds once it is committed
	addrs    int   // how many of them the old grant had when it began, or when something was loaded
	ports    int
	deadline time.Time
	ended    string      // why it is over, "" while it is open
	dropped  atomic.Bool // the Tx became unreachable before it was ended
	cleanup  runtime.Cleanup
}

// Begin takes for owner what req asks for, as [Registry.Allocate] does, and keeps what
// the owner has held so far. It returns the grant that holds once the transaction is
// committed. An empty request ends, on commit, all that the owner holds.
//
//	tx, grant, err := reg.Begin("default/web", req)
//	if err != nil {
//		return err
//	}
//	switch err := write(grant); {
//	case err == nil:
//		return tx.Commit()
//	case definite(err): // the record was not written
//		return tx.Rollback()
//	default: // unknown: read the record, then commit or roll back
//	}
//
// [OnChange] sees the union of the old and the new when a transaction begins and the
// outcome when it ends, and a snapshot has the union: after a crash the owner holds too
// much rather than too little, and [Registry.Diff] finds it.
//
// If req has a deadline, the first call that may change the registry after it rolls the
// transaction back. A Tx that is garbage before it has ended is reported by
// [Registry.Check]; the next transaction of that owner, or its release, then takes over
// all that it held.
//
// The errors are those of Allocate, except that an owner that holds something else need
// not name its generation.
func (r *Registry) Begin(owner string, req Request) (*Tx, Grant, error) {
	req.DryRun = false
	r.lock()
	defer r.unlock()
	if owner == "" {
		return nil, Grant{}, ownerError("allocate", owner, "no owner", ipalloc.ErrInvalid)
	}
	rec, err := r.find("allocate", owner, req.Generation)
	if err != nil {
		return nil, Grant{}, err
	}
	p := &pending{rec: rec, grant: rec.clone(), deadline: req.Deadline}
	if !rec.answers(req) {
		if p.grant, err = r.take(rec, &rec.Grant, req); err != nil {
			return nil, Grant{}, err
		}
	}
	r.owners[owner] = rec
	rec.tx, p.addrs, p.ports = p, len(rec.Addrs), len(rec.Ports)
	if !p.deadline.IsZero() {
		r.timed = append(r.timed, p)
		r.hasTimed.Store(true)
	}
	if p.grant.Generation > rec.Generation {
		r.publish(rec, &rec.Grant)
	}
	tx := &Tx{r, p}
	p.cleanup = runtime.AddCleanup(tx, func(p *pending) { p.dropped.Store(true) }, p)
	return tx, p.grant.clone(), nil
}

// union returns all that an owner holds, with an open transaction, as one grant.
func (rec *record) union() Grant {
	u := rec.clone()
	if rec.tx == nil || rec.tx.grant.Generation == rec.Generation {
		return u
	}
	g := &rec.tx.grant
	u.Generation, u.Spilled = max(u.Generation, g.Generation), u.Spilled || g.Spilled
	u.add(g.Addrs, g.Ports)
	return u
}

// load adds to the new grant what was loaded into the old one while p is open, because
// a record names it: neither outcome gives it back.
func (p *pending) load(rec *record) {
	p.grant.add(rec.Addrs[p.addrs:], rec.Ports[p.ports:])
	p.addrs, p.ports = len(rec.Addrs), len(rec.Ports)
	if p.grant.Generation == 0 && !p.grant.empty() {
		p.grant.Generation = rec.Generation
	}
}

// Commit makes the new grant the only one: what the owner held before and does not hold
// any more is released.
//
// It fails with [ipalloc.ErrClosed] if the transaction has ended; the reason says
// whether its deadline ended it.
func (tx *Tx) Commit() error { return tx.end("commit", true) }

// Rollback gives back what the transaction took; the owner holds what it held before.
//
// It fails with [ipalloc.ErrClosed] if the transaction has ended, so that a deferred
// call after a Commit does nothing.
func (tx *Tx) Rollback() error { return tx.end("rollback", false) }

func (tx *Tx) end(op string, commit bool) error {
	defer runtime.KeepAlive(tx)
	tx.r.lock()
	defer tx.r.unlock()
	if tx.p.ended != "" {
		return ownerError(op, tx.p.grant.Owner, tx.p.ended, ipalloc.ErrClosed)
	}
	tx.r.finish(tx.p, commit, "the transaction has ended")
	return nil
}

// close takes p off the lists.
func (r *Registry) close(p *pending, why string) {
	p.ended, p.rec.tx = why, nil
	p.cleanup.Stop()
	r.timed = slices.DeleteFunc(r.timed, func(o *pending) bool { return o == p })
	r.hasTimed.Store(len(r.timed) > 0)
}

// finish ends p.
func (r *Registry) finish(p *pending, commit bool, why string) {
	rec, u := p.rec, p.rec.union()
	r.close(p, why)
	had := rec.Generation
	if commit {
		rec.Grant = p.grant
	}
	r.giveBack(rec, r.subjects(&u), r.subjects(&rec.Grant))
	if rec.Generation == 0 || p.grant.Generation != had && !(commit && had == 0) {
		r.publish(rec, &u)
	}
}

// expire rolls back the transactions whose deadline has passed, in the order in which
// they began.
func (r *Registry) expire(now time.Time) {
	for _, p := range slices.Clone(r.timed) {
		if !now.Before(p.deadline) {
			r.finish(p, false, "the deadline of the transaction has passed; it was rolled back")
		}
	}
}

// adopt ends a transaction of rec that was dropped: the owner keeps all of it.
func (r *Registry) adopt(rec *record) {
	if p := rec.tx; p != nil && p.dropped.Load() {
		rec.Grant = rec.union()
		r.close(p, "the transaction was dropped")
		if rec.Generation == 0 {
			delete(r.owners, rec.Owner)
		}
	}
}
