package store

import (
	"context"
	"errors"
	"hash/maphash"
	"iter"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/absent"
)

// Copied says what [Copy] did.
type Copied struct {
	Records int // in the store copied from
	Written int // by this call; the rest was there already
}

// What one commit of a copy holds at most, where the store says nothing.
const (
	copyOps   = 1000
	copyBytes = 1 << 20
)

// Copy writes all records of src into dst, to move from one kind of store to another. The store dst must be empty or hold a part of an
// earlier Copy from src. No program may use either store meanwhile. Records get the revisions of dst.
//
// Copy may be interrupted at any moment and called again; it then continues. Its first
// commit puts a mark under each [RootKey] of src, and its last commits replace the marks by
// the roots. Until then an engine on dst refuses every call, and [Complete] returns the reason. After an error dst is in that state, or
// some spaces already have their roots; call Copy again to write the others.
//
// Errors: [ipalloc.ErrInvalid] for a nil store. [ipalloc.ErrExists] if dst has a record that src lacks or has with another value, or if
// dst was written to meanwhile. [ipalloc.ErrMismatch] if src changed meanwhile: stop its users, and copy into an empty store.
// [ipalloc.ErrInUse] if src is itself an incomplete copy. [ipalloc.ErrLimit] if a record of src is larger than dst accepts.
// [ipalloc.ErrUnknownOutcome]: call again. Else the errors of the stores.
//
// It lists src three times and dst twice, and keeps a page of each and the root records in
// memory.
func Copy(ctx context.Context, dst, src Store) (Copied, error) {
	for field, db := range map[string]Store{"dst": dst, "src": src} {
		if absent.Is(db) {
			return Copied{}, isNil("copy", field)
		}
	}
	c := copier{dst: dst, src: src, limits: dst.Limits(), marks: map[string]uint64{}}
	before, err := c.compare(ctx)
	if err != nil {
		return c.report, err
	}
	if err := c.begin(ctx); err != nil {
		return c.report, err
	}
	if err := c.copy(ctx); err != nil {
		return c.report, err
	}
	after := newSum(before.seed)
	for r, err := range pages(ctx, src) {
		if err != nil {
			return c.report, copyError("list the source again", err)
		}
		after.add(r)
	}
	if after.value != before.value {
		return c.report, &ipalloc.Error{Package: "store", Op: "copy", Reason: "the source changed meanwhile", Err: ipalloc.ErrMismatch}
	}
	return c.report, c.end(ctx)
}

// CopyMark is the value of the record [RootKey] in a store while [Copy] writes into it. It is not a catalog, so engines refuse the
// store with ipalloc.ErrInUse.
const CopyMark = "being copied into"

// Complete returns ipalloc.ErrInUse for a store, or a [Space] of one, into which a [Copy] has begun and not ended. It reads one record.
// Engines refuse such a store by themselves, with the same error.
func Complete(ctx context.Context, db Store) error {
	if absent.Is(db) {
		return isNil("open", "db")
	}
	recs, err := db.Get(ctx, nil, RootKey)
	if err == nil && recs[0].Value == CopyMark {
		err = &ipalloc.Error{Package: "store", Op: "open", Reason: "the store is being copied into: repeat the copy, or empty the store", Err: ipalloc.ErrInUse}
	}
	return err
}

// copyPage is how many records are read at once.
const copyPage = 1000

// pages yields all records of a store in key order, a page at a time; an error is the last thing it yields.
func pages(ctx context.Context, db Store) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		for from := ""; ; {
			recs, _, err := db.List(ctx, Range{From: from, Limit: copyPage})
			if err != nil {
				yield(Record{}, err)
				return
			}
			for _, r := range recs {
				if !yield(r, nil) {
					return
				}
			}
			if len(recs) < copyPage {
				return
			}
			from = recs[len(recs)-1].Key + "\x00"
		}
	}
}

// sum is a fingerprint of records in order.
type sum struct {
	seed  maphash.Seed
	value uint64
}

func newSum(seed maphash.Seed) *sum { return &sum{seed: seed} }

func (s *sum) add(r Record) {
	s.value = maphash.Comparable(s.seed, struct {
		before uint64
		r      Record
	}{s.value, r})
}

// copyError returns the error of a store during a copy.
func copyError(doing string, err error) error {
	return &ipalloc.Error{Package: "store", Op: "copy", Reason: doing + ": " + err.Error(), Err: err}
}

// holds returns the error of a destination that holds something else.
func holds(key, reason string) error {
	return &ipalloc.Error{Package: "store", Op: "copy", Name: key, Reason: reason, Err: ipalloc.ErrExists}
}

// copier gathers the records of a copy into commits.
type copier struct {
	dst, src Store
	limits   Limits
	roots    []Op              // that are missing
	marks    map[string]uint64 // the revisions of the marks in dst
	missing  bool              // another record is missing
	rooted   bool              // src has a root of the space without a name
	ops      []Op
	bytes    int
	report   Copied
}

// eachRecord calls do with every record of src, and whether dst has it. dst must have no other.
func (c *copier) eachRecord(ctx context.Context, do func(r Record, there bool) error) error {
	next, stop := iter.Pull2(pages(ctx, c.dst))
	defer stop()
	is, err, more := next()
	marked := func() bool { return err == nil && more && isRoot(is.Key) && is.Value == CopyMark }
	for r, bad := range pages(ctx, c.src) {
		if bad != nil {
			return copyError("list the source", bad)
		}
		for marked() && is.Key <= r.Key {
			c.marks[is.Key] = is.Rev
			is, err, more = next()
		}
		if err != nil {
			return copyError("list the destination", err)
		}
		there := more && is.Key == r.Key
		if more && (is.Key < r.Key || there && is.Value != r.Value) {
			return holds(is.Key, "the destination holds something else")
		}
		if there {
			is, err, more = next()
		}
		if err := do(r, there); err != nil {
			return err
		}
	}
	for marked() {
		c.marks[is.Key] = is.Rev
		is, err, more = next()
	}
	if err != nil {
		return copyError("list the destination", err)
	}
	if more {
		return holds(is.Key, "the destination holds something else")
	}
	return nil
}

// compare counts the records and returns their fingerprint. A dst that has a root while another record is missing is in use.
func (c *copier) compare(ctx context.Context) (*sum, error) {
	all, root := newSum(maphash.MakeSeed()), ""
	err := c.eachRecord(ctx, func(r Record, there bool) error {
		c.report.Records++
		all.add(r)
		c.rooted = c.rooted || r.Key == RootKey
		switch {
		case isRoot(r.Key) && r.Value == CopyMark:
			return &ipalloc.Error{Package: "store", Op: "copy", Name: r.Key, Reason: "the source is being copied into", Err: ipalloc.ErrInUse}
		case isRoot(r.Key) && there:
			root = r.Key
		case isRoot(r.Key):
			c.roots = append(c.roots, Op{Kind: Put, Key: r.Key, Value: r.Value})
		case !there:
			c.missing = true
		}
		return nil
	})
	if err == nil && root != "" && c.missing {
		err = holds(root, "the destination is in use")
	}
	return all, err
}

// begin marks the roots that are missing, and in any case the root of the space without a name.
func (c *copier) begin(ctx context.Context) error {
	if !c.missing && len(c.roots) == 0 {
		return nil
	}
	keys := make([]string, 0, len(c.roots)+1)
	if !c.rooted {
		keys = append(keys, RootKey)
	}
	for _, op := range c.roots {
		keys = append(keys, op.Key)
	}
	written := c.report.Written
	for _, key := range keys {
		if c.marks[key] != 0 {
			continue
		}
		c.marks[key] = 0
		if err := c.add(ctx, Op{Kind: Put, Key: key, Value: CopyMark}); err != nil {
			return err
		}
	}
	err := c.flush(ctx)
	c.report.Written = written // a mark is no record of src
	return err
}

// end puts the roots in place of the marks.
func (c *copier) end(ctx context.Context) error {
	for _, op := range c.roots {
		op.Expect = c.marks[op.Key]
		if err := c.add(ctx, op); err != nil {
			return err
		}
	}
	if err := c.flush(ctx); err != nil || c.rooted || c.marks[RootKey] == 0 {
		return err
	}
	written := c.report.Written
	c.ops = append(c.ops, Op{Kind: Delete, Key: RootKey, Expect: c.marks[RootKey]})
	err := c.flush(ctx)
	c.report.Written = written
	return err
}

// copy writes the records that dst lacks, but for the roots.
func (c *copier) copy(ctx context.Context) error {
	err := c.eachRecord(ctx, func(r Record, there bool) error {
		if there || isRoot(r.Key) {
			return nil
		}
		return c.add(ctx, Op{Kind: Put, Key: r.Key, Value: r.Value})
	})
	if err != nil {
		return err
	}
	return c.flush(ctx)
}

// add gathers one record. It first commits the gathered records if they would be too much with this one.
func (c *copier) add(ctx context.Context, op Op) error {
	ops, bytes := copyOps, copyBytes
	if c.limits.Ops > 0 {
		ops = min(ops, c.limits.Ops)
	}
	if c.limits.Bytes > 0 {
		bytes = min(bytes, c.limits.Bytes)
	}
	size := len(op.Key) + len(op.Value)
	if len(c.ops) >= ops || len(c.ops) > 0 && c.bytes+size > bytes {
		if err := c.flush(ctx); err != nil {
			return err
		}
	}
	c.ops = append(c.ops, op)
	c.bytes += size
	return nil
}

// flush commits the gathered records.
func (c *copier) flush(ctx context.Context) error {
	if len(c.ops) == 0 {
		return nil
	}
	rev, err := c.dst.Commit(ctx, c.ops)
	switch {
	case errors.Is(err, ipalloc.ErrConflict):
		key, _ := ConflictKey(err)
		return holds(key, "another program writes to the destination")
	case err != nil:
		return copyError("write to the destination", err)
	}
	for _, op := range c.ops {
		if op.Value == CopyMark && isRoot(op.Key) {
			c.marks[op.Key] = rev
		}
	}
	c.report.Written += len(c.ops)
	c.ops, c.bytes = nil, 0
	return nil
}
