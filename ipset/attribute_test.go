package ipset

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/test/faults"
	"github.com/ipalloc/ipalloc/internal/test/seeds"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// attributes returns the attributes in pairs of key and value.
func attributes(t testing.TB, pairs ...string) alloc.Attributes {
	t.Helper()
	m := make(map[string]string)
	for i := 0; i < len(pairs); i += 2 {
		m[pairs[i]] = pairs[i+1]
	}
	a, err := alloc.NewAttributes(m)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// findsHandles fails unless what an attribute finds is held by some handles, and Check finds nothing.
func findsHandles(t *testing.T, e *Engine, key, value string, want ...string) {
	t.Helper()
	als, err := e.IPsByAttribute(t.Context(), key, value)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, al := range als {
		got = append(got, al.Handle)
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("%s = %s finds %v, want %v", key, value, got, want)
	}
	if rep, err := e.Operator().Check(t.Context(), nil); err != nil || len(rep.Problems) > 0 {
		t.Fatalf("check: %v, %v", rep.Problems, err)
	}
}

// Pools refuse keys that cannot be indexed, and values that cannot are left out.
func TestIndexRefuses(t *testing.T) {
	ctx := t.Context()
	e, err := New(store.NewMemory(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	pool := alloc.Pool{Name: "a", Prefix: netip.MustParsePrefix("10.0.0.0/24")}
	for _, index := range [][]string{{""}, {"a\x00b"}, {"a", "a"}, {strings.Repeat("a", 1025)}, strings.Split("a b c d e f g h i", " ")} {
		pool.Index = index
		if err := e.AddPool(ctx, pool); !errors.Is(err, ipalloc.ErrInvalid) {
			t.Errorf("%.20q: %v", index, err)
		}
	}
	pool.Index = strings.Split("a b c d e f g h", " ")
	if err := e.AddPool(ctx, pool); err != nil {
		t.Fatal(err)
	}
	long := strings.Repeat("x", 1024)
	at := attributes(t, "a", long, "b", long+"x", "c", "y\x00z", "d", "y")
	if _, err := e.AutoAssign(ctx, alloc.AssignArgs{Owner: alloc.HostOwner("h"), Num4: 1, Handle: "1", Attributes: at}); err != nil {
		t.Fatal(err)
	}
	findsHandles(t, e, "a", long, "1")
	findsHandles(t, e, "b", long+"x")
	findsHandles(t, e, "c", "y\x00z")
	findsHandles(t, e, "d", "y", "1")
}

// A call ends leases beside its own changes, as many as the keys of their pool leave room for. More than those are ended before it.
func TestIndexedLeasesEndBesideAnAssignment(t *testing.T) {
	at := attributes(t, strings.Split("a 1 b 1 c 1 d 1 e 1 f 1 g 1 h 1", " ")...)
	for keys, most := range map[int]int{0: 15, 1: 12, 4: 7, 8: 5} {
		for _, leases := range []int{most, most + 1} {
			pool := poolOf("a", "10.0.0.0/26", 26)
			pool.Index = strings.Split("a b c d e f g h", " ")[:keys]
			w := newWorld(t, alloc.Config{}, pool)
			a := want("h", leases, "leased")
			a.TTL, a.Attributes = time.Minute, at
			w.assign(a)
			w.clock.add(time.Hour)
			f := limited(w.store, 127)
			got, err := w.engine(f).AutoAssign(bg, want("h", 1, "x"))
			if n := f.Counts().Commits; err != nil || len(got.V4) != 1 || (n == 1) != (leases == most) {
				t.Errorf("%d keys, %d leases: %v, %v, %d commits", keys, leases, got, err, n)
			}
		}
	}
}

// Whatever is done, in commits as small as a store allows, the index finds what a list of all addresses has.
func TestIndexFollowsEveryCall(t *testing.T) {
	for seed := range seeds.Each(t, 20, 20) {
		ctx, now := t.Context(), time.Unix(1000, 0)
		e, err := New(faults.NewLimited(store.NewMemory(), store.Limits{Ops: 64}), Options{Now: func() time.Time { return now }})
		if err != nil {
			t.Fatal(err)
		}
		pool := alloc.Pool{Name: "a", Prefix: netip.MustParsePrefix("10.0.0.0/28"), BlockBits: 29, Index: []string{"k0", "k1"}, Cooldown: time.Duration(seed%2) * time.Minute}
		if err := e.AddPool(ctx, pool); err != nil {
			t.Fatal(err)
		}
		r := rand.New(rand.NewPCG(seed, 1))
		some := func() alloc.Attributes {
			return attributes(t, fmt.Sprintf("k%d", r.IntN(3)), fmt.Sprint(r.IntN(2)), fmt.Sprintf("k%d", r.IntN(3)), fmt.Sprint(r.IntN(2)))
		}
		for range 120 {
			handle, owner := []string{"0", "1", "2", "3", ""}[r.IntN(5)], alloc.HostOwner(fmt.Sprint(r.IntN(3)))
			at := netip.AddrFrom4([4]byte{10, 0, 0, byte(r.IntN(16))})
			claim := alloc.Claim{Handle: handle, Attributes: some(), TTL: time.Duration(r.IntN(2)) * time.Minute}
			switch r.IntN(10) {
			case 0, 1:
				_, err = e.AutoAssign(ctx, alloc.AssignArgs{Owner: owner, Num4: 1 + r.IntN(3), Handle: claim.Handle, Attributes: claim.Attributes, TTL: claim.TTL})
			case 2:
				claim.Share = alloc.Share{Max: 2}
				_, err = e.AssignIP(ctx, alloc.AssignIPArgs{Address: at, Owner: owner, Handle: claim.Handle, Attributes: claim.Attributes, TTL: claim.TTL})
			case 3:
				active := some()
				err = e.Update(ctx, alloc.UpdateArgs{Address: at, Active: &active, Swap: r.IntN(2) == 0})
			case 4:
				_, err = e.ReleaseByHandle(ctx, handle)
			case 5:
				_, err = e.ReleaseIPs(ctx, alloc.Release{Address: at})
			case 6:
				now = now.Add(30 * time.Second)
				_, err = e.Operator().Sweep(ctx, alloc.SweepArgs{IdleAfter: time.Minute})
			case 7:
				_, _, err = e.RemoveHost(ctx, owner)
			case 8:
				_, _, err = e.Operator().RenameHost(ctx, alloc.RenameArgs{From: owner, To: alloc.HostOwner("renamed"), Merge: true})
			case 9:
				_, err = e.Transfer(ctx, alloc.TransferArgs{From: handle, To: "h0"})
			}
			if err != nil && !errors.Is(err, ipalloc.ErrFull) && !errors.Is(err, ipalloc.ErrOccupied) && !errors.Is(err, ipalloc.ErrNotHeld) && !errors.Is(err, ipalloc.ErrCooling) && !errors.Is(err, ipalloc.ErrLimit) && !errors.Is(err, ipalloc.ErrInvalid) {
				t.Fatal(err)
			}
			if err != nil && strings.Contains(err.Error(), "records, at most") {
				t.Fatal(err)
			}
			for i := range 6 {
				key, value := fmt.Sprintf("k%d", i/2), fmt.Sprint(i%2)
				var want []string
				for al, err := range e.Allocations(ctx, netip.Prefix{}) {
					if err != nil {
						t.Fatal(err)
					}
					for h := range al.Holders() {
						if v, ok := h.Attributes.Map()[key]; ok && v == value && key != "k2" && !h.Cooling {
							want = append(want, h.Handle)
						}
					}
				}
				slices.Sort(want)
				findsHandles(t, e, key, value, want...)
			}
		}
	}
}
