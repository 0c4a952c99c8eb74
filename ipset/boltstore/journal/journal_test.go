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
