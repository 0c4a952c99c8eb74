package alloc

import (
	"encoding/binary"
	"fmt"
	"iter"
	"slices"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/wire"
	"github.com/ipalloc/ipalloc/ipset/internal/cause"
	"github.com/ipalloc/ipalloc/ipset/internal/holder"
)

// Attributes is an immutable set of keys and values, stored with an address. The zero
// value is the empty set. Sets with the same content are equal by ==.
type Attributes holder.Attributes

// NewAttributes returns the attributes in m. It fails with [ipalloc.ErrLimit] if they
// take more than 64 KiB.
func NewAttributes(m map[string]string) (Attributes, error) {
	if len(m) == 0 {
		return Attributes{}, nil
	}
	keys := make([]string, 0, len(m))
	size := 0
	for k, v := range m {
		keys = append(keys, k)
		size += len(k) + len(v) + 2
	}
	if size > holder.MaxAttributes {
		return Attributes{}, cause.Wrap(ipalloc.Error{Op: "check", Field: "attributes", Reason: fmt.Sprintf("%d bytes, at most %d", size, holder.MaxAttributes), Err: ipalloc.ErrLimit})
	}
	slices.Sort(keys)
	b := make([]byte, 0, size)
	for _, k := range keys {
		b = binary.AppendUvarint(b, uint64(len(k)))
		b = append(b, k...)
		b = binary.AppendUvarint(b, uint64(len(m[k])))
		b = append(b, m[k]...)
	}
	if len(b) > holder.MaxAttributes {
		return Attributes{}, cause.Wrap(ipalloc.Error{Op: "check", Field: "attributes", Reason: fmt.Sprintf("%d bytes, at most %d", len(b), holder.MaxAttributes), Err: ipalloc.ErrLimit})
	}
	return Attributes(holder.AttributesOf(string(b))), nil
}

// All yields keys and values, keys ascending.
func (a Attributes) All() iter.Seq2[string, string] {
	return func(yield func(string, string) bool) {
		for r := (wire.Reader{S: holder.Attributes(a).Code()}); r.S != ""; {
			k := r.Bytes(r.Uvarint())
			if v := r.Bytes(r.Uvarint()); !yield(k, v) {
				return
			}
		}
	}
}

// Map returns the attributes as a new map, nil if there are none.
func (a Attributes) Map() map[string]string {
	if a == (Attributes{}) {
		return nil
	}
	m := make(map[string]string)
	for k, v := range a.All() {
		m[k] = v
	}
	return m
}
