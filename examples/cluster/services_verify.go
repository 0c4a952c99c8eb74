package main

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/ipalloc/ipalloc/examples/internal/wording"
	"github.com/ipalloc/ipalloc/servicealloc"
)

// Like verify.go, this file knows nothing of how the engine works: it starts from what the services
// hold and from the rules, with net/netip alone.

// bandsOf returns the last address of the static band of a service range, which is the one before
// the first when there is none, and how many addresses both bands have; of 2^64 or more, the
// largest number.
func bandsOf(prefix netip.Prefix) (lastStatic netip.Addr, static, dynamic uint64) {
	host := prefix.Addr().BitLen() - prefix.Bits()
	unusable := uint64(1) // the base address
	if prefix.Addr().Is4() {
		unusable = 2 // network and broadcast
	}
	var size uint64 // 0: 2^64 or more
	if host < 64 {
		size = 1 << host
	}
	switch {
	case size != 0 && size <= unusable:
		return prefix.Addr(), 0, 0
	case size != 0 && size <= 16:
	default:
		static = 256
		if size != 0 {
			static = min(max(16, size/16), 256)
		}
	}
	dynamic = size - unusable - static // for 2^64, size 0, this comes round to the right number
	if host > 64 {
		dynamic = ^uint64(0)
	}
	return nth(prefix, int(static)), static, dynamic
}

// checkServices says what is wrong with what services hold: an address or a port twice, one outside
// its range, one that was not asked for, one from the wrong band.
func checkServices(ranges []serviceRange, ports servicealloc.PortRange, services []service, held map[string]servicealloc.Grant) []string {
	var found []string
	fault := func(format string, args ...any) { found = append(found, fmt.Sprintf(format, args...)) }
	owner := map[any]string{}
	once := func(name string, what any) {
		if other, ok := owner[what]; ok {
			fault("%v is held by services %q and %q", what, other, name)
		}
		owner[what] = name
	}
	for i := range services {
		s := &services[i]
		g := held[s.name]
		addrs := g.Addrs
		for _, r := range ranges {
			w := s.addrs[slot(r.family)]
			if w.kind == wishNone {
				continue
			}
			if len(addrs) == 0 {
				fault("service %q holds no %s address", s.name, r.name)
				continue
			}
			a := addrs[0]
			addrs = addrs[1:]
			once(s.name, a)
			found = append(found, checkAddr(r, s, w, a)...)
		}
		if len(addrs) > 0 {
			fault("service %q holds %v, which it did not ask for", s.name, addrs)
		}
		if len(g.Ports) != len(s.ports) {
			fault("service %q holds %d node ports, it asked for %d", s.name, len(g.Ports), len(s.ports))
			continue
		}
		for j, port := range g.Ports {
			once(s.name, portText(port))
			want := s.ports[j]
			if port.Protocol != want.Protocol || want.Number != 0 && port.Number != want.Number || port.Number < ports.First || port.Number > ports.Last {
				fault("service %q holds %s, it asked for %s of %v", s.name, portText(port), portText(want), ports)
			}
		}
	}
	return found
}

// portText returns a port as "30053/UDP".
func portText(p servicealloc.Port) string { return fmt.Sprintf("%d/%s", p.Number, p.Protocol) }

// checkAddr says what is wrong with one address of a service.
func checkAddr(r serviceRange, s *service, w wish, a netip.Addr) []string {
	wrong := func(why string) []string { return []string{fmt.Sprintf("service %q holds %v, %s", s.name, a, why)} }
	switch {
	case !r.prefix.Contains(a):
		return wrong("which is outside " + r.prefix.String())
	case a == r.prefix.Addr(), a.Is4() && a == last(r.prefix):
		return wrong("which no service may have")
	case w.kind == wishNth && a != nth(r.prefix, w.nth), w.kind == wishAddr && a != w.addr:
		return wrong("which is not the one it named")
	}
	return nil
}

// checkPicks says what is wrong with what a service got at a time when others held what held says:
// an address that the engine chose from the static band with dynamic ones left, or that it did not
// say it had spilled.
func checkPicks(ranges []serviceRange, s *service, g servicealloc.Grant, held map[string]servicealloc.Grant) []string {
	spilled := false
	for _, r := range ranges {
		lastStatic, _, dynamic := bandsOf(r.prefix)
		for _, a := range g.Addrs {
			if !r.prefix.Contains(a) || s.addrs[slot(r.family)].kind != wishAny || lastStatic.Less(a) {
				continue
			}
			spilled = true
			if countHeld(r, held, lastStatic.Next(), last(r.prefix)) < dynamic {
				return []string{fmt.Sprintf("service %q got %v, which is static, with dynamic ones left", s.name, a)}
			}
		}
	}
	if spilled && !g.Spilled {
		return []string{fmt.Sprintf("service %q got %v from the static band, and was not told", s.name, g.Addrs)}
	}
	return nil
}

// countHeld returns how many addresses from lo to hi services hold.
func countHeld(r serviceRange, held map[string]servicealloc.Grant, lo, hi netip.Addr) (n uint64) {
	for _, g := range held {
		for _, a := range g.Addrs {
			if r.prefix.Contains(a) && lo.Compare(a) <= 0 && a.Compare(hi) <= 0 {
				n++
			}
		}
	}
	return n
}

// verify compares the registry with what the given services, and no others, hold.
func (p *servicePhase) verify(when string, services []service) error {
	p.report.checks++
	found := checkServices(p.ranges, p.ports, services, p.held)
	fault := func(format string, args ...any) { found = append(found, fmt.Sprintf(format, args...)) }
	if err := p.registry.Check(); err != nil {
		fault("the engine's own check: %v", err)
	}
	if len(p.held) != len(services) {
		fault("%d services hold something, there are %d", len(p.held), len(services))
	}
	seen := 0
	for g := range p.registry.All() {
		seen++
		if !sameGrant(g, p.held[g.Owner]) {
			fault("the engine says %v, service %q has %v on record", g, g.Owner, p.held[g.Owner])
		}
	}
	for _, g := range p.held {
		if g.Generation != 0 {
			seen--
		}
	}
	if seen != 0 {
		fault("the engine has %d owners more than there are services that hold something", seen)
	}
	for _, r := range p.ranges {
		lastStatic, static, dynamic := bandsOf(r.prefix)
		below, above := countHeld(r, p.held, r.prefix.Addr(), lastStatic), countHeld(r, p.held, lastStatic.Next(), last(r.prefix))
		want := servicealloc.Stats{
			Static:  servicealloc.BandStats{Capacity: static, Used: below, Free: static - below},
			Dynamic: servicealloc.BandStats{Capacity: dynamic, Used: above, Free: dynamic - above},
		}
		if got := p.stats(r.family); got != want && dynamic != ^uint64(0) {
			fault("%s: the engine counts %+v, the services hold %+v", r.name, got, want)
		}
	}
	slices.Sort(found)
	return wording.Broken("services "+when, found)
}
