package rates

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ipalloc/ipalloc/internal/test/servers"
	"github.com/ipalloc/ipalloc/ipset"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// value is about what an assignment writes: the record of a block and that of an address.
var value = strings.Repeat("v", 150)

// subject is a store, and the program that it stands on without it.
type subject struct {
	store store.Store
	bare  func(ctx context.Context, caller int) error // one write
	close func() error
}

// BenchmarkCalls counts what a call of an engine asks of a store, one caller that has blocks with room: round trips, and what the
// commits of one call write. Allocations are those of this process, in the engine and the store.
//
//	cd bench/torture && GOWORK=off go test ./rates -run '^$' -bench Calls -benchtime 200x -benchmem
func BenchmarkCalls(b *testing.B) {
	for _, s := range subjects {
		b.Run(s.name, func(b *testing.B) {
			counted := &counter{}
			e, _ := open(b, func(ctx context.Context, dir string) (*subject, error) {
				on, err := s.open(ctx, dir)
				if err == nil {
					counted.Store, on.store = on.store, counted
				}
				return on, err
			})
			ctx, owner := b.Context(), alloc.HostOwner("host")
			must := func(err error) {
				if err != nil {
					b.Fatal(err)
				}
			}
			handle := func(i int) string { return fmt.Sprint("pod ", i) }
			const held = 32         // of the host's block of 64
			var at [held]netip.Addr // of the last Assign
			assign := func(i int) error {
				a, err := e.Assign(ctx, owner, handle(i))
				at[i] = a.Address
				return err
			}
			one := alloc.AssignArgs{Owner: owner, Num4: 1}
			auto := func(i int) error { one.Handle = handle(i); _, err := e.AutoAssign(ctx, one); return err }
			releaseIPs := func(i int) error { _, err := e.ReleaseIPs(ctx, alloc.Release{Address: at[i]}); return err }
			release := func(i int) error { _, err := e.ReleaseByHandle(ctx, handle(i)); return err }
			for _, c := range []struct {
				name     string
				do, undo func(i int) error
				first    bool // undo comes first
			}{
				{"Assign", assign, release, false}, {"ReleaseByHandle", release, assign, true}, {"AutoAssign", auto, release, false},
				{"ReleaseIPs", releaseIPs, assign, true},
			} {
				b.Run(c.name, func(b *testing.B) {
					for i := range held {
						must(assign(i))
					}
					if !c.first {
						for i := range held {
							must(release(i))
						}
					}
					*counted = counter{Store: counted.Store}
					n := 0
					for b.Loop() {
						must(c.do(n % held))
						if n++; n%held == 0 {
							b.StopTimer()
							now := *counted
							for i := range held {
								must(c.undo(i))
							}
							*counted = now
							b.StartTimer()
						}
					}
					counted.report(b, n)
					for i := range held {
						_ = release(i)
					}
				})
			}
		})
	}
}

// counter is a store that counts the calls of one caller.
type counter struct {
	store.Store
	gets, lists, commits, bytes int
}

func (c *counter) Get(ctx context.Context, dst []store.Record, keys ...string) ([]store.Record, error) {
	c.gets++
	return c.Store.Get(ctx, dst, keys...)
}

func (c *counter) List(ctx context.Context, r store.Range) ([]store.Record, uint64, error) {
	c.lists++
	return c.Store.List(ctx, r)
}

func (c *counter) Commit(ctx context.Context, ops []store.Op) (uint64, error) {
	c.commits++
	for _, op := range ops {
		if op.Kind == store.Put {
			c.bytes += len(op.Key) + len(op.Value)
		}
	}
	return c.Store.Commit(ctx, ops)
}

// report reports the counts of n calls, each.
func (c *counter) report(b *testing.B, n int) {
	for unit, count := range map[string]int{"gets/op": c.gets, "lists/op": c.lists, "commits/op": c.commits, "written-B/op": c.bytes} {
		b.ReportMetric(float64(count)/float64(n), unit)
	}
}

// BenchmarkPairs measures an assignment and its release on every store, beside two bare writes of about the same size to the same
// program: an Update of bbolt, an INSERT, a Put of etcd, a PUT of a ConfigMap. The sides take turns of 300 ms, so that they see the same
// machine, and wait for the disk.
//
//	cd bench/torture && GOWORK=off go test ./rates -run '^$' -bench Pairs -benchtime 3x
func BenchmarkPairs(b *testing.B) {
	for _, s := range subjects {
		b.Run(s.name, func(b *testing.B) {
			engine, bare := open(b, s.open)
			for _, callers := range []int{1, 32, 64, 256} {
				b.Run(fmt.Sprint(callers), func(b *testing.B) {
					var pairs, writes float64
					for b.Loop() {
						pairs += perSecond(b, callers, 300*time.Millisecond, pairOn(engine))
						writes += perSecond(b, callers, 300*time.Millisecond, bare)
					}
					b.ReportMetric(0, "ns/op")
					b.ReportMetric(pairs/float64(b.N), "pairs/s")
					b.ReportMetric(writes/float64(b.N), "bare/s")
				})
			}
		})
	}
}

// Every store takes pairs, and the program that it stands on takes bare ones.
func TestPairs(t *testing.T) {
	for _, s := range subjects {
		t.Run(s.name, func(t *testing.T) {
			engine, bare := open(t, s.open)
			for _, pair := range []side{pairOn(engine), bare} {
				if perSecond(t, 32, 20*time.Millisecond, pair) == 0 {
					t.Error("no pair in a turn")
				}
			}
		})
	}
}

// side makes a pair for a caller.
type side func(ctx context.Context, caller int) error

// open returns an engine on the store, and what makes a pair on the program alone.
func open(t testing.TB, subject func(context.Context, string) (*subject, error)) (*ipset.Engine, side) {
	t.Helper()
	s, err := subject(t.Context(), t.TempDir())
	if errors.Is(err, servers.ErrSkip) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.close(); err != nil {
			t.Error(err)
		}
	})
	e, err := ipset.New(s.store, ipset.Options{})
	if err == nil {
		err = e.AddPool(t.Context(), alloc.Pool{Name: "p", Prefix: netip.MustParsePrefix("10.0.0.0/12"), BlockBits: 26})
	}
	if err != nil {
		t.Fatal(err)
	}
	return e, func(ctx context.Context, caller int) error {
		return errors.Join(s.bare(ctx, caller), s.bare(ctx, caller))
	}
}

// pairOn returns what makes a pair on an engine.
func pairOn(e *ipset.Engine) side {
	return func(ctx context.Context, caller int) error {
		handle := fmt.Sprint("pod ", caller)
		got, err := e.AutoAssign(ctx, alloc.AssignArgs{
			Owner: alloc.HostOwner(fmt.Sprint("host ", caller)), Num4: 1, Handle: handle,
		})
		if err != nil {
			return err
		}
		_, err = e.ReleaseIPs(ctx, alloc.Release{Address: got.V4[0].Address, Guard: alloc.Guard{Handle: handle}})
		return err
	}
}

// perSecond returns how many pairs n callers make a second.
func perSecond(t testing.TB, n int, d time.Duration, pair side) float64 {
	t.Helper()
	var made atomic.Int64
	errs := make([]error, n)
	var wg sync.WaitGroup
	begin := time.Now()
	for c := range n {
		wg.Go(func() {
			for errs[c] == nil && time.Since(begin) < d {
				errs[c] = pair(t.Context(), c)
				made.Add(1)
			}
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	return float64(made.Load()) / time.Since(begin).Seconds()
}
