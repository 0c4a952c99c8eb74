// Package storetest says in code what an ipset.Store must do, for those that write one.
//
//	func TestStore(t *testing.T) {
//		storetest.TestStore(t, func(t *testing.T) ipset.Store { return open(t) })
//		storetest.TestEngine(t, func(t *testing.T) ipset.Store { return open(t) })
//	}
//
// [TestStore] is the contract of the interface. [TestEngine] runs an engine on the store: concurrent hosts, a
// commit that fails at every place before and after it is made, a context that ends at every call. [Faulty] is the
// wrapper that these use to break a store at a chosen call.
package storetest
