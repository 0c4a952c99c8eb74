// Package torture holds programs that do to the stores of package ipset what the world does: they kill processes, cut networks,
// stop servers and fill disks, and look afterwards whether anything is missing, held twice, or held without an owner.
//
// Program stores does it to every store, and has package oracle compare each answer with the replay of all commits, and package
// history explain what engines answered. Program etcd cuts members off as well, program bolt kills journals and fills disks, program
// rates measures what an assignment costs.
//
//	cd bench/torture && GOWORK=off go run ./stores -duration 5m
//
// Their short form is go test -short ./... in this directory.
package torture
