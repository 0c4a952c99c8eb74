package ipset

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/netip"
	"slices"
	"time"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/block"
	"github.com/ipalloc/ipalloc/ipset/internal/occ"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// AssignArgs are the arguments of [Engine.AutoAssign]. Zero fields mean the default.
type AssignArgs struct {
	// Owner is the host (or virtual owner) that the addresses are for.
	Owner Owner
	// Num4 and Num6 are how many addresses of each family.
	Num4, Num6 int
	// Addresses are given besides these, in the same commit: a static IPv4 address with an automatic IPv6 one. What
	// [Engine.AssignIP] says of its address holds of each: reservations and ranges do not count for it, selectors count with
	// PoolsAndSelectors alone, one that the handle holds already is no error. If one cannot be given, the call fails, also with
	// Partial. They come first in the result. At most 64.
	Addresses []netip.Addr
	// Claim is the handle, the attributes and the time to live.
	Claim
	// Use is one of Workload, Tunnel and LoadBalancer; Workload by default.
	Use Use
	// Namespace has the labels of the namespace.
	Namespace map[string]string
	// Pools narrows the choice to the named pools; their selectors then do not count unless PoolsAndSelectors.
	Pools             []string
	PoolsAndSelectors bool
	// MaxBlocks narrows the limit of blocks per host if it is above 0.
	MaxBlocks int
	// Head and Tail are the addresses to reserve for the host at the ends of blocks made for it; they need strict affinity.
	Head, Tail uint64
	// Partial accepts fewer addresses than asked, also where one commit does not take so many: Short of the result says why. Without
	// it a shortage in any family is an error and nothing is assigned.
	Partial bool
	// Contiguous asks for neighbouring addresses: those of a family are in one block and in a row, all or none. They come from the
	// owner's blocks, then from one that it claims or takes over, and are never borrowed; the lowest that fit are taken, whatever the
	// Order of the pool. It goes without Partial and Sticky. A repeated Request whose addresses have been released in part is
	// [ipalloc.ErrMismatch]. Cost: O(spans log spans) of the free queue for each block that is looked at.
	Contiguous bool
	// Aligned is Contiguous with addresses that make up a prefix, such as a /29 of a block of /26: their number is a power of two,
	// and the first is a multiple of it.
	Aligned bool
	// Existing returns the addresses that the handle holds, if it holds any, in place of assigning more; the numbers do not
	// count then. Calls with Existing for one handle give it addresses once, from however many engines they come at the same time.
	// It costs one round trip more, and goes without a Request.
	Existing bool
	// Sticky gives the handle the addresses back that it had last, as far as they are free. It costs one round trip more.
	Sticky bool
	// Request, if not empty, names this request: a repetition returns the addresses of the first answer that the handle still
	// holds, and assigns what is missing of them. The same key with other arguments is [ipalloc.ErrInvalid].
	Request string
	// Also are records of yours that are written in the same commit, both or neither: the row of a machine with its address.
	// Their keys begin with an upper-case letter, A to Z. They are written if anything is assigned: not where Existing finds
	// addresses of the handle, and not by a repetition of a Request, whose first commit has written them. They are not among
	// the arguments that a repetition must repeat.
	Also []store.Op

	// offer has Existing move the end of a lease that would end before TTL.
	offer bool
}

// Reason says why a pool gave no more addresses.
type Reason uint8

const (
	// Full: every address is held.
	Full Reason = iota
	// ReservedLeft: only reserved addresses are left.
	ReservedLeft
	// CoolingLeft: only cooling addresses are left.
	CoolingLeft
	// ForeignLeft: other owners have blocks with room, and strict affinity forbids borrowing from them.
	ForeignLeft
	// LimitReached: there are free blocks, and a limit or the configuration forbids claiming them.
	LimitReached
	// Fragmented: addresses are left, and not so many in a row as Contiguous asks for.
	Fragmented
	// TooSmall: no block of the pool has so many addresses in a row as Contiguous asks for.
	TooSmall
	// OutsideLeft: every address of the pool's ranges is held, and AssignIP alone gives the others.
	OutsideLeft
	// CommitFull: addresses are left, and one commit of the store takes no more.
	CommitFull
)

// String returns a few words.
func (r Reason) String() string {
	return [...]string{"full", "reserved", "cooling", "foreign", "limit", "fragmented", "blocks too small", "full, only addresses outside its ranges are left", "more than one commit takes"}[min(r, CommitFull)]
}

// Shortage says why a pool did not give what was asked.
type Shortage struct {
	Family int // 4 or 6
	Pool   string
	Reason Reason
}

// Assigned is the result of [Engine.AutoAssign].
type Assigned struct {
	V4, V6 []Allocation
	// Short has one entry per pool tried in a family with fewer addresses than asked.
	Short []Shortage
}

// Assign returns the address that a handle holds, and gives it one if it holds none: an IPv4 address, or an IPv6 address where no
// IPv4 pool serves the owner. Repeating it is safe, also after [ipalloc.ErrUnknownOutcome] and from several engines at once. If the
// handle holds several, it returns the first.
//
// Errors as for AutoAssign, which has all the options. Cost: two round trips while the owner's own blocks have room and are
// cached.
func (e *Engine) Assign(ctx context.Context, o Owner, handle string) (Allocation, error) {
	a := AssignArgs{Owner: o, Num4: 1, Claim: Claim{Handle: handle}, Existing: true}
	got, err := e.AutoAssign(ctx, a)
	if errors.Is(err, errNoPool) {
		a.Num4, a.Num6 = 0, 1
		got, err = e.AutoAssign(ctx, a)
	}
	if err != nil {
		return Allocation{}, err
	}
	return append(got.V4, got.V6...)[0], nil
}

// AutoAssign gives addresses to a host: from the pools of the highest [Pool.Priority] that serve it, and only what these lack
// from the next ones. Among pools of one priority it takes them from the host's own blocks in address order; then from a free
// block that it claims, searched from a place fixed by its name; then from a block of another that has been empty for at least
// a minute, which it takes over; then from a block without owner, which it adopts; then, unless affinity is strict, borrowed from
// any block with room. Limits forbid claiming, taking over and adopting, not borrowing.
//
// All is done in one commit. Fewer addresses than asked is an error unless Partial is set.
//
// Errors, nothing assigned: [ipalloc.ErrInvalid] for impossible arguments, among them Head or Tail without strict affinity;
// [ipalloc.ErrNotFound] for an owner or a pool that does not exist, and if no pool may serve a family; [ipalloc.ErrFull] without
// Partial; [ipalloc.ErrLimit] if one commit cannot hold the call; [ipalloc.ErrConflict] after Retry.Attempts conflicts; any
// error of the store. If a record of Also is not at the revision that it expects, the error is [ipalloc.ErrConflict] as well,
// without another attempt, and [store.ConflictKey] names the record. After [ipalloc.ErrUnknownOutcome] the addresses may have been
// assigned: repeat with the same Request, or release by handle on the same engine.
//
// Cost: one round trip while the host's own blocks have room and are cached, two for a host's first block.
func (e *Engine) AutoAssign(ctx context.Context, a AssignArgs) (Assigned, error) {
	if err := a.check(); err != nil {
		return Assigned{}, wrap(ipalloc.Error{Op: "assign", Owner: a.Owner.String(), Err: err})
	}
	if err := e.checkAlso(a.Also); err != nil {
		return Assigned{}, wrap(ipalloc.Error{Op: "assign", Owner: a.Owner.String(), Err: err})
	}
	p := e.usedAssign.Swap(nil)
	if p == nil {
		p = new(assignPlan)
	}
	p.AssignArgs, p.also = a, also{ops: a.Also}
	labels, ok := e.labels(a.Owner)
	if !ok {
		return Assigned{}, wrap(ipalloc.Error{Op: "assign", Owner: a.Owner.String(), Err: errUnknownOwner})
	}
	p.node = labels
	if err := e.do(ctx, p); err != nil { // a batch may still be at it
		return Assigned{}, wrap(ipalloc.Error{Op: "assign", Owner: a.Owner.String(), Err: occ.Conflict("ipset", err)})
	}
	result := p.result
	*p = assignPlan{}
	e.usedAssign.Store(p)
	return result, nil
}

// check refuses what no state of the pools could serve.
func (a *AssignArgs) check() error {
	if err := a.Owner.Check(); err != nil {
		return err
	}
	if a.Use == 0 {
		a.Use = Workload
	}
	for _, n := range [...]struct{ what, name string }{{"handle", a.Handle}, {"request key", a.Request}} {
		if n.name != "" {
			if err := block.CheckName(n.what, n.name); err != nil {
				return err
			}
		}
	}
	if err := a.Share.Check(); err != nil {
		return err
	}
	switch {
	case a.Share != (Share{}) && a.Handle == "":
		return wrap(ipalloc.Error{Op: "check", Field: "Share", Reason: "a holder of a shared address needs a handle", Err: ipalloc.ErrInvalid})
	case a.Num4 < 0 || a.Num6 < 0 || a.Num4+a.Num6+len(a.Addresses) == 0 || a.Num4 > maxBatch || a.Num6 > maxBatch:
		return fmt.Errorf("%w: %d + %d addresses, 1 to %d", errBadArgument, a.Num4, a.Num6, maxBatch)
	case a.Use&^allUses != 0 || a.Use&(a.Use-1) != 0:
		return errUnknownUse
	case a.Existing && (a.Handle == "" || a.Request != ""):
		return fmt.Errorf("%w: Existing needs a handle and goes without a request key", errBadArgument)
	case a.Head > math.MaxUint64-a.Tail:
		return fmt.Errorf("%w: %d + %d addresses to reserve", errBadArgument, a.Head, a.Tail)
	case a.TTL < 0 || a.MaxBlocks < 0 || a.Sticky && a.Handle == "":
		return fmt.Errorf("%w: time to live %v, at most %d blocks, sticky %v", errBadArgument, a.TTL, a.MaxBlocks, a.Sticky)
	}
	if err := a.checkNamed(); err != nil {
		return err
	}
	return a.checkRow()
}

const (
	// maxBatch bounds the addresses of one call and family.
	maxBatch = 1 << 12
	// takeoverAge is how long a block must have been empty before another owner may take it.
	takeoverAge = int64(time.Minute)
)

// assignPlan is one AutoAssign: it picks addresses, from the best place to the worst, and changes no block; when the picks are
// complete, commit carries them out.
type assignPlan struct {
	AssignArgs
	node   map[string]string
	result Assigned
	memo   memo
	also   also

	cat      *catalogEntry
	searches [2]search
	own      *ownerEntry // the owner's record, as it was when the plan began
	picks    []pick
	last     memo // what the handle had before, if it is sticky
	// sticky is how many of the first picks are of addresses the handle had before, taken are the blocks taken over or adopted.
	sticky int
	taken  map[*blockEntry]bool
	// Room for what most calls pick.
	onePick [1]pick
	few     [2]uint64
}

// pick is a block with ordinals to take from it.
type pick struct {
	be       *blockEntry
	fresh    *block.Block // replaces the block: a claim or a take-over
	adopt    bool
	ordinals []uint64
}

// search is the picking for one family.
type search struct {
	family  int
	want    int // addresses still to find
	cat     *catalog
	choice  choice
	pools   []int          // that may serve, in order, as far as they have been looked for
	seen    int            // how many pools have been looked at
	few     [4]int         // room for as many, so that they need no allocation
	reasons map[int]Reason // by pool; nil for none
	looked  bool           // whether there are blocks without owner has been looked up, in orphans
	orphans bool
	ragged  []int // pools of which the owner has blocks with addresses, and not so many in a row
	// The pools that are tried at present: those of one priority, of which the first is at tier, once tiered is set.
	tier, priority int
	tiered         bool
}

// Detach implements [occ.Detacher].
func (p *assignPlan) Detach() {
	p.Namespace, p.Pools, p.also.ops = maps.Clone(p.Namespace), slices.Clone(p.Pools), slices.Clone(p.also.ops)
	p.Addresses = slices.Clone(p.Addresses)
}

// Plan implements [occ.Plan].
func (p *assignPlan) Plan(t *txn) error {
	p.reset()
	p.also.runs++
	done, err := p.replay(t)
	if !done && err == nil && p.Existing {
		done, err = p.existing(t)
	}
	if done || err != nil {
		return err
	}
	if err := p.pick(t); err != nil {
		return err
	}
	return p.commit(t)
}

// replay puts what is still held of the answer that the request key was given before into the result, and reports whether that
// is all that is asked for.
func (p *assignPlan) replay(t *txn) (done bool, err error) {
	if p.Request == "" {
		return false, nil
	}
	p.memo = memo{key: kindRequest + p.Request, digest: p.digest()}
	if p.cat, err = t.catalog(); err != nil {
		return false, err
	}
	held, err := t.recall(p.cat, &p.memo, p.Handle)
	if err != nil {
		return false, err
	}
	p.answer(held)
	if asked := p.asked(); len(p.result.V4) == asked[0] && len(p.result.V6) == asked[1] {
		return true, nil
	}
	if p.inRow() && len(held) > 0 {
		return false, errTorn
	}
	return false, nil
}

// digest tells this request from others.
func (p *assignPlan) digest() string {
	a := &p.AssignArgs
	return digestOf("auto", a.Owner, a.Num4, a.Num6, a.Handle, a.Attributes, a.Share, int64(a.TTL), a.Use, a.Namespace,
		a.Pools, a.PoolsAndSelectors, a.MaxBlocks, a.Head, a.Tail, a.Partial, a.Sticky, a.Contiguous, a.Aligned, a.Addresses)
}

// reset forgets what an earlier attempt has found.
func (p *assignPlan) reset() {
	p.result, p.picks, p.sticky, p.taken = Assigned{}, p.onePick[:0], 0, nil
	p.memo, p.last = memo{}, memo{}
}

// begin finds the pools of both families and reads what every assignment needs.
func (p *assignPlan) begin(t *txn) (err error) {
	if p.cat, err = t.catalog(); err != nil {
		return err
	}
	if p.Head+p.Tail > 0 && !p.cat.Config.Strict {
		return errLooseEnds
	}
	if err := p.pickNamed(t); err != nil {
		return err
	}
	wants := p.wants()
	p.searches = [2]search{{family: 4, want: wants[0]}, {family: 6, want: wants[1]}}
	for i := range p.searches {
		s := &p.searches[i]
		if s.want == 0 {
			continue
		}
		err = s.choose(p.cat.catalog, choice{
			family: s.family, use: p.Use, host: p.Owner.Name, node: p.node, space: p.Namespace, names: p.Pools, both: p.PoolsAndSelectors, ends: p.Head + p.Tail,
		})
		if err != nil {
			return err
		}
	}
	if err := p.readOwner(t); err != nil || !p.Sticky {
		return err
	}
	return p.readLast(t)
}

// pick finds addresses of both families.
func (p *assignPlan) pick(t *txn) error {
	if err := p.begin(t); err != nil {
		return err
	}
	for i := range p.searches {
		s := &p.searches[i]
		if s.want == 0 {
			continue
		}
		if err := p.pickFamily(t, s); err != nil {
			return err
		}
		if s.want > 0 {
			if err := p.short(t, s); err != nil {
				return err
			}
		}
	}
	if !p.Partial && len(p.result.Short) > 0 {
		return p.tooFew()
	}
	return nil
}

// readOwner reads the owner's record, and, because an owner that is new here will need a block, the pages where its
// search would begin: one round trip for both.
func (p *assignPlan) readOwner(t *txn) (err error) {
	if t.owners.Get(p.Owner) == nil {
		keys := []string{ownerKey(p.Owner)}
		for i := range p.searches {
			for _, j := range p.searches[i].pools[:min(1, len(p.searches[i].pools))] { // the first
				pool := &p.cat.Pools[j]
				id, _ := leafOf(p.start(j))
				keys = t.pageKeys(keys, pool.Prefix, id)
			}
		}
		if err := t.Load(keys...); err != nil {
			return err
		}
	}
	p.own, err = t.owner(p.Owner)
	return err
}

// pickFamily goes through the pools, those of the highest priority first, until nothing is wanting.
func (p *assignPlan) pickFamily(t *txn, s *search) error {
	if p.Sticky {
		if err := p.pickSticky(t, s); err != nil || s.want == 0 {
			return err
		}
	}
	for s.nextTier() {
		if err := p.pickTier(t, s); err != nil || s.want == 0 {
			return err
		}
	}
	return nil
}
