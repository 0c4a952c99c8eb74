// Package storm has storms that a seed replays. Engines, store, clock and network run in one process, in a bubble of testing/synctest. Each
// call of the store waits in the network until the driver moves it on. The driver does one thing at a time, when every goroutine is
// blocked. It begins a call, or carries a packet to the database or back. It loses a packet, or lets it arrive late or twice. It lets a
// caller leave, ends a process, moves the time, or sets the database back. The seed decides the next step, so the same seed gives the same
// history. A storm of one seed has few kinds of faults and calls, because these meet more often then.
//
//	cd bench/torture && GOWORK=off go test ./storm -seeds 10000
//	cd bench/torture && IPALLOC_SEED=17 GOWORK=off go test ./storm -run TestStorm -v
//
// Each process has more than one client. They call Assign, AutoAssign (with a lease, with Existing, with a request key), AssignIP, Offer,
// RenewIP, ReleaseByHandle, ReleaseIPs, Sweep, RemoveHost, RenameHost, Transfer and IPsByHandle. They also change pools and reservations,
// and use Together, numbers and prefixes, also their Transfer. The clocks of the processes differ.
//
// A ledger beside the engines records the answers to the callers. It decides:
//
//	one holder            no answer gives a thing that another handle holds
//	nothing is lost       what was acknowledged is in the store until its release, its end, or a set-back
//	Assign agrees         all its answers for a handle name one address while that is held
//	lists                 IPsByHandle has what is held all the time
//	all or none           Together leaves no part of what it does
//	renamed               RenameHost moves each address of the host that no other call moves or ends
//	nothing is left       at rest a handle holds what its callers know, unless a call for it has an unknown outcome
//	no record stays       after the release of everything and a Sweep the store has the records of its beginning
//	indexes               Operator.Check finds no problem
//
// Each commit that changes an address is read into the terms of the model in internal/test/protocol, and its checker replays it. It rejects
// a commit without an expectation for a record on which the commit relies. It rejects an end without a release, an assignment without a call, a
// repeated sequence number, and another answer of a request key. It also rejects an answer that no commit gave. TestPlanted plants such faults.
//
// A set-back ends the promises of all answers after the backup, and processes that saw the lost commits end.
// 1,000 seeds take some 10 s on two cores.
//
// # Rules undone by hand
//
// The first of 2,000 seeds that notices:
//
//	a block is written at any revision                              0
//	the record of a first holding is written at any revision        1
//	a deleted block leaves no mark of its sequence numbers          1
//	the cache is kept after a conflict                              2
//	no fence after an unknown outcome                               2
//	RenameHost leaves half of the addresses of a block             14
//	a commit does not verify the pools                             19
//	a fence of unknown outcome counts                              23
//	Transfer of prefixes takes what another owner holds            24
//	Transfer ends the lease                                        56
//	Transfer takes the address of a third handle                   62
//	leases end by a clock that is ahead                            70
//	a commit does not verify the blocks that its plan has read    104
//	an answer of what is held does not verify its blocks          565
//	a release ignores the sequence number                        1902
package storm
