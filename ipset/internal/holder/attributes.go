package holder

import "github.com/ipalloc/ipalloc/internal/wire"

// MaxAttributes is the largest size of the attributes of one address, coded.
const MaxAttributes = 64 << 10

// The attributes of an address that was declined.
const (
	AttrReason = "declined"
	AttrBy     = "declined by"
)

// Attributes has the form of alloc.Attributes, which the engine's packages read and make by conversion.
type Attributes struct {
	// code is uvarint length and bytes of key and value alternating, keys ascending.
	code string
}

// AttributesOf returns the attributes with a code.
func AttributesOf(code string) Attributes { return Attributes{code} }

// Code returns the attributes as records have them.
func (a Attributes) Code() string { return a.code }

// Valid reports whether alloc.NewAttributes can have written the code.
func (a Attributes) Valid() bool {
	r, last, first := wire.Reader{S: a.code}, "", true
	for r.S != "" {
		k := r.Bytes(r.Uvarint())
		r.Bytes(r.Uvarint())
		if r.Err != nil || !first && k <= last {
			return false
		}
		last, first = k, false
	}
	return len(a.code) <= MaxAttributes
}
