package plugin

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The tables of host-local's own tests, said anew: what it is called with and what must come of it.

var allVersions = []string{"0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"}

func versioned(version, network, ipam string, more ...string) string {
	return strings.Replace(conf(network, ipam, more...), `"1.1.0"`, `"`+version+`"`, 1)
}

// golden is the result of an ADD with two addresses, routes and a resolv.conf.
var golden = map[string]string{
	"0.1.0": `{"cniVersion":"0.1.0","ip4":{"ip":"10.1.2.2/24","gateway":"10.1.2.1","routes":[{"dst":"0.0.0.0/0"},{"dst":"192.168.0.0/16","gw":"1.1.1.1"}]},
		"ip6":{"ip":"2001:db8:1::2/64","gateway":"2001:db8:1::1","routes":[{"dst":"::/0"},{"dst":"2001:db8:2::/64","gw":"2001:db8:3::1"}]},"dns":{"nameservers":["192.0.2.3"]}}`,
	"0.3.0": `{"cniVersion":"0.3.0","ips":[{"version":"4","address":"10.1.2.2/24","gateway":"10.1.2.1"},{"version":"6","address":"2001:db8:1::2/64","gateway":"2001:db8:1::1"}],
		"routes":[{"dst":"0.0.0.0/0"},{"dst":"::/0"},{"dst":"192.168.0.0/16","gw":"1.1.1.1"},{"dst":"2001:db8:2::/64","gw":"2001:db8:3::1"}],"dns":{"nameservers":["192.0.2.3"]}}`,
	"1.0.0": `{"cniVersion":"1.0.0","dns":{"nameservers":["192.0.2.3"]},"ips":[{"address":"10.1.2.2/24","gateway":"10.1.2.1"},{"address":"2001:db8:1::2/64","gateway":"2001:db8:1::1"}],
		"routes":[{"dst":"0.0.0.0/0"},{"dst":"::/0"},{"dst":"192.168.0.0/16","gw":"1.1.1.1"},{"dst":"2001:db8:2::/64","gw":"2001:db8:3::1"}]}`,
}

func goldenOf(version string) string {
	form := map[string]string{"0.2.0": "0.1.0", "0.3.1": "0.3.0", "0.4.0": "0.3.0", "1.1.0": "1.0.0"}[version]
	if form == "" {
		form = version
	}
	return strings.Replace(golden[form], `"cniVersion":"`+form+`"`, `"cniVersion":"`+version+`"`, 1)
}

// indented returns JSON as the plugins print it.
func indented(t *testing.T, text string) string {
	t.Helper()
	var compact any = json.RawMessage(text)
	out, err := json.MarshalIndent(compact, "", "    ")
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

func TestAddAndDel(t *testing.T) {
	for _, v := range allVersions {
		t.Run(v, func(t *testing.T) {
			n := newNode(t, ours(t))
			if err := os.WriteFile(filepath.Join(n.dir, "resolv.conf"), []byte("nameserver 192.0.2.3"), 0o644); err != nil {
				t.Fatal(err)
			}
			c := versioned(v, "mynet", `"resolvConf":"%DIR%/resolv.conf","ranges":[[{"subnet":"10.1.2.0/24"},{"subnet":"10.2.2.0/24"}],[{"subnet":"2001:db8:1::0/64"}]],
				"routes":[{"dst":"0.0.0.0/0"},{"dst":"::/0"},{"dst":"192.168.0.0/16","gw":"1.1.1.1"},{"dst":"2001:db8:2::0/64","gw":"2001:db8:3::1"}]`)
			if a := n.must(add1("dummy", c)); a.stdout != indented(t, goldenOf(v)) || a.stderr != "" {
				t.Fatalf("%s\nwant %s\nstderr %q", a.stdout, indented(t, goldenOf(v)), a.stderr)
			}
			if got, want := fmt.Sprint(heldOf(n.state("mynet"))), "map[10.1.2.2:dummy/eth0 2001:db8:1::2:dummy/eth0], last map[0:10.1.2.2 1:2001:db8:1::2]"; got != want {
				t.Fatalf("%s, want %s", got, want)
			}
			if a := n.must(del1("dummy", c)); a.stdout != "" || a.stderr != "" {
				t.Fatalf("%q, %q", a.stdout, a.stderr)
			}
			if s := n.state("mynet"); len(s.Holdings) != 0 {
				t.Fatal(s)
			}
			n.must(del1("dummy", c)) // again
			n.must(del1("unknown", c))

			// Two networks, two interfaces of a container.
			c0, c1 := versioned(v, "mynet0", one24), versioned(v, "mynet1", `"ranges":[[{"subnet":"10.2.2.0/24"}]]`)
			eth1 := add1("dummy", c1)
			eth1.ifname = "eth1"
			n.must(add1("dummy", c0))
			n.must(eth1)
			n.must(del1("dummy", c0))
			n.must(del1("dummy", c1)) // of the other interface
			if got := fmt.Sprint(heldOf(n.state("mynet0")), heldOf(n.state("mynet1"))); got != "map[], last map[0:10.1.2.2] map[10.2.2.2:dummy/eth1], last map[0:10.2.2.2]" {
				t.Fatal(got)
			}

			// The same container again.
			c = versioned(v, "mynet3", one24)
			n.must(add1("dummy", c))
			n.fails(add1("dummy", c), 999, "failed to allocate for range 0: 10.1.2.2 has been allocated to dummy, duplicate allocation is not allowed")
			if got := n.must(add1("dummy1", c)).addresses(t); !slices.Equal(got, []string{"10.1.2.3/24"}) {
				t.Fatal(got)
			}
			n.fails(add1("dummy", c), 999, "duplicate allocation is not allowed")
			n.must(del1("dummy", c))
			n.must(del1("dummy1", c))
		})
	}
}

func TestRequestedAddresses(t *testing.T) {
	for _, v := range allVersions {
		several := slices.Contains(allVersions[2:], v)
		n := newNode(t, ours(t))
		asking := func(network, ranges, ips string) invocation {
			return add1("dummy", versioned(v, network, `"ranges":`+ranges, `"args":{"cni":{"ips":[`+ips+`]}}`))
		}
		if got := n.must(asking("n1", `[[{"subnet":"10.1.2.0/24"}]]`, `"10.1.2.88"`)).addresses(t); !slices.Equal(got, []string{"10.1.2.88/24"}) {
			t.Fatal(got)
		}
		two := asking("n2", `[[{"subnet":"10.1.2.0/24"}],[{"subnet":"10.1.3.0/24"}]]`, `"10.1.2.88","10.1.3.77"`)
		if !several {
			n.fails(two, 7, "CNI version "+v+" does not support more than 1 address per family")
		} else if got := n.must(two).addresses(t); !slices.Equal(got, []string{"10.1.2.88/24", "10.1.3.77/24"}) {
			t.Fatal(got)
		}
		mixed := asking("n3", `[[{"subnet":"172.16.1.0/24"},{"subnet":"10.1.2.0/24"}],[{"subnet":"2001:db8:1::/48"}]]`, `"10.1.2.88","2001:db8:1::999"`)
		if got := n.must(mixed).addresses(t); !slices.Equal(got, []string{"10.1.2.88/24", "2001:db8:1::999/48"}) {
			t.Fatal(got)
		}
		unused := asking("n4", `[[{"subnet":"10.1.2.0/24"}],[{"subnet":"10.1.3.0/24"}]]`, `"10.1.2.88","10.1.2.77"`)
		if several {
			n.fails(unused, 7, "failed to allocate all requested IPs: 10.1.2.77")
			if s := n.state("n4"); len(s.Holdings)+len(s.Cursors) != 0 {
				t.Fatal(s)
			}
		}
	}
}

// TestRequestSources: where requested addresses may stand.
func TestRequestSources(t *testing.T) {
	n := newNode(t, ours(t))
	sets := `"ranges":[[{"subnet":"10.1.2.0/24"}],[{"subnet":"2001:db8:1::/64"}]]`
	for i, c := range []struct {
		args, more string
		want       string
	}{
		{"IP=10.1.2.10", ``, "10.1.2.10/24 2001:db8:1::2/64"},
		{"IP=10.1.2.11/24", ``, "10.1.2.11/24 2001:db8:1::3/64"},
		{"IP=2001:db8:1::77", `"args":{}`, "10.1.2.2/24 2001:db8:1::77/64"},
		{"IgnoreUnknown=true;K8S_POD_NAME=p;IP=10.1.2.12", `"args":{"cni":{"ips":[]}}`, "10.1.2.12/24 2001:db8:1::4/64"},
		{"", `"args":{"cni":{"ips":["10.1.2.13/8","2001:db8:1::13/64"]}}`, "10.1.2.13/24 2001:db8:1::13/64"},
		{"", `"runtimeConfig":{"ips":["10.1.2.14","2001:db8:1::14/64"]}`, "10.1.2.14/24 2001:db8:1::14/64"},
		{"", `"runtimeConfig":{"ips":["2001:db8:1::15"]},"args":{"cni":{"ips":["::ffff:10.1.2.15"]}}`, "10.1.2.15/24 2001:db8:1::15/64"},
		{"IP=10.1.2.17", `"runtimeConfig":{"ips":["2001:db8:1::17"]}`, "10.1.2.17/24 2001:db8:1::17/64"},
	} {
		call := add1(fmt.Sprint("c", i), conf("net", sets, slices.DeleteFunc([]string{c.more}, func(s string) bool { return s == "" })...))
		call.args = c.args
		if got := strings.Join(n.must(call).addresses(t), " "); got != c.want {
			t.Errorf("%q %s: %s, want %s", c.args, c.more, got, c.want)
		}
	}
	merged := add1("m", conf("net", sets, `"args":{"cni":{"ips":["10.1.2.20"]}}`))
	merged.args = "IP=10.1.2.21"
	n.fails(merged, 7, "failed to allocate all requested IPs: 10.1.2.20")
	merged.args = "IP=2001:db8:1::20"
	if got := n.must(merged).addresses(t); !slices.Equal(got, []string{"10.1.2.20/24", "2001:db8:1::20/64"}) {
		t.Fatal(got)
	}
}

// TestConfigForms: the forms of ranges and their order.
func TestConfigForms(t *testing.T) {
	n := newNode(t, ours(t))
	for i, c := range []struct{ ipam, more, want string }{
		{`"subnet":"10.1.2.0/24","rangeStart":"10.1.2.9","rangeEnd":"10.1.2.20","gateway":"10.1.2.30"`, `"x":1`, "10.1.2.9/24"},
		{`"ranges":[[{"subnet":"10.1.2.0/24","rangeStart":"10.1.2.9","rangeEnd":"10.1.2.20","gateway":"10.1.2.30"},{"subnet":"10.1.4.0/24"}],[{"subnet":"11.1.2.0/24","rangeStart":"11.1.2.9"}]]`,
			`"x":1`, "10.1.2.9/24 11.1.2.9/24"},
		{`"subnet":"10.1.2.0/24","rangeStart":"10.1.2.9","ranges":[[{"subnet":"11.1.2.0/24","rangeStart":"11.1.2.9"}]]`,
			`"runtimeConfig":{"irrelevant":"a","ipRanges":[[{"subnet":"12.1.3.0/24"}]]}`, "12.1.3.2/24 10.1.2.9/24 11.1.2.9/24"},
		{`"SUBNET":"10.1.2.0/24"`, `"x":1`, "10.1.2.2/24"}, // keys of JSON are not told by their case
	} {
		if got := strings.Join(n.must(add1("c", conf(fmt.Sprint("net", i), c.ipam, c.more))).addresses(t), " "); got != c.want {
			t.Errorf("%s: %s, want %s", c.ipam, got, c.want)
		}
	}
}

func TestResolvConf(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"\n\t\tnameserver 192.0.2.0\n\t\tnameserver 192.0.2.1\n\t\t", `{"nameservers":["192.0.2.0","192.0.2.1"]}`},
		{"\nnameserver 192.0.2.0\n;nameserver 192.0.2.1\n", `{"nameservers":["192.0.2.0"]}`},
		{"\nnameserver 192.0.2.0\nnameserver 192.0.2.2\ndomain example.com\n;nameserver comment\n#nameserver comment\nsearch example.net example.org\nsearch example.gov\noptions one two three\noptions four\n",
			`{"nameservers":["192.0.2.0","192.0.2.2"],"domain":"example.com","search":["example.net","example.org","example.gov"],"options":["one","two","three","four"]}`},
		{"nameserver\nsortlist x\nsearch\n", `{}`},
	} {
		path := filepath.Join(t.TempDir(), "resolv.conf")
		if err := os.WriteFile(path, []byte(c.text), 0o644); err != nil {
			t.Fatal(err)
		}
		dns, err := parseResolvConf(path)
		if err != nil {
			t.Fatal(err)
		}
		if got, _ := json.Marshal(dns); string(got) != c.want {
			t.Errorf("%q: %s, want %s", c.text, got, c.want)
		}
	}
}

// TestErrors: what is refused, with its code and text.
// refusal is a call and how it fails.
type refusal struct {
	call invocation
	code int
	text string
}

func with(i invocation, change func(*invocation)) invocation { change(&i); return i }

// refusedConfigs are ADDs that fail for their configuration or arguments.
func refusedConfigs() []refusal {
	ok := add1("c", conf("net", one24))
	return []refusal{
		{add1("c", conf("net", `"ranges":[[{"subnet":"10.1.2.0/30"}]]`)), 11, "failed to allocate for range 0: no IP addresses available in range set: 10.1.2.1-10.1.2.2"},
		{with(add1("c", conf("big", one24)), func(i *invocation) { i.args = "IP=10.1.2.2" }), 11, "failed to allocate for range 0: requested IP address 10.1.2.2 is not available in range set 10.1.2.1-10.1.2.254"},
		{with(ok, func(i *invocation) { i.args = "IP=10.1.2.1" }), 7, "failed to allocate for range 0: requested ip 10.1.2.1 is subnet's gateway"},
		{with(ok, func(i *invocation) { i.args = "IP=10.1.3.1" }), 7, "failed to allocate all requested IPs: 10.1.3.1"},
		{with(ok, func(i *invocation) { i.args = "IP=x" }), 4, `ARGS: error parsing value of pair "IP=x": invalid IP address x`},
		{with(ok, func(i *invocation) { i.args = "K8S=x" }), 4, `ARGS: unknown args ["K8S=x"]`},
		{add1("c", conf("net", `"ranges":[]`)), 7, "no IP ranges specified"},
		{add1("c", `{"cniVersion":"1.1.0","name":"net"}`), 7, "IPAM config missing 'ipam' key"},
		{add1("c", conf("net", `"ranges":[[]]`)), 7, "invalid range set 0: empty range set"},
		{add1("c", conf("net", `"ranges":[[{"subnet":"10.1.2.0/31"}]]`)), 7, "invalid range set 0: Network 10.1.2.0/31 too small to allocate from"},
		{add1("c", conf("net", `"ranges":[[{"subnet":"10.1.2.5/24"}]]`)), 7, "invalid range set 0: Network has host bits set. For a subnet mask of length 24 the network address is 10.1.2.0"},
		{add1("c", conf("net", `"ranges":[[{"subnet":"::ffff:10.1.2.0/120"}]]`)), 7, "invalid range set 0: IPNet IP and Mask version mismatch"},
		{add1("c", conf("net", `"ranges":[[{"subnet":"::/64"}]]`)), 7, "holds IPv4-mapped addresses"},
		{add1("c", conf("net", `"ranges":[[{"subnet":"10.1.2.0/24","rangeStart":"10.1.3.0"}]]`)), 7, "invalid range set 0: RangeStart 10.1.3.0 not in network 10.1.2.0/24"},
		{add1("c", conf("net", `"ranges":[[{"subnet":"10.1.2.0/24","rangeEnd":"10.1.3.0"}]]`)), 7, "invalid range set 0: RangeEnd 10.1.3.0 not in network 10.1.2.0/24"},
		{add1("c", conf("net", `"ranges":[[{"subnet":"10.1.0.0/22"},{"subnet":"10.1.2.0/24"}]]`)), 7, "invalid range set 0: subnets 10.1.0.1-10.1.3.254 and 10.1.2.1-10.1.2.254 overlap"},
		{add1("c", conf("net", `"ranges":[[{"subnet":"10.1.0.0/22"},{"subnet":"2001:db8:5::/64"}]]`)), 7, "invalid range set 0: mixed address families"},
		{add1("c", conf("net", `"ranges":[[{"subnet":"10.1.2.0/24"}],[{"subnet":"10.1.4.0/24"},{"subnet":"10.1.2.0/24"}]]`)), 7, "range set 0 overlaps with 1"},
		{add1("c", versioned("0.2.0", "net", `"ranges":[[{"subnet":"10.1.2.0/24"}],[{"subnet":"11.1.2.0/24"}]]`)), 7, "CNI version 0.2.0 does not support more than 1 address per family"},
		{add1("c", conf("net", one24, `"args":{"cni":{"ips":[""]}}`)), 7, "cannot understand ip: IP <nil> not v4 nor v6"},
		{add1("c", conf("net", one24+`,"resolvConf":"%DIR%/none"`)), 5, "no such file or directory"},
		{add1("c", `{"cniVersion":"1.1.0","name":"net","ipam":{"ranges":"x"}}`), 6, "cannot unmarshal"},
		{add1("c", `{"cniVersion":"1.1.0",`), 6, "error unmarshall network config: unexpected end of JSON input"},
		{add1("c", ``), 6, "error unmarshall network config: unexpected end of JSON input"},
		{add1("c", `{"cniVersion":"1.1.0"}`), 7, "missing network name"},
		{add1("c", conf("../up", one24)), 7, "invalid characters found in network name"},
		{add1("c", versioned("3.0.0", "net", one24)), 1, "incompatible CNI versions"},
	}
}

// refusedCalls are calls that fail for their environment, verb or options.
func refusedCalls() []refusal {
	ok := add1("c", conf("net", one24))
	return []refusal{
		{with(ok, func(i *invocation) { i.verb = "CHECK"; i.conf = versioned("0.3.1", "net", one24) }), 1, "config version does not allow CHECK"},
		{with(ok, func(i *invocation) { i.verb = "GC"; i.conf = versioned("1.0.0", "net", one24) }), 1, "config version does not allow GC"},
		{with(ok, func(i *invocation) { i.verb = "STATUS"; i.conf = versioned("1.0.0", "net", one24) }), 1, "config version does not allow STATUS"},
		{with(ok, func(i *invocation) { i.verb = "FLY" }), 4, "unknown CNI_COMMAND: FLY"},
		{with(ok, func(i *invocation) { i.unset = "CNI_CONTAINERID" }), 4, "required env variables [CNI_CONTAINERID] missing"},
		{with(ok, func(i *invocation) { i.env = []string{"CNI_COMMAND=ADD"} }), 4, "required env variables [CNI_CONTAINERID,CNI_NETNS,CNI_IFNAME,CNI_PATH] missing"},
		{add1("bad id", conf("net", one24)), 4, "invalid characters in containerID"},
		{with(ok, func(i *invocation) { i.ifname = "sixteen-letters!" }), 4, "interface name is too long"},
		{with(ok, func(i *invocation) { i.ifname = "a b" }), 4, "interface name contains / or : or whitespace characters"},
		{with(ok, func(i *invocation) { i.verb = "CHECK" }), 999, "host-local: Failed to find address added by container c"},
		{with(ok, func(i *invocation) {
			i.verb, i.conf = "STATUS", conf("net", `"ranges":[[{"subnet":"10.1.2.0/30"}]],"statusFull":true`)
		}), 50, "no IP addresses available in range set: 10.1.2.1-10.1.2.2"},
		{with(ok, func(i *invocation) { i.container = strings.Repeat("x", 1025) }), 4, "name of 1025 bytes, at most 1024"},
		{with(ok, func(i *invocation) { i.conf = conf("net", one24+`,"rebootLeases":"x"`) }), 7, "ipam.rebootLeases"},
		{with(ok, func(i *invocation) { i.conf = conf("net", one24+`,"exclude":["x"]`) }), 7, "ipam.exclude"},
		{with(ok, func(i *invocation) { i.conf = conf("net", one24+`,"exclude":["10.1.2.0/24"]`) }), 7, "ipam.exclude leaves no address of range set 0"},
		{with(ok, func(i *invocation) {
			i.verb, i.conf = "GC", conf("net", one24, `"cni.dev/valid-attachments":5`)
		}), 6, "valid attachments"},
		{with(ok, func(i *invocation) {
			i.verb, i.conf, i.container = "CHECK", conf("big", one24, `"prevResult":{"cniVersion":"1.1.0","ips":[{"address":"10.1.2.7/24"}]}`), "first"
		}), 999, "address 10.1.2.7 of prevResult is not held by container first"},
		{with(ok, func(i *invocation) {
			i.verb, i.conf, i.container = "CHECK", conf("big", one24, `"prevResult":{"cniVersion":"1.1.0","ips":[{"address":"192.0.2.7/24"}]}`), "first"
		}), 999, "prevResult has none of the addresses of container first: 10.1.2.2"},
		{with(ok, func(i *invocation) {
			i.verb, i.conf, i.container = "CHECK", conf("big", one24, `"prevResult":{"cniVersion":"1.1.0","ips":"x"}`), "first"
		}), 6, "could not parse prevResult"},
	}
}

func TestErrors(t *testing.T) {
	n := newNode(t, ours(t))
	n.must(add1("first", conf("net", `"ranges":[[{"subnet":"10.1.2.0/30"}]]`)))
	n.must(add1("first", conf("big", one24)))
	for _, c := range append(refusedConfigs(), refusedCalls()...) {
		n.fails(c.call, c.code, c.text)
	}
	// Who has it is in the details, where no script looks.
	call := add1("c", conf("big", one24))
	call.args = "IP=10.1.2.2"
	if f := n.fails(call, 11, "not available"); f.Details != "held by first/eth0" {
		t.Fatalf("%+v", f)
	}
	if s := n.state("net"); len(s.Holdings) != 1 {
		t.Fatal(s)
	}
	// No verb at all says on stderr what this is.
	if a := n.call(invocation{env: []string{"CNI_PATH=/x"}}); a.code != 0 || a.stdout != "" || !strings.Contains(a.stderr, about()) || !strings.Contains(a.stderr, "0.1.0, 0.2.0, 0.3.0, 0.3.1, 0.4.0, 1.0.0, 1.1.0") {
		t.Fatalf("%+v", a)
	}
	if a := n.must(invocation{env: []string{"CNI_COMMAND=VERSION"}}); a.stdout != `{"cniVersion":"1.1.0","supportedVersions":["0.1.0","0.2.0","0.3.0","0.3.1","0.4.0","1.0.0","1.1.0"]}`+"\n" {
		t.Fatalf("%+v", a)
	}
}

// TestOwnNamespace: an ADD in the plugin's own namespace is refused before it does anything, and stdout has one value.
func TestOwnNamespace(t *testing.T) {
	n := newNode(t, ours(t))
	call := add1("c", conf("net", one24))
	call.env = call.environment()
	for i, v := range call.env {
		if strings.HasPrefix(v, "CNI_NETNS=") {
			call.env[i] = "CNI_NETNS=/proc/self/ns/net"
		}
	}
	if _, err := os.Stat("/proc/self/ns/net"); err != nil {
		t.Skip("SKIPPED, there are no network namespaces here")
	}
	n.fails(call, 8, "plugin's netns and netns from CNI_NETNS should not be the same")
	if s := n.state("net"); len(s.Holdings) != 0 {
		t.Fatal(s)
	}
	call.env = append(call.env, "CNI_NETNS_OVERRIDE=true")
	n.must(call)
}

// TestLenientDel: a DEL succeeds for what cannot exist and whatever is wrong beside it, and
// like a GC it makes nothing where there is nothing.
func TestLenientDel(t *testing.T) {
	n := newNode(t, ours(t))
	c := conf("net", one24)
	n.must(del1("c", c))
	n.must(invocation{conf: conf("net", one24, `"cni.dev/valid-attachments":[]`), env: []string{"CNI_COMMAND=GC", "CNI_PATH=/x"}})
	n.must(invocation{conf: c, env: []string{"CNI_COMMAND=STATUS", "CNI_PATH=/x"}})
	n.fails(invocation{verb: "CHECK", container: "c", ifname: "eth0", conf: c}, 999, "Failed to find address added by container c")
	n.must(del1("c", conf(strings.Repeat("n", 300), one24)))
	if entries, err := os.ReadDir(n.dir); err != nil || len(entries) > 0 {
		t.Fatal(entries, err)
	}
	n.must(add1("c", c))
	n.must(del1(strings.Repeat("x", 1025), c))
	n.must(del1("c", conf("net", one24+`,"rebootLeases":true,"bootIDFile":"/none","exclude":5`)))
	if s := n.state("net"); len(s.Holdings) != 0 {
		t.Fatal(s)
	}
	// That a range is full is no error of STATUS unless the configuration says so.
	small := conf("small", `"ranges":[[{"subnet":"10.1.2.0/30"}]]`)
	n.must(add1("c", small))
	n.must(invocation{conf: small, env: []string{"CNI_COMMAND=STATUS", "CNI_PATH=/x"}})
}

// TestExclude: what is excluded is neither picked nor to be had on request, and what lies
// around it is one set.
func TestExclude(t *testing.T) {
	n := newNode(t, ours(t))
	c := conf("net", `"ranges":[[{"subnet":"10.1.2.0/28"}],[{"subnet":"fd00::/124"}]],"exclude":["10.1.2.2","10.1.2.4-10.1.2.7","10.1.2.12/30","fd00::/126","192.0.2.0/24"]`)
	for i, want := range []string{"10.1.2.3/28 fd00::4/124", "10.1.2.8/28 fd00::5/124", "10.1.2.9/28 fd00::6/124", "10.1.2.10/28 fd00::7/124", "10.1.2.11/28 fd00::8/124"} {
		if got := strings.Join(n.must(add1(fmt.Sprint("c", i), c)).addresses(t), " "); got != want {
			t.Fatalf("%s, want %s", got, want)
		}
	}
	n.fails(add1("late", c), 11, "no IP addresses available in range set: 10.1.2.1-10.1.2.14")
	asked := add1("asked", conf("net", `"ranges":[[{"subnet":"10.1.2.0/28"}]],"exclude":["10.1.2.2"]`))
	asked.args = "IP=10.1.2.2"
	n.fails(asked, 7, "requested ip 10.1.2.2 is excluded by ipam.exclude")
	for _, bad := range []string{"", "10.1.2.3-", "10.1.2.3-10.1.2.2", "10.1.2.3-fd00::1", "10.1.2.0/33", "fe80::1%eth0"} {
		if s, err := parseSpan(bad); err == nil {
			t.Errorf("%q: %v", bad, s)
		}
	}
}

// TestMalformedGC: an entry that names no attachment could stand for one that is alive.
func TestMalformedGC(t *testing.T) {
	n := newNode(t, ours(t))
	n.must(add1("c1", conf("net", one24)))
	for _, list := range []string{`[{}]`, `[null]`, `[{"containerID":"c1"}]`, `[{"ifname":"eth0"}]`, `[{"containerID":"c2","ifname":"eth0"},{"containerID":"","ifname":"eth0"}]`,
		`[{"containerID":"` + strings.Repeat("x", 1025) + `","ifname":"eth0"}]`, `[{"containerID":"a\u0000","ifname":"eth0"}]`} {
		for _, key := range []string{"cni.dev/valid-attachments", "cni.dev/attachments"} {
			n.fails(invocation{conf: conf("net", one24, `"`+key+`":`+list), env: []string{"CNI_COMMAND=GC", "CNI_PATH=/x"}}, 7, "valid attachment")
			if s := n.state("net"); len(s.Holdings) != 1 {
				t.Fatalf("%s: %v", list, s)
			}
		}
	}
}

func TestGCVerb(t *testing.T) {
	n := newNode(t, ours(t))
	gc := func(more ...string) answer {
		t.Helper()
		return n.must(invocation{conf: conf("net", one24, more...), env: []string{"CNI_COMMAND=GC", "CNI_PATH=/x"}})
	}
	fill := func() {
		for _, c := range []string{"a", "b", "c"} {
			n.must(del1(c, conf("net", one24)))
			n.must(add1(c, conf("net", one24)))
		}
	}
	fill()
	for _, c := range []struct {
		list string
		left int
	}{
		{`"x":0`, 3}, // no list: nothing to go by
		{`"cni.dev/valid-attachments":[{"containerID":"a","ifname":"eth0"},{"containerID":"b","ifname":"eth1"}]`, 1},
		{`"cni.dev/attachments":[{"containerID":"a","ifname":"eth0"},{"containerID":"c","ifname":"eth0"}]`, 2},
		{`"cni.dev/valid-attachments":[]`, 0},
		{`"cni.dev/valid-attachments":null`, 0}, // what a runtime in Go writes for none
	} {
		fill()
		if a := gc(c.list); a.stdout != "" || strings.Count(a.stderr, "gc: released") != 3-c.left {
			t.Fatalf("%s: %+v", c.list, a)
		}
		if s := n.state("net"); len(s.Holdings) != c.left {
			t.Fatalf("%s: %v left, want %d", c.list, s.Holdings, c.left)
		}
	}
}

// TestParseSpan: the three forms in which addresses may be excluded.
func TestParseSpan(t *testing.T) {
	for text, want := range map[string]string{
		"10.1.2.3": "10.1.2.3-10.1.2.3", "10.1.2.9/30": "10.1.2.8-10.1.2.11", "10.1.2.4 - 10.1.2.7": "10.1.2.4-10.1.2.7",
		"fd00::7/124": "fd00::-fd00::f", "::ffff:10.1.2.0/120": "10.1.2.0-10.1.2.255", "::ffff:10.1.2.3": "10.1.2.3-10.1.2.3",
	} {
		if got, err := parseSpan(text); err != nil || got.String() != want {
			t.Errorf("%s: %s, %v, want %s", text, got, err, want)
		}
	}
	for _, text := range []string{"", "x", "10.1.2.7-10.1.2.4", "10.1.2.4-fd00::1", "10.1.2.4-", "10.1.2.0/33", "fe80::1%eth0", "fe80::1%a-fe80::2%a"} {
		if got, err := parseSpan(text); err == nil {
			t.Errorf("%q is read as %s", text, got)
		}
	}
}
