package main

import (
	_ "embed"
	"io"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/ipalloc/ipalloc/servicealloc"
)

// builtinServices is the trace of services that is replayed when no file is named. Cluster DNS
// comes last: its address is free until then because it lies in the static band.
//
//go:embed trace/services.csv
var builtinServices string

// service is one line of a service trace.
type service struct {
	name  string
	addrs [2]wish             // IPv4, IPv6
	ports []servicealloc.Port // number 0: any
}

// serviceColumns are the columns of a service trace, in any order; others may stand beside them.
var serviceColumns = []string{"name", "ip4", "ip6", "nodeports"}

// wish says which address of a family a service wants.
type wish struct {
	kind wishKind
	nth  int        // of the range, counted from 1
	addr netip.Addr // the very one
}

type wishKind int

const (
	wishNone wishKind = iota
	wishAny
	wishNth
	wishAddr
)

// maxNth bounds the places that a trace may name: what is further up is named by its address.
const maxNth = 1 << 16

// loadServices reads the service trace in a file, or the built-in one when the name is empty.
func loadServices(file string) ([]service, error) {
	if file == "" {
		return readServices("trace/services.csv", strings.NewReader(builtinServices))
	}
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return readServices(file, f)
}

// readServices reads a service trace. A fault in it is a *traceError. Names are unique.
func readServices(file string, r io.Reader) ([]service, error) {
	t := newTable(file, r, serviceColumns)
	var services []service
	seen := map[string]int{} // name -> line
	for t.next() {
		s := service{name: t.text("name"), addrs: [2]wish{t.wish("ip4", "IPv4"), t.wish("ip6", "IPv6")}, ports: t.ports("nodeports")}
		if s.name == "" {
			t.fail("name", "name is empty: a service needs a name")
		}
		if first, ok := seen[s.name]; ok {
			t.fail("name", "service %q is on line %d already", s.name, first)
		}
		seen[s.name] = t.line()
		services = append(services, s)
	}
	return services, t.err
}

// wish returns a field that says which address is wanted.
func (t *table) wish(column, family string) wish {
	s := t.text(column)
	switch {
	case s == "none":
		return wish{}
	case s == "any":
		return wish{kind: wishAny}
	case strings.HasPrefix(s, "#"):
		n, err := strconv.Atoi(s[1:])
		if err != nil || n < 1 || n > maxNth {
			t.fail(column, "%s is %q: not the place of an address, from #1 to #%d", column, s, maxNth)
		}
		return wish{kind: wishNth, nth: n}
	}
	a, err := netip.ParseAddr(s)
	if err != nil || a.Is4() != (family == "IPv4") || a.Is4In6() || a.Zone() != "" || a.IsUnspecified() {
		t.fail(column, "%s is %q: any, none, a place such as #10, or an %s address is needed", column, s, family)
	}
	return wish{kind: wishAddr, addr: a}
}

// ports returns a field that lists ports: TCP, or TCP:30080 for a named one, with space between.
func (t *table) ports(column string) (list []servicealloc.Port) {
	protocols := []servicealloc.Protocol{servicealloc.TCP, servicealloc.UDP, servicealloc.SCTP}
	for _, s := range strings.Fields(t.text(column)) {
		name, number, named := strings.Cut(s, ":")
		i := slices.IndexFunc(protocols, func(p servicealloc.Protocol) bool { return p.String() == name })
		n, err := strconv.ParseUint(number, 10, 16)
		if i < 0 || named && (err != nil || n == 0) {
			t.fail(column, "%s has %q: a protocol (TCP, UDP, SCTP) is needed, perhaps with a port, as in TCP:30080", column, s)
			return nil
		}
		list = append(list, servicealloc.Port{Protocol: protocols[i], Number: uint16(n)})
	}
	return list
}
