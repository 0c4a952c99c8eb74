package controller

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"time"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/cidrset/nodeipam"
)

// pump requeues delayed nodes when they are due, until ctx ends.
func (c *Controller) pump(ctx context.Context) {
	for ctx.Err() == nil {
		var due <-chan time.Time
		stop := func() {}
		if idle := c.queue.next(); idle >= 0 {
			due, stop = c.cfg.Clock.NewTimer(idle)
		}
		select {
		case <-due:
		case <-c.queue.wake:
		case <-ctx.Done():
		}
		stop()
	}
}

// shows reports whether the node's record has exactly the assignment.
func shows(n *nodeipam.Node, as nodeipam.Assignment) bool {
	readable := slices.DeleteFunc(slices.Clone(n.Prefixes), func(p netip.Prefix) bool { return !p.IsValid() })
	return slices.Equal(readable, as.Prefixes)
}

// work takes nodes from the queue until it is closed.
func (c *Controller) work(ctx context.Context) {
	for it := c.queue.get(); it != nil; it = c.queue.get() {
		start := c.cfg.Clock.Now()
		c.locked(func() {
			c.begun[it.name] = start
			delete(c.aside, it.name)
		})
		waited := start.Sub(it.since)
		w := worker{c, ctx, 0}
		v := w.process(it.name)
		total := c.cfg.Clock.Now().Sub(start)
		c.locked(func() {
			delete(c.begun, it.name)
			c.stats.WriterTime += w.inWriter
			c.stats.OwnTime += total - w.inWriter
		})
		c.queue.done(it, v)
		if c.cfg.Worked != nil {
			c.cfg.Worked(waited, total)
		}
	}
}

// worker works on one node.
type worker struct {
	*Controller
	ctx      context.Context
	inWriter time.Duration
}

// process does the missing work for a node.
//
// A node becomes unsettled with its first write that succeeds or has an unknown outcome.
// It is settled when the view shows the written prefixes, or when a live read found none
// and no request can be in flight any more. An unsettled node's prefixes are not released
// because of the view, which may be older than the write or show an earlier node of that
// name.
func (w *worker) process(name string) verdict {
	n, there := w.cfg.Source.Get(name)
	if d, ok := w.isUnsettled(name); ok {
		as, holds := w.cfg.Allocator.Lookup(name)
		switch {
		case there && n.UID == d.uid && holds && shows(&n, as):
			w.settled(name)
		case !there || n.UID != d.uid || n.Terminating || len(n.Prefixes) > 0:
			return w.settle(name)
		}
	}
	if !there {
		w.release(name)
		w.fine(name)
		return verdict{}
	}
	w.observe(n)
	if len(n.Prefixes) > 0 || n.Terminating {
		return verdict{}
	}
	if w.cfg.Choose != nil {
		return w.choose(n)
	}
	var retried uint64
	w.locked(func() { retried = w.retried })
	as, err := w.cfg.Allocator.Allocate(n)
	if err == nil {
		return w.write(n, as)
	}
	w.unserved(name, err)
	if errors.Is(err, ipalloc.ErrNotFound) {
		return w.setAside(name, retried)
	}
	return verdict{kind: whenFree}
}

// choose calls Config.Choose for a node and writes the assignment.
func (w *worker) choose(n nodeipam.Node) verdict {
	start := w.cfg.Clock.Now()
	as, err := w.cfg.Choose(w.ctx, n)
	w.inWriter += w.cfg.Clock.Now().Sub(start)
	held, ok := w.cfg.Allocator.Lookup(n.Name)
	if err == nil && (!ok || !slices.Equal(held.Prefixes, as.Prefixes)) {
		err = failure("choose", "Choose", "the allocator does not hold the prefixes for the node", ipalloc.ErrInvalid)
	}
	delay, named := retryAfter(err)
	_, unsettled := w.isUnsettled(n.Name)
	switch {
	case err == nil:
		return w.write(n, held)
	case w.ctx.Err() != nil:
	case named:
		w.unwritten(n.Name, "choose", as, ipalloc.ErrLimit, err)
	case errors.Is(err, ipalloc.ErrNotFound) && unsettled:
		return w.settle(n.Name)
	case errors.Is(err, ipalloc.ErrNotFound):
		w.release(n.Name)
	case errors.Is(err, ipalloc.ErrFull), errors.Is(err, ipalloc.ErrCooling):
		w.unserved(n.Name, err)
		return verdict{kind: whenFree}
	default:
		w.unchosen(n.Name, err)
		switch {
		case unsettled:
			return w.settle(n.Name)
		case errors.Is(err, ipalloc.ErrMismatch):
			w.release(n.Name) // no record has what it holds, and no request can record it
		}
	}
	return verdict{later, delay}
}

// doubt is the reason why a node is unsettled.
type doubt struct {
	uid string
	// until is the latest time for the last request of unknown outcome to be carried out.
	// It is zero if a later write succeeded, because both writes have the same prefixes.
	until time.Time
}

func (c *Controller) isUnsettled(name string) (d doubt, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	d, ok = c.unsettled[name]
	return d, ok
}

func (c *Controller) settled(name string) {
	c.locked(func() { delete(c.unsettled, name) })
}

// setAside makes a node that no entry matches wait until it changes or Retry is called.
// If Retry was called after the allocator answered, a matching entry may exist now.
func (c *Controller) setAside(name string, retried uint64) (v verdict) {
	c.locked(func() {
		if c.retried != retried {
			v.kind = atOnce
			return
		}
		c.aside[name] = true
	})
	return v
}

// observe passes the prefixes of a node to the allocator. A node without prefixes keeps
// the prefixes it holds, unless these are from an earlier node of that name.
func (c *Controller) observe(n nodeipam.Node) {
	before, held := c.cfg.Allocator.Lookup(n.Name)
	_, problems := c.cfg.Allocator.Observe(n)
	after, _ := c.cfg.Allocator.Lookup(n.Name)
	if held && !slices.Equal(before.Prefixes, after.Prefixes) {
		c.queue.spaceFreed()
	}
	if len(n.Prefixes) > 0 || n.Terminating {
		c.complain(n.Name, problems)
	}
}

// release frees the prefixes of a node and wakes the nodes that wait for space.
func (c *Controller) release(name string) {
	if _, ok := c.cfg.Allocator.Release(name); ok {
		c.queue.spaceFreed()
	}
}

// write writes the assignment in a few attempts in a row. It then reads the node live,
// unless every attempt was refused and no earlier request can be in flight.
func (w *worker) write(n nodeipam.Node, as nodeipam.Assignment) verdict {
	var err error
	for range w.cfg.Attempts {
		err = w.attempt(n, as)
		if err == nil {
			w.fine(n.Name)
			return verdict{}
		}
		if delay, ok := retryAfter(err); ok {
			w.unwritten(n.Name, "write", as, ipalloc.ErrLimit, err)
			return verdict{later, delay}
		}
		if errors.Is(err, ipalloc.ErrNotFound) || w.ctx.Err() != nil {
			break
		}
	}
	if w.ctx.Err() != nil {
		return verdict{kind: later} // which does not come; the next controller reads what was written
	}
	if _, ok := w.isUnsettled(n.Name); ok {
		w.unwritten(n.Name, "write", as, ipalloc.ErrUnknownOutcome, err)
		return w.settle(n.Name)
	}
	if !errors.Is(err, ipalloc.ErrNotFound) {
		w.unwritten(n.Name, "write", as, ipalloc.ErrConflict, err)
	}
	w.release(n.Name)
	return verdict{kind: later}
}

// attempt writes once. The node is unsettled afterwards, unless the write recorded
// nothing.
func (w *worker) attempt(n nodeipam.Node, as nodeipam.Assignment) error {
	start := w.cfg.Clock.Now()
	err := w.cfg.Writer.Write(w.ctx, n, as)
	end := w.cfg.Clock.Now()
	w.inWriter += end.Sub(start)
	w.locked(func() {
		d := doubt{uid: n.UID}
		switch {
		case errors.Is(err, ipalloc.ErrConflict) || errors.Is(err, ipalloc.ErrNotFound):
			w.stats.Rejected++
			return
		case err == nil:
			w.stats.Assigned++
		default:
			w.stats.Unknown++
			d.until = end.Add(w.cfg.RequestLife)
		}
		w.unsettled[n.Name] = d
	})
	return err
}

// settle reads the node's record after the last attempt to write it. Until the answer
// arrives the node keeps its prefixes.
func (w *worker) settle(name string) verdict {
	w.locked(func() { w.stats.Reads++ })
	start := w.cfg.Clock.Now()
	n, err := w.cfg.Writer.Read(w.ctx, name)
	w.inWriter += w.cfg.Clock.Now().Sub(start)
	switch {
	case errors.Is(err, ipalloc.ErrNotFound):
		// If the view still has a node of that name, that is a later node, or the view is
		// old and the next write is refused.
		w.settled(name)
		w.release(name)
		w.fine(name)
		return verdict{}
	case err != nil:
		delay, _ := retryAfter(err)
		as, _ := w.cfg.Allocator.Lookup(name)
		w.unwritten(name, "read", as, ipalloc.ErrUnknownOutcome, err)
		return verdict{later, delay}
	}
	w.observe(n)
	if len(n.Prefixes) == 0 {
		d, _ := w.isUnsettled(name)
		if n.UID != d.uid || n.Terminating || !start.Before(d.until) {
			w.settled(name)
		} // else a request may still be carried out
		if n.Terminating {
			return verdict{}
		}
		return verdict{kind: later} // with the same prefixes
	}
	w.locked(func() { w.unsettled[name] = doubt{uid: n.UID} }) // until the view shows it
	if seen, ok := w.cfg.Source.Get(name); ok && seen.UID == n.UID && slices.Equal(seen.Prefixes, n.Prefixes) {
		w.settled(name)
	}
	return verdict{}
}
