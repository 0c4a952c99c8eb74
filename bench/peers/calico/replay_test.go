package main

import (
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"testing"

	calicomodel "github.com/projectcalico/calico/libcalico-go/lib/backend/model"
	"github.com/projectcalico/calico/libcalico-go/lib/ipam"
	cnet "github.com/projectcalico/calico/libcalico-go/lib/net"
	"go4.org/netipx"

	"github.com/ipalloc/ipalloc/internal/addr"
	"github.com/ipalloc/ipalloc/internal/test/model"
	"github.com/ipalloc/ipalloc/internal/test/seeds"
	"github.com/ipalloc/ipalloc/ipset"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	convert "github.com/ipalloc/ipalloc/ipset/calico"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// replay runs a trace through both and returns how often they differed in which known way.
func replay(t testing.TB, data []byte) map[string]int {
	tr := model.NewTrace(data)
	w := newWorld(t, variants[tr.Op(len(variants))])
	for tr.More() {
		switch op := tr.Op(32); {
		case op < 9:
			w.autoAssign(tr)
		case op < 12:
			w.assignIP(tr)
		case op < 17:
			w.releaseIPs(tr)
		case op < 20:
			w.releaseByHandle(tr)
		case op < 22:
			w.claim(tr)
		case op < 24:
			w.releaseAffinity(tr)
		case op == 24:
			w.releaseHost(tr)
		case op == 25:
			w.releasePool(tr)
		case op == 26:
			w.changePool(tr)
		case op == 27:
			w.reserve(tr)
		case op == 28:
			w.configure(tr)
		case op == 29:
			w.relabel(tr)
		case op == 30:
			w.ensureBlock(tr)
		default:
			w.query(tr)
		}
		w.compare()
	}
	w.compareUse()
	w.migrate()
	return w.seen
}

// FuzzAgainstCalico replays traces on both.
func FuzzAgainstCalico(f *testing.F) {
	for seed := range uint64(len(variants)) {
		f.Add(randomTrace(seed, 25))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > 1000 {
			return // every step compares everything
		}
		replay(t, data)
	})
}

// TestAgainstCalico replays random traces, so many and then as many more as it takes to see every divergence of the table.
func TestAgainstCalico(t *testing.T) {
	seen := map[string]int{}
	unseen := func() (list []string) {
		for _, d := range divergences {
			if d.Replayed && seen[d.Case] == 0 {
				list = append(list, d.Case)
			}
		}
		return list
	}
	last := uint64(0)
	try := func(seed uint64) {
		for name, n := range replay(t, randomTrace(1000+seed, 100)) {
			seen[name] += n
		}
		last = seed
	}
	for seed := range seeds.Each(t, 100, 2000) {
		try(seed)
	}
	if seeds.Chosen() {
		return
	}
	for most := 4 * last; last < most && len(unseen()) > 0; {
		try(last + 1)
	}
	t.Logf("%d traces: %v", last+1, seen)
	if list := unseen(); len(list) > 0 {
		t.Errorf("not seen in %d traces: %q", last+1, list)
	}
}

// randomTrace returns a trace in the world that seed says.
func randomTrace(seed uint64, ops int) []byte {
	rng := rand.New(rand.NewPCG(seed, 7))
	data := []byte{byte(seed % uint64(len(variants)))}
	for range ops {
		data = model.AppendOp(data, byte(rng.IntN(32)), rng.Uint64N(1<<20), rng.Uint64N(1<<20), rng.Uint64N(1<<20), rng.Uint64N(1<<20))
	}
	return data
}

// host returns a host, seldom the one that does not exist.
func (w *world) host(tr *model.Trace) string {
	n := tr.Below(33)
	if n == 32 {
		return ghost
	}
	return hostNames[n%4]
}

// handle returns a handle, or none.
func (w *world) handle(tr *model.Trace) string {
	n := tr.Below(13)
	if n == 12 {
		return ""
	}
	return fmt.Sprint("handle-", n)
}

// address returns one in a plan's pool, whether or not there is such a pool now, or just behind it.
func (w *world) address(tr *model.Trace) netip.Addr {
	p := w.menu[tr.Below(uint64(len(w.menu)))]
	bits := p.netip().Addr().BitLen() - p.netip().Bits()
	u := addr.FromAddr(p.netip().Addr()).Add(addr.U128{Lo: tr.Below(1<<bits + 1)})
	if p.netip().Addr().Is4() {
		return u.Addr4()
	}
	return u.Addr6()
}

// held returns an address that is held, if there is one.
func (w *world) held(tr *model.Trace) (alloc.Allocation, bool) {
	var list []alloc.Allocation
	for al := range w.engine.Allocations(bg, netip.Prefix{}) {
		list = append(list, al)
	}
	n := tr.Uint()
	if len(list) == 0 {
		return alloc.Allocation{}, false
	}
	return list[n%uint64(len(list))], true
}

// prefix returns a part of a plan's pool: a block, several, all, more than the pool, or less than a block.
func (w *world) prefix(tr *model.Trace) netip.Prefix {
	p := w.menu[tr.Below(uint64(len(w.menu)))]
	bits := p.netip().Bits()
	switch tr.Below(16) {
	case 0:
		bits--
	case 1, 2:
	case 3, 4:
		bits = p.blockBits - 1
	case 5:
		bits = p.blockBits + 1
	default:
		bits = p.blockBits
	}
	wide := p.netip().Addr().BitLen() - p.netip().Bits()
	u := addr.FromAddr(p.netip().Addr()).Add(addr.U128{Lo: tr.Below(1 << wide)})
	if p.netip().Addr().Is4() {
		return netip.PrefixFrom(u.Addr4(), bits).Masked()
	}
	return netip.PrefixFrom(u.Addr6(), bits).Masked()
}

// ipOf returns an address in Calico's form.
func ipOf(a netip.Addr) cnet.IP { return cnet.IP{IP: net.IP(a.AsSlice())} }

// ends are the addresses that hosts keep, in both forms.
func (w *world) ends() (*ipam.HostReservedAttr, uint64, uint64) {
	if !w.windows {
		return nil, 0, 0
	}
	return windowsEnds, 3, 1
}

// changePool adds, removes, disables or enables a pool.
func (w *world) changePool(tr *model.Trace) {
	name := w.menu[tr.Below(uint64(len(w.menu)))].name
	if w.windows && !slices.Contains(w.variant.pools, name) {
		return // its blocks are too small
	}
	p := w.pools[name]
	switch n := tr.Below(4); {
	case p == nil:
		w.step("add pool %s", name)
		w.addPool(name)
	case n == 0:
		w.step("remove pool %s", name)
		w.removePool(name)
	case n < 3:
		w.step("pool %s disabled: %v", name, !p.Disabled)
		w.disablePool(name, !p.Disabled)
	}
}

// reserve replaces the reservations.
func (w *world) reserve(tr *model.Trace) {
	var sb netipx.IPSetBuilder
	w.calico.reserved = nil
	for range tr.Below(4) {
		p := w.prefix(tr)
		if tr.Below(2) == 0 {
			p = netip.PrefixFrom(p.Addr(), p.Addr().BitLen())
		}
		sb.AddPrefix(p)
		w.calico.reserved = append(w.calico.reserved, p.String())
	}
	w.step("reserve %v", w.calico.reserved)
	must(w.engine.Operator().SetReservations(bg, alloc.Reservations(must(sb.IPSet()).Ranges()...)))
}

func (w *world) configure(tr *model.Trace) {
	c := alloc.Config{Strict: w.windows || tr.Below(2) == 0, NoAutoBlocks: tr.Below(5) == 0}
	if n := tr.Below(8); n < 4 && c.Strict { // looseLimit
		c.MaxBlocksPerHost = int(n)
	}
	ok := w.setConfig(c)
	w.step("configure %+v: %v", c, ok)
}

// relabel moves a host to another zone.
func (w *world) relabel(tr *model.Trace) {
	host, n := hostNames[tr.Below(4)], tr.Below(6)
	labels := map[string]string{"zone": string(rune('a' + n%3))}
	if n > 3 {
		labels["gpu"] = ""
	}
	w.step("label %s %v", host, labels)
	w.label(host, labels)
}

// query asks both the same questions.
func (w *world) query(tr *model.Trace) {
	switch tr.Below(4) {
	case 0:
		h := fmt.Sprint("handle-", tr.Below(12))
		w.step("addresses of %s", h)
		w.compareHandle(h)
	case 1:
		w.step("utilization")
		w.compareUse()
	case 2:
		w.attributes(w.address(tr))
	default:
		if al, ok := w.held(tr); ok {
			w.attributes(al.Address)
		}
	}
}

// attributes compares what is said about one address.
func (w *world) attributes(a netip.Addr) {
	w.step("attributes of %v", a)
	attrs, handle, terr := w.calico.GetAssignmentAttributes(bg, ipOf(a))
	al, oerr := w.engine.Lookup(bg, a)
	p := w.poolAt(a)
	switch {
	case terr != nil && oerr == nil && (p == nil || p.Disabled):
		w.note(poolGone)
	case terr == nil && handle != nil && *handle == ipam.WindowsReservedHandle:
		if oerr == nil {
			w.fail("%v is reserved, and held by %q", a, al.Handle)
		}
	case (terr == nil) != (oerr == nil):
		w.fail("attributes of %v: Calico %v, ours %v", a, terr, oerr)
	case terr == nil:
		h := ""
		if handle != nil {
			h = *handle
		}
		if h != al.Handle || len(attrs) != len(al.Attributes.Map()) {
			w.fail("attributes of %v: Calico %q %v, ours %q %v", a, h, attrs, al.Handle, al.Attributes.Map())
		}
	}
}

// migrate takes Calico's blocks into an engine of ours, as they are stored, and back, and looks whether they are the same.
func (w *world) migrate() {
	w.Helper()
	w.step("migrate")
	e := must(ipset.New(store.NewMemory(), ipset.Options{}))
	check(e.Operator().SetConfig(bg, alloc.Config{}))
	for i := range plans {
		check(e.AddPool(bg, plans[i].ours()))
	}
	for _, kvp := range must(w.backend.List(bg, calicomodel.BlockListOptions{}, "")).KVPairs {
		key := kvp.Key.(calicomodel.BlockKey)
		b, err := convert.Import(must(calicomodel.SerializeValue(kvp)), 0)
		if err == nil {
			err = e.Operator().ImportBlock(bg, b)
		}
		if err != nil {
			w.fail("import %s: %v", key, err)
		}
		in, err := e.Operator().BlockOf(bg, prefixOf(key.CIDR).Addr())
		if err != nil {
			w.fail("imported %s: %v", key, err)
		}
		w.compareBlock(kvp.Value.(*calicomodel.AllocationBlock), in)
		back := must(calicomodel.ParseValue(key, must(convert.Export(in, 0)))).(*calicomodel.AllocationBlock)
		w.compareBlock(back, in)
		for al := range in.All() {
			x := must(back.IPToOrdinal(ipOf(al.Address)))
			if theirs := kvp.Value.(*calicomodel.AllocationBlock).GetSequenceNumberForOrdinal(x); al.Seq != theirs || back.GetSequenceNumberForOrdinal(x) != theirs {
				w.fail("%v: sequence number %d with Calico, %d here, %d back there", al.Address, theirs, al.Seq, back.GetSequenceNumberForOrdinal(x))
			}
		}
		if back.Host() != in.Owner().Name || back.CIDR.String() != key.CIDR.String() {
			w.fail("%s comes back as %v of %s", key, back.CIDR, back.Host())
		}
	}
}
