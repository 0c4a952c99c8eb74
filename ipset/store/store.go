package store

import (
	"context"
	"iter"
)

// AnyRevision in [Op.Expect] accepts a record at any revision, or no record.
const AnyRevision = ^uint64(0)

// RootKey is the key of the catalog of package ipset. [Copy] writes it last, because the
// other records of its [Space] mean nothing without it.
const RootKey = "c"

// Record is one key with its value.
type Record struct {
	Key   string
	Value string
	// Rev is the revision of the commit that last wrote the record; 0 means that the
	// record does not exist.
	Rev uint64
}

// Kind is the action of an [Op] on its record.
type Kind uint8

const (
	// Guard leaves the record unchanged. The commit is in conflict unless the record
	// has the expected revision, which cannot be AnyRevision.
	Guard Kind = iota
	// Put writes the record.
	Put
	// Delete removes the record. Removing a record that does not exist succeeds if
	// AnyRevision or 0 is expected.
	Delete
)

// Op is the action of a commit on one record.
type Op struct {
	Kind  Kind
	Key   string
	Value string
	// Expect is the revision that the record must have. 0 means that it must not exist.
	Expect uint64
}

// Range selects the records with From <= key < To.
type Range struct {
	From, To string // an empty To has no upper bound
	// Limit is the largest number of records returned; 0 is no limit.
	Limit int
	// Reverse returns the records with the highest keys first.
	Reverse bool
}

// Event is one commit as a watch delivers it.
type Event struct {
	Rev uint64
	// Changes are the watched records that the commit wrote, in key order. A removed
	// record has Rev 0.
	Changes []Record
}

// Limits bounds the commits that a store accepts. Zero fields are no limit. [CheckOps]
// counts for every store in the same way.
type Limits struct {
	// Ops bounds the puts and deletes of one commit. It separately bounds the ops that
	// expect a revision: all ops with Expect other than AnyRevision, guards included.
	Ops int
	// Key and Value bound one key and one value, in bytes.
	Key, Value int
	// Bytes bounds the sum of all keys and values of one commit. A key counts in
	// every op, a value in a Put only.
	Bytes int
	// Deferred says that commits take effect only when a [Together] ends. It is not a
	// limit: a wrapper must return the value of the store that it wraps; see [Published].
	Deferred bool
}

// Store keeps records. Package ipset needs nothing else of a database: one table of
// ordered keys with a revision per key. Package storetest verifies this contract.
//
// Every method returns an error that wraps ctx.Err() soon after ctx ends. Except as said
// for Commit, an error leaves no trace in the store. Reads are current: a read that
// begins after a Commit has returned, in any process, shows that commit. All methods are
// safe for concurrent use.
type Store interface {
	// Get appends the records of keys, in that order, to dst. They are one consistent
	// view, in one round trip. A record that does not exist has Rev 0. After an error
	// the result is dst as it was given.
	Get(ctx context.Context, dst []Record, keys ...string) ([]Record, error)

	// List returns the records of a range in key order: one consistent view, however
	// large, and the revision of the store that it shows. The slice is the caller's.
	List(ctx context.Context, r Range) (recs []Record, rev uint64, err error)

	// Commit checks every expectation, makes every change, all or nothing, and returns
	// the revision of the commit. That revision is greater than the revision of every
	// earlier commit, and every record written gets it. The store does not retain ops: the
	// caller may reuse the slice, also after an unknown outcome. A commit without puts and
	// deletes changes nothing and returns the current revision. A commit that only removes
	// missing records may do the same.
	//
	// Errors: an error of [CheckOps] for malformed ops and for more than Limits allows.
	// [Conflict] for an expectation that failed, naming its record.
	// [ipalloc.ErrUnknownOutcome] if the commit may have been made or may still be made.
	// After any other error it was not made and never will be.
	Commit(ctx context.Context, ops []Op) (uint64, error)

	// Watch yields every commit later than revision after that wrote a key with any of the
	// prefixes, in commit order. It ends with ctx or when the caller breaks the loop. An
	// error is the last thing it yields. [ipalloc.ErrOutOfRange] means that the store no
	// longer has all the commits after that revision. No lock is held while the loop body
	// runs.
	Watch(ctx context.Context, after uint64, prefixes ...string) iter.Seq2[Event, error]

	// Limits returns the limits of one commit. It does not change.
	Limits() Limits
}
