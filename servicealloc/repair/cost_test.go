package repair

import (
	"fmt"
	"net/netip"
	"runtime"
	"testing"
	"time"

	"github.com/ipalloc/ipalloc/servicealloc"
)

// A registry into which a RangeAllocation was loaded, all of it of the unknown owner, is
// compared and repaired in a time that follows the number of addresses: twice as many
// allocate twice as much.
func TestRepairOfOneLargeGrant(t *testing.T) {
	last := [2]float64{}
	for _, n := range []int{1000, 2000, 4000} {
		r := newRegistry(t, servicealloc.PortRange{}, "10.0.0.0/16")
		var all servicealloc.Grant
		var desired []servicealloc.Grant
		for i := 1; i <= n; i++ {
			a := netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)})
			all.Addrs = append(all.Addrs, a)
			if i%4 != 0 {
				desired = append(desired, servicealloc.Grant{Owner: fmt.Sprint("s", i), Addrs: []netip.Addr{a}})
			}
		}
		missing := servicealloc.Grant{Owner: "many"}
		for i := 1; i <= n; i++ {
			missing.Addrs = append(missing.Addrs, netip.AddrFrom4([4]byte{10, 0, 128 | byte(i>>8), byte(i)}))
		}
		r.Load([]servicealloc.Grant{all})
		var findings []*Finding
		now := [2]float64{
			bytesOf(func() { findings = Diff(r, append(desired, missing), nil, time.Unix(0, 0)) }),
			bytesOf(func() {
				if problems := Apply(r, Plan(findings, 0, 0)); len(problems) > 0 {
					t.Fatal(problems[0])
				}
			}),
		}
		if len(findings) != 2*n {
			t.Fatalf("%d findings", len(findings))
		}
		for i, what := range []string{"Diff", "Apply"} {
			if last[i] != 0 && now[i] > 2.8*last[i] {
				t.Errorf("%s of %d: %.0f bytes, of half as many %.0f", what, n, now[i], last[i])
			}
		}
		last = now
		if left := Diff(r, append(desired, missing), nil, time.Unix(0, 0)); len(left) > 0 {
			t.Fatal(left[0])
		}
		check(t, r)
	}
}

// bytesOf returns how many bytes f allocates.
func bytesOf(f func()) float64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return float64(after.TotalAlloc - before.TotalAlloc)
}
