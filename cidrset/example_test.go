package cidrset_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"time"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/cidrset"
)

func Example() {
	set, err := cidrset.New(netip.MustParsePrefix("10.0.0.0/16"), 24)
	if err != nil {
		fmt.Println(err)
		return
	}
	a, _ := set.AllocateNext()
	b, _ := set.AllocateNext()
	fmt.Println(a, b)

	freed, _ := set.Release(b)
	fmt.Println("freed", freed)

	c, _ := set.AllocateNext() // the cursor has moved on
	fmt.Println(c)
	// Output:
	// 10.0.0.0/24 10.0.1.0/24
	// freed 1
	// 10.0.2.0/24
}

func ExampleSet_AllocateNext_full() {
	set, _ := cidrset.New(netip.MustParsePrefix("192.0.2.0/30"), 31)
	for {
		p, err := set.AllocateNext()
		if errors.Is(err, ipalloc.ErrFull) {
			fmt.Println("full")
			return
		}
		fmt.Println(p)
	}
	// Output:
	// 192.0.2.0/31
	// 192.0.2.2/31
	// full
}

// Prefixes of several sizes out of one pool: each goes into the smallest free
// space that holds it, so the small ones do not break the large ones.
func ExampleSet_AllocatePrefix() {
	set, _ := cidrset.New(netip.MustParsePrefix("10.0.0.0/22"), 26)
	for _, bits := range []int{26, 24, 26, 25} {
		p, err := set.AllocatePrefix(bits)
		fmt.Println(p, err)
	}
	_, err := set.AllocatePrefix(22)
	fmt.Println(err)
	for p := range set.FreePrefixes() {
		fmt.Println("free", p)
	}
	// Output:
	// 10.0.0.0/26 <nil>
	// 10.0.1.0/24 <nil>
	// 10.0.0.64/26 <nil>
	// 10.0.0.128/25 <nil>
	// cidrset: allocate /22 in 10.0.0.0/22: no free prefix of that length (largest is /23)
	// free 10.0.2.0/23
}

// At start-up the prefixes in use are occupied again. The count tells a prefix
// that two nodes claim.
func ExampleSet_Occupy_restart() {
	set, _ := cidrset.New(netip.MustParsePrefix("fd00::/48"), 64)
	for _, used := range []string{"fd00::/64", "fd00:0:0:1::/64", "fd00:0:0:1::/64"} {
		taken, err := set.Occupy(netip.MustParsePrefix(used))
		fmt.Println(used, taken, err)
	}
	next, _ := set.AllocateNext()
	fmt.Println("next", next)
	// Output:
	// fd00::/64 1 <nil>
	// fd00:0:0:1::/64 1 <nil>
	// fd00:0:0:1::/64 0 <nil>
	// next fd00:0:0:2::/64
}

func ExampleSet_Release() {
	set, _ := cidrset.New(netip.MustParsePrefix("10.0.0.0/16"), 24)
	_, _ = set.Occupy(netip.MustParsePrefix("10.0.4.0/22"))

	freed, err := set.Release(netip.MustParsePrefix("10.0.4.0/23"))
	fmt.Println(freed, err)
	_, err = set.Release(netip.MustParsePrefix("10.0.7.128/25"))
	fmt.Println(err)
	for p := range set.All() {
		fmt.Println("taken", p)
	}
	// Output:
	// 2 <nil>
	// cidrset: release 10.0.7.128/25 in 10.0.0.0/16: a child is a /24
	// taken 10.0.6.0/24
	// taken 10.0.7.0/24
}

func ExampleCooldown() {
	now := time.Unix(0, 0)
	set, _ := cidrset.New(netip.MustParsePrefix("192.0.2.0/30"), 31,
		cidrset.Cooldown(time.Minute, func() time.Time { return now }))
	a, _ := set.AllocateNext()
	_, _ = set.Release(a)

	b, _ := set.AllocateNext() // never used comes first
	_, err := set.AllocateNext()
	fmt.Println(b, err)

	var e *ipalloc.Error
	if errors.As(err, &e) && errors.Is(err, ipalloc.ErrCooling) {
		now = e.Until
	}
	fmt.Println(set.AllocateNext())
	// Output:
	// 192.0.2.2/31 cidrset: allocate in 192.0.2.0/30: cooling until 1970-01-01T00:01:00Z
	// 192.0.2.0/31 <nil>
}

func ExampleRandom() {
	set, _ := cidrset.New(netip.MustParsePrefix("10.0.0.0/8"), 24, cidrset.Random(rand.NewPCG(1, 2)))
	p, _ := set.AllocateNext()
	fmt.Println(p.Bits(), set.Pool().Overlaps(p))
	// Output: 24 true
}

// A journal: every change in order, from which the set can be built again.
func ExampleOnChange() {
	set, _ := cidrset.New(netip.MustParsePrefix("10.0.0.0/16"), 24,
		cidrset.OnChange(func(c cidrset.Change) { fmt.Println(c.Op, c.Prefixes) }))
	batch := make([]netip.Prefix, 2)
	_ = set.AllocateN(batch)
	_, _ = set.Occupy(netip.MustParsePrefix("10.0.8.0/22"))
	_, _ = set.ReleaseN(batch)
	// Output:
	// allocate [10.0.0.0/24 10.0.1.0/24]
	// occupy [10.0.8.0/22]
	// release [10.0.0.0/24 10.0.1.0/24]
}

func ExampleRestore() {
	set, _ := cidrset.New(netip.MustParsePrefix("10.0.0.0/16"), 24)
	_, _ = set.AllocateNext()
	data, _ := set.MarshalBinary()

	again, err := cidrset.Restore(set.Pool(), set.ChildBits(), data)
	fmt.Println(err)
	fmt.Println(again.AllocateNext())
	// Output:
	// <nil>
	// 10.0.1.0/24 <nil>
}
