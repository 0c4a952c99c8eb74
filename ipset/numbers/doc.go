// Package numbers hands out numbers of a range to owners, and records the owners in a store: VLANs of a fabric, VNIs of an
// overlay, AS numbers of a company.
//
//	db := store.NewMemory() // or boltstore, etcdstore, sqlstore, kubestore
//	vlans, err := numbers.New(ctx, db, "vlan fabric-1", numbers.Range{First: 100, Last: 4094}, ipset.Options{})
//	n, err := vlans.Assign(ctx, "tenant-a") // again: the same number
//
// [New] makes a range and [Open] returns one that exists. Each range is a space of package ipset and each number an address in it, so every guarantee of [ipset.Engine] holds: no number
// is handed out twice, even by several processes, after a crash or after an unknown outcome. The lowest free number comes first.
//
// A number that is released leaves no record. [ipset.SweepAll] reaches the
// spaces of all ranges.
//
// The space has the name of the range, and its pool is named "numbers". The pool is Manual, and the space has no other pool: New refuses
// the space of a tenant that has pools of addresses. To check a range, or to end it after its numbers are
// released, make an engine of ipset on the same store:
//
//	in, err := engine.InSpace("vlan fabric-1")
//	report, err := in.Operator().Check(ctx, nil)
//	err = in.Operator().ChangePools(ctx, alloc.PoolChanges{Remove: []string{"numbers"}, IfEmpty: true}) // ErrInUse if one is held
//	err = engine.Operator().RemoveSpace(ctx, "vlan fabric-1")
//
// Errors are those of the engine, as [ipalloc.Error] of package numbers: they name the owner and the number. Safe for concurrent use.
package numbers
