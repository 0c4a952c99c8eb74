package main

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/examples/internal/wording"
	"github.com/ipalloc/ipalloc/servicealloc"
	"github.com/ipalloc/ipalloc/servicealloc/repair"
)

// serviceRange is where the services of a family get their addresses from.
type serviceRange struct {
	name   string
	family serviceFamily
	prefix netip.Prefix
}

// serviceFamily is an address family.
type serviceFamily string

const (
	ipv4 serviceFamily = "IPv4"
	ipv6 serviceFamily = "IPv6"
)

// servicePhase gives services their addresses and node ports. held is the record a controller
// would keep in the service objects; all the rest can be rebuilt from it.
type servicePhase struct {
	services []service
	ranges   []serviceRange
	ports    servicealloc.PortRange
	registry *servicealloc.Registry
	held     map[string]servicealloc.Grant
	report   serviceReport
}

// serviceReport is what the summary tells.
type serviceReport struct {
	refused       int // requests that could not be met in full
	churned, same int // services removed and added again, and how many got what they had
	snapshotBytes int
	checks        int // how often everything was verified
}

func newServicePhase(cfg *config, services []service) (*servicePhase, error) {
	p := &servicePhase{services: services, ranges: cfg.services, ports: cfg.nodePorts, held: map[string]servicealloc.Grant{}}
	var err error
	if p.registry, err = servicealloc.NewRegistry(p.ports); err != nil {
		return nil, err
	}
	var prefixes []netip.Prefix
	for _, r := range p.ranges {
		prefixes = append(prefixes, r.prefix)
	}
	return p, p.registry.SetRange(servicealloc.RangeInfo{Name: "services", Prefixes: prefixes})
}

// run is the life of the services: all come, some ask for what they can't have, a tenth goes and
// comes back, the controller restarts.
func (p *servicePhase) run() error {
	for i := range p.services {
		if err := p.add(&p.services[i]); err != nil {
			return err
		}
	}
	if err := p.verify("after all services were added", p.services); err != nil {
		return err
	}
	for _, step := range []func() error{p.refuse, p.churn, p.restart, p.compare} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// request says what a service asks for, of the families that there are.
func (p *servicePhase) request(s *service) servicealloc.Request {
	req := servicealloc.Request{Ports: s.ports}
	for _, r := range p.ranges {
		switch w := s.addrs[slot(r.family)]; w.kind {
		case wishAny:
			req.Addrs = append(req.Addrs, anyOf(r.family))
		case wishNth:
			req.Addrs = append(req.Addrs, nth(r.prefix, w.nth))
		case wishAddr:
			req.Addrs = append(req.Addrs, w.addr)
		}
	}
	return req
}

// slot returns the place of a family in a service's wishes.
func slot(f serviceFamily) int {
	if f == ipv4 {
		return 0
	}
	return 1
}

// anyOf is how a request leaves the address of a family open.
func anyOf(f serviceFamily) netip.Addr {
	if f == ipv4 {
		return netip.IPv4Unspecified()
	}
	return netip.IPv6Unspecified()
}

// nth returns the address n places behind the first of a prefix, or the first of all beyond it.
func nth(prefix netip.Prefix, n int) netip.Addr {
	a := prefix.Addr()
	for ; n > 0 && prefix.Contains(a); n-- {
		a = a.Next()
	}
	return a
}

// add gives a service all it asks for, or nothing; asking again gives the same.
func (p *servicePhase) add(s *service) error {
	g, err := p.registry.Allocate(s.name, p.request(s))
	if err != nil {
		return fmt.Errorf("service %q, number %d of %d: %w", s.name, len(p.held)+1, len(p.services), err)
	}
	again, err := p.registry.Allocate(s.name, p.request(s))
	if err != nil || !sameGrant(g, again) {
		return wording.Broken("when a service asked again", []string{fmt.Sprintf("service %q got %v, then %v (%v)", s.name, g, again, err)})
	}
	if err := wording.Broken("when a service was added", checkPicks(p.ranges, s, g, p.held)); err != nil {
		return err
	}
	p.held[s.name] = g
	return nil
}

func sameGrant(a, b servicealloc.Grant) bool {
	return a.Generation == b.Generation && slices.Equal(a.Addrs, b.Addrs) && slices.Equal(a.Ports, b.Ports)
}

// refuse asks a hundred times for an address that is taken, together with one of the other family
// and a port that could be had. Nothing of it may stick.
func (p *servicePhase) refuse() error {
	i := slices.IndexFunc(p.services, func(s service) bool { return len(p.held[s.name].Addrs) > 0 })
	if i < 0 {
		return nil
	}
	taken := p.held[p.services[i].name].Addrs[0]
	req := servicealloc.Request{Ports: []servicealloc.Port{{}}}
	for _, r := range p.ranges {
		if r.prefix.Contains(taken) {
			continue
		}
		req.Addrs = append(req.Addrs, anyOf(r.family))
	}
	req.Addrs = append(req.Addrs, taken)
	before, err := p.registry.MarshalBinary()
	if err != nil {
		return err
	}
	for range 100 {
		g, err := p.registry.Allocate("refused", req)
		if !errors.Is(err, ipalloc.ErrOccupied) && !errors.Is(err, ipalloc.ErrFull) {
			return wording.Broken("when an address was asked for twice", []string{fmt.Sprintf("%v was given to %v (%v)", taken, g, err)})
		}
		p.report.refused++
	}
	after, err := p.registry.MarshalBinary()
	if err != nil {
		return err
	}
	if !bytes.Equal(before, after) {
		return wording.Broken("after requests that were refused", []string{"something of them is still held"})
	}
	return nil
}

// churn removes every tenth service and adds them again, the last one first.
func (p *servicePhase) churn() error {
	var gone, left []service
	had := map[string]servicealloc.Grant{}
	for i, s := range p.services {
		if i%10 != 0 {
			left = append(left, s)
			continue
		}
		gone = append(gone, s)
		had[s.name] = p.held[s.name]
		if _, err := p.registry.Release(s.name, had[s.name].Generation); err != nil {
			return err
		}
		delete(p.held, s.name)
	}
	if err := p.verify("after a tenth of the services was removed", left); err != nil {
		return err
	}
	for _, s := range slices.Backward(gone) {
		if err := p.add(&s); err != nil {
			return err
		}
		g, old := p.held[s.name], had[s.name]
		if slices.Equal(g.Addrs, old.Addrs) && slices.Equal(g.Ports, old.Ports) {
			p.report.same++
		}
		if _, err := p.registry.Release(s.name, old.Generation); len(p.request(&s).Addrs)+len(s.ports) > 0 && !errors.Is(err, ipalloc.ErrMismatch) {
			return wording.Broken("after a service came back", []string{fmt.Sprintf("service %q could be released by its old generation (%v)", s.name, err)})
		}
	}
	p.report.churned = len(gone)
	return p.verify("after these services came back", p.services)
}

// restart writes a snapshot, forgets the registry, and goes on with what the snapshot gives back.
// Nothing may have changed, not even the answer to the next question.
func (p *servicePhase) restart() error {
	const when = "after the restart"
	data, err := p.registry.MarshalBinary()
	if err != nil {
		return err
	}
	p.report.snapshotBytes = len(data)
	old := p.registry
	if p.registry, err = servicealloc.NewRegistry(p.ports, servicealloc.Restore(data)); err != nil {
		return err
	}
	again, err := p.registry.MarshalBinary()
	if err != nil {
		return err
	}
	if !bytes.Equal(data, again) {
		return wording.Broken(when, []string{"a second snapshot of the services differs from the first"})
	}
	var req servicealloc.Request
	for _, r := range p.ranges {
		req.Addrs = append(req.Addrs, anyOf(r.family))
	}
	req.DryRun = true
	before, err1 := old.Allocate("next", req)
	after, err2 := p.registry.Allocate("next", req)
	if !sameGrant(before, after) || (err1 == nil) != (err2 == nil) {
		return wording.Broken(when, []string{fmt.Sprintf("the next service would get %v (%v), it was %v (%v)", after, err2, before, err1)})
	}
	return p.verify(when, p.services)
}

// compare asks the engine what differs between its state and the services' own records.
func (p *servicePhase) compare() error {
	var found []string
	for _, f := range repair.Diff(p.registry, slices.Collect(maps.Values(p.held)), nil, time.Time{}) {
		found = append(found, f.String())
	}
	return wording.Broken("beside the services' own records", found)
}
