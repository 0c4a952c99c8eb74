// Package numbers hands out numbers of a range to owners, and records the owners in a store: VLANs of a fabric, VNIs of an
// overlay, AS numbers of a company.
//
//	db := store.NewMemory() // or boltstore, etcdstore, sqlstore, kubestore
//	vlans, err := numbers.New(ctx, db, "vlan fabric-1", numbers.Range{First: 100, Last: 4094}, ipset.Options{})
//	n, err := vlans.Assign(ctx, "tenant-a") // again: the same number
//
// A number is an address of package ipset in a space of its own, so all that [ipset.Engine] promises of addresses holds: nothing
// is handed out twice, from several processes, after a crash and after an unknown outcome. The lowest free number comes first.
//
// Errors are those of the engine, as [ipalloc.Error] of package numbers: they name the owner and the number. Safe for concurrent use.
package numbers
