package store

import (
	"context"
	"iter"
	"sync"
	"sync/atomic"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/absent"
)

// overlay is the store that [NewOverlay] returns.
type overlay struct {
	below Store

	mu      sync.Mutex
	version uint64            // commits made
	table   sorted            // the records written; one that was removed has Rev 0
	pins    map[string]uint64 // of each record written, the revision that it had below
	closed  bool              // set when the function of a Together has returned

	// saw, if set, receives the revision in the store below of each record that the overlay has not written and that Get returns, a
	// commit expects, or a conflict names.
	saw func(key string, rev uint64)
}

// NewOverlay returns a store over another one. It reads nothing. The overlay's reads show the store below and the commits made
// to the overlay; its commits are verified against both and kept in memory. It never writes to the store below.
//
// A record that the overlay has not written shows the present state of the store below. If it changes below, a commit that expects the
// former revision conflicts. A record that the overlay has written hides the record below. If the record below changes afterwards, the
// two histories contradict each other, and every call that meets the record fails with ipalloc.ErrMismatch: start with a new overlay.
//
// A call costs one round trip to the store below; a list may cost more where the overlay has removed records. Memory: the
// records written. No lock is held during a call of the store below. Safe for concurrent use.
//
// NewOverlay returns nil for a nil store. Every constructor refuses that result.
func NewOverlay(below Store) Store {
	if absent.Is(below) {
		return nil
	}
	return &overlay{below: below, pins: make(map[string]uint64)}
}

// overlayRevs counts the commits of all overlays. An overlay may have another one below, and their revisions must differ from
// each other and from the revisions of any store.
var overlayRevs atomic.Uint64

// overlayRev is below the first revision of an overlay. No store counts that far.
const overlayRev = 1 << 63

// layer is the state of a record in the overlay.
type layer struct {
	rec Record
	pin uint64
	own bool
}

// layers returns the state of some records in the overlay, and its version.
func (o *overlay) layers(op string, n int, key func(int) string) (dst []layer, version uint64, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for i := range n {
		l := layer{rec: Record{Key: key(i)}}
		if r, own := o.table.record(l.rec.Key); own {
			l = layer{rec: r, pin: o.pins[r.Key], own: true}
		}
		dst = append(dst, l)
	}
	return dst, o.version, o.ended(op)
}

// ended returns the error of a call on an overlay that is closed. The caller holds the lock.
func (o *overlay) ended(op string) error {
	if !o.closed {
		return nil
	}
	return &ipalloc.Error{Package: "store", Op: op, Reason: "the function of Together has returned", Err: ipalloc.ErrClosed}
}

// is reports whether the overlay still has a version. If so, the records read below since then go with the
// layers of that version.
func (o *overlay) is(version uint64) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.version == version
}

// moved returns the error of a call that met a record which the overlay has written and which has changed below since.
func moved(op, key string) error {
	return &ipalloc.Error{Package: "store", Op: op, Name: key, Reason: "the record changed below the overlay", Err: ipalloc.ErrMismatch}
}

// Get implements [Store].
func (o *overlay) Get(ctx context.Context, dst []Record, keys ...string) ([]Record, error) {
	for {
		layers, version, err := o.layers("get", len(keys), func(i int) string { return keys[i] })
		if err != nil {
			return dst, err
		}
		all, err := o.below.Get(ctx, dst, keys...)
		if err != nil {
			return dst, err
		}
		if !o.is(version) {
			continue
		}
		got := all[len(dst):]
		for i, l := range layers {
			if !l.own {
				o.note(l.rec.Key, got[i].Rev)
				continue
			}
			if got[i].Rev != l.pin {
				return dst, moved("get", l.rec.Key)
			}
			got[i] = l.rec
		}
		return all, nil
	}
}

// List implements [Store]. It returns the revision of the store below.
func (o *overlay) List(ctx context.Context, r Range) ([]Record, uint64, error) {
	for window := r; ; {
		o.mu.Lock()
		version, ended := o.version, o.ended("list")
		own := o.table.scan(nil, window)
		pins := make([]uint64, len(own))
		for i, rec := range own {
			pins[i] = o.pins[rec.Key]
		}
		o.mu.Unlock()
		if ended != nil {
			return nil, 0, ended
		}
		recs, rev, err := o.below.List(ctx, window)
		if err != nil {
			return nil, 0, err
		}
		if !o.is(version) {
			continue
		}
		if len(own) == 0 {
			return recs, rev, nil
		}
		merged, whole, err := merge(window, own, pins, recs)
		if err != nil {
			return nil, 0, err
		}
		if r.Limit > 0 && len(merged) > r.Limit {
			merged = merged[:r.Limit]
		}
		if whole || len(merged) == r.Limit {
			return merged, rev, nil
		}
		window.Limit *= 4
	}
}

// merge puts the overlay's records of a range in the place of the records below. The limit of the range may have cut either
// list. The result ends where a list was cut; whole says that none was.
func merge(r Range, own []Record, pins []uint64, below []Record) (merged []Record, whole bool, err error) {
	cutOwn, cutBelow := r.Limit > 0 && len(own) == r.Limit, r.Limit > 0 && len(below) == r.Limit
	before := func(a, b string) bool { return a < b != r.Reverse && a != b }
	for i, j := 0, 0; ; {
		switch {
		case i == len(own) && cutOwn, j == len(below) && cutBelow:
			return merged, false, nil
		case i == len(own) && j == len(below):
			return merged, true, nil
		case i == len(own) || j < len(below) && before(below[j].Key, own[i].Key):
			merged = append(merged, below[j])
			j++
		default:
			rev := uint64(0)
			if j < len(below) && below[j].Key == own[i].Key {
				rev = below[j].Rev
				j++
			}
			if rev != pins[i] {
				return nil, false, moved("list", own[i].Key)
			}
			if own[i].Rev != 0 {
				merged = append(merged, own[i])
			}
			i++
		}
	}
}

// Commit implements [Store]. It reads the records of ops below and keeps the commit in memory. Its revision is above every revision of
// the store below.
func (o *overlay) Commit(ctx context.Context, ops []Op) (uint64, error) {
	if err := ended(ctx, "commit"); err != nil {
		return 0, err
	}
	if err := CheckOps("store", ops, o.Limits()); err != nil {
		return 0, err
	}
	keys := make([]string, len(ops))
	for i := range ops {
		keys[i] = ops[i].Key
	}
	for {
		layers, version, err := o.layers("commit", len(keys), func(i int) string { return keys[i] })
		if err != nil {
			return 0, err
		}
		got, err := o.below.Get(ctx, nil, keys...)
		if err != nil {
			return 0, err
		}
		for i, l := range layers {
			have := got[i].Rev
			if l.own {
				if have != l.pin {
					return 0, moved("commit", keys[i])
				}
				have = l.rec.Rev
			}
			if ops[i].Expect != AnyRevision && have != ops[i].Expect {
				if !l.own {
					o.note(keys[i], have)
				}
				return 0, Conflict("store", keys[i])
			}
		}
		rev, ok := o.apply(ops, got, version)
		if !ok {
			continue
		}
		for i, l := range layers {
			if !l.own && ops[i].Expect != AnyRevision {
				o.note(keys[i], got[i].Rev)
			}
		}
		return rev, nil
	}
}

// note tells saw, if it is set.
func (o *overlay) note(key string, rev uint64) {
	if o.saw != nil {
		o.saw(key, rev)
	}
}

// apply makes the changes of a commit that was verified at a version, and reports false if the overlay has another one now.
func (o *overlay) apply(ops []Op, below []Record, version uint64) (uint64, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.version != version || o.closed {
		return 0, false
	}
	rev := overlayRev + overlayRevs.Add(1)
	for i, op := range ops {
		if op.Kind == Guard {
			continue
		}
		r := Record{Key: op.Key}
		if op.Kind == Put {
			r.Value, r.Rev = op.Value, rev
		}
		if _, own := o.pins[op.Key]; !own {
			o.pins[op.Key] = below[i].Rev
		}
		var w place
		o.table.get(&w, r.Key)
		o.table.put(&w, &r)
		o.version = version + 1
	}
	return rev, true
}

// Watch yields the commits of the store below. Commits of the overlay are not among them.
func (o *overlay) Watch(ctx context.Context, after uint64, prefixes ...string) iter.Seq2[Event, error] {
	return o.below.Watch(ctx, after, prefixes...)
}

// Limits returns the limits of the store below.
func (o *overlay) Limits() Limits { return o.below.Limits() }
