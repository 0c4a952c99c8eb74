// Package alloc has the values by which package ipset says who has an address: the host and the handle that it is for, what is kept with
// it, on which condition it is given back, and what became of that. They stand beside the engine because every package behind it, and
// blocks that a program keeps itself, take and return them as they are.
//
//	alloc.HostOwner("node-a")               the host that an address is for, or the owner of a block
//	alloc.Claim{Handle: "pod-1"}            what a caller asks for, with attributes, lease and sharing
//	alloc.Guard{Handle: "pod-1", Seq: 17}   the condition of a release
//	alloc.Allocation                        what calls return
//
// All are plain values. Zero fields mean what the comment of each says, none or the default. Text and JSON forms lose nothing.
package alloc
