package main

import (
	"encoding/json"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go4.org/netipx"

	"github.com/ipalloc/ipalloc/ipset"
	"github.com/ipalloc/ipalloc/ipset/alloc"
)

func TestMap(t *testing.T) {
	name := newBolt(t, cluster(t))
	dir := filepath.Dir(strings.TrimPrefix(name, "bolt://"))
	env := map[string]string{"IPAMCTL_STORE": name, "dir": dir}
	data, err := os.ReadFile(strings.TrimPrefix(name, "bolt://"))
	if err != nil {
		t.Fatal(err)
	}
	old := filepath.Join(dir, "old.db")
	if err := os.WriteFile(old, data, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "used.txt"), []byte("10.1.0.32 web-0\n# end\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, stderr := call(t, env, "gc", "--in-use", dir+"/used.txt", "--candidates", dir+"/c.json", "--all-pools", "--yes"); stderr != "" {
		t.Fatal(stderr)
	}
	for _, line := range []string{"release --handle first --yes", "pool set pods --cooldown 0s", "release 10.1.0.238 --if-handle guest", "assign --host b --handle new -4 3", "assign --host c --handle web-1 10.1.0.238",
		"reserve add 10.1.0.64/27 10.1.0.60-10.1.0.66", "pool set pods --range 10.1.0.0-10.1.0.239"} {
		if status, _, stderr := call(t, env, strings.Fields(line)...); status != exitOK {
			t.Fatal(stderr)
		}
	}
	transcript(t, "map.txt", env,
		"map", "map pods --by host", "map pods --order rows", "map pods --host b --order rows", "map pods6", "map --order x", "map --by host --in 10.1.0.0/25",
		"map pods --candidates "+dir+"/c.json", "map pods --diff bolt://"+old, "map pods -o csv",
		"pool free", "pool free pods --fit 27", "pool free pods pods6 --fit 26 -o csv", "pool free lb -o json", "pool free none",
		"map none", "map --in 10.9.0.0/16", "map --by size", "map --diff bolt://"+old+" --by host", "map --candidates "+dir+"/used.txt")
}

// Lists and maps agree about what is free, of nested pools, ranges, subnets and reservations: the largest free prefix of a list is the
// largest of the list of free ones, and none of these is in another pool or kept back.
func TestFreeSpaceHasOneTruth(t *testing.T) {
	name := newBolt(t, func(e *ipset.Engine) {
		for _, p := range []alloc.Pool{
			{Name: "outer", Prefix: netip.MustParsePrefix("10.0.0.0/24"), BlockBits: 28},
			{Name: "inner", Prefix: netip.MustParsePrefix("10.0.0.128/25"), BlockBits: 28},
			{Name: "ranged", Prefix: netip.MustParsePrefix("10.1.0.0/24"), BlockBits: 28, Ranges: []netipx.IPRange{netipx.MustParseIPRange("10.1.0.200-10.1.0.207")}},
			{Name: "reserved", Prefix: netip.MustParsePrefix("10.2.0.0/24"), BlockBits: 28}, {Name: "subnet", Prefix: netip.MustParsePrefix("10.3.0.0/24"), Subnet: true, BlockBits: 28},
			{Name: "plain", Prefix: netip.MustParsePrefix("10.4.0.0/24"), BlockBits: 28}, {Name: "claimed", Prefix: netip.MustParsePrefix("10.5.0.0/26"), BlockBits: 27},
		} {
			if err := e.AddPool(t.Context(), p); err != nil {
				t.Fatal(err)
			}
		}
		must[[]alloc.Allocation](t)(e.Operator().SetReservations(t.Context(), reserving("10.2.0.0/25", "10.2.0.192/26", "10.5.0.8/30", "10.5.0.40/30")))
		for _, pool := range []string{"outer", "inner", "claimed"} {
			must[alloc.Assigned](t)(e.AutoAssign(t.Context(), alloc.AssignArgs{Owner: alloc.HostOwner("a"), Num4: 113, Partial: true, Pools: []string{pool}, Handle: "h"}))
		}
	})
	env := map[string]string{"IPAMCTL_STORE": name}
	_, out, _ := call(t, env, "pool", "list", "-o", "json")
	var listed []struct{ Name, LargestFree string }
	if err := json.Unmarshal([]byte(out), &listed); err != nil || len(listed) != 7 {
		t.Fatal(err, out)
	}
	for _, p := range listed {
		_, out, _ := call(t, env, "pool", "free", p.Name, "-o", "json")
		var free []struct{ Prefix, State string }
		if err := json.Unmarshal([]byte(out), &free); err != nil {
			t.Fatal(err, out)
		}
		largest := ""
		bits := 129
		for _, f := range free {
			if n := netip.MustParsePrefix(f.Prefix).Bits(); f.State == "free" && n < bits {
				largest, bits = f.Prefix, n
			}
		}
		if p.Name == "claimed" && largest != "" {
			t.Errorf("a pool of which every block is taken has %s", largest)
		}
		if largest != p.LargestFree {
			t.Errorf("%s: the pool has %q, the list of what is free %q", p.Name, p.LargestFree, largest)
		}
	}
	if status, out, _ := call(t, env, "pool", "free", "outer", "--fit", "28"); status != exitOK || strings.Contains(out, "10.0.0.1") {
		t.Error(out)
	}
}
