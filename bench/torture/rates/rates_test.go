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
						pairs += perSecond(b, callers, 300*time.Millisecond, engine)
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
			for _, pair := range []side{engine, bare} {
				if perSecond(t, 32, 20*time.Millisecond, pair) == 0 {
					t.Error("no pair in a turn")
				}
			}
		})
	}
}

// side makes a pair for a caller.
type side func(ctx context.Context, caller int) error

// open returns what makes a pair on the store, and on the program alone.
func open(t testing.TB, subject func(context.Context, string) (*subject, error)) (side, side) {
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
	pair := func(ctx context.Context, caller int) error {
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
	return pair, func(ctx context.Context, caller int) error {
		return errors.Join(s.bare(ctx, caller), s.bare(ctx, caller))
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
