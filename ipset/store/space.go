package store

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"sync/atomic"
	"unicode/utf8"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/absent"
)

// The key of a record in a space is "x", the name of the space, a NUL and the record's key
// there. No key of the space without a name begins with an x.
const (
	spaceKind = "x"
	spaceEnd  = "y" // above all keys of spaces
	maxSpace  = 255
)

// Space returns the space of that name in db as a separate store. Other spaces, and readers
// of db's other records, do not see its records. A space exists while it holds a record;
// Space itself writes nothing.
//
// Two spaces share nothing but the revisions of db, its limits and its watch history. In db each key of a space begins with
// "x", the name and a NUL byte. Calls on the space omit this prefix, and its [Limits] are smaller by the length of the prefix.
//
// A name is 1 to 255 bytes of UTF-8 without NUL, else Space returns ipalloc.ErrInvalid. It
// returns ipalloc.ErrLimit if db's keys have no room for the name. For its keys, a commit
// costs one more memory allocation than on db, and a get two more.
func Space(db Store, name string) (Store, error) {
	fail := func(reason string, is error) (Store, error) {
		return nil, &ipalloc.Error{Package: "store", Op: "space", Field: "name", Text: name, Reason: reason, Err: is}
	}
	switch {
	case absent.Is(db):
		return nil, isNil("space", "db")
	case name == "" || len(name) > maxSpace:
		return fail(fmt.Sprintf("%d bytes, want 1 to %d", len(name), maxSpace), ipalloc.ErrInvalid)
	case !utf8.ValidString(name) || strings.IndexByte(name, 0) >= 0:
		return fail("not UTF-8 without NUL", ipalloc.ErrInvalid)
	}
	s := &space{db: db, prefix: spaceKind + name + "\x00", end: spaceKind + name + "\x01", limits: db.Limits()}
	if !s.limits.take(len(s.prefix)) {
		return fail("the store's keys have no room for it", ipalloc.ErrLimit)
	}
	return s, nil
}

// take subtracts a prefix of n bytes in each key, and reports whether anything is left. Where the store bounds the ops of a
// commit, all of them fit with their prefixes; where it bounds bytes alone, half of these are left to the prefixes, far
// more than any commit of this module needs.
func (l *Limits) take(n int) bool {
	if l.Key > 0 {
		if l.Key -= n; l.Key <= 0 {
			return false
		}
	}
	switch {
	case l.Bytes > 0 && l.Ops > 0:
		l.Ops = min(l.Ops, l.Bytes/(4*n))
		l.Bytes -= 2 * l.Ops * n // Ops bounds the writes, and the expectations besides
		return l.Ops > 0
	case l.Bytes > 0:
		l.Bytes /= 2
		return l.Bytes > 0
	}
	return true
}

// space is a named space of a store.
type space struct {
	db          Store
	prefix, end string // of its keys
	limits      Limits
}

// spareOps are the ops of the last commit in any space, for the next one. With thousands of spaces, a list for each space would
// have left the processor's caches since.
var spareOps atomic.Pointer[[]Op]

// Limits implements [Store].
func (s *space) Limits() Limits { return s.limits }

// Get implements [Store].
func (s *space) Get(ctx context.Context, dst []Record, keys ...string) ([]Record, error) {
	n := len(dst)
	dst, err := s.db.Get(ctx, dst, s.all(keys)...)
	for i := range dst[n:] {
		dst[n+i].Key = keys[i]
	}
	return dst, err
}

// all returns keys as they are in the whole store.
func (s *space) all(keys []string) []string {
	size := 0
	for _, k := range keys {
		size += len(s.prefix) + len(k)
	}
	var b strings.Builder
	b.Grow(size)
	out := make([]string, len(keys))
	for i, k := range keys {
		out[i] = s.key(&b, k)
	}
	return out
}

// key appends a key as it is in the whole store to b, which has room for it, and returns it.
func (s *space) key(b *strings.Builder, key string) string {
	at := b.Len()
	b.WriteString(s.prefix)
	b.WriteString(key)
	return b.String()[at:]
}

// List implements [Store].
func (s *space) List(ctx context.Context, r Range) ([]Record, uint64, error) {
	r.From = s.prefix + r.From
	if r.To == "" {
		r.To = s.end
	} else {
		r.To = s.prefix + r.To
	}
	recs, rev, err := s.db.List(ctx, r)
	for i := range recs {
		recs[i].Key = recs[i].Key[len(s.prefix):]
	}
	return recs, rev, err
}

// Commit implements [Store].
func (s *space) Commit(ctx context.Context, ops []Op) (uint64, error) {
	size, check := len(ops)*len(s.prefix), s.limits != Limits{}
	for i := range ops {
		size += len(ops[i].Key)
		check = check || ops[i].Key == "" // which the prefix would hide from the store
	}
	if check {
		if err := CheckOps("store", ops, s.limits); err != nil {
			return 0, err
		}
	}
	mine := spareOps.Swap(nil)
	if mine == nil {
		mine = new([]Op)
	}
	var b strings.Builder
	b.Grow(size)
	*mine = append((*mine)[:0], ops...)
	for i := range *mine {
		(*mine)[i].Key = s.key(&b, ops[i].Key)
	}
	rev, err := s.db.Commit(ctx, *mine)
	clear(*mine)
	spareOps.Store(mine)
	if err != nil {
		err = s.conflict(err)
	}
	return rev, err
}

// conflict returns a conflict with the key as it is in the space, and any other error as it is.
func (s *space) conflict(err error) error {
	key, ok := ConflictKey(err)
	if !ok || !strings.HasPrefix(key, s.prefix) {
		return err
	}
	var e *ipalloc.Error
	errors.As(err, &e)
	return Conflict(e.Package, key[len(s.prefix):])
}

// Watch implements [Store].
func (s *space) Watch(ctx context.Context, after uint64, prefixes ...string) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		for ev, err := range s.db.Watch(ctx, after, s.all(prefixes)...) {
			changes := make([]Record, len(ev.Changes))
			for i, r := range ev.Changes {
				r.Key = r.Key[len(s.prefix):]
				changes[i] = r
			}
			if !yield(Event{Rev: ev.Rev, Changes: changes}, err) {
				return
			}
		}
	}
}

// Spaces yields the names of the spaces of db that hold a record, in byte order. It lists one record for each, so its cost does
// not depend on the number of their records. A space that is added or removed meanwhile may be missed.
//
// It returns the errors of db, and ipalloc.ErrCorrupt, after all names, if a key begins like the keys of spaces but names no
// space. An error is the last thing that Spaces yields.
func Spaces(ctx context.Context, db Store) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		var bad error
		if absent.Is(db) {
			yield("", isNil("list spaces", "db"))
			return
		}
		for r := (Range{From: spaceKind, To: spaceEnd, Limit: 1}); ; {
			recs, _, err := db.List(ctx, r)
			if err != nil {
				yield("", &ipalloc.Error{Package: "store", Op: "list spaces", Err: err})
				return
			}
			if len(recs) == 0 {
				break
			}
			name, _, ok := SpaceOf(recs[0].Key)
			if !ok {
				bad = &ipalloc.Error{Package: "store", Op: "list spaces", Name: recs[0].Key, Reason: "the key names no space", Err: ipalloc.ErrCorrupt}
				r.From = recs[0].Key + "\x00"
				continue
			}
			if !yield(name, nil) {
				return
			}
			r.From = spaceKind + name + "\x01"
		}
		if bad != nil {
			yield("", bad)
		}
	}
}

// SpaceOf splits a key into the name of its space and the key that the record has there.
// ok is false for a key of no named space.
func SpaceOf(key string) (name, inside string, ok bool) {
	name, inside, ok = strings.Cut(strings.TrimPrefix(key, spaceKind), "\x00")
	if !ok || !strings.HasPrefix(key, spaceKind) || name == "" || len(name) > maxSpace || inside == "" || !utf8.ValidString(name) {
		return "", "", false
	}
	return name, inside, true
}

// isRoot reports whether a key is [RootKey] in any space.
func isRoot(key string) bool {
	for {
		_, inside, ok := SpaceOf(key)
		if !ok {
			return key == RootKey
		}
		key = inside
	}
}
