package rangealloc_test

import (
	"fmt"

	"github.com/ipalloc/ipalloc/servicealloc/rangealloc"
)

// What Kubernetes keeps in etcd as a RangeAllocation goes in and out.
func Example() {
	g, err := rangealloc.Decode("10.96.0.0/24", []byte{2, 1})
	fmt.Println(g.Addrs, err)
	data, err := rangealloc.Encode("10.96.0.0/24", g)
	fmt.Println(data, err)
	// Output:
	// [10.96.0.1 10.96.0.10] <nil>
	// [2 1] <nil>
}
