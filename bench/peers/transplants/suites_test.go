package transplants

import "github.com/ipalloc/ipalloc/bench/internal/transplant"

const (
	here     = "github.com/ipalloc/ipalloc/bench/peers/transplants/"
	services = "pkg/registry/core/service/"

	arithmetic = "calls their arithmetic of addresses"
	original   = "is the original"
	objects    = "prepares or counts their API objects"
)

var suites = []*transplant.Suite{
	{
		Name: "Kubernetes allocator: bitmap", Adapter: "allocator",
		Module: "k8s.io/kubernetes", Dir: services + "allocator", Tests: []string{"bitmap_test.go"},
	},
	{
		Name: "Kubernetes portallocator: allocator, operations, metrics", Adapter: "portallocator",
		Module: "k8s.io/kubernetes", Dir: services + "portallocator",
		Tests: []string{"allocator_test.go", "operation_test.go"}, With: []string{"allocator.go", "metrics.go", "operation.go"},
		Beside: map[string][]string{"../allocator": {services + "allocator/interfaces.go"}},
		Import: map[string]string{"k8s.io/kubernetes/" + services + "allocator": here + "allocator"},
	},
	{
		Name: "Kubernetes ipallocator: bitmap, IP addresses, ServiceCIDRs", Adapter: "ipallocator",
		Module: "k8s.io/kubernetes", Dir: services + "ipallocator",
		Tests: []string{"bitmap_test.go", "ipallocator_test.go", "cidrallocator_test.go"}, With: []string{"interfaces.go", "metrics.go"},
		Cut: map[string]string{
			"newTestAllocator":                           "makes the original",
			"newTestMetaAllocator":                       "makes the original",
			"TestAddOffsetAddress":                       arithmetic,
			"Test_addOffsetAddress":                      arithmetic,
			"Test_broadcastAddress":                      arithmetic,
			"Test_hostsPerNetwork":                       arithmetic,
			"Test_ipIterator":                            arithmetic,
			"Test_ipIterator_Number":                     arithmetic,
			"Test_isNotContained":                        arithmetic,
			"TestUsedWithCIDRFiltering":                  objects,
			"TestFreeWithOverflowProtection":             objects,
			"TestUsedWithInvalidIPs":                     objects,
			"TestAllocateNextStopOnError":                objects,
			"TestAllocateNext_Collision":                 objects,
			"TestCIDRAllocateDualWrite":                  objects,
			"TestCIDRAllocateDualWriteCollision":         objects,
			"TestCIDRAllocatorClusterIPAllocatedMetrics": objects,
			"TestCIDRAllocateNextStopOnError":            objects,
			"TestCIDRAllocateNextDontStopOnNot":          objects,
		},
	},
	{
		Name: "Kubernetes nodeipam: cidrset, metrics", Adapter: "cidrset",
		Module: "k8s.io/kubernetes", Dir: "pkg/controller/nodeipam/ipam/cidrset",
		Tests: []string{"cidr_set_test.go"}, With: []string{"metrics.go"},
	},
	{
		Name: "Cilium service/ipallocator", Adapter: "cilium",
		Module: "github.com/cilium/cilium", Dir: "pkg/ipam/service/ipallocator", Tests: []string{"allocator_test.go"},
		Cut: map[string]string{
			"TestRangeSize":                    arithmetic,
			"TestAddOffset":                    arithmetic,
			"TestAddrOffset":                   arithmetic,
			"TestAddOffsetAddrOffsetRoundTrip": arithmetic,
		},
	},
	{
		Name: "Cilium cidrset", Adapter: "cilium/cidrset",
		Module: "github.com/cilium/cilium", Dir: "pkg/ipam/cidrset", Tests: []string{"cidr_set_test.go"},
	},
	{
		Name: "go-ipam: prefixes, examples, JSON, seeds of the fuzz target", Adapter: "goipam",
		Module: "github.com/metal-stack/go-ipam", Dir: ".",
		Tests: []string{"prefix_test.go", "ipam_test.go", "json_test.go", "prefix_fuzz_test.go"},
		With:  []string{"errors.go", "ip.go", "ipam.go", "json.go", "prefix.go", "storage.go"},
		Cut: map[string]string{
			"ipamer.acquireChildPrefixInternal":  original,
			"ipamer.acquireSpecificIPInternal":   original,
			"ipamer.acquireAndStore":             original,
			"ipamer.releaseIPFromPrefixInternal": original,
			"retryOnOptimisticLock":              original,
		},
	},
}
