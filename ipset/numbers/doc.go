// Package numbers allocates numbers of a range to owners, and records the owners in a
// store. Examples are VLANs of a fabric, VNIs of an overlay, AS numbers of a company, and
// MAC addresses of virtual machines. A number has at most 48 bits.
//
//	db := store.NewMemory() // or boltstore, etcdstore, sqlstore, kubestore
//	vlans, err := numbers.New(ctx, db, "vlan fabric-1", numbers.Range{First: 100, Last: 4094}, ipset.Options{})
//	n, err := vlans.Assign(ctx, "tenant-a") // again: the same number
//
// [New] makes a range and [Open] opens an existing one. Each range is a space of package
// ipset and each number is an address in it, so every guarantee of [ipset.Engine] holds.
// No number is allocated twice, even by several processes, after a crash or after an
// unknown outcome. The lowest free number is allocated first.
//
// A released number leaves no record. [ipset.SweepAll] also sweeps the spaces of all
// ranges.
//
// A released number is free at once. To keep it free for a time, set the Cooldown of the
// pool, as in the following lines; New and Open keep it:
//
//	in, err := engine.InSpace("vlan fabric-1") // engine: of ipset, on the same store
//	pools, err := in.Pools(ctx)
//	pools[0].Cooldown = time.Hour
//	err = in.UpdatePool(ctx, pools[0])
//
// The space has the name of the range, and its pool is named "numbers". The pool is
// Manual, and the space has no other pool: New refuses the space of a tenant that has
// pools of addresses. To check a range, or to remove it after its numbers are released,
// use the engine of the space:
//
//	report, err := in.Operator().Check(ctx, nil)
//	err = in.Operator().ChangePools(ctx, alloc.PoolChanges{Remove: []string{"numbers"}, IfEmpty: true}) // ErrInUse if one is held
//	err = engine.Operator().RemoveSpace(ctx, "vlan fabric-1")
//
// Calls fail as the engine's do, with an [ipalloc.Error] of package numbers that names
// the owner and the number. A Numbers is safe for concurrent use.
package numbers
