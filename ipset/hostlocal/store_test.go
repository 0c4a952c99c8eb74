package hostlocal

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"testing"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/test/faults"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// counting is a store that counts the records of each call, and may refuse large commits.
type counting struct {
	store.Store
	read, written, trips int
	limits               store.Limits
}

func (c *counting) Get(ctx context.Context, dst []store.Record, keys ...string) ([]store.Record, error) {
	c.read += len(keys)
	c.trips++
	return c.Store.Get(ctx, dst, keys...)
}

func (c *counting) Commit(ctx context.Context, ops []store.Op) (uint64, error) {
	if c.limits.Ops > 0 && len(ops) > c.limits.Ops {
		return 0, ipalloc.ErrLimit
	}
	for _, op := range ops {
		if op.Kind != store.Guard {
			c.written++
		}
	}
	c.trips++
	return c.Store.Commit(ctx, ops)
}

func (c *counting) Limits() store.Limits { return c.limits }

// TestConstantCost: how many records an operation reads and writes does not depend on how many addresses are taken.
func TestConstantCost(t *testing.T) {
	for _, c := range []struct {
		name string
		set  RangeSet
		free []netip.Addr // all others of the set are taken
	}{
		{"/16, full", subnets("10.0.0.0/16"), nil},
		{"/16, one free behind the cursor", subnets("10.0.0.0/16"), addrs("10.0.0.2")},
		{"/16, one free in the middle", subnets("10.0.0.0/16"), addrs("10.0.128.77")},
		{"/18 of IPv6, one free at the end", RangeSet{parseRange("fd00::/64 fd00::1 fd00::3fff fd00::2000")}, addrs("fd00::3fff")},
	} {
		if testing.Short() && c.name != "/16, one free behind the cursor" {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			db := &counting{Store: store.NewMemory()}
			w := &world{TB: t, store: db}
			w.open(Config{Sets: []RangeSet{c.set}})
			r := w.sets[0][0]
			var s State
			n := 0
			for a := r.First; a.Compare(r.Last) <= 0; a = a.Next() {
				if a != r.Gateway && !slices.Contains(c.free, a) {
					s.Holdings = append(s.Holdings, holds(fmt.Sprint("c", n), a.String()))
					n++
				}
			}
			s.Cursors = map[int]netip.Addr{0: netip.MustParseAddr("10.0.100.1")}
			if _, err := w.Import(ctx, s); err != nil {
				t.Fatal(err)
			}
			cost := func(what string, read, written int, do func() error) {
				t.Helper()
				db.read, db.written, db.trips = 0, 0, 0
				if err := do(); err != nil {
					t.Fatalf("%s: %v", what, err)
				}
				t.Logf("%s: %d read, %d written, %d round trips", what, db.read, db.written, db.trips)
				if db.read > read || db.written > written {
					t.Errorf("%s: read %d and wrote %d records, want at most %d and %d", what, db.read, db.written, read, written)
				}
			}
			last := eth0(fmt.Sprint("c", n-1))
			cost("Add", 20, 8, func() error {
				_, err := w.Add(ctx, eth0("x"))
				if len(c.free) == 0 && errors.Is(err, ipalloc.ErrFull) {
					return nil
				}
				return err
			})
			cost("Status", 20, 0, func() error {
				if err := w.Status(ctx); !errors.Is(err, ipalloc.ErrFull) {
					return fmt.Errorf("not full: %w", err)
				}
				return nil
			})
			cost("Verify", 3, 0, func() error { return w.Verify(ctx, last) })
			cost("Del", 8, 6, func() error { _, err := w.Del(ctx, last); return err })
			cost("Del of nobody", 3, 0, func() error { _, err := w.Del(ctx, eth0("nobody")); return err })
			w.check()
		})
	}
}

// TestParallel: many engines on one store never give an address twice, and give all of them.
func TestParallel(t *testing.T) {
	const engines, each = 8, 30
	db := store.NewMemory()
	var mu sync.Mutex
	seen := map[netip.Addr]Attachment{}
	var wg sync.WaitGroup
	for i := range engines {
		e, err := New(db, Config{Network: "n", Sets: []RangeSet{subnets("10.0.0.0/24"), subnets("fd00::/120")}, Attempts: 100000})
		if err != nil {
			t.Fatal(err)
		}
		for k := range 2 {
			wg.Add(1)
			go func() {
				defer wg.Done()
				for n := range each / 2 {
					who := eth0(fmt.Sprint("c", i, k, n))
					got, err := e.Add(ctx, who)
					if err != nil {
						t.Error(err)
						return
					}
					mu.Lock()
					for _, a := range got {
						if other, twice := seen[a.Prefix.Addr()]; twice {
							t.Errorf("%s for %s and %s", a.Prefix, who, other)
						}
						seen[a.Prefix.Addr()] = who
					}
					mu.Unlock()
					if n%5 == 4 {
						mu.Lock()
						gone, err := e.Del(ctx, who)
						for _, a := range gone {
							delete(seen, a)
						}
						mu.Unlock()
						if err != nil {
							t.Error(err)
						}
					}
				}
			}()
		}
	}
	wg.Wait()
	e, err := New(db, Config{Network: "n"})
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Check(ctx); err != nil {
		t.Fatal(err)
	}
	s, err := e.Export(ctx)
	if err != nil || len(s.Holdings) != engines*each*4/5 {
		t.Fatal(len(s.Holdings), err)
	}
}

// rival is a store that lets another engine go first, for a number of times.
type rival struct {
	store.Store
	times int
	first func()
}

func (r *rival) Commit(ctx context.Context, ops []store.Op) (uint64, error) {
	if r.times > 0 {
		r.times--
		r.first()
	}
	return r.Store.Commit(ctx, ops)
}

// TestConflict: whatever another engine does between reading and commit, the answer is true.
func TestConflict(t *testing.T) {
	w := newWorld(t, subnets("10.0.0.0/29"))
	n := 0
	db := &rival{Store: w.store, times: 2, first: func() {
		n++
		w.add(eth0(fmt.Sprint("rival", n)), nil, []any{"10.0.0.2", "10.0.0.3", "10.0.0.5", "10.0.0.6"}[n-1])
	}}
	var waits []int
	wait := func(_ context.Context, attempt int) error {
		waits = append(waits, attempt)
		return nil
	}
	e, err := New(db, Config{Network: "net", Sets: []RangeSet{subnets("10.0.0.0/29")}, Attempts: 5, Wait: wait})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := e.Add(ctx, eth0("a")); err != nil || got[0].Prefix.Addr().String() != "10.0.0.4" || len(waits) != 2 {
		t.Fatal(got, err, waits)
	}
	// The last free addresses go to the rival: full, not a conflict.
	db.times = 2
	if _, err := e.Add(ctx, eth0("b")); !errors.Is(err, ipalloc.ErrFull) {
		t.Fatal(err)
	}
	// That it is full is verified as well: the rival gives one back.
	db.times, db.first = 1, func() { w.del(eth0("rival1"), "10.0.0.2") }
	if got, err := e.Add(ctx, eth0("b")); err != nil || got[0].Prefix.Addr().String() != "10.0.0.2" {
		t.Fatal(got, err)
	}
	waits = nil
	db.times, db.first = 100, func() {
		if _, err := w.Del(ctx, eth0("a")); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Add(ctx, eth0("a")); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := e.Del(ctx, eth0("a")); !errors.Is(err, ipalloc.ErrConflict) || !slices.Equal(waits, []int{1, 2, 3, 4}) || own(err).Op != "del" {
		t.Fatal(err, waits)
	}
	// A wait that ends with its context ends the call.
	db.times = 100
	late := errors.New("late")
	e, err = New(db, Config{Network: "net", Wait: func(context.Context, int) error { return late }})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := e.Del(ctx, eth0("a")); !errors.Is(err, late) {
		t.Fatal(err)
	}
}

// TestExpiryRace: an attachment that is added anew while the ones of an earlier boot go stays.
func TestExpiryRace(t *testing.T) {
	w := newWorld(t)
	w.open(Config{Sets: []RangeSet{subnets("10.0.0.0/24")}, Boot: "b1"})
	w.add(eth0("a"), nil, "10.0.0.2")
	w.add(eth0("b"), nil, "10.0.0.3")
	w.open(Config{Sets: []RangeSet{subnets("10.0.0.0/24")}, Boot: "b2"})
	n := 0
	db := &rival{Store: w.store, times: 2, first: func() {
		if n++; n == 2 { // the first commit notes the boot, the second releases
			w.del(eth0("a"), "10.0.0.2")
			w.add(eth0("a"), nil, "10.0.0.4")
		}
	}}
	e, err := New(db, Config{Network: "net", Boot: "b2", Leases: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Verify(ctx, eth0("a"), addrs("10.0.0.4")...); err != nil {
		t.Fatal(err)
	}
	if err := e.Verify(ctx, eth0("b")); !errors.Is(err, ipalloc.ErrNotFound) {
		t.Fatal(err)
	}
}

// TestFaults breaks the store at every call, before and after it is carried out: an address is held by one who was told so,
// or by one who was told that it is not known.
func TestFaults(t *testing.T) {
	for call := 1; call < 40; call++ {
		for _, after := range []bool{false, true} {
			mem := store.NewMemory()
			db := faults.NewFaulty(mem)
			e, err := New(db, Config{Network: "n", Sets: []RangeSet{subnets("10.0.0.0/28"), subnets("fd00::/120")}, Boot: "b", Leases: true})
			if err != nil {
				t.Fatal(err)
			}
			fault := faults.Fail(faults.ErrInjected)
			if after {
				fault = faults.Unknown(true)
			}
			db.Script(faults.At(call, fault))
			told := map[Attachment][]netip.Addr{}
			unknown := map[Attachment]bool{}
			for i := range 6 {
				who := eth0(fmt.Sprint("c", i%3))
				if i%2 == 0 {
					got, err := e.Add(ctx, who)
					if errors.Is(err, ipalloc.ErrUnknownOutcome) {
						unknown[who] = true
					}
					for _, a := range got {
						told[who] = append(told[who], a.Prefix.Addr())
					}
				} else if _, err := e.Del(ctx, who); err == nil {
					delete(told, who)
					delete(unknown, who)
				} else if errors.Is(err, ipalloc.ErrUnknownOutcome) {
					unknown[who] = true
				}
			}
			plain, err := New(mem, Config{Network: "n"})
			if err != nil {
				t.Fatal(err)
			}
			if err := plain.Check(ctx); err != nil {
				t.Fatalf("call %d, after %v: %v", call, after, err)
			}
			for who, want := range told {
				for _, a := range want {
					if h, ok := holderOf(t, plain, a.String()); (!ok || h != who) && !unknown[who] {
						t.Fatalf("call %d, after %v: %s was told %s, and %v has it", call, after, who, a, h)
					}
				}
			}
		}
	}
}

// TestImport: an import in steps of any size takes all that is free, and can be repeated.
func TestImport(t *testing.T) {
	for _, ops := range []int{0, 64, 16} {
		db := &counting{Store: store.NewMemory(), limits: store.Limits{Ops: ops}}
		w := &world{TB: t, store: db}
		w.open(Config{Sets: []RangeSet{subnets("10.0.0.0/24"), subnets("fd00::/64")}})
		w.add(eth0("here"), nil, "10.0.0.2", "fd00::2")
		s := State{Cursors: map[int]netip.Addr{0: netip.MustParseAddr("10.0.0.99"), -1: netip.MustParseAddr("10.0.0.1"), 7: {}}}
		for i := range 50 {
			s.Holdings = append(s.Holdings, holds(fmt.Sprint("c", i), fmt.Sprint("10.0.0.", 10+i), fmt.Sprint("10.7.0.", i)))
		}
		s.Holdings = append(s.Holdings,
			holds("late", "10.0.0.2"), holds("here", "10.0.0.2", "192.0.2.1"), Holding{Attachment: Attachment{"old", ""}, Addresses: addrs("10.0.0.200")},
			holds("none"), Holding{Attachment: eth0("bad"), Addresses: []netip.Addr{{}}}, Holding{Attachment: Attachment{"a\x00", "b"}, Addresses: addrs("10.0.0.201")}, Holding{Addresses: addrs("10.0.0.202")})
		for range 2 { // repeating it changes nothing
			left, err := w.Import(ctx, s)
			if err != nil {
				t.Fatal(err)
			}
			var why []string
			for _, e := range left {
				why = append(why, e.Error())
			}
			slices.Sort(why)
			want := []string{
				`hostlocal: import 10.0.0.2 for "late/eth0" in "net": occupied, held by "here/eth0"`,
				`hostlocal: import "net": Container: empty name`,
				`hostlocal: import for "a\x00/b" in "net": Container: name "a\x00" holds a NUL byte`,
				`hostlocal: import "net": Cursors[7]: not the number of a set and an address`,
				`hostlocal: import for "bad/eth0" in "net": address: not a valid address or prefix`,
				`hostlocal: import 10.0.0.1 in "net": Cursors[-1]: not the number of a set and an address`,
			}
			slices.Sort(want)
			if !slices.Equal(why, want) {
				t.Fatalf("%q", why)
			}
			w.check()
		}
		w.add(eth0("x"), nil, "10.0.0.100", "fd00::3")
		out, err := w.Export(ctx)
		if err != nil || len(out.Holdings) != 53 || out.Cursors[0].String() != "10.0.0.100" {
			t.Fatal(len(out.Holdings), err)
		}
		// What is exported makes the same network elsewhere.
		other := newWorld(t, subnets("10.0.0.0/24"), subnets("fd00::/64"))
		if left, err := other.Import(ctx, out); err != nil || len(left) > 0 {
			t.Fatal(left, err)
		}
		again, err := other.Export(ctx)
		if err != nil || fmt.Sprint(again) != fmt.Sprint(out) {
			t.Fatal("an exported state reads back as another one")
		}
		if freed, err := w.GC(ctx, GCArgs{}); err != nil || len(freed) != 53 {
			t.Fatal(len(freed), err)
		}
		w.check()
	}
}

// tight refuses commits that its Limits do not exclude, as a store does whose limit is in bytes.
type tight struct {
	store.Store
	most, refused int
}

func (s *tight) Commit(ctx context.Context, ops []store.Op) (uint64, error) {
	if len(ops) > s.most {
		s.refused++
		return 0, ipalloc.ErrLimit
	}
	return s.Store.Commit(ctx, ops)
}

// TestImportHalvesItsSteps: a step that is too large for the store is halved until it fits, and
// so are those after it.
func TestImportHalvesItsSteps(t *testing.T) {
	db := &tight{Store: store.NewMemory(), most: 40}
	w := &world{TB: t, store: db}
	w.open(Config{})
	var s State
	for i := range 100 {
		s.Holdings = append(s.Holdings, holds(fmt.Sprint("c", i), fmt.Sprintf("10.%d.0.1", i)))
	}
	if left, err := w.Import(ctx, s); err != nil || len(left) > 0 {
		t.Fatal(left, err)
	}
	if db.refused < 2 || db.refused > 5 { // 100, 50, 25, 12 of three records each and the header
		t.Errorf("%d steps were refused", db.refused)
	}
	w.check()
	if got, err := w.Export(ctx); err != nil || len(got.Holdings) != 100 {
		t.Error(len(got.Holdings), err)
	}
	// One attachment that does not fit ends the import.
	db.most = 2
	if _, err := w.Import(ctx, State{Holdings: []Holding{holds("x", "10.200.0.1")}}); !errors.Is(err, ipalloc.ErrLimit) {
		t.Error(err)
	}
}
