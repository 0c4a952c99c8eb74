package storm

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/ipalloc/ipalloc/ipset"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/numbers"
	"github.com/ipalloc/ipalloc/ipset/prefixes"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// ledger is what the callers were told, kept beside the engines. A holding is firm while nobody has asked for its end: then no other
// handle may be told to hold the thing, and the store must have it.
type ledger struct {
	w        *world
	holdings map[string]*holding // by thing
	calls    []*call             // that may change something, in the order of their begin
	open     map[*call]bool      // those that may still take effect
	doubt    map[string]bool     // handles that may hold something of which no caller knows
	hosts    map[string]string   // by handle: the host that it was last asked for
	moved    map[string]bool     // handles that several hosts asked for
	backup   int                 // the step of the backup
	back     int                 // the step of the set-back
}

type holding struct {
	held
	firm     bool
	assigned int // the step of the first answer of Assign or one like it, 0 if there was none
	changed  int // step
}

func newLedger(w *world) ledger {
	return ledger{w: w, holdings: make(map[string]*holding), open: make(map[*call]bool), doubt: make(map[string]bool),
		hosts: make(map[string]string), moved: make(map[string]bool)}
}

// known returns the addresses, numbers or prefixes of a handle, in order. An empty handle stands for all
// handles but the ones that only Together uses.
func (l *ledger) known(handle string, of room) (list []held) {
	for _, thing := range slices.Sorted(maps.Keys(l.holdings)) {
		if h := l.holdings[thing]; (h.handle == handle || handle == "" && h.handle[0] != 't') && kindOf(thing) == of {
			list = append(list, h.held)
		}
	}
	return list
}

// begins notes the begin of a call. From then on, a release may take effect.
func (l *ledger) begins(c *call) {
	if c.kind != lookUp {
		l.calls = append(l.calls, c)
		l.open[c] = true
	}
	switch c.kind {
	case releaseByHandle, releaseIPs, removeHost, transfer, togetherRelease, releaseNumber, releasePrefix, transferNumber, transferPrefix:
		maps.DeleteFunc(l.holdings, func(_ string, h *holding) bool {
			return c.releases(h.held) && (c.host == "" || c.from != "" || !l.moved[h.handle])
		})
		for _, h := range l.holdings {
			h.firm = h.firm && !l.releases(c, h.held)
		}
	case renameHost:
		for _, h := range l.holdings {
			if h.firm && h.host == c.from && !l.moved[h.handle] {
				c.stays = append(c.stays, h.held)
			}
		}
	}
	if c.assigns() && (c.room == addresses || c.kind == together) {
		was, again := l.hosts[c.handle]
		l.moved[c.handle] = l.moved[c.handle] || again && was != c.host
		l.hosts[c.handle] = c.host
		for _, h := range l.holdings {
			h.firm = h.firm && !slices.ContainsFunc(l.calls, func(e *call) bool { return l.open[e] && l.releases(e, h.held) })
		}
	}
	if c.kind == renewIP || c.kind == offer { // the end may move to what it would be at once
		for _, h := range l.holdings {
			if until := l.w.now.Add(c.ttl); h.handle == c.handle && !h.until.IsZero() && until.Before(h.until) {
				h.until = until
			}
		}
	}
	l.spread()
}

// spread notes the handles whose addresses may be at several hosts because of calls that may take effect.
func (l *ledger) spread() {
	for again := true; again; {
		again = false
		for e := range l.open {
			for handle, host := range l.hosts {
				moves := e.kind == renameHost && host == e.from || e.kind == transfer && handle == e.handle && l.moved[e.from]
				again = again || moves && !l.moved[handle]
				l.moved[handle] = l.moved[handle] || moves
			}
		}
	}
}

// releases reports whether a call may end a holding. A handle that several hosts asked for may be at any.
func (l *ledger) releases(c *call, h held) bool {
	if l.moved[h.handle] {
		h.host = ""
	}
	return c.releases(h)
}

// ended notes the answer of a call.
func (l *ledger) ended(c *call) {
	c.end = l.w.step
	l.settle(c)
	if c.assigns() && c.outcome == unknown {
		l.doubt[c.handle] = true
	}
	switch {
	case c.outcome != done:
		return
	case c.kind == renameHost:
		l.renamed(c)
		return
	}
	for _, h := range c.got {
		if !h.until.IsZero() {
			h.until = h.until.Add(-c.of.offset)
		}
		if c.kind != lookUp {
			l.hold(c, h)
		}
	}
	if c.kind == lookUp {
		l.saw(c)
	}
}

// renamed verifies that a renaming moved what no other call can have moved or ended, and notes the new sequence numbers.
func (l *ledger) renamed(c *call) {
	if l.w.set && c.begin <= l.back {
		return
	}
	for _, s := range c.stays {
		is := l.holdings[s.thing]
		other := func(e *call) bool {
			during := e != c && (l.open[e] || e.end > c.begin)
			return during && (e.kind == renameHost || e.assigns() && e.handle == s.handle && e.host != c.from || l.releases(e, s))
		}
		gone := is == nil || !is.firm || is.held != s || slices.ContainsFunc(l.calls, other)
		if !gone && !slices.ContainsFunc(c.got, func(h held) bool { return h.thing == s.thing }) {
			l.w.wrong("%s left %s of %s", c.text, s.thing, s.handle)
		}
	}
	for _, h := range c.got {
		if !l.w.gave(h, "") || h.host != c.host {
			l.w.wrong("%s was answered with %s of %s at %s as %d", c.text, h.thing, h.handle, h.host, h.seq)
		}
		if is := l.holdings[h.thing]; is != nil && is.handle == h.handle && is.seq < h.seq {
			is.host, is.seq = h.host, h.seq
		}
	}
}

// settle notes which calls can no longer take effect. A set-back between the begin and the answer of a call
// may undo the commit that settled the others.
func (l *ledger) settle(c *call) {
	again := func(e *call) bool { return l.w.set && (l.underWay(e) || e != c && c.begin <= l.back) }
	if l.open[c] && c.outcome != unknown && !again(c) {
		delete(l.open, c)
	}
	for e := range l.open {
		alive := e.end != 0 && e.of == c.of && e.room == c.room && c.outcome == done && c.begin >= e.end
		if alive && !again(e) {
			e.end, e.by = l.w.step, c
			delete(l.open, e)
		}
	}
}

// underWay reports whether a second copy of a commit of the call may still arrive.
func (l *ledger) underWay(e *call) bool {
	_, late := l.w.net.packets()
	return slices.ContainsFunc(late, func(p *packet) bool { return slices.Contains(p.again, e) })
}

// gone closes the calls of ended processes, and of a Together, whose last commit has arrived.
func (l *ledger) gone() {
	waited, late := l.w.net.packets()
	for e := range l.open {
		settled := strings.HasPrefix(string(e.room), "together") || !slices.Contains(l.w.processes, e.of)
		under := func(p *packet) bool { return p.of == e.of.conn && p.kind == put }
		if e.end != 0 && settled && !slices.ContainsFunc(waited, under) && !slices.ContainsFunc(late, under) {
			e.end = l.w.step
			delete(l.open, e)
		}
	}
}

// hold notes a holding that an answer names.
func (l *ledger) hold(c *call, h held) {
	soft := slices.ContainsFunc(l.calls, func(e *call) bool { return (l.open[e] || e.end > c.begin && e.by != c) && l.releases(e, h) })
	if l.w.set && c.begin <= l.back {
		return // the answer may be of the lost past
	}
	over := !h.until.IsZero() && !h.until.After(l.w.now)
	was := l.holdings[h.thing]
	if h.handle != c.handle && c.kind != lookUp {
		l.w.wrong("%s was answered with what %s holds: %s", c.text, h.handle, h.thing)
	}
	if h.seq != 0 && !l.w.gave(h, c.key) {
		l.w.wrong("%s was answered with %s as %d, which it was not given", c.text, h.thing, h.seq)
	}
	switch {
	case over || soft && was != nil && was.firm && was.handle != h.handle:
		return
	case was != nil && was.firm && was.handle != h.handle:
		l.w.wrong("%s is held by %s as %d and by %s as %d", h.thing, was.handle, was.seq, h.handle, h.seq)
		return
	case was != nil && was.seq > h.seq:
		return // an answer that was overtaken
	case was != nil && was.firm && was.seq != h.seq && !l.moved[h.handle]:
		l.w.wrong("%s of %s has the sequence number %d, and was not released as %d", h.thing, h.handle, h.seq, was.seq)
	}
	is := &holding{held: h, firm: !soft, changed: l.w.step}
	if c.kind == assign || c.kind == number || c.kind == takePrefix || c.kind == together {
		is.assigned = l.w.step
	}
	if was != nil && was.handle == h.handle && was.seq == h.seq {
		is.assigned = cmp.Or(was.assigned, is.assigned)
		if was.until == h.until {
			is.changed = was.changed
		}
	}
	l.holdings[h.thing] = is
	l.agree(is)
}

// agree verifies that all answers of Assign for a handle name one thing. Assign of prefixes names the lowest one,
// so a Transfer to the owner may change its answer.
func (l *ledger) agree(is *holding) {
	for _, o := range l.holdings {
		brought := func(e *call) bool {
			return e.kind == transferPrefix && e.handle == is.handle && (l.open[e] || e.end > min(is.assigned, o.assigned))
		}
		if kindOf(is.thing) == trees && slices.ContainsFunc(l.calls, brought) {
			continue
		}
		if is.assigned*o.assigned > 0 && is.firm && o.firm && o.thing != is.thing && o.handle == is.handle && kindOf(o.thing) == kindOf(is.thing) && o.until.IsZero() && is.until.IsZero() {
			l.w.wrong("Assign gave %s both %s and %s", is.handle, min(o.thing, is.thing), max(o.thing, is.thing))
		}
	}
}

// saw verifies that a list of a handle has what was firm all the time.
func (l *ledger) saw(c *call) {
	for thing, h := range l.holdings {
		if h.handle == c.handle && h.firm && h.changed < c.begin && kindOf(thing) == addresses && !slices.ContainsFunc(c.got, func(g held) bool { return g.thing == thing }) {
			l.w.wrong("%s does not name %s", c.text, thing)
		}
	}
}

// expire ends the leases that are over for their callers.
func (l *ledger) expire() {
	maps.DeleteFunc(l.holdings, func(_ string, h *holding) bool { return !h.until.IsZero() && !h.until.After(l.w.now) })
}

// setBack forgets what was answered after the backup. A call that was settled since may take effect again.
func (l *ledger) setBack() {
	maps.DeleteFunc(l.holdings, func(_ string, h *holding) bool { return h.changed >= l.backup })
	for _, h := range l.holdings {
		if h.assigned >= l.backup {
			h.assigned = 0
		}
	}
	l.back = l.w.step
	for _, e := range l.calls {
		if e.end >= l.backup && (e.outcome == unknown || l.underWay(e)) {
			l.open[e] = true
		}
	}
	l.spread()
}

// direct returns the database without the network.
func (w *world) direct() store.Store { return &conn{direct: w.db} }

// observer returns allocators that work on the database without the network.
func (w *world) observer() (*ipset.Engine, *prefixes.Allocator, error) {
	o := w.options(0)
	o.Skew = 0
	e, err := ipset.New(w.direct(), o)
	if err != nil {
		return nil, nil, err
	}
	if _, err = numbers.New(context.Background(), w.direct(), "vlan", numbers.Range{First: 1, Last: 4}, o); err != nil {
		return nil, nil, err
	}
	x, err := prefixes.New(w.direct(), prefixes.Options{Now: o.Now})
	return e, x, err
}

// records returns all records but those that no release takes away: floors of sequence numbers.
func (w *world) records() map[string]string {
	recs, _, err := w.direct().List(context.Background(), store.Range{})
	if err != nil {
		panic(err)
	}
	is := make(map[string]string)
	for _, r := range recs {
		is[r.Key] = r.Value
	}
	return is
}

// stored returns the holdings in the database, by thing.
func (w *world) stored() (map[string]held, error) {
	ctx, is := context.Background(), make(map[string]held)
	e, x, err := w.observer()
	if err != nil {
		return nil, err
	}
	var c call
	for a, err := range e.Allocations(ctx, netip.MustParsePrefix("10.0.0.0/15")) {
		if err != nil {
			return nil, err
		}
		c.told(a)
	}
	n, err := numbers.Open(ctx, w.direct(), "vlan", w.options(0))
	if err != nil {
		return nil, err
	}
	for h, err := range n.All(ctx) {
		if err != nil {
			return nil, err
		}
		c.got = append(c.got, held{thing: fmt.Sprint("#", h.Number), handle: h.Owner})
	}
	for h, err := range x.All(ctx, tree.Prefix) {
		if err != nil {
			return nil, err
		}
		c.got = append(c.got, held{thing: h.Prefix.String(), handle: h.Owner})
	}
	for _, h := range c.got {
		is[h.thing] = h
	}
	return is, nil
}

// verify compares the ledger with the database.
func (w *world) verify() {
	w.ledger.gone()
	is, err := w.stored()
	if err != nil {
		w.wrong("the store cannot be read: %v", err)
		return
	}
	for _, thing := range slices.Sorted(maps.Keys(w.ledger.holdings)) {
		h := w.ledger.holdings[thing]
		if got, ok := is[thing]; h.firm && (!ok || got.handle != h.handle || got.seq != h.seq && !w.ledger.moved[h.handle]) {
			w.wrong("%s is not held by %s as %d in the store, but by %q as %d", thing, h.handle, h.seq, got.handle, got.seq)
		}
	}
	for handle := range maps.Keys(w.records()) {
		if of, ok := strings.CutPrefix(handle, "Machine/"); ok && !slices.ContainsFunc(slices.Collect(maps.Values(is)), func(h held) bool { return h.handle == of }) {
			w.wrong("the record of %s is there without its address", of)
		}
	}
}

// rest verifies the laws of a storm that is over: nothing is left but what callers know, and after the releases no record.
func (w *world) rest(first map[string]string) {
	for {
		_, late := w.net.packets()
		if len(late) == 0 {
			break
		}
		p := late[w.r.IntN(len(late))]
		w.say("late %s %s %s%s: %s", p.of.name, p.client, p.kind, p.text, w.db.arrive(p))
	}
	w.verify()
	is, err := w.stored()
	if err != nil {
		w.wrong("the store cannot be read: %v", err)
		return
	}
	for _, thing := range slices.Sorted(maps.Keys(is)) {
		h := is[thing]
		if known := w.ledger.holdings[thing]; !w.set && !w.ledger.doubt[h.handle] && h.until.IsZero() && (known == nil || known.handle != h.handle) && !w.releasedInDoubt(h) {
			w.wrong("%s is held by %s, and no caller knows", thing, h.handle)
		}
	}
	if err := w.releaseAll(is); err != nil {
		w.wrong("release of all: %v", err)
		return
	}
	left := w.records()
	for _, key := range slices.Sorted(maps.Keys(left)) {
		if _, ok := first[key]; !ok && !strings.HasPrefix(strings.TrimPrefix(key, "xvlan\x00"), "s") {
			w.wrong("record %q is left", key)
		}
	}
}

// releasedInDoubt reports whether a release of a holding has failed or is of unknown outcome. A holding that moved had another sequence number.
func (w *world) releasedInDoubt(h held) bool {
	return slices.ContainsFunc(w.ledger.calls, func(e *call) bool {
		if w.ledger.moved[h.handle] {
			h.seq = e.at.Seq
		}
		return e.outcome != done && w.ledger.releases(e, h)
	})
}

// releaseAll verifies the indexes, ends every holding, and has a sweep.
func (w *world) releaseAll(is map[string]held) error {
	ctx := context.Background()
	e, x, err := w.observer()
	if err != nil {
		return err
	}
	n, err := numbers.Open(ctx, w.direct(), "vlan", w.options(0))
	if err != nil {
		return err
	}
	report, err := e.Operator().Check(ctx, nil)
	if err != nil {
		return err
	}
	for _, p := range report.Problems {
		w.wrong("check: %v", p)
	}
	handles := make(map[string]bool)
	for _, h := range is {
		handles[h.handle] = true
	}
	for handle := range handles {
		if _, err := e.ReleaseByHandle(ctx, handle); err != nil {
			return err
		}
		if _, err := n.Release(ctx, handle); err != nil {
			return err
		}
		if _, err := x.ReleaseByOwner(ctx, handle); err != nil {
			return err
		}
		if _, err := w.direct().Commit(ctx, []store.Op{{Kind: store.Delete, Key: "Machine/" + handle, Expect: store.AnyRevision}}); err != nil {
			return err
		}
	}
	w.now = w.now.Add(100 * 24 * time.Hour)
	vlan, err := e.InSpace("vlan")
	if err != nil {
		return err
	}
	for _, e := range []*ipset.Engine{e, vlan} {
		if _, err := e.Operator().Sweep(ctx, alloc.SweepArgs{IdleAfter: time.Minute, RequestsAfter: time.Minute, StickyAfter: time.Minute}); err != nil {
			return err
		}
	}
	return nil
}
