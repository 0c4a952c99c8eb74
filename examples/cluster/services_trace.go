package main

import (
	_ "embed"
	"io"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/ipalloc/ipalloc/examples/internal/trace"
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
	return trace.Load(file, "services.csv", builtinServices, readServices)
}

// readServices reads a service trace. A fault in it is a *trace.Error. Names are unique.
func readServices(file string, r io.Reader) ([]service, error) {
	t := trace.NewTable(file, r, serviceColumns)
	var services []service
	seen := map[string]int{} // name -> line
	for t.Next() {
		services = append(services, service{
			name:  t.Name("name", "service", seen),
			addrs: [2]wish{wishOf(t, "ip4", "IPv4"), wishOf(t, "ip6", "IPv6")},
			ports: portsOf(t, "nodeports"),
		})
	}
	return services, t.Err()
}

// wishOf returns a field that says which address is wanted.
func wishOf(t *trace.Table, column, family string) wish {
	s := t.Text(column)
	switch {
	case s == "none":
		return wish{}
	case s == "any":
		return wish{kind: wishAny}
	case strings.HasPrefix(s, "#"):
		n, err := strconv.Atoi(s[1:])
		if err != nil || n < 1 || n > maxNth {
			t.Fail(column, "%s is %q: not the place of an address, from #1 to #%d", column, s, maxNth)
		}
		return wish{kind: wishNth, nth: n}
	}
	a, err := netip.ParseAddr(s)
	if err != nil || a.Is4() != (family == "IPv4") || a.Is4In6() || a.Zone() != "" || a.IsUnspecified() {
		t.Fail(column, "%s is %q: any, none, a place such as #10, or an %s address is needed", column, s, family)
	}
	return wish{kind: wishAddr, addr: a}
}

// portsOf returns a field that lists ports: TCP, or TCP:30080 for a named one, with space between.
func portsOf(t *trace.Table, column string) (list []servicealloc.Port) {
	protocols := []servicealloc.Protocol{servicealloc.TCP, servicealloc.UDP, servicealloc.SCTP}
	for _, s := range strings.Fields(t.Text(column)) {
		name, number, named := strings.Cut(s, ":")
		i := slices.IndexFunc(protocols, func(p servicealloc.Protocol) bool { return string(p) == name })
		n, err := strconv.ParseUint(number, 10, 16)
		if i < 0 || named && (err != nil || n == 0) {
			t.Fail(column, "%s has %q: a protocol (TCP, UDP, SCTP) is needed, perhaps with a port, as in TCP:30080", column, s)
			return nil
		}
		list = append(list, servicealloc.Port{Protocol: protocols[i], Number: uint16(n)})
	}
	return list
}
