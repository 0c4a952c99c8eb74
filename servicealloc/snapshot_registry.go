package servicealloc

import (
	"maps"
	"slices"
)

// AppendBinary appends a snapshot to data, in the way of [Range.AppendBinary]: the
// ranges, the owners with what they hold, and the generation given last.
func (r *Registry) AppendBinary(data []byte) ([]byte, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := newEncoder(data, kindRegistry)
	e.ranges(r.ranges)
	for _, w := range r.ranges.wides() {
		e.uint(w.cur)
	}
	if r.ports == nil {
		e.portRanges(nil)
	} else {
		e.portRanges([]PortRange{r.ports.r})
		for i := range r.ports.pick {
			e.source(r.ports.own[i])
			e.uint(r.ports.pick[i].next)
		}
	}
	e.uint(r.last)
	e.uint(uint64(len(r.owners)))
	for _, name := range slices.Sorted(maps.Keys(r.owners)) {
		e.grant(r.owners[name])
	}
	return e.seal(), nil
}

// MarshalBinary is AppendBinary to nil.
func (r *Registry) MarshalBinary() ([]byte, error) { return r.AppendBinary(nil) }

func (e *encoder) grant(g *Grant) {
	e.bytes([]byte(g.Owner))
	e.uint(g.Generation)
	e.bool(g.Spilled)
	e.uint(uint64(len(g.Addrs)))
	for _, ip := range g.Addrs {
		e.addr(ip)
	}
	e.uint(uint64(len(g.Ports)))
	for _, p := range g.Ports {
		e.uint(uint64(p.Protocol))
		e.uint(uint64(p.Number))
	}
}

func (d *decoder) grant() *Grant {
	g := &Grant{Owner: string(d.bytes()), Generation: d.any(), Spilled: d.bool()}
	for n := d.count(); n > 0 && d.bad == ""; n-- {
		g.Addrs = append(g.Addrs, d.addr())
	}
	for n := d.count(); n > 0 && d.bad == ""; n-- {
		g.Ports = append(g.Ports, Port{Protocol(d.uint(uint64(SCTP))), uint16(d.uint(1<<16 - 1))})
	}
	return g
}

// RestoreRegistry returns the registry that data, a snapshot, was taken of. The options
// and the errors are those of [Restore].
func RestoreRegistry(data []byte, opts ...Option) (*Registry, error) {
	c, err := collectRestore(opts)
	if err != nil {
		return nil, err
	}
	d := newDecoder(data, kindRegistry)
	ranges, err := d.ranges(&c)
	if err != nil {
		return nil, err
	}
	for _, a := range ranges.wides() {
		a.cur = d.uint(a.index(a.last))
	}
	rs := d.portRanges()
	if len(rs) > 1 {
		d.fail("port ranges")
		return nil, d.end()
	}
	rs = append(rs, PortRange{})
	r, err := newRegistry(rs[0], c)
	if err != nil {
		return nil, contradiction(err)
	}
	r.ranges = ranges
	if r.ports != nil {
		for i := range r.ports.pick {
			d.source(r.ports.own[i])
			r.ports.pick[i].next = d.any()
		}
	}
	d.grants(r)
	if err := d.end(); err != nil {
		return nil, err
	}
	if err := ranges.strays(); err != nil {
		return nil, contradiction(err)
	}
	return r, nil
}

// grants reads the owners and takes for each what it holds.
func (d *decoder) grants(r *Registry) {
	r.last = d.any()
	var before string
	generations := map[uint64]bool{}
	for n := d.count(); n > 0 && d.bad == ""; n-- {
		g := d.grant()
		switch {
		case d.bad != "":
		case g.Owner <= before:
			d.fail("owners out of order")
		case g.Generation > r.last || g.Generation == 0 || generations[g.Generation]:
			d.fail("generation")
		case wellFormed(g.Owner, Request{g.Addrs, g.Ports}) != nil || !r.retake(g):
			d.fail("grant of " + g.Owner)
		default:
			r.index(g)
		}
		before, generations[g.Generation] = g.Owner, true
	}
}

// retake takes what g holds and reports whether it could. Whether a range has each
// address usable is looked at in the end, of all at once.
func (r *Registry) retake(g *Grant) bool {
	for _, ip := range g.Addrs {
		if a, ord, ok := r.ranges.locate(ip); !ok || !a.take(ord) {
			return false
		}
	}
	for _, p := range g.Ports {
		if r.ports == nil || p.Number == 0 {
			return false
		}
		if s, x, err := r.ports.locate(p); err != nil || !s.take(x) {
			return false
		}
	}
	return true
}
