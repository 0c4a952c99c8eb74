package occ

import (
	"testing"

	"github.com/ipalloc/ipalloc/ipset/store"
)

// A caller's records begin with an upper-case letter; those of hostlocal and prefixes it may guard.
func TestNotYours(t *testing.T) {
	for key, kinds := range map[string][3]bool{ // put, delete, guard
		"": {}, "@": {}, "[": {}, "a": {}, "z": {}, "\xc3\x84": {},
		"A": {true, true, true}, "K": {true, true, true}, "M": {true, true, true}, "Z": {true, true, true}, "Zone/1": {true, true, true},
		"L": {2: true}, "Xr": {2: true},
	} {
		for i, kind := range []store.Kind{store.Put, store.Delete, store.Guard} {
			first := store.Op{Kind: store.Put, Key: "Mine"}
			if got, found := NotYours([]store.Op{first, {Kind: kind, Key: key}}); found == kinds[i] || found && got != key {
				t.Errorf("%v %q: %q, %v", kind, key, got, found)
			}
		}
	}
}
