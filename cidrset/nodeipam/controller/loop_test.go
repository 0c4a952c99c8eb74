package controller

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/cidrset/nodeipam"
	"github.com/ipalloc/ipalloc/selector"
)

// records is a source and a writer in memory whose view is always up to date.
type records struct {
	mu       sync.Mutex
	nodes    map[string]nodeipam.Node
	changed  func(string)
	recorded chan string
}

func newRecords(nodes ...nodeipam.Node) *records {
	r := &records{nodes: map[string]nodeipam.Node{}, recorded: make(chan string, 100)}
	for _, n := range nodes {
		r.nodes[n.Name] = n
	}
	return r
}

func (r *records) Start(_ context.Context, changed func(string)) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.changed = changed
	return nil
}

func (r *records) List() (list []nodeipam.Node) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, n := range r.nodes {
		list = append(list, n)
	}
	return list
}

func (r *records) Get(name string) (nodeipam.Node, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	n, ok := r.nodes[name]
	return n, ok
}

func (r *records) Write(_ context.Context, n nodeipam.Node, as nodeipam.Assignment) error {
	n.Prefixes, n.Entry = as.Prefixes, as.Entry
	r.set(n)
	r.recorded <- n.Name
	return nil
}

func (r *records) set(n nodeipam.Node) {
	r.mu.Lock()
	r.nodes[n.Name] = n
	r.mu.Unlock()
	r.changed(n.Name)
}

func (r *records) remove(name string) {
	r.mu.Lock()
	delete(r.nodes, name)
	r.mu.Unlock()
	r.changed(name)
}

func (r *records) Read(_ context.Context, name string) (nodeipam.Node, error) {
	n, ok := r.Get(name)
	if !ok {
		return n, ipalloc.ErrNotFound
	}
	return n, nil
}

// The loop serves nodes, gives what a deleted node had to the one that waits, and ends
// with its context.
func TestLoop(t *testing.T) {
	r := newRecords(nodeipam.ParseNode("old", "10.0.0.0/24"), nodeipam.Node{Name: "new", UID: "1"})
	reports := make(chan string, 10)
	a := small(t, 2)
	c, err := New(Config{Allocator: a, Source: r, Writer: r, Jitter: rand.Int64N,
		Report: func(node string, err error) { reports <- fmt.Sprint(node, " ", errors.Is(err, ipalloc.ErrFull)) }})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- c.Run(ctx) }()
	want := func(name, prefix string) {
		t.Helper()
		if got := <-r.recorded; got != name {
			t.Fatalf("%s was written, want %s", got, name)
		}
		if n, _ := r.Get(name); len(n.Prefixes) != 1 || n.Prefixes[0] != netip.MustParsePrefix(prefix) {
			t.Fatalf("%s has %v", name, n.Prefixes)
		}
	}
	want("new", "10.0.1.0/24")
	r.set(nodeipam.Node{Name: "late"})
	if got := <-reports; got != "late true" {
		t.Fatal(got)
	}
	r.remove("old")
	want("late", "10.0.0.0/24")
	if got := <-reports; got != "late false" { // the end of the condition
		t.Fatal(got)
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) || !c.Synced() {
		t.Fatal(err)
	}
	if err := c.Run(t.Context()); !errors.Is(err, ipalloc.ErrClosed) {
		t.Fatal(err)
	}
}

func TestNewRefusesWhatCannotBe(t *testing.T) {
	r := newRecords()
	good := Config{Allocator: small(t, 1), Source: r, Writer: r}
	for name, f := range map[string]func(*Config){
		"Allocator": func(c *Config) { c.Allocator = nil }, "Source": func(c *Config) { c.Source = nil },
		"Writer": func(c *Config) { c.Writer = nil }, "Workers": func(c *Config) { c.Workers = -1 },
		"Attempts": func(c *Config) { c.Attempts = -1 },
		"Base":     func(c *Config) { c.Base = -1 }, "Max": func(c *Config) { c.Max = time.Millisecond },
	} {
		cfg := good
		f(&cfg)
		_, err := New(cfg)
		var e *ipalloc.Error
		if !errors.Is(err, ipalloc.ErrInvalid) || !errors.As(err, &e) || e.Field != name {
			t.Errorf("%s: %v", name, err)
		}
	}
	even := good
	even.Base, even.Max = time.Second, time.Second
	if _, err := New(even); err != nil {
		t.Errorf("pauses of one length: %v", err)
	}
	c, err := New(good)
	if err != nil || c.cfg.Workers != 30 || c.cfg.Attempts != 3 {
		t.Fatal(c, err)
	}
}

// clock is a Clock whose Now is the caller's code.
type clock struct {
	Clock
	now func() time.Time
}

func (c clock) Now() time.Time { return c.now() }

// A clock, a jitter or a Report that looks at the controller does not deadlock: none of
// them is called under a lock.
func TestCallbacksMayLookAtTheController(t *testing.T) {
	r := newRecords(nodeipam.Node{Name: "a"}, nodeipam.Node{Name: "b"})
	var c *Controller
	looks := func() {
		if c != nil {
			c.Stats()
			c.Synced()
		}
	}
	reported := make(chan struct{}, 10)
	made, err := New(Config{Allocator: small(t, 1), Source: r, Writer: r, Base: time.Millisecond, Max: 2 * time.Millisecond,
		Clock:  clock{systemClock{}, func() time.Time { looks(); return time.Now() }},
		Jitter: func(n int64) int64 { looks(); return n + 7 }, // out of range
		Report: func(string, error) { looks(); reported <- struct{}{} }})
	if err != nil {
		t.Fatal(err)
	}
	c = made
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- c.Run(ctx) }()
	<-reported
	cancel()
	<-ended
}

type badCalls struct {
	*records
	list, get, write, read func()
}

func (b *badCalls) call(f func()) {
	if f != nil {
		f()
	}
}

func (b *badCalls) List() []nodeipam.Node {
	b.call(b.list)
	return b.records.List()
}

func (b *badCalls) Get(name string) (nodeipam.Node, bool) {
	b.call(b.get)
	return b.records.Get(name)
}

func (b *badCalls) Write(ctx context.Context, n nodeipam.Node, as nodeipam.Assignment) error {
	b.call(b.write)
	if b.read != nil {
		return errors.New("connection lost")
	}
	return b.records.Write(ctx, n, as)
}

func (b *badCalls) Read(ctx context.Context, name string) (nodeipam.Node, error) {
	b.call(b.read)
	return b.records.Read(ctx, name)
}

// A panic in any of the caller's functions ends Run with that panic, after everything
// that Run started has ended; so does one that ends its goroutine.
func TestPanicsInCallbacksEndRun(t *testing.T) {
	boom := errors.New("boom")
	now := 0
	for name, f := range map[string]func(*Config, *badCalls, func()){
		"clock": func(cfg *Config, _ *badCalls, bang func()) {
			now = 0
			var mu sync.Mutex
			cfg.Clock = clock{systemClock{}, func() time.Time {
				mu.Lock()
				defer mu.Unlock()
				if now++; now == 4 {
					bang()
				}
				return time.Now()
			}}
		},
		"jitter": func(cfg *Config, _ *badCalls, bang func()) { cfg.Jitter = func(int64) int64 { bang(); return 0 } },
		"report": func(cfg *Config, _ *badCalls, bang func()) { cfg.Report = func(string, error) { bang() } },
		"loaded": func(cfg *Config, _ *badCalls, bang func()) { cfg.Loaded = bang },
		"list":   func(_ *Config, b *badCalls, bang func()) { b.list = bang },
		"get":    func(_ *Config, b *badCalls, bang func()) { b.get = bang },
		"write":  func(_ *Config, b *badCalls, bang func()) { b.write = bang },
		"read":   func(_ *Config, b *badCalls, bang func()) { b.read = bang },
	} {
		b := &badCalls{records: newRecords(nodeipam.Node{Name: "a"}, nodeipam.Node{Name: "b"})}
		cfg := Config{Allocator: small(t, 1), Source: b, Writer: b}
		f(&cfg, b, func() { panic(boom) })
		c, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		func() {
			defer func() {
				err, ok := recover().(error)
				if !ok || !errors.Is(err, boom) || !strings.Contains(err.Error(), "panic in a callback") {
					t.Errorf("%s: Run ended with %v", name, err)
				}
			}()
			t.Errorf("%s: Run returned %v", name, c.Run(t.Context()))
		}()
		if st := c.Stats(); c.Run(t.Context()) == nil {
			t.Errorf("%s: ran twice, %+v", name, st)
		}
	}
}

func mustNew(t *testing.T, c nodeipam.Config) *nodeipam.Allocator {
	t.Helper()
	a, err := nodeipam.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// labelled returns an allocator with one entry of /24 children for the nodes that a
// term matches.
func labelled(t *testing.T, pool string, term selector.Term) *nodeipam.Allocator {
	t.Helper()
	a := mustNew(t, nodeipam.Config{ByLabels: true})
	if err := a.AddEntry(nodeipam.Entry{Name: "e", IPv4: pfx(pool), MaskIPv4: 24, Selector: selector.Selector{term}}); err != nil {
		t.Fatal(err)
	}
	return a
}

func small(t *testing.T, children int) *nodeipam.Allocator {
	bits := 24
	for n := 1; n < children; n *= 2 {
		bits--
	}
	return mustNew(t, nodeipam.Config{Slots: []nodeipam.Slot{{Bits: 24, Pools: []netip.Prefix{netip.PrefixFrom(netip.MustParseAddr("10.0.0.0"), bits)}}}})
}

func pfx(s string) netip.Prefix { return netip.MustParsePrefix(s) }

func pfxs(ss ...string) (ps []netip.Prefix) {
	for _, s := range ss {
		ps = append(ps, pfx(s))
	}
	return ps
}
