package servicealloc

import "net/netip"

// AppendBinary appends a snapshot to data: what is held, the options, and the random
// value drawn ahead, so that the range that [Restore] makes answers the next call as
// this one would have. Of the random source it carries the state if the range made it
// itself; one given with [Random] is for the caller to keep. It implements
// encoding.BinaryAppender and fails only when memory does.
func (r *Range) AppendBinary(data []byte) ([]byte, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := newEncoder(data, kindRange)
	e.settings(r.set)
	e.prefixes([]netip.Prefix{r.p})
	e.source(r.own)
	e.uint(r.pick.next)
	if err := e.area(&r.area); err != nil {
		return data, err
	}
	return e.seal(), nil
}

// MarshalBinary is AppendBinary to nil.
func (r *Range) MarshalBinary() ([]byte, error) { return r.AppendBinary(nil) }

// Restore returns the range that data, a snapshot, was taken of. Of the options only
// [Random] and [OnChange] are allowed; the rest is in the snapshot.
//
// [ErrSnapshot]: data is no snapshot of a range, damaged, or contradicts itself.
// [ErrBadOption]: another option is given, or Random for a range that picks the lowest.
func Restore(data []byte, opts ...Option) (*Range, error) {
	c, err := collectRestore(opts)
	if err != nil {
		return nil, err
	}
	d := newDecoder(data, kindRange)
	if err := d.config(&c); err != nil {
		return nil, err
	}
	ps := d.prefixes()
	if len(ps) != 1 {
		d.fail("prefix")
		return nil, d.end()
	}
	r, err := newRange(ps[0], windowBits, c)
	if err != nil {
		return nil, contradiction(err)
	}
	d.source(r.own)
	r.pick.next = d.any()
	d.area(&r.area)
	if err := d.end(); err != nil {
		return nil, err
	}
	return r, nil
}

func collectRestore(opts []Option) (config, error) {
	c, err := collect("restore", opts)
	if err != nil {
		return c, err
	}
	return c, c.forRestore()
}

// config reads the settings into c.
func (d *decoder) config(c *config) error {
	c.settings = d.settings()
	if d.bad == "" && c.lowest && c.random {
		return &Error{Op: "restore", Err: ErrBadOption, Detail: "Random for a snapshot of LowestFirst"}
	}
	if d.bad != "" {
		return d.end()
	}
	return nil
}

// contradiction makes what a constructor says about a snapshot's settings the
// snapshot's fault.
func contradiction(err error) error {
	return &Error{Op: "restore", Err: ErrSnapshot, Detail: err.Error()}
}

// AppendBinary appends a snapshot to data, in the way of [Range.AppendBinary].
func (p *Ports) AppendBinary(data []byte) ([]byte, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	e := newEncoder(data, kindPorts)
	e.settings(&p.core.set)
	e.portRanges([]PortRange{p.core.r})
	for i := range p.core.space {
		e.source(p.core.own[i])
		e.uint(p.core.pick[i].next)
		if err := e.bitmap(p.core.space[i].bits); err != nil {
			return data, err
		}
	}
	return e.seal(), nil
}

// MarshalBinary is AppendBinary to nil.
func (p *Ports) MarshalBinary() ([]byte, error) { return p.AppendBinary(nil) }

// RestorePorts returns the ports that data, a snapshot, was taken of. The options and
// the errors are those of [Restore].
func RestorePorts(data []byte, opts ...Option) (*Ports, error) {
	c, err := collectRestore(opts)
	if err != nil {
		return nil, err
	}
	d := newDecoder(data, kindPorts)
	if err := d.config(&c); err != nil {
		return nil, err
	}
	rs := d.portRanges()
	if len(rs) != 1 {
		d.fail("port range")
		return nil, d.end()
	}
	core, err := newPortCore(rs[0], c)
	if err == nil {
		err = c.noAddrs("restore")
	}
	if err != nil {
		return nil, contradiction(err)
	}
	for i := range core.space {
		s := &core.space[i]
		d.source(core.own[i])
		core.pick[i].next = d.any()
		if b := d.bitmap(rs[0].size() - 1); b != nil {
			s.bits = b
			s.recount()
		}
	}
	if err := d.end(); err != nil {
		return nil, err
	}
	return &Ports{core: core, hook: newHook(c.onChange)}, nil
}

// AppendBinary appends a snapshot to data, in the way of [Range.AppendBinary]; the
// ranges and their state are in it.
func (r *Ranges) AppendBinary(data []byte) ([]byte, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := newEncoder(data, kindRanges)
	e.ranges(r.core)
	for _, roots := range r.core.roots {
		for _, root := range roots {
			if err := e.area(root.area); err != nil {
				return data, err
			}
		}
	}
	return e.seal(), nil
}

// MarshalBinary is AppendBinary to nil.
func (r *Ranges) MarshalBinary() ([]byte, error) { return r.AppendBinary(nil) }

// ranges writes all of c but what is held.
func (e *encoder) ranges(c *rangeCore) {
	e.settings(&c.set)
	e.source(c.own)
	for i := range c.pick {
		e.uint(c.pick[i].which.next)
		e.uint(c.pick[i].start.next)
	}
	e.uint(uint64(len(c.entries)))
	for _, i := range c.entries {
		e.bytes([]byte(i.Name))
		e.prefixes(i.Prefixes)
		e.bool(i.Draining)
	}
}

// ranges reads what the encoder's ranges wrote; config is c with its settings.
func (d *decoder) ranges(c *config) (*rangeCore, error) {
	if err := d.config(c); err != nil {
		return nil, err
	}
	r := newRangeCore(*c)
	d.source(r.own)
	for i := range r.pick {
		r.pick[i].which.next = d.any()
		r.pick[i].start.next = d.any()
	}
	prefixes := 0
	for n := d.few(); n > 0 && d.bad == ""; n-- {
		e := &RangeInfo{Name: string(d.bytes()), Prefixes: d.prefixes(), Draining: d.bool()}
		if k := len(r.entries); len(e.Prefixes) == 0 || k > 0 && r.entries[k-1].Name >= e.Name {
			d.fail("ranges out of order")
		}
		r.entries = append(r.entries, e)
		if prefixes += len(e.Prefixes); prefixes > maxPrefixes {
			d.fail("too many prefixes")
		}
	}
	if d.bad != "" {
		return nil, d.end()
	}
	r.rebuild()
	return r, nil
}

// RestoreRanges returns the ranges that data, a snapshot, was taken of. The options and
// the errors are those of [Restore].
func RestoreRanges(data []byte, opts ...Option) (*Ranges, error) {
	c, err := collectRestore(opts)
	if err != nil {
		return nil, err
	}
	d := newDecoder(data, kindRanges)
	core, err := d.ranges(&c)
	if err != nil {
		return nil, err
	}
	if err := c.noPorts("restore"); err != nil {
		return nil, contradiction(err)
	}
	for _, roots := range core.roots {
		for _, root := range roots {
			d.area(root.area)
		}
	}
	if err := d.end(); err != nil {
		return nil, err
	}
	if err := core.strays(); err != nil {
		return nil, &Error{Op: "restore", Err: ErrSnapshot, Detail: err.Error()}
	}
	return &Ranges{core: core, hook: newHook(c.onChange)}, nil
}
