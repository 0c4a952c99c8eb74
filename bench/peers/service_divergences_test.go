package main

// serviceDivergences are the cases in which the service allocators of Kubernetes and
// ours do not answer alike, on purpose. The replay of a trace accepts no other
// difference; TestServiceDivergences shows each.
var serviceDivergences = []divergence{
	{svcLargeIPv6, "an IPv6 range ends after 65,535 addresses: ErrNotInRange", "every address of the prefix can be had",
		"the limit is that of a bitmap that is not compressed"},
	{svcHugeIPv4, "0.0.0.0/0 and /1 have no address", "all but network and broadcast can be had",
		"the size of the range is computed in 31 bits"},
	{svcDryNext, "a dry run of AllocateNext answers the network address, also when the range is full", "what the next call will answer",
		"a dry run is asked in order to know"},
	{svcDryNamed, "a dry run of a taken address succeeds", "ErrOccupied",
		"a dry run is asked in order to know"},
	{svcDryPort, "a dry run of AllocateNext for a port answers one above the range", "what the next call will answer",
		"the loop that looks for a free one never runs"},
	{svcRestore, "stored bits beyond the range are taken over: a count of free addresses below zero", "ErrCorrupt",
		"what comes from outside is checked at the door"},
	{svcMapped, "an IPv4 address in the 16-byte form is an IPv4 address", "ErrOutOfRange",
		"one address has one form in net/netip; an adapter calls Unmap"},
	{svcRepairHolder, "repair blames the service that is listed second", "the one that does not hold it",
		"a bitmap has no owners"},
	{svcRepairTwice, "repair finds a port that a service lists twice for one protocol to be of multiple services", "nothing",
		"it has one owner; validation refuses the service"},
	{svcRepairAgain, "repair counts looks at a leak on from those of an earlier leak of the same address, and may free it at the first", "it is seen three times anew",
		"the address may have been taken a moment ago"},
}

const (
	svcLargeIPv6 = "an IPv6 range of more than 2^16 addresses"
	svcHugeIPv4  = "an IPv4 range of 2^31 addresses or more"
	svcDryNext   = "a dry run of the next address"
	svcDryNamed  = "a dry run of a taken address"
	svcDryPort   = "a dry run of the next port"
	svcRestore   = "stored bits beyond the range"
	svcMapped    = "an address in the 4-in-6 form"

	svcRepairHolder = "repair of a duplicate whose holder is known"
	svcRepairTwice  = "repair of a number listed twice"
	svcRepairAgain  = "repair of a second leak"
)
