package storm

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"go4.org/netipx"

	"github.com/ipalloc/ipalloc/ipset"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/numbers"
	"github.com/ipalloc/ipalloc/ipset/prefixes"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// kind is a call of the storm.
type kind int

const (
	assign kind = iota
	autoAssign
	existing
	request
	assignIP
	offer
	renewIP
	releaseByHandle
	releaseIPs
	sweep
	removeHost
	renameHost
	transfer
	lookUp
	changePools
	changeSpare
	reserve
	together
	togetherRelease
	number
	releaseNumber
	takePrefix
	releasePrefix
	transferNumber
	transferPrefix
	kinds
)

// outcome is how a call ended.
type outcome int

const (
	done outcome = iota
	refused
	unknown
)

// call is one call of a client, with its answer.
type call struct {
	kind       kind
	text       string
	of         *process
	room       room  // whose next call settles it; a Together is a room of its own
	begin, end int   // steps
	by         *call // that has settled it, if its outcome was unknown
	do         func(ctx context.Context, c *call) error
	cut, dead  bool // the client has left; its process is down
	err        error
	outcome    outcome

	handle, host, key string        // of what the call gives, or ends
	from              string        // the handle or the host that Transfer and RenameHost take from
	at                alloc.Release // what ReleaseIPs and RenewIP name
	ttl               time.Duration
	stays             []held // what nobody but the call moves to its host
	thing             string // what Transfer names; "" is all that the handle holds
	got               []held
}

// held is a thing that a call was told to hold: an address, a number or a prefix.
type held struct {
	thing, handle, host string
	seq                 uint64
	until               time.Time
}

func (c *call) answer() string {
	text := "done"
	for _, h := range c.got {
		text += fmt.Sprintf(", %s for %s", h.thing, h.handle)
		if h.seq != 0 {
			text += fmt.Sprintf(" at %s as %d", h.host, h.seq)
		}
		if !h.until.IsZero() {
			text += " until " + h.until.Format(time.TimeOnly)
		}
	}
	return text
}

func (c *call) told(as ...alloc.Allocation) {
	for _, a := range as {
		c.got = append(c.got, held{a.Address.String(), a.Handle, a.Host.Name, a.Seq, a.Until})
	}
}

// releases reports whether the call may end a holding; one without a host may be at any.
func (c *call) releases(h held) bool {
	switch c.kind {
	case releaseByHandle, togetherRelease, releaseNumber, releasePrefix:
		return h.handle == c.handle && (c.host == "" || h.host == "" || c.host == h.host) && thingOf(c.kind) == kindOf(h.thing) || c.kind == togetherRelease && h.handle == c.handle
	case releaseIPs:
		return h.thing == c.at.Address.String() && h.handle == c.at.Handle && h.seq == c.at.Seq
	case transfer, transferNumber, transferPrefix:
		return h.handle == c.from && thingOf(c.kind) == kindOf(h.thing) && (c.thing == "" || h.thing == c.thing)
	case removeHost:
		return kindOf(h.thing) == addresses && (h.host == "" || h.host == c.host)
	}
	return false
}

// assigns reports whether the call may give its handle something.
func (c *call) assigns() bool {
	switch c.kind {
	case assign, autoAssign, existing, request, assignIP, offer, transfer, together, number, transferNumber, takePrefix, transferPrefix:
		return true
	}
	return false
}

func thingOf(k kind) room {
	switch k {
	case releaseNumber, transferNumber:
		return ranges
	case releasePrefix, transferPrefix:
		return trees
	}
	return addresses
}

func kindOf(thing string) room {
	switch {
	case strings.HasPrefix(thing, "#"):
		return ranges
	case strings.Contains(thing, "/"):
		return trees
	}
	return addresses
}

const hosts = 2

// hostOf returns the host that calls for a handle name, if no handle moves.
func hostOf(handle string) string { return fmt.Sprint("n", (len(handle)+int(handle[1]))%hosts) }

// choose draws the next call of a client.
func (w *world) choose(c *client) *call {
	k := &call{kind: w.plan.kinds[w.r.IntN(len(w.plan.kinds))], room: addresses}
	if k.handle = fmt.Sprint("h", w.r.IntN(3)); w.r.IntN(2) == 0 {
		k.handle = c.name
	}
	if k.host = hostOf(k.handle); w.plan.moves && w.r.IntN(3) == 0 {
		k.host = fmt.Sprint("n", w.r.IntN(hosts))
	}
	if last := c.last; last != nil && last.outcome == unknown && !last.dead && last.room == addresses && last.handle != "" && w.r.IntN(4) > 0 {
		k.kind, k.handle = []kind{assign, releaseByHandle}[w.r.IntN(2)], last.handle // as the documents advise
		if last.host != "" {
			k.host = last.host
		}
	}
	known := w.ledger.known(k.handle, thingOf(k.kind))
	switch k.kind {
	case transfer, transferNumber, transferPrefix:
		known = w.ledger.known("", thingOf(k.kind))
		fallthrough
	case releaseIPs, renewIP:
		if len(known) == 0 {
			k.kind = assign
		}
	}
	switch k.kind {
	case assign, autoAssign, existing, request, assignIP, offer:
		w.assigning(k)
	case renewIP, releaseIPs:
		h := known[w.r.IntN(len(known))]
		k.at = alloc.Release{Address: netip.MustParseAddr(h.thing), Guard: alloc.Guard{Handle: h.handle, Seq: h.seq}}
		w.naming(k)
	case transfer, transferNumber, transferPrefix:
		w.transferring(k, known[w.r.IntN(len(known))])
	case changePools, changeSpare, reserve:
		w.changing(k)
	case together, togetherRelease:
		w.joining(k)
	case number, releaseNumber, takePrefix, releasePrefix:
		w.beside(k)
	default:
		w.whole(k)
	}
	return k
}

// assigning prepares a call that gives an address.
func (w *world) assigning(k *call) {
	of := alloc.HostOwner(k.host)
	a := alloc.AssignArgs{Owner: of, Handle: k.handle, Num4: 1}
	auto := func(verb func(*ipset.Engine, context.Context, alloc.AssignArgs) (alloc.Assigned, error)) {
		k.do = func(ctx context.Context, c *call) error {
			got, err := verb(c.of.e, ctx, a)
			c.told(got.V4...)
			return err
		}
	}
	switch k.kind {
	case assign:
		k.text = "Assign"
		k.do = func(ctx context.Context, c *call) error {
			got, err := c.of.e.Assign(ctx, of, c.handle)
			if err == nil {
				c.told(got)
			}
			return err
		}
	case autoAssign:
		k.text, k.ttl = "AutoAssign", time.Duration(w.r.IntN(2))*30*time.Second
		a.TTL = k.ttl
		auto((*ipset.Engine).AutoAssign)
	case existing:
		k.text, a.Existing = "AutoAssign, existing,", true
		auto((*ipset.Engine).AutoAssign)
	case request:
		k.key = "of " + k.handle
		k.text, a.Request = "AutoAssign, request "+k.key, k.key
		a.Owner, k.host = alloc.HostOwner("n0"), "n0" // the arguments of a key do not change
		auto((*ipset.Engine).AutoAssign)
	case offer:
		k.text, k.ttl = "Offer", time.Minute
		a.TTL = k.ttl
		auto((*ipset.Engine).Offer)
	case assignIP:
		at := w.plan.pool.Prefix.Addr()
		for range w.r.IntN(4) {
			at = at.Next()
		}
		k.text = "AssignIP " + at.String()
		k.do = func(ctx context.Context, c *call) error {
			got, err := c.of.e.AssignIP(ctx, alloc.AssignIPArgs{Address: at, Owner: of, Handle: c.handle})
			if err == nil {
				c.told(got)
			}
			return err
		}
	}
	k.text += " " + k.handle + " at " + k.host
}

// naming prepares a call that names a holding.
func (w *world) naming(k *call) {
	k.text = fmt.Sprintf("ReleaseIPs %s of %s as %d", k.at.Address, k.at.Handle, k.at.Seq)
	k.do = func(ctx context.Context, c *call) error {
		_, err := c.of.e.ReleaseIPs(ctx, c.at)
		return err
	}
	if k.kind == renewIP {
		k.ttl = time.Minute
		k.text = strings.Replace(k.text, "ReleaseIPs", "RenewIP", 1)
		k.do = func(ctx context.Context, c *call) error {
			got, err := c.of.e.RenewIP(ctx, c.at.Address, c.at.Guard, alloc.RenewArgs{TTL: c.ttl})
			if err == nil {
				c.told(got)
			}
			return err
		}
	}
}

// transferring prepares a call that gives a thing of a handle to another one, or all addresses of the handle.
func (w *world) transferring(k *call, h held) {
	k.from, k.host, k.thing = h.handle, h.host, h.thing
	if w.r.IntN(4) == 0 {
		if k.from = fmt.Sprint("h", w.r.IntN(3)); h.host != "" { // may not hold it
			k.host = hostOf(k.from)
		}
	}
	for n := w.r.IntN(3); k.handle == k.from || hostOf(k.handle) != k.host && k.host != ""; n++ { // a handle of the same host
		if k.handle = fmt.Sprint("h", n%3); n >= 3 {
			k.handle += "b"
		}
	}
	if k.room = thingOf(k.kind); k.room != addresses {
		k.text = fmt.Sprintf("%s: Transfer %s of %s to %s", k.room, k.thing, k.from, k.handle)
		k.do = func(ctx context.Context, c *call) (err error) {
			if c.room == ranges {
				x, _ := strconv.ParseUint(c.thing[1:], 10, 64)
				err = c.of.n.Transfer(ctx, x, c.from, c.handle)
			} else {
				_, err = c.of.x.Transfer(ctx, netip.MustParsePrefix(c.thing), c.from, c.handle)
			}
			if err == nil {
				c.got = append(c.got, held{thing: c.thing, handle: c.handle})
			}
			return err
		}
		return
	}
	a := alloc.TransferArgs{From: k.from, To: k.handle, Address: netip.MustParseAddr(h.thing)}
	if w.r.IntN(2) == 0 {
		a.Address, k.thing = netip.Addr{}, ""
	}
	k.text = fmt.Sprintf("Transfer %s of %s to %s", cmp.Or(k.thing, "all"), k.from, k.handle)
	k.do = func(ctx context.Context, c *call) error {
		got, err := c.of.e.Transfer(ctx, a)
		c.told(got...)
		return err
	}
}

// whole prepares a call about a handle, a host or the store.
func (w *world) whole(k *call) {
	switch k.kind {
	case releaseByHandle:
		if k.text = "ReleaseByHandle " + k.handle; w.r.IntN(3) > 0 {
			k.host = ""
		} else {
			k.text += " at " + k.host
		}
		k.do = func(ctx context.Context, c *call) error {
			var of []alloc.Owner
			if c.host != "" {
				of = []alloc.Owner{alloc.HostOwner(c.host)}
			}
			_, err := c.of.e.ReleaseByHandle(ctx, c.handle, of...)
			return err
		}
	case sweep:
		k.text, k.handle = "Sweep", ""
		k.do = func(ctx context.Context, c *call) error {
			_, err := c.of.e.Operator().Sweep(ctx, alloc.SweepArgs{IdleAfter: time.Minute, Unselected: true})
			return err
		}
	case removeHost:
		k.text, k.handle = "RemoveHost "+k.host, ""
		k.do = func(ctx context.Context, c *call) error {
			_, _, err := c.of.e.RemoveHost(ctx, alloc.HostOwner(c.host))
			return err
		}
	case renameHost:
		k.handle, k.from = "", fmt.Sprint("n", w.r.IntN(hosts))
		k.host = map[string]string{"n0": "n1", "n1": "n0"}[k.from]
		a := alloc.RenameArgs{From: alloc.HostOwner(k.from), To: alloc.HostOwner(k.host), Merge: w.r.IntN(4) > 0}
		k.text = fmt.Sprintf("RenameHost %s to %s, merge %v", k.from, k.host, a.Merge)
		k.do = func(ctx context.Context, c *call) error {
			got, _, err := c.of.e.Operator().RenameHost(ctx, a)
			c.told(got...)
			return err
		}
	case lookUp:
		k.text = "IPsByHandle " + k.handle
		k.do = func(ctx context.Context, c *call) error {
			got, err := c.of.e.IPsByHandle(ctx, c.handle)
			c.told(got...)
			return err
		}
	}
}

// changing prepares a change of the pools.
func (w *world) changing(k *call) {
	k.handle, k.host = "", ""
	p := w.plan.pool
	switch k.kind {
	case changePools:
		p.Disabled = w.r.IntN(3) == 0
		k.text = fmt.Sprint("UpdatePool, disabled ", p.Disabled)
		k.do = func(ctx context.Context, c *call) error { return c.of.e.UpdatePool(ctx, p) }
	case changeSpare:
		if w.r.IntN(2) == 0 {
			k.text = "AddPool spare"
			k.do = func(ctx context.Context, c *call) error { return c.of.e.AddPool(ctx, spare) }
			break
		}
		k.text = "ChangePools without spare"
		k.do = func(ctx context.Context, c *call) error {
			return c.of.e.Operator().ChangePools(ctx, alloc.PoolChanges{Remove: []string{spare.Name}, IfEmpty: true})
		}
	case reserve:
		var rs []alloc.Reservation
		if k.text = "SetReservations, none"; w.r.IntN(2) == 0 {
			rs = []alloc.Reservation{{Range: netipx.IPRangeFrom(p.Prefix.Addr(), p.Prefix.Addr())}}
			k.text = fmt.Sprint("SetReservations ", p.Prefix.Addr())
		}
		k.do = func(ctx context.Context, c *call) error {
			_, err := c.of.e.Operator().SetReservations(ctx, rs)
			return err
		}
	}
}

// joining prepares a call that gives or ends an address, a number and a record of the caller in one commit. The handle is of such calls alone.
func (w *world) joining(k *call) {
	k.handle, k.host = "t"+k.handle, "n0"
	k.room = room(fmt.Sprint("together ", w.step))
	key := "Machine/" + k.handle
	at := func(ctx context.Context, c *call, tx store.Store) (*ipset.Engine, *numbers.Numbers, error) {
		o := w.options(c.of.offset)
		e, err := ipset.New(tx, o)
		if err != nil {
			return nil, nil, err
		}
		n, err := numbers.Open(ctx, tx, "vlan", o)
		return e, n, err
	}
	k.text = "Together, Assign " + k.handle
	do := func(ctx context.Context, c *call, tx store.Store) error {
		e, n, err := at(ctx, c, tx)
		if err != nil {
			return err
		}
		a, err := e.Assign(ctx, alloc.HostOwner(c.host), c.handle)
		if err != nil {
			return err
		}
		x, err := n.Assign(ctx, c.handle)
		if err != nil {
			return err
		}
		c.told(a)
		c.got = append(c.got, held{thing: fmt.Sprint("#", x), handle: c.handle})
		_, err = tx.Commit(ctx, []store.Op{{Kind: store.Put, Key: key, Value: fmt.Sprint(a.Address, " ", x), Expect: store.AnyRevision}})
		return err
	}
	if k.kind == togetherRelease {
		k.text = "Together, Release " + k.handle
		do = func(ctx context.Context, c *call, tx store.Store) error {
			e, n, err := at(ctx, c, tx)
			if err != nil {
				return err
			}
			_, err = e.ReleaseByHandle(ctx, c.handle)
			_, err2 := n.Release(ctx, c.handle)
			_, err3 := tx.Commit(ctx, []store.Op{{Kind: store.Delete, Key: key, Expect: store.AnyRevision}})
			return errors.Join(err, err2, err3)
		}
	}
	k.do = func(ctx context.Context, c *call) error {
		return store.Together(ctx, c.of.conn, func(tx store.Store) error {
			c.got = nil
			return do(ctx, c, tx)
		})
	}
}

// beside prepares a call of numbers or prefixes.
func (w *world) beside(k *call) {
	k.host = ""
	if k.room = ranges; k.kind == takePrefix || k.kind == releasePrefix {
		k.room = trees
	}
	k.text = [...]string{"number: Assign ", "number: Release ", "prefix: Assign ", "prefix: Release "}[k.kind-number] + k.handle
	k.do = func(ctx context.Context, c *call) error {
		switch c.kind {
		case number:
			x, err := c.of.n.Assign(ctx, c.handle)
			if err == nil {
				c.got = append(c.got, held{thing: fmt.Sprint("#", x), handle: c.handle})
			}
			return err
		case releaseNumber:
			_, err := c.of.n.Release(ctx, c.handle)
			return err
		case takePrefix:
			x, err := c.of.x.Assign(ctx, prefixes.Request{Pool: tree.Prefix, Owner: c.handle, Bits: tree.Sizes.Longest})
			if err == nil {
				c.got = append(c.got, held{thing: x.Prefix.String(), handle: c.handle})
			}
			return err
		}
		_, err := c.of.x.ReleaseByOwner(ctx, c.handle)
		return err
	}
}
