// Package alloc declares what the calls of package ipset take and return: pools and settings, the arguments and results of each
// call, and the reasons of a shortage. They form a separate package because the engine, the packages below it and package block
// share them.
//
//	alloc.HostOwner("node-a")               the host that an address is for, or the owner of a block
//	alloc.AssignArgs{Handle: "pod-1"}       what a caller asks for: for whom, how many, which, and once
//	alloc.Guard{Handle: "pod-1", Seq: 17}   the condition of a release
//	alloc.Allocation                        what calls return
//	alloc.Count                             a number of addresses, up to all of IPv6
//
// All are plain values. A zero field means none or the default, as its comment says. Text and JSON forms lose nothing.
package alloc
