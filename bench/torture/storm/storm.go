package storm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing/synctest"
	"time"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/numbers"
	"github.com/ipalloc/ipalloc/ipset/prefixes"
)

// Skew is the largest difference between the clocks of two processes.
const skew = 2 * time.Second

// jump is the least by which the time moves. Every wait of a call is shorter, so no call is still in one after it.
const jump = time.Second

// room is the allocators of one kind in a process, which settle their lost commits together.
type room string

const (
	addresses room = "addresses"
	ranges    room = "numbers"
	trees     room = "prefixes"
)

// process is an engine with what stands beside it, on a connection of its own.
type process struct {
	*conn
	offset time.Duration // of its clock
	e      *ipset.Engine
	n      *numbers.Numbers
	x      *prefixes.Allocator
}

// client makes one call at a time.
type client struct {
	name   string
	at     *process
	call   *call // nil while it is idle
	last   *call
	cancel func()
	left   int // calls
}

// world is one storm.
type world struct {
	r         *rand.Rand
	now       time.Time
	net       network
	db        *server
	processes []*process
	clients   []*client
	plan      plan
	step      int
	started   int // processes
	set       bool
	ledger    ledger
	history   bytes.Buffer
	trouble   []string

	mu       sync.Mutex
	finished []*client
}

// plan is which faults and calls a seed has, out of all: few at a time meet more often.
type plan struct {
	lose, late, twice, cancel, crash, jump, backup bool
	moves                                          bool // handles come from several hosts
	patience, rarity                               int  // how long a late packet is on its way; how rare a fault of a packet is
	kinds                                          []kind
	pool                                           alloc.Pool
}

var pools = []alloc.Pool{
	{Name: "p", Prefix: netip.MustParsePrefix("10.0.0.0/29"), BlockBits: 30},
	{Name: "p", Prefix: netip.MustParsePrefix("10.0.0.0/30"), BlockBits: 31},
	{Name: "p", Prefix: netip.MustParsePrefix("10.0.0.0/29"), BlockBits: 31},
	{Name: "p", Prefix: netip.MustParsePrefix("10.0.0.0/28"), BlockBits: 30, Order: alloc.Lowest},
}

var (
	spare = alloc.Pool{Name: "spare", Prefix: netip.MustParsePrefix("10.1.0.0/30"), BlockBits: 31}
	tree  = prefixes.Pool{Prefix: netip.MustParsePrefix("10.2.0.0/24"), Sizes: prefixes.Sizes{Shortest: 26, Longest: 26}}
)

func (w *world) say(format string, args ...any) {
	fmt.Fprintf(&w.history, "%d: %s\n", w.step, fmt.Sprintf(format, args...))
}

// wrong notes that a promise was broken.
func (w *world) wrong(format string, args ...any) {
	w.trouble = append(w.trouble, fmt.Sprintf(format, args...))
	w.say("WRONG: "+format, args...)
}

// Run runs the storm of a seed and returns its history and its faults. Call it in a bubble of
// testing/synctest.
func Run(seed uint64) (history string, err error) { return runWith(seed, "") }

// runWith runs a storm with a fault of the store, or of the calls that are recorded.
func runWith(seed uint64, planted string) (history string, err error) {
	w := &world{r: rand.New(rand.NewPCG(seed, 60)), now: time.Date(2001, 1, 1, 0, 0, 0, 0, time.UTC), db: newServer()}
	w.ledger = newLedger(w)
	w.db.made, w.db.planted = w.judge, planted
	w.draw()
	first, err := w.begin()
	if err != nil {
		return "", err
	}
	for w.trouble == nil && w.next() {
		if w.step++; w.step%16 == 0 {
			w.verify()
		}
	}
	if w.trouble == nil {
		w.rest(first)
	}
	w.end()
	if len(w.trouble) > 0 {
		err = errors.New(strings.Join(w.trouble, "; "))
	}
	return w.history.String(), err
}

// draw chooses the plan.
func (w *world) draw() {
	some := func() bool { return w.r.IntN(2) == 0 }
	p := plan{lose: w.r.IntN(4) > 0, late: w.r.IntN(4) > 0, twice: some(), cancel: some(), crash: some(), jump: some(), backup: w.r.IntN(4) == 0, moves: w.r.IntN(3) == 0}
	p.kinds = []kind{assign, releaseByHandle, assign, releaseByHandle}
	for k := range kinds {
		if some() && (k != renameHost || some()) { // after which less is known of hosts
			p.kinds = append(p.kinds, k)
		}
	}
	p.patience, p.rarity = 8<<w.r.IntN(5), 4<<w.r.IntN(3)
	p.pool = pools[w.r.IntN(len(pools))]
	w.plan = p
}

// begin makes the pools and the processes, and returns the records before the first call.
func (w *world) begin() (first map[string]string, err error) {
	e, x, err := w.observer()
	if err == nil {
		err = e.AddPool(context.Background(), w.plan.pool)
	}
	if err == nil {
		err = x.AddPool(context.Background(), tree)
	}
	if err != nil {
		return nil, err
	}
	for range 2 + w.r.IntN(2) {
		w.processes = append(w.processes, w.start())
	}
	for i := range 3 + w.r.IntN(3) {
		w.clients = append(w.clients, &client{name: fmt.Sprint("c", i), at: w.processes[i%len(w.processes)], left: 4 + w.r.IntN(9)})
	}
	return w.records(), nil
}

// start begins a process. Its stores are opened before it has calls, so it reads the ranges of numbers beside the network.
func (w *world) start() *process {
	w.started++
	c := &conn{net: &w.net, name: fmt.Sprintf("p%02d", w.started), direct: w.db, seen: w.db.now()}
	p := &process{conn: c, offset: time.Duration(w.r.Int64N(int64(skew) + 1))}
	o := w.options(p.offset)
	var errs [3]error
	p.e, errs[0] = ipset.New(c, o)
	p.n, errs[1] = numbers.Open(context.Background(), c, "vlan", o)
	p.x, errs[2] = prefixes.New(c, prefixes.Options{Now: o.Now, Skew: skew, Attempts: 6})
	if err := errors.Join(errs[:]...); err != nil {
		panic(err)
	}
	c.direct = nil
	return p
}

func (w *world) options(offset time.Duration) ipset.Options {
	return ipset.Options{
		Now: func() time.Time { return w.now.Add(offset) }, Skew: skew, Rand: rand.NewPCG(1, uint64(offset)), RequestsAfter: -1, StickyAfter: -1,
		Retry: ipset.Retry{Attempts: 6, Sleep: func(ctx context.Context, _ time.Duration) error { return ctx.Err() }},
	}
}

// next lets one thing happen, and reports false when every client has made its calls and every answer was given.
func (w *world) next() bool {
	for again := true; again; {
		synctest.Wait()
		again = w.collect()
	}
	waited, late := w.net.packets()
	var idle []*client
	busy := false
	for _, c := range w.clients {
		switch {
		case c.call != nil:
			busy = true
		case c.left > 0:
			idle = append(idle, c)
		}
	}
	if !busy && len(idle) == 0 {
		return false
	}
	if w.disturb(late) {
		return true
	}
	switch n := w.r.IntN(len(waited)*2 + len(idle) + 1); {
	case n < len(waited)*2:
		w.forward(waited[n/2])
	case n < len(waited)*2+len(idle):
		w.call(idle[n-len(waited)*2])
	case w.plan.jump || len(waited) == 0 && len(idle) == 0:
		w.wait(w.pause())
	}
	return true
}

// disturb has a fault that concerns no call in particular, now and then.
func (w *world) disturb(late []*packet) bool {
	chance := func(enabled bool, of int) bool { return w.r.IntN(of) == 0 && enabled }
	if len(late) > 0 && w.r.IntN(w.plan.patience) == 0 {
		p := late[w.r.IntN(len(late))]
		if w.r.IntN(4) == 0 {
			w.drop(p)
		} else {
			w.say("late %s %s %s%s: %s", p.of.name, p.client, p.kind, p.text, w.db.arrive(p))
			w.verify()
		}
		return true
	}
	switch {
	case chance(w.plan.cancel, 40):
		if c := w.clients[w.r.IntN(len(w.clients))]; c.call != nil && !c.call.cut {
			w.say("%s leaves", c.name)
			c.call.cut = true
			c.cancel()
		}
	case chance(w.plan.crash, 60):
		w.crash(w.r.IntN(len(w.processes)))
	case chance(w.plan.backup, 40) && w.db.backup < 0 && !w.set:
		w.say("backup")
		w.db.backup = len(w.db.commits)
		w.ledger.backup = w.step
	case chance(w.plan.backup, 30) && w.db.backup >= 0:
		w.say("set back to revision %d", w.db.backup)
		w.set = true
		w.verify()
		w.db.setBack()
		w.ledger.setBack()
	default:
		return false
	}
	return true
}

func (w *world) drop(p *packet) {
	w.say("lost %s %s %s%s", p.of.name, p.client, p.kind, p.text)
	w.net.mu.Lock()
	defer w.net.mu.Unlock()
	w.net.wire = slices.DeleteFunc(w.net.wire, func(q *packet) bool { return p == q })
}

// forward moves a packet on: to the database, back to its caller, or to neither.
func (w *world) forward(p *packet) {
	did := "answered"
	fault := func(enabled bool) bool { return w.r.IntN(w.plan.rarity) == 0 && enabled }
	switch {
	case fault(w.plan.lose) || p.kind == put && fault(w.plan.lose):
		did = "cut"
		if p.answer(errCut); !p.made && (p.kind != put || w.r.IntN(4) == 0 || !w.plan.late) {
			did = "cut, lost"
			w.drop(p)
		}
	case !p.made:
		if did = w.db.arrive(p); p.kind == put && fault(w.plan.twice) {
			again := &packet{of: p.of, client: p.client, kind: put, text: p.text, ops: p.ops, past: p.past, left: true, done: make(chan struct{})}
			for _, c := range w.ledger.calls {
				if w.ledger.open[c] && c.of.conn == p.of {
					again.again = append(again.again, c)
				}
			}
			w.net.wire = append(w.net.wire, again)
			did += ", to arrive twice"
		}
		if w.r.IntN(3) > 0 {
			p.answer(nil)
			did += ", answered"
		}
	default:
		p.answer(nil)
	}
	w.say("%s %s %s%s: %s", p.of.name, p.client, p.kind, p.text, did)
}

// pause draws how far the time moves: often to a second before the next lease ends, where clocks that differ matter.
func (w *world) pause() time.Duration {
	d, draw := jump<<w.r.IntN(8), w.r.IntN(2)
	for _, h := range w.ledger.holdings {
		if left := h.until.Sub(w.now) - jump; draw == 0 && !h.until.IsZero() && left >= jump {
			d = min(d, left)
		}
	}
	return d
}

// wait moves the time.
func (w *world) wait(d time.Duration) {
	w.say("wait %v", d)
	w.now = w.now.Add(d)
	time.Sleep(d)
	w.ledger.expire()
}

// crash ends a process; another takes its place. The commits that it sent may still arrive.
func (w *world) crash(i int) {
	p := w.processes[i]
	w.say("%s crashes", p.name)
	p.stop(errDown)
	w.processes[i] = w.start()
	for _, c := range w.clients {
		if c.at == p {
			if c.call != nil {
				c.call.dead = true
				c.cancel()
			}
			c.at = w.processes[i]
		}
	}
}

// stop ends the calls of a connection.
func (c *conn) stop(err error) {
	c.net.mu.Lock()
	c.down = true
	var open []*packet
	for _, p := range c.net.wire {
		if p.of == c && !p.left {
			open = append(open, p)
		}
	}
	c.net.mu.Unlock()
	for _, p := range open {
		p.answer(err)
	}
}

// call begins a call of a client.
func (w *world) call(c *client) {
	c.left--
	c.call = w.choose(c)
	c.call.begin, c.call.of = w.step, c.at
	w.say("%s on %s: %s", c.name, c.at.name, c.call.text)
	w.ledger.begins(c.call)
	ctx, cancel := context.WithCancel(context.WithValue(context.Background(), clientKey{}, c.name))
	c.cancel = cancel
	go func() {
		c.call.err = c.call.do(ctx, c.call)
		w.mu.Lock()
		defer w.mu.Unlock()
		w.finished = append(w.finished, c)
	}()
}

// collect takes the calls that have ended. It reports whether that has set others going.
func (w *world) collect() (again bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	slices.SortFunc(w.finished, func(a, b *client) int { return strings.Compare(a.name, b.name) })
	for _, c := range w.finished {
		k := c.call
		c.call, c.last = nil, k
		c.cancel()
		switch {
		case k.dead:
			k.outcome = unknown
			w.say("%s: no answer", c.name)
		case k.cut && k.err != nil:
			k.outcome = unknown
			w.say("%s: has left", c.name)
		case errors.Is(k.err, ipalloc.ErrUnknownOutcome):
			k.outcome = unknown
			w.say("%s: %v", c.name, k.err)
		case k.err != nil:
			k.outcome = refused
			w.say("%s: %v", c.name, k.err)
		default:
			w.say("%s: %s", c.name, k.answer())
		}
		if errors.Is(k.err, ipalloc.ErrCorrupt) || errors.Is(k.err, ipalloc.ErrVersion) {
			w.wrong("%s: %v", k.text, k.err)
		}
		w.ledger.ended(k)
		if errors.Is(k.err, ipalloc.ErrReplaced) {
			if i := slices.Index(w.processes, k.of); i >= 0 {
				w.crash(i) // the process ends, as the documents say
				again = true
			}
		}
	}
	w.finished = nil
	return again
}

// end lets every goroutine of the storm end.
func (w *world) end() {
	for _, p := range w.processes {
		p.stop(errDown)
	}
	for _, c := range w.clients {
		if c.call != nil {
			c.cancel()
		}
	}
	time.Sleep(time.Hour)
	synctest.Wait()
}
