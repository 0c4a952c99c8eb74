// Package storetest verifies that a [store.Store] keeps its contract, and breaks stores
// for the tests of their users.
//
//	func TestStore(t *testing.T) {
//		storetest.TestStore(t, func(t *testing.T) store.Store { return open(t) })
//	}
//
// [TestStore] is the conformance suite; write your store against it. [Faulty] wraps a
// store and fails at a chosen call. Package enginetest runs an engine on a store.
package storetest
