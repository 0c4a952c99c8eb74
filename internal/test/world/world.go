package world

import (
	"context"
	"fmt"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/ipalloc/ipalloc/ipset"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// Spaces are the spaces of a world; the empty name is the space without one.
var Spaces = []string{"", "blue", "red"}

// Numbers is the set of numbers of a world, which is a space of its own.
const Numbers = "vlan fabric"

// start is when a world begins.
var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// Clock is the time of a world. It moves only when told. Safe for concurrent use.
type Clock struct {
	mu sync.Mutex
	t  time.Time
}

// Now returns the time.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.t
}

// Add moves the time.
func (c *Clock) Add(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.t = c.t.Add(d)
}

// World is a store that uses every feature.
type World struct {
	DB    *store.Memory
	Clock *Clock
	// used are the arguments and results that made the world, in which Missing looks for fields that are never set.
	used []any
}

// New makes a world.
func New(tb testing.TB) *World { return NewAt(tb, start) }

// NewAt makes a world that begins at a time.
func NewAt(tb testing.TB, start time.Time) *World {
	tb.Helper()
	w := &World{DB: store.NewMemory(), Clock: &Clock{t: start}}
	for _, name := range Spaces {
		db, err := In(w.DB, name)
		if err != nil {
			tb.Fatal(err)
		}
		f := &filler{TB: tb, w: w, space: name, db: db, e: w.Engine(tb, w.DB, name, 0)}
		f.addresses()
		f.prefixes()
		f.networks()
	}
	w.numbers(tb)
	w.Clock.Add(10 * time.Minute) // some leases and cooldowns have ended, and no call has met that
	return w
}

// Copy returns a world with the same records, at the same time.
func (w *World) Copy(tb testing.TB) *World {
	tb.Helper()
	data, err := w.DB.MarshalBinary()
	if err != nil {
		tb.Fatal(err)
	}
	db, err := store.RestoreMemory(data)
	if err != nil {
		tb.Fatal(err)
	}
	return &World{DB: db, Clock: &Clock{t: w.Clock.Now()}, used: w.used}
}

// In returns the part of a store that is a space.
func In(db store.Store, space string) (store.Store, error) {
	if space == "" {
		return db, nil
	}
	return store.Space(db, space)
}

// Engine returns an engine on a space of a store, with the clock of the world, labels for its hosts, and cache as Cache
// of [ipset.Options].
func (w *World) Engine(tb testing.TB, db store.Store, space string, cache int) *ipset.Engine {
	tb.Helper()
	e, err := ipset.New(db, ipset.Options{
		Now: w.Clock.Now, Labels: labels, Cache: cache,
		Retry: ipset.Retry{Sleep: func(ctx context.Context, _ time.Duration) error { return ctx.Err() }},
	})
	if err == nil && space != "" {
		e, err = e.InSpace(space)
	}
	if err != nil {
		tb.Fatal(err)
	}
	return e
}

// labels puts the hosts whose names begin with r into rack 1.
func labels(o alloc.Owner) (map[string]string, bool) {
	if len(o.Name) > 0 && o.Name[0] == 'r' {
		return map[string]string{"rack": "1"}, true
	}
	return map[string]string{"rack": "2"}, true
}

// filler makes the part of a world that is one space.
type filler struct {
	testing.TB
	w     *World
	space string
	db    store.Store
	e     *ipset.Engine
}

// must ends the test for an error.
func (f *filler) must(err error) {
	f.Helper()
	if err != nil {
		f.Fatalf("space %q: %v", f.space, err)
	}
}

// use records arguments and results.
func use[T any](f *filler, v T) T {
	f.w.used = append(f.w.used, v)
	return v
}

func host(name string) alloc.Owner { return alloc.HostOwner(name) }

func at(s string) netip.Addr { return netip.MustParseAddr(s) }

func prefix(s string) netip.Prefix { return netip.MustParsePrefix(s) }

// attributes returns the attributes of a tenant.
func attributes(tb testing.TB, tenant string) alloc.Attributes {
	tb.Helper()
	a, err := alloc.NewAttributes(map[string]string{"tenant": tenant, "id": fmt.Sprint(len(tenant))})
	if err != nil {
		tb.Fatal(err)
	}
	return a
}
