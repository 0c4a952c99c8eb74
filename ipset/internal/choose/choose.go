// Package choose has the form of alloc.Choice, which the engine's packages read by conversion.
package choose

import "net/netip"

// Kind is the kind of a choice.
type Kind uint8

const (
	Any        Kind = iota // the order of the pool
	Prefer                 // At, if it can be had
	From                   // the next ones at or after At
	Contiguous             // a row
	Aligned                // a row that is a prefix
)

// Choice has the form of alloc.Choice.
type Choice struct {
	kind Kind
	at   netip.Addr
}

// Of returns a choice.
func Of(k Kind, at netip.Addr) Choice { return Choice{k, at} }

// Kind returns the kind of the choice.
func (c Choice) Kind() Kind { return c.kind }

// At returns the address that the choice names.
func (c Choice) At() netip.Addr { return c.at }
