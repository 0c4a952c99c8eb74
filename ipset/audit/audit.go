// Package audit declares the arguments and results of the checks of packages ipset and
// prefixes. These are problems in the records, steps that repair them, and addresses that
// callers know to be in use.
//
//	report, err := engine.Operator().Check(ctx, inUse) // of audit.InUse, or nil
//	for _, p := range report.Problems {
//		fmt.Println(p) // such as: not held 10.0.0.1: pod-1
//	}
//	done, err := engine.Operator().Repair(ctx, report.Repair)
//
// All are plain values.
package audit

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// Kind is the kind of a problem.
type Kind string

// The kinds of problems that Check of package ipset finds. Check of package prefixes
// finds Damaged, NoPool, Overlapping, StaleIndex, MissingIndex and WrongPage, for
// holdings instead of blocks and addresses.
const (
	Damaged       Kind = "damaged"        // a record that cannot be read
	Overlapping   Kind = "overlapping"    // two blocks share addresses
	WrongSize     Kind = "wrong size"     // a block of a size that its pool neither has nor had
	NoPool        Kind = "no pool"        // a block outside every pool
	StrayAddress  Kind = "stray address"  // an address record whose block does not hold the address
	LostAddress   Kind = "lost address"   // an address that a block holds and that has no record
	LostBlock     Kind = "lost block"     // address records whose block is missing
	StaleIndex    Kind = "stale index"    // an index record that does not agree with the blocks and addresses
	MissingIndex  Kind = "missing index"  // an index record that a block or an address should have
	WrongOwner    Kind = "wrong owner"    // an owner's record whose number of blocks is wrong
	WrongPage     Kind = "wrong page"     // a page of a pool that does not agree with the blocks
	OldGeneration Kind = "old generation" // sequence numbers above those that new blocks would start with
	Unused        Kind = "unused"         // an address that is held and not in use
	NotHeld       Kind = "not held"       // an address of a pool that is in use and not held
	OtherHandle   Kind = "other handle"   // an address in use under another handle than its holder's
	UsedTwice     Kind = "used twice"     // an address that is in use twice
	OutsideOfPool Kind = "outside a pool" // an address that is in use and lies in no pool
)

// Problem is one problem found by a check.
type Problem struct {
	Kind   Kind
	Key    string       // the record, if it is about one
	Prefix netip.Prefix // the block, if it is about one; for package prefixes the holding, or the pool of a page
	Addr   netip.Addr   // the address, if it is about one
	Detail string
}

// String returns the problem in one line.
func (p Problem) String() string {
	var s strings.Builder
	s.WriteString(string(p.Kind))
	if p.Prefix.IsValid() {
		fmt.Fprintf(&s, " %s", p.Prefix)
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

// InUse is an address in use, as stated by the caller of a check.
type InUse struct {
	Address netip.Addr
	// Handle, if not empty, is the expected holder. If it is empty, every holder counts
	// as using the address.
	Handle string
}

// Step is one commit of a repair: it restores derived records, or releases addresses.
type Step struct {
	Text string
	// Ops are conditional on the revisions that were checked. In a step with Releases all
	// Ops are guards.
	Ops      []store.Op
	Releases []alloc.Release
}

// Report is the result of a check, with the repair.
type Report struct {
	Problems    []Problem
	Repair      []Step
	Blocks      int
	Allocations int
	// Unsettled is the number of findings that could not be confirmed because their
	// records changed during the check. They are not among the problems; the next check
	// examines them again. The check of a snapshot has none.
	Unsettled int
}
