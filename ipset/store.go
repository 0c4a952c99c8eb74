package ipset

import (
	"context"
	"fmt"
	"iter"
)

// AnyRevision in [Op.Expect] writes a record whatever its revision is.
const AnyRevision = ^uint64(0)

// Record is one key with its value.
type Record struct {
	Key   string
	Value string
	// Rev is the revision of the commit that last wrote the record. 0 means that it does not exist.
	Rev uint64
}

// OpKind says what an [Op] does with its record.
type OpKind uint8

const (
	// OpGuard leaves the record as it is; the commit is in conflict unless the record has the expected revision.
	OpGuard OpKind = iota
	// OpPut writes the record.
	OpPut
	// OpDelete removes the record; removing one that does not exist is allowed if AnyRevision or 0 is expected.
	OpDelete
)

// Op is one record's part of a commit.
type Op struct {
	Kind  OpKind
	Key   string
	Value string
	// Expect is the revision that the record must have; 0: it must not exist; AnyRevision: no matter.
	Expect uint64
}

// Range selects the records with From <= key < To. An empty To has no upper bound.
type Range struct {
	From, To string
	// Limit is the largest number of records returned; 0 is all of them.
	Limit int
	// Reverse returns the records with the highest keys first.
	Reverse bool
}

// Event is one commit as seen by a watch.
type Event struct {
	Rev uint64
	// Changes are the watched records that the commit wrote, in key order; a removed record has Rev 0.
	Changes []Record
}

// Limits is what a store takes in one commit. Zero fields are no limit.
type Limits struct {
	// Ops is the number of records that one commit may write, and the number that it may expect a revision of.
	Ops int
	// Value is the size of one value in bytes.
	Value int
	// Bytes is the size of all keys and values of one commit.
	Bytes int
}

// Store keeps records. It is the whole of what the engine asks of a database, and is met by one table of ordered keys
// with a revision per key: the memory store here, a bbolt bucket, an etcd key space. The conformance suite
// in ipset/storetest says in code what is said here in words.
//
// Every method returns ctx.Err() (possibly wrapped) soon after ctx ends. Any error that is not listed is a failure of
// the backend and left no trace in the store, except as said for Commit. Safe for concurrent use.
type Store interface {
	// Get appends the records of keys, in their order, to dst: one consistent view, one round trip. A record that
	// does not exist is returned with Rev 0.
	Get(ctx context.Context, dst []Record, keys ...string) ([]Record, error)

	// List returns the records of a range in key order: one consistent view, whatever its size, and the
	// revision of the store that it shows.
	List(ctx context.Context, r Range) (recs []Record, rev uint64, err error)

	// Commit checks every expectation and then makes every change, all or nothing, and returns the revision
	// of the commit, which is greater than that of any commit before it and becomes that of every record written.
	// No key may occur twice. The store does not keep ops. A commit of guards alone changes nothing and
	// returns the current revision.
	//
	// It returns a *[ConflictError] (errors.Is [ErrConflict]) naming a record whose expectation failed, nothing
	// changed; an error that errors.Is [ErrUnknown] if the commit may or may not have been made, or may
	// still be made; [ErrTooLarge] if it exceeds Limits.
	Commit(ctx context.Context, ops []Op) (uint64, error)

	// Watch yields every commit after revision after that wrote a key with one of the prefixes, in commit order,
	// until ctx ends or the caller breaks the loop; an error is the last thing it yields. [ErrCompacted] says
	// that the store no longer knows what followed after. No lock is held while the loop body runs.
	Watch(ctx context.Context, after uint64, prefixes ...string) iter.Seq2[Event, error]

	// Limits returns what one commit may hold; it does not change.
	Limits() Limits
}

// CheckOps refuses what no store accepts in a commit: a key that occurs twice or is empty, an unknown kind, a guard for
// any revision. It returns an error that is [ErrBadArgument]. It is for those who write a [Store], so that a mistake shows on
// the first store that it meets, and in the same words.
func CheckOps(ops []Op) error {
	if len(ops) > 16 {
		seen := make(map[string]struct{}, len(ops))
		for i := range ops {
			seen[ops[i].Key] = struct{}{}
		}
		if len(seen) != len(ops) {
			return fmt.Errorf("%w: a key occurs twice in one commit", ErrBadArgument)
		}
	}
	for i := range ops {
		op := &ops[i]
		if op.Key == "" || op.Kind > OpDelete || op.Kind == OpGuard && op.Expect == AnyRevision {
			return fmt.Errorf("%w: op %d of the commit", ErrBadArgument, i)
		}
		for j := 0; j < i && len(ops) <= 16; j++ {
			if ops[j].Key == op.Key {
				return fmt.Errorf("%w: key %q occurs twice in one commit", ErrBadArgument, op.Key)
			}
		}
	}
	return nil
}
