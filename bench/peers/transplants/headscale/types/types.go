//go:build transplant

// Package types stands for what headscale stores: users, and nodes with their addresses.
package types

import "net/netip"

type IPAllocationStrategy string

const (
	IPAllocationStrategySequential IPAllocationStrategy = "sequential"
	IPAllocationStrategyRandom     IPAllocationStrategy = "random"
)

type User struct{ Name string }

// Node has the fields that the tests compare or leave out.
type Node struct {
	ID, UserID, Endpoints, Hostinfo, CreatedAt, UpdatedAt int

	User       *User
	Hostname   string
	IPv4, IPv6 *netip.Addr
}

type Nodes []*Node

// Table is a database without one.
type Table struct{ Nodes Nodes }

// Save keeps a node.
func (t *Table) Save(row any) {
	if n, ok := row.(*Node); ok {
		t.Nodes = append(t.Nodes, n)
	}
}
