// Package ipam puts prefixes.Allocator and ipset.Engine under go-ipam's Ipamer: the first gives
// its prefixes, the second their addresses. What chooses and what stores is replaced; the value
// types, and the calls that only combine those, are go-ipam's.
package ipam
