// Package torture holds programs that do to the stores of package ipset what the world does: they kill processes, cut networks
// stop servers and fill disks, and look afterwards whether anything is missing, held twice, or held without an owner.
//
//	cd bench/torture && GOWORK=off go run ./bolt -kills 1000
//
// Their short form is go test -short ./... in this directory.
package torture
