package check

import (
	"context"
	"fmt"
	"iter"
	"math"
	"net/netip"
	"slices"
	"strings"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/internal/cause"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// A check trusts nothing that can be derived: it derives every index record, list and page again from blocks and addresses, with the
// functions of the writer, and compares.

// ProblemKind says what is wrong.
type ProblemKind string

// The kinds of problems that [Check] finds.
const (
	Damaged       ProblemKind = "damaged"        // a record that cannot be read
	Overlapping   ProblemKind = "overlapping"    // two blocks share addresses
	WrongSize     ProblemKind = "wrong size"     // a block of a size that its pool neither has nor drains
	NoPool        ProblemKind = "no pool"        // a block outside every pool
	StrayAddress  ProblemKind = "stray address"  // an address record whose block does not hold the address
	LostAddress   ProblemKind = "lost address"   // an address that a block holds and that has no record
	LostBlock     ProblemKind = "lost block"     // address records whose block is missing
	StaleIndex    ProblemKind = "stale index"    // an index record that does not agree with the blocks and addresses
	MissingIndex  ProblemKind = "missing index"  // an index record that a block or an address should have
	WrongOwner    ProblemKind = "wrong owner"    // an owner's record whose number of blocks is wrong
	WrongPage     ProblemKind = "wrong page"     // a page of a pool that does not agree with the blocks
	OldGeneration ProblemKind = "old generation" // sequence numbers above those that new blocks would start with
	Unused        ProblemKind = "unused"         // an address that is held and not in use
	NotHeld       ProblemKind = "not held"       // an address of a pool that is in use and not held
	OtherHandle   ProblemKind = "other handle"   // an address in use under another handle than its holder's
	UsedTwice     ProblemKind = "used twice"     // an address that is in use twice
	OutsideOfPool ProblemKind = "outside a pool" // an address that is in use and lies in no pool
)

// Problem is the type of that name of the engine, which documents it.
type Problem struct {
	Kind   ProblemKind
	Key    string       // the record, if it is about one
	Block  netip.Prefix // the block, if it is about one
	Addr   netip.Addr   // the address, if it is about one
	Detail string
}

// String returns one line.
func (p Problem) String() string {
	var s strings.Builder
	s.WriteString(string(p.Kind))
	if p.Block.IsValid() {
		fmt.Fprintf(&s, " %s", p.Block)
	}
	if p.Addr.IsValid() {
		fmt.Fprintf(&s, " %s", p.Addr)
	}
	if p.Key != "" {
		fmt.Fprintf(&s, " %q", p.Key)
	}
	if p.Detail != "" {
		fmt.Fprintf(&s, ": %s", p.Detail)
	}
	return s.String()
}

// Report is the type of that name of the engine, which documents it.
type Report struct {
	Problems    []Problem
	Repair      []Step
	Blocks      int
	Allocations int
	Unsettled   int
}

// InUse is the type of that name of the engine, which documents it.
type InUse struct {
	Address netip.Addr
	Handle  string
}

// Check examines a snapshot of all records, in key order as [store.Store.List] returns them: that every record can be read,
// that blocks neither overlap nor lie where no pool made them, that every address record is what its block says, and that every
// index record, number of blocks of an owner and page of a pool is what the blocks and addresses say. If uses is not nil it is compared
// with what is held. Neither a cooling address counts as unused nor one with a lease, which ends by itself unless its holder
// renews it.
//
// It is pure. The report's Repair can be read before it is given to [Operator.Repair]. It keeps some 200 bytes a block and, of
// what is in order, nothing for an address without uses and some 80 bytes with them; see [Operator.Check].
func Check(recs []store.Record, uses iter.Seq[InUse]) *Report {
	byKey := func(a, b store.Record) int { return strings.Compare(a.Key, b.Key) }
	if !slices.IsSortedFunc(recs, byKey) {
		recs = slices.SortedStableFunc(slices.Values(recs), byKey)
	}
	c := newChecker(context.Background(), Snapshot(recs), math.MinInt64, store.Limits{})
	_ = c.run(uses) // a snapshot can be read
	return c.rep
}

// Check carries out the call of that name.
func (e *Checker) Check(ctx context.Context, uses iter.Seq[InUse]) (*Report, error) {
	now, err := e.Past()
	if err != nil {
		return nil, cause.Wrap(ipalloc.Error{Op: "check", Err: err})
	}
	c := newChecker(ctx, e.Store, now, e.Limits)
	if err := c.run(uses); err != nil {
		return nil, err
	}
	return c.rep, nil
}
