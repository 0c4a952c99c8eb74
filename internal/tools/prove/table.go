package main

import "time"

// proof is one way in which claims of the documents are tested.
type proof struct {
	id, method string
	claims     []claim
	parts      []part
}

// claim is a sentence of a document, as it stands there.
type claim struct{ document, sentence string }

// kind says how a part is run, and what makes it longer.
type kind int

const (
	once    kind = iota // tests that take what they take; -short below an hour, if the package has no full part
	rounds              // one test of random inputs: IPALLOC_SEED, IPALLOC_FOR
	fuzzing             // a fuzz target with the corpus kept in Go's cache
	program             // a program; {for}, {for/2}, {for/4}, {seconds} and {seed} in its arguments are replaced
	target              // a target of the Makefile
)

// part is a command of a proof.
type part struct {
	kind
	dir    string   // of the package
	tests  []string // or the one fuzz target; none for a program, nor for all tests of a package
	unit   string   // what a round is
	args   []string
	tags   string
	full   bool          // tests that -short leaves out
	weight int           // share of the time; 0 is 1
	least  time.Duration // what its share is at least
	from   time.Duration // left out of shorter runs
}

func tests(dir string, names ...string) part { return part{kind: once, dir: dir, tests: names} }

func random(dir, name, unit string) part {
	return part{kind: rounds, dir: dir, tests: []string{name}, unit: unit, least: time.Second}
}

const (
	readme      = "README.md"
	bitmapPage  = "bitmap/doc.go"
	setPage     = "cidrset/doc.go"
	nodePage    = "cidrset/nodeipam/doc.go"
	loopPage    = "cidrset/nodeipam/controller/doc.go"
	servicePage = "servicealloc/doc.go"
	repairPage  = "servicealloc/repair/repair.go"
	ipsetPage   = "ipset/doc.go"
	prefixPage  = "ipset/prefixes/doc.go"
	localPage   = "ipset/hostlocal/doc.go"
	boltPage    = "ipset/boltstore/doc.go"
	sqlPage     = "ipset/sqlstore/doc.go"
	cniPage     = "cmd/cni-ipam/README.md"
)

// The claims of README.md, which several proofs share.
var (
	neverTwice = claim{readme, "A Go library that hands out IP addresses, prefixes and ports, takes them back, and never gives one out twice."}
	replaces   = claim{readme, "It replaces five systems that exist only built into other programs: the node CIDR allocator of kube-controller-manager, label-chosen ClusterCIDRs, the Service address and port allocators of kube-apiserver, Calico IPAM, and the CNI plugin host-local."}
	costIsFlat = claim{readme, "The cost of an allocation does not grow as a pool fills."}
	asItWas    = claim{readme, "After an error the state is as it was."}
	survives   = claim{readme, "State is kept in a file, a SQL database, etcd or the Kubernetes API, and survives a crash."}
)

// table returns the proofs. A new claim goes into the proof that tests it, or gets a new one.
func table(r *repo) []*proof {
	return []*proof{
		peers(), twins(), worlds(), histories(), laws(), faults(), storms(), fuzzed(r), hostile(), costs(), machines(), asserted(),
	}
}

func peers() *proof {
	return &proof{
		id:     "peers",
		method: "The same random calls go to the real Kubernetes, Calico and host-local packages and to this module. Each answer and each state is equal, or the difference is in a table with its reason. Their own tests pass on ours, or differ for a reason.",
		claims: []claim{replaces,
			{setPage, "The policy is the one of package cidrset in the Kubernetes node IPAM controller."},
			{cniPage, "It takes the same configuration and gives the same answers for every version of the specification from 0.1.0 to 1.1.0."},
			{repairPage, "It replaces the repair loops of Kubernetes for cluster addresses and node ports."},
			{servicePage, "Package rangealloc reads and writes the RangeAllocation of Kubernetes."},
		},
		parts: []part{
			random("bench/peers", "TestTracesLikeKubernetes", "sets of traces of 150 operations, one for each pool"),
			{kind: rounds, dir: "bench/peers", tests: []string{"TestServicesSideBySide"}, unit: "runs of 20,000 operations", args: []string{"-operations=20000"}, least: time.Second},
			random("bench/peers/calico", "TestAgainstCalico", "traces of 100 operations"),
			random("cmd/cni-ipam/internal/plugin", "TestDifferential", "traces of 50 invocations"),
			random("cmd/cni-ipam/internal/plugin", "TestSwitchDifferential", "sequences of 60 invocations, takeovers and exports"),
			tests("bench/peers", "TestPeersObeyTheContract", "TestFillLikeKubernetes", "TestNoPrefixLikeKubernetes", "TestServicePeers"),
			tests("bench/peers/transplants", "TestTransplants"),
			tests("bench/peers/calico/transplants", "TestTransplants"),
			tests("servicealloc", "TestSmallRangesOfKubernetes"),
			tests("cmd/cni-ipam/internal/plugin", "TestDivergences"),
		},
	}
}

func twins() *proof {
	return &proof{
		id:     "twins",
		method: "Random traces drive an allocator and a slow, obviously right twin. After each step answers, errors and states are equal.",
		claims: []claim{neverTwice, asItWas,
			{setPage, "After an error the set is unchanged."},
			{servicePage, "After an error the state is what it was before the call."},
			{nodePage, "After an error nothing has changed."},
			{nodePage, "A child is free if no held or reserved prefix of any size overlaps it."},
			{prefixPage, "A prefix comes from the smallest free prefix that it fits into, and from the lowest if there are several, as with cidrset.Set.AllocatePrefix."},
			{ipsetPage, "Everything that an engine has or does is of its own space: pools, configuration, reservations, hosts, handles, request keys, queries, Check."},
			{servicePage, "The random generator is seeded by the range, or by [Random], so the same calls give the same answers, and a dry run gives exactly the answer of the next call."},
		},
		parts: []part{
			random("fuzz", "TestBitmapAgainstModel", "traces of 60 operations"),
			random("fuzz", "TestCidrSetAgainstModel", "traces of 60 operations on each kind of pool"),
			random("fuzz", "TestClusterCIDRAgainstModel", "traces of 60 operations"),
			random("fuzz", "TestNodeIPAMAgainstModel", "traces of 60 operations"),
			random("fuzz", "TestBlockAgainstTwin", "traces of 400 bytes"),
			random("fuzz", "TestIPAMAgainstTwin", "traces of 600 bytes"),
			random("fuzz", "TestIPAMSpacesAgainstTwin", "traces of 300 operations in three spaces"),
			random("fuzz", "TestNestedPoolsAgainstTwin", "traces of 600 bytes"),
			random("fuzz", "TestPrefixesAgainstModel", "traces of 120 operations"),
			random("fuzz", "TestHostLocalAgainstModel", "traces of 100 operations"),
			random("internal/test/model", "TestCidrTwinsAgree", "traces on both twins of a set"),
			random("ipset/prefixes", "TestAgreesWithCidrset", "traces on a tree and a set"),
			random("ipset/prefixes", "TestTreeAgreesWithAList", "traces of 200 operations on each shape of pool"),
			random("ipset/store", "TestOverlayIsAStore", "traces on an overlay and a store"),
			random("servicealloc/internal/bands", "TestSpaceAgainstAList", "traces on bands and a list"),
			random("ipset", "TestDryRunAnswersAsTheCall", "runs of 1,000 states"),
			random("ipset", "TestStickyAtRandom", "traces of 120 operations"),
			random("ipset", "TestIndexFollowsEveryCall", "traces of 120 operations"),
			random("bitmap", "TestNoChainIsKept", "traces of 600 flips"),
			random("bitmap", "TestIterateWhileChanging", "loops over a set that changes"),
			random("bitmap", "TestRunsWhileChanging", "loops over runs that change"),
			random("cidrset", "TestRetiredRunsHaveCooled", "traces of 600 operations"),
			tests("ipset/enginetest"), tests("ipset/prefixes/prefixestest"),
		},
	}
}

func worlds() *proof {
	return &proof{
		id:     "worlds",
		method: "Every state of a small world meets every operation, none left out, with all internal assertions compiled in.",
		claims: []claim{neverTwice, asItWas,
			{nodePage, "[Allocator.Release] is by node, never by what its record says now."},
			{localPage, "An attachment that holds an address of a set gets no second one there."},
			{ipsetPage, "shared    held by several handles, each with its host, attributes and lease; free with the last"},
			{servicePage, "An IPv6 /64 has 2^64-1 usable addresses and works to its last one; untouched it costs under 1 KiB."},
		},
		parts: asserting(
			tests("bitmap", "TestSmallWorld", "TestSmallWorldChecked"),
			tests("cidrset", "TestSmallWorld"),
			tests("cidrset/nodeipam", "TestSmallWorldExhaustively"),
			tests("servicealloc", "TestEveryStateOfA28"),
			tests("internal/claims", "TestSpaceExhaustively"),
			tests("ipset/internal/block", "TestBlockExhaustively"),
			tests("ipset", "TestEngineExhaustively", "TestHoldersExhaustively"),
			tests("ipset/internal/occ", "TestWorlds", "TestRivals"),
			tests("ipset/prefixes", "TestEveryState", "TestEveryPage"),
			tests("ipset/hostlocal", "TestExhaustively", "TestEveryState"),
			tests("fuzz", "TestNestedPoolsExhaustively"),
		),
	}
}

// asserting has the parts run with internal assertions.
func asserting(parts ...part) []part {
	for i := range parts {
		parts[i].tags = "invariants"
	}
	return parts
}

func histories() *proof {
	return &proof{
		id:     "histories",
		method: "Engines work at the same time, and the recorded history is explained by one allocator that does one thing at a time (porcupine). The program stores does it on every store while processes and servers are killed; see storms.",
		claims: []claim{neverTwice,
			{ipsetPage, "An [Engine] and a store are safe for concurrent use; a [block.Block] is not."},
			{prefixPage, "Any number of allocators and processes may therefore share a store: the answers are those of a single allocator that serves one call at a time."},
			{setPage, "All methods are safe for concurrent use."},
			{nodePage, "All methods are safe for concurrent use."},
			{ipsetPage, "[Engine.Changes] delivers what every commit did, whole and in order, for an audit log."},
		},
		parts: []part{
			{kind: rounds, dir: "bench/torture/history", tests: []string{"TestLinearizable"}, unit: "histories of 480 calls, in memory and in a file", weight: 2, least: time.Second},
			random("ipset", "TestChangesTellEveryState", "traces of 200 calls, followed from several revisions"),
			random("cidrset/nodeipam/controller", "TestStorm", "storms of events, refusals and lost answers"),
			tests("bench/torture/history", "TestFullIsFull"),
			tests("servicealloc", "TestConcurrentMix", "TestStorm"),
			tests("ipset/internal/occ", "TestStorm"),
		},
	}
}

func laws() *proof {
	return &proof{
		id:     "laws",
		method: "A world with every feature in use goes through every procedure that a document advises, while others go on, cut off at every call of the store and repeated. The laws by row are below.",
		claims: []claim{asItWas,
			{ipsetPage, "Nothing is held outside the store: a new engine starts with an empty cache."},
			{"ipset/store/README.md", "If it is interrupted, run it again: until it is complete, engines refuse the new store, and `store.Complete` says why."},
			{setPage, "[Set.MarshalBinary] and [Restore] preserve what is taken, what is cooling since when, and the cursor."},
			{nodePage, "The nodes then hold the same prefixes as before; only the cursors start at the beginning."},
		},
		parts: []part{
			tests("internal/test/world"),
			random("cidrset/nodeipam", "TestApplyOverASnapshotOfPools", "journals replayed from each of their changes"),
		},
	}
}

func faults() *proof {
	return &proof{
		id:     "faults",
		method: "Each call fails once at each call of the store that it makes: refused, lost, or made without an answer. Then it is settled as documented.",
		claims: []claim{asItWas,
			{readme, "A call that ends in `ErrUnknownOutcome` may have been carried out: [what to do](ipset/store/README.md#what-no-store-promises)."},
			{ipsetPage, "An engine remembers a lost commit and settles it before it plans or reads anything else."},
			{prefixPage, "The next call of the same allocator first makes sure that such a commit can no longer be made."},
			{localPage, "Import, GC, Remove and the end of leases work in steps of one commit each, and every step leaves a consistent state."},
			{loopPage, "If the outcome of one is unknown, the node is unsettled: it keeps its prefixes and the same ones are written again, until the view or a live read shows what the node has."},
			{sqlPage, "A commit that failed left no trace, unless its error matches ipalloc.ErrUnknownOutcome: the context ended or the connection broke while it was in flight, the server ended the connection in place of an answer, or SQLite met an I/O error during COMMIT."},
		},
		parts: []part{
			tests("ipset", "TestEveryCallSettles", "TestHoldersWithFaults", "TestLostCommitIsFenced", "TestLostCommitThatWasMade"),
			tests("ipset/prefixes", "TestEveryCallFails", "TestEveryCallSettles"),
			tests("ipset/hostlocal", "TestFaults", "TestLostCommit", "TestLostStepOfGC"),
			tests("cidrset/nodeipam/controller", "TestLostAnswerDoesNotGiveThePrefixToAnotherNode", "TestControllerServesAllNodes"),
			random("servicealloc", "TestRollbackAtEveryStep", "sequences of transactions, rolled back after each step"),
			random("ipset", "TestGivingUpCallersLeakNothing", "storms of callers that give up"),
		},
	}
}
