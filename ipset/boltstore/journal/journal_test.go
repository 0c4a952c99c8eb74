package journal_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/cidrset"
	"github.com/ipalloc/ipalloc/ipset/boltstore"
	"github.com/ipalloc/ipalloc/ipset/boltstore/journal"
	"github.com/ipalloc/ipalloc/ipset/store"
	"github.com/ipalloc/ipalloc/servicealloc"
)

var (
	pool     = netip.MustParsePrefix("10.0.0.0/16")
	services = netip.MustParsePrefix("10.96.0.0/22")
	ports    = servicealloc.PortRange{First: 30000, Last: 30999}
)

// open returns a store on a file of its own.
func open(t *testing.T, opts boltstore.Options) *boltstore.Store {
	t.Helper()
	return reopen(t, filepath.Join(t.TempDir(), "store.db"), opts)
}

// reopen returns the store in a file.
func reopen(t *testing.T, path string, opts boltstore.Options) *boltstore.Store {
	t.Helper()
	s, err := boltstore.Open(t.Context(), path, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// snapshotOf returns an allocator's snapshot.
func snapshotOf[A interface{ MarshalBinary() ([]byte, error) }](t *testing.T, j *journal.Journal[A]) (data []byte) {
	t.Helper()
	j.View(func(a A) {
		var err error
		if data, err = a.MarshalBinary(); err != nil {
			t.Fatal(err)
		}
	})
	return data
}

// crashed returns the store in a copy of the file of one that is open: what a process that was killed leaves.
func crashed(t *testing.T, s *boltstore.Store) *boltstore.Store {
	t.Helper()
	path := filepath.Join(t.TempDir(), "crashed.db")
	var b bytes.Buffer
	if _, err := s.Backup(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	if err := boltstore.Restore(t.Context(), &b, path); err != nil {
		t.Fatal(err)
	}
	return reopen(t, path, boltstore.Options{NoSync: true, Verify: boltstore.VerifyAlways})
}

// must returns a journal that was opened.
func must[A any](t *testing.T) func(j *journal.Journal[A], err error) *journal.Journal[A] {
	return func(j *journal.Journal[A], err error) *journal.Journal[A] {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return j
	}
}

// At every moment a crash leaves a set that answers on as the live one: the same children taken and cooling, the same cursor.
func TestJournalOfASet(t *testing.T) {
	now := time.Unix(1000, 0)
	for name, opts := range map[string][]cidrset.Option{
		"round robin": nil, "lowest": {cidrset.LowestFirst()}, "cooldown": {cidrset.Cooldown(time.Hour, func() time.Time { return now })},
	} {
		t.Run(name, func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(3, 4))
			s := open(t, boltstore.Options{NoSync: true})
			j := must[*cidrset.Set](t)(journal.OpenSet(t.Context(), s, "nodes", pool, 24, opts...))
			var held []netip.Prefix
			for step := range 300 {
				var err error
				switch k := rnd.IntN(6); {
				case k == 0 && len(held) > 0:
					i := rnd.IntN(len(held))
					p := held[i]
					held = slices.Delete(held, i, i+1)
					err = j.Do(t.Context(), func(a *cidrset.Set) error { _, err := a.Release(p); return err })
				case k == 1:
					var p netip.Prefix
					p, err = journal.Do(t.Context(), j, func(a *cidrset.Set) (netip.Prefix, error) { return a.AllocatePrefix(22) })
					held = append(held, p)
				case k == 2:
					p := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, byte(rnd.IntN(256)), 0}), 24)
					err = j.Do(t.Context(), func(a *cidrset.Set) error { _, err := a.Occupy(p); return err })
				default:
					var p netip.Prefix
					p, err = journal.Do(t.Context(), j, (*cidrset.Set).AllocateNext)
					held = append(held, p)
				}
				if errors.Is(err, ipalloc.ErrFull) || errors.Is(err, ipalloc.ErrCooling) {
					held = held[:len(held)-1]
				} else if err != nil {
					t.Fatal(step, err)
				}
				if step%20 != 0 {
					continue
				}
				c := crashed(t, s)
				k := must[*cidrset.Set](t)(journal.OpenSet(t.Context(), c, "nodes", pool, 24, opts...))
				if !bytes.Equal(snapshotOf(t, j), snapshotOf(t, k)) {
					t.Fatalf("step %d: not the same after a crash", step)
				}
				c.Close()
			}
		})
	}
}

// allServices are journals of everything in package servicealloc.
type allServices struct {
	one    *journal.Journal[*servicealloc.Range]
	ports  *journal.Journal[*servicealloc.Ports]
	owners *journal.Journal[*servicealloc.Registry]
}

func openServices(t *testing.T, s *boltstore.Store) allServices {
	t.Helper()
	ctx, lowest := t.Context(), servicealloc.LowestFirst()
	return allServices{
		must[*servicealloc.Range](t)(journal.OpenRange(ctx, s, "one", services, lowest)),
		must[*servicealloc.Ports](t)(journal.OpenPorts(ctx, s, "ports", ports, lowest)),
		must[*servicealloc.Registry](t)(journal.OpenRegistry(ctx, s, "owners", servicealloc.PortRange{First: 1, Last: 100}, lowest)),
	}
}

// snapshots returns what they all hold.
func (a allServices) snapshots(t *testing.T) []byte {
	t.Helper()
	return slices.Concat(snapshotOf(t, a.one), snapshotOf(t, a.ports), snapshotOf(t, a.owners))
}

// step changes something in each.
func (a allServices) step(ctx context.Context, rnd *rand.Rand, n int) error {
	addr := services.Addr()
	for range 1 + rnd.IntN(50) {
		addr = addr.Next()
	}
	port := ports.First + uint16(rnd.IntN(50))
	return errors.Join(
		a.one.Do(ctx, func(r *servicealloc.Range) error {
			if rnd.IntN(2) == 0 {
				r.Release(addr)
				return nil
			}
			_, _, err := r.AllocateNext()
			return err
		}),
		a.ports.Do(ctx, func(p *servicealloc.Ports) error {
			if rnd.IntN(2) == 0 {
				p.Release(port)
			} else if _, _, err := p.AllocateNext(); err != nil {
				return err
			} else if _, taken := p.Lookup(port); !taken {
				return p.Allocate(port)
			}
			return nil
		}),
		a.owners.Do(ctx, func(r *servicealloc.Registry) error {
			owner := fmt.Sprint("owner", rnd.IntN(24))
			g, held := r.Get(owner)
			var err error
			switch {
			case rnd.IntN(20) == 0:
				err = r.SetRange(servicealloc.RangeInfo{Name: fmt.Sprint("more", n%3), Prefixes: []netip.Prefix{netip.MustParsePrefix("10.98.0.0/28")}, Draining: true})
			case !held:
				_, err = r.Allocate(owner, servicealloc.Request{Addrs: []netip.Addr{netip.IPv4Unspecified()}, Ports: []servicealloc.Port{{Protocol: servicealloc.TCP}}})
			case rnd.IntN(2) == 0:
				var tx *servicealloc.Tx
				tx, _, err = r.Begin(owner, servicealloc.Request{Addrs: g.Addrs, Ports: []servicealloc.Port{{Protocol: servicealloc.UDP}, {Protocol: servicealloc.TCP}}})
				if err == nil && rnd.IntN(3) == 0 {
					err = tx.Rollback()
				} else if err == nil {
					err = tx.Commit()
				}
			default:
				_, err = r.Release(owner, 0)
			}
			return err
		}),
	)
}

// The same of ports and addresses of services, and of a registry with its owners, generations and spills.
func TestJournalOfServices(t *testing.T) {
	rnd := rand.New(rand.NewPCG(5, 6))
	s := open(t, boltstore.Options{NoSync: true})
	a := openServices(t, s)
	small := netip.MustParsePrefix("10.97.0.0/27") // 16 static, 14 dynamic: it spills soon
	err := errors.Join(
		a.owners.Do(t.Context(), func(r *servicealloc.Registry) error {
			return r.SetRange(servicealloc.RangeInfo{Name: "main", Prefixes: []netip.Prefix{small}})
		}),
	)
	spilled := false
	for n := range 400 {
		if err = errors.Join(err, a.step(t.Context(), rnd, n)); err != nil {
			t.Fatal(n, err)
		}
		a.owners.View(func(r *servicealloc.Registry) {
			for g := range r.All() {
				spilled = spilled || g.Spilled
			}
		})
		if n%25 != 0 {
			continue
		}
		c := crashed(t, s)
		if !bytes.Equal(a.snapshots(t), openServices(t, c).snapshots(t)) {
			t.Fatalf("step %d: not the same after a crash", n)
		}
		c.Close()
	}
	if !spilled {
		t.Error("nothing spilled")
	}
	names, err := journal.Names(t.Context(), s)
	if err != nil || !slices.Equal(names, []string{"one", "owners", "ports"}) {
		t.Errorf("%v, %v", names, err)
	}
}

// With random starts, the default, what is held is the same after a crash; the starts are those since the last snapshot again.
func TestJournalOfRandomStarts(t *testing.T) {
	s := open(t, boltstore.Options{NoSync: true})
	j := must[*servicealloc.Range](t)(journal.OpenRange(t.Context(), s, "r", services))
	given := make(map[netip.Addr]bool)
	for i := range 4 {
		for range 50 {
			ip, err := journal.Do(t.Context(), j, func(r *servicealloc.Range) (netip.Addr, error) {
				ip, _, err := r.AllocateNext()
				return ip, err
			})
			if err != nil || given[ip] {
				t.Fatalf("life %d: %v, %v", i, ip, err)
			}
			given[ip] = true
		}
		s = crashed(t, s)
		j = must[*servicealloc.Range](t)(journal.OpenRange(t.Context(), s, "r", services))
	}
	j.View(func(r *servicealloc.Range) {
		if have := slices.Collect(r.All()); len(have) != len(given) || r.Check() != nil {
			t.Errorf("%d held, %d given", len(have), len(given))
		}
	})
}

// The log does not grow for ever, and what Do changes is in the file when it returns, whoever calls it.
func TestJournalAtOnce(t *testing.T) {
	s := open(t, boltstore.Options{NoSync: true})
	j := must[*cidrset.Set](t)(journal.OpenSet(t.Context(), s, "set", netip.MustParsePrefix("2001:db8::/48"), 64))
	var mu sync.Mutex
	given := make(map[netip.Prefix]int)
	var wg sync.WaitGroup
	for w := range 16 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for range 200 {
				p, err := journal.Do(context.Background(), j, (*cidrset.Set).AllocateNext)
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				given[p]++
				mu.Unlock()
				if w%2 == 0 {
					if err := j.Do(context.Background(), func(a *cidrset.Set) error { _, err := a.Release(p); return err }); err != nil {
						t.Error(err)
					}
					mu.Lock()
					given[p]--
					mu.Unlock()
				}
			}
		}()
	}
	wg.Wait()
	c := crashed(t, s)
	k := must[*cidrset.Set](t)(journal.OpenSet(t.Context(), c, "set", netip.MustParsePrefix("2001:db8::/48"), 64))
	k.View(func(a *cidrset.Set) {
		for p, n := range given {
			if n > 1 || a.Has(p) != (n == 1) {
				t.Errorf("%v: given %d times, held %v", p, n, a.Has(p))
			}
		}
	})
	if n := s.Stats().Records; n > 4098 {
		t.Errorf("%d records", n)
	}
}

// When there is no room the call fails and the allocator is as the file has it; it goes on when there is.
func TestJournalNoSpace(t *testing.T) {
	s := open(t, boltstore.Options{NoSync: true, MaxSize: 2 << 20})
	j := must[*cidrset.Set](t)(journal.OpenSet(t.Context(), s, "set", netip.MustParsePrefix("10.0.0.0/8"), 28))
	next := func() (netip.Prefix, error) { return journal.Do(t.Context(), j, (*cidrset.Set).AllocateNext) }
	first, err := next()
	if err != nil {
		t.Fatal(err)
	}
	i := 0
	for err == nil { // fill what is left
		i++
		_, err = s.Commit(t.Context(), []store.Op{{Kind: store.Put, Key: fmt.Sprint(i), Value: string(make([]byte, 2000))}})
	}
	before := snapshotOf(t, j)
	many := func(a *cidrset.Set) error { return a.AllocateN(make([]netip.Prefix, 2500)) } // some 40 KB of log
	for range 3 {
		if err := j.Do(t.Context(), many); !errors.Is(err, boltstore.ErrNoSpace) {
			t.Fatal(err)
		}
		if !bytes.Equal(before, snapshotOf(t, j)) {
			t.Fatal("a call that failed changed the set")
		}
	}
	for ; i > 0; i-- {
		if _, err := s.Commit(t.Context(), []store.Op{{Kind: store.Delete, Key: fmt.Sprint(i), Expect: store.AnyRevision}}); err != nil {
			t.Fatal(err)
		}
	}
	if second, err := next(); err != nil || second == first {
		t.Errorf("%v, %v after %v", second, err, first)
	}
	if err := j.Do(t.Context(), many); err != nil {
		t.Error(err)
	}
}

// What can't be opened says why; what is dropped begins anew.
func TestJournalRefuses(t *testing.T) {
	ctx := t.Context()
	path := filepath.Join(t.TempDir(), "store.db")
	s := reopen(t, path, boltstore.Options{NoSync: true})
	j := must[*cidrset.Set](t)(journal.OpenSet(ctx, s, "set", pool, 24))
	if j.Name() != "set" {
		t.Error(j.Name())
	}
	other := func() (err error) { _, err = journal.OpenSet(ctx, s, "set", pool, 25); return err }
	kind := func() (err error) { _, err = journal.OpenRange(ctx, s, "set", pool); return err }
	again := func() (err error) { _, err = journal.OpenSet(ctx, s, "set", pool, 24); return err }
	for i, f := range []func() error{other, kind, again, func() error { return journal.Drop(ctx, s, "set") }} {
		if err := f(); !errors.Is(err, ipalloc.ErrInUse) {
			t.Errorf("%d, while it is open: %v", i, err)
		}
	}
	if _, err := journal.OpenSet(ctx, s, "", pool, 24); !errors.Is(err, ipalloc.ErrInvalid) {
		t.Errorf("no name: %v", err)
	}
	if _, err := journal.OpenSet(ctx, s, "new", pool, 7); !errors.Is(err, ipalloc.ErrInvalid) {
		t.Errorf("a set that can't be: %v", err)
	}
	if _, err := journal.OpenSet(ctx, s, "new", pool, 24, cidrset.OnChange(func(cidrset.Change) {})); !errors.Is(err, ipalloc.ErrInvalid) {
		t.Errorf("a hook: %v", err)
	}
	if _, err := journal.OpenSet(ctx, s, "new", pool, 24); err != nil {
		t.Errorf("after it could not be opened: %v", err)
	}
	if _, err := journal.Do(ctx, j, (*cidrset.Set).AllocateNext); err != nil {
		t.Fatal(err)
	}
	s.Close()
	if _, err := journal.Do(ctx, j, (*cidrset.Set).AllocateNext); !errors.Is(err, ipalloc.ErrClosed) {
		t.Errorf("closed: %v", err)
	}
	s = reopen(t, path, boltstore.Options{ReadOnly: true})
	for i, f := range []func() error{other, kind} {
		if err := f(); !errors.Is(err, ipalloc.ErrMismatch) {
			t.Errorf("%d: %v", i, err)
		}
	}
	j = must[*cidrset.Set](t)(journal.OpenSet(ctx, s, "set", pool, 24))
	if _, err := journal.Do(ctx, j, (*cidrset.Set).AllocateNext); !errors.Is(err, boltstore.ErrReadOnly) {
		t.Errorf("read-only: %v", err)
	}
	j.View(func(a *cidrset.Set) {
		if a.Stats().Used != 1 {
			t.Errorf("read-only: %+v", a.Stats())
		}
	})
	s.Close()
	s = reopen(t, path, boltstore.Options{NoSync: true})
	if err := journal.Drop(ctx, s, "set"); err != nil {
		t.Fatal(err)
	}
	if err := journal.Drop(ctx, s, "nothing"); err != nil {
		t.Fatal(err)
	}
	if names, err := journal.Names(ctx, s); err != nil || !slices.Equal(names, []string{"new"}) {
		t.Errorf("%v, %v", names, err)
	}
	j = must[*cidrset.Set](t)(journal.OpenSet(ctx, s, "set", pool, 25))
	j.View(func(a *cidrset.Set) {
		if a.Stats().Used != 0 {
			t.Errorf("dropped: %+v", a.Stats())
		}
	})
}

// A journal that is closed can be opened again, with other options, and has what was done before; calls that had begun are in
// the file, later ones are refused.
func TestJournalClose(t *testing.T) {
	s, ctx := open(t, boltstore.Options{NoSync: true}), t.Context()
	j := must[*cidrset.Set](t)(journal.OpenSet(ctx, s, "set", pool, 24))
	var wg sync.WaitGroup
	var mu sync.Mutex
	done := 0
	for range 8 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for {
				if _, err := journal.Do(ctx, j, (*cidrset.Set).AllocateNext); errors.Is(err, ipalloc.ErrClosed) {
					return
				} else if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				done++
				enough := done == 20
				mu.Unlock()
				if enough {
					go j.Close() // while the others are at it
				}
			}
		}()
	}
	wg.Wait()
	j.Close()
	j.Close()
	if err := j.Drop(ctx); !errors.Is(err, ipalloc.ErrClosed) {
		t.Errorf("drop: %v", err)
	}
	var last uint64
	j.View(func(a *cidrset.Set) {
		last = a.Stats().Used
		_, _ = a.AllocateNext() // a change that goes nowhere
	})
	again := must[*cidrset.Set](t)(journal.OpenSet(ctx, s, "set", pool, 24, cidrset.LowestFirst()))
	again.View(func(a *cidrset.Set) {
		if used := a.Stats().Used; used != last || used != uint64(done) {
			t.Errorf("%d acknowledged, %d before, %d after", done, last, used)
		}
	})
	if _, err := journal.Do(ctx, again, (*cidrset.Set).AllocateNext); err != nil {
		t.Error(err)
	}
}

// A journal is dropped while it is open, and a new one of its name is empty. If the file refuses that, it is closed and there.
func TestJournalDropOpen(t *testing.T) {
	s, ctx := open(t, boltstore.Options{NoSync: true}), t.Context()
	for range 2 {
		j := must[*cidrset.Set](t)(journal.OpenSet(ctx, s, "set", pool, 24))
		if p, err := journal.Do(ctx, j, (*cidrset.Set).AllocateNext); err != nil || p.Addr() != pool.Addr() {
			t.Errorf("%v, %v", p, err)
		}
		if err := j.Drop(ctx); err != nil {
			t.Fatal(err)
		}
		if _, err := journal.Do(ctx, j, (*cidrset.Set).AllocateNext); !errors.Is(err, ipalloc.ErrClosed) {
			t.Errorf("dropped: %v", err)
		}
		if names, err := journal.Names(ctx, s); err != nil || len(names) != 0 {
			t.Errorf("%v, %v", names, err)
		}
	}
	j := must[*cidrset.Set](t)(journal.OpenSet(ctx, s, "set", pool, 24))
	ended, cancel := context.WithCancel(ctx)
	cancel()
	if err := j.Drop(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	if names, err := journal.Names(ctx, s); err != nil || !slices.Equal(names, []string{"set"}) {
		t.Errorf("%v, %v", names, err)
	}
	if err := journal.Drop(ctx, s, "set"); err != nil {
		t.Error(err)
	}
}

// An error or a panic of the caller's function comes back to the caller, and what it changed before is kept; a context that
// has ended keeps it from being called.
func TestJournalCallersCode(t *testing.T) {
	s := open(t, boltstore.Options{NoSync: true})
	j := must[*cidrset.Set](t)(journal.OpenSet(t.Context(), s, "set", pool, 24))
	mine := errors.New("mine")
	if err := j.Do(t.Context(), func(a *cidrset.Set) error { _, _ = a.AllocateNext(); return mine }); err != mine {
		t.Errorf("%v", err)
	}
	func() {
		defer func() {
			if p := recover(); p != "mine" {
				t.Errorf("recovered %v", p)
			}
		}()
		_ = j.Do(t.Context(), func(a *cidrset.Set) error { _, _ = a.AllocateNext(); panic("mine") })
	}()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := j.Do(ctx, func(*cidrset.Set) error { t.Error("called"); return nil }); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	inside, leave := make(chan struct{}), make(chan struct{})
	go j.Do(context.Background(), func(*cidrset.Set) error { close(inside); <-leave; return nil })
	<-inside
	ctx, cancel = context.WithCancel(t.Context())
	waiting := make(chan error)
	go func() { waiting <- j.Do(ctx, func(*cidrset.Set) error { t.Error("called"); return nil }) }()
	cancel()
	if err := <-waiting; !errors.Is(err, context.Canceled) || errors.Is(err, ipalloc.ErrUnknownOutcome) {
		t.Error(err)
	}
	close(leave)
	j.View(func(a *cidrset.Set) { _, _ = a.AllocateNext() }) // against the rules
	if p, err := journal.Do(t.Context(), j, (*cidrset.Set).AllocateNext); err != nil || p != netip.MustParsePrefix("10.0.3.0/24") {
		t.Errorf("%v, %v", p, err)
	}
	k := must[*cidrset.Set](t)(journal.OpenSet(t.Context(), crashed(t, s), "set", pool, 24))
	k.View(func(a *cidrset.Set) {
		if a.Stats().Used != 4 {
			t.Errorf("%+v", a.Stats())
		}
	})
}

// A journal that a newer program wrote is refused, whatever part of it says so, and nothing of it is changed.
func TestJournalOfANewerVersion(t *testing.T) {
	batch := func(s string) store.Op {
		return store.Op{Kind: store.Put, Key: "log\x00\x00\x00\x00\x00\x00\x00\x00", Value: s, Expect: store.AnyRevision}
	}
	for name, tt := range map[string]struct {
		op   store.Op
		want error
	}{
		"kind":             {store.Op{Kind: store.Put, Key: "kind", Value: "2 cidrset.Set", Expect: store.AnyRevision}, ipalloc.ErrMismatch},
		"kind, unreadable": {store.Op{Kind: store.Put, Key: "kind", Value: "cidrset.Set", Expect: store.AnyRevision}, ipalloc.ErrCorrupt},
		"kind, version 0":  {store.Op{Kind: store.Put, Key: "kind", Value: "0 cidrset.Set", Expect: store.AnyRevision}, ipalloc.ErrCorrupt},
		"batch":            {batch(`{"version":2,"deeds":[7]}`), ipalloc.ErrMismatch},
		"batch, no number": {batch(`{"changes":[]}`), ipalloc.ErrCorrupt},
		"batch, cut":       {batch(`{"version":1,"chan`), ipalloc.ErrCorrupt},
		"field":            {batch(`{"version":1,"changes":[{"op":"allocate","prefixes":["10.0.0.0/24"],"until":5}],"cursor":"10.0.1.0/24"}`), ipalloc.ErrCorrupt},
		"change":           {batch(`{"version":1,"changes":[{"op":"lend","prefixes":["10.0.0.0/24"]}],"cursor":"10.0.1.0/24"}`), ipalloc.ErrMismatch},
		"snapshot":         {store.Op{Kind: store.Put, Key: "snapshot", Value: "nothing", Expect: store.AnyRevision}, ipalloc.ErrCorrupt},
	} {
		path := filepath.Join(t.TempDir(), "store.db")
		s := reopen(t, path, boltstore.Options{NoSync: true})
		must[*cidrset.Set](t)(journal.OpenSet(t.Context(), s, "set", pool, 24))
		s.Close()
		s = reopen(t, path, boltstore.Options{NoSync: true})
		table, err := s.OpenTable("journal/set")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := table.Commit(t.Context(), []store.Op{tt.op}); err != nil {
			t.Fatal(err)
		}
		before, _, _ := table.List(t.Context(), store.Range{})
		table.Close()
		for range 2 {
			var e *ipalloc.Error
			if _, err := journal.OpenSet(t.Context(), s, "set", pool, 24); !errors.Is(err, tt.want) || !errors.As(err, &e) {
				t.Errorf("%s: %v", name, err)
			}
		}
		table, err = s.OpenTable("journal/set")
		if err != nil {
			t.Fatal(err)
		}
		if after, _, _ := table.List(t.Context(), store.Range{}); !slices.Equal(before, after) {
			t.Errorf("%s: the journal was changed", name)
		}
	}
}
