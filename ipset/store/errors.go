package store

import (
	"errors"
	"fmt"

	"github.com/ipalloc/ipalloc"
)

// Errors of stores that a caller may want to tell apart, beside the errors of package ipalloc. After each of them nothing was
// changed.
var (
	// ErrNoSpace means that there is no room for the commit. It matches ipalloc.ErrLimit. Commits succeed again when there is room.
	ErrNoSpace = fmt.Errorf("%w: no space left", ipalloc.ErrLimit)
	// ErrReadOnly means that the store was opened for reading. It matches ipalloc.ErrMismatch.
	ErrReadOnly = fmt.Errorf("%w: opened read-only", ipalloc.ErrMismatch)
	// ErrFailed means that an earlier commit failed and the state of the disk is unknown. It matches ipalloc.ErrClosed.
	// Reads continue; close the store and open it again to write.
	ErrFailed = fmt.Errorf("%w for writing: an earlier write failed, open the file again", ipalloc.ErrClosed)
)

// Conflict returns the error of a commit that found the record of key at another
// revision than expected. It matches ipalloc.ErrConflict. pkg names the store's package.
func Conflict(pkg, key string) error {
	return &ipalloc.Error{Package: pkg, Op: "commit", Name: key, Reason: "the record is not at the expected revision", Err: ipalloc.ErrConflict}
}

// ConflictKey returns the key of the record that caused a conflict; ok is false if err is not a conflict.
func ConflictKey(err error) (key string, ok bool) {
	var e *ipalloc.Error
	if !errors.Is(err, ipalloc.ErrConflict) || !errors.As(err, &e) {
		return "", false
	}
	return e.Name, true
}

// isNil returns the error of an argument that is nil.
func isNil(op, field string) error {
	return &ipalloc.Error{Package: "store", Op: op, Field: field, Reason: "is nil", Err: ipalloc.ErrInvalid}
}

// CheckOps returns an error for a commit that no store accepts or that exceeds l, and nil for a well-formed commit.
// The error names the store's package, pkg. Every implementation of [Store] calls it first, so that all of them
// reject the same commits with the same error:
//
//   - ipalloc.ErrInvalid: an empty key, an unknown kind, a guard that expects
//     AnyRevision, two ops with one key.
//   - ipalloc.ErrLimit: more than l allows.
func CheckOps(pkg string, ops []Op, l Limits) error {
	c := checker{pkg: pkg, limits: l}
	for i := range ops {
		if err := c.op(&ops[i], i); err != nil {
			return err
		}
	}
	if key, twice := repeated(ops); twice {
		return c.invalid(fmt.Sprintf("key %q occurs twice", key))
	}
	switch most := max(c.writes, c.expects); {
	case l.Ops > 0 && most > l.Ops:
		return c.large(fmt.Sprintf("%d records written and %d expected, at most %d each", c.writes, c.expects, l.Ops))
	case l.Bytes > 0 && c.bytes > l.Bytes:
		return c.large(fmt.Sprintf("keys and values of %d bytes, at most %d", c.bytes, l.Bytes))
	}
	return nil
}

// checker counts the ops of one commit.
type checker struct {
	pkg                    string
	limits                 Limits
	writes, expects, bytes int
}

func (c *checker) invalid(reason string) error {
	return &ipalloc.Error{Package: c.pkg, Op: "commit", Field: "ops", Reason: reason, Err: ipalloc.ErrInvalid}
}

func (c *checker) large(reason string) error {
	return &ipalloc.Error{Package: c.pkg, Op: "commit", Reason: reason, Err: ipalloc.ErrLimit}
}

// op checks and counts one op.
func (c *checker) op(op *Op, i int) error {
	switch {
	case op.Key == "":
		return c.invalid(fmt.Sprintf("op %d has no key", i))
	case op.Kind > Delete:
		return c.invalid(fmt.Sprintf("op %d is of kind %d", i, op.Kind))
	case op.Kind == Guard && op.Expect == AnyRevision:
		return c.invalid(fmt.Sprintf("op %d guards %q at any revision", i, op.Key))
	case c.limits.Key > 0 && len(op.Key) > c.limits.Key:
		return c.large(fmt.Sprintf("key of %d bytes, at most %d", len(op.Key), c.limits.Key))
	case c.limits.Value > 0 && op.Kind == Put && len(op.Value) > c.limits.Value:
		return c.large(fmt.Sprintf("value of %d bytes under %q, at most %d", len(op.Value), op.Key, c.limits.Value))
	}
	c.bytes += len(op.Key)
	if op.Kind == Put {
		c.bytes += len(op.Value)
	}
	if op.Kind != Guard {
		c.writes++
	}
	if op.Expect != AnyRevision {
		c.expects++
	}
	return nil
}

// pairwise is up to how many ops comparing each pair of keys is cheaper than a map.
const pairwise = 16

// repeated returns a key that two ops have.
func repeated(ops []Op) (string, bool) {
	if len(ops) > pairwise {
		seen := make(map[string]struct{}, len(ops))
		for i := range ops {
			if _, twice := seen[ops[i].Key]; twice {
				return ops[i].Key, true
			}
			seen[ops[i].Key] = struct{}{}
		}
		return "", false
	}
	for i := range ops {
		for j := range i {
			if ops[j].Key == ops[i].Key {
				return ops[i].Key, true
			}
		}
	}
	return "", false
}
