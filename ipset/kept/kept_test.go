package kept_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"go4.org/netipx"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/test/faults"
	"github.com/ipalloc/ipalloc/ipset"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/kept"
	"github.com/ipalloc/ipalloc/ipset/store"
)

var (
	bg     = context.Background()
	server = alloc.VirtualOwner("dhcp")
	pool   = alloc.Pool{Name: "p", Prefix: netip.MustParsePrefix("192.168.1.0/24"), BlockBits: 26,
		Ranges: []netipx.IPRange{netipx.MustParseIPRange("192.168.1.100-192.168.1.103")}}
)

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func second[T any](_ T, err error) error { return err }

// fixture is a keeper beside an engine, on a clock that the test moves.
type fixture struct {
	t   *testing.T
	db  *store.Memory
	e   *ipset.Engine
	k   *kept.Keeper
	now time.Time
}

func newFixture(t *testing.T, p alloc.Pool, c alloc.Config) *fixture {
	f := &fixture{t: t, db: store.NewMemory(), now: time.Unix(1e9, 0)}
	o := ipset.Options{Now: func() time.Time { return f.now }}
	f.e, f.k = must(ipset.New(f.db, o)), must(kept.New(f.db, server, o))
	if err := errors.Join(f.e.AddPool(bg, p), f.e.Operator().SetConfig(bg, c)); err != nil {
		t.Fatal(err)
	}
	return f
}

func (f *fixture) is(what string, err, want error) {
	f.t.Helper()
	if !errors.Is(err, want) || want == nil && err != nil {
		f.t.Errorf("%s: %v, want %v", what, err, want)
	}
}

func (f *fixture) offer(o alloc.Owner, mac string) (netip.Addr, error) {
	got, err := f.k.Offer(bg, alloc.AssignArgs{Owner: o, Num4: 1, Handle: mac, TTL: time.Hour})
	if err != nil {
		return netip.Addr{}, err
	}
	return got.V4[0].Address, nil
}

// TestStranger: a stranger's request for a kept address outside the ranges fails by these, as for every address there.
func TestStranger(t *testing.T) {
	f := newFixture(t, pool, alloc.Config{})
	outside := netip.MustParseAddr("192.168.1.9")
	f.is("keep", f.k.Keep(bg, outside, "printer"), nil)
	f.is("a kept one", second(f.k.AssignIP(bg, alloc.AssignIPArgs{Address: outside, Owner: server, Handle: "thief"})), ipalloc.ErrReserved)
	f.is("a free one", second(f.k.AssignIP(bg, alloc.AssignIPArgs{Address: outside.Next(), Owner: server, Handle: "thief"})), ipalloc.ErrReserved)
	f.is("its own", second(f.k.AssignIP(bg, alloc.AssignIPArgs{Address: outside, Owner: server, Handle: "printer"})), nil)
	f.check()
}

func (f *fixture) check() {
	f.t.Helper()
	if r, err := f.e.Operator().Check(bg, nil); err != nil || len(r.Problems) > 0 {
		f.t.Error(err, r.Problems)
	}
}

// TestKept: an address that is kept survives every end of its user's holding, and no other handle gets it.
func TestKept(t *testing.T) {
	for _, cooldown := range []time.Duration{0, time.Minute} {
		p, other := pool, alloc.HostOwner("n1")
		p.Cooldown = cooldown
		f := newFixture(t, p, alloc.Config{})
		a, err := f.offer(server, "printer")
		f.is("lease", err, nil)
		f.is("keep", f.k.Keep(bg, a, "printer"), nil)
		rev := must(f.e.Lookup(bg, a)).Seq
		f.is("again", f.k.Keep(bg, a, "printer"), nil)
		if is := must(f.e.Lookup(bg, a)).Seq; is != rev {
			t.Errorf("keeping again changed the number %d to %d", rev, is)
		}
		f.is("renew", second(f.k.RenewIP(bg, a, "printer", alloc.RenewArgs{TTL: time.Hour})), nil)
		f.is("for another", f.k.Keep(bg, a, "mac2"), ipalloc.ErrMismatch)
		f.is("release", second(f.e.ReleaseIPs(bg, alloc.Release{Address: a, Guard: alloc.Guard{Handle: "printer"}})), nil)
		for _, mac := range []string{"b", "c", "d"} {
			if x, err := f.offer(server, mac); err != nil || x == a {
				t.Error(mac, x, err)
			}
		}
		f.is("full", second(f.offer(server, "e")), ipalloc.ErrFull)
		f.is("by name", second(f.e.AssignIP(bg, alloc.AssignIPArgs{Address: a, Owner: other, Handle: "thief"})), ipalloc.ErrOccupied)
		if x, err := f.offer(other, "printer"); x != a || err != nil {
			t.Error("back", x, err)
		}
		_, _, err = f.e.RemoveHost(bg, other)
		f.is("host gone", err, nil)
		f.now = f.now.Add(3 * time.Hour)
		f.is("sweep", second(f.e.Operator().Sweep(bg, alloc.SweepArgs{})), nil)
		if as, err := f.k.Of(bg, "printer"); len(as) != 1 || as[0].Address != a || err != nil {
			t.Error("kept no more", as, err)
		}
		f.is("b again", second(f.offer(server, "b")), nil)
		out := netip.MustParseAddr("192.168.1.7")
		f.is("keep outside of the range", f.k.Keep(bg, out, "b"), nil)
		had := must(f.e.IPsByHandle(bg, "b"))
		f.is("must move", second(f.k.RenewIP(bg, had[0].Address, "b", alloc.RenewArgs{TTL: time.Hour})), ipalloc.ErrMismatch)
		if x, err := f.offer(server, "b"); x != out || err != nil {
			t.Error("moved", x, err)
		}
		n := 0
		for k, err := range f.k.All(bg) {
			if n++; err != nil || k.Handle != map[netip.Addr]string{a: "printer", out: "b"}[k.Address] {
				t.Error(k, err)
			}
		}
		if as, err := f.k.Drop(bg, "printer"); len(as) != 1 || n != 2 || err != nil {
			t.Error(as, n, err)
		}
		f.check()
	}
}

// TestReservedNames: every other call refuses the names of the package, and no guard but the keeper's own handle releases a keeper.
func TestReservedNames(t *testing.T) {
	f := newFixture(t, pool, alloc.Config{})
	a := netip.MustParseAddr("192.168.1.100")
	f.is("keep", f.k.Keep(bg, a, "db"), nil)
	seq := must(f.e.Lookup(bg, a)).Seq
	host := alloc.HostOwner("n")
	for what, err := range map[string]error{
		"the key":          second(f.e.AssignIP(bg, alloc.AssignIPArgs{Address: a, Owner: host, Handle: "thief", Share: alloc.Share{Max: 2, Key: "kept/db"}})),
		"the handle":       second(f.e.AutoAssign(bg, alloc.AssignArgs{Owner: host, Num4: 1, Handle: "kept/db"})),
		"named":            second(f.e.AssignIPs(bg, alloc.AssignArgs{Owner: host, Handle: "kept/db"}, a)),
		"Assign":           second(f.e.Assign(bg, host, "kept/db")),
		"Offer":            second(f.e.Offer(bg, alloc.AssignArgs{Owner: host, Num4: 1, Handle: "kept/db", TTL: 1})),
		"by handle":        second(f.e.ReleaseByHandle(bg, "kept/db")),
		"Release":          second(f.e.Release(bg, alloc.ReleaseArgs{Handle: "kept/db"})),
		"Release by guard": second(f.e.Release(bg, alloc.ReleaseArgs{Addresses: []alloc.Release{{Address: a, Guard: alloc.Guard{Handle: "kept/db"}}}})),
		"ReleaseIPs":       second(f.e.ReleaseIPs(bg, alloc.Release{Address: a, Guard: alloc.Guard{Handle: "kept/db"}})),
		"Update":           f.e.Update(bg, alloc.UpdateArgs{Address: a, Guard: alloc.Guard{Handle: "kept/db"}, Host: &host}),
		"Transfer":         second(f.e.Transfer(bg, alloc.TransferArgs{From: "x", To: "kept/db"})),
		"Transfer from":    second(f.e.Transfer(bg, alloc.TransferArgs{From: "kept/db", To: "x"})),
		"Decline":          second(f.e.Decline(bg, alloc.DeclineArgs{Address: a, Guard: alloc.Guard{Handle: "kept/db"}, For: 1})),
	} {
		f.is(what, err, ipalloc.ErrInvalid)
	}
	for what, g := range map[string]alloc.Guard{"no guard": {}, "by number": {Seq: seq}} {
		if res := must(f.e.ReleaseIPs(bg, alloc.Release{Address: a, Guard: g})); res[0].Outcome != alloc.OwnerChanged {
			t.Errorf("released by %s: %v", what, res)
		}
		f.is("declined by "+what, second(f.e.Decline(bg, alloc.DeclineArgs{Address: a, Guard: g, For: 1})), ipalloc.ErrMismatch)
	}
	released, err := f.e.Operator().NewCollector(0).Collect(bg, func(alloc.Allocation) alloc.Liveness { return alloc.Gone })
	if len(released) > 0 || err != nil {
		t.Error("collected", released, err)
	}
	if as := must(f.k.Of(bg, "db")); len(as) != 1 {
		t.Error("not kept any more")
	}
	f.check()
}

// TestKeepInAnothersBlock: under strict affinity an address is kept in the block of a host, and its handle gets it there.
func TestKeepInAnothersBlock(t *testing.T) {
	f := newFixture(t, pool, alloc.Config{Strict: true})
	al := must(f.e.Assign(bg, alloc.HostOwner("a"), "x"))
	at := al.Address.Next()
	f.is("keep", f.k.Keep(bg, at, "vm"), nil)
	if got := must(f.k.Assign(bg, alloc.HostOwner("b"), "vm")); got.Address != at {
		t.Errorf("got %v, kept %v", got, at)
	}
	if blocks := must(f.e.BlocksOf(bg, alloc.HostOwner("a"))); len(blocks) != 1 {
		t.Errorf("a has %v", blocks)
	}
	f.check()
}

// TestDecline: the address stays kept, the client gets another one meanwhile, and has to come back afterwards.
func TestDecline(t *testing.T) {
	f := newFixture(t, pool, alloc.Config{})
	a := netip.MustParseAddr("192.168.1.101")
	f.is("keep", f.k.Keep(bg, a, "mac"), nil)
	if x, err := f.offer(server, "mac"); x != a || err != nil {
		t.Fatal(x, err)
	}
	f.is("by another", f.k.Decline(bg, a, "thief", time.Minute), ipalloc.ErrMismatch)
	f.is("decline", f.k.Decline(bg, a, "mac", time.Minute), nil)
	x, err := f.offer(server, "mac")
	if x == a || err != nil {
		t.Fatal("after the decline", x, err)
	}
	f.is("renew meanwhile", second(f.k.RenewIP(bg, x, "mac", alloc.RenewArgs{TTL: time.Hour})), nil)
	f.now = f.now.Add(2 * time.Minute)
	f.is("renew after it", second(f.k.RenewIP(bg, x, "mac", alloc.RenewArgs{TTL: time.Hour})), ipalloc.ErrMismatch)
	f.is("another by name", second(f.k.AssignIP(bg, alloc.AssignIPArgs{Address: x, Owner: server, Handle: "mac"})), ipalloc.ErrMismatch)
	if got := must(f.k.AssignIP(bg, alloc.AssignIPArgs{Address: a, Owner: server, Handle: "mac", TTL: time.Hour})); got.Address != a {
		t.Error(got)
	}
	f.check()
}

// TestRandomCallsNeverTakeIt: whatever calls are made, by whatever handles, cut off at any call of the store and repeated, a kept
// address is held by its keeper, and by its own handle or nobody else.
func TestRandomCallsNeverTakeIt(t *testing.T) {
	n := 1_000_000
	if testing.Short() {
		n = 3_000
	}
	p := pool
	p.Ranges, p.Cooldown, p.Prefix = nil, time.Second, netip.MustParsePrefix("192.168.1.0/27")
	p.BlockBits = 29
	f := newFixture(t, p, alloc.Config{})
	flaky := faults.NewFaulty(f.db)
	o := ipset.Options{Now: func() time.Time { return f.now }, Retry: ipset.Retry{Sleep: func(ctx context.Context, _ time.Duration) error { return ctx.Err() }}}
	e, k := must(ipset.New(flaky, o)), must(kept.New(flaky, server, o))
	keptFor := map[netip.Addr]string{}
	for i, h := range []string{"h0", "h1", "h2"} {
		a := netip.AddrFrom4([4]byte{192, 168, 1, byte(3 + 9*i)})
		f.is("keep", f.k.Keep(bg, a, h), nil)
		keptFor[a] = h
	}
	r := rand.New(rand.NewPCG(1, 2))
	for i := range n {
		a, h, host := netip.AddrFrom4([4]byte{192, 168, 1, byte(r.IntN(32))}), fmt.Sprint("h", r.IntN(6)), alloc.HostOwner(fmt.Sprint("n", r.IntN(3)))
		args := alloc.AssignArgs{Owner: host, Num4: 1, Handle: h, TTL: time.Duration(r.IntN(20)) * time.Second, Sticky: r.IntN(3) == 0}
		g := alloc.Guard{Handle: h, Seq: uint64(r.IntN(3) / 2 * r.IntN(9))}
		if r.IntN(3) == 0 {
			g.Handle = ""
		}
		at := r.IntN(12)
		flaky.Reset()
		flaky.Script(faults.At(at, faults.Unknown(r.IntN(2) == 0)))
		op := r.IntN(18)
		for range 2 { // cut off, and repeated
			switch op {
			case 0:
				_, _ = e.AutoAssign(bg, args)
			case 1:
				args.Choose = alloc.Prefer(a)
				_, _ = e.AutoAssign(bg, args)
			case 2:
				_, _ = e.AssignIP(bg, alloc.AssignIPArgs{Address: a, Owner: host, Handle: h, Share: alloc.Share{Max: 3, Key: "kept/h1"}})
			case 3:
				_, _ = e.AssignIP(bg, alloc.AssignIPArgs{Address: a, Owner: host, Handle: h})
			case 4:
				_, _ = e.ReleaseByHandle(bg, h)
			case 5:
				_, _ = e.ReleaseIPs(bg, alloc.Release{Address: a, Guard: g})
			case 6:
				_, _, _ = e.RemoveHost(bg, host)
			case 7:
				_, _ = e.Decline(bg, alloc.DeclineArgs{Address: a, Guard: g, For: time.Second})
			case 8:
				_ = e.Update(bg, alloc.UpdateArgs{Address: a, Guard: g, Host: &host})
			case 9:
				_, _ = e.Operator().Sweep(bg, alloc.SweepArgs{IdleAfter: time.Second})
			case 10:
				_, _ = k.Offer(bg, alloc.AssignArgs{Owner: host, Num4: 1, Handle: h, TTL: 5 * time.Second})
			case 11:
				_, _ = k.Assign(bg, host, h)
			case 12:
				_, _ = k.RenewIP(bg, a, h, alloc.RenewArgs{TTL: time.Minute})
			case 13:
				_ = k.Decline(bg, a, h, time.Second)
			case 14:
				_ = k.Keep(bg, a, keptFor[a]+"x") // for another, or refused
				if keptFor[a] == "" {
					_, _ = f.k.Drop(bg, "x")
				}
			case 15:
				_, _ = e.Renew(bg, h, alloc.RenewArgs{TTL: time.Minute})
			case 16:
				args := alloc.TransferArgs{From: h, To: fmt.Sprint("h", r.IntN(6))}
				if r.IntN(2) == 0 {
					args.Address = a
				}
				_, _ = e.Transfer(bg, args)
			case 17:
				_, _, _ = e.Operator().RenameHost(bg, alloc.RenameArgs{From: host, To: alloc.HostOwner("n0"), Merge: true})
			}
			flaky.Script(nil)
		}
		f.now = f.now.Add(time.Duration(r.IntN(3)) * time.Second)
		for a, h := range keptFor {
			al, err := f.e.Lookup(bg, a)
			keeper := false
			for x := range al.Holders() {
				keeper = keeper || x.Handle == "kept/"+h
				if x.Handle != h && x.Handle != "kept/"+h {
					t.Fatalf("call %d of %d: %v is kept for %s and held by %s", op, i, a, h, x.Handle)
				}
			}
			if err != nil || !keeper {
				t.Fatalf("call %d of %d: %v is kept for %s no more: %+v, %v", op, i, a, h, al, err)
			}
		}
	}
	f.check()
}

// An address that cools after another handle cannot be kept until its cooldown has ended.
func TestKeepCooling(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	db, o := store.NewMemory(), ipset.Options{Now: func() time.Time { return now }}
	e := must(ipset.New(db, o))
	k := must(kept.New(db, alloc.VirtualOwner("keeper"), o))
	if err := e.AddPool(bg, alloc.Pool{Name: "lan", Prefix: netip.MustParsePrefix("10.0.0.0/28"), BlockBits: 28, Cooldown: time.Hour}); err != nil {
		t.Fatal(err)
	}
	a := must(e.Assign(bg, alloc.VirtualOwner("lan"), "ann")).Address
	must(e.ReleaseByHandle(bg, "ann"))
	if err := k.Keep(bg, a, "printer"); !errors.Is(err, ipalloc.ErrCooling) {
		t.Errorf("while it cools: %v", err)
	}
	now = now.Add(time.Hour)
	if err := k.Keep(bg, a, "printer"); err != nil {
		t.Errorf("after the cooldown: %v", err)
	}
}

// TestDroppedCools: an address that was dropped and cools is not listed as kept.
func TestDroppedCools(t *testing.T) {
	p := pool
	p.Cooldown = time.Hour
	f := newFixture(t, p, alloc.Config{})
	f.is("keep", f.k.Keep(bg, netip.MustParseAddr("192.168.1.100"), "mac"), nil)
	f.is("drop", second(f.k.Drop(bg, "mac")), nil)
	for k, err := range f.k.All(bg) {
		t.Errorf("kept: %v, %v", k, err)
	}
}

// TestDroppedAddressesLeaveNoRecord: when nothing is held or kept any more, the store has the records that it had before.
func TestDroppedAddressesLeaveNoRecord(t *testing.T) {
	f := newFixture(t, pool, alloc.Config{})
	keyed := func() map[string]string {
		all := make(map[string]string)
		for _, r := range rows(f.db.List(bg, store.Range{})) {
			if r.Key[0] != 's' { // page marks keep sequence numbers
				all[r.Key] = r.Value
			}
		}
		return all
	}
	before := keyed()
	for end, undo := range map[string]func(a netip.Addr) error{
		"released, then dropped": func(netip.Addr) error {
			return errors.Join(second(f.e.ReleaseByHandle(bg, "printer")), second(f.k.Drop(bg, "printer")))
		},
		"dropped, then released": func(netip.Addr) error {
			return errors.Join(second(f.k.Drop(bg, "printer")), second(f.e.ReleaseByHandle(bg, "printer")))
		},
		"declined": func(a netip.Addr) error {
			err := f.k.Decline(bg, a, "printer", time.Minute)
			f.now = f.now.Add(time.Hour)
			return errors.Join(err, second(f.k.Drop(bg, "printer")))
		},
	} {
		al, err := f.k.Assign(bg, server, "printer")
		if err == nil {
			err = f.k.Keep(bg, al.Address, "printer")
		}
		if err == nil {
			err = undo(al.Address)
		}
		f.now = f.now.Add(time.Hour)
		_, swept := f.e.Operator().Sweep(bg, alloc.SweepArgs{IdleAfter: time.Minute})
		_, _, removed := f.e.RemoveHost(bg, server)
		if after := keyed(); errors.Join(err, swept, removed) != nil || !maps.Equal(after, before) {
			t.Errorf("%s: %v, %v, %q, before %q", end, err, swept, after, before)
		}
	}
}

func rows(recs []store.Record, _ uint64, err error) []store.Record { return must(recs, err) }
