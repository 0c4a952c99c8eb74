package occ

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/invariant"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// ErrFirst is returned by a plan that can only be made when nothing is pending in the transaction.
var ErrFirst = errors.New("occ: plan must be the first of its transaction")

// Txn is one commit in the making: the records that it relies upon, and its changes. A package embeds it in a type of its
// own, which may have a method Begin. Only plans may use it.
type Txn struct {
	// Ctx is the context of the commit.
	Ctx context.Context

	pkg    string
	store  store.Store
	limits store.Limits
	kinds  []kind
	texts  Cache[string, *text]

	id      uint64 // never repeats
	save    uint64 // the number of the savepoint, never repeats
	guards  []*Cell
	changed []Entry
	undo    []undo
	room    struct { // what those and kinds begin in
		kinds   [4]kind
		guards  [16]*Cell
		changed [8]Entry
		undo    [8]undo
	}
	other  []store.Op
	writes int // the records that the changed cells write, where the store limits them
	point  struct{ guards, changed, other, writes int }
	plans  int  // how many plans came before this one
	reads  int  // round trips so far
	broken bool // reading has failed since the savepoint
	alone  bool // no other plan may join
	again  bool // a conflict came before
	// committing is set while the store's Commit runs.
	committing bool
	ops        Ops
	counted    Ops      // of count
	missing    []string // of Load
	recs       []store.Record
}

// kind has the cells of the keys that begin with prefix.
type kind struct {
	prefix string
	Kind
}

// Register makes k the cells of all keys that begin with prefix.
func (t *Txn) Register(prefix string, k Kind) {
	if t.kinds == nil {
		t.kinds = t.room.kinds[:0]
	}
	t.kinds = append(t.kinds, kind{prefix, k})
}

// kind returns the cells of a key's kind.
func (t *Txn) kind(key string) Kind {
	for i := range t.kinds {
		if strings.HasPrefix(key, t.kinds[i].prefix) {
			return t.kinds[i].Kind
		}
	}
	return &t.texts
}

// Known returns the cell of a key, nil if none is cached.
func (t *Txn) Known(key string) *Cell { return t.kind(key).Known(key) }

// Forget drops the cell of a key. The transaction may not rest on it.
func (t *Txn) Forget(key string) { t.kind(key).Forget(key) }

// Begin does nothing. A type that embeds Txn may have a Begin of its own, which is called before the first plan.
func (t *Txn) Begin() error { return nil }

func (t *Txn) base() *Txn { return t }

// ID returns the number of the transaction, which never repeats.
func (t *Txn) ID() uint64 { return t.id }

// begin empties the transaction.
func (t *Txn) begin(ctx context.Context) {
	t.id++
	t.Ctx = ctx
	clear(t.other)
	clear(t.changed)
	clear(t.guards)
	t.guards, t.changed, t.other = t.guards[:0], t.changed[:0], t.other[:0]
	t.writes, t.plans, t.reads, t.broken, t.alone, t.again = 0, 0, 0, false, false, false
	for i := range t.kinds {
		t.kinds[i].Age()
	}
	t.texts.Age()
	t.savepoint()
}

// reset forgets everything that is cached.
func (t *Txn) reset() {
	for i := range t.kinds {
		t.kinds[i].Reset()
	}
	t.texts.Reset()
	t.committing = false
}

// savepoint begins a plan.
func (t *Txn) savepoint() {
	t.save++
	clear(t.undo)
	t.undo, t.broken = t.undo[:0], false
	t.point.guards, t.point.changed, t.point.other, t.point.writes = len(t.guards), len(t.changed), len(t.other), t.writes
}

// Rollback undoes the changes of the plan so far. The records that it has read stay guarded.
func (t *Txn) Rollback() {
	for _, x := range t.undo {
		x.restore()
		x.e.Base().writes = x.writes
	}
	for _, e := range t.changed[t.point.changed:] {
		if invariant.Enabled {
			_, ok := e.(restorer)
			invariant.Assert(ok || t.limits.Ops > 0, "%s was changed in place by a plan that failed", e.Base().Key)
		}
		e.Base().changed = 0
	}
	clear(t.undo)
	t.undo, t.changed, t.other, t.writes = t.undo[:0], t.changed[:t.point.changed], t.other[:t.point.other], t.point.writes
	t.save++
}

// Full is the error of a plan that writes more records than a commit takes. It matches [ipalloc.ErrLimit].
type Full struct{ Records, Most int }

func (e *Full) Error() string {
	return fmt.Sprintf("%v: %d records, at most %d", ipalloc.ErrLimit, e.Records, e.Most)
}

// Unwrap returns [ipalloc.ErrLimit].
func (e *Full) Unwrap() error { return ipalloc.ErrLimit }

// Fit makes a plan for as many of n things as the commit takes: do makes it for so many. The number does not depend on the way to it.
func Fit(t interface {
	Room() error
	Restart()
}, n int, do func(n int) error) error {
	fits, full := 0, n+1
	for at := n; ; t.Restart() {
		err := do(at)
		if err == nil {
			err = t.Room()
		}
		over := (*Full)(nil)
		if err == nil && at+1 == full || err != nil && (at < 2 || !errors.As(err, &over)) {
			return err
		}
		if err == nil {
			fits = at
			at = (fits + full) / 2
			continue
		}
		if full = at; fits > 0 {
			at = (fits + full) / 2
		} else {
			at = max(min(at*over.Most/over.Records, at-1), 1)
		}
	}
}

// Restart undoes the changes and guards of the plan, so that it can be made again.
func (t *Txn) Restart() {
	t.Rollback()
	t.unguard()
}

// unguard undoes the guards of the plan.
func (t *Txn) unguard() {
	for _, c := range t.guards[t.point.guards:] {
		c.guarded = 0
	}
	t.guards = t.guards[:t.point.guards]
}

// Guard makes the commit depend on a record being as it is known.
func (t *Txn) Guard(c *Cell) {
	if c.guarded != t.id {
		c.guarded = t.id
		t.guards = append(t.guards, c)
	}
}

// Guarded reports whether the commit depends on a record being as it is known.
func (t *Txn) Guarded(c *Cell) bool { return c.guarded == t.id }

// Changed reports whether the transaction has changed a cell.
func (t *Txn) Changed(c *Cell) bool { return c.changed == t.id }

// Entries returns the cells that the transaction has changed so far, in the order of their first changes.
func (t *Txn) Entries() []Entry { return t.changed }

// Guards returns the number of records that the commit depends upon so far.
func (t *Txn) Guards() int { return len(t.guards) }

// Sure reports whether the transaction may rest on a record as it is known. It may if it has read the record, or if the
// commit verifies it. Otherwise the commit cannot verify one record more, and the record has to be read again.
func (t *Txn) Sure(c *Cell) bool {
	if c.read == t.id {
		return true
	}
	if len(t.guards) < t.MostGuards() {
		t.Guard(c)
	}
	return c.guarded == t.id
}

// Doubtful reports whether a record may be stale: a conflict came before, and the transaction has neither read it nor rests upon it. A
// plan reads all such records again, so n stale records cost one conflict and not n.
func (t *Txn) Doubtful(c *Cell) bool { return t.again && c.read != t.id && c.guarded != t.id }

// maxGuards is how many records a plan has the commit verify: etcd compares twice as many in one commit.
const maxGuards = 64

// MostGuards is the number of records that one plan has the commit verify: half of the store's limit, because two plans may
// meet in one commit.
func (t *Txn) MostGuards() int {
	if limit := t.limits.Ops; limit > 0 {
		return min(maxGuards, limit/2)
	}
	return maxGuards
}

// Load reads the named records that are not known, in one round trip.
func (t *Txn) Load(keys ...string) error {
	t.missing = slices.Grow(t.missing[:0], len(keys))
	for _, key := range keys {
		if t.Known(key) == nil {
			t.missing = append(t.missing, key)
		}
	}
	if len(t.missing) == 0 {
		return nil
	}
	slices.Sort(t.missing) // a key named twice is read once
	t.missing = slices.Compact(t.missing)
	return t.Read(t.missing...)
}

// Read reads records in one round trip, known ones again. A record that the transaction relies upon and that has changed
// is a conflict, found before the commit finds it. An error of the store is no answer of the plan.
func (t *Txn) Read(keys ...string) error {
	t.reads++
	recs, err := t.store.Get(t.Ctx, t.recs[:0], keys...)
	if t.recs = recs; err != nil {
		t.broken = true
		return err
	}
	defer clear(recs) // the values are in the cells now
	var conflict error
	for _, r := range recs {
		if err := t.See(r); errors.Is(err, ipalloc.ErrConflict) {
			conflict = err
		} else if err != nil {
			return err
		}
	}
	return conflict
}

// Records returns records as the store has them, in one round trip.
func (t *Txn) Records(keys ...string) ([]store.Record, error) {
	t.reads++
	recs, err := t.store.Get(t.Ctx, nil, keys...)
	t.broken = t.broken || err != nil
	return recs, err
}

// See keeps a record that was read.
func (t *Txn) See(r store.Record) error {
	k := t.kind(r.Key)
	c := k.Known(r.Key)
	switch {
	case c != nil && c.Rev == r.Rev:
	case c != nil && c.guarded == t.id:
		return store.Conflict(t.pkg, r.Key)
	default:
		var err error
		if c, err = k.See(r); err != nil {
			return err
		}
	}
	c.read = t.id
	return nil
}

// Learn keeps a record as a watch has delivered it, and drops the former cell. The transaction may not rely on the record so
// far, and does not count it as read. A record that cannot be decoded is forgotten, so the next call reads it and says so.
func (t *Txn) Learn(r store.Record) {
	k := t.kind(r.Key)
	k.Forget(r.Key)
	if _, err := k.See(r); err != nil {
		k.Forget(r.Key)
	}
}

// List reads a range of the store, so it returns ErrFirst if an earlier plan changes anything. The commit does not verify it.
func (t *Txn) List(r store.Range) ([]store.Record, error) {
	if t.Pending() {
		return nil, ErrFirst
	}
	return t.ListStored(r)
}

// ListStored reads a range as the store has it, even if changes are pending.
func (t *Txn) ListStored(r store.Range) ([]store.Record, error) {
	t.reads++
	recs, _, err := t.store.List(t.Ctx, r)
	t.broken = t.broken || err != nil
	return recs, err
}

// Pending reports whether an earlier plan of the transaction changes anything.
func (t *Txn) Pending() bool { return t.point.changed+t.point.other > 0 }

// Change marks a cell as changed, before its content is. Where the store limits commits the plan may turn out not to fit, and the
// content is restored then.
func (t *Txn) Change(e Entry) {
	c := e.Base()
	if c.changed != t.id {
		c.changed, c.writes = t.id, 0
		t.Guard(c)
		t.changed = append(t.changed, e)
	}
	if k, ok := e.(Keeper); ok && t.limits.Ops > 0 && c.kept != t.save {
		c.kept = t.save
		t.undo = append(t.undo, undo{restoring(k.Keep()), e, c.writes})
	}
}

// Add adds an operation on a record that has no cell, such as an entry of an index.
func (t *Txn) Add(op store.Op) { t.other = append(t.other, op) }

// Adds reports whether an operation on a key has been added.
func (t *Txn) Adds(key string) bool {
	return slices.ContainsFunc(t.other, func(op store.Op) bool { return op.Key == key })
}

// Room reports whether the commit takes the writes of the plan so far, which it counts by writing them. If not, it returns ErrFirst after
// an earlier plan, because the plan may fit a commit of its own, and a [Full] otherwise. It is called when a plan has ended.
func (t *Txn) Room() error {
	limit := t.limits.Ops
	if limit == 0 {
		return nil
	}
	for i := 0; i < len(t.undo); i++ { // an entry may set another one when it is written
		c := t.undo[i].e.Base()
		t.writes -= c.writes
		c.writes = t.counted.count(t.undo[i].e)
		t.writes += c.writes
	}
	if writes := t.writes + len(t.other); writes > 0 && max(writes, len(t.guards)) > limit {
		if t.plans > 0 {
			return ErrFirst
		}
		return &Full{max(writes, len(t.guards)), limit}
	}
	return nil
}

// commit makes the commit, if there is anything to change or to verify.
func (t *Txn) commit() error {
	if len(t.changed)+len(t.other) == 0 {
		if t.verified() {
			return nil
		}
		if limit := t.limits.Ops; limit > 0 && len(t.guards) > limit {
			return t.verify()
		}
	}
	t.ops.reset()
	t.ops.ops = slices.Grow(t.ops.ops, len(t.changed)+len(t.other)+len(t.guards))
	for i := 0; i < len(t.changed); i++ { // an entry may set another one when it is written
		t.changed[i].Write(&t.ops)
	}
	t.ops.ops = append(t.ops.ops, t.other...)
	for _, c := range t.guards {
		if c.changed != t.id {
			t.ops.Guard(c)
		}
	}
	ops := t.ops.finish()
	t.committing = true
	rev, err := t.store.Commit(t.Ctx, ops)
	t.committing = false
	if err == nil {
		t.settle(rev)
	} else if errors.Is(err, ipalloc.ErrInvalid) {
		if key, ok := twice(ops); ok {
			return store.Conflict(t.pkg, key)
		}
	}
	return err
}

// twice returns a key that two operations name. An operation follows from a record that has changed since it was read, or two plans saw
// one record differently. The records that the transaction rests on are read again then.
func twice(ops []store.Op) (string, bool) {
	keys := make(map[string]bool, len(ops))
	for _, op := range ops {
		if keys[op.Key] {
			return op.Key, true
		}
		keys[op.Key] = true
	}
	return "", false
}

// verified reports whether the transaction rests on one view of the store, or on nothing.
func (t *Txn) verified() bool {
	for _, c := range t.guards {
		if c.read != t.id || t.reads > 1 {
			return false
		}
	}
	return true
}

// verify reads all that the transaction rests on in one view of the store, where a commit cannot verify so much.
func (t *Txn) verify() error {
	keys := make([]string, len(t.guards))
	for i, c := range t.guards {
		keys[i] = c.Key
	}
	recs, err := t.store.Get(t.Ctx, nil, keys...)
	if err != nil {
		return err
	}
	for i, c := range t.guards {
		if recs[i].Rev != c.Rev {
			return store.Conflict(t.pkg, c.Key)
		}
	}
	return nil
}

// settle notes that the commit was made at revision rev.
func (t *Txn) settle(rev uint64) {
	for _, e := range t.changed {
		switch c := e.Base(); c.wrote {
		case store.Put:
			c.Rev = rev
		case store.Delete:
			c.Rev = 0
		}
		e.Settle()
	}
}

// forget drops from the cache all that the transaction relied upon or changed, and returns the keys.
func (t *Txn) forget() []string {
	keys := make([]string, 0, len(t.guards))
	for _, c := range t.guards {
		keys = append(keys, c.Key)
		t.Forget(c.Key)
	}
	return keys
}
