package ipset

import (
	"context"
	"iter"
	"net/netip"

	"github.com/ipalloc/ipalloc/ipset/internal/check"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// ProblemKind says what is wrong.
type ProblemKind string

// The kinds of problems that [Check] finds.
const (
	ProblemDamaged       = ProblemKind(check.Damaged)       // a record that cannot be read
	ProblemOverlapping   = ProblemKind(check.Overlapping)   // two blocks share addresses
	ProblemWrongSize     = ProblemKind(check.WrongSize)     // a block of a size that its pool neither has nor drains
	ProblemNoPool        = ProblemKind(check.NoPool)        // a block outside every pool
	ProblemStrayAddress  = ProblemKind(check.StrayAddress)  // an address record whose block does not hold the address
	ProblemLostAddress   = ProblemKind(check.LostAddress)   // an address that a block holds and that has no record
	ProblemLostBlock     = ProblemKind(check.LostBlock)     // address records whose block is missing
	ProblemStaleIndex    = ProblemKind(check.StaleIndex)    // an index record that does not agree with the blocks and addresses
	ProblemMissingIndex  = ProblemKind(check.MissingIndex)  // an index record that a block or an address should have
	ProblemWrongOwner    = ProblemKind(check.WrongOwner)    // an owner's record whose number of blocks is wrong
	ProblemWrongPage     = ProblemKind(check.WrongPage)     // a page of a pool that does not agree with the blocks
	ProblemOldGeneration = ProblemKind(check.OldGeneration) // sequence numbers above those that new blocks would start with
	ProblemUnused        = ProblemKind(check.Unused)        // an address that is held and not in use
	ProblemNotHeld       = ProblemKind(check.NotHeld)       // an address of a pool that is in use and not held
	ProblemOtherHandle   = ProblemKind(check.OtherHandle)   // an address in use under another handle than its holder's
	ProblemUsedTwice     = ProblemKind(check.UsedTwice)     // an address that is in use twice
	ProblemOutsideOfPool = ProblemKind(check.OutsideOfPool) // an address that is in use and lies in no pool
)

// Problem is one thing that [Check] found.
type Problem struct {
	Kind   ProblemKind
	Key    string       // the record, if it is about one
	Block  netip.Prefix // the block, if it is about one
	Addr   netip.Addr   // the address, if it is about one
	Detail string
}

// String returns one line.
func (p Problem) String() string { return problemOf(p).String() }

// InUse is one address that is in use, as far as the caller knows.
type InUse struct {
	Address netip.Addr
	// Handle, if not empty, should be the one that holds the address. Without it every holder of the address counts as using it.
	Handle string
}

// Step is one commit of a repair: it restores derived records, or releases addresses.
type Step struct {
	Text string
	// Ops name the revisions that were checked. With Releases they are guards alone.
	Ops      []store.Op
	Releases []Release
}

// Report is what [Check] found and what would repair it.
type Report struct {
	Problems    []Problem
	Repair      []Step
	Blocks      int
	Allocations int
	// Unsettled is the number of findings that could not be confirmed because their records changed while they were
	// examined. They are not among the problems; the next check looks at them again. A snapshot has none.
	Unsettled int
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
	return reportOf(check.Check(recs, usesOf(uses)))
}

// Check reads everything of the engine's space and examines it; see the function [Check]. uses may be nil. To check a whole
// store, check the space without a name and each of [Operator.Spaces].
//
// It reads a page of records at a time, each address and each index record once if they agree. Commits may be made meanwhile:
// what does not agree is read again, with the block that it is about, in one consistent view, and is a problem if it does
// not agree there either. [Report.Unsettled] counts what changed too often for that.
//
// uses is iterated after everything that is held has been read, and has to yield what is in use at that moment, or later. What does
// not agree with it is read once more, so nothing assigned or released meanwhile is a problem. A list that was made before the
// check lacks what has been assigned since, which counts as unused: do not repair by it while others assign. A lease that has ended
// holds nothing.
//
// Where a later release has written a block, an address, an answer to a request or the pools in a form that this one does not read,
// the report says so and has no Repair: only that release knows what they hold.
func (o Operator) Check(ctx context.Context, uses iter.Seq[InUse]) (*Report, error) {
	r, err := o.e.check.Check(ctx, usesOf(uses))
	return reportOf(r), err
}

// Repair carries out the steps of a report, each in a commit of its own on the revisions that were checked, and returns the
// number of steps done. It leaves out a step whose records have changed; the next check looks at them again. It goes on after a
// step that is refused otherwise, such as with [ipalloc.ErrCorrupt], and returns those errors together at the end. Any other
// error ends it.
func (o Operator) Repair(ctx context.Context, steps []Step) (done int, err error) {
	return o.e.check.Repair(ctx, stepsOf(steps))
}

// usesOf yields what is in use as the room takes it; nil stays nil.
func usesOf(uses iter.Seq[InUse]) iter.Seq[check.InUse] {
	if uses == nil {
		return nil
	}
	return func(yield func(check.InUse) bool) {
		for u := range uses {
			if !yield(check.InUse(u)) {
				return
			}
		}
	}
}

func problemOf(p Problem) check.Problem {
	return check.Problem{Kind: check.ProblemKind(p.Kind), Key: p.Key, Block: p.Block, Addr: p.Addr, Detail: p.Detail}
}

func reportOf(r *check.Report) *Report {
	if r == nil {
		return nil
	}
	out := &Report{Blocks: r.Blocks, Allocations: r.Allocations, Unsettled: r.Unsettled}
	for _, p := range r.Problems {
		out.Problems = append(out.Problems, Problem{Kind: ProblemKind(p.Kind), Key: p.Key, Block: p.Block, Addr: p.Addr, Detail: p.Detail})
	}
	for _, s := range r.Repair {
		step := Step{Text: s.Text, Ops: s.Ops}
		for _, x := range s.Releases {
			step.Releases = append(step.Releases, Release(x))
		}
		out.Repair = append(out.Repair, step)
	}
	return out
}

func stepsOf(steps []Step) (out []check.Step) {
	for _, s := range steps {
		out = append(out, check.Step{Text: s.Text, Ops: s.Ops, Releases: releasesOf(nil, s.Releases)})
	}
	return out
}
