package main

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ipalloc/ipalloc/servicealloc"
)

const serviceHeader = "name,ip4,ip6,nodeports\n"

func TestServiceTraceFaults(t *testing.T) {
	for text, want := range map[string]string{
		"":                                         "s.csv:1:1: the file is empty, the header is missing: name,ip4,ip6,nodeports",
		"name,ip4,ip6\n":                           `s.csv:1:1: no column "nodeports" in the header, which needs name,ip4,ip6,nodeports`,
		serviceHeader + "a,any,any\n":              "s.csv:2:7: 3 fields, the header has 4",
		serviceHeader + ",any,any,\n":              "s.csv:2:1: name is empty: a service needs a name",
		serviceHeader + "a,any,,\n":                `s.csv:2:7: ip6 is "": any, none, a place such as #10, or an IPv6 address is needed`,
		serviceHeader + "a,fd00::1,any,\n":         `s.csv:2:3: ip4 is "fd00::1": any, none, a place such as #10, or an IPv4 address is needed`,
		serviceHeader + "a,any,10.0.0.1,\n":        `s.csv:2:7: ip6 is "10.0.0.1": any, none, a place such as #10, or an IPv6 address is needed`,
		serviceHeader + "a,any,::ffff:1.2.3.4,\n":  `s.csv:2:7: ip6 is "::ffff:1.2.3.4": any, none, a place such as #10, or an IPv6 address is needed`,
		serviceHeader + "a,any,fe80::1%eth0,\n":    `s.csv:2:7: ip6 is "fe80::1%eth0": any, none, a place such as #10, or an IPv6 address is needed`,
		serviceHeader + "a,0.0.0.0,any,\n":         `s.csv:2:3: ip4 is "0.0.0.0": any, none, a place such as #10, or an IPv4 address is needed`,
		serviceHeader + "a,#0,any,\n":              `s.csv:2:3: ip4 is "#0": not the place of an address, from #1 to #65536`,
		serviceHeader + "a,#ten,any,\n":            `s.csv:2:3: ip4 is "#ten": not the place of an address, from #1 to #65536`,
		serviceHeader + "a,any,any,tcp\n":          `s.csv:2:11: nodeports has "tcp": a protocol (TCP, UDP, SCTP) is needed, perhaps with a port, as in TCP:30080`,
		serviceHeader + "a,any,any,TCP UDP:0\n":    `s.csv:2:11: nodeports has "UDP:0": a protocol (TCP, UDP, SCTP) is needed, perhaps with a port, as in TCP:30080`,
		serviceHeader + "a,any,any,TCP:65536\n":    `s.csv:2:11: nodeports has "TCP:65536": a protocol (TCP, UDP, SCTP) is needed, perhaps with a port, as in TCP:30080`,
		serviceHeader + "a,any,any,\na,any,any,\n": `s.csv:3:1: service "a" is on line 2 already`,
	} {
		_, err := readServices("s.csv", strings.NewReader(text))
		if err == nil || err.Error() != want {
			t.Errorf("%q: %v\nwant %s", text, err, want)
		}
	}
	if services, err := readServices("s.csv", strings.NewReader(serviceHeader)); err != nil || len(services) != 0 {
		t.Error(services, err) // a cluster without services is one
	}
}

func TestServiceUsage(t *testing.T) {
	for _, c := range []struct {
		args   []string
		status int
		text   string
	}{
		{[]string{"-service4", "10.0.0.0"}, exitUsage, "cluster: -service4 10.0.0.0: not a prefix, and not none\n"},
		{[]string{"-service4", "fd00::/64"}, exitUsage, "cluster: -service4 fd00::/64: not an IPv4 prefix\n"},
		{[]string{"-service6", "::ffff:10.0.0.0/104"}, exitUsage, "cluster: -service6 ::ffff:10.0.0.0/104: not an IPv6 prefix\n"},
		{[]string{"-nodeports", "30000-65536"}, exitUsage, "cluster: -nodeports 30000-65536: two ports are needed, as in 30000-32767\n"},
		{[]string{"-nodeports", "0-10"}, exitUsage, "cluster: -nodeports 0-10: two ports are needed, as in 30000-32767\n"},
		{[]string{"-services", write(t, serviceHeader+"a,#300,any,\n"), "-service4", "10.0.0.0/24"}, exitFailed,
			"cluster: service \"a\", number 1 of 1: servicealloc: allocate 10.0.1.0 for \"a\": not a usable address of any range\n"},
		{[]string{"-services", write(t, serviceHeader+"a,#10,any,\nb,#10,any,\n")}, exitFailed,
			"cluster: service \"b\", number 2 of 2: servicealloc: allocate 10.96.0.10 for \"b\": occupied, held by \"a\"\n"},
		{[]string{"-services", write(t, serviceHeader+"a,any,any,TCP:29999\n")}, exitFailed,
			"cluster: service \"a\", number 1 of 1: servicealloc: allocate port 29999 for \"a\" in \"30000-32767\": out of range\n"},
	} {
		status, _, errs := start(c.args...)
		if status != c.status || errs != c.text {
			t.Errorf("%v: status %d, %q, want %d, %q", c.args, status, errs, c.status, c.text)
		}
	}
	if status, out, errs := start("-service4", "none", "-service6", "none"); status != exitOK || strings.Contains(out, "service") {
		t.Errorf("status %d, %s%s", status, out, errs)
	}
}

// Ranges of all kinds, up to the last address: the services of a /28 fill it, static band or not.
func TestServicesFillTheirRange(t *testing.T) {
	for _, c := range []struct {
		prefix4, prefix6 string
		n                int
	}{{"10.0.0.0/28", "fd00::/124", 14}, {"10.0.0.0/27", "fd00::/123", 30}, {"10.0.0.0/24", "fd00::/64", 254}, {"10.0.0.0/26", "fd00::/64", 62}, {"10.0.0.0/30", "fd00::/126", 2}} {
		trace := serviceHeader
		for i := range c.n {
			trace += fmt.Sprintf("s%d,any,any,TCP\n", i)
		}
		args := []string{"-service4", c.prefix4, "-service6", c.prefix6, "-services"}
		if status, _, errs := start(append(args, write(t, trace))...); status != exitOK {
			t.Errorf("%s: status %d, %s", c.prefix4, status, errs)
		}
		status, _, errs := start(append(args, write(t, trace+"one-more,any,any,\n"))...)
		want := fmt.Sprintf("cluster: service \"one-more\", number %d of %d: servicealloc: allocate for \"one-more\": no free IPv4 address\n", c.n+1, c.n+1)
		if status != exitFailed || errs != want {
			t.Errorf("%s: status %d, %q, want %q", c.prefix4, status, errs, want)
		}
	}
}

// The built-in trace: cluster DNS comes last and has the tenth address of both families.
func TestClusterDNS(t *testing.T) {
	status, out, _ := start()
	if status != exitOK || !strings.Contains(out, "\nDNS        10.96.0.10 fd00:10:96::a\n") {
		t.Error(out)
	}
}

// What a broken engine could do, one thing at a time.
func TestCheckServices(t *testing.T) {
	ranges := []serviceRange{{"IPv4", ipv4, netip.MustParsePrefix("10.0.0.0/24")}, {"IPv6", ipv6, netip.MustParsePrefix("fd00::/120")}}
	ports := servicealloc.PortRange{First: 100, Last: 200}
	addrs := func(list ...string) (out []netip.Addr) {
		for _, s := range list {
			out = append(out, netip.MustParseAddr(s))
		}
		return out
	}
	services := must(readServices("s.csv", strings.NewReader(serviceHeader+"a,any,any,TCP\nb,#10,none,\nc,none,fd00::99,TCP:150 UDP:150\n")))
	sound := func() map[string]servicealloc.Grant {
		return map[string]servicealloc.Grant{
			"a": {Addrs: addrs("10.0.0.17", "fd00::11"), Ports: []servicealloc.Port{{Protocol: servicealloc.TCP, Number: 120}}},
			"b": {Addrs: addrs("10.0.0.10")},
			"c": {Addrs: addrs("fd00::99"), Ports: []servicealloc.Port{{Protocol: servicealloc.TCP, Number: 150}, {Protocol: servicealloc.UDP, Number: 150}}},
		}
	}
	for name, c := range map[string]struct {
		service string
		lie     func(g *servicealloc.Grant)
		want    string
	}{
		"sound":            {"a", func(*servicealloc.Grant) {}, ""},
		"outside":          {"a", func(g *servicealloc.Grant) { g.Addrs = addrs("10.0.1.17", "fd00::11") }, `service "a" holds 10.0.1.17, which is outside 10.0.0.0/24`},
		"network":          {"a", func(g *servicealloc.Grant) { g.Addrs = addrs("10.0.0.0", "fd00::11") }, `service "a" holds 10.0.0.0, which no service may have`},
		"broadcast":        {"a", func(g *servicealloc.Grant) { g.Addrs = addrs("10.0.0.255", "fd00::11") }, `service "a" holds 10.0.0.255, which no service may have`},
		"base":             {"a", func(g *servicealloc.Grant) { g.Addrs = addrs("10.0.0.17", "fd00::") }, `service "a" holds fd00::, which no service may have`},
		"last IPv6":        {"a", func(g *servicealloc.Grant) { g.Addrs = addrs("10.0.0.17", "fd00::ff") }, ""},
		"single stack":     {"a", func(g *servicealloc.Grant) { g.Addrs = addrs("10.0.0.17") }, `service "a" holds no IPv6 address`},
		"too much":         {"b", func(g *servicealloc.Grant) { g.Addrs = addrs("10.0.0.10", "fd00::20") }, `service "b" holds [fd00::20], which it did not ask for`},
		"another place":    {"b", func(g *servicealloc.Grant) { g.Addrs = addrs("10.0.0.11") }, `service "b" holds 10.0.0.11, which is not the one it named`},
		"another address":  {"c", func(g *servicealloc.Grant) { g.Addrs = addrs("fd00::98") }, `service "c" holds fd00::98, which is not the one it named`},
		"twice":            {"a", func(g *servicealloc.Grant) { g.Addrs = addrs("10.0.0.17", "fd00::99") }, `fd00::99 is held by services "a" and "c"`},
		"port twice":       {"a", func(g *servicealloc.Grant) { g.Ports[0].Number = 150 }, `150/TCP is held by services "a" and "c"`},
		"port outside":     {"a", func(g *servicealloc.Grant) { g.Ports[0].Number = 201 }, `service "a" holds 201/TCP, it asked for 0/TCP of 100-200`},
		"another port":     {"c", func(g *servicealloc.Grant) { g.Ports[0].Number = 151 }, `service "c" holds 151/TCP, it asked for 150/TCP of 100-200`},
		"another protocol": {"a", func(g *servicealloc.Grant) { g.Ports[0].Protocol = servicealloc.SCTP }, `service "a" holds 120/SCTP, it asked for 0/TCP of 100-200`},
		"no port":          {"a", func(g *servicealloc.Grant) { g.Ports = nil }, `service "a" holds 0 node ports, it asked for 1`},
	} {
		held := sound()
		g := held[c.service]
		c.lie(&g)
		held[c.service] = g
		if diff := cmp.Diff(c.want, strings.Join(checkServices(ranges, ports, services, held), "\n")); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// The static band is for those who name an address, as long as there are dynamic ones.
func TestCheckPicks(t *testing.T) {
	ranges := []serviceRange{{"IPv4", ipv4, netip.MustParsePrefix("10.0.0.0/27")}}
	any, named := &service{name: "any", addrs: [2]wish{{kind: wishAny}}}, &service{name: "named", addrs: [2]wish{{kind: wishNth, nth: 3}}}
	full := map[string]servicealloc.Grant{}
	for i := range byte(14) {
		full[fmt.Sprint(i)] = servicealloc.Grant{Addrs: []netip.Addr{netip.AddrFrom4([4]byte{10, 0, 0, 17 + i})}}
	}
	low, high := []netip.Addr{netip.MustParseAddr("10.0.0.16")}, []netip.Addr{netip.MustParseAddr("10.0.0.17")}
	for name, c := range map[string]struct {
		s    *service
		g    servicealloc.Grant
		held map[string]servicealloc.Grant
		want int
	}{
		"dynamic":         {any, servicealloc.Grant{Addrs: high}, nil, 0},
		"named":           {named, servicealloc.Grant{Addrs: low}, nil, 0},
		"static too soon": {any, servicealloc.Grant{Addrs: low, Spilled: true}, nil, 1},
		"spilled":         {any, servicealloc.Grant{Addrs: low, Spilled: true}, full, 0},
		"not told":        {any, servicealloc.Grant{Addrs: low}, full, 1},
	} {
		if got := checkPicks(ranges, c.s, c.g, c.held); len(got) != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// The rule of the bands, as it is worked out by hand.
func TestBandsOf(t *testing.T) {
	for prefix, want := range map[string]string{
		"10.96.0.0/28": "10.96.0.0 0 14", "10.96.0.0/27": "10.96.0.16 16 14", "10.96.0.0/24": "10.96.0.16 16 238", "10.96.0.0/22": "10.96.0.64 64 958",
		"10.96.0.0/20": "10.96.1.0 256 3838", "10.96.0.0/16": "10.96.1.0 256 65278", "10.96.0.0/31": "10.96.0.0 0 0", "10.96.0.0/32": "10.96.0.0 0 0",
		"fd00::/64": "fd00::100 256 18446744073709551359", "fd00::/63": "fd00::100 256 18446744073709551615", "fd00::/128": "fd00:: 0 0", "fd00::/127": "fd00:: 0 1",
	} {
		last, static, dynamic := bandsOf(netip.MustParsePrefix(prefix))
		if got := fmt.Sprint(last, static, dynamic); got != want {
			t.Errorf("%s: %s, want %s", prefix, got, want)
		}
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// Every phase notices when the registry and the record part.
func TestServicePhaseNotices(t *testing.T) {
	cfg, err := parse(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	services := must(loadServices(""))
	for name, spoil := range map[string]func(p *servicePhase){
		"a service is gone": func(p *servicePhase) { p.registry.Release("shop/web", 0) },
		"a service too many": func(p *servicePhase) {
			must(p.registry.Allocate("nobody", servicealloc.Request{Ports: []servicealloc.Port{{}}}))
		},
		"another address": func(p *servicePhase) {
			p.registry.Release("shop/web", 0)
			must(p.registry.Allocate("shop/web", p.request(&p.services[1])))
		},
		"a record is gone": func(p *servicePhase) { delete(p.held, "shop/web") },
		"a record is not true": func(p *servicePhase) {
			g := p.held["shop/web"]
			g.Addrs = slices.Clone(g.Addrs)
			g.Addrs[0] = g.Addrs[0].Next()
			p.held["shop/web"] = g
		},
	} {
		p := must(newServicePhase(cfg, services))
		if err := p.run(); err != nil {
			t.Fatal(err)
		}
		spoil(p)
		if p.verify("in the test", services) == nil {
			t.Errorf("%s: verify is content", name)
		}
		if name != "a service too many" && name != "another address" && p.compare() == nil {
			t.Errorf("%s: compare is content", name)
		}
	}
}
