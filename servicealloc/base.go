package servicealloc

import (
	"sync"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/hook"
	"github.com/ipalloc/ipalloc/internal/wire"
)

// A base is the common part of a [Pool] and a [Registry]: the lock, the options, the
// random values and the receiver of changes.
type base struct {
	mu      sync.Mutex
	magic   string // of snapshots
	pick    picker
	set     *settings
	changes *hook.Queue[Change] // nil without OnChange
}

// start sets b from the options. The seeds are used without [Random].
func (b *base) start(c *config, magic string, seed1, seed2 uint64) {
	b.magic, b.set, b.pick = magic, c.shared(), newPicker(c, seed1, seed2)
	if c.onChange != nil {
		b.changes = hook.New(&b.mu, c.onChange)
	}
}

// unlock ends a call that may have changed something. A call that only confirms an
// earlier one also waits for the receiver.
func (b *base) unlock() {
	b.mu.Unlock()
	b.changes.Deliver()
}

// unlockQuestion ends a call that only reads. It does not wait for the receiver, because
// the receiver may make the call.
func (b *base) unlockQuestion() {
	b.mu.Unlock()
	b.changes.TryDeliver()
}

// save returns a snapshot of an allocator: the options, the random values and the
// content.
func (b *base) save(what string, content func(*wire.Coder)) ([]byte, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	w, options := wire.Frame(nil, b.magic, 1), b.set.String()
	wire.String(w, &what)
	wire.String(w, &options)
	b.pick.code(w)
	content(w)
	return w.Finish()
}

// restore reads a snapshot made by save, if the constructor was given one.
func (b *base) restore(c *config, what string, content func(*wire.Coder)) error {
	if !c.restore {
		return nil
	}
	d := wire.Open(c.snapshot, b.magic, 1)
	e := &ipalloc.Error{Package: "servicealloc", Op: "restore", Field: "Restore", Name: what, Err: ipalloc.ErrMismatch}
	of, options := "", ""
	wire.String(d, &of)
	wire.String(d, &options)
	switch {
	case d.Err != nil:
	case of != what:
		e.Text, e.Reason = of, "the snapshot is of another range"
		return e
	case options != b.set.String():
		e.Reason = "the snapshot has other options"
		return e
	}
	b.pick.code(d)
	content(d)
	if err := d.End(); err != nil {
		return &ipalloc.Error{Package: "servicealloc", Op: "restore", Err: err}
	}
	return nil
}

// corrupt completes an error of Check.
func corrupt(e ipalloc.Error, why string) error {
	e.Package, e.Op, e.Reason, e.Err = "servicealloc", "check", why, ipalloc.ErrCorrupt
	return &e
}
