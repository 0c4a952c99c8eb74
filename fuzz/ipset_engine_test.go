package fuzz

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/test/model"
	"github.com/ipalloc/ipalloc/internal/test/seeds"
	"github.com/ipalloc/ipalloc/ipset"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/audit"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// ipamPool is a pool that a trace may add.
type ipamPool struct {
	name, prefix string
	bits         [2]int // block sizes to switch between
	cooldown     time.Duration
}

// ipamPools are tiny, so that they fill, and of several block sizes.
var ipamPools = []ipamPool{
	{"a", "10.0.0.0/28", [2]int{30, 29}, 0}, {"b", "10.0.1.0/29", [2]int{31, 32}, 20 * time.Second},
	{"c", "10.0.2.0/28", [2]int{28, 30}, 0}, {"d", "fd00::/124", [2]int{126, 127}, 0},
}

const ipamOps = 33

// ipamCaches are how many records of a kind the engines of a replay remember; the last has no past.
var ipamCaches = []int{64, 64, 1, 2, 7, 0}

// ipamReplay is the two sides of a replay.
type ipamReplay struct {
	t     testing.TB
	defs  []ipamPool
	store store.Store
	e     []*ipset.Engine // all on one store, each with a cache of its own that it keeps over the trace
	m     *model.IPSet
	seen  map[alloc.Release]bool
	asked int
	steps int
	// offering makes Offer of the next AutoAssign.
	offering bool
	rows     map[string]string // records of the caller
	given    []given
}

func newIPAMReplay(t testing.TB, defs []ipamPool, db store.Store) *ipamReplay {
	r := &ipamReplay{t: t, defs: defs, store: db, seen: make(map[alloc.Release]bool), rows: make(map[string]string)}
	r.m = &model.IPSet{
		Blocks: make(map[netip.Prefix]*model.IPSetBlock), Limit: 1 << 30, Now: ipsetStart, Last: make(map[model.IPSetLast][]netip.Addr),
		Start: func(owner string, p model.IPSetPool) netip.Prefix {
			if p.Order == 1 {
				return netip.PrefixFrom(p.Prefix.Addr(), p.Bits)
			}
			return ipamStart(t, alloc.HostOwner(owner[len("host:"):]), p.Prefix, p.Bits)
		},
	}
	for _, keep := range ipamCaches {
		r.e = append(r.e, r.engine(keep))
	}
	return r
}

// ipamStart returns the block of a pool in which an owner begins to search: that of its first address in a store of its own.
func ipamStart(t testing.TB, o alloc.Owner, pool netip.Prefix, size int) netip.Prefix {
	key := fmt.Sprint(o, pool, size)
	if at, ok := ipamStarts.Load(key); ok {
		return at.(netip.Prefix)
	}
	e, err := ipset.New(store.NewMemory(), ipset.Options{})
	if err == nil {
		err = e.AddPool(t.Context(), alloc.Pool{Name: "p", Prefix: pool, BlockBits: size})
	}
	if err != nil {
		t.Fatal(err)
	}
	got, err := e.EnsureBlock(t.Context(), alloc.AssignArgs{Owner: o, Num4: 1 - pool.Addr().BitLen()/128, Num6: pool.Addr().BitLen() / 128})
	if err != nil || len(got) != 1 {
		t.Fatalf("%s in %s: %v, %v", o, pool, got, err)
	}
	ipamStarts.Store(key, got[0])
	return got[0]
}

// ipamStarts has what ipamStart has returned, by its arguments.
var ipamStarts sync.Map

func (r *ipamReplay) engine(keep int) *ipset.Engine {
	e, err := ipset.New(r.store, ipset.Options{
		Now: func() time.Time { return r.m.Now }, Cache: keep,
		Retry: ipset.Retry{Sleep: func(ctx context.Context, _ time.Duration) error { return ctx.Err() }},
	})
	if err != nil {
		r.t.Fatal(err)
	}
	return e
}

// replayIPAM runs a trace on engines and on their twin and compares every answer, and all blocks after every step.
func replayIPAM(t testing.TB, defs []ipamPool, first [2]int, data []byte) {
	r := newIPAMReplay(t, defs, store.NewMemory())
	r.begin(first)
	tr := model.NewTrace(data)
	for range 300 {
		if !r.next(tr) {
			return
		}
	}
}

// begin adds the first pools.
func (r *ipamReplay) begin(first [2]int) {
	r.togglePool(r.e[0], first[0])
	r.togglePool(r.e[0], first[1])
}

// next runs one step of a trace and compares the sides; it returns false at the end of the trace.
func (r *ipamReplay) next(tr *model.Trace) bool {
	if !tr.More() {
		return false
	}
	op := tr.Op(ipamOps)
	r.m.Advance()
	r.e[len(r.e)-1] = r.engine(0)
	r.steps++
	r.step(op, r.e[tr.Below(uint64(len(r.e)))], tr)
	r.compare(op)
	return true
}

// host returns the name of one of three hosts.
func (r *ipamReplay) host(tr *model.Trace) string { return fmt.Sprint("h", tr.Below(3)) }

func (r *ipamReplay) step(op int, e *ipset.Engine, tr *model.Trace) {
	ctx := context.Background()
	switch op {
	case 0, 1, 2, 3:
		a := alloc.AssignArgs{Owner: alloc.HostOwner(r.host(tr)), Num4: 1 + int(tr.Below(7)), Partial: true}
		if op == 3 {
			a.Num4, a.Num6 = 0, a.Num4
		}
		a.Handle = fmt.Sprint("p", tr.Below(6))
		a.Share = r.share(tr)
		r.autoAssign(e, a, netip.Addr{}, tr.Below(4) == 0, tr.Below(4) == 0)
	case 4:
		host, a, share := r.host(tr), r.address(tr), r.share(tr)
		if share.Max > 0 {
			a = r.shared(a, share)
		}
		for n, first := 0, int(tr.Below(6)); n <= share.Max; n++ { // one more than may join
			r.assignIP(e, alloc.AssignIPArgs{Address: a, Owner: alloc.HostOwner(host), Handle: fmt.Sprint("p", (first+n)%6), Share: share})
		}
	case 5, 6:
		a, g := r.address(tr), alloc.Guard{}
		want := alloc.WasFree
		if n := tr.Below(9); n > 0 && n < 6 { // one holder
			g.Handle = fmt.Sprint("p", n)
			if was, held := r.m.ReleaseOf(a, g.Handle); was {
				want = alloc.Released
			} else if held {
				want = alloc.OwnerChanged
			}
		} else if r.m.Release(a) {
			want = alloc.Released
		}
		if res, err := e.ReleaseIPs(ctx, alloc.Release{Address: a, Guard: g}); err != nil || res[0].Outcome != want {
			r.t.Fatalf("release %s: %v, %v, want %v", a, res, err, want)
		}
	case 7, 8:
		h := fmt.Sprint("p", tr.Below(6))
		want := r.m.ReleaseHandle(h)
		if got, err := e.ReleaseByHandle(ctx, h); err != nil || !slices.Equal(got, want) {
			r.t.Fatalf("release %s: %v, %v, want %v", h, got, err, want)
		}
	case 9:
		host, mustBeEmpty := r.host(tr), tr.Below(2) == 0
		r.m.ReleaseHost("host:"+host, mustBeEmpty)
		if _, err := e.DisownBlocks(ctx, alloc.DisownArgs{Owner: alloc.HostOwner(host), OnlyEmpty: mustBeEmpty}); err != nil && !errors.Is(err, ipalloc.ErrInUse) {
			r.t.Fatal(err)
		}
	case 10:
		r.togglePool(e, int(tr.Below(uint64(len(r.defs)))))
	case 11:
		r.changePool(e, int(tr.Below(uint64(len(r.defs)))), tr.Below(3) == 0)
	case 12:
		r.reserve(e, tr)
	case 13:
		r.configure(e, tr.Below(2) == 0, int(tr.Below(4)))
	case 14:
		r.m.Step(time.Duration(tr.Below(90)) * time.Second)
		if _, err := e.Operator().Sweep(ctx, alloc.SweepArgs{}); err != nil {
			r.t.Fatal(err)
		}
	case 15:
		h := fmt.Sprint("p", tr.Below(6))
		rules, within := r.renewal(tr, 30*time.Second)
		want, why := r.m.Renew(h, rules.TTL, within)
		als, err := e.Renew(ctx, h, rules)
		if slices.ContainsFunc(why, func(why string) bool { return ipamRefusals[why].is(err) }) {
			return
		}
		if n := len(als); n != want || (err != nil) != (n == 0) || n == 0 && !errors.Is(err, ipalloc.ErrNotHeld) {
			r.t.Fatalf("renewed %v of %s: %v", als, h, err)
		}
	default:
		r.more(op, e, tr)
	}
}

// more is the rest of the operations.
func (r *ipamReplay) more(op int, e *ipset.Engine, tr *model.Trace) {
	ctx := context.Background()
	switch op {
	case 16, 17:
		a := alloc.AssignArgs{Owner: alloc.HostOwner(r.host(tr)), Num4: int(tr.Below(4)), Num6: int(tr.Below(3))}
		a.Handle, a.Sticky, a.Partial = fmt.Sprint("p", tr.Below(6)), tr.Below(2) == 0, tr.Below(4) != 0
		a.Blocks.Head, a.Blocks.Tail, a.Blocks.Max = tr.Below(6)/4, tr.Below(6)/5, int(tr.Below(6)/3)
		var from netip.Addr
		if a.Blocks.Max == 1 && !a.Partial {
			if a.Choose = alloc.Contiguous(); a.Num4 != 3 && a.Blocks.Head == 0 {
				a.Choose = alloc.Aligned()
			}
			a.Blocks.Max, a.Sticky = 0, false
		} else if r.steps%3 == 0 {
			def := r.defs[r.steps/3%len(r.defs)]
			from = netip.MustParsePrefix(def.prefix).Addr()
			for range r.steps * 5 % 18 {
				from = from.Next()
			}
			a.Choose = alloc.From(from)
		}
		if n := tr.Below(9); n < 3 {
			r.asked++
			a.Also = []store.Op{{Kind: store.Put, Key: fmt.Sprint("Row/", n), Value: fmt.Sprint(r.asked), Expect: store.AnyRevision}}
		}
		if a.Num4+a.Num6 > 0 {
			r.autoAssign(e, a, from, tr.Below(4) == 0, tr.Below(4) == 0)
		}
	case 18:
		host := r.host(tr)
		want := r.m.ReleaseByHost("host:" + host)
		if got, err := e.ReleaseByHost(ctx, alloc.HostOwner(host)); err != nil || !slices.Equal(got, want) {
			r.t.Fatalf("release by host %s: %v, %v, want %v", host, got, err, want)
		}
	case 19:
		if d := time.Duration(tr.Below(90)) * time.Second; !r.m.Leased() { // leases in blocks of others end by a sweep
			r.m.Step(d)
		}
	case 20:
		keep := int(tr.Below(2))
		if _, err := e.Operator().Sweep(ctx, alloc.SweepArgs{IdleAfter: 70 * time.Second, Keep: keep}); err != nil {
			r.t.Fatal(err)
		}
		r.m.GiveBack(70*time.Second, keep)
	case 21:
		r.claim(e, r.host(tr), r.address(tr))
	case 22:
		a, to := r.address(tr), r.host(tr)
		owner := alloc.HostOwner(to)
		err := e.Update(ctx, alloc.UpdateArgs{Address: a, Host: &owner})
		if ok := r.m.Move(a, "host:"+to); ok != (err == nil) || !ok && !errors.Is(err, ipalloc.ErrNotHeld) && !errors.Is(err, ipalloc.ErrCooling) {
			r.t.Fatalf("move %s to %s: %v, want %v", a, to, err, ok)
		}
	case 23:
		a := alloc.AssignIPArgs{Address: r.address(tr), Owner: alloc.HostOwner(r.host(tr)), Handle: fmt.Sprint("p", tr.Below(6))}
		a.Blocks.Head, a.Blocks.Tail, a.Blocks.Max = tr.Below(6)/4, tr.Below(6)/5, int(tr.Below(6)/3)
		if tr.Below(2) == 0 {
			a.TTL = 40 * time.Second
		}
		a.Share = r.share(tr)
		if als, err := e.IPsByHandle(ctx, fmt.Sprint("p", tr.Below(12))); err == nil && len(als) > 0 {
			a.Address = als[0].Address // held by another
		}
		r.assignIP(e, a)
	case 28, 29, 30:
		r.move(op-28, e, tr)
	case 31, 32:
		r.front(op-31, e, tr)
	default:
		r.lease(op-24, e, tr)
	}
}

// refusal is an error by its sentinel and a part of its text.
type refusal struct {
	sentinel error
	text     string
}

func (r refusal) is(err error) bool {
	if r.sentinel == nil || err == nil {
		return r.sentinel == err
	}
	return errors.Is(err, r.sentinel) && strings.Contains(err.Error(), r.text)
}

// ipamRefusals are the engine's errors for what the twin says stands in the way.
var ipamRefusals = map[string]refusal{
	"":         {},
	"disabled": {ipalloc.ErrNotFound, "no pool qualifies"}, "no pool": {ipalloc.ErrNotFound, "no pool qualifies"},
	"outside": {ipalloc.ErrNotFound, "no pool has the address"},
	"owner":   {ipalloc.ErrOccupied, "the block is another owner's, held by"}, "strict": {ipalloc.ErrOccupied, "affinity is strict"},
	"overlap": {ipalloc.ErrOccupied, "a block that exists is in the way"}, "taken": {ipalloc.ErrOccupied, ": occupied, held by"},
	"cooling": {ipalloc.ErrCooling, "until"}, "reserved": {ipalloc.ErrReserved, ""}, "limit": {ipalloc.ErrLimit, "as many blocks"},
	"key": {ipalloc.ErrMismatch, "is shared under the key"}, "full": {ipalloc.ErrLimit, "holders, held by"},
	"draining": {ipalloc.ErrFull, "draining: "},
	"short":    {ipalloc.ErrFull, "not enough addresses"}, "short, cooling": {ipalloc.ErrCooling, "not enough addresses: "},
	"short, reserved": {ipalloc.ErrReserved, "not enough addresses"}, "short, limit": {ipalloc.ErrLimit, "not enough addresses"}, "size": {ipalloc.ErrInvalid, "leave none of block"}, "ends": {ipalloc.ErrInvalid, "strict affinity"},
}

// claim claims the block of an address by hand.
func (r *ipamReplay) claim(e *ipset.Engine, host string, a netip.Addr) {
	block, size := netip.PrefixFrom(a, a.BitLen()-2).Masked(), -1
	for _, p := range r.m.Pools {
		if p.Prefix.Contains(a) && p.Prefix.Bits() > size {
			block, size = netip.PrefixFrom(a, p.Bits).Masked(), p.Prefix.Bits()
		}
	}
	claimed, failed, err := e.ClaimAffinity(context.Background(), block, alloc.HostOwner(host))
	why := r.m.Claim(block, "host:"+host)
	want, ok := ipamRefusals[why]
	switch {
	case why == "no pool" && errors.Is(err, ipalloc.ErrNotFound) && strings.Contains(err.Error(), "no such pool"):
	case why == "" && err == nil && slices.Equal(claimed, []netip.Prefix{block}):
	case ok && why != "" && err == nil && len(failed) == 1 && want.is(failed[0].Err):
	default:
		r.t.Fatalf("claim %s for %s: %v, %v, %v, want %q", block, host, claimed, failed, err, why)
	}
}

// address returns one of a pool, whether or not the pool is there.
func (r *ipamReplay) address(tr *model.Trace) netip.Addr {
	a := netip.MustParsePrefix(r.defs[tr.Below(uint64(len(r.defs)))].prefix).Addr()
	for range tr.Below(16) {
		a = a.Next()
	}
	return a
}

// wanted returns what the twin is asked for.
func (r *ipamReplay) wanted(owner alloc.Owner, handle string, s alloc.Share, ttl time.Duration) model.IPSetWant {
	w := model.IPSetWant{Owner: owner.String(), Hold: model.IPSetHold{Handle: handle, Host: owner.String(), Since: r.m.Now, Most: s.Max, Key: s.Key}}
	if ttl > 0 {
		w.Hold.Until = r.m.Now.Add(ttl)
	}
	return w
}

// ttl returns the time to live of what is leased.
func ttl(lease bool) time.Duration {
	if lease {
		return 40 * time.Second
	}
	return 0
}

func (r *ipamReplay) autoAssign(e *ipset.Engine, a alloc.AssignArgs, from netip.Addr, lease, repeat bool) {
	a.Use, a.TTL = alloc.Workload, ttl(lease)
	w := r.wanted(a.Owner, a.Handle, a.Share, a.TTL)
	w.N, w.Sticky, w.All, w.Head, w.Tail, w.Most = [2]int{a.Num4, a.Num6}, a.Sticky, !a.Partial, int(a.Blocks.Head), int(a.Blocks.Tail), a.Blocks.Max
	w.Aligned, w.From = a.Choose == alloc.Aligned(), from
	w.Row = w.Aligned || a.Choose == alloc.Contiguous()
	if repeat {
		r.asked++
		a.Request = fmt.Sprint("request ", r.asked)
	}
	assign := e.AutoAssign
	if r.offering {
		assign = e.Offer
	}
	got, err := assign(context.Background(), a)
	if repeat && err == nil {
		again, err := r.e[r.asked%2].AutoAssign(context.Background(), a)
		if err != nil || !slices.Equal(again.V4, got.V4) || !slices.Equal(again.V6, got.V6) {
			r.t.Fatalf("the repeated request got %+v, %v, the first %+v", again, err, got)
		}
		r.given = append(r.given, given{a, append(slices.Clone(got.V4), got.V6...)})
	}
	if w.Head+w.Tail > 0 && !r.m.Strict {
		if !ipamRefusals["ends"].is(err) {
			r.t.Fatalf("%+v: %v", a, err)
		}
		return
	}
	r.m.Choose = chooseOf(append(slices.Clone(got.V4), got.V6...))
	want, why := r.m.AutoAssign(w)
	if why == "short" {
		why = onlyReason(got.Short)
	}
	if why != "" {
		if !ipamRefusals[why].is(err) {
			r.t.Fatalf("%+v: %v, want %q", a, err, why)
		}
		return
	}
	all := append(got.V4, got.V6...)
	if err != nil || !slices.EqualFunc(all, want, func(al alloc.Allocation, a netip.Addr) bool { return al.Address == a && al.Host.String() == w.Owner }) {
		r.t.Fatalf("%+v got %v, %v, want %v", a, all, err, want)
	}
	for f, n := range w.N {
		short := slices.ContainsFunc(got.Short, func(s alloc.Shortage) bool { return s.Family == 4+2*f })
		if given := [2]int{len(got.V4), len(got.V6)}[f]; short != (given < n) {
			r.t.Fatalf("%d of %d, short: %v", given, n, got.Short)
		}
	}
	for _, al := range all {
		r.fresh(al)
	}
	if r.offering && len(want) > 0 {
		r.m.First(a.Handle, want)
	}
	for _, op := range a.Also {
		if len(all) > 0 {
			r.rows[op.Key] = op.Value
		}
	}
}

// onlyReason returns the refusal of a call that is short.
func onlyReason(short []alloc.Shortage) string {
	for _, s := range short {
		if s.Reason != short[0].Reason {
			return "short"
		}
	}
	if len(short) == 0 {
		return "no shortage is named"
	}
	switch short[0].Reason {
	case alloc.ReasonCoolingLeft:
		return "short, cooling"
	case alloc.ReasonReservedLeft:
		return "short, reserved"
	case alloc.ReasonLimitReached:
		return "short, limit"
	}
	return "short"
}

// fresh verifies that an address never has a sequence number twice.
func (r *ipamReplay) fresh(al alloc.Allocation) {
	k := alloc.Release{Address: al.Address, Guard: alloc.Guard{Seq: al.Seq}}
	if r.seen[k] {
		r.t.Fatalf("%s has sequence number %d again", al.Address, al.Seq)
	}
	r.seen[k] = true
}

func (r *ipamReplay) assignIP(e *ipset.Engine, a alloc.AssignIPArgs) {
	w := r.wanted(a.Owner, a.Handle, a.Share, a.TTL)
	w.Head, w.Tail, w.Most = int(a.Blocks.Head), int(a.Blocks.Tail), a.Blocks.Max
	had := r.m.Has(a.Address, a.Handle)
	al, err := e.AssignIP(context.Background(), a)
	why := "ends"
	if w.Head+w.Tail == 0 || r.m.Strict || errors.Is(err, ipalloc.ErrNotFound) {
		why = r.m.AssignIP(a.Address, w)
	}
	if !ipamRefusals[why].is(err) {
		r.t.Fatalf("assign %+v: %v, want %q", a, err, why)
	}
	if err == nil && !had {
		r.fresh(al)
	}
}

// compare compares all blocks, and verifies the store.
func (r *ipamReplay) compare(op int) {
	r.t.Helper()
	rep, err := r.e[0].Operator().Check(context.Background(), nil)
	if err != nil {
		r.t.Fatal(err)
	}
	for _, p := range rep.Problems {
		if p.Kind != audit.NoPool {
			r.t.Fatalf("after op %d: %s", op, p)
		}
	}
	rows, _, err := r.store.List(context.Background(), store.Range{From: "Row/", To: "Row0"})
	if err != nil || len(rows) != len(r.rows) || slices.ContainsFunc(rows, func(rec store.Record) bool { return rec.Value != r.rows[rec.Key] }) {
		r.t.Fatalf("after op %d: rows %v, %v, want %v", op, rows, err, r.rows)
	}
	n := 0
	for b, err := range r.e[0].Operator().Blocks(context.Background(), netip.Prefix{}) {
		if err != nil {
			r.t.Fatal(err)
		}
		m := r.m.Blocks[b.Prefix()]
		if m == nil && b.Owner().Kind == alloc.Nobody && b.Used()+b.Cooling() == 0 {
			continue // time has emptied it, and no call has met it
		}
		if m == nil {
			r.t.Fatalf("after op %d: block %s should not be", op, b.Prefix())
		}
		compareBlock(r.t, b, m)
		n++
	}
	if n != len(r.m.Blocks) {
		r.t.Fatalf("after op %d: %d blocks, want %d", op, n, len(r.m.Blocks))
	}
	r.compareUse(op)
}

// compareUse compares what the pools say of their addresses.
func (r *ipamReplay) compareUse(op int) {
	use, err := r.e[0].Utilization(context.Background())
	if err != nil {
		r.t.Fatal(err)
	}
	for i, p := range r.m.Pools {
		u := use[i]
		all, held, cooling, available := r.m.Use(p)
		sum := u.Used.Add(u.Cooling).Add(u.Reserved).Add(u.Draining).Add(u.Available)
		if want := (alloc.Count{Lo: uint64(all)}); u.Pool != p.Name || u.Capacity != want || sum != want || u.Used.Lo != uint64(held) || u.Cooling.Lo != uint64(cooling) || u.Available.Lo != uint64(available) {
			r.t.Fatalf("after op %d: pool %s has %d addresses, %d held, %d cooling, %d available; says %+v", op, p.Name, all, held, cooling, available, u)
		}
	}
}

// FuzzIPAM replays traces on engines that share a store, and on their twin.
func FuzzIPAM(f *testing.F) {
	for i := range 8 {
		f.Add(randomBytes(uint64(i)+100, 80))
	}
	f.Fuzz(func(t *testing.T, data []byte) { replayIPAMTest(t, data[:min(len(data), 160)]) }) // the twin is slow
}

func replayIPAMTest(t *testing.T, data []byte) { replayIPAM(t, ipamPools, [2]int{0, 3}, data) }

func TestIPAMAgainstTwin(t *testing.T) {
	for seed := range seeds.Each(t, 120, 120) {
		replayIPAMTest(t, randomBytes(seed+1000, 600))
	}
}
