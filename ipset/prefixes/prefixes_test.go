package prefixes

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net/netip"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/cidrset"
	"github.com/ipalloc/ipalloc/internal/test/faults"
	"github.com/ipalloc/ipalloc/internal/test/seeds"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// refused verifies the sentinel and the field of an error of this package.
func refused(t *testing.T, what string, err error, field string, sentinel error) {
	t.Helper()
	var e *ipalloc.Error
	if !errors.As(err, &e) || !errors.Is(err, sentinel) || e.Field != field || e.Package != pkg || e.Op == "" {
		t.Errorf("%s: %v, want %v of field %q", what, err, sentinel, field)
	}
}

// Each argument that cannot be is refused with its field, and nothing is written.
func TestInvalid(t *testing.T) {
	ctx := context.Background()
	s, a := furnished(t)
	before := fmt.Sprint(records(t, s))
	p := netip.MustParsePrefix
	pool, long := p("10.0.0.0/8"), strings.Repeat("x", MaxAttributes+1)
	unmasked, mapped := netip.PrefixFrom(pool.Addr().Next(), 8), p("::ffff:10.0.0.0/104")
	good := Request{Pool: pool, Owner: "o", Bits: 20}
	with := func(change func(*Request)) Request { r := good; change(&r); return r }
	for _, c := range []struct {
		field    string
		sentinel error
		r        Request
	}{
		{"Pool", ipalloc.ErrInvalid, with(func(r *Request) { r.Pool = netip.Prefix{} })},
		{"Pool", ipalloc.ErrInvalid, with(func(r *Request) { r.Pool = unmasked })},
		{"Pool", ipalloc.ErrInvalid, with(func(r *Request) { r.Pool, r.Bits = mapped, 120 })},
		{"Owner", ipalloc.ErrInvalid, with(func(r *Request) { r.Owner = "" })},
		{"Owner", ipalloc.ErrInvalid, with(func(r *Request) { r.Owner = "a\x00b" })},
		{"Owner", ipalloc.ErrInvalid, with(func(r *Request) { r.Owner = long })},
		{"Bits", ipalloc.ErrInvalid, with(func(r *Request) { r.Bits = 7 })},
		{"Bits", ipalloc.ErrInvalid, with(func(r *Request) { r.Bits = -1 })},
		{"Bits", ipalloc.ErrInvalid, with(func(r *Request) { r.Bits = 33 })},
		{"Children", ipalloc.ErrInvalid, with(func(r *Request) { r.Children = Sizes{20, 24} })},
		{"Children", ipalloc.ErrInvalid, with(func(r *Request) { r.Children = Sizes{24, 22} })},
		{"Children", ipalloc.ErrInvalid, with(func(r *Request) { r.Children = Sizes{21, 33} })},
		{"Children", ipalloc.ErrInvalid, with(func(r *Request) { r.Children = Sizes{0, 24} })},
		{"Attributes", ipalloc.ErrInvalid, with(func(r *Request) { r.Attributes = long })},
		{"", ipalloc.ErrNotFound, with(func(r *Request) { r.Pool = p("11.0.0.0/8") })},
		{"", ipalloc.ErrNotFound, with(func(r *Request) { r.Pool = p("10.16.0.0/12") })},
		{"", ipalloc.ErrOutOfRange, with(func(r *Request) { r.Bits = 11 })},
		{"", ipalloc.ErrOutOfRange, with(func(r *Request) { r.Bits = 25 })},
	} {
		_, err := a.Allocate(ctx, c.r)
		refused(t, fmt.Sprintf("Allocate(%.60v)", c.r), err, c.field, c.sentinel)
		_, err = a.Assign(ctx, c.r)
		refused(t, fmt.Sprintf("Assign(%.60v)", c.r), err, c.field, c.sentinel)
	}
	if after := fmt.Sprint(records(t, s)); after != before {
		t.Errorf("records changed:\n%s\nwere\n%s", after, before)
	}
}

// The other calls refuse theirs too.
func TestInvalidCalls(t *testing.T) {
	ctx := context.Background()
	s, a := furnished(t)
	before := fmt.Sprint(records(t, s))
	p := netip.MustParsePrefix
	pool, long := p("10.0.0.0/8"), strings.Repeat("x", MaxAttributes+1)
	held, unmasked, mapped := p("10.0.0.0/16"), netip.PrefixFrom(pool.Addr().Next(), 8), p("::ffff:10.0.0.0/104")
	good := Request{Pool: pool, Owner: "o", Bits: 20}
	call := func(what, field string, sentinel, err error) { t.Helper(); refused(t, what, err, field, sentinel) }
	call("New", "db", ipalloc.ErrInvalid, second(New(nil, Options{})))
	call("New", "Attempts", ipalloc.ErrInvalid, second(New(s, Options{Attempts: -1})))
	for _, pool := range []Pool{{unmasked, Sizes{9, 24}}, {mapped, Sizes{120, 128}}, {}} {
		call("AddPool", "Prefix", ipalloc.ErrInvalid, a.AddPool(ctx, pool))
	}
	for _, sizes := range []Sizes{{}, {7, 9}, {12, 9}, {9, 33}} {
		call("AddPool", "Sizes", ipalloc.ErrInvalid, a.AddPool(ctx, Pool{p("11.0.0.0/8"), sizes}))
	}
	call("AddPool", "", ipalloc.ErrExists, a.AddPool(ctx, Pool{p("10.0.0.0/7"), Sizes{8, 9}}))
	call("AddPool", "Sizes", ipalloc.ErrExists, a.AddPool(ctx, Pool{pool, Sizes{9, 24}}))
	call("RemovePool", "pool", ipalloc.ErrInvalid, a.RemovePool(ctx, unmasked))
	call("RemovePool", "", ipalloc.ErrNotFound, a.RemovePool(ctx, held))
	call("RemovePool", "", ipalloc.ErrInUse, a.RemovePool(ctx, pool))
	call("Occupy", "at", ipalloc.ErrInvalid, second(a.Occupy(ctx, unmasked, good)))
	call("Occupy", "Pool", ipalloc.ErrInvalid, second(a.Occupy(ctx, held, Request{Owner: "o"})))
	call("Occupy", "", ipalloc.ErrOutOfRange, second(a.Occupy(ctx, p("11.0.0.0/16"), good)))
	call("Occupy", "", ipalloc.ErrOutOfRange, second(a.Occupy(ctx, p("fd00::/48"), good)))
	call("Occupy", "", ipalloc.ErrOutOfRange, second(a.Occupy(ctx, pool, good)))
	call("Occupy", "", ipalloc.ErrOccupied, second(a.Occupy(ctx, p("10.0.0.0/15"), good)))
	call("Occupy", "", ipalloc.ErrOccupied, second(a.Occupy(ctx, p("10.0.15.0/24"), good)))
	call("Release", "owner", ipalloc.ErrInvalid, a.Release(ctx, held, ""))
	call("Release", "at", ipalloc.ErrInvalid, a.Release(ctx, unmasked, "o"))
	call("Release", "", ipalloc.ErrNotHeld, a.Release(ctx, held, "o"))
	call("ReleaseByOwner", "owner", ipalloc.ErrInvalid, second(a.ReleaseByOwner(ctx, "")))
	call("Transfer", "to", ipalloc.ErrInvalid, second(a.Transfer(ctx, held, "owner0", "")))
	call("Transfer", "from", ipalloc.ErrInvalid, second(a.Transfer(ctx, held, "", "o")))
	call("SetAttributes", "Attributes", ipalloc.ErrInvalid, second(a.SetAttributes(ctx, held, "owner0", long)))
	call("Fits", "pool", ipalloc.ErrInvalid, second(a.Fits(ctx, unmasked, 20)))
	call("Fits", "", ipalloc.ErrOutOfRange, second(a.Fits(ctx, pool, 30)))
	call("Get", "at", ipalloc.ErrInvalid, second(a.Get(ctx, unmasked)))
	call("Get", "", ipalloc.ErrNotFound, second(a.Get(ctx, p("10.0.0.0/9"))))
	call("Path", "at", ipalloc.ErrInvalid, second(a.Path(ctx, unmasked)))
	call("Owned", "owner", ipalloc.ErrInvalid, second(a.Owned(ctx, "")))
	call("Utilization", "pool", ipalloc.ErrInvalid, second(a.Utilization(ctx, unmasked)))
	call("Levels", "", ipalloc.ErrNotFound, second(a.Levels(ctx, p("10.0.0.0/9"))))
	for _, err := range a.All(ctx, unmasked) {
		call("All", "within", ipalloc.ErrInvalid, err)
	}
	if after := fmt.Sprint(records(t, s)); after != before {
		t.Errorf("records changed:\n%s\nwere\n%s", after, before)
	}
}

// What stands in the way is named: what covers a prefix, what lies in it, and what is held
// from a pool, also where that has prefixes held from it in turn.
func TestInTheWay(t *testing.T) {
	ctx := context.Background()
	_, a := furnished(t)
	p := netip.MustParsePrefix
	for _, c := range []struct {
		err    error
		at     string
		holder string
	}{
		{func() error {
			_, err := a.Occupy(ctx, p("10.0.0.0/15"), Request{Pool: p("10.0.0.0/8"), Owner: "o"})
			return err
		}(), "10.0.0.0/16", "owner0"},
		{func() error {
			_, err := a.Occupy(ctx, p("10.0.15.0/24"), Request{Pool: p("10.0.0.0/8"), Owner: "o"})
			return err
		}(), "10.0.0.0/16", "owner0"},
		{func() error {
			_, err := a.Occupy(ctx, p("10.0.0.192/26"), Request{Pool: p("10.0.0.0/20"), Owner: "o"})
			return err
		}(), "10.0.0.128/25", "owner3"},
		{a.Release(ctx, p("10.0.0.0/16"), "owner0"), "10.0.0.0/20", "owner1"},
		{a.Release(ctx, p("10.0.0.0/20"), "owner1"), "10.0.0.0/32", "owner2"},
		{a.Release(ctx, p("10.0.0.0/20"), "x"), "invalid Prefix", "owner1"},
		{a.RemovePool(ctx, p("fd00::/40")), "fd00::/64", "owner3"},
	} {
		var e *ipalloc.Error
		if !errors.As(c.err, &e) || e.InTheWay.String() != c.at || e.Holder != c.holder {
			t.Errorf("%v: in the way %v of %q, want %v of %q", c.err, e.InTheWay, e.Holder, c.at, c.holder)
		}
	}
}

// cidrset.Set.AllocatePrefix, which hands out prefixes of a pool in memory, gives the same
// answers.
func TestAgreesWithCidrset(t *testing.T) {
	ctx := context.Background()
	for seed := range seeds.Each(t, 30, 30) {
		rng := rand.New(rand.NewPCG(seed, 9))
		pool, longest := netip.MustParsePrefix("10.0.0.0/16"), 30
		if seed%2 == 1 {
			pool, longest = netip.MustParsePrefix("2001:db8::/48"), 64
		}
		set, err := cidrset.New(pool, longest)
		if err != nil {
			t.Fatal(err)
		}
		a, err := New(store.NewMemory(), Options{})
		if err == nil {
			err = a.AddPool(ctx, Pool{pool, Sizes{pool.Bits() + 1, longest}})
		}
		if err != nil {
			t.Fatal(err)
		}
		var held []netip.Prefix
		for range 400 {
			if i := rng.IntN(3 * (len(held) + 1)); i < len(held) {
				if _, err := set.Release(held[i]); err != nil {
					t.Fatal(err)
				}
				if err := a.Release(ctx, held[i], "o"); err != nil {
					t.Fatal(err)
				}
				held[i] = held[len(held)-1]
				held = held[:len(held)-1]
				continue
			}
			n := pool.Bits() + 3 + rng.IntN(longest-pool.Bits()-2)
			want, wantErr := set.AllocatePrefix(n)
			got, err := a.Allocate(ctx, Request{Pool: pool, Owner: "o", Bits: n})
			if got.Prefix != want || errors.Is(err, ipalloc.ErrFull) != errors.Is(wantErr, ipalloc.ErrFull) {
				t.Fatalf("seed %d: /%d: %v, %v; cidrset gives %v, %v", seed, n, got.Prefix, err, want, wantErr)
			}
			if err == nil {
				held = append(held, want)
			}
		}
	}
}

// Levels adds up the pools of each level.
func TestLevels(t *testing.T) {
	_, a := furnished(t)
	levels, err := a.Levels(context.Background(), netip.MustParsePrefix("10.0.0.0/8"))
	if err != nil || len(levels) != 3 {
		t.Fatal(levels, err)
	}
	for i, want := range []string{
		"pools map[8:1] held map[12:1 16:1 24:1] free map[9:1 10:1 11:1 13:1 14:1 15:1 17:1 18:1 19:1 20:1 21:1 22:1 23:1 24:1], largest 9",
		"pools map[16:1] held map[20:1 27:1] free map[17:1 18:1 19:1 21:1 22:1 23:1 24:1 25:1 26:1 27:1], largest 17",
		"pools map[20:1] held map[25:1 32:1] free map[21:1 22:1 23:1 24:1 26:1 27:1 28:1 29:1 30:1 31:1 32:1], largest 21",
	} {
		u := levels[i]
		if got := fmt.Sprintf("pools %v held %v free %v, largest %d", counts(u.Pools), counts(u.Held), counts(u.Free), u.LargestFree()); got != want {
			t.Errorf("level %d: %s, want %s", i, got, want)
		}
	}
	if got, want := levels[1].Ratio(), (32*1+0.25)/512; got != want {
		t.Errorf("share %v, want %v", got, want)
	}
	one, err := a.Levels(context.Background(), netip.MustParsePrefix("10.0.0.0/16"))
	if err != nil || len(one) != 2 || *one[0] != *levels[1] || *one[1] != *levels[2] {
		t.Errorf("of a holding: %v, %v", one, err)
	}
}

func counts(a [129]int) map[int]int {
	m := map[int]int{}
	for l, n := range a {
		if n != 0 {
			m[l] = n
		}
	}
	return m
}

// Fits of a utilization adds up and ends at the largest number.
func TestUtilizationFits(t *testing.T) {
	u := Utilization{}
	u.Free[32], u.Free[64] = 3, 2
	for _, c := range []struct {
		length int
		want   uint64
	}{
		{0, 0}, {31, 0}, {32, 3}, {33, 6}, {63, 3 << 31}, {64, 3<<32 + 2}, {90, (3<<32 + 2) << 26}, {93, (3<<32 + 2) << 29},
		{94, (3<<32 + 2) << 30}, {95, math.MaxUint64}, {96, math.MaxUint64}, {128, math.MaxUint64},
	} {
		if got := u.Room(c.length); got != c.want {
			t.Errorf("Fits(%d) = %d, want %d", c.length, got, c.want)
		}
	}
	var none Utilization
	if none.LargestFree() != -1 || none.Ratio() != 0 || none.Room(128) != 0 {
		t.Error("the zero Utilization has room")
	}
}

// Changes yields what each commit makes of a prefix.
func TestChanges(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	s, a := furnished(t)
	_, rev, err := s.List(ctx, store.Range{Limit: 1})
	if err != nil {
		t.Fatal(err)
	}
	pool := netip.MustParsePrefix("10.0.0.0/8")
	h, err := a.Allocate(ctx, Request{Pool: pool, Owner: "x", Bits: 24})
	if err == nil {
		_, err = a.Transfer(ctx, h.Prefix, "x", "y")
	}
	if err == nil {
		err = a.Release(ctx, h.Prefix, "y")
	}
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for c, err := range a.Changes(ctx, rev) {
		if err != nil {
			t.Fatal(err)
		}
		if got = append(got, fmt.Sprint(c.Prefix, " ", c.Holding.Owner)); len(got) == 3 {
			break
		}
	}
	if want := "[10.1.1.0/24 x 10.1.1.0/24 y 10.1.1.0/24 ]"; fmt.Sprint(got) != want {
		t.Errorf("changes %v, want %v", got, want)
	}
}

// Callers that come while a commit is under way share the next one: 34 callers make two
// commits. Those of one owner get one prefix, also within a commit.
func TestCallersShareACommit(t *testing.T) {
	for _, owners := range []int{33, 1} {
		ctx := context.Background()
		f := faults.NewLimited(store.NewMemory(), store.Limits{Ops: 128})
		a, err := New(f, Options{})
		if err != nil {
			t.Fatal(err)
		}
		pool := netip.MustParsePrefix("10.0.0.0/16")
		if err := a.AddPool(ctx, Pool{pool, Sizes{17, 28}}); err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		entered, open := make(chan struct{}), make(chan struct{})
		f.Script(func(_ context.Context, c faults.Call) faults.Outcome {
			if c.Kind == faults.Commit && c.Nth == 1 {
				close(entered)
				<-open
			}
			return faults.Outcome{}
		})
		run := func(owner string) {
			wg.Add(1)
			go func() {
				defer wg.Done()
				if _, err := a.Assign(ctx, Request{Pool: pool, Owner: owner, Bits: 28}); err != nil {
					t.Error(err)
				}
			}()
		}
		run("first")
		<-entered
		for i := range 33 {
			run(fmt.Sprint("o", i%owners))
		}
		for n := 0; n < 33; n, _ = a.run.Waiting() {
			runtime.Gosched()
		}
		close(open)
		wg.Wait()
		if n := f.Counts().Commits; n != 2 {
			t.Errorf("%d commits for 34 callers", n)
		}
		if rep, err := a.Check(ctx); err != nil || len(rep.Problems) > 0 || rep.Holdings != owners+1 {
			t.Errorf("%d owners: %+v, %v", owners, rep, err)
		}
	}
}
