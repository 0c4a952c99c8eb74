package store

import (
	"context"
	"errors"
	"hash/maphash"
	"iter"

	"github.com/ipalloc/ipalloc"
)

// CopyReport says what [Copy] did.
type CopyReport struct {
	Records int // in the store copied from
	Written int // by this call; the rest was there already
}

// What one commit of a copy holds at most, where the store says nothing.
const (
	copyOps   = 1000
	copyBytes = 1 << 20
)

// Copy writes all records of src into dst, to move from one kind of store to another.
// dst must be empty, or hold a part of an earlier Copy from src. No program may use
// either store meanwhile. Records get the revisions of dst.
//
// Copy may be interrupted at any moment and called again; it then continues. It writes
// the records under [RootKey] last, after all others of every [Space]: until then the
// records in dst are of no use to an engine. After an error dst is in that state, or
// the roots of some spaces are there and Copy writes the others when called again.
//
// Errors: ipalloc.ErrExists if dst has a record that src has not, or another value of it,
// or was written to meanwhile. ipalloc.ErrMismatch if src changed meanwhile: stop its
// users, and copy into an empty store. ipalloc.ErrLimit if a record of src is larger than
// dst accepts. ipalloc.ErrUnknownOutcome: call again. Else the errors of the stores.
//
// It lists src three times and dst twice, and holds a page of each and the root records.
func Copy(ctx context.Context, dst, src Store) (CopyReport, error) {
	c := copier{dst: dst, src: src, limits: dst.Limits()}
	before, err := c.compare(ctx)
	if err != nil {
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
	for _, op := range c.roots {
		if err := c.add(ctx, op); err != nil {
			return c.report, err
		}
	}
	return c.report, c.flush(ctx)
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
	roots    []Op // that are missing
	ops      []Op
	bytes    int
	report   CopyReport
}

// eachRecord calls do with every record of src, and whether dst has it. dst must have no other.
func (c *copier) eachRecord(ctx context.Context, do func(r Record, there bool) error) error {
	next, stop := iter.Pull2(pages(ctx, c.dst))
	defer stop()
	is, err, more := next()
	for r, bad := range pages(ctx, c.src) {
		if bad != nil {
			return copyError("list the source", bad)
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
	all, root, missing := newSum(maphash.MakeSeed()), "", false
	err := c.eachRecord(ctx, func(r Record, there bool) error {
		c.report.Records++
		all.add(r)
		switch {
		case isRoot(r.Key) && there:
			root = r.Key
		case !isRoot(r.Key) && !there:
			missing = true
		}
		return nil
	})
	if err == nil && root != "" && missing {
		err = holds(root, "the destination is in use")
	}
	return all, err
}

// copy writes the records that dst lacks, but for the roots, which it keeps.
func (c *copier) copy(ctx context.Context) error {
	err := c.eachRecord(ctx, func(r Record, there bool) error {
		op := Op{Kind: Put, Key: r.Key, Value: r.Value}
		switch {
		case there:
			return nil
		case isRoot(r.Key):
			c.roots = append(c.roots, op)
			return nil
		}
		return c.add(ctx, op)
	})
	if err != nil {
		return err
	}
	return c.flush(ctx)
}

// add gathers one record, and commits what was gathered before if it would be too much with that.
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

// flush commits what was gathered.
func (c *copier) flush(ctx context.Context) error {
	if len(c.ops) == 0 {
		return nil
	}
	_, err := c.dst.Commit(ctx, c.ops)
	switch {
	case errors.Is(err, ipalloc.ErrConflict):
		key, _ := ConflictKey(err)
		return holds(key, "another program writes to the destination")
	case err != nil:
		return copyError("write to the destination", err)
	}
	c.report.Written += len(c.ops)
	c.ops, c.bytes = nil, 0
	return nil
}
