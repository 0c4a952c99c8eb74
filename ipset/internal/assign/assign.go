package assign

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"math"
	"net/netip"
	"slices"
	"time"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/internal/block"
	"github.com/ipalloc/ipalloc/ipset/internal/cause"
	"github.com/ipalloc/ipalloc/ipset/internal/choose"
	"github.com/ipalloc/ipalloc/ipset/internal/keep"
	"github.com/ipalloc/ipalloc/ipset/internal/occ"
	"github.com/ipalloc/ipalloc/ipset/internal/pool"
	"github.com/ipalloc/ipalloc/ipset/internal/record"
	"github.com/ipalloc/ipalloc/ipset/internal/txn"
)

// An assignment has two halves. The first picks places from the best to the worst and may fail or be repeated at any point, because it
// changes no block; the second, in commit.go, changes them and can fail only for what the commit takes.

// Assign carries out the call of that name.
func (e *Assigner) Assign(ctx context.Context, o alloc.Owner, handle string, pools ...string) (alloc.Allocation, error) {
	a := alloc.AssignArgs{Owner: o, Handle: handle, Num4: 1, Pools: pools, Existing: true}
	if handle == "" {
		return alloc.Allocation{}, cause.Wrap(ipalloc.Error{Op: "assign", Owner: o.String(), Err: cause.Name("handle", "")})
	}
	got, err := e.assign(ctx, e.plan(&a), whatever)
	if none := err; errors.Is(none, cause.NoPool) {
		why := got.Short
		a.Num4, a.Num6 = 0, 1
		got, err = e.assign(ctx, e.plan(&a), whatever)
		// Where neither family has a pool, the error is the one that says more than that the pools have the other family.
		if errors.Is(err, cause.NoPool) && slices.ContainsFunc(why, func(s alloc.Shortage) bool { return s.Reason != alloc.ReasonOtherFamily }) {
			err = none
		}
	}
	if err != nil {
		return alloc.Allocation{}, err
	}
	return append(got.V4, got.V6...)[0], nil
}

// AutoAssign carries out the call of that name. With the error of a shortage it returns Short.
func (e *Assigner) AutoAssign(ctx context.Context, a *alloc.AssignArgs) (alloc.Assigned, error) {
	return e.assign(ctx, e.plan(a), plain)
}

// AssignIPs carries out the call of that name.
func (e *Assigner) AssignIPs(ctx context.Context, a *alloc.AssignArgs, named []netip.Addr) (alloc.Assigned, error) {
	p := e.plan(a)
	p.Named = named
	return e.assign(ctx, p, plain)
}

// mode is the kind of an assignment.
type mode uint8

const (
	plain    mode = iota
	offered       // Existing moves the end of a lease that would end before TTL
	whatever      // Existing returns all that the handle holds, whatever Num4 and Num6
)

// plan returns the plan of a call, for [Assigner.assign] alone.
func (e *Assigner) plan(a *alloc.AssignArgs) *AssignPlan {
	p := e.used.Swap(nil)
	if p == nil {
		p = new(AssignPlan)
	}
	p.AssignArgs = *a
	p.Use = cmp.Or(p.Use, alloc.Workload)
	p.choose()
	return p
}

// assign carries out an assignment. An offer moves the end of a lease that would end before TTL.
func (e *Assigner) assign(ctx context.Context, p *AssignPlan, how mode) (alloc.Assigned, error) {
	p.mode, p.also.Ops = how, p.Also
	err := p.check()
	if err == nil && !e.Import {
		err = cmp.Or(keep.Check(ctx, "Handle", p.Handle), keep.Check(ctx, "Share.Key", p.Share.Key))
	}
	if err == nil {
		err = e.CheckAlso(p.Also)
	}
	if err != nil {
		return alloc.Assigned{}, cause.Wrap(ipalloc.Error{Op: "assign", Owner: p.Owner.String(), Err: err})
	}
	owner := p.Owner
	labels, ok := e.Labels(owner)
	if !ok {
		return alloc.Assigned{}, cause.Wrap(ipalloc.Error{Op: "assign", Owner: owner.String(), Err: cause.UnknownOwner})
	}
	p.node = labels
	if err := e.Do(ctx, p); err != nil { // a batch may still be at it
		fault := ipalloc.Error{Op: "assign", Owner: owner.String(), Err: occ.Conflict("ipset", err)}
		return alloc.Assigned{Short: pool.Describe(err, &fault)}, cause.Wrap(fault)
	}
	result := p.result
	*p = AssignPlan{}
	e.used.Store(p)
	return result, nil
}

// check refuses what no state of the pools could serve.
func (a *args) check() error {
	if err := a.Owner.Check(); err != nil {
		return err
	}
	for _, n := range [...]struct{ what, name string }{{"Handle", a.Handle}, {"Request", a.Request}} {
		if n.name != "" {
			if err := cause.Name(n.what, n.name); err != nil {
				return err
			}
		}
	}
	if err := a.Share.Check(); err != nil {
		return err
	}
	switch {
	case a.Share != (alloc.Share{}) && a.Handle == "":
		return cause.Invalid("Share", "a holder of a shared address needs a handle")
	case a.Num4 < 0 || a.Num6 < 0 || a.Num4+a.Num6+len(a.Named) == 0 || a.Num4 > maxBatch || a.Num6 > maxBatch:
		return cause.Invalid("Num4", "%d IPv4 and %d IPv6 addresses asked for, want 1 to %d of a family", a.Num4, a.Num6, maxBatch)
	case a.Use&^pool.AllUses != 0 || a.Use&(a.Use-1) != 0:
		return cause.UnknownUse
	case a.Existing && a.Handle == "":
		return cause.Invalid("Handle", "is empty, and says what Existing returns")
	case a.Existing && a.Request != "":
		return cause.Invalid("Request", "it goes without Existing, and an offer without it")
	case a.Blocks.Head > math.MaxUint64-a.Blocks.Tail:
		return cause.Invalid("Blocks.Head", "%d and %d addresses to reserve are more than a block can have", a.Blocks.Head, a.Blocks.Tail)
	case a.TTL < 0:
		return cause.Invalid("TTL", "%v is negative", a.TTL)
	case a.Blocks.Max < 0:
		return cause.Invalid("Blocks.Max", "%d is negative", a.Blocks.Max)
	case a.Sticky && a.Handle == "":
		return cause.Invalid("Sticky", "it needs a handle")
	}
	if err := a.checkNamed(); err != nil {
		return err
	}
	return a.checkRow()
}

// maxBatch bounds the addresses of one call and family.
const maxBatch = 1 << 12

// args are the arguments of the calls that assign, in one form for all, with their checks.
type args struct {
	alloc.AssignArgs
	Named []netip.Addr // assigned in addition
	Since time.Time
	// What Choose says.
	Wish, From          netip.Addr
	Contiguous, Aligned bool
}

// choose sets what Choose says.
func (a *args) choose() {
	switch c := choose.Choice(a.Choose); c.Kind() {
	case choose.Prefer:
		a.Wish = c.At()
	case choose.From:
		a.From = c.At()
	case choose.Contiguous:
		a.Contiguous = true
	case choose.Aligned:
		a.Contiguous, a.Aligned = true, true
	}
}

// asClaim returns the claim that each address is assigned with.
func (a *args) asClaim() alloc.Claim {
	return alloc.Claim{Handle: a.Handle, Attributes: a.Attributes, TTL: a.TTL, Share: a.Share, Since: a.Since}
}

// AssignPlan is one AutoAssign: it picks addresses, from the best place to the worst, and changes no block; when the picks are
// complete, commit carries them out.
type AssignPlan struct {
	args
	most   int // how many addresses the commit takes, with Partial
	mode   mode
	node   map[string]string
	result alloc.Assigned
	memo   record.Memo
	first  bool            // the first address that is assigned becomes the first holding of the handle
	again  bool            // the record of the first holding, in another pool, is written again
	ended  *txn.BlockEntry // of the first holding, if that is a lease whose end the commit has to write
	moves  []txn.Place     // what the handle holds already, for whatever host
	shown  int             // how many of these the result shows
	marks  bool            // the first of these becomes the first holding
	also   txn.Also

	cat      *txn.CatalogEntry
	searches [2]Search
	own      *txn.OwnerEntry // the owner's record, as it was when the plan began; nil if all addresses are named
	picks    []pick
	last     record.Memo // what the handle had before, if it is sticky
	// sticky is how many of the first picks are of addresses the handle had before, taken are the blocks taken over or adopted.
	sticky int
	left   [2]int // addresses of each family that the commit does not take
	taken  map[*txn.BlockEntry]bool
	gone   []*txn.BlockEntry // empty blocks of another size that make room for new ones
	asIs   bool              // blocks of another size are not replaced
	// Room for what most calls pick.
	onePick [1]pick
	oneMove [1]txn.Place
	oneID   [1]netip.Prefix
	oneSeq  [1]uint64
	few     [2]uint64
}

// pick is a block with ordinals to take from it.
type pick struct {
	be       *txn.BlockEntry
	fresh    *block.Block // replaces the block: a claim or a take-over
	adopt    bool
	joins    bool // the ordinal is held, and gets one more holder
	ordinals []uint64
}

// Search is the picking for one family.
type Search struct {
	pool.Tiers
	family  int
	want    int                  // addresses still to find
	reasons map[int]alloc.Reason // by pool; nil for none
	cools   map[int]int64        // by pool: when the first cooling address that was passed over is free
	kept    map[int]netip.Prefix // by pool: a block of another size that keeps addresses from the call
	looked  bool                 // whether there are blocks without owner has been looked up, in orphans
	orphans bool
	timely  bool           // the blocks of the tried pools are written as time has left them
	later   []netip.Prefix // blocks of other pools that are due
	lists   txn.Lists
	ragged  []int // pools that have blocks with addresses, and not so many in a row for the owner
}

// Detach implements [occ.Detacher].
func (p *AssignPlan) Detach() {
	p.Namespace, p.Pools, p.also.Ops = maps.Clone(p.Namespace), slices.Clone(p.Pools), slices.Clone(p.also.Ops)
	p.Named = slices.Clone(p.Named)
}

// Plan implements [occ.Plan].
func (p *AssignPlan) Plan(t *txn.Txn) error {
	p.also.Runs++
	if p.most = math.MaxInt; !p.Partial || t.E.Limits.Ops == 0 {
		return p.fitting(t)
	}
	return occ.Fit(t, p.Num4+p.Num6+len(p.Named), func(n int) error {
		p.most = n
		return p.fitting(t)
	})
}

// fitting is once without replacing blocks of another size if the commit does not take that.
func (p *AssignPlan) fitting(t *txn.Txn) error {
	p.asIs = false
	if err := p.once(t); err != nil || len(p.gone) == 0 || !errors.Is(t.Room(), ipalloc.ErrLimit) {
		return err
	}
	t.Restart()
	p.asIs = true
	return p.once(t)
}

// once is Plan for as many addresses as most says.
func (p *AssignPlan) once(t *txn.Txn) error {
	p.reset()
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
func (p *AssignPlan) replay(t *txn.Txn) (done bool, err error) {
	if p.Request == "" {
		return false, nil
	}
	p.memo = record.Memo{Key: record.KindRequest + p.Request, Digest: record.DigestOf(&p.AssignArgs, p.Named, p.Since), Ids: p.oneID[:0], Seqs: p.oneSeq[:0]}
	if p.cat, err = t.Catalog(); err != nil {
		return false, err
	}
	held, err := t.Recall(p.cat, &p.memo, p.Handle, p.Owner)
	if err != nil {
		return false, err
	}
	if err := p.cat.CheckOpen(held...); err != nil {
		return false, err
	}
	p.answer(held)
	if asked := p.asked(); len(p.result.V4) == asked[0] && len(p.result.V6) == asked[1] {
		return true, nil
	}
	if p.inRow() && len(held) > 0 {
		return false, cause.Torn
	}
	return false, nil
}

// reset forgets what an earlier attempt has found.
func (p *AssignPlan) reset() {
	if p.picks, p.moves = p.onePick[:0], p.oneMove[:0]; p.cat == nil {
		return // this is the first
	}
	p.result, p.searches, p.sticky, p.taken = alloc.Assigned{}, [2]Search{}, 0, nil
	p.memo, p.last, p.own, p.gone = record.Memo{}, record.Memo{}, nil, nil
	p.first, p.again, p.ended, p.shown, p.marks = false, false, nil, 0, false
}

// begin finds the pools of both families and reads what every assignment needs.
func (p *AssignPlan) begin(t *txn.Txn) (err error) {
	if p.cat, err = t.Catalog(); err != nil {
		return err
	}
	if p.Blocks.Head+p.Blocks.Tail > 0 && !p.cat.Config.Strict {
		return cause.LooseEnds
	}
	if err := p.pickNamed(t); err != nil {
		return err
	}
	wants := p.wants()
	for i := range p.searches {
		s := &p.searches[i]
		if s.family, s.want = 4+2*i, wants[i]; s.want == 0 {
			continue
		}
		s.lists.Family, s.lists.Over = s.family, s
		if err := s.Choose(p.cat.Catalog, p.choice(p.node, s.family)); err != nil {
			return err
		}
	}
	if wants != [2]int{} {
		err = p.readOwner(t)
	}
	if err != nil || !p.Sticky {
		return err
	}
	return p.readLast(t)
}

// pick finds addresses of both families.
func (p *AssignPlan) pick(t *txn.Txn) error {
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
		if p.left[i] > 0 {
			p.result.Short = append(p.result.Short, alloc.Shortage{Family: s.family, Pool: p.cat.Pools[s.last(p.picks)].Name, Reason: alloc.ReasonCommitFull})
		}
	}
	if !p.Partial && len(p.result.Short) > 0 {
		return p.tooFew()
	}
	return nil
}

// readOwner reads the owner's record, and, because an owner that is new here will need a block, the pages where its
// search would begin: one round trip for both.
func (p *AssignPlan) readOwner(t *txn.Txn) (err error) {
	if t.Owners.Get(p.Owner) == nil {
		keys := append(make([]string, 0, 8), record.OwnerKey(p.Owner))
		for i := range p.searches {
			for _, j := range p.searches[i].Pools[:min(1, len(p.searches[i].Pools))] { // the first
				pool := &p.cat.Pools[j]
				id, _ := record.LeafOf(p.start(j))
				keys = t.PageKeys(keys, pool.Prefix, id)
			}
		}
		if err := t.Load(keys...); err != nil {
			return err
		}
	}
	p.own, err = t.Owner(p.Owner)
	return err
}

// pickFamily goes through the pools, those of the highest priority first, until nothing is wanting.
func (p *AssignPlan) pickFamily(t *txn.Txn, s *Search) error {
	onward := p.From.IsValid() && p.From.Is4() == (s.family == 4)
	if p.Sticky || p.Wish.IsValid() && p.Wish.Is4() == (s.family == 4) {
		if err := p.pickSticky(t, s); err != nil || s.want == 0 {
			return err
		}
	}
	for s.nextTier() {
		pick := p.pickTier
		if onward {
			pick = p.pickOnward
		}
		if err := pick(t, s); err != nil {
			return err
		}
		if s.want == 0 {
			break
		}
		if err := p.timed(t, s); err != nil {
			return err
		}
	}
	s.lists.Remember(t.E, s.want > 0)
	return nil
}

// The calls for a DHCP server or a VPN: DISCOVER is Offer, REQUEST is RenewIP, RELEASE is ReleaseIPs with the client as the
// Guard, DECLINE is Decline. A lease ends by itself: from its end on no call treats the address as held. The end is written later, by
// Sweep, by the next call that changes the block, or by an assignment that looks beyond the blocks of its owner.

// Offer carries out the call of that name.
func (e *Assigner) Offer(ctx context.Context, a *alloc.AssignArgs) (alloc.Assigned, error) {
	if a.TTL <= 0 {
		return alloc.Assigned{}, cause.Wrap(ipalloc.Error{Op: "offer", Owner: a.Owner.String(), Err: cause.Invalid("TTL", "%v is not above 0", a.TTL)})
	}
	p := e.plan(a)
	p.Existing, p.Sticky = true, true
	return e.assign(ctx, p, offered)
}
