package servicealloc

import (
	"cmp"
	"container/heap"
	"runtime"
	"slices"
	"sync/atomic"
	"time"

	"github.com/ipalloc/ipalloc"
)

// Tx is a change of one owner's grant in progress: the new grant is taken, and the
// program writes its record. Until the transaction ends, the owner holds both the old and
// the new grant, and no other owner gets a part of either. When you know whether the
// record was written, end the transaction with [Tx.Commit] or [Tx.Rollback].
type Tx struct {
	r *Registry
	p *pending
}

// pending is an open transaction in the form that the registry keeps.
type pending struct {
	rec      *record
	next     holding // what the owner holds once it is committed
	deadline time.Time
	began    uint64      // number of transactions with a deadline before it
	index    int         // in timedTxs
	ended    string      // why it is over, "" while it is open
	dropped  atomic.Bool // the Tx became unreachable before it was ended
	cleanup  runtime.Cleanup
}

// Begin takes the parts of req for owner, as [Registry.Allocate] does, and also keeps the
// owner's present grant. It returns the grant that the owner will have after Commit. With
// an empty request, Commit releases all that the owner holds.
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
// [OnChange] receives the union of the old and the new grant when a transaction begins,
// and the outcome when it ends. A snapshot has the union. After a crash the owner
// therefore holds too much rather than too little, and package repair finds that.
//
// If req has a deadline, the first later call that can change the registry rolls the
// transaction back. [Registry.Check] reports a Tx that became garbage before it ended.
// The owner's next transaction or release then takes over all that it held.
//
// Begin fails as Allocate does, except that req need not name the generation of the grant
// that it replaces.
func (r *Registry) Begin(owner string, req Request) (*Tx, Grant, error) {
	req.DryRun = false
	r.lock()
	defer r.unlock()
	rec, g, err := r.take(owner, req, true)
	if err != nil {
		return nil, Grant{}, err
	}
	p := &pending{rec: rec, next: holdingOf(&g), deadline: req.Deadline}
	if !p.deadline.IsZero() {
		r.began++
		p.began = r.began
		heap.Push(&r.timed, p)
		r.hasTimed.Store(true)
	}
	r.become(rec, rec.holding, p)
	tx := &Tx{r, p}
	p.cleanup = runtime.AddCleanup(tx, func(p *pending) { p.dropped.Store(true) }, p)
	return tx, g.clone(), nil
}

// Commit makes the new grant the only one and releases the other parts of the old grant.
//
// It fails with [ipalloc.ErrClosed] if the transaction has ended (the reason tells
// whether its deadline ended it) or if the registry is closed, see [Registry.Close].
func (tx *Tx) Commit() error { return tx.end("commit", true) }

// Rollback releases everything that the transaction took; the owner holds its old grant.
//
// It fails with [ipalloc.ErrClosed] if the transaction has ended, so a deferred call
// after a Commit does nothing.
func (tx *Tx) Rollback() error { return tx.end("rollback", false) }

func (tx *Tx) end(op string, commit bool) error {
	defer runtime.KeepAlive(tx)
	tx.r.lock()
	defer tx.r.unlock()
	switch {
	case tx.p.ended != "":
		return ownerError(op, tx.p.rec.owner, tx.p.ended, ipalloc.ErrClosed)
	case tx.r.closed:
		return ownerError(op, tx.p.rec.owner, "the registry is closed", ipalloc.ErrClosed)
	}
	h := tx.p.rec.holding
	if commit {
		h = tx.p.next
	}
	tx.r.finish(tx.p, h, "the transaction has ended")
	return nil
}

// finish ends p; its owner then holds h.
func (r *Registry) finish(p *pending, h holding, why string) {
	p.ended = why
	p.cleanup.Stop()
	if !p.deadline.IsZero() && p.index >= 0 {
		heap.Remove(&r.timed, p.index)
	}
	r.hasTimed.Store(len(r.timed) > 0)
	r.become(p.rec, h, nil)
}

// expire rolls back the transactions whose deadline has passed, in the order of their
// beginning.
func (r *Registry) expire(now time.Time) {
	var due []*pending
	for len(r.timed) > 0 && !now.Before(r.timed[0].deadline) {
		due = append(due, heap.Pop(&r.timed).(*pending))
	}
	slices.SortFunc(due, func(a, b *pending) int { return cmp.Compare(a.began, b.began) })
	for _, p := range due {
		r.finish(p, p.rec.holding, "the deadline of the transaction has passed; it was rolled back")
	}
}

// timedTxs is a heap of transactions by deadline.
type timedTxs []*pending

func (h timedTxs) Len() int           { return len(h) }
func (h timedTxs) Less(i, j int) bool { return h[i].deadline.Before(h[j].deadline) }
func (h timedTxs) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

func (h *timedTxs) Push(x any) {
	p := x.(*pending)
	p.index = len(*h)
	*h = append(*h, p)
}

func (h *timedTxs) Pop() any {
	last := len(*h) - 1
	p := (*h)[last]
	(*h)[last], *h = nil, (*h)[:last]
	p.index = -1
	return p
}

// adopt ends a transaction that the program dropped: the owner keeps all of it.
func (r *Registry) adopt(rec *record) {
	if p := rec.tx; p != nil && p.dropped.Load() {
		all := rec.union()
		r.finish(p, holdingOf(&all), "the transaction was dropped")
	}
}
