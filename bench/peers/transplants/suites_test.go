package transplants

import "github.com/ipalloc/ipalloc/bench/internal/transplant"

const (
	here     = "github.com/ipalloc/ipalloc/bench/peers/transplants/"
	services = "pkg/registry/core/service/"

	arithmetic = "calls their arithmetic of addresses"
	original   = "is the original"
	objects    = "prepares or counts their API objects"
	sequences  = "looks into their sequences"

	moby    = "github.com/moby/moby/v2/"
	network = "daemon/libnetwork/"
	ovn     = "github.com/ovn-kubernetes/ovn-kubernetes/go-controller"
	ovnAt   = "v0.0.0-20260821222112-8871cd9cec9c"
	metallb = "go.universe.tf/metallb"
	spotter = "github.com/k8snetworkplumbingwg/whereabouts"
)

// What the adapters keep of files, for their own suites and for those that stand on them.
var (
	mobyStored = []string{
		"sequence", "sequence.toString", "sequence.getCopy", "sequence.equal", "sequence.toByteArray", "sequence.fromByteArray",
		"Bitmap.MarshalBinary", "Bitmap.UnmarshalBinary", "Bitmap.MarshalJSON", "Bitmap.UnmarshalJSON", "Bitmap.String",
	}
	ovnDeclared = []string{"StaticAllocator", "ContinuousAllocator", "ErrNotInRange", "ErrNotInRange.Error"}
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
		Module: "github.com/metal-stack/go-ipam", Version: "v1.14.14", Dir: ".",
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
	{
		Name: "moby: bitmap", Adapter: "moby/bitmap",
		Module: "github.com/moby/moby/v2", Version: "v2.0.0-beta.24", Dir: network + "bitmap",
		Tests: []string{"sequence_test.go"}, With: []string{"sequence.go"},
		Keep: map[string][]string{"sequence.go": mobyStored},
		Cut: map[string]string{
			"TestSequenceGetAvailableBit": sequences, "TestGetFirstAvailable": sequences, "TestFindSequence": sequences, "TestCheckIfAvailable": sequences,
			"TestMergeSequences": sequences, "TestPushReservation": sequences, "TestGetFirstAvailableFromCurrent": sequences,
		},
	},
	{
		Name: "moby: addrset", Adapter: "moby/addrset",
		Module: "github.com/moby/moby/v2", Version: "v2.0.0-beta.24", Dir: network + "internal/addrset",
		Tests: []string{"addrset_test.go"}, With: []string{"addrset.go"},
		Beside: map[string][]string{
			"netiputil": {"daemon/internal/netiputil/netiputil.go"}, "ipbits": {network + "ipbits/ipbits.go"},
			"uint128": {network + "internal/uint128/uint128.go"}, "../bitmap": {network + "bitmap/sequence.go"},
		},
		Keep: map[string][]string{network + "bitmap/sequence.go": mobyStored},
		Import: map[string]string{
			moby + "daemon/internal/netiputil": here + "moby/addrset/netiputil", moby + network + "ipbits": here + "moby/addrset/ipbits",
			moby + network + "internal/uint128": here + "moby/addrset/uint128", moby + network + "bitmap": here + "moby/bitmap",
		},
	},
	{
		Name: "OVN-Kubernetes: bitmap", Adapter: "ovn/bitmap",
		Module: ovn, Version: ovnAt, Dir: "pkg/allocator/bitmap", Tests: []string{"bitmap_test.go"}, With: []string{"interfaces.go"},
	},
	{
		Name: "OVN-Kubernetes: ip", Adapter: "ovn/ip",
		Module: ovn, Version: ovnAt, Dir: "pkg/allocator/ip", Tests: []string{"allocator_test.go"}, With: []string{"allocator.go"},
		Keep: map[string][]string{"allocator.go": ovnDeclared},
	},
	{
		Name: "OVN-Kubernetes: subnet", Adapter: "ovn/subnet",
		Module: ovn, Version: ovnAt, Dir: "pkg/allocator/ip/subnet", Tests: []string{"allocator_test.go"}, With: []string{"allocator.go"},
		Cut: map[string]string{"newIPAMAllocator": original, "newReservedIPAMAllocator": original, "reserveSubnets": original},
		Beside: map[string][]string{
			"util": {"pkg/util/util.go", "pkg/util/net.go"}, "testing": {"pkg/testing/parse.go"},
			"../ip": {"pkg/allocator/ip/allocator.go"},
		},
		Keep: map[string][]string{
			"pkg/util/util.go": {"StringSlice"}, "pkg/util/net.go": {"ContainsCIDR", "SubnetBroadcastIP", "ParseIPNets"},
			"pkg/allocator/ip/allocator.go": ovnDeclared,
		},
		Import: map[string]string{
			ovn + "/pkg/allocator/ip": here + "ovn/ip", ovn + "/pkg/util": here + "ovn/subnet/util", ovn + "/pkg/testing": here + "ovn/subnet/testing",
		},
	},
	{
		Name: "Antrea: ipallocator", Adapter: "antrea",
		Module: "antrea.io/antrea/v2", Version: "v2.0.0-20260821101211-fc70f2bb7037", Dir: "pkg/ipam/ipallocator",
		Tests: []string{"allocator_test.go"}, With: []string{"allocator.go"},
		Keep: map[string][]string{"allocator.go": {
			"IPAllocator", "MultiIPAllocator", "MultiIPAllocator.Names", "MultiIPAllocator.AllocateIP", "MultiIPAllocator.AllocateNext",
			"MultiIPAllocator.AllocateRange", "MultiIPAllocator.Release", "MultiIPAllocator.Used", "MultiIPAllocator.Free",
			"MultiIPAllocator.Total", "MultiIPAllocator.Has",
		}},
	},
	{
		Name: "MetalLB: allocator", Adapter: "metallb",
		Module: metallb, Version: "v0.16.2", Dir: "internal/allocator",
		Tests: []string{"allocator_test.go"}, With: []string{"allocator.go", "allocation.go", "stats.go"},
		Cut: map[string]string{
			"Allocator": original, "New": original, "Allocator.assign": original, "Allocator.Unassign": original,
			"Allocator.getIPFromCIDR": original, "Allocator.checkSharing": original, "Allocator.updatePoolStats": original,
			"sharingOK": original, "init": "registers their metrics",
		},
		Keep: map[string][]string{
			"internal/config/config.go": {"Proto", "Pools", "Pool", "ServiceAllocation"}, "internal/allocator/stats.go": {"stats", "deleteStatsFor"},
		},
		Beside: map[string][]string{
			"config": {"internal/config/config.go"}, "ipfamily": {"internal/ipfamily/ipfamily.go"},
			"original": {"internal/allocator/allocator.go", "internal/allocator/allocation.go", "internal/allocator/stats.go"},
		},
		Import: map[string]string{
			metallb + "/internal/config": here + "metallb/config", metallb + "/internal/ipfamily": here + "metallb/ipfamily",
		},
	},
	{
		Name: "whereabouts: allocate", Adapter: "whereabouts",
		Module: spotter, Version: "v0.0.0-20260602154010-3a262bd0cd87", Dir: "pkg/allocate",
		Tests: []string{"allocate_test.go"}, With: []string{"allocate.go"},
		Keep: map[string][]string{
			"allocate.go":        {"AssignmentError", "AssignmentError.Error"},
			"pkg/types/types.go": {"IPReservation"},
		},
		Beside: map[string][]string{"iphelpers": {"pkg/iphelpers/iphelpers.go"}, "types": {"pkg/types/types.go"}},
		Import: map[string]string{
			spotter + "/pkg/iphelpers": here + "whereabouts/iphelpers", spotter + "/pkg/types": here + "whereabouts/types",
			"github.com/onsi/ginkgo": "github.com/onsi/ginkgo/v2",
		},
	},
}
