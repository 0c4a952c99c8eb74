// Package alloc declares the arguments and results of package ipset: pools and settings,
// the arguments and results of each call, and the reasons of a shortage. They are a
// separate package because the engine, its internal packages and package block share
// them.
//
//	alloc.HostOwner("node-a")               the host that an address is for, or the owner of a block
//	alloc.AssignArgs{Handle: "pod-1"}       what a caller asks for: for whom, how many, which, and once
//	alloc.Guard{Handle: "pod-1", Seq: 17}   the condition of a release
//	alloc.Allocation                        what calls return
//	alloc.Count                             a number of addresses, up to all of IPv6
//
// All are plain values. A zero field means none or the default, as its comment states.
// The text and JSON forms preserve all content.
package alloc
