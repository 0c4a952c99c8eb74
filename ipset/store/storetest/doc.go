// Package storetest verifies that a [store.Store] keeps its contract.
//
//	func TestStore(t *testing.T) {
//		storetest.TestStore(t, func(t *testing.T) store.Store { return open(t) })
//	}
//
// [TestStore] is the conformance suite; write your store against it. Package enginetest
// runs an engine on a store.
package storetest
