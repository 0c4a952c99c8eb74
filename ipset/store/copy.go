package store

import (
	"context"
	"errors"
	"slices"

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
// It lists both stores, and src twice; it holds two lists of src in memory.
func Copy(ctx context.Context, dst, src Store) (CopyReport, error) {
	recs, _, err := src.List(ctx, Range{})
	if err != nil {
		return CopyReport{}, copyError("list the source", err)
	}
	c := copier{dst: dst, limits: dst.Limits(), report: CopyReport{Records: len(recs)}}
	if err := c.compare(ctx, recs); err != nil {
		return c.report, err
	}
	var last []Op
	for _, r := range recs {
		if c.have[r.Key] {
			continue
		}
		op := Op{Kind: Put, Key: r.Key, Value: r.Value}
		if isRoot(r.Key) {
			last = append(last, op)
		} else if err := c.add(ctx, op); err != nil {
			return c.report, err
		}
	}
	if err := c.flush(ctx); err != nil {
		return c.report, err
	}
	again, _, err := src.List(ctx, Range{})
	switch {
	case err != nil:
		return c.report, copyError("list the source again", err)
	case !slices.Equal(recs, again):
		return c.report, &ipalloc.Error{Package: "store", Op: "copy", Reason: "the source changed meanwhile", Err: ipalloc.ErrMismatch}
	}
	for _, op := range last {
		if err := c.add(ctx, op); err != nil {
			return c.report, err
		}
	}
	return c.report, c.flush(ctx)
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
	dst    Store
	limits Limits
	have   map[string]bool // records that are there already
	ops    []Op
	bytes  int
	report CopyReport
}

// compare notes what dst has of recs; it must have nothing else.
func (c *copier) compare(ctx context.Context, recs []Record) error {
	there, _, err := c.dst.List(ctx, Range{})
	if err != nil {
		return copyError("list the destination", err)
	}
	want := make(map[string]string, len(recs))
	for _, r := range recs {
		want[r.Key] = r.Value
	}
	c.have = make(map[string]bool, len(there))
	for _, r := range there {
		if v, ok := want[r.Key]; !ok || v != r.Value {
			return holds(r.Key, "the destination holds something else")
		}
		c.have[r.Key] = true
	}
	root, rest := "", len(recs)-len(there) // the records that are missing; below, those that are no roots
	for _, r := range recs {
		switch has := c.have[r.Key]; {
		case isRoot(r.Key) && has:
			root = r.Key
		case isRoot(r.Key):
			rest--
		}
	}
	if root != "" && rest > 0 {
		return holds(root, "the destination is in use")
	}
	return nil
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
