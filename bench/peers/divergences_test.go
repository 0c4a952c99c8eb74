package main

// divergence is a case in which the cidrset of Kubernetes and ours do not answer
// alike, on purpose. The replay of a trace accepts no other difference.
type divergence struct{ Case, Kubernetes, Ours, Reason string }

const (
	releasesPart  = "release of less than a child"
	releasesMore  = "release of more than the pool"
	namesUnmasked = "a prefix with host bits"
	poolUnmasked  = "a pool with host bits"
	poolMapped    = "an IPv4 pool in the 16-byte form"
	poolLargeIPv6 = "an IPv6 pool of more than 2^16 children"
	poolWholeIPv4 = "0.0.0.0/0 in /32"
	childTooShort = "a child shorter than the pool"
	childTooLong  = "a child longer than an address"
)

var divergences = []divergence{
	{releasesPart, "frees the whole child", "ErrOutOfRange, nothing changes",
		"the rest of the child may be somebody else's: a node keeps working while its prefix is given to another"},
	{releasesMore, "frees the whole pool", "ErrOutOfRange, nothing changes",
		"who gives back more than there is has mistaken the pool, and every owner would pay"},
	{namesUnmasked, "acts on the children from its address to its end", "ErrBadPrefix, nothing changes",
		"the host bits say that the caller means something else; adapters mask what people write"},
	{poolUnmasked, "hands out the same child several times", "ErrBadPool",
		"the host bits are OR-ed into every child"},
	{poolMapped, "hands out children of 0.0.0.0", "ErrBadPool",
		"the first four bytes of the address are taken for all of it"},
	{poolLargeIPv6, "ErrCIDRSetSubNetTooBig", "a set of up to 2^64 children",
		"the limit is that of a bitmap that is not compressed"},
	{poolWholeIPv4, "refuses to occupy anything but the pool", "occupies it",
		"2^32 is 0 in the 32 bits in which the index is compared"},
	{childTooShort, "a set that is full from the start", "ErrBadBits",
		"a mistake in a flag is to be seen where it is made"},
	{childTooLong, "a set that hands out prefixes without a mask", "ErrBadBits",
		"a mistake in a flag is to be seen where it is made"},
}
