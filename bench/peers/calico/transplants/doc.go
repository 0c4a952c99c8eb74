// Package transplants runs Calico's tests of its IPAM client on an adapter over ipset.
// README.md has the results; go test ./transplants repeats them.
package transplants
