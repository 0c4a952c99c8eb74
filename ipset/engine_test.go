package ipset

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go4.org/netipx"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/audit"
	"github.com/ipalloc/ipalloc/ipset/block"
	core "github.com/ipalloc/ipalloc/ipset/internal/block"
	"github.com/ipalloc/ipalloc/ipset/internal/record"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// clock is a time that tests move.
type clock struct {
	mu sync.Mutex
	t  time.Time
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.t
}

func (c *clock) add(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.t = c.t.Add(d)
}

// world is an engine on a memory store with a clock.
type world struct {
	*Engine
	t     testing.TB
	store *store.Memory
	clock *clock
	final bool         // whether the store is checked at the end of the test
	left  []audit.Kind // the kinds of problems that it may have then
}

// bg is what tests call with. It is not the background itself, so that heeded sees a call that went on without it.
var bg = context.WithValue(context.Background(), heeded{}, nil)

// heeded is a store that fails the test when it is asked with a context that no caller gave.
type heeded struct {
	store.Store
	t testing.TB
}

func (s heeded) given(ctx context.Context) {
	if ctx == context.Background() {
		s.t.Helper()
		s.t.Errorf("the store is asked without the context of the caller\n%s", debug.Stack())
	}
}

func (s heeded) Get(ctx context.Context, dst []store.Record, keys ...string) ([]store.Record, error) {
	s.given(ctx)
	return s.Store.Get(ctx, dst, keys...)
}

func (s heeded) List(ctx context.Context, r store.Range) ([]store.Record, uint64, error) {
	s.given(ctx)
	return s.Store.List(ctx, r)
}

func (s heeded) Commit(ctx context.Context, ops []store.Op) (uint64, error) {
	s.given(ctx)
	return s.Store.Commit(ctx, ops)
}

// noSleep retries at once.
func noSleep(ctx context.Context, _ time.Duration) error { return ctx.Err() }

// newWorld returns a world that is checked when the test has passed.
func newWorld(t testing.TB, cfg alloc.Config, pools ...alloc.Pool) *world {
	t.Helper()
	w := &world{t: t, store: store.NewMemory(), clock: &clock{t: t0}, final: true}
	t.Cleanup(func() {
		if !t.Failed() && w.final {
			w.check(w.left...)
		}
	})
	w.Engine = w.engine(w.store)
	if err := w.Operator().SetConfig(bg, cfg); err != nil {
		t.Fatal(err)
	}
	for _, p := range pools {
		if err := w.AddPool(bg, p); err != nil {
			t.Fatal(err)
		}
	}
	return w
}

// engine returns another engine on a store, with the world's clock.
func (w *world) engine(s store.Store) *Engine {
	w.t.Helper()
	e, err := New(heeded{s, w.t}, Options{Now: w.clock.now, Rand: rand.NewPCG(1, 2), Retry: Retry{Sleep: noSleep}})
	if err != nil {
		w.t.Fatal(err)
	}
	return e
}

func poolOf(name, prefix string, bits int) alloc.Pool {
	return alloc.Pool{Name: name, Prefix: netip.MustParsePrefix(prefix), BlockBits: bits}
}

// want are arguments of an assignment of n IPv4 addresses, or of as many as there are.
func want(host string, n int, handle string) alloc.AssignArgs {
	return alloc.AssignArgs{Owner: alloc.HostOwner(host), Num4: n, Use: alloc.Workload, Partial: true, Handle: handle}
}

// assign assigns and fails the test on an error.
func (w *world) assign(a alloc.AssignArgs) alloc.Assigned {
	w.t.Helper()
	got, err := w.AutoAssign(bg, a)
	if err != nil {
		w.t.Fatal(err)
	}
	return got
}

func (w *world) blocksOf(host string) []netip.Prefix {
	w.t.Helper()
	blocks, err := w.BlocksOf(bg, alloc.HostOwner(host))
	if err != nil {
		w.t.Fatal(err)
	}
	return blocks
}

func TestAutoAssignTwoHostsShareNothing(t *testing.T) {
	w := newWorld(t, alloc.Config{}, poolOf("a", "10.0.0.0/20", 26))
	seen := map[netip.Addr]bool{}
	for i := range 200 {
		for _, al := range w.assign(want(fmt.Sprint("h", i%3), 1, fmt.Sprint("p", i))).V4 {
			if seen[al.Address] {
				t.Fatalf("%s twice", al.Address)
			}
			seen[al.Address] = true
		}
	}
	for i := range 3 {
		if n := len(w.blocksOf(fmt.Sprint("h", i))); n != 2 {
			t.Errorf("h%d has %d blocks", i, n)
		}
	}
}

// leaves says that the test leaves problems of some kinds in the store. Without kinds the store is not checked at its end.
func (w *world) leaves(kinds ...audit.Kind) { w.final, w.left = len(kinds) > 0, kinds }

// check fails the test if any record is not what the blocks say. kinds may occur.
func (w *world) check(kinds ...audit.Kind) {
	w.t.Helper()
	rep, err := w.Operator().Check(bg, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, p := range rep.Problems {
		if !slices.Contains(kinds, p.Kind) {
			w.t.Fatal(p)
		}
	}
	if err := w.store.Check(); err != nil {
		w.t.Fatal(err)
	}
}

// t0 is when the tests' clocks begin.
var t0 = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// badField stands for the error of an argument that cannot be.
type badField string

func (b badField) Error() string { return "bad " + string(b) }

// is is errors.Is that knows badField.
func is(err, want error) bool {
	field, ok := want.(badField)
	var e *ipalloc.Error
	return !ok && errors.Is(err, want) || ok && errors.Is(err, ipalloc.ErrInvalid) && errors.As(err, &e) && e.Field == string(field)
}

func ip(s string) netip.Addr { return netip.MustParseAddr(s) }

func mustBlock(t testing.TB, prefix string, o block.Options) *block.Block {
	t.Helper()
	b, err := block.New(netip.MustParsePrefix(prefix), o)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// codedBlock returns the record of a block.
func codedBlock(b *block.Block) string { return string((*core.Block)(b).Append(nil)) }

// lastBytes writes addresses as their last byte, which is all that differs in the blocks of these tests.
func lastBytes(als []alloc.Allocation) string {
	var s []string
	for _, a := range als {
		b := a.Address.AsSlice()
		s = append(s, fmt.Sprint(b[len(b)-1]))
	}
	return strings.Join(s, " ")
}

// rangeOf returns the prefix of a reservation as text.
func rangeOf(r alloc.Reservation) string {
	p, _ := r.Range.Prefix()
	return p.String()
}

// reservations returns the reservations of a set, without notes.
func reservations(set *netipx.IPSet) []alloc.Reservation { return alloc.Reservations(set.Ranges()...) }

func ranges(prefixes ...string) *netipx.IPSet {
	var sb netipx.IPSetBuilder
	for _, p := range prefixes {
		sb.AddPrefix(netip.MustParsePrefix(p))
	}
	set, err := sb.IPSet()
	if err != nil {
		panic(err)
	}
	return set
}

func (w *world) releaseHandle(h string) []netip.Addr {
	w.t.Helper()
	as, err := w.ReleaseByHandle(bg, h)
	if err != nil {
		w.t.Fatal(err)
	}
	return as
}

// records returns the number of records of a kind.
func (w *world) records(kind string) int {
	return len(w.list(store.Range{From: kind, To: kind + "\xff\xff"}))
}

// former returns how many records say that a block was the own one of a former owner.
func (w *world) former() (n int) {
	for _, r := range w.list(store.Range{From: record.KindOwner, To: record.EndOf(record.KindOwner)}) {
		if _, number := record.ParseOwnerKey(r.Key); !number && r.Value != "" {
			n++
		}
	}
	return n
}

// list returns the records of a range.
func (w *world) list(r store.Range) []store.Record {
	w.t.Helper()
	recs, _, err := w.store.List(bg, r)
	if err != nil {
		w.t.Fatal(err)
	}
	return recs
}

func (w *world) rev() uint64 {
	_, rev, err := w.store.List(bg, store.Range{Limit: 1})
	if err != nil {
		w.t.Fatal(err)
	}
	return rev
}
