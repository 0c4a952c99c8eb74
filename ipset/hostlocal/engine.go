package hostlocal

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/ipalloc/ipalloc/ipset"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// Config is what an engine serves.
type Config struct {
	// Network is the name of the network: what other networks hold in the same store is out of reach.
	Network string
	// Sets are the ranges to allocate from now: one address of each set. They may be others in every call; what was
	// handed out before stays taken. Without any, all but Add and Status works.
	Sets []RangeSet
	// Boot is what the node calls the time since it was started, such as the content of
	// /proc/sys/kernel/random/boot_id. It is recorded if it is not empty.
	Boot string
	// Leases makes addresses last until the node is started again: what was added under another Boot is gone. It
	// needs Boot. Without it, addresses last until they are released, as those of host-local do.
	Leases bool
	// Retry is about conflicts with other engines. Its defaults are those of package ipset.
	Retry ipset.Retry
	// Rand draws the waits between retries; by default the process's generator.
	Rand rand.Source
}

// Engine hands out addresses of one network. [New] makes one. Any number of engines, in any number of processes, may work
// on one store. Safe for concurrent use; calls of one engine run one after the other.
type Engine struct {
	keys
	store   store.Store
	network string
	sets    []RangeSet
	boot    string
	leases  bool
	retry   ipset.Retry
	random  *rand.Rand // used under the lock
	turn    chan struct{}
}

// New returns an engine. It reads nothing.
//
// It returns [ErrBadName] for the network, the errors of [Canonical] for the sets, and [ErrBadOption] without a store or
// for leases without the name of a boot.
func New(db store.Store, c Config) (*Engine, error) {
	err := checkName("network", c.Network)
	switch {
	case db == nil:
		err = fmt.Errorf("%w: no store", ErrBadOption)
	case len(c.Boot) > maxName:
		err = fmt.Errorf("%w: name of the boot of %d bytes, at most %d", ErrBadOption, len(c.Boot), maxName)
	case c.Leases && c.Boot == "":
		err = fmt.Errorf("%w: leases need the name of the boot", ErrBadOption)
	}
	if err != nil {
		return nil, fault("configure", err)
	}
	sets, err := Canonical(c.Sets)
	if err != nil {
		return nil, err
	}
	e := &Engine{
		keys: newKeys(c.Network), store: db, network: c.Network, sets: sets, boot: c.Boot, leases: c.Leases,
		retry: c.Retry, turn: make(chan struct{}, 1),
	}
	if e.retry.Attempts < 1 {
		e.retry.Attempts = 16
	}
	if e.retry.Base <= 0 {
		e.retry.Base = time.Millisecond
	}
	if e.retry.Max <= 0 {
		e.retry.Max = 100 * time.Millisecond
	}
	if e.retry.Sleep == nil {
		e.retry.Sleep = sleep
	}
	if c.Rand != nil {
		e.random = rand.New(c.Rand)
	}
	return e, nil
}

// lock waits for the turn or the end of the context.
func (e *Engine) lock(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	select {
	case e.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (e *Engine) unlock() { <-e.turn }

// wait spends the time before the retry that follows an attempt: none before the first.
func (e *Engine) wait(ctx context.Context, attempt int) error {
	if attempt == 1 {
		return nil
	}
	draw := rand.Int64N
	if e.random != nil {
		draw = e.random.Int64N
	}
	d := min(e.retry.Base<<min(attempt-2, 20), e.retry.Max)
	return e.retry.Sleep(ctx, d/2+time.Duration(draw(int64(d/2)+1)))
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// begin reads the header and further records in one round trip, and notes a new boot.
func (t *txn) begin(e *Engine, keys ...string) (header, error) {
	key := t.header()
	if err := t.load(append(keys, key)...); err != nil {
		return header{}, err
	}
	v, _ := t.get(key)
	h, err := decodeHeader(v)
	if err != nil {
		return h, err
	}
	if e.boot != "" && h.boot != e.boot {
		if v != "" {
			h.epoch++
		}
		h.boot = e.boot
		t.put(key, h.encode())
	}
	if e.leases && h.purged < h.epoch {
		return h, errPurge
	}
	return h, nil
}

// purge removes all attachments of earlier boots, in as many commits as it takes.
func (e *Engine) purge(ctx context.Context) error {
	var now header
	err := e.attempt(ctx, func(t *txn) error {
		h, err := t.begin(e)
		if now = h; errors.Is(err, errPurge) {
			err = nil // the new boot is noted
		}
		return err
	})
	if err != nil {
		return err
	}
	old := func(a Attachment, h holding) bool { return h.epoch < now.epoch }
	if _, err := e.sweep(ctx, old); err != nil {
		return err
	}
	return e.attempt(ctx, func(t *txn) error {
		h, err := t.begin(e)
		if err == nil || !errors.Is(err, errPurge) || h.epoch != now.epoch {
			return err // purged by another engine, or the node was started again
		}
		h.purged = h.epoch
		t.put(t.header(), h.encode())
		return nil
	})
}
