// Package torture holds programs that disturb the stores of package ipset as in real life: they kill processes, cut networks,
// stop servers and fill disks. Afterwards they check that no address is missing, held twice, or held without an owner.
//
// Program stores is the storm. Package oracle compares each answer of a store with the replay of all commits. Package history
// checks that the answers of engines are linearizable. Package storm has storms that a seed replays. Program scale runs a
// large cluster. The benchmark of package rates measures the cost of an assignment.
//
//	cd bench/torture && GOWORK=off go run ./stores -duration 5m
//
// Their short form is go test -short ./... in this directory.
package torture
