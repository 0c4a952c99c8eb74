package ipset_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/ipalloc/ipalloc/ipset"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// holding is an address with the sequence number of one of its holders.
type holding struct {
	address netip.Addr
	seq     uint64
}

// tenant is a holder of an address, or the last one of a cooling address.
type tenant struct {
	host                  alloc.Owner
	handle                string
	until                 time.Time
	attributes, alternate alloc.Attributes
	cooling               bool
}

func tenantOf(al alloc.Allocation) tenant {
	return tenant{al.Host, al.Handle, al.Until, al.Attributes, al.Alternate, al.Cooling}
}

// ledger is the state of a store, put together from changes alone.
type ledger struct {
	addresses map[holding]tenant
	blocks    map[netip.Prefix]alloc.Owner
	pools     map[string]alloc.Pool
	reserved  string
	config    alloc.Config
	unknown   map[any]int // how often the change of an address or a block said that what was before is not known
}

func newLedger() *ledger {
	return &ledger{map[holding]tenant{}, map[netip.Prefix]alloc.Owner{}, map[string]alloc.Pool{}, "[]", alloc.Config{}, map[any]int{}}
}

// apply takes over a change, and reports whether it says rightly what was before.
func (l *ledger) apply(c alloc.Change) error {
	if at := any(c.Address); c.Unknown && c.Kind < alloc.PoolAdded {
		if c.Block.IsValid() {
			at = c.Block
		}
		if l.unknown[at]++; l.unknown[at] > 1 && c.Is.Share() == (alloc.Share{}) {
			return fmt.Errorf("%v: what was before is not known again", at)
		}
		if l.unknown[at] == 1 {
			maps.DeleteFunc(l.addresses, func(h holding, _ tenant) bool { return h.address == at })
		}
	}
	switch k := c.Kind; {
	case k <= alloc.HostChanged:
		at := holding{c.Address, c.Was.Seq}
		if was, had := l.addresses[at]; had != c.Was.Address.IsValid() || had && was != tenantOf(c.Was) && was != tenantOf(c.Is) {
			return fmt.Errorf("%v: %s was %+v, the change says %+v", k, c.Address, was, c.Was) // the second change of a holder has been applied
		}
		if delete(l.addresses, at); c.Is.Address.IsValid() {
			l.addresses[holding{c.Address, c.Is.Seq}] = tenantOf(c.Is)
		}
	case k <= alloc.BlockReturned:
		if former := l.blocks[c.Block]; !c.Unknown && former != c.Former {
			return fmt.Errorf("%v: %s was of %v, the change says %v", k, c.Block, former, c.Former)
		}
		if l.blocks[c.Block] = c.Owner; k == alloc.BlockReturned {
			delete(l.blocks, c.Block)
		}
	case k <= alloc.PoolRemoved:
		if c.Pool != nil {
			l.pools[c.Pool.Name] = *c.Pool
		} else {
			delete(l.pools, c.FormerPool.Name)
		}
	case k == alloc.ReservationsChanged:
		l.reserved = fmt.Sprint(c.Reserved)
	default:
		l.config = *c.Config
	}
	return nil
}

// state reads the state that a ledger should have. e has a clock that is before all leases.
func state(t testing.TB, e *ipset.Engine) *ledger {
	t.Helper()
	ctx := context.Background()
	l := newLedger()
	for al, err := range e.Allocations(ctx, netip.Prefix{}) {
		if err != nil {
			t.Fatal(err)
		}
		for h := range al.Holders() {
			l.addresses[holding{h.Address, h.Seq}] = tenantOf(h)
		}
	}
	for b, err := range e.Operator().Blocks(ctx, netip.Prefix{}) {
		if err != nil {
			t.Fatal(err)
		}
		l.blocks[b.Prefix()] = b.Owner()
	}
	pools, err := e.Pools(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range pools {
		l.pools[p.Name] = p
	}
	reserved, err := e.Operator().Reservations(ctx)
	if err != nil {
		t.Fatal(err)
	}
	l.reserved = fmt.Sprint(reserved)
	if l.config, err = e.Operator().Config(ctx); err != nil {
		t.Fatal(err)
	}
	return l
}

func (l *ledger) diff(other *ledger) string {
	for _, same := range []bool{
		maps.Equal(l.addresses, other.addresses), maps.Equal(l.blocks, other.blocks), reflect.DeepEqual(l.pools, other.pools),
		l.reserved == other.reserved, l.config == other.config,
	} {
		if !same {
			return fmt.Sprintf("%+v\nwant\n%+v", *l, *other)
		}
	}
	return ""
}

// copy returns a ledger of its own.
func (l *ledger) copy() *ledger {
	c := *l
	c.unknown = map[any]int{}
	c.addresses, c.blocks, c.pools = maps.Clone(l.addresses), maps.Clone(l.blocks), maps.Clone(l.pools)
	return &c
}

// trace makes random calls on a store and returns the state after each, by revision, and the last revision. It calls middle after
// half of them.
func trace(t *testing.T, db store.Store, seed uint64, calls int, middle func(*ipset.Engine)) (states map[uint64]*ledger, last uint64) {
	t.Helper()
	ctx := context.Background()
	w := &dryWorld{rand.New(rand.NewPCG(seed, 3)), dryStart}
	e := w.engine(t, db, 0)
	still, err := ipset.New(db, ipset.Options{Now: func() time.Time { return time.Unix(1, 0) }})
	if err != nil {
		t.Fatal(err)
	}
	for range 8 {
		_ = e.AddPool(ctx, w.pool()) // it may overlap another
	}
	states = map[uint64]*ledger{}
	for i := range calls {
		if i == calls/2 {
			middle(e)
		}
		w.call().do(ctx, e)
		w.now = w.now.Add(time.Duration(w.r.IntN(4)/3*w.r.IntN(50)) * time.Second)
		states[revision(t, db)] = state(t, still)
	}
	must(e.AddPool(ctx, alloc.Pool{Name: "last", Prefix: netip.MustParsePrefix("192.0.2.0/24")}))
	last = revision(t, db)
	states[last] = state(t, still)
	return states, last
}

// rank is the place of a kind in a commit.
func rank(k alloc.ChangeKind) int {
	switch {
	case k >= alloc.PoolAdded:
		return 0
	case k == alloc.BlockClaimed:
		return 1
	case k <= alloc.HostChanged:
		return 2
	}
	return 3
}

// follow applies commits until the last one, and compares each state with the one that was read then. It returns how many.
func (l *ledger) follow(t *testing.T, next func() (alloc.Commit, error, bool), states map[uint64]*ledger, last uint64) (compared int) {
	t.Helper()
	for rev := uint64(0); ; {
		c, err, ok := next()
		if err != nil || !ok {
			t.Fatal(err)
		}
		if c.Rev < rev || c.Rev > last || c.Rev == rev && !c.Present {
			t.Fatalf("revision %d after %d, the last is %d", c.Rev, rev, last)
		}
		rev = c.Rev
		reset := false
		if !slices.IsSortedFunc(c.Changes, func(a, b alloc.Change) int { return rank(a.Kind) - rank(b.Kind) }) {
			t.Fatalf("revision %d: %+v", rev, c.Changes)
		}
		for _, ch := range c.Changes {
			if ch.Unknown && ch.Kind >= alloc.PoolAdded && !reset {
				reset, l.pools, l.reserved, l.config = true, map[string]alloc.Pool{}, "[]", alloc.Config{}
			}
			if err := l.apply(ch); err != nil {
				t.Fatalf("revision %d: %v", rev, err)
			}
		}
		if want := states[rev]; want != nil && !c.More {
			compared++
			if d := l.diff(want); d != "" {
				t.Fatalf("revision %d: %s", rev, d)
			}
		}
		if rev == last && !c.More {
			return compared
		}
	}
}
