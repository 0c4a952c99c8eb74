package hostlocal

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/absent"
	"github.com/ipalloc/ipalloc/ipset/internal/occ"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// Config configures an engine. Network is required.
type Config struct {
	// Network is the name of the network. The engine neither sees nor changes addresses
	// of other networks in the same store.
	Network string
	// Sets are the ranges to allocate from: an Add takes one address of each set. They
	// may change between calls; addresses allocated before stay held. Without sets, Add
	// and Status fail and everything else works.
	Sets []RangeSet
	// Scope, such as the name of the node, names the engine's part of the network if
	// engines on different nodes share its addresses. Boot, Leases and GC apply to the
	// attachments that were added in the scope. Sets with the same first address share a
	// cursor, even under different numbers. Del writes a record of the scope, so that a
	// commit that a killed process left in flight cannot be made later.
	Scope string
	// Boot identifies the present boot of the node, such as the content of
	// /proc/sys/kernel/random/boot_id. It is recorded if it is not empty.
	Boot string
	// Leases releases every attachment when the node restarts, that is, attachments added
	// under another Boot. It needs Boot. Without Leases, an attachment holds its
	// addresses until they are released, as in host-local.
	Leases bool
	// Keys enables [Engine.AddKey]. If one engine of the network has Keys, every other
	// one must have it too.
	Keys bool
	// Now is the time source of the records of attachments and of GC; nil is time.Now.
	Now func() time.Time
	// Attempts bounds the commits that a call tries when other engines change records
	// that it depends on; the default is 16.
	Attempts int
	// Wait sleeps before the retry that follows an attempt, counted from 1. The default sleeps up to a
	// random 100 ms, from the second retry on. It must be safe for concurrent use.
	Wait func(ctx context.Context, attempt int) error
}

// Engine allocates the addresses of one network. Make an Engine with [New]. Any number of
// engines, in any number of processes, may work on one store. It is safe for concurrent
// use. Calls that arrive while a commit is in flight share the next one.
type Engine struct {
	keys
	store   store.Store
	network string
	sets    []RangeSet
	boot    string
	leases  bool
	uses    bool
	tries   int
	wait    func(ctx context.Context, attempt int) error
	clock   func() time.Time
	run     *occ.Runner[*txn]
}

// New returns an engine. It reads nothing.
//
// It fails with ErrInvalid if db is nil, if a field of c is invalid, or if Leases is set
// without Boot or with Keys; Error.Field names the argument. For invalid sets it fails as
// [Canonical] does.
func New(db store.Store, c Config) (*Engine, error) {
	err := checkName("Network", c.Network)
	if err == nil && c.Scope != "" {
		err = checkName("Scope", c.Scope)
	}
	switch {
	case absent.Is(db):
		err = fault(ipalloc.ErrInvalid, "db", "is nil")
	case len(c.Boot) > maxName:
		err = fault(ipalloc.ErrInvalid, "Boot", fmt.Sprintf("%d bytes, at most %d", len(c.Boot), maxName))
	case c.Attempts < 0:
		err = fault(ipalloc.ErrInvalid, "Attempts", "negative")
	case c.Leases && c.Boot == "":
		err = fault(ipalloc.ErrInvalid, "Leases", "leases need Boot")
	case c.Leases && c.Keys:
		err = fault(ipalloc.ErrInvalid, "Leases", "a key outlives a boot")
	}
	e := &Engine{
		keys: newKeys(c.Network, c.Scope), store: db, network: c.Network, boot: c.Boot, leases: c.Leases, uses: c.Keys,
		tries: cmp.Or(c.Attempts, 16), wait: c.Wait, clock: c.Now,
	}
	if e.clock == nil {
		e.clock = func() time.Time { return systemTime() }
	}
	if e.wait == nil {
		e.wait = occ.Backoff(occ.Retry{})
	}
	if err == nil {
		e.sets, err = Canonical(c.Sets)
	}
	if err != nil {
		return nil, e.explain(err, "new", Attachment{})
	}
	e.run = e.newRunner(db)
	return e, nil
}

// purge removes all attachments of earlier boots, in as many commits as needed.
func (e *Engine) purge(ctx context.Context) error {
	var now header
	err := e.attempt(ctx, func(t *txn) (err error) {
		if now, err = t.begin(e); errors.Is(err, errPurge) {
			err = nil // the new boot is noted
		}
		return err
	})
	if err != nil {
		return err
	}
	if _, err := e.sweep(ctx, func(_ Attachment, h holding) fate {
		if h.scope == e.scope && h.epoch < now.epoch {
			return ends
		}
		return stays
	}); err != nil {
		return err
	}
	return e.attempt(ctx, func(t *txn) error {
		h, err := t.begin(e)
		if err == nil || !errors.Is(err, errPurge) || h.epoch != now.epoch {
			return err // another engine purged, or the node was started again
		}
		h.purged = h.epoch
		t.put(t.header(), encode(h))
		return nil
	})
}
