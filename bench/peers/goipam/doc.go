// Command goipam measures package ipset beside go-ipam: one address assigned and released, by the
// calls that the README of each library teaches, Assign and ReleaseByHandle here, AcquireIP and
// ReleaseIPFromPrefix there.
//
// Every pair of ours has a new handle. Both pools leave out the network and broadcast addresses, and
// both choose the lowest free address. In memory a figure is the CPU time of the process on one core,
// so it has the garbage collector in it. On a server it is wall time: each library runs its own
// storage, on one etcd and one PostgreSQL that sync every write.
//
// The instructions of a pair in memory are counted with callgrind, without the garbage collector, if
// valgrind is installed.
//
//	goipam                               measure in memory and print the tables
//	goipam -servers -readme ../README.md   also on the servers, and refresh the tables in a file
package main
