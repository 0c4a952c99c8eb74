package main

import (
	"net/netip"
	"os"
	"strings"
	"testing"

	"go4.org/netipx"

	"github.com/ipalloc/ipalloc/ipset"
	"github.com/ipalloc/ipalloc/ipset/alloc"
)

// explain says of each pool what it would give a host, or the engine's reason with the numbers, and changes nothing.
func TestExplain(t *testing.T) {
	zone, err := parseSelector("zone=a")
	if err != nil {
		t.Fatal(err)
	}
	team, err := parseSelector("team=a")
	if err != nil {
		t.Fatal(err)
	}
	name := newBolt(t, func(e *ipset.Engine) {
		cluster(t)(e)
		for i, p := range []alloc.Pool{
			{Name: "zoned", Nodes: zone}, {Name: "disabled", Disabled: true}, {Name: "limited", MaxBlocksPerHost: 1, BlockBits: 29}, {Name: "reserved"}, {Name: "manual", Manual: true},
			{Name: "ranged", Ranges: []netipx.IPRange{netipx.MustParseIPRange("10.45.0.9-10.45.0.9")}}, {Name: "team", Namespaces: team},
		} {
			p.Prefix = netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(40 + i), 0, 0}), 24)
			if err := e.AddPool(t.Context(), p); err != nil {
				t.Fatal(err)
			}
		}
		if err := e.Operator().SetConfig(t.Context(), alloc.Config{Strict: true}); err != nil {
			t.Fatal(err)
		}
		must[[]alloc.Allocation](t)(e.Operator().SetReservations(t.Context(), reserving("10.43.0.0/24", "10.1.0.16/28")))
		for pool, n := range map[string]int{"limited": 8, "ranged": 1} {
			must[alloc.Assigned](t)(e.AutoAssign(t.Context(), alloc.AssignArgs{Owner: alloc.HostOwner("a"), Num4: n, Pools: []string{pool}, Handle: pool}))
		}
	})
	labels := t.TempDir() + "/labels"
	if err := os.WriteFile(labels, []byte("a zone=b\nz zone=a\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	env := map[string]string{"IPAMCTL_STORE": name}
	before := contents(t, name)
	for _, c := range []struct {
		line string
		want map[string]string // by pool: what its line has
	}{
		{"explain a", map[string]string{"team": "its selector of namespaces is team=a, and the labels of the namespace are not known", "zoned": "labels of the host are not known", "disabled": ",disabled,-,", "limited": "limit: 1 of 1 blocks", "reserved": ",reserved,", "manual": "only calls that name it", "lb": "for other uses", "pods": ",10.1.0."}},
		{"explain a --labels " + labels, map[string]string{"zoned": "its selector is zone=a"}},
		{"explain host:z --labels " + labels, map[string]string{"zoned": ",10.40.0.", "limited": ",10.42.0."}},
		{"explain y --labels " + labels, map[string]string{"pods": "--labels has no such host"}},
		{"explain a --namespace team=b", map[string]string{"team": ",no,"}},
		{"explain a --namespace team=a,x=y", map[string]string{"team": ",10.46.0."}},
		{"explain limited", map[string]string{"limited": "host:a,limited,,limit: 1 of 1 blocks"}},
		{"explain z --for loadbalancer --labels " + labels, map[string]string{"pods": "for other uses", "lb": "only calls that name it"}},
		{"explain 10.1.0.51", map[string]string{"pods": `""guest"" on host:c holds it",release 10.1.0.51 --if-handle guest`}},
		{"explain 10.1.0.193", map[string]string{"pods": "it cools until 2026-03-01T13:00:00Z"}},
		{"explain 10.1.0.17", map[string]string{"pods": "\"a reservation has it, since 2026-03-01T12:00:00Z\",reserve remove 10.1.0.17"}},
		{"explain 10.45.0.10", map[string]string{"ranged": "outside of the ranges"}},
		{"explain 10.1.0.60", map[string]string{"pods": "it is free in a block of host:a"}},
		{"explain 10.1.0.5", map[string]string{"pods": "it is in no block yet"}},
	} {
		status, out, stderr := call(t, env, append(strings.Fields(c.line), "-o", "csv")...)
		if status != exitOK {
			t.Errorf("%s: status %d: %s", c.line, status, stderr)
		}
		for pool, want := range c.want {
			found := false
			for _, line := range strings.Split(out, "\n") {
				if strings.Contains(line, ","+pool+",") && strings.Contains(line, want) {
					found = true
				}
			}
			if !found {
				t.Errorf("%s: pool %s lacks %q:\n%s", c.line, pool, want, out)
			}
		}
	}
	if contents(t, name) != before {
		t.Error("explain changed the store")
	}
	for flag, want := range map[string]int{"": exitUsage, " --namespace team": exitUsage, " --namespace team=a": exitOK, " --namespace=": exitOK} {
		if status, _, stderr := call(t, env, strings.Fields("assign --host z --handle n --dry-run --labels "+labels+flag)...); status != want {
			t.Errorf("assign%s: status %d, %s", flag, status, stderr)
		}
	}
	if status, _, _ := call(t, env, "explain", "10.77.0.1"); status != exitNotFound {
		t.Errorf("status %d", status)
	}
}
