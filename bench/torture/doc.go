// Package torture holds programs that do to the stores of package ipset what the world does: they kill processes, cut networks,
// stop servers and fill disks, and look afterwards whether anything is missing, held twice, or held without an owner.
//
// Program stores is the storm: package oracle compares each answer of a store with the replay of all commits, and package history
// explains what engines answered. Program scale runs a large cluster. The benchmark of package rates measures what an assignment costs.
//
//	cd bench/torture && GOWORK=off go run ./stores -duration 5m
//
// Their short form is go test -short ./... in this directory.
package torture
