package ipset

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// Errors of [Copy].
var (
	ErrHolds   = errors.New("ipset: the store to copy to holds something else")
	ErrChanged = errors.New("ipset: the store to copy from changed meanwhile")
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

// Copy writes all that src holds into dst, which holds nothing: to move from one kind of store to another. No engine may
// run on either; engines on dst begin when it has returned. Revisions are those of dst.
//
// It may be interrupted at any moment and called again, when it goes on where it was: the catalog is written last, so that
// until then an engine on dst has no pools to hand out addresses of. Every error leaves dst in such a state.
//
// [ErrHolds]: dst has a record that src has not, or has otherwise. [ErrChanged]: an engine still runs on src; nothing of
// dst was put to use: stop it, and copy into an empty store. [ErrTooLarge]: a record of src is larger than dst takes.
// [ErrUnknown]: call again. Else the errors of the stores. It keeps two copies of the records of src in memory.
func Copy(ctx context.Context, dst, src Store) (CopyReport, error) {
	recs, _, err := src.List(ctx, Range{})
	if err != nil {
		return CopyReport{}, fmt.Errorf("ipset: copy: list the source: %w", err)
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
		op := Op{Kind: OpPut, Key: r.Key, Value: r.Value}
		if r.Key == catalogKey {
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
		return c.report, fmt.Errorf("ipset: copy: list the source again: %w", err)
	case !slices.Equal(recs, again):
		return c.report, ErrChanged
	}
	c.ops = last
	return c.report, c.flush(ctx)
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
		return fmt.Errorf("ipset: copy: list the destination: %w", err)
	}
	want := make(map[string]string, len(recs))
	for _, r := range recs {
		want[r.Key] = r.Value
	}
	c.have = make(map[string]bool, len(there))
	for _, r := range there {
		if v, ok := want[r.Key]; !ok || v != r.Value {
			return fmt.Errorf("%w: record %q", ErrHolds, r.Key)
		}
		c.have[r.Key] = true
	}
	if c.have[catalogKey] && len(there) < len(recs) {
		return fmt.Errorf("%w: it is in use", ErrHolds)
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
	case isConflict(err):
		return fmt.Errorf("%w: somebody writes to it: %w", ErrHolds, err)
	case err != nil:
		return fmt.Errorf("ipset: copy: %w", err)
	}
	c.report.Written += len(c.ops)
	c.ops, c.bytes = nil, 0
	return nil
}
