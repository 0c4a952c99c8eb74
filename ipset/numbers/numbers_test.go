package numbers

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
	"github.com/ipalloc/ipalloc/ipset"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/prefixes"
	"github.com/ipalloc/ipalloc/ipset/store"
)

func TestNumbers(t *testing.T) {
	ctx := context.Background()
	for _, r := range []Range{{1, 4}, {100, 4094}, {4200000000, 4294967294}, {0, 1<<24 - 1}, {1<<32 - 2, 1<<32 + 9}, {0xffff_0a00_0000, 0xffff_0a00_00ff}, {Max - 7, Max}, {0, Max}} {
		db := store.NewMemory()
		n, err := New(ctx, db, fmt.Sprint("vlan ", r.First), r, ipset.Options{})
		if err != nil {
			t.Fatal(err)
		}
		for i := range uint64(3) {
			for range 2 {
				if x, err := n.Assign(ctx, fmt.Sprint("t", i)); err != nil || x != r.First+i {
					t.Fatalf("%v: %d, %v", r, x, err)
				}
			}
		}
		if _, err := n.Release(ctx, "t1"); err != nil {
			t.Fatal(err)
		}
		if x, err := n.Assign(ctx, "t9"); err != nil || x != r.First+1 {
			t.Errorf("%v: %d, %v", r, x, err)
		}
		if err := n.Occupy(ctx, "t10", r.First); !errors.Is(err, ipalloc.ErrOccupied) {
			t.Error(err)
		}
		if err := n.Occupy(ctx, "t10", r.Last); err != nil {
			t.Error(err)
		}
		if o, err := n.Owner(ctx, r.Last); o != "t10" || err != nil {
			t.Error(o, err)
		}
		for range 2 {
			if err := n.Transfer(ctx, r.Last, "t10", "t11"); err != nil {
				t.Error(err)
			}
		}
		if o, err := n.Owner(ctx, r.Last); o != "t11" || err != nil {
			t.Error(o, err)
		}
		if got, err := n.Owned(ctx, "t10"); err != nil || len(got) > 0 {
			t.Errorf("%v: t10 holds %v, %v, and gave it away", r, got, err)
		}
		var all []uint64
		for h, err := range n.All(ctx) {
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, h.Number)
		}
		if fmt.Sprint(all) != fmt.Sprint([]uint64{r.First, r.First + 1, r.First + 2, r.Last}) {
			t.Error(all)
		}
	}
	n, _ := New(ctx, store.NewMemory(), "x", Range{1, 2}, ipset.Options{})
	for i, want := range []error{nil, nil, ipalloc.ErrFull} {
		if _, err := n.Assign(ctx, fmt.Sprint(i)); !errors.Is(err, want) {
			t.Error(i, err)
		}
	}
	if err := n.Occupy(ctx, "0", 7); err != nil {
		t.Error(err)
	}
	if got, err := n.Owned(ctx, "0"); err != nil || !slices.Equal(got, []uint64{1, 7}) {
		t.Error(got, err)
	}
}

func TestAtOnce(t *testing.T) {
	ctx, db := context.Background(), store.NewMemory()
	var mu sync.Mutex
	seen := map[uint64]bool{}
	var wg sync.WaitGroup
	for i := range 8 {
		n, err := New(ctx, db, "vni", Range{1, 1 << 20}, ipset.Options{})
		if err != nil {
			t.Fatal(err)
		}
		wg.Add(1)
		go func() {
			defer wg.Done()
			for j := range 50 {
				x, err := n.Assign(ctx, fmt.Sprint(i, "/", j))
				mu.Lock()
				if err != nil || seen[x] {
					t.Error(x, err)
				}
				seen[x] = true
				mu.Unlock()
			}
		}()
	}
	wg.Wait()
}

// Errors name the package, the call, the set, the owner and the number.
func TestErrors(t *testing.T) {
	ctx, db := context.Background(), store.NewMemory()
	n, err := New(ctx, db, "x", Range{1, 1}, ipset.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := n.Assign(ctx, "a"); err != nil {
		t.Fatal(err)
	}
	second := func(_ any, err error) error { return err }
	for _, c := range []struct {
		err  error
		is   error
		text string
	}{
		{second(n.Assign(ctx, "b")), ipalloc.ErrFull, `numbers: assign for "b" in "x": no number is free`},
		{second(n.Assign(ctx, "")), ipalloc.ErrInvalid, `numbers: assign "x": owner: it is empty`},
		{n.Occupy(ctx, "b", 1), ipalloc.ErrOccupied, `numbers: occupy "1" for "b" in "x": occupied, held by "a"`},
		{n.Occupy(ctx, "", 1), ipalloc.ErrInvalid, `numbers: occupy "x": owner: it is empty`},
		{n.Transfer(ctx, 1, "b", "c"), ipalloc.ErrMismatch, `numbers: transfer "1" for "b" in "x": mismatch, held by "a"`},
		{n.Transfer(ctx, 1, "a", ""), ipalloc.ErrInvalid, `numbers: transfer "1" for "a" in "x": To: it is empty`},
		{n.Transfer(ctx, 7, "a", "b"), ipalloc.ErrNotHeld, `numbers: transfer "7" for "a" in "x": not held`},
		{second(n.Release(ctx, "")), ipalloc.ErrInvalid, `numbers: release "x": owner: it is empty`},
		{second(n.Owned(ctx, "")), ipalloc.ErrInvalid, `numbers: owned "x": owner: it is empty`},
		{second(n.Owner(ctx, 7)), ipalloc.ErrNotHeld, `numbers: look up "7" in "x": not held`},
		{second(New(ctx, db, "x", Range{2, 1}, ipset.Options{})), ipalloc.ErrInvalid, `numbers: new "x": Range: First is above Last`},
		{second(New(ctx, db, "", Range{1, 2}, ipset.Options{})), ipalloc.ErrInvalid, `numbers: new`},
	} {
		if !errors.Is(c.err, c.is) || !strings.HasPrefix(fmt.Sprint(c.err), c.text) {
			t.Errorf("%v, want %s", c.err, c.text)
		}
	}
	gone, cancel := context.WithCancel(ctx)
	cancel()
	for _, err := range n.All(gone) {
		if e := (*ipalloc.Error)(nil); err == nil || !errors.As(err, &e) || e.Package != "numbers" {
			t.Error(err)
		}
	}
}

// TestTogether: a number, a prefix, an address and a record of the caller's own are in one commit, or none of them is.
func TestTogether(t *testing.T) {
	ctx, db := context.Background(), store.NewMemory()
	net, lan := netip.MustParsePrefix("10.0.0.0/8"), alloc.Pool{Name: "lan", Prefix: netip.MustParsePrefix("192.168.0.0/24"), BlockBits: 29}
	plan, err := prefixes.New(db, prefixes.Options{})
	if err == nil {
		err = plan.AddPool(ctx, prefixes.Pool{Prefix: net, Sizes: prefixes.Sizes{Shortest: 24, Longest: 31}})
	}
	e, err2 := ipset.New(db, ipset.Options{})
	if err2 == nil {
		err2 = e.AddPool(ctx, lan)
	}
	if err != nil || err2 != nil {
		t.Fatal(err, err2)
	}
	_, before, _ := db.List(ctx, store.Range{})
	for _, fails := range []error{errors.New("no"), nil} {
		err := store.Together(ctx, db, func(tx store.Store) error {
			vlans, err := New(ctx, tx, "vlan", Range{100, 4094}, ipset.Options{})
			if err != nil {
				return err
			}
			plan, err := prefixes.New(tx, prefixes.Options{})
			if err != nil {
				return err
			}
			e, err := ipset.New(tx, ipset.Options{})
			if err != nil {
				return err
			}
			n, err1 := vlans.Assign(ctx, "tenant")
			p, err2 := plan.Assign(ctx, prefixes.Request{Pool: net, Owner: "tenant", Bits: 31})
			a, err3 := e.Assign(ctx, alloc.VirtualOwner("vpn"), "tenant")
			_, err4 := tx.Commit(ctx, []store.Op{{Kind: store.Put, Key: "Tenant", Value: fmt.Sprint(n, p.Prefix, a.Address)}})
			return errors.Join(err1, err2, err3, err4, fails)
		})
		if !errors.Is(err, fails) {
			t.Fatal(err)
		}
		if _, after, err := db.List(ctx, store.Range{}); err != nil || fails != nil && after != before || fails == nil && after != before+1 {
			t.Fatalf("f failed with %v: revision %d after %d, %v", fails, after, before, err)
		}
	}
	vlans, err := New(ctx, db, "vlan", Range{100, 4094}, ipset.Options{})
	if err != nil {
		t.Fatal(err)
	}
	holdings, err := plan.Owned(ctx, "tenant")
	n, err2 := vlans.Assign(ctx, "tenant")
	as, err3 := e.IPsByHandle(ctx, "tenant")
	recs, err4 := db.Get(ctx, nil, "Tenant")
	if err := errors.Join(err, err2, err3, err4); err != nil || len(holdings) != 1 || len(as) != 1 {
		t.Fatal(holdings, as, err)
	}
	if want := fmt.Sprint(n, holdings[0].Prefix, as[0].Address); recs[0].Value != want || n != 100 {
		t.Errorf("%q, want %q", recs[0].Value, want)
	}
}

// TestOpenAndNew: New makes a range once and keeps what an operator has set, Open writes nothing, and neither takes a space over that has pools of
// addresses.
func TestOpenAndNew(t *testing.T) {
	ctx, db := context.Background(), store.NewMemory()
	rev := func() uint64 { _, rev, _ := db.List(ctx, store.Range{}); return rev }
	if n, err := Open(ctx, db, "vlan", ipset.Options{}); !errors.Is(err, ipalloc.ErrNotFound) || n != nil || rev() != 0 {
		t.Error(n, err)
	}
	vlan := Range{100, 199}
	n, err := New(ctx, db, "vlan", vlan, ipset.Options{})
	if err != nil {
		t.Fatal(err)
	}
	e, _ := ipset.New(db, ipset.Options{})
	in, _ := e.InSpace("vlan")
	if _, err := in.Operator().Drain(ctx, "numbers"); err != nil {
		t.Fatal(err)
	}
	at := rev()
	for name, open := range map[string]func() (*Numbers, error){
		"New":  func() (*Numbers, error) { return New(ctx, db, "vlan", vlan, ipset.Options{}) },
		"Open": func() (*Numbers, error) { return Open(ctx, db, "vlan", ipset.Options{}) },
	} {
		n, err := open()
		if err != nil || n.Range() != vlan || rev() != at {
			t.Fatal(name, err)
		}
		if x, err := n.Assign(ctx, "t"); !errors.Is(err, ipalloc.ErrNotFound) {
			t.Errorf("%s undoes a drain: %d, %v", name, x, err)
		}
	}
	if _, err := New(ctx, db, "vlan", Range{1, 5}, ipset.Options{}); !errors.Is(err, ipalloc.ErrExists) || rev() != at {
		t.Error(err)
	}
	if err := n.SetRange(ctx, Range{150, 250}); err != nil || n.Range() != (Range{150, 250}) {
		t.Error(err, n.Range())
	}
	if err := n.SetRange(ctx, Range{2, 1}); !errors.Is(err, ipalloc.ErrInvalid) {
		t.Error(err)
	}
	if pools, err := in.Pools(ctx); err != nil || !pools[0].Disabled || !pools[0].Manual {
		t.Error(pools, err)
	}
	red, _ := e.InSpace("red")
	if err := red.AddPool(ctx, alloc.Pool{Name: "pods", Prefix: netip.MustParsePrefix("10.0.0.0/30"), BlockBits: 30}); err != nil {
		t.Fatal(err)
	}
	at = rev()
	if _, err := New(ctx, db, "red", vlan, ipset.Options{}); !errors.Is(err, ipalloc.ErrExists) || rev() != at {
		t.Error("New in the space of a tenant:", err)
	}
	if _, err := Open(ctx, db, "red", ipset.Options{}); !errors.Is(err, ipalloc.ErrNotFound) {
		t.Error("Open in the space of a tenant:", err)
	}
	var names []string
	for name, err := range Names(ctx, db, ipset.Options{}) {
		if names = append(names, name); err != nil {
			t.Fatal(err)
		}
	}
	if fmt.Sprint(names) != "[vlan]" {
		t.Error(names)
	}
}

// TestReleasedNumbersLeaveNoRecord: owners that come and go leave the store as it was.
func TestReleasedNumbersLeaveNoRecord(t *testing.T) {
	ctx, db := context.Background(), store.NewMemory()
	n, err := New(ctx, db, "vlan", Range{100, 199}, ipset.Options{})
	if err != nil {
		t.Fatal(err)
	}
	records := func() int {
		recs, _, err := db.List(ctx, store.Range{})
		if err != nil {
			t.Fatal(err)
		}
		return len(recs)
	}
	left := 0
	for i := range 200 {
		of := fmt.Sprint("t", i)
		if _, err := n.Assign(ctx, of); err != nil {
			t.Fatal(err)
		}
		if _, err := n.Release(ctx, of); err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			left = records()
		}
	}
	if r := records(); r != left {
		t.Errorf("%d records after 200 owners, %d after one", r, left)
	}
}

// TestReleaseOfThree: Release returns every number of an owner.
func TestReleaseOfThree(t *testing.T) {
	n, err := New(t.Context(), store.NewMemory(), "vlan", Range{1, 100}, ipset.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range []uint64{7, 20, 90} {
		if err := n.Occupy(t.Context(), "o", x); err != nil {
			t.Fatal(err)
		}
	}
	got, err := n.Release(t.Context(), "o")
	if slices.Sort(got); err != nil || !slices.Equal(got, []uint64{7, 20, 90}) {
		t.Errorf("%v, %v", got, err)
	}
}

// TestTooLarge: a number of more than 48 bits is refused, and names itself.
func TestTooLarge(t *testing.T) {
	ctx, db := t.Context(), store.NewMemory()
	n, err := New(ctx, db, "mac", Range{0, Max}, ipset.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for what, err := range map[string]error{
		"New":      second(New(ctx, db, "x", Range{0, Max + 1}, ipset.Options{})),
		"SetRange": n.SetRange(ctx, Range{0, 1<<64 - 1}),
		"Occupy":   n.Occupy(ctx, "a", Max+1),
		"Owner":    second(n.Owner(ctx, 1<<63)),
	} {
		var e *ipalloc.Error
		if !errors.As(err, &e) || !errors.Is(err, ipalloc.ErrInvalid) || e.Field == "" || !strings.Contains(err.Error(), "more than 48 bits") {
			t.Errorf("%s: %v", what, err)
		}
	}
	if n.Range() != (Range{0, Max}) {
		t.Error(n.Range())
	}
}

func second[T any](_ T, err error) error { return err }

// TestCooldown: a pool with a cooldown does not assign a released number too soon, as doc.go says.
func TestCooldown(t *testing.T) {
	ctx, db, now := t.Context(), store.NewMemory(), time.Unix(1e9, 0)
	o := ipset.Options{Now: func() time.Time { return now }}
	n, err := New(ctx, db, "vni", Range{1, 2}, o)
	if err != nil {
		t.Fatal(err)
	}
	e, _ := ipset.New(db, o)
	in, _ := e.InSpace("vni")
	pools, err := in.Pools(ctx)
	if err != nil {
		t.Fatal(err)
	}
	pools[0].Cooldown = time.Hour
	if err := in.UpdatePool(ctx, pools[0]); err != nil {
		t.Fatal(err)
	}
	assign := func(of string, want uint64, bad error) {
		t.Helper()
		if x, err := n.Assign(ctx, of); x != want || !errors.Is(err, bad) {
			t.Errorf("%s: %d, %v", of, x, err)
		}
	}
	assign("a", 1, nil)
	if _, err := n.Release(ctx, "a"); err != nil {
		t.Fatal(err)
	}
	assign("b", 2, nil)
	assign("c", 0, ipalloc.ErrCooling)
	now = now.Add(2 * time.Hour)
	if n, err = New(ctx, db, "vni", Range{1, 2}, o); err != nil { // keeps the cooldown
		t.Fatal(err)
	}
	assign("c", 1, nil)
	if p, err := in.Pools(ctx); err != nil || p[0].Cooldown != time.Hour {
		t.Error(p, err)
	}
}
