// Package storetest verifies that a [store.Store] keeps its contract.
//
//	func TestStore(t *testing.T) {
//		storetest.TestStore(t, func(t *testing.T) store.Store { return open(t) })
//	}
//
// [TestStore] is the conformance suite; write your store against it. [TestPast] verifies when a
// store may end with ipalloc.ErrReplaced. Package enginetest
// runs an engine on a store.
package storetest
